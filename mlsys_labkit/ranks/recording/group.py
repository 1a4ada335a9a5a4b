"""A process group that records every call of torch.distributed, and passes it on.

``dist.all_reduce``, functional collectives, DDP's reducer, FSDP2 and DTensor all call methods of a
``dist.ProcessGroup``; a Python subclass receives all these calls. ``RecordedGroup`` overrides each of them, records,
and calls the C++ method, which uses whatever backend was attached.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from mlsys_labkit.ranks.recording import torch_private
from mlsys_labkit.ranks.recording.arguments import ROOTED, Arguments, arguments
from mlsys_labkit.ranks.recording.input_watch import InputWatch
from mlsys_labkit.ranks.recording.recorder import Call, RankRecorder
from mlsys_labkit.ranks.trace.events import Kind


class RecordedWork(dist.Work):
    """A handle that notifies the recorder of waits."""

    def __init__(self, inner: Any, call: Call, group: RecordedGroup, watch: InputWatch) -> None:
        super().__init__()
        self.inner, self.call, self.group, self.watch = inner, call, group, watch
        self._left = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        recorder = self.group.recorder
        if self._left:  # gloo would wait for the next message
            return self.call.kind != "collective" or bool(self.inner.wait())
        waits = recorder.wait(self.call)
        self.call.changed = self.watch.changed
        done = self.inner.wait() if timeout is None else self.inner.wait(timeout)
        self._finish(waits)
        return bool(done)

    def _finish(self, waits: Call | None) -> None:
        self._left = True
        call, recorder = self.call, self.group.recorder
        if call.name == "recv" and not call.peers:
            call.peers = (call.group[self.inner._source_rank()],)
            recorder.name(call)
        recorder.leave(call, waits)

    def get_future(self) -> Any:
        """Return the future, and record a wait once: DDP's reducer waits for it in C++, where no method is called."""
        future = self.inner.get_future()
        if not self._left and self.call.asynchronous:
            self._left = True
            self.group.recorder.leave(self.call, self.group.recorder.wait(self.call))
        return future


def _passed_on(method: str) -> Callable[..., Any]:
    def call(self: RecordedWork, *args: Any) -> Any:
        return getattr(self.inner, method)(*args)

    return call


for _method in ("is_completed", "is_success", "exception", "synchronize", "source_rank", "_source_rank", "result"):
    setattr(RecordedWork, _method, _passed_on(_method))


class RecordedGroup(dist.ProcessGroup):
    """A process group whose every call is recorded.

    Args:
        recorder: of the rank that this group belongs to; may be exchanged between runs.
        options: what torch hands to ``create`` of a registered backend (``torch_private.register``).
        backend_name: the result of ``group.name()``.
    """

    def __init__(self, recorder: RankRecorder, options: Any, backend_name: str) -> None:
        super().__init__(options.group_rank, options.group_size)  # type: ignore[call-arg]
        self.recorder = recorder
        self.ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        self.id = str(options.group_id)
        self.backend_name = backend_name
        # The C++ methods run on a group of their own: one with a Python class keeps the interpreter's lock in them, and
        # gloo's threads need that lock to release a finished call while its caller waits for them.
        self._plain = dist.ProcessGroup(options.group_rank, options.group_size)  # type: ignore[call-arg]

    def attach(self, device: str, kind: str, backend: Any) -> None:
        """Use ``backend`` (ProcessGroupGloo, ProcessGroupNCCL) for tensors on ``device``."""
        for group in (self, self._plain):
            torch_private.attach(group, device, kind, backend)

    def getBackendName(self) -> str:  # C++ calls this name
        return self.backend_name

    def _enter(self, given: Arguments) -> Call:
        me, size = self.ranks[self.rank()], self.size()
        other = given.root if given.name in ROOTED else given.peer
        if other is not None and not 0 <= other < size:  # gloo would wait without end
            raise ValueError(
                f"{given.name} names rank {other}; there are ranks 0 to {size - 1}, go round with % {size}"
            )
        kind: Kind = "collective"
        peers = tuple(rank for rank in self.ranks if rank != me)
        if given.name in ("send", "recv"):
            kind = "send" if given.name == "send" else "recv"
            peers = () if given.peer is None else (self.ranks[given.peer],)
        call = Call(me, kind, given.name, given.bytes(size), peers, self.ranks, group_name=self.id, tag=given.tag)
        call.operation, call.asynchronous = given.operation, given.asynchronous
        call.root = self.ranks[given.root] if given.name in ROOTED else -1
        if given.tensor is not None:
            call.dtype, call.shape = str(given.tensor.dtype).removeprefix("torch."), tuple(given.tensor.shape)
        return self.recorder.enter(call)


def _recorded(method: str) -> Callable[..., Any]:
    inherited = getattr(dist.ProcessGroup, method)

    def call_and_record(self: RecordedGroup, *args: Any, **kwargs: Any) -> Any:
        given = arguments(torch_private.METHODS[method], args, kwargs)
        call = self._enter(given)
        work = inherited(self._plain, *args, **kwargs)
        if work is None:  # complete already, as on NCCL without async_op
            self.recorder.leave(call)
            return None
        if call.asynchronous and self.recorder.clock:
            call.end_seconds = self.recorder.clock()
        watched = call.asynchronous and call.kind == "collective"
        return RecordedWork(work, call, self, InputWatch(given.inputs if watched else (), contents=False))

    return call_and_record


for _method in torch_private.METHODS:
    setattr(RecordedGroup, _method, _recorded(_method))
