"""Parts of a process group written in Python: one ``perform`` for all of torch's methods, and a handle of its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from mlsys_labkit.ranks.recording import torch_private

_Group = TypeVar("_Group", bound=type[dist.ProcessGroup])


def performs_calls(group: _Group) -> _Group:
    """Send every method of torch to ``group.perform(newest name, args, kwargs)``, and name the group by its ``id``."""
    for method, newest in torch_private.METHODS.items():
        setattr(group, method, _performed(method, newest))
    for name in ("group_name", "pg_name"):
        setattr(group, name, property(lambda self: self.id))
    return group


def _performed(method: str, newest: str) -> Callable[..., Any]:
    def perform(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.perform(newest, args, kwargs)

    perform.__name__ = method
    return perform


class Handle(dist.Work):
    """A handle of a call whose data are there after a wait. Subclasses define the time, the data and the sender."""

    @property
    def done(self) -> bool:
        """True once the data are there."""
        raise NotImplementedError

    def result(self) -> list[torch.Tensor]:
        raise NotImplementedError

    def _source_rank(self) -> int:
        raise NotImplementedError

    def is_success(self) -> bool:
        return self.done

    def exception(self) -> None:
        return None

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Any:
        """Return a completed future: a caller that waits for a future waits in C++, where no other rank can run."""
        self.wait()
        future: Any = torch.futures.Future()
        future.set_result(self.result())
        return future

    def source_rank(self) -> int:
        return self._source_rank()
