"""Leases of GPUs, with a stand-in for NVIDIA's library: no GPU takes part in these tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlsys_grading.gpu import devices as devices_module, lease as lease_module
from mlsys_grading.gpu.devices import DeviceError, GpuDevice, usage, visible_devices
from mlsys_grading.gpu.lease import lease
from mlsys_grading.sandbox import kernel
from mlsys_grading.sandbox.confine import Sandbox, refusal
from tests.grading.test_sandbox import inside

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="devices are leased on Linux")


@dataclass
class Gpu:
    """One GPU as NVML describes it; ``parts`` are its MIG instances."""

    uuid: str
    minor: int
    name: str = "NVIDIA H100 80GB HBM3"
    used: int = 500 << 20
    total: int = 80 << 30
    processes: list[int] = field(default_factory=list)
    parts: list[Gpu] = field(default_factory=list)
    instance: tuple[int, int] = (0, 0)
    whole: Gpu | None = None
    refused: bool = False


class Nvml:
    """A stand-in for the functions of nvidia-ml-py that the kit calls."""

    class NVMLError(Exception):
        pass

    class NVMLError_NoPermission(NVMLError):
        pass

    class NVMLError_NotFound(NVMLError):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus = gpus
        self.opened = 0
        for gpu in gpus:
            for part in gpu.parts:
                part.whole = gpu

    def nvmlInit(self) -> None:
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, at: int) -> Gpu:
        if self.gpus[at].refused:
            raise self.NVMLError_NoPermission
        return self.gpus[at]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Gpu:
        for gpu in self.gpus:
            for each in (gpu, *gpu.parts):
                if each.uuid == uuid:
                    return each
        raise self.NVMLError_NotFound("Not Found")

    def nvmlDeviceGetMigMode(self, gpu: Gpu) -> list[int]:
        if not gpu.parts:
            raise self.NVMLError_NotSupported
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Gpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, at: int) -> Gpu:
        if at >= len(gpu.parts):
            raise self.NVMLError_NotFound
        return gpu.parts[at]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part: Gpu) -> Gpu:
        assert part.whole is not None
        return part.whole

    def nvmlDeviceGetMinorNumber(self, gpu: Gpu) -> int:
        assert gpu.whole is None  # the library refuses it for a MIG instance
        return gpu.minor

    def nvmlDeviceGetGpuInstanceId(self, part: Gpu) -> int:
        return part.instance[0]

    def nvmlDeviceGetComputeInstanceId(self, part: Gpu) -> int:
        return part.instance[1]

    def nvmlDeviceGetUUID(self, gpu: Gpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: Gpu) -> bytes:  # bytes in older releases
        return gpu.name.encode()

    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu) -> Any:
        return SimpleNamespace(used=gpu.used, total=gpu.total)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: Gpu) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in gpu.processes]

    def nvmlDeviceGetPciInfo(self, gpu: Gpu) -> Any:
        return SimpleNamespace(busId=f"00000000:{gpu.minor + 0x1A:02X}:00.0")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Nvml]:
    """Install a fake of three GPUs. The second is split in two, and its first instance is /dev/nvidia3's."""
    driver, minors = tmp_path / "version", tmp_path / "mig-minors"
    driver.write_text("NVRM version")
    minors.write_text(
        "config 1\nmonitor 2\ngpu3/gi1/access 12\ngpu3/gi1/ci0/access 13\ngpu3/gi2/access 21\ngpu3/gi2/ci0/access 22\n"
    )
    pci = tmp_path / "pci"
    (tmp_path / "slot").mkdir()
    pci.mkdir()
    (pci / "0000:1a:00.0").symlink_to("../slot")
    monkeypatch.setattr(devices_module, "_DRIVER", driver)
    monkeypatch.setattr(devices_module, "_MIG_MINORS", minors)
    monkeypatch.setattr(devices_module, "_PCI", pci)
    monkeypatch.setattr(lease_module, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(lease_module, "_LOOK_SECONDS", 0.01)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    name = "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    parts = [Gpu("MIG-a", -1, name, instance=(1, 0)), Gpu("MIG-b", -1, name, instance=(2, 0))]
    made = Nvml(Gpu("GPU-10", 0), Gpu("GPU-20", 3, parts=parts), Gpu("GPU-30", 1))
    monkeypatch.setitem(sys.modules, "pynvml", made)
    yield made
    assert made.opened == 0


def test_split_devices_count_by_their_parts_and_each_has_its_own_files(nvml: Nvml) -> None:
    found = visible_devices()
    assert [device.uuid for device in found] == ["GPU-10", "MIG-a", "MIG-b", "GPU-30"]
    caps = [[path for path in device.files if "nvidia-caps" in path or path[-1].isdigit()] for device in found]
    assert caps == [
        ["/dev/nvidia0"],
        ["/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"],
        ["/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"],
        ["/dev/nvidia1"],
    ]
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm"} < set(found[0].files)
    assert not any("cap1" in path.split("/")[-1] and path.endswith(("cap1", "cap2")) for path in found[1].files)
    assert found[0].name == "NVIDIA H100 80GB HBM3"
    slots = [path for path in found[0].folders if not path.startswith("/sys")]
    assert [Path(path).name for path in slots] == ["0000:1a:00.0", "slot"]


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ("0", ["GPU-10"]),
        ("2,0", ["GPU-30", "GPU-10"]),
        ("1", ["MIG-a"]),  # a number selects the first instance
        ("GPU-3", ["GPU-30"]),
        ("MIG-b,GPU-10", ["MIG-b", "GPU-10"]),
        ("0,7,2", ["GPU-10"]),  # CUDA ignores the list after an invalid device
        ("-1", []),
        ("", []),
    ],
)
def test_the_schedulers_choice_is_kept(nvml: Nvml, allowed: str, expected: list[str]) -> None:
    assert [device.uuid for device in visible_devices(allowed)] == expected


def test_numbers_are_refused_where_they_may_mean_two_devices(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.gpus[2].name = "NVIDIA L4"
    with pytest.raises(DeviceError, match="PCI_BUS_ID"):
        visible_devices("2")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert [device.uuid for device in visible_devices("2")] == ["GPU-30"]


def test_what_the_container_was_not_given_is_left_out(nvml: Nvml) -> None:
    nvml.gpus[0].refused = True
    assert [device.uuid for device in visible_devices()] == ["MIG-a", "MIG-b", "GPU-30"]


def test_without_a_driver_there_is_no_device(nvml: Nvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices_module, "_DRIVER", tmp_path / "none")
    assert visible_devices() == ()
    with pytest.raises(DeviceError, match="no GPU"), lease(visible_devices(), folder=tmp_path):
        pass


def test_a_driver_that_fails_is_the_machines_trouble(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(gpu: Gpu) -> None:
        raise nvml.NVMLError("GPU is lost")

    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", lost)
    with pytest.raises(DeviceError, match="GPU is lost"):
        usage(GpuDevice("GPU-10", "", 0, 0))


def test_each_lease_is_of_another_device_until_none_is_left(nvml: Nvml, tmp_path: Path) -> None:
    found = visible_devices()
    with ExitStack() as stack:
        leased = [stack.enter_context(lease(found, folder=tmp_path)).uuid for _ in found]
        assert sorted(leased) == sorted(device.uuid for device in found)
        with pytest.raises(DeviceError, match="none of 4"), lease(found, 0.05, tmp_path):
            pass
    with lease(found, folder=tmp_path) as device:
        assert device == found[0]


def test_a_lease_ends_with_its_process_however_that_ends(nvml: Nvml, tmp_path: Path) -> None:
    """A separate interpreter with the lock alone, because flock(2) is what holds a device."""
    found = visible_devices("0")
    path = tmp_path / "GPU-10.lease"
    holds = f"""
        import fcntl, sys, time
        file = open({str(path)!r}, "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        print("held", flush=True)
        time.sleep(600)
    """
    holder = subprocess.Popen([sys.executable, "-c", textwrap.dedent(holds)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DeviceError, match="none of 1"), lease(found, 0.05, tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
    with lease(found, 5, tmp_path) as device:
        assert device.uuid == "GPU-10"


def test_a_device_that_somebody_computes_on_is_passed_over(nvml: Nvml, tmp_path: Path) -> None:
    nvml.gpus[0].processes = [4711]
    with lease(visible_devices("0,2"), folder=tmp_path) as device:
        assert device.uuid == "GPU-30"


@pytest.mark.parametrize(
    ("left", "told"),
    [({"used": 3 << 30}, "2572 MiB"), ({"processes": [99]}, "process 99")],  # 3 GiB less the 500 MiB used before
    ids=["memory", "process"],
)
def test_what_is_left_on_a_device_takes_it_out_of_service_until_it_is_gone(
    nvml: Nvml, tmp_path: Path, left: dict[str, Any], told: str
) -> None:
    found, gpu = visible_devices("0,2"), nvml.gpus[0]
    idle = {name: getattr(gpu, name) for name in left}
    with pytest.raises(DeviceError, match=f"GPU-10 .*{told}"), lease(found, folder=tmp_path):
        vars(gpu).update(left)
    with lease(found, folder=tmp_path) as device:
        assert device.uuid == "GPU-30"
    with pytest.raises(DeviceError, match="out of service"), lease(found[:1], folder=tmp_path):
        pass
    vars(gpu).update(idle)
    for _ in range(2):
        with lease(found, folder=tmp_path) as device:
            assert device.uuid == "GPU-10"


def test_what_the_driver_frees_late_is_waited_for(nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, looks = nvml.gpus[0], iter([9 << 30, 9 << 30])

    def slowly(handle: Gpu) -> Any:
        return SimpleNamespace(used=next(looks, 500 << 20), total=handle.total)

    with lease(visible_devices("0"), folder=tmp_path):
        monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", slowly)
    assert next(looks, None) is None
    assert gpu.used == 500 << 20


def test_an_error_in_the_block_is_not_hidden_by_what_is_left(nvml: Nvml, tmp_path: Path) -> None:
    def fail() -> None:
        nvml.gpus[0].used = 9 << 30
        raise KeyError

    with pytest.raises(KeyError), lease(visible_devices("0"), folder=tmp_path):
        fail()
    with pytest.raises(DeviceError, match="out of service"), lease(visible_devices("0"), folder=tmp_path):
        pass


def test_what_a_killed_grader_left_is_found_by_the_next(nvml: Nvml, tmp_path: Path) -> None:
    found = visible_devices("0")
    child = os.fork()
    if child == 0:
        with lease(found, folder=tmp_path):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    nvml.gpus[0].used = 9 << 30
    with pytest.raises(DeviceError, match=f"killed grader .*{child}"), lease(found, folder=tmp_path):
        pass
    nvml.gpus[0].used = 500 << 20
    with lease(found, folder=tmp_path) as device:
        assert device.uuid == "GPU-10"


def test_a_folder_of_somebody_else_is_not_trusted(nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    monkeypatch.setattr(lease_module, "_FOLDER", f"{tmp_path}/link")
    with pytest.raises(DeviceError, match="not a folder of ours"), lease(visible_devices()):
        pass
    monkeypatch.setattr(lease_module, "_FOLDER", f"{tmp_path}/new")
    with lease(visible_devices()):
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.xdist_group("sandbox")
def test_a_sandbox_holds_the_leased_device_alone(nvml: Nvml, tmp_path: Path) -> None:
    """On a /dev with files, not devices, by NVIDIA's names."""
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    if os.geteuid():
        pytest.skip("only root can put a stand-in in the place of /dev")
    device = visible_devices("MIG-b")[0]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _replace_devices(tmp_path / "dev")
            sandbox = device.shown_in(Sandbox(environment={"KEPT": "1"}))
            told = inside(_nvidia_files, sandbox)
            os.write(write, repr(told).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        found, variables = eval(pipe.read())
    assert found == [
        "/dev/nvidia-caps/nvidia-cap21",
        "/dev/nvidia-caps/nvidia-cap22",
        "/dev/nvidia-uvm",
        "/dev/nvidia3",
        "/dev/nvidiactl",
    ]
    assert variables == {"CUDA_VISIBLE_DEVICES": "MIG-b", "KEPT": "1"}


@pytest.mark.xdist_group("sandbox")
def test_of_the_machines_devices_the_driver_finds_the_leased_one_alone() -> None:
    """Another kind of device on the same bus stands for the GPU."""
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    bus = sorted(os.listdir("/sys/bus/pci/devices")) if os.path.isdir("/sys/bus/pci/devices") else []
    if len(bus) < 2:
        pytest.skip("this machine has fewer than two devices on a PCI bus")

    def seen() -> list[Any]:
        place = Path("/sys/bus/pci/devices", bus[0])
        return [os.listdir(place.parent), place.joinpath("vendor").read_text(), os.access(place / "rescan", os.W_OK)]

    expected = Path("/sys/bus/pci/devices", bus[0], "vendor").read_text()
    assert inside(seen, GpuDevice("GPU-1", "", 0, 0, bus=bus[0]).shown_in(Sandbox())) == [[bus[0]], expected, False]


def _nvidia_files() -> list[Any]:
    found = sorted(str(path) for path in Path("/dev").rglob("nvidia*") if path.is_file())
    return [found, {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "KEPT")}]


def _replace_devices(folder: Path) -> None:
    """Mount a /dev for this process alone."""
    kernel.unshare(kernel.NEW_MOUNT)
    kernel.mount("", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    (folder / "nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidia3", "nvidiactl", "nvidia-uvm"):
        (folder / name).touch()
    for number in (1, 2, 12, 13, 21, 22):
        (folder / "nvidia-caps" / f"nvidia-cap{number}").touch()
    for name in ("null", "zero", "full", "random", "urandom"):
        (folder / name).touch()
        kernel.mount(f"/dev/{name}", str(folder / name), flags=kernel.BIND)
    kernel.mount(str(folder), "/dev", flags=kernel.BIND | kernel.RECURSIVE)
