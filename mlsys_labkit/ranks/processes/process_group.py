"""The process group of a rank: the real gloo or NCCL group, inside the recorded one, met through a file."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mlsys_labkit.ranks.processes.log_files import LogFile
from mlsys_labkit.ranks.recording import torch_private
from mlsys_labkit.ranks.recording.group import RecordedGroup
from mlsys_labkit.ranks.recording.recorder import Call, RankRecorder, Reporter

CALL_FIELDS = tuple(Call.__dataclass_fields__)
plain = attrgetter(*CALL_FIELDS)  # a Call as a tuple of plain values
_NEVER = timedelta(days=30)  # the notebook has its own time limit
_LOOPBACK = ("lo", "lo0")


class LoggingReporter(Reporter):
    """A reporter that logs each step of a call before it is taken: the notebook can read it if the rank dies."""

    def __init__(self, path: Path) -> None:
        self._log = LogFile(path)
        self._numbers: dict[int, int] = {}  # of calls that are under way
        self._count = 0

    def entered(self, call: Call) -> None:
        self._numbers[id(call)] = self._count
        self._log.write(("entered", self._count, plain(call)))
        self._count += 1

    def waiting(self, call: Call) -> None:
        if call.asynchronous:  # else it has waited since it entered
            self._log.write(("waiting", self._numbers[id(call)], call.waited_on))

    def left(self, call: Call) -> None:
        number = self._numbers.pop(id(call))
        self._log.write(("left", number, call.peers, call.key, call.end_seconds))


def join(
    backend: str, rank: int, world_size: int, store: Path, recorder: RankRecorder
) -> Callable[[Callable[..., None], int], None]:
    """Make the default group of this process: ``backend`` inside, ``recorder`` around it.

    Return a function that makes it again, by torch's ``init`` and the number of groups before. Raises RuntimeError from
    torch when the others do not come.
    """
    os.environ.update(settings(backend))
    # DDP may hold the last reference to a group. It then frees the group with the interpreter's lock held, gloo waits
    # for its threads, and such a thread may wait for the lock to free a finished call.
    kept: list[Any] = []

    def create(options: Any, _: Any) -> dist.ProcessGroup:
        group = RecordedGroup(recorder, options, backend)
        place = (options.store, options.group_rank, options.group_size)
        gloo = _gloo(place, options.timeout)
        kept.append(gloo)
        group.attach("cpu", "gloo", gloo)
        if backend == "nccl":
            group.attach("cuda", "nccl", _nccl(place, options.timeout))
        return group

    def make(init: Callable[..., None], again: int = 0) -> None:
        meeting = dist.FileStore(f"{store}-{again}", world_size)  # type: ignore[attr-defined]
        init(name, store=meeting, rank=rank, world_size=world_size, timeout=_NEVER)

    if backend == "nccl":
        torch.cuda.set_device(rank)
    name = f"labkit_{backend}"
    torch_private.register(name, create)
    make(dist.init_process_group)
    return make


def settings(backend: str) -> dict[str, str]:
    """Return the environment variables that a rank needs before it makes any group."""
    found: dict[str, str] = {}
    # Without it gloo looks up the machine's own name. Many machines cannot resolve it, and the address may be external.
    interfaces = {name for _, name in socket.if_nameindex()} if hasattr(socket, "if_nameindex") else set()
    if loopback := interfaces.intersection(_LOOPBACK):
        found["GLOO_SOCKET_IFNAME"] = loopback.pop()
    if backend == "nccl":  # otherwise wait() returns at once, and a deadlock shows in no call
        found["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    return found


def _gloo(place: tuple[Any, int, int], timeout: timedelta) -> Any:
    return dist.ProcessGroupGloo(*place, timeout)


def _nccl(place: tuple[Any, int, int], timeout: timedelta) -> Any:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(*place, options)
