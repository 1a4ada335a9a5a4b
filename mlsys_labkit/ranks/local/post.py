"""One rank's part of a communication on the local backend."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit.ranks.recording.arguments import Arguments, Exchange
from mlsys_labkit.ranks.recording.recorder import Call
from mlsys_labkit.ranks.trace.deadlock import Waiting


@dataclass(eq=False)
class Post:
    """One rank's part of a communication."""

    call: Call
    given: Arguments
    exchanges: list[Exchange]
    done: bool = False

    @property
    def ready(self) -> bool:
        """True if it can complete now."""
        raise NotImplementedError

    def complete(self) -> None:
        """Move the data. Call it once, when ready."""
        raise NotImplementedError

    def waiting(self) -> Waiting:
        """Return the communication that this call waits for."""
        raise NotImplementedError

    def _waiting(self, needs: tuple[int, ...], any_of: bool = False) -> Waiting:
        call = self.call
        line = call.waited_on or call.line
        return Waiting(call.name, needs, any_of, call.tag, line, call.line if call.waited_on else None)
