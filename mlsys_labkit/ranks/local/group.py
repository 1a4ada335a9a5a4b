"""The process group of ranks that are threads of one process: it posts each call on their network and waits there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.errors import MismatchError
from mlsys_labkit.ranks.local.network import poison
from mlsys_labkit.ranks.local.post import Post
from mlsys_labkit.ranks.local.scheduler import LocalRank, RankScheduler
from mlsys_labkit.ranks.recording import torch_private
from mlsys_labkit.ranks.recording.arguments import arguments
from mlsys_labkit.ranks.recording.group import RecordedGroup
from mlsys_labkit.ranks.recording.input_watch import InputWatch
from mlsys_labkit.ranks.recording.python_group import Handle, performs_calls
from mlsys_labkit.ranks.recording.recorder import running

# gloo and NCCL ignore the strides of these tensors.
_CONTIGUOUS = frozenset({"send", "recv", "recv_anysource", *torch_private.RENAMED})


@performs_calls
class LocalGroup(RecordedGroup):
    """A process group whose members are threads of this process."""

    def __init__(self, scheduler: RankScheduler, rank: LocalRank, options: Any) -> None:
        super().__init__(rank.recorder, options, "local")
        self.scheduler, self.member = scheduler, rank

    def perform(self, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> LocalWork:
        self._check()
        given = arguments(method, args, kwargs)
        if method in _CONTIGUOUS and not all(tensor.is_contiguous() for tensor in (*given.inputs, *given.outputs)):
            raise ValueError(
                f"{given.name} takes contiguous tensors; call .contiguous(), and copy back what it receives"
            )
        call = self._enter(given)
        with torch_private.unseen(), torch.no_grad():
            try:
                post = self.scheduler.network.post(call, given)
            except MismatchError as error:
                self.scheduler.fail(error)
                raise
            if call.asynchronous and call.kind != "send":
                poison(given, post.exchanges)
            watched = call.asynchronous and call.kind == "collective"
            return LocalWork(self, post, InputWatch(given.inputs if watched else (), contents=True))

    def _check(self) -> None:
        """Raise RanksError on the thread of another rank, which would wait in this rank's place without end."""
        here = running()
        if here is not None and here is not self.recorder:
            raise RanksError(
                f"rank {here.rank} uses a group that rank {self.recorder.rank} of this or an earlier run has made; "
                "a group belongs to one rank and one run, so call dist.new_group on each rank, in the function it runs"
            )
        self.scheduler.check()


class LocalWork(Handle):
    """A handle of a call on the local backend; the data moves when it is waited for."""

    def __init__(self, group: LocalGroup, post: Post, watch: InputWatch) -> None:
        super().__init__()
        self.group, self.post, self.watch = group, post, watch

    @property
    def done(self) -> bool:
        return self.post.done

    def wait(self, timeout: timedelta | None = None) -> bool:
        post, group = self.post, self.group
        group._check()
        if not post.done:
            waits = group.recorder.wait(post.call)
            group.scheduler.wait(group.member, post)
            with torch_private.unseen(), torch.no_grad():
                post.call.changed = self.watch.changed
                post.complete()
            group.recorder.leave(post.call, waits)
        return True

    def is_completed(self) -> bool:
        """Return whether the call is complete. Other ranks may run meanwhile, so that a loop that polls this ends."""
        if not self.post.done:
            self.group._check()
            self.group.scheduler.let_others(self.group.member)
            if self.post.ready:
                self.wait()
        return self.post.done

    def result(self) -> list[torch.Tensor]:
        return [*self.post.given.outputs]

    def _source_rank(self) -> int:
        return self.group.ranks.index(self.post.call.peers[0])
