"""``lk.progress()``: a panel of a lab's tasks that follows the cells, or text in a terminal."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

from mlsys_labkit._base.cells import current_shell
from mlsys_labkit._frontends.progress import catalogue, notebook, store
from mlsys_labkit._frontends.progress.catalogue import LabEntry
from mlsys_labkit._frontends.progress.lab_progress import LabProgress, progress_of
from mlsys_labkit._frontends.progress.notebook_record import NotebookRecord
from mlsys_labkit._frontends.progress.overview import overview
from mlsys_labkit._frontends.progress.watch import Watcher, follow


class Panel:
    """A live view of ``LabProgress``: its widget follows the cells as they run. ``now`` is the state at this moment."""

    def __init__(self, look: Any, widget: Any) -> None:
        self._look, self._widget = look, widget

    @property
    def now(self) -> LabProgress:
        seen: LabProgress = self._look()
        return seen

    def html(self) -> str:
        """Return the panel in its present state as an HTML fragment."""
        text: str = self._widget.html()
        return text

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        if hasattr(self._widget, "_repr_mimebundle_"):
            data, metadata = self._widget._repr_mimebundle_(**kwargs)
        else:
            data, metadata = {"text/html": self._widget._repr_html_()}, {}
        return {**data, "text/plain": str(self.now)}, metadata

    def __str__(self) -> str:
        return str(self.now)

    __repr__ = __str__


def progress(lab: str | None = None) -> Any:
    """Show your progress in this lab: a panel that follows the cells as they run; in a terminal, a table.

    ``lab`` (``"lab01"``) asks for a certain lab; without it, the notebook's own, or a row for each lab where none is
    open. A task passes when its visible checks passed on its answer as it was run or saved last. The record stays on
    this machine, in the user's data directory, and outlives the kernel; without a person at the keyboard (papermill, a
    grader) none is kept. Raises LabkitError for a ``lab`` that does not exist. Reference: Nicol, Macfarlane-Dick,
    "Formative assessment and self-regulated learning", 2006.

    Example:
        >>> progress("lab01").now.next.task.name
        'offset'
    """
    wanted = catalogue.lab(lab) if lab is not None else None
    shell = current_shell()
    watcher = follow(shell) if shell is not None else None
    here = (watcher.lab or _by_name(watcher.path)) if watcher else None
    if watcher is not None and here is not None and wanted in (None, here):
        watcher.open(here)
        return _live(watcher)
    attended = shell is not None and notebook.somebody_is_there(shell)
    if wanted is None:
        return overview(store.latest if attended else NotebookRecord)
    seen = LabProgress(
        wanted, (record := store.latest(wanted) if attended else NotebookRecord(wanted)).standings(), record.seconds
    )
    return Panel(lambda: seen, _widget(seen))


def _live(watcher: Watcher) -> Panel:
    """Return the panel of a watched notebook.

    All views of the panel share one widget, so each shows the same state and the state is saved once.
    """
    record = watcher.record
    assert record is not None
    record.tick(time.time())
    watcher.keep()
    told = progress_of(record, watcher.path).news if watcher.attended else ()

    def look() -> LabProgress:
        notes = (f"Kept only until this kernel ends: {watcher.trouble}.",) if watcher.trouble else ()
        return LabProgress(record.lab, record.standings(), record.seconds, notes, told)

    if watcher.widget is None or watcher.widget.lab != record.lab.title or getattr(watcher.widget, "comm", 1) is None:
        watcher.widget = _widget(look())
    widget = watcher.widget

    def draw() -> None:
        for name, value in look().state().items():
            setattr(widget, name, value)  # traitlets sends only what changed

    watcher.follower = draw
    draw()
    return Panel(look, widget)


def _widget(seen: LabProgress) -> Any:
    state = seen.state()
    return importlib.import_module("mlsys_labkit.widgets").progress_panel(state.pop("lab"), **state)


def _by_name(path: str) -> LabEntry | None:
    """Find the lab named like the notebook's file or folder; return None if there is none."""
    names = (Path(path).stem, Path(path).parent.name, Path(path).name)
    return next((each for each in catalogue.labs().values() if each.name in names), None)
