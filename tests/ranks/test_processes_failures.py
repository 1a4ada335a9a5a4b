"""Ranks as processes that fail: every way to end, deadlocks, mismatches, and that nothing is left of them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from mlsys_labkit import ranks
from tests.ranks.run_helpers import gloo, line_of, still_works

pytestmark = pytest.mark.xdist_group("rank-processes")
# A notebook's functions travel by value as well. Ranks do not import pytest.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def raises() -> None:
    if dist.get_rank() == 1:
        raise ValueError("a bad value")
    dist.barrier()


def calls_sys_exit() -> None:
    if dist.get_rank() == 1:
        sys.exit(3)
    dist.barrier()


def calls_os_exit() -> None:
    if dist.get_rank() == 1:
        os._exit(3)
    dist.barrier()


def crashes() -> None:
    if dist.get_rank() == 1:
        ctypes.string_at(0)
    dist.barrier()


def is_killed() -> None:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


@pytest.mark.parametrize(
    ("fn", "says", "at"),
    [
        (raises, "rank 1 raised ValueError: a bad value", "raise ValueError"),
        (calls_sys_exit, "rank 1 called sys.exit(3)", "sys.exit(3)"),
        (calls_os_exit, "rank 1 left its process with exit status 3", "os._exit(3)"),
        (crashes, "rank 1 was ended by SIGSEGV", "string_at(0)"),
        (is_killed, "rank 1 was killed (SIGKILL)", None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_rank_that_fails_is_named_with_its_line_and_the_next_run_works(
    fn: Callable[[], None], says: str, at: str | None
) -> None:
    with pytest.raises(ranks.RankError) as caught:
        gloo(fn)
    error = caught.value
    assert str(error).startswith(says)
    assert error.rank == 1
    assert error.line == (line_of(fn, at) if at else None)
    told = [*getattr(error, "__notes__", ()), *getattr(error.__cause__, "__notes__", ())]
    assert not at or (at in told[0] and "processes" not in told[0].replace(__file__, ""))  # the student's frames only
    assert error.trace is not None
    assert error.trace.collectives(0) == {"barrier": 1}
    assert still_works()


def test_the_cause_is_the_ranks_own_exception() -> None:
    with pytest.raises(ranks.RankError) as caught:
        gloo(raises)
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.__cause__.args == ("a bad value",)


def test_exception_that_cannot_be_pickled_is_reported_in_words() -> None:
    def fails() -> None:
        class Odd(Exception):
            def __init__(self, lock: Any) -> None:
                super().__init__(lock)

        raise Odd(threading.Lock())

    with pytest.raises(ranks.RankError, match="rank 0 raised Odd: <unlocked"):
        gloo(fails, 1)


def spins() -> None:
    if dist.get_rank() == 1:
        while True:
            pass
    dist.barrier()


def sleeps_with_the_gil() -> None:
    if dist.get_rank() == 1:
        ctypes.PyDLL(None).sleep(600)
    dist.barrier()


@pytest.mark.parametrize(("fn", "at"), [(spins, "pass"), (sleeps_with_the_gil, "sleep(600)")])
def test_a_rank_that_hangs_is_found_and_not_the_one_that_waits_for_it(fn: Callable[[], None], at: str) -> None:
    with pytest.raises(ranks.RankError, match=r"rank 1 did not come to an end within 3 s \(nor did rank 0\)") as caught:
        gloo(fn, seconds=3)
    file, number = caught.value.line or ("", 0)
    assert (file, abs(number - line_of(fn, at)[1]) <= 1) == (__file__, True)  # a loop is at one of its two lines
    assert still_works()


def test_values_that_cannot_be_pickled_are_refused_in_one_line() -> None:
    with pytest.raises(
        ranks.RanksError, match=r"^rank 0 is given a _thread.lock, which cannot go .*expected"
    ) as refused:
        gloo(print, 2, torch.ones(2), threading.Lock())
    assert "\n" not in str(refused.value)

    def makes() -> Any:
        return (number for number in range(3))

    with pytest.raises(ranks.RankError, match=r"^rank 0 returned or kept a generator, which cannot go") as refused:
        gloo(makes)
    assert "\n" not in str(refused.value)


# Deadlocks and mismatches. -------------------------------------------------------------------------------------------


def all_receive_first() -> None:
    x, rank, size = torch.ones(3), dist.get_rank(), dist.get_world_size()
    dist.recv(x, (rank - 1) % size)
    dist.send(x, (rank + 1) % size)


def all_send_first() -> None:
    x, rank, size = torch.ones(1 << 20), dist.get_rank(), dist.get_world_size()
    dist.send(x, (rank + 1) % size)
    dist.recv(x, (rank - 1) % size)


def one_misses_the_collective() -> None:
    if dist.get_rank():
        dist.all_reduce(torch.ones(3))


def one_waits_for_a_message_of_another_tag() -> None:
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), 1, tag=1)
    elif dist.get_rank() == 1:
        dist.recv(torch.ones(1), 0, tag=2)


def waits_for_an_irecv() -> None:
    if dist.get_rank() == 0:
        handle = dist.irecv(torch.ones(1), 1)
        assert handle is not None
        handle.wait()


def receives_from_anyone() -> None:
    if dist.get_rank() == 0:
        dist.recv(torch.ones(1))


@pytest.mark.parametrize(
    "fn",
    [
        all_receive_first,
        all_send_first,
        one_misses_the_collective,
        one_waits_for_a_message_of_another_tag,
        waits_for_an_irecv,
        receives_from_anyone,
    ],
)
def test_a_deadlock_is_diagnosed_in_the_same_words_as_on_the_local_backend(fn: Callable[[], None]) -> None:
    texts = []
    for backend in ("local", "gloo"):
        with pytest.raises(ranks.DeadlockError) as caught:
            ranks.run(fn, 3, backend, timeout_seconds=300, quiet=True)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert f"{Path(__file__).name}:" in texts[1]


def test_ranks_that_wait_for_each_other_are_found_while_a_third_still_computes() -> None:
    def pair_and_one() -> None:
        rank = dist.get_rank()
        if rank == 2:
            time.sleep(600)
        dist.recv(torch.ones(1), 1 - rank)

    with pytest.raises(ranks.DeadlockError, match="ranks 0 and 1 wait for each other"):
        gloo(pair_and_one, 3)


def test_slow_rank_is_not_reported_as_a_deadlock() -> None:
    def slow() -> None:
        if dist.get_rank() == 0:
            time.sleep(0.6)  # many quiet looks
        dist.barrier()
        if dist.get_rank() == 0:
            time.sleep(0.6)
            dist.send(torch.ones(1), 1)
        else:
            dist.recv(torch.ones(1))

    gloo(slow)


def sends_another_size() -> None:
    x = torch.ones(3 if dist.get_rank() == 0 else 4)
    (dist.send if dist.get_rank() == 0 else dist.recv)(x, 1 - dist.get_rank())


def sends_another_type() -> None:
    x = torch.ones(4, dtype=torch.float32 if dist.get_rank() == 0 else torch.int32)
    (dist.send if dist.get_rank() == 0 else dist.recv)(x, 1 - dist.get_rank())


def reduces_another_size() -> None:
    dist.all_reduce(torch.ones(3 + dist.get_rank()))


def reduces_otherwise() -> None:
    dist.all_reduce(torch.ones(3), op=dist.ReduceOp.SUM if dist.get_rank() == 0 else dist.ReduceOp.MAX)


def calls_another_collective() -> None:
    if dist.get_rank() == 0:
        dist.broadcast(torch.ones(3), 0)
    else:
        dist.all_reduce(torch.ones(3))


def broadcasts_from_itself() -> None:
    dist.broadcast(torch.ones(4), dist.get_rank())


def gathers_at_itself() -> None:
    dist.gather(torch.ones(4), [torch.ones(4), torch.ones(4)], dst=dist.get_rank())


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (sends_another_size, r"rank 0 sends \(3,\) of float32 .* rank 1 receives \(4,\) of float32"),
        (sends_another_type, r"rank 0 sends \(4,\) of float32 .* rank 1 receives \(4,\) of int32"),
        (reduces_another_size, r"rank 0 calls all_reduce .*\(3,\).* rank 1 calls all_reduce .*\(4,\)"),
        (reduces_otherwise, r"rank 0 calls all_reduce with sum .* rank 1 calls all_reduce with max"),
        (calls_another_collective, "rank 0 calls broadcast .* rank 1 calls all_reduce"),
        (broadcasts_from_itself, "rank 0 calls broadcast with root 0 .* rank 1 calls broadcast with root 1"),
        (gathers_at_itself, "rank 0 calls gather with root 0 .* rank 1 calls gather with root 1"),
    ],
)
def test_ranks_with_different_calls_are_a_mismatch(fn: Callable[[], None], says: str) -> None:
    with pytest.raises(ranks.MismatchError, match=says):
        gloo(fn)
    with pytest.raises(ranks.MismatchError):
        ranks.run(fn, 2, "local", quiet=True)


class CanOnlyLeave(Exception):
    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


def raises_what_cannot_arrive() -> None:
    raise CanOnlyLeave("no", "reason")


def calls_itself() -> None:
    calls_itself()


def is_interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("backend", ["local", "gloo"])
@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (raises_what_cannot_arrive, r"rank 0 raised CanOnlyLeave: no: reason \(test_processes_failures\.py:"),
        (calls_itself, r"rank 0 raised RecursionError: maximum .* \(test_processes_failures\.py:"),
        (is_interrupted, r"rank 0 raised KeyboardInterrupt \(test_processes_failures\.py:"),
    ],
)
def test_errors_of_a_rank_read_the_same_on_both_backends(fn: Callable[[], None], says: str, backend: Any) -> None:
    with pytest.raises(ranks.RankError, match=says) as caught:
        ranks.run(fn, 2, backend, quiet=True)
    notes = [note for error in (caught.value, caught.value.__cause__) for note in getattr(error, "__notes__", [])]
    assert all(note.count("\n") < 20 for note in notes), "a recursion is not told in a thousand lines"


def trains(more_on_rank_1: int, busy_seconds: float = 0.0) -> None:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    for _ in range(2 + more_on_rank_1 * dist.get_rank()):
        model(torch.ones(1, 2)).sum().backward()
    if dist.get_rank() == 0:
        time.sleep(busy_seconds)


def test_timeout_explains_a_wait_inside_cpp() -> None:
    gloo(trains, 2, 0)  # the next ranks start with all modules imported, so that the time below is the wait's
    with pytest.raises(ranks.RankError, match="did not come to an end") as caught:
        gloo(trains, 2, 1, 600.0, seconds=25)
    assert any("By then, rank 1 calls all_reduce, and rank 0 never does" in note for note in caught.value.__notes__)


def test_ddp_on_uneven_batches_is_named() -> None:
    """Wait for gradients in C++, where no call of the rank is seen, for a rank that has ended."""
    for backend in ("local", "gloo"):
        with pytest.raises(ranks.DeadlockError, match="rank 1 waits for rank 0 to call all_reduce"):
            ranks.run(trains, 2, backend, args=(1,), timeout_seconds=300, quiet=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["local", "gloo"])
def test_groups_with_a_backend_of_their_own_are_recorded_and_diagnosed(backend: str) -> None:
    def uses(meets: bool) -> None:
        pair = dist.new_group([0, 1], backend="gloo")
        if dist.get_rank() == 0 or (meets and dist.get_rank() == 1):
            dist.all_reduce(torch.ones(1), group=pair)
        dist.barrier()

    run = ranks.run(uses, 3, backend, args=(True,), quiet=True, timeout_seconds=300)  # type: ignore[arg-type]
    assert [run.trace.collectives(rank)["all_reduce"] for rank in range(3)] == [1, 1, 0]
    with pytest.raises(ranks.DeadlockError, match="rank 0 waits for rank 1 to call all_reduce"):
        ranks.run(uses, 3, backend, args=(False,), quiet=True, timeout_seconds=300)  # type: ignore[arg-type]
