"""Sentences of findings about bulk copies, mbarriers and clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from mlsys_labkit.cuda.finding import Index, KernelFinding
from mlsys_labkit.cuda.kernel.simulator.decode import NamedRange

# What a mistake leads to later in the launch, by kind, and the mistakes that lead to it.
_ORDER = ("unfinished_copy", "early_overwrite", "source_in_use", "byte_count")
_CONSEQUENCES = {
    "uninitialized_shared": ("unset_barrier", *_ORDER),
    "stuck_barrier": _ORDER,
    "surplus_arrival": _ORDER,
    "abandoned_copy": _ORDER,
    "early_overwrite": ("unfinished_copy",),
}


class Case(Protocol):
    """One record of an error, with names in place of its numbers."""

    record: Any
    line: int
    other_line: int
    bytes: int
    array: NamedRange | None
    offset: int | None
    other_block: Index | None

    @property
    def who(self) -> str: ...
    @property
    def other(self) -> str: ...
    @property
    def element(self) -> str: ...
    @property
    def access(self) -> str: ...


def _signed(number: Any) -> int:
    value = int(number)
    return value - (1 << 32) if value >= 1 << 31 else value


def _barrier(case: Case) -> str:
    """Return ``full[1]`` for a barrier; shared memory does not tell the types of its arrays."""
    if not case.array or case.offset is None:
        return "a barrier"
    return case.array.name if case.array.end - case.array.begin <= 8 else f"{case.array.name}[{case.offset // 8}]"


def _place(case: Case) -> str:
    if not case.array or case.offset is None:
        return "shared memory"
    return case.array.name if case.offset == 0 else f"byte {case.offset} of {case.array.name}"


def _phase(case: Case) -> str:
    return f"phase {int(case.record['begin'])} of {_barrier(case)}"


def without_consequences(findings: Sequence[KernelFinding]) -> list[KernelFinding]:
    """Return the findings without those that another one, about a copy, has led to."""
    kinds = {one.kind for one in findings}
    reads = {one.other_line for one in findings if one.kind == "unfinished_copy" and one.line != one.other_line}

    def is_cause(one: KernelFinding) -> bool:
        if one.kind == "unfinished_copy" and one.line in reads:
            return False  # the next copy into the same place
        if one.kind == "shared_race" and "early_overwrite" in kinds and {one.line, one.other_line} & reads:
            return False
        return not kinds.intersection(_CONSEQUENCES.get(one.kind, ()))

    return [one for one in findings if is_cause(one)]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def early_overwrite(case: Case) -> str:
    """Return the sentence for a bulk copy into what other threads may still read."""
    return (
        f"{case.who} starts a bulk copy into {_place(case)}, which {case.other} accesses at line "
        f"{case.other_line}: nothing "
        "orders the copy after that access; let the readers arrive on a barrier after they have read, "
        "and wait for it here"
    )


def unfinished(case: Case) -> str:
    """Return the sentence for what comes beside a bulk copy that no wait has ended."""
    if case.bytes > 16 or case.line == case.other_line:
        return (
            f"{case.who} starts a bulk copy with {_place(case)}, which the bulk copy of {case.other} at line "
            f"{case.other_line} may still be writing: wait first for the phase that ends that copy, or for the barrier "
            f"on which its readers arrive{'; or let one thread alone start it' if case.line == case.other_line else ''}"
        )
    return (
        f"{case.who} {case.access} {case.element}, which the bulk copy by {case.other} at line "
        f"{case.other_line} may still be "
        "writing: this thread has not waited for the phase of its barrier that ends the copy (a wait for "
        "the other parity "
        "returns at once), or the copy starts before all have read what was there"
    )


def source_in_use(case: Case) -> str:
    """Return the sentence for a write to what a bulk store may still read."""
    missing = "that thread has to wait, with cp.async.bulk.wait_group.read, and a barrier has to follow"
    if not case.record["values"][0]:
        missing = "its bulk group is not committed, so no wait ends it"
    writes = f"writes {case.element}" if case.bytes <= 16 else f"starts a bulk copy into {_place(case)}"
    return (
        f"{case.who} {writes}, which the bulk store by {case.other} at line {case.other_line} may still read: {missing}"
    )


def missing_proxy_fence(case: Case) -> str:
    """Return the sentence for a write that a bulk copy may not see."""
    if case.bytes == 0:
        return (
            f"{case.who} starts a bulk copy that ends with {_barrier(case)}, which {case.other} initialises at line "
            f"{case.other_line} without a fence: fence.proxy.async or fence.mbarrier_init has to follow the "
            "initialisation"
        )
    starts = "starts a bulk copy from" if case.record["op"] else "starts a wgmma that reads"
    reads = "copy" if case.record["op"] else "wgmma"
    return (
        f"{case.who} {starts} {_place(case)}, which {case.other} writes at line "
        f"{case.other_line} without "
        f"fence.proxy.async after it: the {reads} may read what was there before"
    )


def misaligned_copy(case: Case) -> str:
    """Return the sentence for a bulk copy of an odd size or at an odd address."""
    which, rest = (int(value) for value in case.record["values"])
    if which == 3:
        return f"{case.who} starts a bulk copy of {case.bytes} bytes: the size has to be a multiple of 16"
    side = "to" if which == 1 else "from"
    return f"{case.who} starts a bulk copy {side} an address that is {rest} bytes behind a multiple of 16"


def byte_count(case: Case) -> str:
    """Return the sentence for copies that bring more bytes than were expected."""
    told, surplus = (_signed(value) for value in case.record["values"])
    return (
        f"{case.who} starts a bulk copy that brings {_plural(surplus, 'byte')} more to {_barrier(case)} "
        "than expect_tx has told it: "
        f"it was told to expect {_plural(told, 'byte')} in the phase of the copy"
    )


def stuck_barrier(case: Case) -> str:
    """Return the sentence for a thread that waits for a phase that never ends."""
    arrivals, nbytes = (_signed(value) for value in case.record["values"])
    parts = []
    if arrivals:
        parts.append(f"{arrivals} of {int(case.record['end'])} arrivals are missing")
    if nbytes > 0:
        parts.append(f"{nbytes} of {case.bytes} expected bytes have not been copied")
    elif nbytes < 0:
        parts.append(f"{-nbytes} bytes were copied that no expect_tx has told")
    again = ""
    if case.other_line:
        again = (
            f"; {case.other} waited at line {case.other_line} for a phase that it had waited for before: "
            "check its parity"
        )
    return f"{case.who} waits for {_phase(case)}, which never ends: {' and '.join(parts)}{again}"


def unset_barrier(case: Case) -> str:
    """Return the sentence for the use of a barrier that no thread has initialised, or that another one just did."""
    if case.other_line:
        return (
            f"{case.who} uses {_barrier(case)}, which {case.other} initialises at line {case.other_line}: nothing "
            "orders the two; a __syncthreads() has to come between"
        )
    return (
        f"{case.who} uses {_barrier(case)} as an mbarrier, which no thread of its block has initialised "
        "in shared memory; after init, a __syncthreads() has to come before other threads use it"
    )


def surplus_arrival(case: Case) -> str:
    """Return the sentence for more arrivals than a phase has."""
    return (
        f"{case.who} arrives more often in {_phase(case)} than the {int(case.record['values'][0])} times "
        "it was initialised for: "
        "the phase has not ended, and no thread waited for that"
    )


def abandoned_copy(case: Case) -> str:
    """Return the sentence for a block that ends before its copy does."""
    committed, stores = (int(value) for value in case.record["values"])
    if not stores:
        missing = "no thread waits for the phase of its barrier"
    else:
        missing = "wait for its bulk group before" if committed else "its bulk group is not committed"
    return f"the block ends while the bulk copy of {case.who} with {_place(case)} may be under way: {missing}"


def cluster_peer(case: Case) -> str:
    """Return the sentence for an access to a block of the cluster that is not there."""
    rank, blocks = (int(value) for value in case.record["values"])
    if blocks:
        return (
            f"{case.who} asks for rank {rank} of a cluster of {_plural(blocks, 'block')}, or for an address "
            "outside shared memory"
        )
    if case.record["end"]:
        return (
            f"{case.who} {case.access} {case.element} of block {case.other_block}, which has ended: a "
            "cluster.sync() at the end keeps "
            "blocks until no other accesses their shared memory"
        )
    return (
        f"{case.who} {case.access} {case.element} of block {case.other_block} before the first "
        "cluster.sync(): that block may not have "
        "begun, and nothing orders the access after its writes"
    )


def tensor_map(case: Case) -> str:
    """Return the sentence for a copy whose tensor map does not fit it."""
    wrong, value = (int(number) for number in case.record["values"])
    if wrong == 1:
        return (
            f"{case.who} starts a copy with a tensor map at an address where there is none: pass the address of a "
            "CUtensorMap that cuTensorMapEncodeTiled has made, as a __grid_constant__ parameter or in device memory"
        )
    if wrong == 2:
        return f"{case.who} starts a copy with another number of coordinates than the {value} of its tensor map"
    return (
        f"{case.who} starts a copy with a tensor map and with shared memory that is {value} bytes behind a multiple of "
        "128: declare the array alignas(128)"
    )


def matrix_descriptor(case: Case) -> str:
    """Return the sentence for a matrix descriptor that leads out of shared memory."""
    is_right, place = int(case.record["values"][0]), _signed(case.record["values"][1])
    return (
        f"{case.who} starts a wgmma whose descriptor of {'B' if is_right else 'A'} leads out of shared memory: to byte "
        f"{place} of {case.bytes}; check its start address and both byte offsets, in units of 16 bytes, and the swizzle"
    )


def pending_result(case: Case) -> str:
    """Return the sentence for an access to a sum that a product may still write."""
    if case.record["values"][0]:
        missing = "wgmma.wait_group has to come before"
    else:
        missing = "the wgmma is in no group: wgmma.commit_group and wgmma.wait_group have to come before"
    wgmma = f"the wgmma at line {case.other_line}"
    return f"{case.who} {case.access} a result of {wgmma}, which may still write it: {missing}"


def operand_in_use(case: Case) -> str:
    """Return the sentence for a write to what a product may still read."""
    writes = f"writes {case.element}" if case.bytes <= 16 else f"starts a bulk copy into {_place(case)}"
    missing = "wgmma.wait_group" if case.record["values"][0] else "wgmma.commit_group and wgmma.wait_group"
    return (
        f"{case.who} {writes}, which the wgmma by {case.other} at line {case.other_line} may still read: {missing} "
        "has to come before that thread lets others write"
    )


MESSAGES = {
    "early_overwrite": early_overwrite,
    "source_in_use": source_in_use,
    "missing_proxy_fence": missing_proxy_fence,
    "misaligned_copy": misaligned_copy,
    "byte_count": byte_count,
    "stuck_barrier": stuck_barrier,
    "unset_barrier": unset_barrier,
    "surplus_arrival": surplus_arrival,
    "abandoned_copy": abandoned_copy,
    "cluster_peer": cluster_peer,
    "tensor_map": tensor_map,
    "matrix_descriptor": matrix_descriptor,
    "pending_result": pending_result,
    "operand_in_use": operand_in_use,
}
