"""The parts that checks of counters share: their bounds, and the errors for a wrong type, a finding or a count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from mlsys_labkit.checks.message import CheckError, count, failure
from mlsys_labkit.checks.plain import type_name

_Kind = TypeVar("_Kind")
_Wanted = TypeVar("_Wanted")


class ImpossibleCountError(CheckError):
    """A count below what any correct program needs: it did not do the work, or something kept it from being counted."""


class _Finding(Protocol):
    """The fields that findings of CUDA and of Triton kernels have in common."""

    @property
    def kind(self) -> str: ...
    @property
    def message(self) -> str: ...


class Excess(NamedTuple):
    """The explanation of a count that is off: its meaning, the line that counted most, and the next step."""

    meaning: str
    line: str
    next_step: str


def require_type(value: object, kind: type[_Kind], what: str, *, expected: str, next_step: str) -> _Kind:
    """Return ``value`` if it is exactly a ``kind``. Raises CheckError with the headline ``what`` otherwise."""
    if type(value) is not kind:
        raise failure(what, expected=expected, actual=type_name(value), next_step=next_step)
    return value


def read_bounds(
    check: str, noun: str, known: Iterable[str], bounds: Mapping[str, _Wanted]
) -> list[tuple[str, str, _Wanted]]:
    """Return (how, name, wanted) for each keyword; ``how`` is "at_most", "at_least" or "" for an exact count.

    Raises TypeError for a name that is not one of ``known``.
    """
    read = []
    for keyword, wanted in bounds.items():
        how = next((prefix for prefix in ("at_most", "at_least") if keyword.startswith(f"{prefix}_")), "")
        name = keyword.removeprefix(f"{how}_") if how else keyword
        if name not in known:
            raise TypeError(f"{check} knows no {noun} {name!r}; choose one of {', '.join(known)}")
        read.append((how, name, wanted))
    return read


def first_finding(findings: Sequence[_Finding], head: str, where: str, next_step: str) -> CheckError:
    """Compose the error for a launch with findings: the first in words, and the number of the others."""
    first, others = findings[0], len(findings) - 1
    more = f" (and {others} more {'finding' if others == 1 else 'findings'})" if others else ""
    return failure(
        f"{head}: {first.kind.replace('_', ' ')}",
        expected="no finding",
        actual=first.message + more,
        meaning=where,
        next_step=next_step,
    )


def too_few(head: str, came: float, expected: str, meaning: str, next_step: str) -> ImpossibleCountError:
    """Compose the error for a count below what any correct program needs."""
    text = failure(head, expected=expected, actual=count(came), meaning=meaning, next_step=next_step)
    return ImpossibleCountError(str(text))


def off(head: str, came: float, wanted: float, expected: str, why: Excess) -> CheckError:
    """Compose the error for a count that is off, with its ratio to the wanted one."""
    return failure(
        f"{head}: {'too many' if came > wanted else 'too few'}",
        expected=expected,
        actual=count(came) + (f" ({came / wanted:.3g}x)" if wanted else ""),
        meaning="; ".join(filter(None, (why.meaning, why.line))),
        next_step=why.next_step,
    )
