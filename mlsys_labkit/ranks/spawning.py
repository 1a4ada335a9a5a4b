"""The processes that a whole program starts for its ranks: inside a run, each rank is one of them.

A program that starts its ranks itself calls ``torch.multiprocessing.spawn(fn, args, nprocs)``, or starts a ``Process``
a rank in a loop. In a run every rank executes that line: rank r calls ``fn(r, *args)``, and leaves the others alone.
What a program starts once it has its group are other processes.
"""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.managers
import multiprocessing.process
import multiprocessing.queues
import multiprocessing.sharedctypes
import multiprocessing.synchronize
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.multiprocessing as mp

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.local.program import belongs
from mlsys_labkit.ranks.recording import torch_private

_Process = multiprocessing.process.BaseProcess
# What processes share through the one that starts them; in a run there is none.
_SHARED = (
    multiprocessing.connection.Connection,
    multiprocessing.managers.BaseProxy,
    multiprocessing.queues.Queue,
    multiprocessing.queues.SimpleQueue,
    multiprocessing.sharedctypes.SynchronizedBase,
    multiprocessing.synchronize.SemLock,
    multiprocessing.synchronize.Condition,
    multiprocessing.synchronize.Event,
)


@contextmanager
def ranks_are_processes() -> Iterator[None]:
    """Let the functions that start processes for ranks call this rank's function instead; does not nest."""
    if vars(mp)["spawn"] is _spawn:
        yield
        return
    start, join, exit_code = _Process.start, _Process.join, vars(_Process)["exitcode"]
    started = _Started()

    def start_or_be(process: Any) -> None:
        if not _is_next_rank(process, started.count):
            start(process)
            return
        process.is_a_rank = True
        started.count += 1
        if process._args[0] == _rank():
            _refuse_shared(process._args)
            process._target(*process._args, **process._kwargs)

    def join_or_go_on(process: Any, timeout: float | None = None) -> None:
        if not _is_a_rank(process):
            join(process, timeout)
        elif started.count != _size():
            raise _other_number(started.count)

    own_module: Any = sys.modules["torch.multiprocessing.spawn"]  # the name is the function's, too
    with (
        patch.multiple(mp, spawn=_spawn, start_processes=_spawn),
        patch.multiple(own_module, spawn=_spawn, start_processes=_spawn),
        patch.object(_Process, "start", start_or_be),
        patch.object(_Process, "join", join_or_go_on),
        patch.object(_Process, "exitcode", property(lambda one: 0 if _is_a_rank(one) else exit_code.fget(one))),
    ):
        yield


class _Started(threading.local):
    """The number of processes that a rank's program has started for ranks; on local a rank is a thread."""

    count = 0


class _Ended:
    """The answer of ``spawn(join=False)``: its processes have ended."""

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True


def _spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    **_: Any,
) -> _Ended | None:
    """Call ``fn(rank, *args)`` on this rank, as ``torch.multiprocessing.spawn`` does in a process of its own."""
    if nprocs != _size():
        raise _other_number(nprocs)
    _refuse_shared(args)
    fn(_rank(), *args)
    return None if join else _Ended()


def _is_next_rank(process: Any, count: int) -> bool:
    module = sys.modules.get(getattr(process._target, "__module__", None) or "")
    is_numbered = bool(process._args) and type(process._args[0]) is int and process._args[0] == count
    return is_numbered and module is not None and belongs(module) and not torch_private.has_its_group()


def _is_a_rank(process: Any) -> bool:
    return getattr(process, "is_a_rank", False)


def _other_number(count: int) -> RanksError:
    return RanksError(
        f"the program starts {count} processes of its own, and this run has {_size()} ranks; "
        f"run it on {count} ranks (--nproc-per-node {count}), or give the program this number"
    )


def _refuse_shared(args: tuple[Any, ...]) -> None:
    for one in args:
        if isinstance(one, _SHARED) or (isinstance(one, torch.Tensor) and one.is_shared()):  # type: ignore[no-untyped-call]
            raise RanksError(
                f"the program's processes share a {type(one).__name__} with the one that starts them; in a run there "
                "is none, so gather on a rank instead (dist.gather_object), or start the program without torchrun"
            )


def _rank() -> int:
    return int(os.environ["RANK"])


def _size() -> int:
    return int(os.environ["WORLD_SIZE"])
