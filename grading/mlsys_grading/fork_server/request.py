"""``ForkRequest``: which function to run in a confined fork, on what, and within which bounds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from mlsys_grading.sandbox.confine import Sandbox
from mlsys_grading.sandbox.limits import SandboxLimits

CLONE = b"clone "
"""In a request's place, before the clone's own arguments: the path of its socket, and more modules to import."""


@dataclass(frozen=True)
class ForkRequest:
    """A request to a fork server.

    Attributes:
        function: "package.module:name" of ``name(job, sockets)``, already imported by the server.
        job: plain data, handed to the function.
        sandbox: what the process may see and use; None runs it unconfined, for machines that allow no sandbox.
        wall_seconds: after that long the whole tree is killed.
        waits: it runs only code of the graders' own until ``Forked.let_begin``; limits and time count from there.
    """

    function: str
    job: dict[str, Any]
    sandbox: Sandbox | None = field(default_factory=Sandbox)
    wall_seconds: float = 600.0
    waits: bool = False

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ForkRequest:
        plain = json.loads(data)
        if plain["sandbox"] is not None:
            bounds = plain["sandbox"] | {"limits": SandboxLimits(**plain["sandbox"]["limits"])}
            lists = {name: tuple(bounds[name]) for name in ("readable", "devices", "cpus")}
            plain["sandbox"] = Sandbox(**bounds | lists)
        return cls(**plain)
