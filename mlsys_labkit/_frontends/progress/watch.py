"""The watcher of one IPython shell: it follows the cells, keeps the record and updates the panel, and never raises.

Where no person is at work (papermill, nbgrader, a grader's sandbox) nothing is read or written: the record lasts as
long as the process.
"""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Callable
from typing import Any

from mlsys_labkit._frontends.progress import notebook, store
from mlsys_labkit._frontends.progress.catalogue import LabEntry, digest, lab_of
from mlsys_labkit._frontends.progress.notebook_record import NotebookRecord
from mlsys_labkit.checks import passed
from mlsys_labkit.coach import hints, predictions

SAVE_SECONDS = 30.0  # between saves while nothing but time has passed

_watchers: weakref.WeakKeyDictionary[Any, Watcher] = weakref.WeakKeyDictionary()
_log = logging.getLogger(__name__)


class Watcher:
    """One shell's record. ``lab`` is None until a cell of a lab has run."""

    def __init__(self, shell: Any) -> None:
        self._shell = weakref.ref(shell)
        self.record: NotebookRecord | None = None
        self.trouble = ""  # the reason why the record cannot be written
        self.widget: Any = None
        self.follower: Callable[[], None] | None = None  # draws the panel anew
        self._saved_at = 0.0
        self._path = ""
        self._was_attended = False

    @property
    def lab(self) -> LabEntry | None:
        return self.record.lab if self.record else None

    @property
    def path(self) -> str:
        """The notebook's file, or the working directory."""
        return notebook.path_of(self._shell())

    @property
    def attended(self) -> bool:
        return notebook.somebody_is_there(self._shell())

    def before(self, info: Any) -> None:
        """Handle IPython's ``pre_run_cell`` event: add the time since the last event."""
        with _guarded():
            passed.begin()
            if self.record:
                self.record.tick(time.time())

    def after(self, result: Any) -> None:
        """Handle IPython's ``post_run_cell`` event: record the result of the cell and update the panel."""
        with _guarded():
            info, now = result.info, time.time()
            source, cell_id = str(info.raw_cell or ""), str(getattr(info, "cell_id", None) or "")
            self._was_attended = self.attended
            found = lab_of(cell_id, digest(source)) if self.record is None or cell_id else None
            if found is not None and found is not self.lab:
                self.open(found)
            if self.record is None:
                return
            self.record.tick(now)
            ours = self.record.ran(source, cell_id, bool(result.success), now)
            if self._count_hints(self.record) or ours or now - self._saved_at > SAVE_SECONDS:
                self.keep()
            if self.follower:
                self.follower()
            if result.success:
                self._say_passed(source, cell_id)

    def predicted(self, task: str, option: str | None) -> None:
        """Record a prediction as soon as it is chosen: the kernel may restart before another cell runs."""
        with _guarded():
            if self.record is None:
                return
            if option is None:
                self.record.predictions.pop(task, None)
            else:
                self.record.predictions[task] = digest(option)
            self.keep()

    def open(self, lab: LabEntry) -> NotebookRecord:
        """Return the record of ``lab`` in this notebook.

        Where a person is at work, the record of earlier kernels is loaded.
        """
        if self.record is None or self.record.lab is not lab:
            self._path = self.path
            self.record = NotebookRecord(lab)
            if self.attended:
                with contextlib.suppress(OSError, RuntimeError):
                    self.record = store.load(lab, self._path)
            for task, mark in self.record.predictions.items():
                predictions.restore(task, mark, digest)
        return self.record

    def keep(self) -> None:
        """Write the record if a person is at work; on failure set ``trouble`` to the reason."""
        if self.record is None or not (self.attended or self._was_attended):  # a click on a widget is not a cell
            return
        self._saved_at = time.time()
        try:
            store.save(self.record, self._path)
            self.trouble = ""
        except (OSError, RuntimeError) as error:
            self.trouble = getattr(error, "strerror", None) or str(error)

    def _say_passed(self, source: str, cell_id: str) -> None:
        """Print one line under a test cell that passed, for the person at work; graders and programs get none.

        A cell that ends in a line of its own gets no second one.
        """
        if self.record is None or not self._was_attended or source.rstrip().rpartition("\n")[2].startswith("print("):
            return
        _, test = self.record.lab.by_digest.get(digest(source)) or (None, None)
        if test is not None and test.visible:
            what = passed.in_words()
            print(f"✓ {test.id} passes{': ' if what else ''}{what}")

    def _count_hints(self, record: NotebookRecord) -> bool:
        """Record the hints that this kernel has given; return True if there are new ones."""
        given = {task.name: hints.taken(task.name) for task in record.lab.tasks}
        more = {name: rungs for name, rungs in given.items() if rungs > record.hints.get(name, 0)}
        record.hints.update(more)
        return bool(more)


def follow(shell: Any) -> Watcher:
    """Return the watcher of ``shell``; register a new one with its events on the first call."""
    watcher = _watchers.get(shell)
    if watcher is None:
        watcher = _watchers[shell] = Watcher(shell)
        shell.events.register("pre_run_cell", watcher.before)
        shell.events.register("post_run_cell", watcher.after)
        predictions.keep_with(watcher.predicted)
    return watcher


def leave(shell: Any) -> None:
    """Stop following ``shell``."""
    watcher = _watchers.pop(shell, None)
    if watcher is not None:
        shell.events.unregister("pre_run_cell", watcher.before)
        shell.events.unregister("post_run_cell", watcher.after)
        predictions.forget(watcher.predicted)


@contextlib.contextmanager
def _guarded() -> Any:
    """Suppress and log every exception of the block, so that recording progress never breaks a student's cell."""
    try:
        yield
    except Exception:
        _log.debug("progress was not noted", exc_info=True)
