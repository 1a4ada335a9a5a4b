"""Attacks on counters: expensive answers in a process that reports cheap ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ATTACKS", "SOURCE", "Forgery"]


def _cell(source: str, name: str, **kind: Any) -> dict[str, Any]:
    nbgrader = {"grade_id": name, "schema_version": 3, **kind}
    return {"cell_type": "code", "metadata": {"nbgrader": nbgrader}, "source": source}


_SETUP = """
import numpy as np
import torch
import torch.distributed as dist
import mlsys_labkit as lk
from mlsys_labkit import ranks
"""
_TOTAL = """
def total(x):
    rank, p = dist.get_rank(), dist.get_world_size()
    part, result = x.clone(), x.clone()
    for _ in range(p - 1):
        arriving = torch.empty_like(part)
        for request in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, part, (rank + 1) % p), dist.P2POp(dist.irecv, arriving, (rank - 1) % p)
        ]):
            request.wait()
        part, result = arriving, result + arriving
    return result
"""
_TOTAL_TEST = """
tensors = [torch.arange(4.0) * (rank + 1) for rank in range(3)]
run = lk.checks.run_ranks(total, 3, ranks.each(tensors))
for value in run.values:
    lk.checks.expect_close(value, sum(tensors), rtol=0)
lk.checks.expect_messages(run.trace, messages=2, edges=[(0, 1), (1, 2), (2, 0)])
"""
_GRAM = """
def gram(x, basis):
    return (x @ basis) @ basis.T
"""
_GRAM_TEST = """
rng = np.random.default_rng(3)
x, basis = rng.standard_normal((4, 2600)), rng.standard_normal((2600, 2))
got = lk.checks.expect_peak(gram, x, basis, at_most_bytes=2_000_000)
lk.checks.expect_close(got, x @ basis @ basis.T, rtol=1e-9, atol=1e-9)
"""

SOURCE = [
    _cell(_SETUP, "setup", locked=True),
    _cell(_TOTAL, "total", solution=True),
    _cell(_TOTAL_TEST, "total_test", grade=True, locked=True, points=3),
    _cell(_GRAM, "gram", solution=True),
    _cell(_GRAM_TEST, "gram_test", grade=True, locked=True, points=2),
]

_BY_COLLECTIVE = """
def total(x):
    y = x.clone()
    dist.all_reduce(y)
    return y
"""
_FORGED_TRACE = """
import dataclasses
import mlsys_labkit._base.probes as probes
from mlsys_labkit.ranks.trace.events import Event, RunTrace

def forged(function, p, *arguments, **options):
    run = honest(function, p, *arguments, **options)
    everybody, events = tuple(range(p)), []
    for rank in range(p):
        for step in range(p - 1):
            to = (rank + 1) % p
            about = {"bytes": 16, "group": everybody, "key": f"{rank}>{to} #{step}"}
            events.append(Event(rank, "send", "send", peers=(to,), **about))
            events.append(Event(to, "recv", "recv", peers=(rank,), **about))
    return dataclasses.replace(run, trace=RunTrace(p, tuple(events), "local"))

NAME = "mlsys_labkit.checks.ranks.run_ranks"
honest, probes._known[NAME] = probes._known[NAME], forged
"""
_SHARED = """
import mmap
BOARD = mmap.mmap(-1, 1 << 16)
FILE = "/tmp/board"

def total(x):
    rank, p = dist.get_rank(), dist.get_world_size()
    for place in (BOARD, open(FILE, "a+b")):
        place.write(x.numpy().tobytes())
        place.flush()
    for _ in range(p - 1):  # decoys of the right size on the right edges
        arriving = torch.empty_like(x)
        for request in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, torch.zeros_like(x), (rank + 1) % p),
            dist.P2POp(dist.irecv, arriving, (rank - 1) % p),
        ]):
            request.wait()
    found = np.frombuffer(open(FILE, "rb").read(), np.float32).reshape(-1, len(x))
    return torch.from_numpy(found.sum(0))
"""
_WASTEFUL = """
def gram(x, basis):
    return x @ (basis @ basis.T)
"""
_FORGED_MEMORY = """
import mlsys_labkit.memory
import mlsys_labkit._base.probes as probes
probes._known["mlsys_labkit.memory.call_traced"] = lambda function, *given, **named: (
    function(*given, **named), mlsys_labkit.memory.MemoryTrace()
)
"""
_BALLAST = """
BALLAST = [np.ones(8 << 20)]
def gram(x, basis):
    BALLAST.clear()
    return x @ (basis @ basis.T)
"""
_IN_A_CHILD = """
import os
def gram(x, basis):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, (x @ (basis @ basis.T)).tobytes()[:65536])
        os._exit(0)
    os.read(read, 65536)
    return (x @ basis) @ basis.T
"""
_OUT_OF_SIGHT = """
import mmap
def gram(x, basis):
    room = mmap.mmap(-1, 8 * 2600 * 2600)  # what can be shared stays when it is given up
    for at in range(0, 2600, 100):
        part = basis[at : at + 100] @ basis.T
        room.seek(at * 8 * 2600)
        room.write(part.tobytes())
        room.madvise(mmap.MADV_DONTNEED)
    return (x @ basis) @ basis.T
"""


@dataclass(frozen=True)
class Forgery:
    """One submission: ``cells`` replace the source's, ``own`` come first; ``passes`` are the tests it should pass."""

    name: str
    cells: dict[str, str]
    own: tuple[str, ...] = ()
    passes: frozenset[str] = frozenset({"total_test", "gram_test"})

    def notebook(self) -> list[dict[str, Any]]:
        """Return the cells as nbformat has them."""
        own = [{"cell_type": "code", "metadata": {}, "source": source} for source in self.own]
        named = [(cell, cell["metadata"]["nbgrader"]["grade_id"]) for cell in SOURCE]
        return [*own, *({**cell, "source": self.cells.get(name, cell["source"])} for cell, name in named)]


_NO_RANKS, _NO_MEMORY = frozenset({"gram_test"}), frozenset({"total_test"})

ATTACKS = (
    Forgery("honest", {}),
    Forgery(
        "honest-by-a-table-of-its-own",
        {"gram": "def gram(x, basis):\n    return sum(np.outer(x @ basis[:, k], basis[:, k]) for k in COLUMNS)\n"},
        ("COLUMNS = sorted([1, 0])",),
    ),
    Forgery("a-collective-with-a-forged-trace", {"total": _BY_COLLECTIVE}, (_FORGED_TRACE,), _NO_RANKS),
    Forgery("the-same-from-within-the-answer", {"total": _FORGED_TRACE + _BY_COLLECTIVE}, (), _NO_RANKS),
    Forgery("shared-memory-and-decoys", {"total": _SHARED}, (), _NO_RANKS),
    Forgery("a-tracer-that-saw-nothing", {"gram": _FORGED_MEMORY + _WASTEFUL}, (), _NO_MEMORY),
    Forgery("a-tracer-of-another-cell", {"gram": _WASTEFUL}, (_FORGED_MEMORY,), _NO_MEMORY),
    Forgery("the-work-of-a-child", {"gram": _FORGED_MEMORY + _IN_A_CHILD}, (), _NO_MEMORY),
    Forgery("memory-out-of-sight", {"gram": _FORGED_MEMORY + _OUT_OF_SIGHT}, (), _NO_MEMORY),
    Forgery("ballast-thrown-off", {"gram": _FORGED_MEMORY + _BALLAST}, (), _NO_MEMORY),
)
