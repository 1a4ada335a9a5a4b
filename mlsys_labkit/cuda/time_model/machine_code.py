"""Instructions that a kernel's warps execute on a GPU: counted in its machine code, weighted by the simulator's counts.

NVIDIA's compiler merges neighbouring loads, keeps values in registers and adds address arithmetic, none of which the
simulator sees. Its machine code shows all of that, but not how often each part runs. A basic block of machine code with
64 FMAs runs once for every 64 FMAs per lane that the simulator counted; barriers, stores and loads tell the same.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mlsys_labkit.cuda.counters import Counters
from mlsys_labkit.cuda.nvidia.nvrtc import SOURCE_NAME
from mlsys_labkit.cuda.nvidia.occupancy import WARP_THREADS

Access = tuple[str, str, int]
"""Space, operation and source line of a memory access."""

_MEMORY = {
    "LDG": ("global", "load"), "LD": ("global", "load"), "STG": ("global", "store"), "ST": ("global", "store"),
    "LDS": ("shared", "load"), "LDSM": ("shared", "load"), "STS": ("shared", "store"), "LDGSTS": ("global", "load"),
    "ATOM": ("global", "atomic"), "ATOMG": ("global", "atomic"), "RED": ("global", "atomic"),
    "ATOMS": ("shared", "atomic"),
}  # fmt: skip
_PIPES = {
    "FFMA": "float32", "FADD": "float32", "FMUL": "float32",
    "DFMA": "float64", "DADD": "float64", "DMUL": "float64", "MUFU": "math function",
    "IMAD": "integer", "IADD3": "integer", "LOP3": "integer", "LEA": "integer", "SHF": "integer", "ISETP": "integer",
    "VIADD": "integer", "IADD": "integer", "IABS": "integer", "IMNMX": "integer", "SEL": "integer", "PRMT": "integer",
}  # fmt: skip
_LINE = re.compile(r'//## File "(?P<file>[^"]*)", line (?P<line>\d+)')
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:\{\s*)?(?:@!?\w+\s+)?(?P<name>[A-Z][A-Z0-9_.]*)")
_LABEL = re.compile(r"^\.L_\S+:")
_FLOPS_EACH = {"FFMA": 2, "FADD": 1, "FMUL": 1}
_FLOPS: Access = ("", "flops", 0)
_BARRIERS: Access = ("", "barriers", 0)
_ITERATIONS = 300
_TRUST_IN_LOADS = 0.02
_ENDS = ("BRA", "EXIT", "BRX", "RET", "JMP")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


@dataclass
class _Block:
    """A basic block of machine code: its instructions, those of each pipe, its source lines, the widths of accesses."""

    slots: int = 0
    flops: int = 0
    barriers: int = 0
    lines: set[int] = field(default_factory=set)
    pipes: Counter[str] = field(default_factory=Counter)
    widths: dict[Access, list[int]] = field(default_factory=dict)

    def loads(self, space: str) -> bool:
        """Return whether there is a load from this space."""
        return any(access[:2] == (space, "load") for access in self.widths)

    def amount(self, access: Access) -> int:
        """Return the bytes per lane of an access, of all lines if its line is 0; or the FLOPs or barriers."""
        if access == _FLOPS:
            return self.flops
        if access == _BARRIERS:
            return self.barriers
        lines = (key for key in self.widths if key[:2] == access[:2] and access[2] in (0, key[2]))
        return sum(sum(self.widths[key]) for key in lines)


@dataclass(frozen=True)
class Executed:
    """Warp-wide instructions of one launch, estimated.

    Attributes:
        slots: instructions of every kind, each of which takes one issue slot of a scheduler.
        pipes: of these, those of each arithmetic pipe: "float32", "float64", "math function", "integer".
        requests: accesses to memory, by space, operation and source line.
        widths: of these, the mean bytes per lane.
        waits: times that warps reach a basic block with loads from global memory, and from shared memory. The loads of
            one basic block are under way at the same time.
    """

    slots: float
    pipes: Mapping[str, float]
    requests: Mapping[Access, float]
    widths: Mapping[Access, float]
    waits: Mapping[str, float]


def executed(listing: str, counters: Counters) -> Executed:
    """Estimate the instructions that a launch executes, from ``nvdisasm --print-line-info`` of its kernel.

    The counters are those of the simulator for the same launch. A block of code without accesses, FP32 operations and
    barriers is taken to run as often as warps passed the least visited of its source lines.
    """
    blocks = list(_blocks(listing))
    runs = _runs(blocks, counters)

    pipes = dict.fromkeys(sorted(set(_PIPES.values())), 0.0)
    waits = {"global": 0.0, "shared": 0.0}
    moved: dict[Access, list[float]] = {}
    for block, times in zip(blocks, runs.tolist(), strict=True):
        for pipe, number in block.pipes.items():
            pipes[pipe] += times * number
        for space in waits:
            waits[space] += times * block.loads(space)
        for access, widths in block.widths.items():
            total = moved.setdefault(access, [0.0, 0.0])
            total[0] += times * sum(widths)
            total[1] += times * len(widths)
    return Executed(
        slots=float(sum(times * block.slots for block, times in zip(blocks, runs.tolist(), strict=True))),
        pipes=pipes,
        requests={access: number for access, (_, number) in moved.items() if number},
        widths={access: bytes_moved / number for access, (bytes_moved, number) in moved.items() if number},
        waits=waits,
    )


def from_counters(counters: Counters) -> Executed:
    """Return what the counters alone tell: each access and each FMA is an instruction, and each load is waited for."""
    fmas = {kind: counters.instructions.get(kind, 0) / 2 / WARP_THREADS for kind in ("float32", "float64")}
    fmas["math function"] = counters.instructions.get("math function", 0) / WARP_THREADS
    requests: Counter[Access] = Counter()
    for count in counters.lines:
        if count.requests:
            requests[count.space, count.op, count.line] += count.requests
    waits = {space: float(counters.total(space, "load", "requests")) for space in ("global", "shared")}
    slots = sum(requests.values()) + sum(fmas.values())
    return Executed(slots=slots, pipes=fmas, requests=requests, widths={}, waits=waits)


def _runs(blocks: list[_Block], counters: Counters) -> npt.NDArray[np.float64]:
    """Return how often warps run each block, so that the accesses, FLOPs and barriers of all blocks add up.

    If they disagree, loads count least, because g++ may load again what NVIDIA's compiler keeps in a register. If
    several answers fit, such as a loop and its remainder, most runs are those of the block with most of the accesses.

    Reference: Lucy, "An iterative technique for the rectification of observed distributions" (1974), for the iteration.
    """
    wanted = _wanted(blocks, counters)
    if not wanted or not blocks:
        return _passed(blocks, counters)
    static = np.array([[block.amount(key) / total for key, total in wanted.items()] for block in blocks])
    trusted = static * [_TRUST_IN_LOADS if operation == "load" else 1.0 for _, operation, _ in wanted]
    runs: npt.NDArray[np.float64] = static.sum(axis=1)
    weight = trusted.sum(axis=1)
    for _ in range(_ITERATIONS):
        predicted = runs @ static
        correction = trusted @ np.divide(1.0, predicted, out=np.zeros_like(predicted), where=predicted > 0)
        runs = runs * np.divide(correction, weight, out=np.zeros_like(weight), where=weight > 0)
    return np.where(weight > 0, runs, _passed(blocks, counters))


def _passed(blocks: list[_Block], counters: Counters) -> npt.NDArray[np.float64]:
    """Return how often warps passed the least visited source line of each block."""
    lanes: dict[int, int] = {}
    for count in counters.lines:
        lanes[count.line] = max(lanes.get(count.line, 0), count.executed)
    visits = [min((lanes[line] for line in block.lines if line in lanes), default=0) for block in blocks]
    return np.array(visits) / WARP_THREADS / (counters.simt_efficiency or 1)


def _wanted(blocks: list[_Block], counters: Counters) -> dict[Access, float]:
    """Return what the blocks have to add up to: bytes per lane by access, FLOPs per lane, and barriers."""
    counted: Counter[Access] = Counter()
    for count in counters.lines:
        if count.requests:
            counted[count.space, count.op, count.line] += count.requests * count.bytes_per_lane
    wanted: dict[Access, float] = {}
    for kind in {access[:2] for access in counted}:
        lines = {access for access in counted if access[:2] == kind}
        if lines == {access for block in blocks for access in block.widths if access[:2] == kind}:
            wanted |= {access: counted[access] for access in lines}
        else:  # inlining moved an access to another line
            wanted[(*kind, 0)] = sum(counted[access] for access in lines)
    wanted[_FLOPS] = counters.instructions.get("float32", 0) / WARP_THREADS / (counters.simt_efficiency or 1)
    wanted[_BARRIERS] = counters.barriers * _warps(counters)
    return {access: total for access, total in wanted.items() if total and any(b.amount(access) for b in blocks)}


def _warps(counters: Counters) -> int:
    return -(-math.prod(counters.block) // WARP_THREADS)


def _blocks(listing: str) -> Iterator[_Block]:
    block, line = _Block(), 0
    for text in listing.splitlines():
        if place := _LINE.search(text):
            line = int(place["line"]) if place["file"].endswith(SOURCE_NAME) else 0
        elif _LABEL.match(text):
            if block.slots:
                yield block
            block = _Block()
        elif found := _INSTRUCTION.match(text):
            name, *modifiers = found["name"].split(".")
            if name == "NOP":
                continue
            block.slots += 1
            block.lines.add(line)
            if name in _MEMORY:
                access = (*_MEMORY[name], line)
                block.widths.setdefault(access, []).append(_width(modifiers))
            elif name in _PIPES:
                block.pipes[_PIPES[name]] += 1
                block.flops += _FLOPS_EACH.get(name, 0)
            block.barriers += name == "BAR"
            if name in _ENDS:
                yield block
                block = _Block()
    if block.slots:
        yield block


def _width(modifiers: Iterable[str]) -> int:
    return next((_WIDTHS[each] for each in modifiers if each in _WIDTHS), 4)
