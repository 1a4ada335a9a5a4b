"""A run with all ranks in this process: one thread per rank, and a scheduler that lets one run at a time."""

from __future__ import annotations

import contextvars
import functools
import gc
import importlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from typing import Any

import torch.distributed as dist

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.errors import RankError
from mlsys_labkit.ranks.local.group import LocalGroup
from mlsys_labkit.ranks.local.interrupts import heard_between_looks
from mlsys_labkit.ranks.local.other_threads import OtherThreads
from mlsys_labkit.ranks.local.output import RankStream
from mlsys_labkit.ranks.local.own_state import Notebook
from mlsys_labkit.ranks.local.scheduler import LocalRank, RankScheduler, Released
from mlsys_labkit.ranks.output_columns import Columns
from mlsys_labkit.ranks.recording import torch_private
from mlsys_labkit.ranks.recording.rank_run import run_rank
from mlsys_labkit.ranks.result import Run
from mlsys_labkit.ranks.student_lines import Frames, Line, at, of_thread, of_traceback, raising
from mlsys_labkit.ranks.trace.findings import make_trace

_BACKEND = "labkit_local"
_LOOK_SECONDS = 0.1  # between looks at what has been printed
_NO_SIGNALS = "; ranks on 'local' are threads, which can have no handlers of signals: take backend='gloo'"

_one_run = threading.Lock()


def run_local(
    fn: Callable[..., Any], arguments: Sequence[Sequence[Any]], timeout_seconds: float, memory: bool, quiet: bool
) -> Run:
    """Run ``fn(*arguments[rank])`` on every rank. Raises RankError, DeadlockError, MismatchError, RanksError."""
    world_size = len(arguments)
    with _one_run, ExitStack() as stack:
        columns = Columns(world_size, quiet=quiet)
        stack.callback(columns.close)
        stack.enter_context(redirect_stdout(RankStream(columns, sys.stdout)))
        stack.enter_context(redirect_stderr(RankStream(columns, sys.stderr)))
        notebook = Notebook(fn, arguments)
        stack.callback(notebook.restore)
        scheduler = RankScheduler(world_size, notebook)
        store = dist.HashStore()  # type: ignore[attr-defined]
        torch_private.register(_BACKEND, _create)
        stack.enter_context(torch_private.many_worlds(_BACKEND, scheduler.hear_of_group))
        stack.enter_context(torch_private.init_finds_group(_join))
        for rank, own in zip(scheduler.ranks, arguments, strict=True):
            live = functools.partial(contextvars.copy_context().run, _live, scheduler, rank, store, own, memory)
            rank.thread = threading.Thread(target=live, name=f"rank {rank.number}", daemon=True)
        if memory:
            importlib.import_module("mlsys_labkit.memory.torch_tracer")  # takes seconds: not the ranks' time
            gc.collect()  # cycles left by earlier code would be freed inside, at a moment of the collector's choice
        ctrl_c = stack.enter_context(heard_between_looks())
        error: BaseException | None = None
        try:
            for rank in scheduler.ranks:
                rank.thread.start()
            scheduler.other_threads = OtherThreads()
            scheduler.ranks[0].turn.release()
            _watch(scheduler, timeout_seconds, columns, ctrl_c)
            error = scheduler.failure
        except BaseException as stopped:  # the time is over, or Ctrl-C
            error = stopped
        if error is not None:
            left = scheduler.release_all()
            _explain(error, scheduler, left)
            raise error
        for rank in scheduler.ranks:
            rank.thread.join()
    records = [rank.record for rank in scheduler.ranks if rank.record]
    if len(records) != world_size:
        missing = next(rank.number for rank in scheduler.ranks if not rank.record)
        raise RanksError(f"rank {missing} ended without a result; restart the kernel, and report this with the program")
    return Run.of(records, columns.outputs, "local", scheduler.other_threads.findings)


def _watch(scheduler: RankScheduler, timeout_seconds: float, columns: Columns, ctrl_c: Callable[[], None]) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not scheduler.over.wait(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic()))):
        ctrl_c()
        columns.refresh()
        if time.monotonic() >= deadline:
            rank = scheduler.holder
            line = _last(of_thread(frame) if (frame := sys._current_frames().get(rank.thread.ident or 0)) else ())
            raise RankError(
                f"rank {rank.number} was still running after {timeout_seconds:g} s{at(line)}; does its loop end?",
                rank.number,
                line,
            )


def _live(scheduler: RankScheduler, rank: LocalRank, store: Any, args: Sequence[Any], memory: bool) -> None:
    try:
        rank.turn.acquire()
        scheduler.check()
        torch_private.forget_groups()  # groups of an abandoned thread with the same number
        scheduler.take(rank)
        _creating.scheduler, _creating.rank, _creating.store = scheduler, rank, store
        _join(dist.init_process_group)
        rank.record = run_rank(rank.recorder, rank.own.fn, args, memory)
    except Released:
        pass
    except BaseException as error:
        line = _last(of_traceback(error))
        if isinstance(error.__context__, RanksError):  # torch failed as it logged that one
            error = error.__context__
        advice = _NO_SIGNALS if isinstance(error, ValueError) and "signal only works in main" in str(error) else ""
        failure = RankError(f"rank {rank.number} {raising(error)}{at(line)}{advice}", rank.number, line)
        failure.__cause__ = error
        with suppress(Released):
            scheduler.fail(failure)
    finally:
        rank.unwound = True
        with suppress(Released):  # an interrupt that came late
            if not scheduler.abandoned:
                torch_private.enter_world(rank.world)
                with suppress(Exception):
                    dist.destroy_process_group()
            scheduler.ended(rank)


_creating = threading.local()


def _join(init: Callable[..., None], again: int = 0) -> None:
    """Make the group of all ranks; ``again`` counts those that the program has destroyed."""
    scheduler, rank = _creating.scheduler, _creating.rank
    store = dist.PrefixStore(str(again), _creating.store)  # type: ignore[attr-defined]
    init(_BACKEND, store=store, rank=rank.number, world_size=len(scheduler.ranks))


def _create(options: Any, _: Any) -> dist.ProcessGroup:
    return LocalGroup(_creating.scheduler, _creating.rank, options)


def _explain(error: BaseException, scheduler: RankScheduler, left: Sequence[LocalRank]) -> None:
    if isinstance(error, RanksError):
        error.trace = make_trace([rank.recorder.events() for rank in scheduler.ranks], "local")
        if left:
            names = ", ".join(f"rank {rank.number}" for rank in left)
            stays = f"{names} could not be interrupted inside a library; restart the kernel to be rid of it"
            error.args = (f"{error}; {stays}",)


def _last(frames: Frames) -> Line | None:
    return frames[-1][:2] if frames else None
