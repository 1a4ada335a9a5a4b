"""``VectorClock``: what a partition knows to have happened. An asynchronous operation is an actor, too."""

from __future__ import annotations

import itertools

_OPERATIONS = itertools.count(1 << 20)  # numbers of asynchronous operations: above those of partitions


def new_operation() -> int:
    """Return the number of a new asynchronous operation."""
    return next(_OPERATIONS)


class VectorClock:
    """The latest time of each actor that ``owner`` has synchronised with.

    Attributes:
        time: of the owner's own accesses from now on.
    """

    def __init__(self, owner: int, seen: dict[int, int] | None = None) -> None:
        self.owner = owner
        self.seen = dict(seen or {})
        self.time = 1

    def fork(self, owner: int) -> VectorClock:
        return VectorClock(owner, self.seen)

    def knows(self, actor: int, time: int) -> bool:
        return actor == self.owner or self.seen.get(actor, 0) >= time

    def observe(self, operation: int) -> None:
        """Note that an asynchronous operation is complete."""
        self.seen[operation] = 1

    def release(self) -> dict[int, int]:
        """Return what others learn who synchronise with this moment."""
        self.seen[self.owner] = self.time
        self.time += 1
        return dict(self.seen)

    def join(self, other: VectorClock | dict[int, int]) -> None:
        for actor, time in (other.release() if isinstance(other, VectorClock) else other).items():
            if self.seen.get(actor, 0) < time:
                self.seen[actor] = time
