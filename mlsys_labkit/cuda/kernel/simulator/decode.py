"""The records of a launch (``native/runtime/records.h``), read as a Profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.cuda.counters import COUNTS, LineCount, RequestSample
from mlsys_labkit.cuda.kernel.gcc.instructions import BlockCode, basic_blocks
from mlsys_labkit.cuda.kernel.gcc.symbols import read_symbols, shared_arrays
from mlsys_labkit.cuda.profile import Profile
from mlsys_labkit.cuda.source.shared import SYMBOL
from mlsys_labkit.errors import LabkitError

NOBODY = 2**64 - 1
DYNAMIC = "dynamic shared memory"  # name of the extern __shared__ array where no other is known
SPACES = ("global", "shared", "local", "constant")
OPS = ("load", "store", "atomic", "atomic", "load", "store", "atomic", "atomic")  # of records.h

FINDING = np.dtype(
    [
        *((name, "<u4") for name in ("kind", "op", "other_op", "bytes")),
        *((name, "<u8") for name in ("pc", "other_pc", "block", "thread", "other_block", "other_thread")),
        *((name, "<u8") for name in ("address", "begin", "end", "count")),
        ("values", "<u4", 2),
        ("text", "S128"),
    ]
)
SITE = np.dtype(
    [
        ("pc", "<u8"),
        *((name, "<u4") for name in ("space", "op", "bytes_per_lane", "worst")),
        *(
            (name, "<u8")
            for name in ("requests", "lanes", "sectors", "wavefronts", "ideal_sectors", "ideal_wavefronts")
        ),
    ]
)
STEP = np.dtype([("pc", "<u8"), ("steps", "<u8"), ("lanes", "<u8")])
SAMPLE = np.dtype(
    [
        ("pc", "<u8"),
        *((name, "<u4") for name in ("space", "op", "bytes_per_lane", "mask")),
        ("block", "<u8"),
        ("warp", "<u8"),
        ("addresses", "<u8", 32),
    ]
)
TOTALS = np.dtype(
    [
        (name, "<u8")
        for name in (
            "blocks_run", "blocks_total", "block_barriers", "warp_barriers", "bulk_copies", "bulk_bytes_in_flight",
            "steps", "active_lanes", "bytes_read", "bytes_written", "findings_dropped", "buffers",
        )
    ]
)  # fmt: skip
BUFFER_USE = np.dtype([(name, "<u8") for name in ("begin", "end", "bytes_read", "bytes_written", "written_offset")])
# In the order of the reply's sections.
RECORDS: Mapping[str, np.dtype[Any]] = {
    "findings": FINDING, "sites": SITE, "steps": STEP, "samples": SAMPLE, "totals": TOTALS,
}  # fmt: skip


@dataclass(frozen=True)
class RecordedLaunch:
    """The records of a launch as bytes, arrays of the structs in ``native/runtime/records.h``, and its seconds."""

    findings: bytes
    sites: bytes
    steps: bytes
    samples: bytes
    totals: bytes
    seconds: float  # of the simulator: never to be shown as a GPU's


class Lines(Protocol):
    """A table of the places of addresses in kernel.so, as ``gcc.lines.LineTable``."""

    path: Path
    source_name: str

    def locate(self, addresses: Iterable[int]) -> Mapping[int, Any]: ...


class NamedRange(NamedTuple):
    """An array: of global memory by address, of shared memory by offset in the thread-local segment."""

    name: str
    begin: int
    end: int
    element_bytes: int = 0  # 0: not known


@dataclass(frozen=True)
class LaunchContext:
    """Facts about a launch that its records do not hold.

    Attributes:
        lines: of the instrumented kernel.so (of the fast one after a plain launch, for its findings).
        arrays: device buffers, by the name of their argument.
    """

    kernel: str
    source: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    lines: Lines
    arrays: Sequence[NamedRange] = ()

    @cached_property
    def shared_arrays(self) -> tuple[NamedRange, ...]:
        """The static ``__shared__`` arrays, and the dynamic one with the bytes of this launch."""
        static, dynamic_offset = _shared_ranges(self.lines.path)
        return (*static, NamedRange(DYNAMIC, dynamic_offset, dynamic_offset + self.shared_bytes))

    def block_index(self, number: int) -> tuple[int, int, int]:
        """Return x, y, z of a linear block number."""
        return _index(number, self.grid)

    def thread_index(self, number: int) -> tuple[int, int, int]:
        """Return x, y, z of a linear thread number."""
        return _index(number, self.block)

    def places(self, pcs: Iterable[int]) -> dict[int, Any]:
        """Return the location of the call before each pc, because a pc is the return address of a call."""
        wanted = [int(pc) for pc in pcs if pc]
        found = self.lines.locate(pc - 1 for pc in wanted)
        return {pc: found[pc - 1] for pc in wanted}


@lru_cache(maxsize=64)
def _shared_ranges(path: Path) -> tuple[tuple[NamedRange, ...], int]:
    """Return the static ``__shared__`` arrays of a kernel.so, and where the dynamic one begins."""
    static = tuple(NamedRange(each.name, each.offset, each.offset + each.nbytes) for each in shared_arrays(path))
    return static, next(symbol.value for symbol in read_symbols(path) if symbol.name == SYMBOL)


def _index(number: int, extent: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, _ = extent
    return number % x, number // x % y, number // (x * y)


def read_records(data: bytes, kind: str) -> NDArray[Any]:
    """Return the records of one section of a reply."""
    dtype = RECORDS[kind]
    if len(data) % dtype.itemsize:
        raise LabkitError(
            f"the worker sent {len(data)} bytes of {kind}, expected a multiple of {dtype.itemsize}; restart the kernel"
        )
    return np.frombuffer(data, dtype)


def decode_profile(result: RecordedLaunch, context: LaunchContext) -> Profile:
    """Return the profile of a launch in mode "profile"."""
    sites, steps = read_records(result.sites, "sites"), read_records(result.steps, "steps")
    totals = np.frombuffer(result.totals, TOTALS, 1)[0]
    code = basic_blocks(context.lines.path, context.lines.source_name) if len(steps) else {}
    executed = _executed(steps, code)
    flops = _flops(steps, code)
    places = context.places({int(pc) for pc in sites["pc"]} | {int(pc) for pc in steps["pc"]})
    return Profile(
        kernel=context.kernel,
        source=context.source,
        grid=context.grid,
        block=context.block,
        shared_bytes=context.shared_bytes,
        lines=_line_counts(sites, places, executed, steps),
        samples=tuple(_samples(read_records(result.samples, "samples"), context)),
        barriers=int(totals["block_barriers"]),
        warp_barriers=int(totals["warp_barriers"]),
        bulk_copies=int(totals["bulk_copies"]),
        bulk_bytes_in_flight=int(totals["bulk_bytes_in_flight"]),
        steps=int(totals["steps"]),
        active_lanes=int(totals["active_lanes"]),
        blocks_run=int(totals["blocks_run"]),
        blocks_total=int(totals["blocks_total"]),
        flops=sum(flops.values()),
        instructions=flops | _accesses(sites),
        bytes_read=int(totals["bytes_read"]),
        bytes_written=int(totals["bytes_written"]),
        seconds=result.seconds,
    )


def _executed(steps: NDArray[Any], code: Mapping[int, BlockCode]) -> dict[int, int]:
    """Return for each line the lane-steps of the basic block with code of the line that ran most."""
    executed: dict[int, int] = {}
    for pc, _, lanes in steps.tolist():
        for line in code[pc].lines if pc in code else ():
            executed[line] = max(executed.get(line, 0), lanes)
    return executed


def _line_counts(
    sites: NDArray[Any], places: Mapping[int, Any], executed: Mapping[int, int], steps: NDArray[Any]
) -> tuple[LineCount, ...]:
    sums: dict[tuple[int, str, str, str, str, int], dict[str, int]] = {}
    passed = _passed(steps, places, executed)
    for site in sites:
        key = (
            *_counted_at(places[int(site["pc"])]),
            SPACES[site["space"]],
            OPS[site["op"]],
            int(site["bytes_per_lane"]),
        )
        numbers = sums.setdefault(key, dict.fromkeys((*COUNTS, "worst"), 0))
        for name in COUNTS:
            numbers[name] += int(site[name])
        numbers["worst"] = max(numbers["worst"], int(site["worst"]))
    counts = [
        LineCount(line, function, space, op, nbytes, **numbers, executed=passed.get((line, file), 0), file=file)
        for (line, function, file, space, op, nbytes), numbers in sums.items()
    ]
    functions = {line: name for line, name, file in map(_counted_at, _of_steps(steps, places)) if not file}
    nothing = dict.fromkeys((*COUNTS, "worst"), 0)
    quiet = executed.keys() - {count.line for count in counts if not count.file}
    counts += [
        LineCount(line, functions.get(line, ""), "", "", 0, **nothing, executed=executed[line], file="")
        for line in quiet
    ]
    return tuple(sorted(counts, key=_place_and_kind))


def _place_and_kind(count: LineCount) -> tuple[str, int, str, str, str, int]:
    return count.file, count.line, count.function, count.space, count.op, count.bytes_per_lane


def _counted_at(place: Any) -> tuple[int, str, str]:
    """Return line, function and file of the counts of a place: the source's own line that leads there, if one does."""
    if place.source_line:
        return place.source_line, place.source_function, ""
    return place.line, place.function, place.file


def _of_steps(steps: NDArray[Any], places: Mapping[int, Any]) -> list[Any]:
    return [places[pc] for pc in steps["pc"].tolist()]


def _passed(steps: NDArray[Any], places: Mapping[int, Any], executed: Mapping[int, int]) -> dict[tuple[int, str], int]:
    """Return the lane-steps of each line, by line and file: ``executed``, and lines whose code is all in a header."""
    passed: dict[tuple[int, str], int] = {}
    for place, lanes in zip(_of_steps(steps, places), steps["lanes"].tolist(), strict=True):
        line, _, file = _counted_at(place)
        passed[line, file] = max(passed.get((line, file), 0), lanes)
    return passed | {(line, ""): lanes for line, lanes in executed.items()}


def _flops(steps: NDArray[Any], code: Mapping[int, BlockCode]) -> dict[str, int]:
    """Return FLOPs by kind: each basic block's, times the lanes that ran it."""
    flops = Counter[str]()
    for pc, _, lanes in steps.tolist():
        if pc in code:
            flops.update({kind: lanes * count for kind, count in code[pc].flops.items()})
    return {kind: count for kind, count in flops.items() if count}


def _accesses(sites: NDArray[Any]) -> dict[str, int]:
    """Return how many lanes executed memory instructions, by kind."""
    lanes: Counter[str] = Counter()
    for site in sites:
        lanes[f"{SPACES[site['space']]} {OPS[site['op']]}"] += int(site["lanes"])
    return dict(lanes)


def _samples(samples: NDArray[Any], context: LaunchContext) -> Iterable[RequestSample]:
    places = context.places(samples["pc"])
    for each in samples:
        shared = bool(each["space"])
        active = [int(each["mask"]) >> lane & 1 for lane in range(32)]
        addresses = [int(address) for address in each["addresses"]]
        first = next(address for address, is_active in zip(addresses, active, strict=True) if is_active)
        array = find_array(context.shared_arrays if shared else context.arrays, first)
        begin = array.begin if array else 0
        yield RequestSample(
            line=_sampled_line(places[int(each["pc"])]),
            space=SPACES[each["space"]],
            op=OPS[each["op"]],
            bytes_per_lane=int(each["bytes_per_lane"]),
            block=context.block_index(int(each["block"])),
            warp=int(each["warp"]),
            lanes=tuple(at - begin if on else None for at, on in zip(addresses, active, strict=True)),
            array=array.name if array else "",
        )


def _sampled_line(place: Any) -> int:
    line, _, file = _counted_at(place)
    return 0 if file else line


def find_array(arrays: Sequence[NamedRange], address: int) -> NamedRange | None:
    """Return the array that contains an address; None if none does."""
    return next((array for array in arrays if array.begin <= address < array.end), None)


@dataclass(frozen=True)
class WrittenBytes:
    """The bytes of one buffer that the recorded stores wrote."""

    begin: int
    end: int
    mask: NDArray[np.bool_]  # a byte each


def written_bytes(result: RecordedLaunch) -> tuple[WrittenBytes, ...]:
    """Return the buffers that a profiled launch stored to. Buffers that it only read are not among them."""
    data = result.totals
    count = int(np.frombuffer(data, TOTALS, 1)[0]["buffers"])
    uses = np.frombuffer(data, BUFFER_USE, count, TOTALS.itemsize)
    found = []
    for use in uses[uses["bytes_written"] > 0]:
        nbytes = int(use["end"] - use["begin"])
        bits = np.frombuffer(data, np.uint8, (nbytes + 7) // 8, int(use["written_offset"]))
        mask = np.unpackbits(bits, count=nbytes, bitorder="little").astype(np.bool_)
        found.append(WrittenBytes(int(use["begin"]), int(use["end"]), mask))
    return tuple(found)
