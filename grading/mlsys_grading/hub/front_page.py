"""The page on which people land after the login: the course's labs, each a link into their own server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mlsys_grading.hub.settings import HubSettings


@dataclass(frozen=True)
class LabLink:
    """A lab on the front page; ``path`` is its notebook's, as quoted in an address, from a person's home."""

    title: str
    path: str


def configure_front_page(c: Any, settings: HubSettings) -> None:
    """Give JupyterHub's home page the course's name and its labs, and send people there after the login."""
    c.JupyterHub.default_url = "/hub/home"
    c.JupyterHub.template_vars.update(course=settings.course.id, labs=lab_links(settings.labs, settings.course.id))


def lab_links(labs: Path, course: str) -> list[LabLink]:
    """Return a link for each notebook ``LAB/LAB.ipynb`` of the folder ``labs``, in the order of their names."""
    found = []
    for folder in sorted(path for path in labs.glob("*") if path.is_dir()):
        notebook = folder / f"{folder.name}.ipynb"
        if notebook.is_file():
            found.append(LabLink(_title(notebook), quote(f"{course}/{folder.name}/{notebook.name}")))
    return found


def _title(notebook: Path) -> str:
    """Return the first heading of a notebook, or its name."""
    try:
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        lines = "".join(cells[0]["source"]).splitlines()
    except (OSError, ValueError, LookupError, TypeError):
        lines = []
    return next((line.lstrip("# ") for line in lines if line.startswith("#")), notebook.stem)
