"""``grading/release.toml``: the address of the students' repository, for links and badges."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from mlsys_labkit.errors import LabkitError

FILE = "grading/release.toml"
_FORMS = {
    "repository": (r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+", '"owner/name", as GitHub spells it'),
    "branch": (r"[A-Za-z0-9_][A-Za-z0-9._/-]*", 'a branch such as "main"'),
    "hub": (r"https?://[^\s<>\"]+", 'an address such as "https://hub.example.edu"'),
    "chapters": (r"https?://[^\s<>\"()\\]+", 'an address such as "https://ada.github.io/course/chapters"'),
    "questions": (r"https?://[^\s<>\"]+|[^\s<>\"@]+@[^\s<>\"@]+", "an address of a forum, or of a mailbox"),
}


@dataclass(frozen=True)
class ReleaseSettings:
    """The settings in the file. An empty one is not known, and links that need it are left out.

    Attributes:
        repository: "owner/name" on GitHub: links, and the badges of Binder, Colab and Codespaces.
        branch: the branch that students get.
        hub: a JupyterHub with nbgitpuller, for a badge that brings the labs there. Needs ``repository``.
        chapters: where the course text is served: the folder ``chapters`` of what ``make site`` builds.
        questions: where students ask.
        labs: those to release; empty: all.
    """

    repository: str = ""
    branch: str = "main"
    hub: str = ""
    chapters: str = ""
    questions: str = ""
    labs: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The address of the repository's page; empty if it is not known.

        Example:
            >>> ReleaseSettings("ada/labs").address
            'https://github.com/ada/labs'
        """
        return f"https://github.com/{self.repository}" if self.repository else ""


def read_settings(path: Path) -> ReleaseSettings:
    """Read the file. Raises LabkitError, one line, if it is no TOML or has an unknown key or an impossible value."""
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabkitError(f"{path}: {error.strerror}; copy {FILE} of the kit and fill it in") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabkitError(f"{path}: no TOML ({error}); mend it") from None
    known = [field.name for field in fields(ReleaseSettings)]
    given = plain.pop("release", {})
    if unknown := [*plain, *(set(given) - set(known) if isinstance(given, dict) else ["release"])]:
        raise LabkitError(f"{path}: there is no setting {unknown[0]!r}; [release] has {', '.join(known)}")
    for name, value in given.items():
        if name == "labs":
            if not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
                raise LabkitError(f'{path}: labs is {value!r}; write names such as ["lab00", "lab01"], or [] for all')
        elif not isinstance(value, str) or (value and not re.fullmatch(_FORMS[name][0], value)):
            raise LabkitError(f"{path}: {name} is {value!r}; write {_FORMS[name][1]}")
    settings = ReleaseSettings(**{**given, "labs": tuple(given.get("labs", ()))})
    if settings.hub and not settings.repository:
        raise LabkitError(f"{path}: hub needs a repository to bring the labs from; write repository, too")
    if not settings.branch:
        raise LabkitError(f"{path}: branch is empty; write {_FORMS['branch'][1]}")
    return settings
