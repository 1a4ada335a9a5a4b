"""One rank in a process of its own: torch.distributed as in any program, every call of it passed on to the relay.

Nothing here is a defence. The process holds its own rank's arguments and has one socket: all data of other ranks
came by messages that the relay has counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from mlsys_labkit._base.probes import probe
from mlsys_labkit.memory import MemoryTrace
from mlsys_labkit.ranks.random_state import RandomState
from mlsys_labkit.ranks.recording import torch_private
from mlsys_labkit.ranks.recording.arguments import Arguments, arguments
from mlsys_labkit.ranks.recording.python_group import Handle, performs_calls
from mlsys_labkit.ranks.recording.recorder import RankRecorder, bind, caller

_BACKEND = "labkit_relayed"

Port = Callable[..., Any]
"""``port(operation, *given)`` asks the relay; see ``relay.Port`` for what it answers."""


@probe
def live(
    port: Port, rank: int, world_size: int, function: Callable[..., Any], given: Sequence[Any], memory: bool
) -> tuple[Any, MemoryTrace | None]:
    """Run ``function(*given)`` as ``rank``. Return its value and, with ``memory``, what it held.

    A probe, so that the relay can ask for it by name.
    """
    ours = _Rank(port)
    with ExitStack() as stack:
        stack.callback(RandomState.capture().restore)
        torch_private.register(_BACKEND, _create)
        stack.enter_context(torch_private.many_worlds(_BACKEND, ours.hear_of_group))
        torch_private.forget_groups()
        torch_private.enter_world(torch_private.RankWorld())
        _Rank.current = ours
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(_BACKEND, store=store, rank=rank, world_size=world_size)
        stack.callback(dist.destroy_process_group)
        bind(RankRecorder(rank, world_size))
        stack.callback(bind, None)
        trace = None
        if memory:
            from mlsys_labkit.memory.torch_tracer import TorchTracer

            trace = MemoryTrace()
            with TorchTracer(trace):
                value = function(*given)
        else:
            value = function(*given)
        value = torch_private.arrived(value)
        ours.ask("ends")
    return value, trace


class _Rank:
    """The state of one rank in this process: its port to the relay, and the calls that are not complete."""

    current: _Rank

    def __init__(self, port: Port) -> None:
        self._port = port
        self.open: dict[int, Arguments] = {}
        """Calls that are not complete: what they send may change until it is read."""

    def ask(self, operation: str, *given: Any) -> Any:
        """Call the relay, after sending it the present inputs of the open calls."""
        with torch_private.unseen(), torch.no_grad():
            inputs = [[number, list(call.inputs)] for number, call in self.open.items() if call.inputs]
            return self._port(operation, inputs, *given)

    def hear_of_group(self, name: str, members: tuple[int, ...]) -> None:
        self.ask("hears", name, list(members))


def _create(options: Any, _: Any) -> dist.ProcessGroup:
    return _RelayedGroup(_Rank.current, options)


@performs_calls
class _RelayedGroup(dist.ProcessGroup):
    def __init__(self, rank: _Rank, options: Any) -> None:
        super().__init__(options.group_rank, options.group_size)  # type: ignore[call-arg]
        self.member, self.id = rank, str(options.group_id)
        self.ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        rank.ask("joins", self.id, options.group_rank, list(self.ranks))

    def getBackendName(self) -> str:  # called from C++ by this name
        return "local"

    def perform(self, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> _RelayedWork:
        call = arguments(method, args, kwargs)
        plain = [_plain(each) for each in (*args, *kwargs.values())]
        blocking = caller()[1]
        number, now = self.member.ask("posts", self.id, method, plain, blocking)
        self.member.open[number] = call
        _take(call.outputs, now)
        return _RelayedWork(self, number, call)


class _RelayedWork(Handle):
    """The handle of a relayed call; the data have arrived once it was waited for."""

    def __init__(self, group: _RelayedGroup, number: int, call: Arguments) -> None:
        super().__init__()
        self.group, self.number, self.call = group, number, call
        self._source = -1

    @property
    def done(self) -> bool:
        return self.number not in self.group.member.open

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self.done:
            self._complete(self.group.member.ask("waits", self.number))
        return True

    def is_completed(self) -> bool:
        """Return True if the call is complete; other ranks may run meanwhile."""
        if not self.done and (told := self.group.member.ask("looks", self.number)):
            self._complete(told)
        return self.done

    def result(self) -> list[torch.Tensor]:
        return [*self.call.outputs]

    def _source_rank(self) -> int:
        return self.group.ranks.index(self._source)

    def _complete(self, told: Any) -> None:
        outputs, peers = told
        del self.group.member.open[self.number]
        self._source = peers[0] if peers else -1
        _take(self.call.outputs, outputs)


def _take(mine: Iterable[torch.Tensor], now: Sequence[torch.Tensor] | None) -> None:
    if now is None:
        return
    with torch_private.unseen(), torch.no_grad():
        for tensor, content in zip(mine, now, strict=True):
            tensor.detach().copy_(content)


def _plain(value: Any) -> Any:
    """Return an argument of a group's method as plain data: tensors, numbers and lists of them stay."""
    if hasattr(value, "asyncOp"):
        reduction = getattr(value, "reduceOp", None)
        told = {"asyncOp": value.asyncOp, "rootRank": getattr(value, "rootRank", 0)}
        return ["options", told, None if reduction is None else torch_private.op_name(reduction)]
    if isinstance(value, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
        return ["reduction", torch_private.op_name(value)]
    return ["plain", value if isinstance(value, (torch.Tensor, list, tuple, int)) else None]
