"""``Run``: what a run of many ranks leaves behind, whichever backend ran it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.trace.events import Event, RunTrace
from mlsys_labkit.ranks.trace.findings import make_trace

if TYPE_CHECKING:
    from mlsys_labkit.memory import MemoryTrace


@dataclass(frozen=True)
class RankResult:
    """The result of one rank. Plain data and tensors: it can be sent to another process."""

    value: Any  # what its function returned
    events: tuple[Event, ...]
    snapshots: dict[str, list[Any]] = field(default_factory=dict)
    memory: MemoryTrace | None = None


@dataclass(frozen=True)
class Run:
    """The result of ``ranks.run`` or of a ``%%ranks`` cell.

    Attributes:
        values: what each rank returned.
        trace: every message, collective and task.
        outputs: what each rank printed.
        snapshots: name -> [rank][k], the k-th ``ranks.snapshot(name, tensor)`` of the rank.
        memory: a ``MemoryTrace`` a rank, with ``memory=True``, else empty.
        backend: "local", "gloo" or "nccl".

    ``run["x"]`` is the variable ``x`` of every rank of a ``%%ranks`` cell.
    """

    values: list[Any]
    trace: RunTrace
    outputs: list[str]
    snapshots: dict[str, list[list[Any]]]
    memory: list[MemoryTrace]
    backend: str

    def __getitem__(self, name: str) -> list[Any]:
        if not all(isinstance(value, dict) for value in self.values):
            raise RanksError(f"run[{name!r}] asks for a variable of a %%ranks cell; of a function use run.values")
        missing = [rank for rank, value in enumerate(self.values) if name not in value]
        if missing:
            raise RanksError(f"rank {missing[0]} has no variable {name!r}; it has {', '.join(self.values[missing[0]])}")
        return [value[name] for value in self.values]

    def __repr__(self) -> str:
        return f"Run of {self.trace.world_size} ranks on {self.backend}, {len(self.trace.events)} events"

    @staticmethod
    def of(records: Sequence[RankResult], outputs: Sequence[str], backend: str, findings: Sequence[str] = ()) -> Run:
        """Build the run from the records of all ranks; ``findings`` are those that no record shows."""
        names = sorted({name for record in records for name in record.snapshots})
        return Run(
            [record.value for record in records],
            make_trace([record.events for record in records], backend, ended=True, seen=findings),
            list(outputs),
            {name: [list(record.snapshots.get(name, [])) for record in records] for name in names},
            [record.memory for record in records if record.memory],
            backend,
        )
