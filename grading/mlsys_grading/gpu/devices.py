"""``GpuDevice``: one GPU, or one MIG instance of one, and the files with which CUDA finds it and no other in a sandbox.

The data come from NVML, through nvidia-ml-py. NVML numbers devices in the order of the PCI bus; CUDA may not, so
devices are named by their UUIDs throughout. Not measured on a GPU: the files follow NVIDIA's MIG user guide, "Device
Nodes and Capabilities", and what others found cuInit to open.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlsys_grading.sandbox.confine import Sandbox
from mlsys_labkit.errors import LabkitError, require

_COMMON_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
# Without these cuInit fails with "operating system" (304).
_COMMON_FOLDERS = (
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
)
_DRIVER = Path("/proc/driver/nvidia/version")
_MIG_MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
_PCI = Path("/sys/bus/pci/devices")
_SLACK_BYTES = 64 << 20  # variation of an idle device's memory use


class DeviceError(LabkitError):
    """An error of the machine, not of the student: a GPU is not available, or not in the required state."""


@dataclass(frozen=True)
class GpuDevice:
    """One GPU, or one MIG instance.

    Attributes:
        uuid: "GPU-..." or "MIG-...", which CUDA_VISIBLE_DEVICES understands as well.
        name: of the model, for people.
        minor: N of /dev/nvidiaN; MIG instances of one GPU share it.
        memory_bytes: all there is on it.
        capabilities: N of each /dev/nvidia-caps/nvidia-capN that opens a MIG instance.
        bus: address on the PCI bus, as in /sys/bus/pci/devices.
    """

    uuid: str
    name: str
    minor: int
    memory_bytes: int
    capabilities: tuple[int, ...] = ()
    bus: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """Device files, for a sandbox to hold."""
        return (*self.own_files, *_COMMON_FILES)

    @property
    def own_files(self) -> tuple[str, ...]:
        """The files without which no process can open the device; MIG instances share their GPU's own file."""
        capabilities = (f"/dev/nvidia-caps/nvidia-cap{number}" for number in self.capabilities)
        return (f"/dev/nvidia{self.minor}", *capabilities)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders under /sys that the driver reads; of the machine's devices, only this one's."""
        place = _PCI / self.bus
        own = (str(place), str(place.resolve())) if self.bus and place.exists() else ()
        return tuple(path for path in (*_COMMON_FOLDERS, *own) if os.path.exists(path))

    def shown_in(self, sandbox: Sandbox) -> Sandbox:
        """Return ``sandbox`` with this device in it, and no other.

        Example:
            >>> device = GpuDevice("GPU-1f", "NVIDIA H100", 3, 80 << 30)
            >>> shown = device.shown_in(Sandbox(readable=()))
            >>> shown.devices[0], shown.environment["CUDA_VISIBLE_DEVICES"]
            ('/dev/nvidia3', 'GPU-1f')
        """
        return replace(
            sandbox,
            devices=self.files,
            readable=(*sandbox.readable, *self.folders),
            environment=sandbox.environment | {"CUDA_VISIBLE_DEVICES": self.uuid},
        )


@dataclass(frozen=True)
class DeviceUsage:
    """The present use of a device: pids of the processes that compute on it, and bytes of its memory in use."""

    processes: tuple[int, ...]
    used_bytes: int

    def left_since(self, idle_bytes: int) -> str:
        """Describe what a lease that found ``idle_bytes`` in use has left on the device; "" if nothing is left.

        Example:
            >>> DeviceUsage((99,), 3 << 30).left_since(1 << 30)
            '2048 MiB, process 99'
        """
        more_bytes = self.used_bytes - idle_bytes
        what = [f"{more_bytes >> 20} MiB"] if more_bytes > _SLACK_BYTES else []
        return ", ".join([*what, *(f"process {pid}" for pid in self.processes)])


def visible_devices(allowed: str | None = None) -> tuple[GpuDevice, ...]:
    """Return the GPUs that this process may use: MIG instances where a GPU is split into them.

    Args:
        allowed: in the form of CUDA_VISIBLE_DEVICES, which it is by default. A scheduler sets this variable.

    Returns:
        None at all on a machine without NVIDIA's driver.

    Raises:
        MissingExtraError: there is a driver and no nvidia-ml-py.
        DeviceError: ``allowed`` has numbers that may mean another device to CUDA than to NVML.
    """
    if not _DRIVER.exists():
        return ()
    with _nvml() as nvml:
        whole = [handle for at in range(nvml.nvmlDeviceGetCount()) if (handle := _may_use(nvml, at)) is not None]
        found = [[_device(nvml, *part) for part in _parts(nvml, handle)] for handle in whole]
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES") if allowed is None else allowed
    if allowed is None:
        return tuple(device for parts in found for device in parts)
    return tuple(_chosen(allowed, found))


def usage(device: GpuDevice) -> DeviceUsage:
    """Return the present use of ``device``. Raises DeviceError when the driver does not answer."""
    with _nvml() as nvml:
        handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid)
        processes = tuple(each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        return DeviceUsage(processes, nvml.nvmlDeviceGetMemoryInfo(handle).used)


@contextmanager
def _nvml() -> Iterator[Any]:
    nvml: Any = require("pynvml", "gpu")
    try:
        nvml.nvmlInit()
        try:
            yield nvml
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise DeviceError(f"NVIDIA's driver does not answer ({error}); run nvidia-smi to see more") from None


def _may_use(nvml: Any, at: int) -> Any:
    """Return a handle, or None for a GPU of the machine that this container or job has not been given."""
    try:
        return nvml.nvmlDeviceGetHandleByIndex(at)
    except nvml.NVMLError_NoPermission:
        return None


def _parts(nvml: Any, handle: Any) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the GPU as a whole, or its MIG instances: a handle, and the capabilities required to open it."""
    try:
        split, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError_NotSupported:
        split = 0
    if not split:
        return [(handle, ())]
    minor, found = nvml.nvmlDeviceGetMinorNumber(handle), []
    for at in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, at)
        except (nvml.NVMLError_NotFound, nvml.NVMLError_NoPermission):
            continue
        instance = f"gpu{minor}/gi{nvml.nvmlDeviceGetGpuInstanceId(part)}"
        names = (f"{instance}/access", f"{instance}/ci{nvml.nvmlDeviceGetComputeInstanceId(part)}/access")
        found.append((part, _minors(*names)))
    return found


def _minors(*names: str) -> tuple[int, ...]:
    lines = (line.split() for line in _MIG_MINORS.read_text().splitlines())
    known = {name: int(minor) for name, minor in lines}
    try:
        return tuple(known[name] for name in names)
    except KeyError as missing:
        raise DeviceError(
            f"{_MIG_MINORS} does not list {missing.args[0]}; run nvidia-smi mig -lgi to see more"
        ) from None


def _device(nvml: Any, handle: Any, capabilities: tuple[int, ...]) -> GpuDevice:
    whole = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if capabilities else handle
    return GpuDevice(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        minor=nvml.nvmlDeviceGetMinorNumber(whole),
        memory_bytes=nvml.nvmlDeviceGetMemoryInfo(handle).total,
        capabilities=capabilities,
        bus=_text(nvml.nvmlDeviceGetPciInfo(whole).busId).lower()[-12:],  # NVML's domain has eight digits, Linux's four
    )


def _chosen(allowed: str, found: list[list[GpuDevice]]) -> Iterator[GpuDevice]:
    """Read the variable as CUDA does: beginnings of UUIDs, or numbers; nothing counts behind one that is no device."""
    every = [device for parts in found for device in parts]
    for entry in (part.strip() for part in allowed.split(",")):
        if entry.isdigit():
            alike = len({device.name.partition(" MIG ")[0] for device in every}) <= 1
            if not alike and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
                raise DeviceError(
                    f"CUDA_VISIBLE_DEVICES={allowed} has numbers, which depend on CUDA_DEVICE_ORDER where GPUs differ; "
                    "name them by UUID (nvidia-smi -L) or set CUDA_DEVICE_ORDER=PCI_BUS_ID"
                )
            chosen = found[int(entry)][:1] if int(entry) < len(found) else []  # CUDA takes one MIG instance of a GPU
        else:
            chosen = [device for device in every if entry and device.uuid.startswith(entry)]
        if not chosen:
            return
        yield from chosen


def _text(told: str | bytes) -> str:
    return told.decode() if isinstance(told, bytes) else told
