"""Links that open a lab on a Hub, Binder, Colab or Codespaces, and their badges, for the places that are known.

References: https://mybinder.readthedocs.io/en/latest/howto/badges.html, https://nbgitpuller.readthedocs.io/en/latest/link.html,
https://openincolab.com, https://docs.github.com/en/codespaces/setting-up-your-project-for-codespaces
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

from mlsys_grading.release.settings import ReleaseSettings

_IMAGES = {
    "Hub": "https://img.shields.io/badge/open%20in-JupyterHub-f37726",
    "Binder": "https://mybinder.org/badge_logo.svg",
    "Colab": "https://colab.research.google.com/assets/colab-badge.svg",
    "Codespaces": "https://github.com/codespaces/badge.svg",
}


def badges(settings: ReleaseSettings, notebook: str, on_binder: bool) -> str:
    """Return the badges of one notebook (its path in the repository) in Markdown; empty if no place is known.

    Example:
        >>> badges(ReleaseSettings(), "labs/lab00_x/lab00_x.ipynb", True)
        ''
        >>> badges(ReleaseSettings("ada/labs"), "a.ipynb", False).split("](")[-1]
        'https://colab.research.google.com/github/ada/labs/blob/main/a.ipynb)'
    """
    repository, branch = settings.repository, settings.branch
    links = {}
    if settings.hub:
        place = f"lab/tree/{repository.partition('/')[2]}/{notebook}"
        query = urlencode({"repo": settings.address, "branch": branch, "urlpath": place}, safe="", quote_via=quote)
        links["Hub"] = f"{settings.hub.rstrip('/')}/hub/user-redirect/git-pull?{query}"
    if repository and on_binder:
        place = quote(f"lab/tree/{notebook}", safe="")
        links["Binder"] = f"https://mybinder.org/v2/gh/{repository}/{quote(branch, safe='')}?urlpath={place}"
    if repository:
        links["Colab"] = f"https://colab.research.google.com/github/{repository}/blob/{branch}/{quote(notebook)}"
    return " ".join(_badge(name, link) for name, link in links.items())


def codespace_badge(settings: ReleaseSettings) -> str:
    """Return the badge of a codespace, for the whole repository; empty if the repository is not known."""
    if not settings.repository:
        return ""
    branch = "" if settings.branch == "main" else f"/tree/{settings.branch}"
    return _badge("Codespaces", f"https://codespaces.new/{settings.repository}{branch}?quickstart=1")


def _badge(name: str, link: str) -> str:
    return f"[![Open in {name}]({_IMAGES[name]})]({link})"
