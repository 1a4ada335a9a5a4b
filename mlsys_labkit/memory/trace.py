"""``MemoryTrace``: one stream of allocations and frees, and queries on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from mlsys_labkit._base.units import si
from mlsys_labkit.memory import report

_SHOWN_TENSORS = 8
CATEGORIES = ("parameters", "gradients", "activations", "optimizer", "other")
# A tensor keeps its strongest category: a tensor that becomes a .grad counts as a gradient from its start.
_STRENGTH = {"other": 0, "activations": 1, "optimizer": 2, "gradients": 3, "parameters": 4}


@dataclass(frozen=True)
class TracedTensor:
    """One allocation: a tensor's storage or an array's data.

    Args:
        bytes: as asked for.
        dtype, shape: of the tensor that first held it; "" and None for numpy, which allocates before it has a shape.
        device: "cpu", "cuda:0", ...
        category: "parameters", "gradients", "activations", "optimizer" or "other".
        line: where the user's code allocated it, "train.py:12" or "In[3]:2"; "" if unknown.
        code: the text of that line.
        before: alive before the trace began.
    """

    bytes: int
    dtype: str
    shape: tuple[int, ...] | None
    device: str
    category: str
    line: str
    code: str
    before: bool = False

    @property
    def kind(self) -> str:
        return "array" if self.shape is None else "tensor"

    @property
    def name(self) -> str:
        return self.code if self.shape is None else f"{self.dtype} {self.shape}"

    def __str__(self) -> str:
        what = "numpy array" if self.shape is None else f"{self.dtype} {self.shape}"
        return f"{what}, {self.bytes} B, {self.category}{', made at ' * bool(self.line)}{self.line}"


@dataclass(frozen=True)
class MemoryEvent:
    """``bytes`` is positive for an allocation, negative for a free; ``tensor`` is an index into ``trace.tensors``.

    ``kind`` is "array" for numpy's, which have no shape when they are allocated, else "tensor".
    """

    tensor: int
    bytes: int
    category: str
    line: str
    name: str
    kind: str = "tensor"


@dataclass(eq=False)
class MemoryTrace:
    """The record of ``trace_memory``; complete when its block has ended.

    Args:
        tensors: everything that was alive, in order of appearance.
        stream: (index of the tensor, bytes gained or lost) in order, without the tensors that were there before.
        python_peak_bytes: growth at its peak of what tracemalloc sees: numpy's data and all Python objects.
        resident_before_bytes, resident_after_bytes: the process's resident set; None where it cannot be read.
        resident_peak_bytes: growth of the resident set, measured from outside the process; None where it was not.
        cuda: torch's allocator, "allocated", "reserved" and their peaks; None without CUDA.
    """

    tensors: list[TracedTensor] = field(default_factory=list)
    stream: list[tuple[int, int]] = field(default_factory=list)
    python_peak_bytes: int = 0
    resident_before_bytes: int | None = None
    resident_after_bytes: int | None = None
    resident_peak_bytes: int | None = None
    cuda: Mapping[str, int] | None = None

    @property
    def events(self) -> list[MemoryEvent]:
        """The whole stream; it begins with the tensors that were alive before."""
        out = []
        for index, size in self._deltas():
            tensor = self.tensors[index]
            out.append(MemoryEvent(index, size, tensor.category, tensor.line, tensor.name, tensor.kind))
        return out

    def timeline(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return the live bytes after each event: arrays of equal length, "event" and one for each category.

        Example:
            >>> trace = MemoryTrace()
            >>> trace.free(trace.allocate(TracedTensor(8, "float64", (1,), "cpu", "other", "", "")))
            >>> trace.timeline()["other"].tolist()
            [8, 0]
        """
        deltas = self._deltas()
        gains = np.zeros((len(CATEGORIES), len(deltas)), dtype=np.int64)
        for at, (index, size) in enumerate(deltas):
            gains[CATEGORIES.index(self.tensors[index].category), at] = size
        return {"event": np.arange(len(deltas)), **dict(zip(CATEGORIES, np.cumsum(gains, axis=1), strict=True))}

    @property
    def peak_bytes(self) -> int:
        """Most bytes alive at one time."""
        return int(self._live().max(initial=0))

    @property
    def peak_event(self) -> int:
        """The event after which the peak is first reached."""
        live = self._live()
        return int(np.argmax(live)) if live.size else 0

    @property
    def peak_by_category(self) -> dict[str, int]:
        lines = self.timeline()
        return {name: int(lines[name][self.peak_event]) if self.tensors else 0 for name in CATEGORIES}

    @property
    def peak_new_bytes(self) -> int:
        """The peak of what was allocated inside the trace, without what was alive before."""
        sizes = [size for index, size in self.stream if not self.tensors[index].before]
        return int(np.cumsum(sizes, dtype=np.int64).max(initial=0))

    @property
    def peak_tensors(self) -> tuple[TracedTensor, ...]:
        """Tensors alive at the peak, largest first."""
        alive: dict[int, None] = {}
        for index, size in self._deltas()[: self.peak_event + 1]:
            if size > 0:
                alive[index] = None
            else:
                alive.pop(index, None)
        return tuple(sorted((self.tensors[index] for index in alive), key=lambda tensor: -tensor.bytes))

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tensor.device for tensor in self.tensors))

    def on(self, device: str) -> MemoryTrace:
        """Return the part of the trace on one device ("cuda" stands for "cuda:0", "cuda:1", ...)."""
        here = [one.device == device or one.device.startswith(f"{device}:") for one in self.tensors]
        return self.only([index for index, kept in enumerate(here) if kept])

    def only(self, indices: Sequence[int]) -> MemoryTrace:
        """Return the part of the trace about the tensors with these indices."""
        new = {index: number for number, index in enumerate(indices)}
        return replace(
            self,
            tensors=[self.tensors[index] for index in indices],
            stream=[(new[index], size) for index, size in self.stream if index in new],
        )

    def allocate(self, tensor: TracedTensor) -> int:
        """Add a tensor, and an event unless it is older than the trace; return its index."""
        self.tensors.append(tensor)
        if not tensor.before:
            self.stream.append((len(self.tensors) - 1, tensor.bytes))
        return len(self.tensors) - 1

    def free(self, index: int) -> None:
        self.stream.append((index, -self.tensors[index].bytes))

    def mark(self, index: int, category: str) -> None:
        """Set the category of a tensor, unless it has a stronger one."""
        if _STRENGTH[category] > _STRENGTH[self.tensors[index].category]:
            self.tensors[index] = replace(self.tensors[index], category=category)

    def _deltas(self) -> list[tuple[int, int]]:
        return [(i, tensor.bytes) for i, tensor in enumerate(self.tensors) if tensor.before] + self.stream

    def _live(self) -> npt.NDArray[np.int64]:
        return np.cumsum([size for _, size in self._deltas()], dtype=np.int64)

    def __str__(self) -> str:
        return report.text(self._summary())

    def _repr_html_(self) -> str:
        return report.html(self._summary())

    def _summary(self) -> report.Summary:
        peak, by_category, at_peak = self.peak_bytes, self.peak_by_category, self.peak_tensors
        headline = f"peak {si(peak, 'B')} after event {self.peak_event + 1} of {len(self.events)}"
        if len(self.devices) > 1:
            headline += (
                " (" + ", ".join(f"{one}: peak {si(self.on(one).peak_bytes, 'B')}" for one in self.devices) + ")"
            )
        categories = [
            (name, si(by_category[name], "B"), by_category[name] / peak) for name in CATEGORIES if by_category[name]
        ]
        tensors = []
        for one in at_peak[:_SHOWN_TENSORS]:
            name = "numpy" if one.shape is None else one.name
            tensors.append((si(one.bytes, "B"), one.category, name, "before" if one.before else one.line, one.code))
        notes = []
        if len(at_peak) > _SHOWN_TENSORS:
            rest = sum(one.bytes for one in at_peak[_SHOWN_TENSORS:])
            notes.append(f"and {len(at_peak) - _SHOWN_TENSORS} smaller, {si(rest, 'B')} together")
        if self.resident_before_bytes is not None and self.resident_after_bytes is not None:
            change = self.resident_after_bytes - self.resident_before_bytes
            notes.append(f"process: resident {si(self.resident_after_bytes, 'B')}, {si(change, 'B')} more than before")
        if self.cuda is not None:
            notes.append("CUDA allocator: " + ", ".join(f"{name} {si(size, 'B')}" for name, size in self.cuda.items()))
        return report.Summary(headline, categories, tensors, notes)

    def __repr__(self) -> str:
        return f"MemoryTrace(peak_bytes={self.peak_bytes}, events={len(self._deltas())})"
