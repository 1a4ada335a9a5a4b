"""``KernelFinding``: one thing that is wrong with a launch, as ``kernel.check`` returns it."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit._base.shown_as_text import shown_as_text

Index = tuple[int, int, int]


@dataclass(frozen=True)
class KernelFinding:
    """One error of a kernel: its kind, the threads that made it, and the source lines.

    Attributes:
        kind: "out_of_bounds", "shared_out_of_bounds", "uninitialized_shared", "shared_race", "global_race",
            "divergent_barrier", "exited_before_barrier", "absent_lane", "division_by_zero", "stack_overflow",
            "timeout", "assertion", "trap", "illegal_address", "misaligned", "unfinished_copy", "uninitialized_global",
            "index_out_of_bounds", "early_overwrite", "source_in_use", "missing_proxy_fence", "misaligned_copy",
            "byte_count", "stuck_barrier", "unset_barrier", "surplus_arrival", "abandoned_copy", "cluster_peer",
            "tensor_map", "matrix_descriptor", "pending_result", "operand_in_use", "unrecorded_store",
            "uninitialized_variable", and of whole programs "stream_race" and "host_race".
        message: one sentence, without the source lines.
        line: of the source, from 1; 0 where it is not known. ``source_line`` is its text.
        block, thread: indices (x, y, z) of the thread that made it first; None where no one thread did.
        other_line, other_source_line, other_block, other_thread: the second party of a race or of a barrier.
        array: the argument, ``__shared__`` array or local variable, empty where it is not known.
        offset: of the access from the array's first byte, in bytes; None where there is no array.
        count: how many accesses, or how often it happened.

    Example:
        >>> message = "read and write of s[1] are not ordered"
        >>> print(KernelFinding("shared_race", message, line=4, source_line="x = s[t + 1];"))
        shared race: read and write of s[1] are not ordered
          line 4: x = s[t + 1];

    Reference: NVIDIA, "Compute Sanitizer": memcheck, racecheck, initcheck and synccheck name the same errors.
    """

    kind: str
    message: str
    line: int = 0
    source_line: str = ""
    block: Index | None = None
    thread: Index | None = None
    other_line: int = 0
    other_source_line: str = ""
    other_block: Index | None = None
    other_thread: Index | None = None
    array: str = ""
    offset: int | None = None
    count: int = 1

    def __str__(self) -> str:
        lines = [f"{self.kind.replace('_', ' ')}: {self.message}"]
        if self.line:
            lines.append(f"  line {self.line}: {self.source_line.strip()}")
        if self.other_line and self.other_line != self.line:
            lines.append(f"  line {self.other_line}: {self.other_source_line.strip()}")
        return "\n".join(lines)

    _repr_pretty_ = shown_as_text
