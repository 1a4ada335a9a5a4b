"""The page on which people land after the login: the course's labs, each a link into their own server."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from mlsys_grading.hub.settings import HubSettings
from mlsys_labkit._frontends.page import look

_STYLE = Path(__file__).with_name("templates") / "style.css"
_HEADING = re.compile(r"^#+ (?:Lab (\d+) · )?(.+)$", re.MULTILINE)
_MINUTES = re.compile(r"^\| (\d+) minutes \|", re.MULTILINE)


@dataclass(frozen=True)
class LabLink:
    """A lab on the front page; ``path`` is its notebook's, as quoted in an address, from a person's home.

    ``number`` and ``minutes`` are "" if the notebook does not state them.
    """

    name: str
    path: str
    number: str = ""
    minutes: str = ""


def configure_front_page(c: Any, settings: HubSettings) -> None:
    """Give all pages the kit's style, the home page the course's labs, and send people there after the login."""
    c.JupyterHub.default_url = "/hub/home"
    c.JupyterHub.template_vars.update(
        course=settings.course.id,
        labs=lab_links(settings.labs, settings.course.id),
        chapters=settings.chapters,
        style=Markup(look.stylesheet(_STYLE)),
    )


def lab_links(labs: Path, course: str) -> list[LabLink]:
    """Return a link for each notebook ``LAB/LAB.ipynb`` of the folder ``labs``, in the order of their names."""
    found = []
    for folder in sorted(path for path in labs.glob("*") if path.is_dir()):
        notebook = folder / f"{folder.name}.ipynb"
        if notebook.is_file():
            name, number, minutes = _stated(notebook)
            found.append(LabLink(name, quote(f"{course}/{folder.name}/{notebook.name}"), number, minutes))
    return found


def _stated(notebook: Path) -> tuple[str, str, str]:
    """Return the name, the number and the minutes that the first cell of a notebook states."""
    try:
        first = "".join(json.loads(notebook.read_text("utf-8"))["cells"][0]["source"])
    except (OSError, ValueError, LookupError, TypeError):
        first = ""
    heading, minutes = _HEADING.search(first), _MINUTES.search(first)
    name, number = (heading[2], heading[1] or "") if heading else (notebook.stem, "")
    return name, number, minutes[1] if minutes else ""
