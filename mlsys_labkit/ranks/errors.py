"""Errors of a run of several ranks, each with the rank and the line where it happened."""

from __future__ import annotations

from mlsys_labkit.errors import RanksError


class RankError(RanksError):
    """The failure of one rank: it raised, left its process or ran out of time. The other ranks were released.

    Attributes:
        rank: which one, the first if there were several.
        line: (file, line number) of the student's own code, or None where it is not known.
    """

    def __init__(self, message: str, rank: int = -1, line: tuple[str, int] | None = None) -> None:
        super().__init__(message)
        self.rank, self.line = rank, line


class DeadlockError(RanksError):
    """A deadlock: which rank waits for which, in which call, on which line."""


class MismatchError(RanksError, ValueError):
    """A disagreement of the two ends of a message, or of the members of a collective, on what is exchanged."""
