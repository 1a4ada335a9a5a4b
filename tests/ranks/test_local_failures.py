"""Runs of the local backend that fail: deadlocks, errors, endless loops, Ctrl-C, mismatches and bad calls."""

from __future__ import annotations

import _thread
import io
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from mlsys_labkit import ranks
from tests.ranks.run_helpers import line_of, local

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")  # torch 2.13 has new names for old ones

BACKENDS = ["local", pytest.param("gloo", marks=pytest.mark.xdist_group("rank-processes"))]


def test_two_facing_sends_are_a_deadlock() -> None:
    def facing() -> None:
        x = torch.zeros(1)
        dist.send(x, 1 - dist.get_rank())
        dist.recv(x, 1 - dist.get_rank())

    with pytest.raises(ranks.DeadlockError, match="ranks 0 and 1 wait for each other") as caught:
        local(facing, 2)
    place = f"test_local_failures.py:{line_of(facing, 'dist.send')[1]}: dist.send(x, 1 - dist.get_rank())"
    assert str(caught.value).splitlines()[1:] == [
        f"  rank 0 waits for rank 1 to receive ({place})",
        f"  rank 1 waits for rank 0 to receive ({place})",
    ]
    assert caught.value.trace is not None
    assert caught.value.trace.messages(1) == 1


def test_a_rank_that_raises_is_named_and_the_others_unwind(tmp_path: Path) -> None:

    def fails() -> None:
        try:
            if dist.get_rank() == 1:
                raise KeyError("boom")
            try:
                dist.barrier()
            except Exception:  # must not swallow the release
                (tmp_path / "swallowed").touch()
        finally:
            (tmp_path / str(dist.get_rank())).touch()

    with pytest.raises(
        ranks.RankError, match=r"rank 1 raised KeyError: 'boom' \(test_local_failures.py:\d+: raise"
    ) as caught:
        local(fails, 3)
    assert isinstance(caught.value.__cause__, KeyError)
    assert (caught.value.rank, caught.value.line) == (1, line_of(fails, "raise KeyError"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"], "rank 2 had not begun"


def test_sys_exit_and_interrupt_of_a_rank_are_reported() -> None:
    with pytest.raises(ranks.RankError, match=r"rank 0 called sys.exit\(3\)"):
        local(sys.exit, 2, 3)


def test_a_handler_of_signals_is_refused_in_one_line() -> None:
    with pytest.raises(ranks.RankError, match=r"only works in main thread.* take backend='gloo'$") as caught:
        local(lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN), 2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("swallows", [False, True])
def test_endless_loop_is_ended_and_its_line_reported(swallows: bool) -> None:
    def loops() -> None:
        if dist.get_rank() == 1:
            while True:
                try:
                    for _ in range(10**9):
                        pass
                except BaseException:
                    if not swallows or threading.active_count() < 0:
                        raise
                    swallowed.append(1)
                    if len(swallowed) > 3:
                        raise
        dist.barrier()

    swallowed: list[int] = []
    with pytest.raises(ranks.RankError, match=r"rank 1 was still running after 2 s \(test_local_failures.py") as caught:
        local(loops, 2, timeout_seconds=2)
    assert caught.value.rank == 1
    assert _rank_threads() == []


def test_rank_that_cannot_be_interrupted_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlsys_labkit.ranks.local import scheduler

    monkeypatch.setattr(scheduler, "RELEASE_SECONDS", 0.2)
    world = dist.distributed_c10d._world
    with pytest.raises(ranks.RankError, match="rank 0 was still running") as caught:
        local(time.sleep, 1, 3, timeout_seconds=1)
    assert "restart the kernel" in str(caught.value)
    assert local(dist.get_rank, 2).values == [0, 1], "and the next run is none the worse"
    while _rank_threads():
        time.sleep(0.05)
    assert dist.distributed_c10d._world is world, "nor is the notebook when it wakes up"


def test_ctrl_c_ends_all_ranks() -> None:
    timer = threading.Timer(0.3, _thread.interrupt_main)

    def forever() -> None:
        if dist.get_rank() == 0:
            timer.start()  # from here: earlier, it may come before there is a run that could catch it
        while True:
            dist.all_reduce(torch.zeros(1))

    with pytest.raises(KeyboardInterrupt):
        local(forever, 3)
    timer.join()
    assert _rank_threads() == []


def test_ctrl_c_in_a_callback_still_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that is raised in ``__del__`` or in a callback of the collector goes nowhere."""

    class Pressed:
        def __del__(self) -> None:
            _thread.interrupt_main()
            _ = [None for _ in range(100)]

    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            if not self.tell():  # once: what the run still writes at its end would press under the usual handler
                Pressed()
            return super().write(text)

    def chatty() -> None:
        print("on and on")
        while True:
            dist.all_reduce(torch.zeros(1))

    monkeypatch.setattr(sys, "stdout", Screen())
    with pytest.raises(KeyboardInterrupt):
        ranks.run(chatty, 2, "local", timeout_seconds=300)
    assert _rank_threads() == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_python_swallows_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank that waits is unwound while its object is being deleted: what is raised there goes nowhere."""
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    class Endless:
        def __del__(self) -> None:
            while True:
                pass

    class Broken:
        def __del__(self) -> None:
            raise ValueError("the student's own")

    def one_fails() -> None:
        if dist.get_rank() == 1:
            raise RuntimeError("no data")
        broken, endless = Broken(), Endless()
        dist.barrier()
        del broken, endless

    with pytest.raises(ranks.RankError, match="rank 1 raised RuntimeError: no data"):
        local(one_fails, 2)
    assert [one.exc_type for one in told] == [ValueError]
    assert _rank_threads() == []


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("stops", [_thread.interrupt_main, lambda: exec("raise RuntimeError('no more threads')")])
def test_a_run_that_is_stopped_while_it_starts_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, stops: Callable[[], None]
) -> None:
    start = threading.Thread.start

    def stopped(thread: threading.Thread) -> None:
        if thread.name == "rank 1":
            stops()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", stopped)
    with pytest.raises((KeyboardInterrupt, RuntimeError), match=r"^$|no more threads"):
        local(lambda: time.sleep(0.3), 3)
    assert _rank_threads() == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dist.send(torch.zeros(1), dist.get_rank() - 1), "send names rank -1"),
        (lambda: dist.recv(torch.zeros(1), 3), "recv names rank 3"),
        (lambda: dist.broadcast(torch.zeros(1), -1), "broadcast names rank -1"),
        (lambda: dist.reduce(torch.zeros(1), 7), "reduce names rank 7"),
    ],
)
def test_rank_out_of_range_is_refused(backend: Any, call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ranks.RankError, match=f"{said}; there are ranks 0 to 2"):
        ranks.run(call, 3, backend, quiet=True, timeout_seconds=300)


@pytest.mark.parametrize(
    "make",
    [
        lambda rank: dist.new_group([0, 1]) if rank < 2 else dist.new_group([2]),  # on gloo they would wait for ever
        lambda rank: (rank < 2 and dist.new_group([0, 1]), dist.new_group([0, 1, 2])),
    ],
)
def test_ranks_that_make_different_groups_are_a_mismatch(make: Callable[[int], Any]) -> None:
    with pytest.raises(
        ranks.MismatchError, match=r"rank 0 makes a group of ranks \[0, 1\] \(test_local_.*rank 2 makes"
    ):
        local(lambda: make(dist.get_rank()), 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_wait_for_a_received_message_does_nothing(backend: Any) -> None:
    def again() -> float:
        x = torch.ones(1)
        if dist.get_rank() == 0:
            dist.send(x * 5, 1)
        else:
            work = dist.irecv(x, 0)
            work.wait()
            work.wait()
        return float(x)

    assert ranks.run(again, 2, backend, quiet=True, timeout_seconds=300).values == [1.0, 5.0]


def _rank_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("rank ")]


MISMATCHES: dict[str, tuple[Callable[[], Any], str]] = {
    "shape": (
        lambda: dist.all_reduce(torch.zeros(2 + dist.get_rank())),
        r"rank 0 calls all_reduce\(sum\) with \(2,\) of float32 .*rank 1 calls .* with \(3,\) of float32",
    ),
    "dtype": (
        lambda: dist.broadcast(torch.zeros(2, dtype=[torch.float32, torch.int64][dist.get_rank()]), 0),
        r"\(2,\) of float32 .*\(2,\) of int64",
    ),
    "operation": (
        lambda: dist.all_reduce(torch.zeros(1), [dist.ReduceOp.SUM, dist.ReduceOp.MAX][dist.get_rank()]),
        r"all_reduce\(sum\).*all_reduce\(max\)",
    ),
    "root": (lambda: dist.broadcast(torch.zeros(1), dist.get_rank()), "with root 0.*with root 1"),
    "collective": (
        lambda: dist.all_reduce(torch.zeros(1)) if dist.get_rank() else dist.barrier(),
        r"rank 0 calls barrier \(.*rank 1 calls all_reduce\(sum\)",
    ),
    "message size": (
        lambda: dist.send(torch.zeros(3), 1) if dist.get_rank() == 0 else dist.recv(torch.zeros(4), 0),
        r"rank 0 sends \(3,\) of float32 \(.*rank 1 receives \(4,\) of float32",
    ),
    "message dtype": (
        lambda: dist.send(torch.zeros(3), 1) if dist.get_rank() == 0 else dist.recv(torch.zeros(3).double(), 0),
        "of float32 .*of float64",
    ),
    "gathered size": (
        lambda: dist.all_gather([torch.zeros(2), torch.zeros(2 + dist.get_rank())], torch.zeros(2 + dist.get_rank())),
        r"rank 0 calls all_gather with \(2,\) of float32.*rank 1 calls all_gather with \(3,\) of float32",
    ),
    "room for itself": (
        lambda: dist.all_gather([torch.zeros(2), torch.zeros(2)], torch.zeros(3)),
        r"rank 0 calls all_gather with \(2,\) of float32 and \(3,\) of float32.*must fit",
    ),
    "parts": (lambda: dist.all_gather([torch.zeros(2)], torch.zeros(2)), "with 1 tensors.*its group has 2 ranks"),
}


@pytest.mark.parametrize("what", MISMATCHES)
def test_mismatched_messages_are_named_with_both_lines(what: str) -> None:
    fn, pattern = MISMATCHES[what]
    with pytest.raises(ranks.MismatchError, match=pattern) as caught:
        local(fn, 2)
    assert "test_local_failures.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("size", "complaint"),
    [
        (0, "at least 1; got 0"),
        (-2, "got -2"),
        (2.0, "got 2.0"),
        (True, "got True"),
        ("4", "got '4'"),
        (257, "at most 256"),
    ],
)
def test_bad_world_sizes_are_refused(size: Any, complaint: str) -> None:
    with pytest.raises(ranks.RanksError, match=complaint):
        ranks.run(dist.get_rank, size, "local")


@pytest.mark.parametrize("call", [dist.send, dist.recv, lambda x, _: dist.all_to_all_single(x, x)])
def test_local_backend_refuses_what_gloo_refuses(call: Callable[..., Any]) -> None:
    with pytest.raises(ranks.RankError, match="contiguous"):
        local(lambda: call(torch.zeros(4, 2)[:, 1], 1 - dist.get_rank()), 2)


def _generates() -> Iterator[int]:
    yield dist.get_rank()


def test_each_refuses_a_wrong_number_of_items() -> None:
    with pytest.raises(ranks.RanksError, match=r"one item a rank, such as .* got 3"):
        ranks.each(3)  # type: ignore[arg-type]


def test_bad_calls_are_refused_in_one_line() -> None:
    for arguments, complaint in [
        ({"fn": 3, "world_size": 2}, "takes a function"),
        ({"backend": "mpi"}, "no backend 'mpi'"),
        ({"timeout_seconds": 0}, "must be a positive number"),
        ({"timeout_seconds": "5"}, "must be a positive number, got '5'"),
        ({"fn": _generates}, "_generates has yield or async in it"),
        ({"args": ranks.each([1, 2])}, "a tuple of arguments, .* got a Each"),
        ({"args": torch.zeros(2)}, "a tuple of arguments, .* got a Tensor"),
        ({"backend": "gloo", "world_size": 65}, "at most 64; take fewer, up to 256"),
        ({"world_size": 3, "args": (ranks.each([1, 2]),)}, r"each\(\) has 2 items for 3 ranks"),
        ({"args": ((i for i in ()),)}, "cannot be copied for each rank"),
    ]:
        with pytest.raises(ranks.RanksError, match=complaint):
            ranks.run(**{"fn": len, "world_size": 2, "backend": "local", **arguments})  # type: ignore[arg-type]
    with pytest.raises(ranks.RankError, match="called on a rank of another run"):
        local(lambda: ranks.run(dist.get_rank, 2), 2)
    with pytest.raises(ranks.RanksError, match="no rank runs here"):
        ranks.snapshot("x", torch.zeros(1))
