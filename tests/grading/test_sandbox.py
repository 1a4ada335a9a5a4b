"""Tests of what a confined process can and cannot do, made from inside one."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import platform
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.sandbox import syscalls
from mlsys_grading.sandbox.confine import Sandbox, refusal, start
from mlsys_grading.sandbox.limits import SandboxLimits
from mlsys_grading.sandbox.root import readable_paths
from tests.conftest import ROOT

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
]


@pytest.fixture(scope="module", autouse=True)
def _allowed() -> None:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")


def inside(probe: Callable[[], Any], sandbox: Sandbox | None = None) -> Any:
    """Return the result of ``probe`` in a sandbox, or the name of the exception that it raises."""
    read, write = os.pipe()

    def work() -> None:
        try:
            value = probe()
        except BaseException as error:
            value = type(error).__name__
        os.write(write, json.dumps(value).encode())

    keeper = start(sandbox or Sandbox(), work, keep=(write,))
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(keeper, 0)
    return json.loads(text) if text else f"status {os.waitstatus_to_exitcode(status)}"


def test_confined_process_writes_in_its_own_folders() -> None:
    def probe() -> list[Any]:
        for folder in (".", "/tmp", "/dev/shm"):
            Path(folder, "note").write_text("x")
        return [
            os.getcwd(),
            os.getuid(),
            subprocess.run(["echo", "hi"], capture_output=True).returncode,
        ]

    assert inside(probe) == ["/sandbox", 1000, 0]
    assert inside(lambda: Path("note").exists()) is False  # the next one begins with an empty folder


def test_home_folder_is_not_beside_the_notebook() -> None:
    def probe() -> list[str]:
        (Path.home() / ".cache").mkdir()
        return os.listdir()

    assert inside(probe) == []


def test_the_kit_and_the_standard_library_are_there_and_the_checkout_is_not() -> None:
    def probe() -> list[bool]:
        import colorsys  # a module that is not imported yet
        import tomllib  # noqa: F401

        import mlsys_labkit.specs

        kit = Path(mlsys_labkit.specs.__file__).parent / "hardware.toml"
        return [
            hasattr(colorsys, "rgb_to_hsv"),
            kit.exists(),
            (ROOT / "solutions").exists(),
            (ROOT / "grading").exists(),
        ]

    assert (ROOT / "solutions").exists()
    assert inside(probe) == [True, True, False, False]


@pytest.mark.parametrize("path", ["/file", "/usr/file", "/etc/file", "/proc/file", f"{sys.prefix}/file"])
def test_sandbox_writes_only_its_own_folders(path: str) -> None:
    def probe() -> None:
        Path(path).write_text("x")

    assert inside(probe) in ("OSError", "PermissionError", "FileNotFoundError")


def test_files_of_the_machine_are_not_there(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden tests")
    assert inside(lambda: secret.exists()) is False
    assert inside(lambda: os.path.exists("/etc/shadow")) is False


def test_what_is_shown_may_lie_in_a_folder_that_is_the_sandboxes_own() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder, "kit").mkdir()
        Path(folder, "kit", "file").write_text("shown")
        Path(folder, "secret").write_text("hidden")
        shown = Sandbox(readable=(*readable_paths(), f"{folder}/kit"))
        assert inside(lambda: Path(folder, "kit", "file").read_text(), shown) == "shown"
        assert inside(lambda: os.listdir(folder), shown) == ["kit"]
        assert inside(lambda: Path(folder, "kit", "more").write_text("x"), shown) == "OSError"
        assert inside(lambda: os.rename(f"{folder}/kit", "/tmp/elsewhere"), shown) in ("OSError", "PermissionError")


def test_there_is_no_network_but_a_loopback_of_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        socket.create_connection(address, timeout=5).close()
        assert inside(lambda: socket.create_connection(address, timeout=5).close()) == "ConnectionRefusedError"

    def own() -> str:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
        return "connected"

    assert inside(own) == "connected"
    assert inside(lambda: socket.create_connection(("192.0.2.1", 80), timeout=5)) == "OSError"


def test_it_sees_its_own_processes_only_and_may_signal_nobody_else() -> None:
    assert inside(lambda: sorted(int(name) for name in os.listdir("/proc") if name.isdigit())) == [1]
    me = os.getpid()
    assert inside(lambda: os.kill(me, 0)) == "ProcessLookupError"


def test_inherited_descriptors_are_closed() -> None:
    with open(__file__) as file:
        number = file.fileno()
        os.set_inheritable(number, True)
        assert inside(lambda: os.fstat(number).st_size) == "OSError"


def test_it_has_no_capability_and_cannot_become_somebody_else() -> None:
    def capabilities() -> list[str]:
        lines = Path("/proc/self/status").read_text().splitlines()
        return [line.split()[1] for line in lines if line.startswith("Cap")]

    assert set(inside(capabilities)) == {"0000000000000000"}
    assert inside(lambda: os.setuid(0)) in ("PermissionError", "OSError")


_TRIED = {  # calls that work for root outside, or fail there for another reason than EPERM
    "ptrace": (0, 0, 0, 0),
    "unshare": (0x10000000,),
    "mount": (0, 0, 0, 0, 0),
    "bpf": (0, 0, 0),
    "keyctl": (0, 0, 0, 0, 0),
    "io_uring_setup": (1, 0),
    "perf_event_open": (0, 0, 0, 0, 0),
    "process_vm_readv": (1, 0, 0, 0, 0, 0),
    "setns": (0, 0),
    "userfaultfd": (0,),
}


@pytest.mark.skipif(platform.machine() not in syscalls.SUPPORTED, reason="no filter for this machine")
@pytest.mark.parametrize("name", _TRIED)
def test_a_refused_system_call_is_refused(name: str) -> None:
    number = syscalls.REFUSED[name][syscalls.SUPPORTED.index(platform.machine())]

    def probe() -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(value) for value in _TRIED[name]))
        return ctypes.get_errno() if result == -1 else 0

    assert inside(probe) == 1, name  # EPERM


def test_no_new_user_namespace_by_clone_and_no_vsock() -> None:
    def clone() -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
        child = libc.syscall(ctypes.c_long(number), ctypes.c_long(0x10000000 | signal.SIGCHLD), 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        return ctypes.get_errno() if child == -1 else 0

    assert inside(clone) == 1
    assert inside(lambda: socket.socket(40, socket.SOCK_STREAM)) == "PermissionError"  # AF_VSOCK
    assert inside(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) == "PermissionError"


def test_threads_and_children_still_start() -> None:
    def probe() -> int:
        import threading

        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(1))
        thread.start()
        thread.join()
        return len(found) + subprocess.run([sys.executable, "-c", "print()"], capture_output=True).returncode

    assert inside(probe) == 1


def test_sandbox_has_its_own_terminals() -> None:
    def probe() -> list[Any]:
        import pty

        _, terminal = pty.openpty()
        return [os.ttyname(terminal), os.listdir("/dev/pts")]

    assert inside(probe) == ["/dev/pts/0", ["0", "ptmx"]]  # numbered from 0, however many terminals the machine has


def test_memory_scratch_files_and_processes_are_bounded() -> None:
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    room = (int(own.split()[1]) << 10) + (256 << 20)  # a fork starts with its parent's memory
    small = Sandbox(limits=SandboxLimits(memory_bytes=room, scratch_bytes=8 << 20, processes=24, file_bytes=4 << 20))
    assert inside(lambda: len(bytearray(1 << 30)), small) == "MemoryError"

    def fill() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for number in range(8):
            Path(f"/tmp/{number}").write_bytes(bytes(3 << 20))
        return 0

    assert inside(fill, small) == "OSError"

    def storm() -> int:
        children = []
        for _ in range(200):
            pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)
            children.append(pid)
        return len(children)

    assert inside(storm, small) == "BlockingIOError"
    assert inside(lambda: resource.getrlimit(resource.RLIMIT_CORE)) == [0, 0]


def test_whole_tree_dies_with_the_keeper() -> None:
    read, write = os.pipe()

    def work() -> None:
        for _ in range(2):  # a daemon in a session of its own
            if os.fork():
                time.sleep(600)
            os.setsid()
        os.write(write, b"ready")
        time.sleep(600)

    keeper = start(Sandbox(), work, keep=(write,))
    os.close(write)
    assert os.read(read, 5) == b"ready"
    os.kill(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)
    assert select.select([read], [], [], 30)[0]
    assert os.read(read, 1) == b""  # the last holder of the other end is gone
    os.close(read)


def test_keeper_ends_as_the_confined_process_ended() -> None:
    def crash() -> None:
        faulthandler.disable()
        ctypes.string_at(0)

    for work, expected in ((lambda: os._exit(7), 7), (crash, -signal.SIGSEGV)):
        _, status = os.waitpid(start(Sandbox(), work), 0)
        assert os.waitstatus_to_exitcode(status) == expected


def test_refusal_names_the_reason() -> None:
    missing = Sandbox(limits=SandboxLimits(scratch_bytes=-5))
    assert "scratch" in refusal(missing)
