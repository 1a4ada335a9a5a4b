"""The error that all checks raise, and the format of its text."""

from __future__ import annotations

from mlsys_labkit.errors import LabkitError


class CheckError(AssertionError, LabkitError):
    """The error of a check that does not hold: a headline and up to four labelled lines."""


def failure(
    headline: str, *, expected: str = "", actual: str = "", meaning: str = "", next_step: str = ""
) -> CheckError:
    """Compose the error; empty parts are left out.

    Example:
        >>> print(failure("y: wrong shape", expected="(2, 3)", actual="(3, 2)", next_step="transpose the result"))
        y: wrong shape
          expected  (2, 3)
          actual    (3, 2)
          next      transpose the result
    """
    parts = {"expected": expected, "actual": actual, "meaning": meaning, "next": next_step}
    lines = [f"  {label:<8}  {text}" for label, text in parts.items() if text]
    return CheckError("\n".join([headline, *lines]))


def count(value: float) -> str:
    """Format a count in full, with spaces between groups of three digits: 67 149 824. Fractions keep six digits."""
    return f"{int(value):,}".replace(",", " ") if float(value).is_integer() else f"{value:.6g}"
