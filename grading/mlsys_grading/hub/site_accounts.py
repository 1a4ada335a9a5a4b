"""Login with accounts of another site, by a class of the package oauthenticator or one like them."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from tornado import web
from tornado.httpclient import HTTPClientError
from traitlets.utils.importstring import import_item

from mlsys_grading.hub.class_list import ClassList, LogOut
from mlsys_grading.hub.settings import HubSettings
from mlsys_labkit.errors import LabkitError

_SECRETS = ("client_secret", "password", "secret_key")
# Sites whose names, or whose addresses, differ in more than case: there, Ada and ada are one account.
_ANY_CASE = frozenset({"bitbucket", "cilogon", "github", "gitlab", "google"})


class SiteAccounts(ClassList):
    """Part of an authenticator that decides which name an account of another site has here."""

    domain = ""  # if not empty: accounts are addresses NAME@domain, and NAME is the name here

    def user_info_to_username(self, user_info: dict[str, Any]) -> str:
        """Return the name that the site's data give. Raises HTTPError with a reason for the page if there is none."""
        claim = self.username_claim
        try:
            name = super().user_info_to_username(user_info)
        except ValueError:
            line = f"The login site sends no {claim!r}: the operator of the Hub has to change username_claim or scope."
            raise web.HTTPError(403, line) from None
        verified = user_info.get("email_verified", user_info.get("verified_email"))
        if claim == "email" and verified not in (True, "true"):
            raise web.HTTPError(403, "The login site has not verified your address. Have it verified, then return.")
        if not self.domain:
            return str(name)
        local, _, domain = str(name).rpartition("@")
        if domain.lower() != self.domain:
            raise web.HTTPError(403, f"Log in with your account of {self.domain}: this one is of another organisation.")
        return local.lower()

    async def get_token_info(self, *given: Any) -> Any:
        """Return the site's token. Raises HTTPError that says what to do if the site refuses or does not answer."""
        try:
            return await super().get_token_info(*given)
        except HTTPClientError as error:
            if error.code != 599:  # tornado's own number for no answer
                raise web.HTTPError(403, "The login site no longer accepts this login. Start it again.") from None
            raise web.HTTPError(503, "The login site does not answer. Try again in a minute.") from None
        except OSError:
            raise web.HTTPError(503, "The login site does not answer. Try again in a minute.") from None


def configure_site_accounts(c: Any, settings: HubSettings) -> None:
    """Choose the authenticator ``login.provider``. Raises LabkitError if it or a setting of it does not exist."""
    login, file = settings.login, settings.file
    kind = _authenticator(login.provider, f"{file}: there is no authenticator {login.provider!r}")
    for name, value in login.oauth.items():
        if name in _SECRETS:
            raise LabkitError(f"{file}: login.oauth.{name} is a secret; put it into the environment instead")
        if name not in kind.class_trait_names(config=True):
            raise LabkitError(f"{file}: {kind.__name__} has no setting login.oauth.{name}")
        is_set = isinstance(kind.class_traits()[name].default_value, set)
        c[kind.__name__][name] = set(value) if type(value) is list and is_set else value
    has_claims = hasattr(kind, "user_info_to_username")
    if login.domain and not has_claims:
        raise LabkitError(f"{file}: {kind.__name__} does not know login.domain, which is for package oauthenticator")
    more: dict[str, Any] = {"any_case": login.provider.removeprefix("local-") in _ANY_CASE, "domain": login.domain}
    if hasattr(kind, "logout_handler"):
        more["logout_handler"] = type("SiteLogOut", (LogOut, kind.logout_handler), {})
    made = type(kind.__name__, (SiteAccounts if has_claims else ClassList, kind), more)
    if has_claims:
        c[kind.__name__].setdefault("custom_403_message", "Ask your instructor which account to use.")
    c.JupyterHub.authenticator_class = made


def _authenticator(provider: str, missing: str) -> Any:
    """Return the class under an installed name, such as "github", or under the path of a class."""
    found = {
        each.name: each
        for each in entry_points(group="jupyterhub.authenticators")
        if not each.value.startswith("jupyterhub.")  # one of them admits everybody, and the others have kinds
    }
    try:
        return found[provider].load() if "." not in provider else import_item(provider)
    except (KeyError, ImportError):
        known = f"or take one of {', '.join(sorted(found))}" if found else "which has it"
        raise LabkitError(f"{missing}; pip install oauthenticator, {known}, or the path of a class") from None
