"""Pages from templates: each holds its style and script, asks no other host for anything, and escapes every value."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mlsys_labkit._frontends.page import look

ROOM = Path(__file__).parent
script = look.script
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def render(template: Path, **values: Any) -> str:
    """Fill in a template that extends ``frame.html.j2``. Values are escaped, because students wrote them."""
    own = {"css": Markup(stylesheet()), "js": Markup(script())}  # our own files, no user's text
    page = environment(template.parent).get_template(template.name).render(own | values)
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", page)


@cache
def stylesheet(*own: Path) -> str:
    """Return the one stylesheet of the graders' pages, and further styles of one page."""
    return look.stylesheet(ROOM / "style.css", ROOM / "parts.css", *own)


@cache
def environment(folder: Path) -> Environment:
    """Return Jinja's environment for the templates of ``folder`` and those of this one."""
    environment = Environment(
        loader=FileSystemLoader([folder, ROOM]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["points"] = lambda value: f"{round(value, 2):g}"
    environment.filters["percent"] = lambda share: f"{100 * share:.2f}%"
    return environment
