"""Conversion of error records to Findings, each with its sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mlsys_labkit.cuda.finding import Index, KernelFinding
from mlsys_labkit.cuda.kernel.simulator.decode import (
    DYNAMIC,
    NOBODY,
    LaunchContext,
    NamedRange,
    RecordedLaunch,
    find_array,
    read_records,
)
from mlsys_labkit.cuda.kernel.simulator.explain_copies import (
    MESSAGES as MESSAGES_OF_COPIES,
    unfinished,
    without_consequences,
)
from mlsys_labkit.cuda.kernel.simulator.indices import index_finding, without_known_indices
from mlsys_labkit.cuda.kernel.simulator.variables import variable_finding, without_direct_reads
from mlsys_labkit.cuda.source.returns import may_have_returned
from mlsys_labkit.cuda.source.source import Source

# In the order of FindingKind in native/runtime/records.h, from 1.
KINDS = (
    "out_of_bounds", "shared_out_of_bounds", "uninitialized_shared", "shared_race", "global_race", "divergent_barrier",
    "exited_before_barrier", "absent_lane", "division_by_zero", "stack_overflow", "timeout", "assertion", "trap",
    "illegal_address", "misaligned", "unfinished_copy", "uninitialized_global",
    "index_out_of_bounds", *MESSAGES_OF_COPIES, "uninitialized_variable",
)  # fmt: skip
_IN_SHARED = frozenset(MESSAGES_OF_COPIES) | {"unfinished_copy"}
_NEAR_BYTES = 1 << 30
_REACH_BYTES = 1 << 34  # reach of a wrong int as an index: an address further away comes from another pointer
_PAGE_BYTES = 4096
_VERBS = ("reads", "writes", "updates", "updates", "reads", "writes", "writes", "updates")
_NAMED_ONLY = 1  # kNamedOnly of records.h
_OUTSIDE_VARIABLES = 2  # values[0], of guard.cpp
_ADD = "; if both add to it, use atomicAdd"
_NOUNS = (
    "read", "write", "atomic update", "atomic update", "volatile read", "volatile write",
    "atomic write", "atomic update",
)  # fmt: skip


def decode_findings(result: RecordedLaunch, context: LaunchContext) -> list[KernelFinding]:
    """Return the findings of a launch in any mode, by line; the first one is the one to mend first."""
    records = read_records(result.findings, "findings")
    places = context.places({*records["pc"].tolist(), *records["other_pc"].tolist()})
    text, lines = Source(context.source), context.source.splitlines()

    def source_line(number: int) -> str:
        return lines[number - 1] if 0 < number <= len(lines) else ""

    findings = []
    for record in records:
        kind = KINDS[record["kind"] - 1]
        line = places[int(record["pc"])].line if record["pc"] else 0
        other_line = places[int(record["other_pc"])].line if record["other_pc"] else 0
        case = _Case(record, context, line, other_line)
        if kind == "index_out_of_bounds":
            shared = [each.name for each in context.shared_arrays]
            if found := index_finding(
                record, (line, source_line(line)), (case.block, case.thread), context.source, shared
            ):
                findings.append(found)
            continue
        if kind == "uninitialized_variable":
            findings.append(variable_finding(record, (line, source_line(line)), (case.block, case.thread), text))
            continue
        if (
            kind == "absent_lane"
            and case.bytes == _NAMED_ONLY
            and may_have_returned(Source(context.source), context.kernel, line)
        ):
            continue
        findings.append(
            KernelFinding(
                kind,
                _MESSAGES[kind](case),
                line,
                source_line(line),
                case.block,
                case.thread,
                other_line,
                source_line(other_line),
                case.other_block,
                case.other_thread,
                case.array.name if case.array else "",
                case.offset,
                int(record["count"]),
            )
        )
    findings = without_consequences(without_known_indices(without_direct_reads(findings)))
    return _merged(sorted(findings, key=lambda finding: (finding.line, finding.other_line, finding.kind)))


def _merged(findings: list[KernelFinding]) -> list[KernelFinding]:
    """Merge findings that are one mistake: ``bins[x]++`` races as read and write and as two writes, which tell more."""
    merged: dict[tuple[str, int, int, str], KernelFinding] = {}
    for finding in findings:
        key = (finding.kind, finding.line, finding.other_line, finding.array)
        known = merged.get(key)
        told = finding if _ADD in finding.message or not known else known
        merged[key] = replace(told, count=known.count + finding.count) if known else told
    return list(merged.values())


class _Case:
    """One record, with names in place of its numbers."""

    def __init__(self, record: Any, context: LaunchContext, line: int, other_line: int) -> None:
        self.record, self.context, self.line, self.other_line = record, context, line, other_line
        self.block = _index_or_none(record["block"], context.block_index)
        self.thread = _index_or_none(record["thread"], context.thread_index)
        self.other_thread = _index_or_none(record["other_thread"], context.thread_index)
        self.other_block = _index_or_none(record["other_block"], context.block_index)
        if self.other_thread and self.other_block is None:
            self.other_block = self.block
        self.same_warp = (
            self.other_block == self.block and int(record["thread"]) // 32 == int(record["other_thread"]) // 32
        )
        self.kind = KINDS[record["kind"] - 1]
        self.is_shared = "shared" in self.kind or self.kind in _IN_SHARED
        self.is_shared |= self.kind == "misaligned" and bool(record["values"][0])
        self.bytes = int(record["bytes"])
        address = int(record["address"])
        self.array = self._array(address)
        self.offset = address - self.array.begin if self.array else None

    def _array(self, address: int) -> NamedRange | None:
        if self.kind in ("divergent_barrier", "exited_before_barrier", "absent_lane"):
            return None
        arrays = self.context.shared_arrays if self.is_shared else self.context.arrays
        if held := find_array(arrays, address):
            return held
        if self.is_shared:  # the array whose end, or beginning, is nearest
            return min(arrays, key=lambda each: max(each.begin - address, address - each.end), default=None)
        begin, end = int(self.record["begin"]), int(self.record["end"])  # of the nearest array in the device's memory
        nearest = next((each for each in arrays if each.begin == begin), None)
        if not nearest and not begin - _NEAR_BYTES < address < end + _NEAR_BYTES:  # another launch's, and not meant
            nearest = min(arrays, key=lambda each: abs(address - each.begin), default=None)
        return nearest if nearest and -_REACH_BYTES < address - nearest.begin < _REACH_BYTES else None

    @property
    def who(self) -> str:
        return f"thread {_text(self.thread)} of block {_text(self.block)}" if self.thread else "a thread"

    @property
    def other(self) -> str:
        if not self.other_thread:
            return "another thread"
        if self.other_block == self.block:
            return f"thread {_text(self.other_thread)}"
        return f"thread {_text(self.other_thread)} of block {_text(self.other_block)}"

    @property
    def access(self) -> str:
        return _VERBS[self.record["op"]]

    @property
    def nouns(self) -> tuple[str, str]:
        return _NOUNS[self.record["op"]], _NOUNS[self.record["other_op"]]

    @property
    def element(self) -> str:
        """``a[17]``, or the byte where the type is not known."""
        if not self.array or self.offset is None:
            return "shared memory" if self.is_shared else "global memory"
        size = self.array.element_bytes
        if size and self.offset % size == 0:
            return f"{self.array.name}[{self.offset // size}]"
        if self.is_shared and self.bytes and self.offset % self.bytes == 0:  # its type and rows are not known
            return f"element {self.offset // self.bytes} of {self.array.name}"
        return f"byte {self.offset} of {self.array.name}"

    @property
    def reach(self) -> str:
        """Return ``a[17]``, or ``16 bytes at a[16]`` where one access spans several elements."""
        size = self.array.element_bytes if self.array else 0
        return f"{_bytes(self.bytes)} at {self.element}" if size and self.bytes > size else self.element

    @property
    def extent(self) -> str:
        if not self.array:
            return ""
        nbytes, size = self.array.end - self.array.begin, self.array.element_bytes
        if size:
            return f"{self.array.name} has {nbytes // size} elements of {_bytes(size)}"
        return f"{self.array.name} has {_bytes(nbytes)}"


def _index_or_none(number: Any, index: Callable[[int], Index]) -> Index | None:
    return None if int(number) == NOBODY else index(int(number))


def _text(index: Index | None) -> str:
    return str(index)


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _out_of_bounds(case: _Case) -> str:
    if case.record["values"][0] == _OUTSIDE_VARIABLES:
        return (
            f"{case.who} {case.access} its own stack outside of its variables, which no thread can on a GPU: "
            "an index or a pointer leaves a local array"
        )
    if case.record["values"][0]:
        return (
            f"{case.who} {case.access} a local variable of another thread, which nobody else can reach on a GPU: "
            "pass the value through __shared__ memory or a shuffle"
        )
    if case.array and case.array.name:
        return f"{case.who} {case.access} {case.reach}, and {case.extent}"
    begin, end, address = (int(case.record[name]) for name in ("begin", "end", "address"))
    if begin <= address < end + (end - begin) and end:
        return f"{case.who} {case.access} byte {address - begin} of an array that has {_bytes(end - begin)}"
    return f"{case.who} {case.access} {_bytes(case.bytes)} at {_place(case)}"


def _place(case: _Case) -> str:
    """Describe an address that is near no array."""
    address = int(case.record["address"])
    if address < _PAGE_BYTES and case.kind == "out_of_bounds":
        return f"address {address:#x}: the pointer is null"
    if address == 0:  # x86 reports address 0 for two more faults
        return "address 0x0: the pointer is null or garbage, or the access is misaligned; check tells which"
    if case.kind == "out_of_bounds" and case.access != "reads":
        return f"address {address:#x}, where there is no array that a kernel may write; __constant__ is read only"
    return f"address {address:#x}, where there is no memory of the device"


def _shared_out_of_bounds(case: _Case) -> str:
    if case.array:
        where = f"; {case.extent}"
        if case.array.name == DYNAMIC:
            where = f"; the launch gives {_bytes(case.context.shared_bytes)} of dynamic shared memory"
        return f"{case.who} {case.access} {case.element}, which is outside the array{where}"
    return f"{case.who} {case.access} {_bytes(case.bytes)} outside every __shared__ array"


def _uninitialized(case: _Case) -> str:
    return f"{case.who} {case.access} {case.element}, which no thread of the block has written"


def _uninitialized_global(case: _Case) -> str:
    return f"{case.who} {case.access} {case.reach}, which nothing has written: new device memory holds no zeros"


def _race(case: _Case) -> str:
    own, other = case.nouns
    where = f"line {case.line}" if case.line == case.other_line else f"lines {case.line} and {case.other_line}"
    remedy = "no __syncthreads() orders them"
    if case.other_block not in (None, case.block):
        remedy = "nothing orders the blocks of a launch: use an atomic, or a second launch"
        if case.is_shared:
            remedy = "no cluster.sync() orders them"
    elif case.same_warp:
        remedy = "no __syncwarp() or __syncthreads() orders them"
    if own == other and case.line == case.other_line:
        both_add = _ADD if own == "write" and "atomic" not in remedy else ""
        return f"{case.element}: {own}s by {case.who} and by {case.other} at {where}: {remedy}{both_add}"
    return f"{case.element}: {own} by {case.who} and {other} by {case.other} at {where}: {remedy}"


def _divergent(case: _Case) -> str:
    if case.record["values"][0]:
        mask, arrived = (int(value) for value in case.record["values"])
        where = f"{case.other} is not there"
        where += f" but at line {case.other_line}" if case.other_line and case.other_line != case.line else ""
        return f"{case.who} waits for the lanes of mask {mask:#010x}, of which {arrived:#010x} have come: {where}"
    if case.other_line and case.other_line != case.line:
        return f"{case.who} waits at the barrier in line {case.line}, and {case.other} at line {case.other_line}"
    pcs = {int(case.record["pc"]), int(case.record["other_pc"])}
    if case.other_line and len(pcs) == 2 and case.line == case.other_line:
        return f"{case.who} waits at one barrier of line {case.line}, and {case.other} at another one of this line"
    return f"{case.who} waits at a barrier that {case.other} does not reach"


def _exited(case: _Case) -> str:
    here, all_of_them = (int(value) for value in case.record["values"])
    return (
        f"{here} of the block's {all_of_them} threads reach the barrier, such as {case.who}; "
        f"{case.other} has left the kernel before: every thread has to take part"
    )


def _absent(case: _Case) -> str:
    mask, lane = (int(value) for value in case.record["values"])
    if case.bytes == _NAMED_ONLY:
        return (
            f"{case.who} calls it with the mask {mask:#010x}, which names lane {lane}, and {case.other} passes by "
            "and ends: all lanes of the mask have to reach this line; move it out of the branch, or make the mask "
            "before it with __ballot_sync"
        )
    remedy = "all lanes of the mask have to reach this line, and no if, loop or return may keep one of them away"
    if not mask >> lane & 1:
        remedy = "put the lane into the mask and let it reach this line, or read from none outside the mask"
    return (
        f"{case.who} reads the value of lane {lane}, which takes no part (mask {mask:#010x}): the result is undefined; "
        f"{remedy}"
    )


def _illegal_address(case: _Case) -> str:
    if case.array and case.array.name:
        return f"{case.who} accesses {case.element}, and {case.extent}"
    return f"{case.who} accesses {_place(case)}"


def _misaligned(case: _Case) -> str:
    place = f"at {case.element}," if case.array else "at"
    return f"{case.who} {case.access} {_bytes(case.bytes)} {place} an address that is not a multiple of {case.bytes}"


def _unfinished_copy(case: _Case) -> str:
    if case.record["values"][1]:
        return unfinished(case)
    copy = f"its own asynchronous copy at line {case.other_line}"
    if case.other_thread != case.thread:
        copy = f"the asynchronous copy by {case.other} at line {case.other_line}"
    missing = "no wait for the copy" if case.record["values"][0] else "the copy is not committed, so no wait ends it,"
    return f"{case.who} {case.access} {case.element}, which {copy} may still be writing: {missing} comes before"


_MESSAGES: dict[str, Callable[[_Case], str]] = {
    "out_of_bounds": _out_of_bounds,
    "shared_out_of_bounds": _shared_out_of_bounds,
    "uninitialized_shared": _uninitialized,
    "uninitialized_global": _uninitialized_global,
    "shared_race": _race,
    "global_race": _race,
    "divergent_barrier": _divergent,
    "exited_before_barrier": _exited,
    "absent_lane": _absent,
    "division_by_zero": lambda case: f"{case.who} divides an integer by zero",
    "stack_overflow": lambda case: (
        f"{case.who} needs more stack than there is: endless recursion, or huge local arrays"
    ),
    "timeout": lambda case: f"the kernel did not end in time; {case.who} was still running",
    "assertion": lambda case: f"{case.who} fails assert({bytes(case.record['text']).decode(errors='replace')})",
    "trap": lambda case: f"{case.who} calls __trap()",
    "illegal_address": _illegal_address,
    "misaligned": _misaligned,
    "unfinished_copy": _unfinished_copy,
    **MESSAGES_OF_COPIES,
}
