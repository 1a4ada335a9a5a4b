"""Limits of a server, with processes that use real memory and processor time."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlsys_grading.hub import limits as module, watcher as watcher_module
from mlsys_grading.hub.limits import Enforcement, ServerLimits, confine, enforcement, release
from mlsys_grading.hub.watcher import LimitWatcher
from mlsys_grading.processes import birth, kill_tree
from mlsys_grading.sandbox import cgroup
from tests.hub.hub_process import until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a Hub runs on Linux"),
    pytest.mark.xdist_group("hub"),
    pytest.mark.timeout(900),
]
MIB = 1 << 20
# The stand-in for a server starts kernels, each of which executes lines of Python that it reads.
KERNEL = "import sys, time\nfor line in sys.stdin: exec(line); print('done', flush=True)"


class Server:
    """A process with the name of Jupyter's server, and its kernels."""

    def __init__(self, folder: Path, kernels: int) -> None:
        script = folder / "mlsys_grading.hub.singleuser"
        script.write_text(
            textwrap.dedent(f"""
            import subprocess, sys
            def kernel():
                command = [sys.executable, "-c", {KERNEL!r}]
                return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            print("up", flush=True)
            sys.stdin.readline()
            kernels = [kernel() for _ in range({kernels})]
            print(*(each.pid for each in kernels), flush=True)
            for line in sys.stdin:
                at, _, code = line.partition(" ")
                print(code, file=kernels[int(at)].stdin, end="", flush=True)
            """)
        )
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"
        self.pid = self.process.pid

    def begin(self) -> list[int]:
        """Start the server's kernels, once it is confined."""
        self._say("")
        assert self.process.stdout is not None
        self.kernels = [int(pid) for pid in self.process.stdout.readline().split()]
        return self.kernels

    def tell(self, kernel: int, code: str) -> None:
        """Send one line of Python to the process, which runs it."""
        self._say(f"{kernel} {code}")

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)


@contextmanager
def server(folder: Path, kernels: int = 2) -> Iterator[Server]:
    made = Server(folder, kernels)
    try:
        yield made
    finally:
        release(made.pid)
        kill_tree(made.pid)
        made.process.wait()
        for pipe in (made.process.stdin, made.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture(params=["groups", "watcher"])
def kept_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Keep limits by control groups or by the watcher."""
    module._prepared.cache_clear()
    if request.param == "watcher":
        monkeypatch.setattr(module, "enforcement", lambda prepare=False: Enforcement({}, 0, "this test says so"))
        monkeypatch.setattr(watcher_module, "LOOK_SECONDS", 0.05)
    elif not {"memory", "cpu", "pids"} <= set(enforcement().folders):
        pytest.skip(f"no control group is ours to divide: {enforcement()}")
    yield request.param
    module._prepared.cache_clear()


def test_kernel_over_the_limit_is_ended_alone(kept_by: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with server(tmp_path) as mine, server(tmp_path / "other") as others:
        for each in (mine, others):
            confine(each.pid, ServerLimits(memory_bytes=256 * MIB))
            each.begin()
        small, large = mine.kernels
        mine.tell(1, f"held = bytearray({600 * MIB})")
        until("the kernel that holds twice the limit has ended", lambda: birth(large) == 0)
        assert birth(small)
        assert mine.process.poll() is None
        assert others.process.poll() is None
        assert all(map(birth, others.kernels))
        mine.tell(0, f"open({str(tmp_path / 'alive')!r}, 'w')")
        until("the other kernel answers", (tmp_path / "alive").exists)


def test_kernel_within_the_limit_lives(kept_by: str, tmp_path: Path) -> None:
    with server(tmp_path) as mine:
        confine(mine.pid, ServerLimits(memory_bytes=600 * MIB))
        mine.begin()
        mine.tell(0, f"held = bytearray({300 * MIB}); open({str(tmp_path / 'held')!r}, 'w')")
        until("a kernel has 300 MiB of 600", (tmp_path / "held").exists)
        for _ in range(3):
            module._watcher().look()
        assert all(map(birth, mine.kernels))


def test_processes_of_a_kernel_count_and_end_with_it(kept_by: str, tmp_path: Path) -> None:
    """Start workers like those of a data loader, each below the limit and all together above it."""
    with server(tmp_path, 1) as mine:
        confine(mine.pid, ServerLimits(memory_bytes=300 * MIB))
        (kernel,) = mine.begin()
        code = f"import time; held = bytearray({120 * MIB}); time.sleep(600)"
        mine.tell(0, f"import subprocess; s = [subprocess.Popen([sys.executable, '-c', {code!r}]) for _ in range(4)]")
        if kept_by == "watcher":
            until("the kernel whose workers hold too much has ended", lambda: birth(kernel) == 0)
        else:  # the kernel ends a worker and not the notebook's own process; the others fit
            until("a worker has ended", lambda: _resident_bytes(mine.pid) < 300 * MIB and _fewer(kernel, 4))
        assert mine.process.poll() is None


def _fewer(pid: int, count: int) -> bool:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    alive = [child for child in map(int, children.read_text().split()) if birth(child)] if birth(pid) else []
    return len(alive) < count


def _resident_bytes(pid: int) -> int:
    return watcher_module._resident_bytes(watcher_module.watch.tree(pid))


def test_processor_time_is_limited(kept_by: str, tmp_path: Path) -> None:
    """Read the kernel's count of throttled periods, or the affinity that the watcher restores."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core shows no limit")
    with server(tmp_path) as mine:
        confine(mine.pid, ServerLimits(cores=1 if kept_by == "watcher" else 0.1))
        mine.begin()
        for kernel in (0, 1):  # a person's code may set its affinity to all cores
            mine.tell(kernel, "import os; os.sched_setaffinity(0, range(os.cpu_count()))")
            mine.tell(kernel, "while True: pass")
        if kept_by == "watcher":
            for pid in mine.kernels:
                until("one core is left", lambda pid=pid: len(os.sched_getaffinity(pid)) == 1)
        else:
            statistics = enforcement().folders["cpu"] / f"labkit-server-{mine.pid}" / "cpu.stat"
            until(
                "the kernels are throttled", lambda: int(re.findall(r"nr_throttled (\d+)", statistics.read_text())[0])
            )


def test_restarted_hub_confines_a_running_server(kept_by: str, tmp_path: Path) -> None:
    with server(tmp_path) as mine:
        confine(mine.pid, ServerLimits(memory_bytes=256 * MIB, cores=1))
        _, large = mine.begin()
        module._prepared.cache_clear()  # a new process would begin with nothing, too
        module._watcher.cache_clear()
        confine(mine.pid, ServerLimits(memory_bytes=256 * MIB, cores=1))
        mine.tell(1, f"held = bytearray({600 * MIB})")
        until("the kernel above the limit has ended", lambda: birth(large) == 0)
        assert mine.process.poll() is None


def test_release_ends_remaining_processes(tmp_path: Path) -> None:
    module._prepared.cache_clear()
    if "memory" not in enforcement().folders:
        pytest.skip("a watcher has no list of what left the tree; the pid namespace ends that")
    with server(tmp_path, 1) as mine:
        confine(mine.pid, ServerLimits(memory_bytes=256 * MIB))
        mine.begin()
        note = tmp_path / "daemon"
        daemon = "subprocess.Popen(['sleep', '600'], start_new_session=True).pid"
        mine.tell(0, f"import subprocess; print({daemon}, file=open({str(note)!r}, 'w'), flush=True)")
        left = int(until("a daemon", lambda: note.exists() and note.read_text().strip()))
        kill_tree(mine.kernels[0])
        release(mine.pid)
        until("the daemon has ended", lambda: birth(left) == 0)
        assert not any(list(folder.glob(f"labkit-server-{mine.pid}")) for folder in enforcement().folders.values())


def test_confining_an_ended_process_is_no_error(kept_by: str) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    confine(gone.pid, ServerLimits(memory_bytes=MIB, cores=0.5))
    release(gone.pid)
    release(gone.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_fork_bomb_stops_at_the_limit(kept_by: str, tmp_path: Path) -> None:
    nobody = 1_950_000_000 + 2 * os.getpid() + (kept_by == "watcher")  # zombies count for their user id
    code = f"""
        import os, sys
        sys.stdin.readline()
        os.setresuid({nobody}, {nobody}, {nobody})
        made = 0
        try:
            while made < 200:
                if os.fork() == 0:
                    sys.stdin.read()
                    os._exit(0)
                made += 1
        except BlockingIOError:
            pass
        print(made, flush=True)
        sys.stdin.read()
    """
    bomb = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert bomb.stdin is not None
    assert bomb.stdout is not None
    with bomb:
        try:
            confine(bomb.pid, ServerLimits(processes=50))
            print(file=bomb.stdin, flush=True)
            assert 30 <= int(bomb.stdout.readline()) <= 50
        finally:
            kill_tree(bomb.pid)
            release(bomb.pid)
    assert resource.getrlimit(resource.RLIMIT_NPROC)[0] != 50


def test_orphans_beside_the_server_count_as_kernels(tmp_path: Path) -> None:
    """Start an orphan under the first process of a pid namespace, which adopts orphans beside the server."""
    script = tmp_path / "mlsys_grading.hub.singleuser"
    script.write_text("import time\nprint('up', flush=True)\ntime.sleep(600)")
    starter = f"""
        import subprocess, sys, time
        server = subprocess.Popen([sys.executable, {str(script)!r}], stdout=subprocess.PIPE, text=True)
        server.stdout.readline()  # the orphan is the younger one
        orphan = subprocess.Popen([sys.executable, "-c", "held = bytearray({300 * MIB}); import time; time.sleep(600)"])
        print(server.pid, orphan.pid, flush=True)
        time.sleep(600)
    """
    first = subprocess.Popen([sys.executable, "-c", textwrap.dedent(starter)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    with first:
        try:
            main, orphan = map(int, first.stdout.readline().split())
            watcher = LimitWatcher()
            watcher.add(first.pid, memory_bytes=150 * MIB)
            until("the orphan has ended", lambda: birth(orphan) == 0 or not birth(main))
            assert birth(main)
            assert first.poll() is None
            watcher.remove(first.pid)
        finally:
            kill_tree(first.pid)


def test_oom_killer_prefers_kernels_to_their_server(tmp_path: Path) -> None:
    if _score(os.getpid()) >= 1000:
        pytest.skip("this process is already the first that the kernel would end")
    watcher = LimitWatcher()
    with server(tmp_path, 1) as mine:
        (kernel,) = mine.begin()
        watcher.add(mine.pid)
        until("the kernel would be ended first", lambda: _score(kernel) > _score(mine.pid))
        assert _score(mine.pid) == _score(os.getpid())
        watcher.remove(mine.pid)


def _score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_servers_get_different_cores(tmp_path: Path) -> None:
    ours = os.sched_getaffinity(0)
    if len(ours) < 2:
        pytest.skip("there is one core")
    watcher = LimitWatcher()
    (tmp_path / "other").mkdir()
    with server(tmp_path, 1) as one, server(tmp_path / "other", 1) as two:
        for each in (one, two):
            watcher.add(each.pid, cores=1)
        for each in (one, two):
            until("the server is kept on one core", lambda pid=each.pid: len(os.sched_getaffinity(pid)) == 1)
        assert os.sched_getaffinity(one.pid) | os.sched_getaffinity(two.pid) <= ours
        assert os.sched_getaffinity(one.pid) != os.sched_getaffinity(two.pid)
        for each in (one, two):
            watcher.remove(each.pid)


def test_cgroup_v2_files_get_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use plain files with the kernel's names, because not every machine mounts this version."""
    written: dict[str, str] = {}
    leaf = tmp_path / "labkit-server-77"
    leaf.mkdir()
    for name in ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "pids.max", "cgroup.procs"):
        (leaf / name).touch()
    monkeypatch.setattr(
        module, "_prepared", lambda: Enforcement(dict.fromkeys(("memory", "cpu", "pids"), tmp_path), 2, "")
    )
    monkeypatch.setattr(cgroup, "write", lambda path, value: written.__setitem__(path.name, str(value)))
    monkeypatch.setattr(module.watch, "tree", lambda pid: [pid])
    confine(77, ServerLimits(memory_bytes=1 << 30, cores=1.5, processes=300))
    assert written == {
        "memory.max": str(1 << 30),
        "memory.swap.max": "0",
        "memory.oom.group": "0",  # one process is ended, and not the server with it
        "cpu.max": "150000 100000",
        "pids.max": "300",
        "cgroup.procs": "77",
    }


def test_enforcement_is_described() -> None:
    folder = Path("/sys/fs/cgroup/x")
    assert (
        str(Enforcement({"memory": folder, "cpu": folder, "pids": folder}, 2, "")) == "memory, cpu, pids by cgroup v2"
    )
    assert str(Enforcement({"memory": folder}, 1, "no")) == "memory by cgroup v1; cpu, pids by a watcher"
    assert str(Enforcement({}, 0, "no")) == "memory, cpu, pids by a watcher"


def test_a_restarted_hub_that_may_not_set_limits_of_others_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # As for root without CAP_SYS_RESOURCE, under systemd in a container. The limit of the first start holds.
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(resource, "prlimit", refuse)
    watcher = LimitWatcher()
    watcher.add(os.getpid(), processes=100)
    watcher.remove(os.getpid())
