"""Ranks as real processes: what they compute, and what surrounds a run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
import torch
import torch.distributed as dist

from mlsys_labkit import ranks
from mlsys_labkit.ranks.processes import channel as channel_module, pool as pool_module
from mlsys_labkit.ranks.processes.host import import_whole
from mlsys_labkit.ranks.processes.pool import RankPool
from tests.ranks.run_helpers import gloo, still_works, total

pytestmark = pytest.mark.xdist_group("rank-processes")
# A notebook's functions travel by value as well. Ranks do not import pytest.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_four_ranks_compute_what_four_ranks_compute() -> None:
    run = gloo(total, 4, ranks.each([torch.full((3,), float(2**rank)) for rank in range(4)]))
    assert all(torch.equal(value, torch.full((3,), 15.0)) for value in run.values)
    assert [event.bytes for event in run.trace] == [12] * 4
    assert all(0 <= event.start_seconds <= event.end_seconds < 300 for event in run.trace)  # type: ignore[operator]


def test_each_run_has_processes_of_its_own_and_none_is_the_notebook() -> None:
    first, second = gloo(os.getpid).values, gloo(os.getpid).values
    assert len({*first, *second, os.getpid()}) == 5


def test_runs_do_not_share_state() -> None:
    def leaves_things_behind() -> None:
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(1)
        os.environ["LEFT_BEHIND"] = "yes"
        dist.destroy_process_group()

    def looks() -> tuple[Any, ...]:
        return torch.get_default_dtype(), torch.initial_seed(), os.environ.get("LEFT_BEHIND"), dist.get_world_size()

    before = gloo(looks).values
    gloo(leaves_things_behind)
    assert gloo(looks).values == before
    assert before[0][2:] == (None, 2)


def test_ranks_inherit_folder_path_and_environment_of_the_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gloo(os.getcwd)  # ranks that wait now were forked in other surroundings
    (tmp_path / "just_written.py").write_text("answer = 42")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SET_LATER", "now")

    def looks() -> tuple[str, str | None, int]:
        import just_written  # type: ignore[import-not-found]

        return os.getcwd(), os.environ.get("SET_LATER"), just_written.answer

    assert gloo(looks).values == [(str(tmp_path), "now", 42)] * 2


def test_rank_ends_despite_an_open_thread_pool() -> None:
    def computes_aside() -> int:
        from concurrent.futures import ThreadPoolExecutor

        global aside
        aside = ThreadPoolExecutor(1)  # as torch.compile has one
        return int(aside.submit(sum, [1, 2]).result())

    assert gloo(computes_aside).values == [3, 3]


def test_views_of_one_storage_stay_views_and_large_tensors_travel() -> None:
    def check(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        part += 1
        return whole

    whole = torch.zeros(1 << 22)
    run = gloo(check, 2, whole, whole[1:])
    assert [float(value.sum()) for value in run.values] == [whole.numel() - 1] * 2
    assert whole.sum() == 0


def test_output_of_python_and_of_other_programs_is_kept_in_order() -> None:
    def speaks() -> None:
        print("from Python", dist.get_rank())
        os.system("echo from a shell")
        ctypes.CDLL(None).puts(b"from C")
        print("to stderr", file=sys.stderr)

    run = gloo(speaks)
    for rank in range(2):
        assert sorted(run.outputs[rank].splitlines()) == sorted(
            [f"from Python {rank}", "from a shell", "from C", "to stderr"]
        )


def test_output_without_end_is_bounded_and_its_end_is_kept() -> None:
    def talks() -> None:
        for number in range(60_000):
            print("x" * 100, number)
        print("the end")

    (output,) = gloo(talks, 1).outputs
    assert len(output) < 2 << 20
    assert output.endswith("the end\n")


# What surrounds a run. -----------------------------------------------------------------------------------------------


def test_more_ranks_than_memory_holds_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "memory_free_bytes", lambda: 5 * pool_module.RANK_BYTES)
    with pytest.raises(ranks.RanksError, match=r"^6 ranks as processes want .* enough for 5; .*$"):
        gloo(os.getpid, 6)


def test_nccl_is_refused_where_there_are_fewer_gpus_than_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ranks.RanksError, match="2 ranks, 1 GPUs"):
        ranks.run(os.getpid, 2, "nccl")


def test_nccl_is_joined_with_a_gpu_a_rank_and_gloo_beside_it(tmp_path: Path) -> None:
    """With fakes for the GPU and for NCCL: what is asked of them, and that tensors on the CPU still have a group."""
    code = """
import sys
from pathlib import Path
import torch, torch.distributed as dist
from mlsys_labkit.ranks.processes import process_group
from mlsys_labkit.ranks.recording.recorder import RankRecorder

asked = []
torch.cuda.set_device = lambda device: asked.append(("device", device))
process_group._nccl = lambda place, timeout: asked.append(("nccl", place[1:])) or process_group._gloo(place, timeout)
recorder = RankRecorder(0, 1)
process_group.join("nccl", 0, 1, Path(sys.argv[1]), recorder)
x = torch.tensor([2.0])
dist.all_reduce(x)
print(asked, x.item(), [call.name for call in recorder.calls])
print(sorted(str(device) for device in dist.group.WORLD._device_types))
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "store"], capture_output=True, text=True, timeout=600)
    assert done.stdout.splitlines()[:1] == ["[('device', 0), ('nccl', (0, 1))] 2.0 ['all_reduce']"], done.stderr
    assert done.stdout.splitlines()[1] == "['cpu', 'cuda']"


def test_ranks_listen_on_the_loopback_only_in_groups_of_their_own_too() -> None:
    def listens() -> set[str]:
        dist.new_group([0, 1])
        sockets = psutil.Process().net_connections("tcp")
        return {one.laddr.ip for one in sockets if one.status == "LISTEN"}  # type: ignore[union-attr]

    assert gloo(listens).values == [{"127.0.0.1"}] * 2


def test_child_processes_of_a_rank_end_with_it() -> None:
    def starts_a_sleeper() -> None:
        raise ValueError(subprocess.Popen(["sleep", "600"]).pid)

    with pytest.raises(ranks.RankError) as caught:
        gloo(starts_a_sleeper, 2)
    sleepers = [int(str(note)) for note in caught.value.__cause__.args]  # type: ignore[union-attr]
    assert sleepers
    left = []
    for pid in sleepers:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.append(psutil.Process(pid))
    assert not psutil.wait_procs(left, timeout=300)[1]  # which waits for zombies, too


def test_ranks_that_die_while_they_wait_are_replaced() -> None:
    assert still_works()
    waiting = RankPool.current().ranks(2, "gloo")
    rank = psutil.Process(waiting[1].pid)
    rank.kill()
    psutil.wait_procs([rank], timeout=300)
    assert still_works()


def test_a_host_that_is_killed_is_replaced_and_takes_its_ranks_along() -> None:
    assert still_works()
    host = psutil.Process(RankPool.current().ranks(2, "gloo")[0].pid).parent()
    assert host is not None
    assert host.cwd() == "/"  # the folder that it was started in may be deleted
    family = host.children()
    host.kill()
    assert not psutil.wait_procs([host, *family], timeout=300)[1]
    assert still_works()


def test_an_import_that_fails_leaves_no_part_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_a_package").mkdir()
    (tmp_path / "half_a_package/part.py").touch()
    (tmp_path / "half_a_package/__init__.py").write_text("from half_a_package import part\nraise OSError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import_whole("half_a_package")
    assert not [name for name in sys.modules if name.startswith("half_a_package")]
    (tmp_path / "half_a_package/__init__.py").write_text("from half_a_package import part\n")
    import_whole("half_a_package")
    assert sys.modules.pop("half_a_package").part is sys.modules.pop("half_a_package.part")


def test_ranks_whose_folder_was_tidied_away_are_replaced_with_their_host() -> None:
    assert still_works()
    pool = RankPool.current()
    shutil.rmtree(pool._host.meeting.folder)  # type: ignore[union-attr]
    pool.end_ranks()  # the next ones have nothing to write to
    assert still_works()


def test_a_start_that_fails_twice_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = RankPool()
    prepare = pool.prepare

    def prepare_nowhere(world_size: int, backend: str) -> None:
        pool._living_host()
        shutil.rmtree(pool._host.meeting.folder)  # type: ignore[union-attr]
        prepare(world_size, backend)

    monkeypatch.setattr(pool, "prepare", prepare_nowhere)
    try:
        with pytest.raises(ranks.RanksError, match=r"rank \d did not start \(.*\); run it again") as caught:
            pool.ranks(2, "gloo")
        assert any("The first time: rank" in note for note in caught.value.__notes__)
    finally:
        pool.close()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """Mount a file system of 24 MB, which only root can do."""
    place = tempfile.mkdtemp(dir="/tmp")  # a socket's address must be short
    mount = ["mount", "-t", "tmpfs", "-o", "size=24M", "tmpfs", place]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system")
    yield Path(place)
    subprocess.run(["umount", "--lazy", place], check=True)
    os.rmdir(place)


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "full").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_disk_that_fills_up_moves_the_ranks_to_another(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(small_disk))
    pool = RankPool()
    try:
        pool.ranks(2, "gloo")
        folder = pool._host.meeting.folder  # type: ignore[union-attr]
        assert folder.parent == small_disk
        pool.end_ranks()
        for old in folder.glob("1-*"):
            old.unlink()  # their space must not be reused
        fill(small_disk)
        assert all(rank.ready for rank in pool.ranks(2, "gloo"))
        assert pool._host.meeting.folder.parent != small_disk  # type: ignore[union-attr]
    finally:
        pool.close()


def test_a_full_disk_with_no_other_is_named(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "_base", lambda: os.fspath(small_disk))
    pool = RankPool()
    try:
        fill(small_disk)
        with pytest.raises(ranks.RanksError, match=r"did not start \(.*No space left"):
            pool.ranks(2, "gloo")
    finally:
        pool.close()


def test_ranks_start_without_fork_too() -> None:
    pool = RankPool("spawn")
    try:
        waiting = pool.ranks(2, "gloo")
        processes = [psutil.Process(rank.pid) for rank in waiting]
        assert all("worker" in " ".join(process.cmdline()) for process in processes)
        pool.end_ranks()
        assert not psutil.wait_procs(processes, timeout=300)[1]
    finally:
        pool.close()


def test_runs_of_several_threads_take_turns() -> None:
    results: dict[int, Any] = {}

    def one(number: int) -> None:
        results[number] = [int(value) for value in gloo(total, 2, torch.tensor(number)).values]

    threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [2 * number] * 2 for number in range(3)}
