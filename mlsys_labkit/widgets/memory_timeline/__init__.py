"""Memory timeline: live bytes by category, the peak, and the tensors or arrays alive at the cursor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from mlsys_labkit._base.units import si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.memory_timeline import model

CATEGORIES = ("parameters", "gradients", "activations", "optimizer", "other")
MOST_EVENTS = 5000
_FIELDS = ("tensor", "bytes", "category", "line", "name", "kind")


def memory_timeline(trace: Any) -> Any:
    """Walk through a memory trace: the tensors or arrays alive after each event, and the lines that made them.

    ``trace`` is a ``MemoryTrace``, or ``{"events": [...]}`` with one mapping an event: ``tensor`` (any id), ``bytes``
    (positive allocates, negative frees), ``category``, and optionally ``line``, ``name`` and ``kind`` ("tensor", or
    "array" as for numpy). Events are numbered from 1.

    Raises LabkitError for an empty trace, one of more than 5000 events, or an event without these fields.
    Reference: PyTorch documentation, "Understanding CUDA memory usage".

    Example:
        >>> memory_timeline({"events": [{"tensor": 1, "bytes": 4096, "category": "activations", "line": "lab.py:3"}]})
        <Memory timeline>
    """
    events = [event for event in _events(trace) if event["bytes"]]  # an empty tensor's free could not be told apart
    if not 1 <= len(events) <= MOST_EVENTS:
        advice = "trace a call that allocates" if not events else "trace a smaller piece of the run"
        raise LabkitError(f"a timeline shows 1 to {MOST_EVENTS} events, got {len(events)}; {advice}")
    categories = [*CATEGORIES, *sorted({event["category"] for event in events} - set(CATEGORIES))]
    numbers: dict[Any, int] = {}
    lines: dict[str, int] = {}
    names: list[str] = []
    rows = []
    for event in events:
        number = numbers.setdefault(event["tensor"], len(numbers))
        if number == len(names):
            names.append(event["name"])
        line = lines.setdefault(event["line"], len(lines))
        rows.append([number, int(event["bytes"]), categories.index(event["category"]), line])
    cursor = model.peak(rows)[0]
    kinds = [kind for kind in ("tensor", "array") if any(event["kind"] == kind for event in events)]
    return KIND.show(events=rows, categories=categories, lines=list(lines), names=names, kinds=kinds, cursor=cursor)


def _events(trace: Any) -> Iterable[State]:
    given = trace.get("events") if isinstance(trace, Mapping) else getattr(trace, "events", None)
    if given is None:
        raise LabkitError(f"expected a MemoryTrace or a mapping with 'events', got {type(trace).__name__}")
    for event in given:
        fields = event if isinstance(event, Mapping) else {name: getattr(event, name, None) for name in _FIELDS}
        if any(fields.get(name) is None for name in ("tensor", "bytes", "category")):
            raise LabkitError(f"an event of a memory trace has tensor, bytes and category; got {event!r}")
        line = str(fields.get("line") or "")
        path, _, number = line.rpartition(":")
        yield {
            "tensor": fields["tensor"],
            "bytes": fields["bytes"],
            "category": str(fields["category"]),
            "line": f"{PurePath(path).name}:{number}" if path else line,
            "name": str(fields.get("name") or ""),
            "kind": "array" if fields.get("kind") == "array" else "tensor",
        }


def _static(state: State) -> str:
    events, categories = state["events"], state["categories"]
    at, most = model.peak(events)
    one, many = " or ".join(state["kinds"]), " and ".join(f"{kind}s" for kind in state["kinds"])
    by_category = zip(categories, model.live(events, len(categories))[at], strict=True)
    held = [
        [state["names"][tensor] or f"#{tensor}", si(size, "B"), categories[category], state["lines"][line] or "unknown"]
        for tensor, size, category, line in model.alive(events, at)[:10]
    ]
    return (
        paragraph(f"The peak is {si(most, 'B')}, at event {at + 1} of {len(events)}.")
        + table("Live bytes at the peak", ["category", "bytes"], [(name, si(size, "B")) for name, size in by_category])
        + table(f"Largest {many} alive at the peak", [one, "bytes", "category", "made at"], held)
    )


KIND = Kind("memory_timeline", "Memory timeline", _static)
