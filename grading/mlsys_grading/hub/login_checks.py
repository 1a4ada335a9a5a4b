"""Checks of the login: what each kind of it needs, and who can log in with it."""

from __future__ import annotations

import pwd
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from traitlets import TraitError
from traitlets.config import Config

from mlsys_grading.hub.login import configure_login
from mlsys_grading.hub.machine import finding
from mlsys_grading.hub.settings import HubSettings
from mlsys_labkit._frontends.doctor import CheckResult

_PAM_REFUSES = (7, 10)  # PAM_AUTH_ERR and PAM_USER_UNKNOWN: it works, and does not know this person
_OPEN = {
    "native": "an instructor admits each person",
    "pam": "all accounts of this machine may log in",
    "shared-password": "the class password opens any name",
}


def login(settings: HubSettings) -> Iterator[CheckResult]:
    """Check the login of the settings. Raises LabkitError if the Hub could not start with it."""
    config = Config()
    configure_login(config, settings)
    kinds = {"native": _native, "pam": _pam, "shared-password": _shared, "oauth": _oauth}
    yield from kinds[settings.login.kind](settings, config)
    names = f"{len(settings.course.students)} names"
    allow = [key for key, value in settings.login.oauth.items() if value and ("allow" in key or key == "idps")]
    if settings.course.students:
        yield CheckResult("class list", "ok", f"{names}, and whom login.oauth allows" if allow else names)
    elif settings.login.kind != "oauth" or allow:
        yield CheckResult("class list", "ok", f"none: {_OPEN.get(settings.login.kind, ', '.join(allow))}")
    else:
        mend = f"set course.students, or for example login.oauth.allow_all = true, in {settings.file}"
        yield finding("class list", "none: nobody but instructors and admins may log in", mend, status="absent")


def _native(settings: HubSettings, config: Config) -> Iterator[CheckResult]:
    """Make an account in a database of this check alone, and log in with it."""
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    name, passwords = min(settings.staff), settings.state / "first-passwords"
    with tempfile.TemporaryDirectory() as folder:
        config.ClassAuthenticator.first_passwords = f"{folder}/first-passwords"
        with Session(create_engine("sqlite://")) as database:
            accounts = config.JupyterHub.authenticator_class(config=config, db=database)
            words = dict(line.split() for line in Path(folder, "first-passwords").read_text().splitlines())
            person = accounts.get_user(name)
            works = bool(person and person.is_authorized and person.is_valid_password(words[name]))
    problem = "" if works else f"{name} cannot log in with a new password"
    where = f"native: instructors' first passwords {'are' if passwords.exists() else 'will be'} in {passwords}"
    yield finding("login", problem, "pip install -c constraints.txt 'mlsys-grading[hub]'", where)


def _pam(settings: HubSettings, config: Config) -> Iterator[CheckResult]:
    """Ask PAM for a person who does not exist, which takes its delay of three seconds."""
    import pamela

    service = config.JupyterHub.authenticator_class(config=config).service
    problem = ""
    try:
        pamela.authenticate("labkit-doctor", "no-password", service=service)
    except pamela.PAMError as error:
        problem = "" if error.errno in _PAM_REFUSES else f"PAM's service {service!r} fails: {error}"
    else:
        problem = f"PAM's service {service!r} admits a person who does not exist"
    yield finding("login", problem, f"mend /etc/pam.d/{service}", f"pam: service {service!r} checks passwords")
    missing = [name for name in (*sorted(settings.staff), *settings.course.students) if not _has_account(name)]
    some = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    mend = "make accounts for them, or correct the names in course and hub.admins"
    yield finding("accounts", f"none here for {some}" if missing else "", mend, "everyone has one", "absent")


def _has_account(name: str) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False


def _shared(settings: HubSettings, config: Config) -> Iterator[CheckResult]:
    path = settings.base / settings.login.password_file
    mode = path.stat().st_mode & 0o777
    problem = f"other users of this machine may read {path} (mode {mode:03o})" if mode & 0o077 else ""
    yield finding("login", problem, f"chmod 600 {path}", f"shared-password: two passwords in {path}")


def _oauth(settings: HubSettings, config: Config) -> Iterator[CheckResult]:
    kind, file = config.JupyterHub.authenticator_class, settings.file
    try:
        site = kind(config=config)
    except (TraitError, ValueError) as error:
        yield finding("login", " ".join(str(error).split()), f"mend the table login.oauth in {file}")
        return
    missing = [key for key in ("client_id", "client_secret") if site.has_trait(key) and not getattr(site, key)]
    variables = " and ".join(f"OAUTH_{key.upper()}" for key in missing)
    problem = f"no {' and no '.join(missing)}" if missing else ""
    yield finding(
        "login", problem, f"the site gives them; set {variables} where the Hub starts", f"oauth: {kind.__name__}"
    )
    if site.has_trait("oauth_callback_url"):
        yield _callback(site.oauth_callback_url, file)
    for key in ("authorize_url", "token_url", "userdata_url", "jwks_endpoint"):
        if site.has_trait(key) and not (key == "userdata_url" and site.userdata_from_id_token):
            yield from _endpoint(f"login.oauth.{key}", str(getattr(site, key)), file)


def _callback(url: str, file: Path) -> CheckResult:
    path = urlsplit(url).path
    mend = f"set login.oauth.oauth_callback_url in {file} to https://ADDRESS OF THE HUB/hub/oauth_callback"
    if not url:
        return finding("login callback", "not set: guessed from each request", mend, status="absent")
    problem = "" if path == "/hub/oauth_callback" else f"{url} is no page of the Hub"
    return finding("login callback", problem, mend, f"{url}, as it has to be registered at the site")


def _endpoint(key: str, url: str, file: Path) -> Iterator[CheckResult]:
    """Check that an address of the site is one, and that the Hub reaches it. A site that is down stops no Hub."""
    parts = urlsplit(url)
    here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and here)):
        mend = f"set it in {file}; /.well-known/openid-configuration of the site has it"
        yield finding(key, f"{url!r} is no https address" if url else "not set", mend)
        return
    problem = _unreachable(parts.hostname, parts.port or (443 if parts.scheme == "https" else 80), parts.scheme)
    mend = "check the address, the certificate and the way out of this machine"
    yield finding(key, f"{url} does not answer ({problem})" if problem else "", mend, url, "absent")


def _unreachable(host: str, port: int, scheme: str) -> str:
    """Return the reason why the Hub cannot talk to ``host``; "" if it can."""
    try:
        with socket.create_connection((host, port), timeout=5) as link:
            if scheme == "https":
                ssl.create_default_context().wrap_socket(link, server_hostname=host).close()
    except OSError as error:
        return str(error)
    return ""
