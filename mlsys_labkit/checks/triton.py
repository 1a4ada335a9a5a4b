"""``expect_no_findings`` and ``expect_traffic``: errors of a Triton kernel, and its traffic against theory."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING

from mlsys_labkit.checks.comparison import Diagnosis
from mlsys_labkit.checks.counts import Excess, first_finding, off, read_bounds, require_type, too_few
from mlsys_labkit.checks.message import count
from mlsys_labkit.checks.passed import note_pass

if TYPE_CHECKING:
    from mlsys_labkit.triton_trace.report import LaunchTrace


def expect_no_findings(trace: object, *, name: str = "", performance: bool = False) -> None:
    """Check that a traced launch has no error: nothing out of bounds, no race between programs.

    Bytes that a program loads or stores twice are no error; ``performance`` asks for none of those either. Raises
    CheckError with the first finding in plain words.

    Example:
        >>> import numpy as np, triton, triton.language as tl
        >>> from mlsys_labkit.triton_trace import trace
        >>> @triton.jit
        ... def fill(x, n, BLOCK: tl.constexpr):
        ...     i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        ...     tl.store(x + i, 1.0, mask=i < n)
        >>> expect_no_findings(trace(fill)[(2,)](np.zeros(100, np.float32), 100, BLOCK=64))

    Reference: NVIDIA, "Compute Sanitizer": memcheck and racecheck look for the same errors.
    """
    traced = _trace(trace, name)
    wanted = ("error", "performance") if performance else ("error",)
    found = [one for one in traced.findings if one.severity in wanted]
    if not found:
        note_pass(f"{name or traced.kernel} runs without a finding")
        return
    first = found[0]
    where = [f"{first.line}: {first.source_line}"] if first.line else []
    if first.other_line and first.other_line != first.line:
        where.append(f"{first.other_line}: {first.other_source_line}")
    raise first_finding(
        found,
        f"{name or traced.kernel}, grid {_grid(traced)}",
        "; ".join(where),
        "look at lk.triton_trace.trace(kernel)[grid](...).findings, and mend the first finding first",
    )


def fault_behind(values: object) -> Diagnosis | None:
    """Explain wrong values by an error of the traced kernel that stored them; return None if it had none."""
    faults = sys.modules.get("mlsys_labkit.triton_trace.faults")
    found = faults.fault_behind(values) if faults else None
    if found is None:
        return None
    kernel, first = found
    at = f" ({first.line}: {first.source_line})" if first.line else ""
    kind = first.kind.replace("_", " ")
    return Diagnosis(
        f"{kind} in {kernel}, and the values are wrong",
        f"{first.message}{at}",
        "mend the access first, since the values may follow from it",
    )


def expect_traffic(trace: object, array: str, *, name: str = "", **bounds: float) -> None:
    """Check what a traced launch asked of one array.

    A keyword is a figure of ``ArrayTraffic`` (``loaded_bytes``, ``stored_bytes``, ``loaded_elements``,
    ``distinct_loaded_bytes``, ...), or one with ``at_most_`` or ``at_least_`` before it. Less than was asked for as an
    exact or a least figure raises ImpossibleCountError: the kernel did not do the work, or bypassed the counters. More
    raises CheckError with the ratio and the line that asked most. A name that is no array of the kernel raises
    TypeError.

    Example:
        >>> import numpy as np, triton, triton.language as tl
        >>> from mlsys_labkit.triton_trace import trace
        >>> @triton.jit
        ... def fill(x, n, BLOCK: tl.constexpr):
        ...     i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        ...     tl.store(x + i, 1.0, mask=i < n)
        >>> traced = trace(fill)[(2,)](np.zeros(100, np.float32), 100, BLOCK=64)
        >>> expect_traffic(traced, "x", stored_bytes=400, loaded_bytes=0)

    Reference: S. Williams, A. Waterman and D. Patterson, "Roofline", CACM 52(4), 2009: bytes moved are the cost.
    """
    from mlsys_labkit.triton_trace.count.counts import ArrayTraffic

    figures = [one.name for one in fields(ArrayTraffic) if one.name != "name"]
    asked = read_bounds("expect_traffic", "figure", figures, bounds)
    traced = _trace(trace, name)
    if array not in traced.arrays:
        raise TypeError(f"{traced.kernel} has no array {array!r}; it has {', '.join(traced.arrays) or 'none'}")
    for how, figure, wanted in sorted(asked, key=lambda one: one[0] == "at_most"):
        came = getattr(traced.arrays[array], figure)
        head = f"{name or traced.kernel}, grid {_grid(traced)}: {figure.replace('_', ' ')} of {array}"
        if how != "at_most" and came < wanted:
            raise too_few(
                f"{head}: fewer than any kernel needs for this work",
                came,
                f"at least {count(wanted)}",
                "some elements were never touched",
                "does every program take part, and does the loop reach the end?",
            )
        if how != "at_least" and came > wanted:
            unit = "each lane that is not masked off counts, every time it asks" if "distinct" not in figure else ""
            why = Excess(
                unit, _heaviest(traced, array, figure), "which bytes are asked for more often than they have to be?"
            )
            raise off(head, came, wanted, ("at most " if how else "") + count(wanted), why)
    note_pass(f"the traffic of {array} in {name or traced.kernel}")


def _trace(trace: object, name: str) -> LaunchTrace:
    from mlsys_labkit.triton_trace.report import LaunchTrace

    return require_type(
        trace,
        LaunchTrace,
        f"{name or 'the trace'}: not a trace",
        expected="what lk.triton_trace.trace(kernel)[grid](...) returns",
        next_step="pass the trace, not the kernel or its result",
    )


def _heaviest(traced: LaunchTrace, array: str, figure: str) -> str:
    """Describe the line that asked most of ``array``."""
    reads = "loaded" in figure
    lines = [
        one
        for one in traced.accesses
        if array in one.array.split(", ") and (one.kind == "atomic" or (one.kind == "load") is reads)
    ]
    most = max(lines, key=lambda one: one.bytes_requested, default=None)
    return f"most at {most.line}: {traced.source.line_text(*most.line)}" if most else ""


def _grid(traced: LaunchTrace) -> str:
    sizes = list(traced.grid)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return " x ".join(map(str, sizes))
