"""The default login, in a browser on a real Hub: sign up, wait, be admitted, log in, log out, change a password."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hub.hub_process import Hub, Person, needs_hub
from tests.hub.login_form import LOGINS, log_in, log_out, page_of

pytestmark = [needs_hub, pytest.mark.browser, pytest.mark.xdist_group("own-hub"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Yield a Hub as ``make hub`` starts it, with no class list: instructors admit people."""
    with Hub(tmp_path_factory.mktemp("native"), students=(), more=LOGINS["native"]) as made:
        yield made


@pytest.fixture(scope="module")
def first_password(hub: Hub) -> str:
    name, password = (hub.state / "first-passwords").read_text().split()
    assert name == "grace"
    return password


def sign_up(page: Any, hub: Hub, name: str, password: str) -> str:
    """Fill in the form, and return what the page answers."""
    page.goto(f"{hub.url}/hub/login")
    page.click("text=Sign up")
    page.fill("#username_input", name)
    page.fill("#password_input", password)
    page.fill("#password_confirmation_input", password)
    page.click("#signup_submit")
    return str(page.inner_text(".alert"))


def test_a_person_signs_up_is_admitted_and_logs_in_and_out(hub: Hub, first_password: str, browser: Any) -> None:
    ada, grace = page_of(browser), page_of(browser)
    assert "admitted" in sign_up(ada, hub, "ada", "difference-engine")
    assert log_in(ada, hub, "ada", "difference-engine") == "ada: wait until an instructor admits you"
    assert log_in(ada, hub, "ada", "analytical-engine") == "Invalid username or password"

    assert log_in(grace, hub, "grace", first_password) == ""
    grace.click("text=People")
    grace.click("button:has-text('Admit ada')")
    assert grace.inner_text("[role=status]") == "ada may log in."

    assert log_in(ada, hub, "ada", "difference-engine") == ""
    ada.locator("#logout").wait_for()
    assert ada.locator("text=People").count() == 0
    log_out(ada, hub)


def test_an_instructor_gives_a_new_password_which_the_person_changes(
    hub: Hub, first_password: str, browser: Any
) -> None:
    bob, grace = page_of(browser), page_of(browser)
    sign_up(bob, hub, "bob", "what-was-it-again")
    assert log_in(grace, hub, "grace", first_password) == ""
    grace.goto(f"{hub.url}/hub/authorize")
    grace.click("button:has-text('Admit bob')")
    grace.click("button:has-text('New password for bob')")
    found = re.search(r"password (\S+),", grace.inner_text("[role=status]:has-text('now has the password')"))
    assert found
    assert log_in(bob, hub, "bob", "what-was-it-again") == "Invalid username or password"
    assert log_in(bob, hub, "bob", found[1]) == ""
    bob.click("text=Change password")
    assert "your instructor can give you a new one." in bob.inner_text("form")
    for name, word in (("old_password", found[1]), ("new_password", "a-password-of-bob")):
        bob.fill(f"[name={name}]", word)
    bob.fill("[name=new_password_confirmation]", "a-password-of-bob")
    bob.click("input[type=submit]")
    assert "successful" in bob.inner_text(".alert")
    assert log_in(page_of(browser), hub, "bob", "a-password-of-bob") == ""


def shows_passwords(page: Any, *fields: str) -> bool:
    """Press the button beside the first field twice, by keyboard; return whether it shows and hides all fields."""
    button = page.locator("button#eye")
    assert (button.inner_text(), button.get_attribute("aria-label")) == ("Show", "Show password")
    assert button.get_attribute("aria-controls") == " ".join(fields)
    page.focus(f"#{fields[0]}")
    page.keyboard.press("Tab")
    kinds = []
    for key in ("Enter", "Space"):
        page.keyboard.press(key)
        kinds.append({page.get_attribute(f"#{field}", "type") for field in fields})
        kinds.append({button.inner_text(), button.get_attribute("aria-label")})
    return kinds == [{"text"}, {"Hide", "Hide password"}, {"password"}, {"Show", "Show password"}]


def test_passwords_can_be_shown_by_keyboard(hub: Hub, first_password: str, browser: Any) -> None:
    page = page_of(browser)
    page.goto(f"{hub.url}/hub/login")
    assert shows_passwords(page, "password_input")
    assert "Your instructor can give you a new password" in page.inner_text("body")
    page.goto(f"{hub.url}/hub/signup")
    assert shows_passwords(page, "password_input", "password_confirmation_input")
    assert log_in(page, hub, "grace", first_password) == ""
    page.goto(f"{hub.url}/hub/change-password")
    assert shows_passwords(page, "old_password_input", "new_password_input", "new_password_confirmation_input")


def ask(person: Person, **fields: str) -> int:
    """Send the form of the admission page as ``person``, and return the status of the answer."""
    data = fields | {"_xsrf": person.token("/hub/")}
    answer = person.session.post(f"{person.hub.url}/hub/authorize", data=data, allow_redirects=False)
    return int(answer.status_code)


def test_nobody_but_staff_admits(hub: Hub, first_password: str) -> None:
    grace, mallory = hub.log_in("grace", first_password), hub.log_in("mallory", "nothing-yet")
    for name in ("mallory", "eve"):
        form = {"username": name, "signup_password": "let-me-in-now", "signup_password_confirmation": "let-me-in-now"}
        data = form | {"_xsrf": mallory.token("/hub/")}
        mallory.session.post(f"{hub.url}/hub/signup", data=data).raise_for_status()
    assert ask(mallory, name="mallory", action="admit") in (302, 403)
    assert ask(grace, name="mallory", action="admit") == 200
    mallory = hub.log_in("mallory", "let-me-in-now")
    assert mallory.is_logged_in
    assert ask(mallory, name="eve", action="admit") == 403
    assert ask(mallory, name="grace", action="reset") == 403
    for name, action in (("grace", "reset"), ("nobody", "admit"), ("mallory", "refuse"), ("eve", "promote")):
        assert ask(grace, name=name, action=action) == 400, (name, action)
    # No link does it, because any page could open a link in an instructor's browser; nor does a form of another site.
    assert grace.session.get(f"{hub.url}/hub/authorize/eve").status_code == 404
    assert grace.session.post(f"{hub.url}/hub/authorize", data={"name": "eve", "action": "admit"}).status_code == 403
    assert not hub.log_in("eve", "let-me-in-now").is_logged_in
    assert ask(grace, name="eve", action="refuse") == 200


def test_instructors_are_no_admins(hub: Hub, first_password: str) -> None:
    grace = hub.log_in("grace", first_password)
    headers = {"X-XSRFToken": grace.token("/hub/"), "Referer": f"{hub.url}/hub/home"}
    assert not grace.session.get(f"{hub.url}/hub/api/user", headers=headers).json()["admin"]
    for path in ("api/users", "admin"):
        assert grace.session.get(f"{hub.url}/hub/{path}", headers=headers).status_code == 403
    assert grace.session.get(f"{hub.url}/services/mlsys/").status_code == 200
