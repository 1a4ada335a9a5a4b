"""``AccessFinding``: an error, a slow access or a piece of information about a launch, as ``trace`` reports it."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit._base.shown_as_text import shown_as_text
from mlsys_labkit.triton_trace.recorder import Line, Program, Severity


@dataclass(frozen=True)
class AccessFinding:
    """One finding, with its program and source line.

    Attributes:
        kind: errors are "histogram_range", "integer_overflow", "undefined_value", "out_of_bounds", "wrong_stride",
            "race", "conflicting_store", and in Gluon "missing_wait", "missing_commit", "missing_expect",
            "wrong_byte_count", "wrong_phase", "missing_fence", "buffer_reuse", "unwritten_shared", "shared_race",
            "barrier_reuse", "too_many_arrivals"; performance is "repeated_load", "repeated_store"; information is
            "unwritten", "unread", "narrow_accumulator". Offsets, and sums in loops of int8 and int16, are checked for
            an overflow by the launch's own numbers, not by all that fit.
        message: one sentence, without the source lines.
        line, source_line: the source line and its text. program: (x, y, z) of the first program concerned.
        other_line, other_source_line, other_program: the second access of a race or a repetition, or where an
            undefined value of a load (``line``) is used.
        array: the argument, empty where the address is near none. element: number in the flattened array.
        count: elements concerned, over all programs.

    Example:
        >>> message = "reads x[6]; x has 6 elements"
        >>> print(AccessFinding("out_of_bounds", "error", message, Line("In[2]", 4), "x = tl.load(p)"))
        out of bounds: reads x[6]; x has 6 elements
          In[2] line 4: x = tl.load(p)
    """

    kind: str
    severity: Severity
    message: str
    line: Line | None = None
    source_line: str = ""
    program: Program | None = None
    other_line: Line | None = None
    other_source_line: str = ""
    other_program: Program | None = None
    array: str = ""
    element: int | None = None
    count: int = 1

    def __str__(self) -> str:
        lines = [f"{self.kind.replace('_', ' ')}: {self.message}"]
        if self.line:
            lines.append(f"  {self.line}: {self.source_line}")
        if self.other_line and self.other_line != self.line:
            lines.append(f"  {self.other_line}: {self.other_source_line}")
        return "\n".join(lines)

    _repr_pretty_ = shown_as_text
