"""The kinds of widget: one JavaScript bundle and one style sheet each, live with a kernel or in a page without one.

A widget is a folder: ``model.py`` and ``model.js`` hold the same pure functions, ``view.js`` draws, ``style.css``
styles. ``npm run bundle`` joins the view, its model and the modules of ``shared`` into one file of ``bundles``, which
is committed because users have no node.
:class:`Kind` hands out two forms of a widget:

* with anywidget installed, a live widget whose fields are synced traits;
* without it, a plain object.

Both carry ``html()``: a table that reads well with scripts off, and an inline module that mounts the same view over a
small stand-in for the widget's model. An exported page therefore stays interactive with no kernel and no network.
"""

from __future__ import annotations

import html
import json
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from typing import Any
from zlib import compress

from mlsys_labkit._base import light_dark_colours
from mlsys_labkit.errors import LabkitError

State = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One kind of widget: its folder, its title, and its table for pages without scripts.

    Example:
        >>> kind = Kind("strides", "Stride viewer", lambda state: "<p>…</p>")
        >>> kind.show(shape=[3, 4], strides=[4, 1])
        <Stride viewer>
    """

    folder: str
    title: str
    static: Callable[[State], str]

    @cached_property
    def esm(self) -> str:
        """Return the widget's ES module, which exports ``{ render }`` by default."""
        return f"{self._script}export default widget;"

    @cached_property
    def packed(self) -> str:
        """Return the module that anywidget loads: module and styles deflated, because every saved notebook holds it."""
        parts = json.dumps({"name": self.folder, "esm": self.esm, "css": self.css})
        return _packed(parts, "shared_unpack.js")

    @cached_property
    def css(self) -> str:
        """Return the styles of the widget, with the colours that they use."""
        return self._still_css + self._view_css

    @cached_property
    def _still_css(self) -> str:
        """Return the styles of the table without scripts and of all views."""
        return light_dark_colours.themed(_bundle("shared_style.css"), ".lk")

    @cached_property
    def _view_css(self) -> str:
        """Return the other styles of the view, which a saved notebook holds deflated."""
        return light_dark_colours.inlined(_bundle("shared_parts.css") + _bundle(f"{self.folder}.css"), ".lk")

    @cached_property
    def _script(self) -> str:
        """Return the bundle, which sets ``widget``, and the declaration of that name."""
        return f"let widget;{_bundle(f'{self.folder}.js')}"

    @cached_property
    def _packed_script(self) -> str:
        script = f"{self._script}widget.css={json.dumps(self._view_css)};"
        return f"let widget;{_packed(script, 'shared_unpack_mount.js')}"

    def show(self, **state: Any) -> Any:
        """Return a widget with these fields: live where anywidget is installed, else plain interactive HTML."""
        clean: State = json.loads(_json(state))
        if find_spec("anywidget") is None:
            return PlainWidget(self, clean)
        return _live_class(self, tuple(clean))(**clean)

    def html(self, state: State, *, packed: bool = False) -> str:
        """Return a self-contained fragment: a static table, which scripts replace by the interactive view.

        With ``packed`` its script is deflated, as in what a notebook saves, and the view is there a moment later.
        """
        home = f"lk-{secrets.token_hex(6)}"  # random: one page may hold fragments of several kernels
        script = f"{self._packed_script if packed else self._script}widget.mount({json.dumps(home)}, {_json(state)});"
        css = self._still_css if packed else self.css
        still = (
            f'<div class="lk lk-static" role="group" aria-label="{html.escape(self.title)}">{self.static(state)}</div>'
        )
        return f'<div id="{home}"><style>{css}</style>{still}</div><script type="module">\n{script}\n</script>'


class PlainWidget:
    """A widget where anywidget is not installed: interactive in the page, without a way back to Python."""

    def __init__(self, kind: Kind, state: State) -> None:
        self._kind, self._fields = kind, tuple(state)
        self.__dict__.update(state)

    def html(self) -> str:
        """Return the interactive HTML fragment of the fields as they are now."""
        return self._kind.html(self._state())

    def _repr_html_(self) -> str:
        return self._kind.html(self._state(), packed=True)

    def _state(self) -> State:
        return {name: getattr(self, name) for name in self._fields}

    def __repr__(self) -> str:
        return f"<{self._kind.title}>"


@cache
def _live_class(kind: Kind, fields: tuple[str, ...]) -> Any:
    anywidget, traitlets = import_module("anywidget"), import_module("traitlets")

    def as_html(self: Any, packed: bool = False) -> str:
        return kind.html({name: getattr(self, name) for name in fields}, packed=packed)

    def bundle(self: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        made = anywidget.AnyWidget._repr_mimebundle_(self, **kwargs)
        data, metadata = made if isinstance(made, tuple) else (made or {}, {})
        return {**data, "text/html": as_html(self, packed=True), "text/plain": repr(self)}, metadata

    body: dict[str, Any] = {name: traitlets.Any().tag(sync=True) for name in fields}
    body |= {
        "__doc__": kind.title,
        "_esm": kind.packed,
        "html": lambda self: as_html(self),
        "_repr_mimebundle_": bundle,
        "__repr__": lambda self: f"<{kind.title}>",
    }
    # anywidget itself switches Colab's third-party widget manager on when the first instance is made.
    return type("".join(part.capitalize() for part in kind.folder.split("_")), (anywidget.AnyWidget,), body)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table with a caption, a header row and row headers; every cell is escaped."""
    cells = "".join(f'<th scope="col">{html.escape(str(name))}</th>' for name in head)
    lines = []
    for first, *rest in rows:
        data = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in rest)
        lines.append(f'<tr><th scope="row">{html.escape(str(first))}</th>{data}</tr>')
    return (
        f"<table><caption>{html.escape(caption)}</caption><thead><tr>{cells}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _bundle(name: str) -> str:
    return files(__package__).joinpath("bundles", name).read_text("utf-8")


def _packed(text: str, loader: str) -> str:
    """Return a module that inflates ``text`` and passes it on as ``loader`` does."""
    return f'const packed="{b64encode(compress(text.encode(), 9)).decode()}";{_bundle(loader)}'


def _json(state: State) -> str:
    try:
        text = json.dumps(state, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise LabkitError(f"a widget holds finite numbers, text and lists; {error}") from None
    return in_script(text)


def in_script(json_text: str) -> str:
    """Return JSON for an inline script: a "<" in a string could end the script element, and U+2028 its line."""
    return json_text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
