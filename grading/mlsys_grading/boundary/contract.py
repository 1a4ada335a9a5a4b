"""Contract of a lab: what calls of its solution do beside returning plain data. A submission may do only that.

A submission that writes to its arguments could spoil the inputs from which a test computes what it expects; one that
hands out live objects could answer each question about them as it likes. The reference solution, graded once, shows
where either belongs to the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlsys_grading.boundary.errors import ContractError

WRITES = "writes to its arguments"


@dataclass
class Contract:
    """The observations by call: "call standardize", "method Pool.take", ...

    Attributes:
        seen: call -> what it did in this run.
        allowed: the same of the reference solution; None while that one is being graded.

    Example:
        >>> reference = Contract()
        >>> reference.note("call scale", WRITES)
        >>> Contract(reference.seen).note("call scale", WRITES)
        >>> reference.to_plain()
        {'call scale': ['writes to its arguments']}
    """

    allowed: Mapping[str, frozenset[str]] | None = None
    seen: dict[str, set[str]] = field(default_factory=dict)

    def note(self, call: str, what: str) -> None:
        """Record an observation; raises ContractError for one that the contract does not allow."""
        self.seen.setdefault(call, set()).add(what)
        if self.allowed is not None and what not in self.allowed.get(call, ()):
            raise ContractError(f"{call}: {what}, which the reference solution does not; return a new value instead")

    def held(self, when: str, held_bytes: int) -> int | None:
        """Return the most bytes that the solution's process held at that moment, in whole MiB; None while learning.

        Example:
            >>> reference = Contract()
            >>> reference.held("memory before f", 5_000_000)
            >>> reference.to_plain()
            {'memory before f': ['5 MiB']}
            >>> Contract.from_plain(reference.to_plain()).held("memory before f", 90_000_000)
            5242880
        """
        if self.allowed is None:
            self.seen.setdefault(when, set()).add(f"{-(-held_bytes >> 20)} MiB")
            return None
        return max((int(told.removesuffix(" MiB")) << 20 for told in self.allowed.get(when, ())), default=None)

    def to_plain(self) -> dict[str, list[str]]:
        """Return sorted plain data for JSON."""
        return {call: sorted(did) for call, did in sorted(self.seen.items())}

    @classmethod
    def from_plain(cls, plain: Mapping[str, list[str]] | None) -> Contract:
        """Make a contract that allows what ``to_plain`` returned, or, from None, one that learns."""
        return cls(None if plain is None else {call: frozenset(did) for call, did in plain.items()})
