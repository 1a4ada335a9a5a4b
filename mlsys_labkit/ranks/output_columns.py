"""Live display of what ranks print: side by side, one column per rank, as text and as HTML."""

from __future__ import annotations

import html
import io
import re
import secrets
import shutil
import sys
import time
from collections import deque
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

KEPT_CHARACTERS = 1 << 20  # of one rank's output: its first half and its last half are kept
SHOWN_CHARACTERS = 1 << 14  # of it shown in a notebook, whose file contains all that is shown
_REFRESH_SECONDS = 0.1
_NARROWEST = 16  # characters: a narrower column is hard to read
_GAP = " | "
# Colours and cursor movements, which a page shows as control characters.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_STYLE = (
    ".lk-ranks{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(16em,100%),1fr));gap:.2em 1em;"
    "font:13px/1.45 system-ui,sans-serif}"
    ".lk-ranks section{min-width:0;border-left:2px solid currentColor;padding-left:.6em}"
    ".lk-ranks b{opacity:.75}"
    ".lk-ranks pre{margin:0;max-height:24em;overflow:auto;background:none;color:inherit;"
    "font:12px/1.45 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}"
)


class Columns:
    """A display of ``world_size`` ranks' output that grows while they run.

    ``write`` keeps text and may be called from any thread; ``refresh`` draws what is new, at most ten times per second;
    ``close`` draws the rest. In a notebook one HTML display is updated in place; elsewhere lines go to sys.stdout: side
    by side as long as they are narrow enough for it, each behind its rank's name afterwards. With ``quiet`` nothing is
    shown.

    Example:
        >>> columns = Columns(2, width=40)
        >>> columns.write(0, "loss 0.5\\n")
        >>> columns.write(1, "loss 0.25\\n")
        >>> columns.close()
        rank 0             | rank 1
        loss 0.5           | loss 0.25
        >>> columns.outputs
        ['loss 0.5\\n', 'loss 0.25\\n']
    """

    def __init__(self, world_size: int, width: int | None = None, quiet: bool = False) -> None:
        self._kept = [_Kept() for _ in range(world_size)]
        # Of plain text: what has been written and not been shown. A deque is safe with one thread at each end.
        self._pending: list[deque[str]] = [deque() for _ in range(world_size)]
        self._width = (width or shutil.get_terminal_size().columns) - len(_GAP) * (world_size - 1)
        self._narrow = world_size > 1 and self._width // world_size >= _NARROWEST
        self._headed = False
        self._quiet = quiet
        self._notebook = width is None and _in_notebook()
        self._display_id = ""
        self._dirty = False
        self._drawn_at = 0.0

    @property
    def outputs(self) -> list[str]:
        """All that each rank printed; of more than 1 MiB the beginning and the end."""
        return [kept.text() for kept in self._kept]

    def write(self, rank: int, text: str) -> None:
        """Keep what a rank printed until the next ``refresh``."""
        if text:
            self._kept[rank].add(text)
            if not self._quiet:
                if not self._notebook:
                    self._pending[rank].append(text)
                self._dirty = True

    def refresh(self) -> None:
        """Draw what is new, unless that was done less than a tenth of a second ago."""
        now = time.monotonic()
        if self._dirty and now - self._drawn_at >= _REFRESH_SECONDS:
            self._drawn_at, self._dirty = now, False
            self._draw(final=False)

    def close(self) -> None:
        """Draw all of it, incomplete lines too."""
        if self._dirty or any(self._pending):
            self._dirty = False
            self._draw(final=True)

    def _draw(self, final: bool) -> None:
        if self._notebook:
            self._update_display()
            return
        new = []
        for pending in self._pending:
            text = "".join(pending.popleft() for _ in range(len(pending)))
            if not final:
                text, newline, rest = text.rpartition("\n")
                text += newline
                pending.appendleft(rest)
            new.append(_lines(text))
        if not any(new):
            return
        column = self._width // len(new)
        if self._narrow and max(len(line) for lines in new for line in lines) > column:
            self._narrow = False
        if self._narrow:
            text = side_by_side(new, column, head=not self._headed)
            self._headed = True
        else:
            text = "".join(f"[rank {rank}] {line}\n" for rank, lines in enumerate(new) for line in lines)
        sys.stdout.write(text)
        sys.stdout.flush()

    def _update_display(self) -> None:
        from IPython.display import display

        first, self._display_id = not self._display_id, self._display_id or f"lk-ranks-{secrets.token_hex(8)}"
        content = {"text/html": self.html(), "text/plain": self.text()}
        display(content, raw=True, display_id=self._display_id, update=not first)

    def text(self) -> str:
        """Return everything shown so far as plain text."""
        lines = [_lines(text) for text in self.outputs]
        column = self._width // len(lines)
        if len(lines) > 1 and column >= _NARROWEST and all(len(line) <= column for part in lines for line in part):
            return side_by_side(lines, column)
        return "".join(f"[rank {rank}] {line}\n" for rank, part in enumerate(lines) for line in part)

    def html(self) -> str:
        """Return a grid with one labelled, scrollable cell per rank, in the colours of the page (light or dark)."""
        cells = "".join(
            f'<section><b id="{self._display_id}-{rank}">rank {rank}</b>'
            f'<pre role="region" tabindex="0" aria-labelledby="{self._display_id}-{rank}">'
            f"{html.escape(chr(10).join(_lines(kept.text(SHOWN_CHARACTERS))))}</pre></section>"
            for rank, kept in enumerate(self._kept)
        )
        return (
            f'<style>{_STYLE}</style><div class="lk-ranks" role="group" aria-label="Output of the ranks">{cells}</div>'
        )


def side_by_side(columns: Sequence[Sequence[str]], width: int, head: bool = True) -> str:
    """Join the lines of all ranks side by side, ``width`` characters per rank.

    Example:
        >>> print(side_by_side([["a"], ["b", "c"]], 6), end="")
        rank 0 | rank 1
        a      | b
               | c
    """
    rows = list(zip_longest(*columns, fillvalue=""))
    if head:
        rows.insert(0, tuple(f"rank {rank}" for rank in range(len(columns))))
    return "".join(_GAP.join(cell.ljust(width) for cell in row).rstrip() + "\n" for row in rows)


class _Kept:
    """The beginning and the end of a text of any length."""

    def __init__(self) -> None:
        self._head, self._tail = "", io.StringIO()
        self._left_out = 0

    def add(self, text: str) -> None:
        half = KEPT_CHARACTERS // 2
        self._tail.write(text)
        if len(self._head) + self._tail.tell() > 3 * half:  # cut seldom: each cut copies
            tail = self._tail.getvalue()
            if not self._head:
                self._head, tail = tail[:half], tail[half:]
            self._left_out += len(tail) - half
            self._tail = io.StringIO()
            self._tail.write(tail[-half:])

    def text(self, most: int = KEPT_CHARACTERS + KEPT_CHARACTERS // 2) -> str:
        whole, left_out = self._head + self._tail.getvalue(), self._left_out
        if not left_out and len(whole) <= most:
            return whole
        half = min(most, KEPT_CHARACTERS) // 2
        left_out += max(0, len(whole) - 2 * half)
        return f"{self._head[:half]}\n[... {left_out:,} characters ...]\n{whole[-half:]}"


def _lines(text: str) -> list[str]:
    """Split output into the lines that a terminal shows at the end: a progress bar is its last state."""
    lines = _ESCAPES.sub("", text).expandtabs(8).replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def _in_notebook() -> bool:
    """Return whether a front end draws HTML and updates it."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None
