"""A worker that dies, kernels that do not end, memory, output, and the protocol."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any

import numpy as np
import pytest

from mlsys_labkit.cuda.errors import CudaError, CudaLaunchError, CudaWorkerError
from mlsys_labkit.cuda.kernel.simulator import decode, process, protocol
from mlsys_labkit.cuda.kernel.simulator.client import Mode, Simulator
from tests.cuda.worker_helpers import gone, interrupted, notebook, pid, wait_until, wait_until_it_spins
from tests.cuda.worker_kernels import Kernels


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("leave", [("i", 3)], r"called exit\(3\)"),
        ("give_up", [], "died of SIGABRT"),
        ("die_of", [("i", signal.SIGKILL)], r"was killed \(SIGKILL\), by the system's out-of-memory killer unless"),
        ("die_of", [("i", signal.SIGTERM)], "died of SIGTERM"),
        ("smash_thread", [], "died of SIG"),
    ],
)
def test_a_worker_that_dies_is_one_line_and_the_next_launch_works(
    worker_kernels: Kernels, name: str, arguments: list[Any], words: str
) -> None:
    kept, view = worker_kernels.array([1, 2, 3])
    assert worker_kernels.add()
    died = pid(worker_kernels)
    with pytest.raises(CudaWorkerError, match=words) as caught:
        worker_kernels.run(name, *arguments)
    assert "\n" not in str(caught.value)
    assert "device arrays keep their content" in str(caught.value)
    assert gone(died)
    worker_kernels.run("add", kept, kept, ("i", 3), block=32)
    assert view.tolist() == [2, 4, 6]


def test_a_worker_that_dies_while_idle_is_replaced_silently(worker_kernels: Kernels) -> None:
    assert worker_kernels.add()
    died = pid(worker_kernels)
    os.kill(died, signal.SIGKILL)
    wait_until(lambda: not worker_kernels.process.alive, "the worker's end")
    assert worker_kernels.add()
    assert pid(worker_kernels) != died


def test_addresses_stored_in_device_memory_outlive_the_worker(worker_kernels: Kernels) -> None:
    place = worker_kernels.simulator.allocate(8)
    target, view = worker_kernels.array([0])
    worker_kernels.run("store_address", place, target)
    with pytest.raises(CudaWorkerError):
        worker_kernels.run("leave", ("i", 0))
    worker_kernels.run("follow_address", place, ("f", 7.5))
    assert view.tolist() == [7.5]


def test_what_the_worker_complained_of_last_is_in_the_message(worker_kernels: Kernels) -> None:
    with pytest.raises(CudaWorkerError, match='called exit\\(1\\) and said "oh dear"'):
        worker_kernels.run("complain_and_leave")


def test_death_is_noticed_where_a_sandbox_refuses_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", refuse)
    simulator = Simulator()
    monkeypatch.setattr(Simulator, "_current", simulator)
    worker_kernels = Kernels(simulator)
    for _ in range(2):
        with pytest.raises(CudaWorkerError, match="SIGKILL"):
            worker_kernels.run("die_of", ("i", signal.SIGKILL))
    assert worker_kernels.add()
    simulator.close()


def test_deaths_leave_no_open_files_behind(worker_kernels: Kernels) -> None:
    def die() -> int:
        with pytest.raises(CudaWorkerError):
            worker_kernels.run("leave", ("i", 1))
        return len(os.listdir("/proc/self/fd"))

    gc.collect()  # earlier deaths, in the tracebacks of their tests
    before, counts = die(), [die() for _ in range(10)]
    assert max(counts) - before < 5, f"less than one a death, since another thread may open one too: {before}, {counts}"


# Endless kernels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["run", "check", "profile"])
@pytest.mark.parametrize("name", ["spin", "spin_without_a_trace", "spin_in_the_library", "spin_at_barriers"])
def test_a_kernel_without_end_is_stopped_at_its_timeout_and_the_worker_lives(
    worker_kernels: Kernels, name: str, mode: Mode
) -> None:
    data, _ = worker_kernels.array(np.zeros(1000))
    arguments = [data] if name == "spin_in_the_library" else []
    assert worker_kernels.add()
    before = pid(worker_kernels)
    result = worker_kernels.run(name, *arguments, grid=8, block=64, mode=mode, timeout_s=0.1)
    finding = np.frombuffer(result.findings, decode.FINDING)[0]
    assert finding["kind"] == 11  # timeout, as records.h counts
    assert finding["pc"] > 0  # where
    assert worker_kernels.add()
    assert pid(worker_kernels) == before


def test_a_worker_that_cannot_be_stopped_is_killed(worker_kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_kernels.add()
    died = pid(worker_kernels)
    os.kill(died, signal.SIGSTOP)  # deaf, as in a system call that never returns
    with pytest.raises(CudaWorkerError, match=r"did not answer for 1\.1 s and was killed"):
        worker_kernels.run("spin", timeout_s=0.1)
    assert gone(died)
    assert worker_kernels.add()


@pytest.mark.parametrize("name", ["spin", "chatter"])
def test_an_interrupt_stops_the_kernel_and_the_worker_lives(
    worker_kernels: Kernels, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_STOP_SECONDS", 20)  # before it is killed: this machine may be busy
    assert worker_kernels.add()
    before = pid(worker_kernels)
    with interrupted(after=0.2), pytest.raises(KeyboardInterrupt) as caught:
        worker_kernels.run(name, grid=16, block=64)
    shown = "\n".join(caught.value._render_traceback_())
    assert "stopped before the kernel had ended" in shown
    assert "process.py" not in shown  # what IPython would show in its place: the kit's frames
    capsys.readouterr()
    assert worker_kernels.add()
    assert pid(worker_kernels) == before


def test_an_interrupt_that_comes_while_the_first_is_dealt_with_leaves_nothing_behind(
    worker_kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted_again(self: process.WorkerProcess) -> bool:
        if self._pending:
            raise KeyboardInterrupt
        return False

    with monkeypatch.context() as patch:
        patch.setattr(process.WorkerProcess, "stop", interrupted_again)
        with interrupted(after=0.1), pytest.raises(KeyboardInterrupt):
            worker_kernels.run("spin")
    assert worker_kernels.add()  # and not the answer to the other request


def test_ctrl_c_in_a_terminal_reaches_the_notebook_alone() -> None:
    """There it is a signal to the whole process group, the worker included."""
    script = """
import os, signal, sys
from mlsys_labkit.cuda.kernel.simulator.client import Simulator
from tests.cuda.worker_kernels import Kernels
kernels = Kernels(Simulator.current())
kernels.add()
before = kernels.process.pid
print(before, flush=True)
try:
    kernels.run("spin", grid=8, block=32)
except KeyboardInterrupt:
    print("interrupted", kernels.add(), kernels.process.pid == before, flush=True)
"""
    with notebook(script, start_new_session=True) as running:
        wait_until_it_spins(int(running.stdout.readline()))
        os.killpg(running.pid, signal.SIGINT)
        assert running.stdout.readline() == "interrupted True True\n"


# Memory -------------------------------------------------------------------------------------------


def test_a_freed_buffer_is_out_of_reach(worker_kernels: Kernels) -> None:
    place = worker_kernels.simulator.allocate(8)
    target, _ = worker_kernels.array(np.zeros(1000))
    worker_kernels.run("store_address", place, target)
    target.free()
    assert len(worker_kernels.run("follow_address", place, ("f", 1)).findings) > 0
    with pytest.raises(CudaError, match="was freed"):
        target.view()
    with pytest.raises(CudaError, match="was freed"):
        target.address  # noqa: B018


def test_a_buffer_without_references_is_freed(worker_kernels: Kernels) -> None:
    first = worker_kernels.simulator.allocate(12345)
    address = first.address
    del first
    assert worker_kernels.simulator.allocate(12345).address == address


def test_launches_with_new_arrays_take_no_more_addresses(worker_kernels: Kernels) -> None:
    addresses = set()
    for _ in range(50):
        x, _ = worker_kernels.array(np.ones(500))
        worker_kernels.run("add", x, x, ("i", 500), block=500)
        addresses.add(x.address)
    assert len(addresses) <= 2


def test_more_than_the_machine_holds_is_out_of_memory(worker_kernels: Kernels) -> None:
    with pytest.raises(CudaError, match="out of memory: tried to allocate 1,000,000,000,000 bytes"):
        worker_kernels.simulator.allocate(10**12)
    assert worker_kernels.add()


def test_many_buffers_reach_the_worker(worker_kernels: Kernels) -> None:
    """More than one request has room to announce, and more than there is room for with the largest guards."""
    buffers = [worker_kernels.array([i]) for i in range(6000)]
    for i in (0, 1, 2999, 5998, 5999):
        worker_kernels.run("add", buffers[i][0], buffers[i][0], ("i", 1))
    assert [buffers[i][1][0] for i in (0, 1, 2, 2999, 5998, 5999)] == [0, 2, 2, 5998, 11996, 11998]


def test_large_arguments_arrive_and_larger_ones_are_refused(worker_kernels: Kernels) -> None:
    total = worker_kernels.simulator.allocate(4)
    view = total.view().view(np.int32)
    view[:] = 0
    worker_kernels.run("read_large", ("s", np.arange(8000, dtype=np.int32).tobytes()), total)
    assert view[0] == 8000 * 7999 // 2
    with pytest.raises(CudaLaunchError, match="a launch has room for 32,764"):
        worker_kernels.run("read_large", ("s", bytes(100_000)), total)
    assert worker_kernels.add()


# Output -------------------------------------------------------------------------------------------


def test_what_a_kernel_prints_arrives_in_order(worker_kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    result = worker_kernels.run("count", ("i", 5000))
    assert result.output == "".join(f"{i}\n" for i in range(5000))
    assert capsys.readouterr().out == result.output
    assert worker_kernels.run("count", ("i", 0)).output == ""


def test_endless_output_is_cut_and_counted(worker_kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    result = worker_kernels.run("chatter", timeout_s=0.3)
    line = "0" * 999 + "7\n"
    kept, _, rest = result.output.partition("\n[the kernel printed ")
    assert kept == (line * 1100)[: 1 << 20]
    assert int(rest.split()[0].replace(",", "")) > 1 << 20
    assert capsys.readouterr().out == result.output


def test_output_shows_while_the_kernel_runs(worker_kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cell:
        def write(self, text: str) -> None:
            if "7" in text:
                os.kill(os.getpid(), signal.SIGINT)  # seen, so the kernel may end

    monkeypatch.setattr(sys, "stdout", Cell())
    with pytest.raises(KeyboardInterrupt):
        worker_kernels.run("chatter", timeout_s=60)


def test_what_was_printed_before_death_is_shown(worker_kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CudaWorkerError):
        worker_kernels.run("say_and_leave")
    assert capsys.readouterr().out == "last words\n"


def test_bytes_that_are_no_text_are_shown_as_such(worker_kernels: Kernels) -> None:
    assert worker_kernels.run("speak_in_bytes").output == "ä�|"


# Protocol -----------------------------------------------------------------------------------------


def test_worker_and_notebook_agree_on_every_size(worker_kernels: Kernels) -> None:
    assert worker_kernels.add()
    sizes = protocol.workers_sizes(worker_kernels.process.control)
    assert sizes == protocol.own_sizes()
    assert 0 not in sizes.values()


@pytest.mark.parametrize("name", ["version", "size_of_control", "size_of_records"])
def test_another_layout_is_an_error_at_start(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    drifted = {**protocol.own_sizes(), name: 12345}
    monkeypatch.setattr(protocol, "own_sizes", lambda: drifted)
    simulator = Simulator()
    with pytest.raises(CudaWorkerError, match=f"lays out {name} in another way; reinstall"):
        _ = simulator.arena_address
