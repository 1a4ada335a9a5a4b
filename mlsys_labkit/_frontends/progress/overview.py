"""A table with a row for every lab: ``lk.progress()`` where no lab is open, and ``labkit progress`` in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlsys_labkit._base.text_table import text_table
from mlsys_labkit._frontends.progress import store
from mlsys_labkit._frontends.progress.catalogue import LabEntry, labs
from mlsys_labkit._frontends.progress.lab_progress import LabProgress, spell
from mlsys_labkit._frontends.progress.notebook_record import PASSES, NotebookRecord

HEAD = ("lab", "tasks that pass", "points of cells that pass", "at work")


@dataclass(frozen=True)
class Overview:
    """The notebook of each lab that was worked on last."""

    labs: tuple[LabProgress, ...]

    def rows(self) -> list[Sequence[str]]:
        return [
            (
                one.lab.title,
                f"{sum(task.state == PASSES for task in one.tasks)} of {len(one.tasks)}",
                f"{one.points:g} of {sum(task.task.points for task in one.tasks):g}",
                spell(one.seconds) if one.seconds else "",
            )
            for one in self.labs
        ]

    def __str__(self) -> str:
        return "\n".join(text_table([HEAD, *self.rows()]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from mlsys_labkit.widgets.base import table  # numpy and every widget, which `labkit --help` can do without

        return table("Where you are", HEAD, self.rows())


def overview(record_of: Callable[[LabEntry], NotebookRecord] = store.latest) -> Overview:
    """Return the progress of all labs."""
    records = map(record_of, labs().values())
    return Overview(tuple(LabProgress(record.lab, record.standings(), record.seconds) for record in records))
