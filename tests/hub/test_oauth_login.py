"""The login "oauth" in a browser: a real Hub with the guide's block, and an OpenID Connect provider on this machine."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import psutil
import pytest
import requests

from tests.hub.hub_process import PATIENCE_SECONDS, Hub, needs_hub
from tests.hub.login_form import LOGINS, log_out, opened, page_of

pytestmark = [
    needs_hub,
    pytest.mark.browser,
    pytest.mark.xdist_group("own-hub"),
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of authlib, on which the provider is built
]

SECRET = "the-secret-of-this-hub"
EXAMPLE, HUB = "https://login.example.edu", "https://hub.example.edu"


@dataclass(frozen=True)
class Site:
    """A site with accounts. Each has an id of the site's own; its name is a claim that anybody may have chosen."""

    url: str

    def add(self, account: str, **claims: object) -> None:
        requests.put(f"{self.url}/users/{quote(account, safe='')}", json=claims, timeout=600).raise_for_status()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    oidc_provider_mock = pytest.importorskip("oidc_provider_mock", reason="pip install oidc-provider-mock")
    with oidc_provider_mock.run_server_in_thread() as server:
        yield Site(f"http://localhost:{server.server_port}")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[Hub]:
    block = LOGINS["generic-oauth"]
    assert EXAMPLE in block
    assert HUB in block
    made = Hub(tmp_path_factory.mktemp("oauth"), students=("ada", "bob"), more=block)
    text = made.settings.read_text().replace(EXAMPLE, site.url).replace(HUB, made.url)
    made.settings.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OAUTH_CLIENT_SECRET", SECRET)
        with made:
            yield made


def visitor(browser: Any) -> Any:
    """Return a new page that loads nothing from elsewhere: the site's own pages have a style sheet of the network's."""
    page = page_of(browser)
    page.context.route(re.compile(r"https://"), lambda route: route.abort())
    return page


def log_in(page: Any, hub: Hub, account: str) -> str:
    """Log in at the site, and return the Hub's message, "" after a login."""
    page.goto(f"{hub.url}/hub/login?next=/hub/home")
    page.click("text=Sign in with Example University")
    page.fill("[name=sub]", account)
    page.click("button:has-text('Authorize')")
    page.wait_for_url(f"{hub.url}/**")
    return "" if page.url == f"{hub.url}/hub/home" else str(page.inner_text(".error"))


def people(hub: Hub) -> set[str]:
    """Return the names of all users in the Hub's database."""
    link = sqlite3.connect(f"file:{hub.state}/jupyterhub.sqlite?mode=ro", uri=True, timeout=600)
    try:
        return {name for (name,) in link.execute("SELECT name FROM users")}
    finally:
        link.close()


# ---------------------------------------------------------------------------------------------------------------------
def test_a_person_logs_in_and_out(hub: Hub, site: Site, browser: Any) -> None:
    site.add("1001", preferred_username="ada")
    page = visitor(browser)
    assert log_in(page, hub, "1001") == ""
    assert page.inner_text("h1") == "mlsys"
    assert "ada" in page.inner_text("nav").split()
    log_out(page, hub)
    assert page.locator("text=Sign in with Example University").count() == 1


def test_a_person_who_is_not_on_the_class_list_is_told(hub: Hub, site: Site, browser: Any) -> None:
    site.add("1002", preferred_username="mallory")
    page = visitor(browser)
    assert "mallory is not on the class list. Ask your instructor to add you" in log_in(page, hub, "1002")
    assert "mallory" not in people(hub)
    page.click("text=Log in again")
    page.wait_for_url("**/hub/login*")
    site.add("1003", name="No Username")
    assert "sends no 'preferred_username'" in log_in(page, hub, "1003")


def test_a_person_who_declines_at_the_site_can_start_again(hub: Hub, browser: Any) -> None:
    page = visitor(browser)
    page.goto(f"{hub.url}/hub/oauth_login")
    page.click("text=Deny")
    page.wait_for_url(f"{hub.url}/**")
    assert page.locator("text=Log in again").count() == 1


HOSTILE = {
    "an instructor's name in another case": "GRACE",
    "a student's name in another case": "Ada",
    "an instructor's name in full-width letters": "\uff47\uff52\uff41\uff43\uff45",
    "the Kelvin sign, whose lower case is k": "\u212aada",
    "a way up": "../grace",
    "a quoted way up": "..%2fgrace",
    "a path": "grace/../ada",
    "an address": "grace@example.edu",
    "an address with +": "grace+x@example.edu",
    "white space around a name": " grace ",
    "a line break": "grace\nada",
    "a NUL": "grace\0",
    "a list": ["grace"],
    "a number": 7,
    "200 characters": "a" * 200,
    "markup": "<b>grace</b>",
    "root": "root",
    "the account of the course": "grader-mlsys",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_name_becomes_nobody(hub: Hub, site: Site, what: str) -> None:
    """Log in without a browser: the form at the site is one POST."""
    before = people(hub)
    site.add(what, preferred_username=HOSTILE[what])
    person = requests.Session()
    answer = callback(hub, person, what)
    assert answer.status_code == 403, answer.text
    assert "Log in again" in answer.text
    assert "<b>grace" not in answer.text
    assert opened(hub, {each.name: str(each.value) for each in person.cookies}) == []
    assert people(hub) == before


# ---------------------------------------------------------------------------------------------------------------------
def start(hub: Hub, person: requests.Session) -> str:
    """Begin a login, and return the address at the site to which the Hub sends the person."""
    answer = person.get(f"{hub.url}/hub/oauth_login", allow_redirects=False, timeout=PATIENCE_SECONDS)
    return str(answer.headers["Location"])


def agree(address: str, account: str) -> str:
    """Log in at the site, and return the address at the Hub to which it sends the person back."""
    answer = requests.post(address, data={"sub": account}, allow_redirects=False, timeout=PATIENCE_SECONDS)
    return str(answer.headers["Location"])


def callback(hub: Hub, person: requests.Session, account: str) -> requests.Response:
    return person.get(agree(start(hub, person), account), timeout=PATIENCE_SECONDS)


def test_a_login_asks_for_a_state_and_a_challenge_of_its_own(hub: Hub) -> None:
    asked = [parse_qs(urlsplit(start(hub, requests.Session())).query) for _ in range(2)]
    for key in ("state", "code_challenge"):
        assert asked[0][key] != asked[1][key], key
    assert asked[0]["code_challenge_method"] == ["S256"]
    assert asked[0]["redirect_uri"] == [f"{hub.url}/hub/oauth_callback"]
    assert SECRET not in str(asked)


def test_a_replayed_callback_is_refused(hub: Hub, site: Site) -> None:
    site.add("1001", preferred_username="ada")
    ada = requests.Session()
    back = agree(start(hub, ada), "1001")
    state = ada.cookies.get_dict()
    assert ada.get(back, timeout=PATIENCE_SECONDS).url == f"{hub.url}/hub/home"
    # By the same browser, by one without its cookies, and by one with a copy of the cookies from before.
    for cookies in (None, {}, state):
        again = requests.Session() if cookies is not None else ada
        again.cookies.update(cookies or {})
        answer = again.get(back, allow_redirects=False, timeout=PATIENCE_SECONDS)
        assert answer.status_code in (400, 403), cookies
        assert "jupyterhub-hub-login" not in answer.cookies
    assert "The login site no longer accepts this login. Start it again." in answer.text


def test_a_callback_of_somebody_elses_login_is_refused(hub: Hub, site: Site) -> None:
    """Send a victim to the end of an attacker's login, who would then work in the attacker's account."""
    site.add("1004", preferred_username="bob")
    victim, attacker = requests.Session(), requests.Session()
    start(hub, victim)
    back = agree(start(hub, attacker), "1004")
    answer = victim.get(back, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 400
    assert "Log in again" in answer.text
    parts = urlsplit(back)
    query = {key: value[0] for key, value in parse_qs(parts.query).items()}
    for state in (None, "", "AAAA", "bm90IGpzb24=", "\u00e4"):
        changed = {key: value for key, value in query.items() if key != "state"} | ({"state": state} if state else {})
        answer = victim.get(parts._replace(query=urlencode(changed)).geturl(), timeout=PATIENCE_SECONDS)
        assert 400 <= answer.status_code < 600, state
        assert opened(hub, victim.cookies.get_dict()) == [], state


def test_a_login_leads_to_no_other_site(hub: Hub, site: Site) -> None:
    site.add("1001", preferred_username="ada")
    for elsewhere in ("https://evil.example/", "//evil.example/", "/\\evil.example/", "https:evil.example"):
        ada = requests.Session()
        address = f"{hub.url}/hub/oauth_login?next={quote(elsewhere, safe='')}"
        began = ada.get(address, allow_redirects=False, timeout=PATIENCE_SECONDS).headers["Location"]
        answer = ada.get(agree(began, "1001"), allow_redirects=False, timeout=PATIENCE_SECONDS)
        to = urlsplit(answer.headers["Location"])
        assert not to.netloc, elsewhere
        assert not to.path.startswith(("//", "/\\")), elsewhere


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone reads the environment of another user's process")
def test_the_secret_reaches_no_process_but_the_hub(hub: Hub) -> None:
    assert hub.process is not None
    children = psutil.Process(hub.process.pid).children(recursive=True)
    of_people = [each for each in children if each.uids().real != 0]
    assert of_people, "the course's server"
    assert not [each.cmdline() for each in of_people if SECRET in each.environ().values()]
