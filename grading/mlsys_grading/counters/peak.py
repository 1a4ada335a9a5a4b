"""Peak memory of one call, as the system's kernel counts it for a process made for that call.

A student's code could change a tracer in its own process. The examiner therefore makes the same call in a fresh
process, which has run the answers and the other cells' definitions, and reads from outside how far its resident set
rose. Memory that was allocated before the call and freed within it would hide as much, so no process counts as holding
more at that moment than the reference solution's process did plus BALLAST_BYTES. The unit is a page, and any call
touches some pages for the first time: ``checks.expect_peak`` forgives RESIDENT_SLACK_BYTES, and what the reference
solution's process took in the same call beside its own arrays (a matrix product's first pages of code, holes between
blocks) is taken off. A difference that a test measures must be larger than slack and ballast together.
"""

from __future__ import annotations

from dataclasses import dataclass

BALLAST_BYTES = 12 << 20


@dataclass(frozen=True)
class Readings:
    """Readings of one process's resident set, in bytes.

    Attributes:
        forked: before it ran any of the student's code.
        before: the call.
        peak: until the call was over.
        arguments: what the call was given.
    """

    forked: int
    before: int
    peak: int
    arguments: int


def new_resident_bytes(readings: Readings, held_by_reference: int | None = None) -> int | None:
    """Return the bytes that a call took at its peak; None if the machine does not count them.

    ``held_by_reference``: bytes that the reference solution's process had gained before the same call; None: unknown.

    Example:
        >>> mib = 1 << 20
        >>> new_resident_bytes(Readings(200 * mib, 205 * mib, 239 * mib, 0), 5 * mib) // mib
        34
        >>> new_resident_bytes(Readings(200 * mib, 239 * mib, 239 * mib, 0), 5 * mib) // mib  # given up within the call
        22
    """
    if not (readings.forked and readings.before and readings.peak):
        return None
    before = readings.before
    if held_by_reference is not None:
        before = min(before, readings.forked + held_by_reference + BALLAST_BYTES)
    return max(0, readings.peak - before - readings.arguments)
