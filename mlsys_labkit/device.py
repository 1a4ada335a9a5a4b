"""The machine that the notebook runs on, or the one that it simulates.

    device = detect()
    print(device.label)          # "AMD EPYC 9654 96-Core Processor, 4 cores, 15.6 GiB"

``LABKIT_DEVICE=h100-sxm`` gives a virtual device: a datasheet to compute with on any laptop. Whatever is shown for it
says "model, not measured".
"""

from __future__ import annotations

import html
import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mlsys_labkit import specs
from mlsys_labkit._base import limits
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.specs import DeviceSpec

__all__ = ["VIRTUAL_LABEL", "Device", "detect", "virtual"]

VARIABLE = "LABKIT_DEVICE"
VIRTUAL_LABEL = "model, not measured"


@dataclass(frozen=True)
class Device:
    """A processor to run on, or a ``virtual`` one to reason about.

    ``spec`` is None for a device that is not on record: its roofline is then measured, never guessed. ``cores`` are the
    host cores this process may use; memory in bytes, None where unknown.
    """

    name: str
    kind: Literal["cpu", "cuda"]
    spec: DeviceSpec | None = None
    virtual: bool = False
    cores: float = 1.0
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    sms: int | None = None
    l2_bytes: int | None = None
    compute_capability: str | None = None

    @property
    def label(self) -> str:
        """One line for people. A virtual device says that it is one."""
        if self.virtual:
            return f"{self.name} ({VIRTUAL_LABEL})"
        units = f"{self.cores:g} cores" if self.kind == "cpu" else f"{self.sms} SMs" if self.sms else "GPU"
        memory = f", {self.memory_bytes / 2**30:.1f} GiB" if self.memory_bytes else ""
        unknown = "" if self.kind == "cpu" or self.spec else ", no datasheet on record"
        return f"{self.name}, {units}{memory}{unknown}"

    def _repr_html_(self) -> str:
        def binary(size: int | None) -> str:
            return "" if size is None else f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.3g} MiB"

        facts = {
            "host cores we may use": f"{self.cores:g}",
            "memory": binary(self.memory_bytes),
            "free now": binary(self.memory_free_bytes),
            "SMs": str(self.sms or ""),
            "L2 cache" if self.kind == "cuda" else "L2 cache a core": binary(self.l2_bytes),
            "compute capability": self.compute_capability or "",
            "datasheet": self.spec.key if self.spec else "none on record: measured instead, never guessed",
        }
        left = 'style="text-align:left"'
        rows = "".join(
            f'<tr><th scope="row" {left}>{fact}</th><td {left}>{html.escape(value)}</td></tr>'
            for fact, value in facts.items()
            if value
        )
        note = f" ({VIRTUAL_LABEL})" if self.virtual else ""
        return f"<div><p><b>{html.escape(self.name)}</b>{note}</p><table>{rows}</table></div>"


def detect(
    environ: Mapping[str, str] | None = None,
    probes: tuple[Callable[[], Device | None], ...] | None = None,
) -> Device:
    """Return the device this process computes on: the GPU that torch or NVML reports, else the CPU.

    A GPU that the installed torch cannot use does not count, such as beside a torch for CPUs.

    ``LABKIT_DEVICE`` in ``environ`` names a spec and takes precedence over the hardware. ``probes`` replace the search
    for a GPU; the first Device that one of them returns is used.

    Example:
        >>> detect({"LABKIT_DEVICE": "t4"}).label
        'NVIDIA T4 (model, not measured)'

    Raises:
        LabkitError: ``LABKIT_DEVICE`` names no spec; the message lists near matches.
    """
    environ = os.environ if environ is None else environ
    if key := environ.get(VARIABLE, "").strip():
        try:
            return virtual(key)
        except specs.UnknownDeviceError as error:
            raise LabkitError(f"{VARIABLE}={key}: {error}") from None
    for probe in (_loaded_torch_gpu, _nvml_gpu, _torch_gpu) if probes is None else probes:
        if device := probe():
            return device
    return _cpu()


def virtual(key: str | DeviceSpec) -> Device:
    """Make a device from a datasheet (or its key), with this machine's cores to run the model on.

    Example:
        >>> virtual("a10").label
        'NVIDIA A10 (model, not measured)'

    Raises:
        UnknownDeviceError: no such spec.
    """
    spec = specs.get(key) if isinstance(key, str) else key
    return Device(
        name=spec.name,
        kind="cpu" if spec.kind == "cpu" else "cuda",
        spec=spec,
        virtual=True,
        cores=limits.usable_cores(),
        memory_bytes=spec.memory_bytes,
        sms=spec.sms,
        l2_bytes=spec.l2_bytes,
        compute_capability=spec.compute_capability,
    )


def _gpu(name: str, **facts: Any) -> Device:
    key = specs.resolve(name)
    spec = specs.get(key) if key else None
    if spec:
        facts = {"sms": spec.sms, "l2_bytes": spec.l2_bytes, **{k: v for k, v in facts.items() if v is not None}}
    return Device(name=name, kind="cuda", spec=spec, cores=limits.usable_cores(), **facts)


def _loaded_torch_gpu() -> Device | None:
    return _ask_torch(sys.modules["torch"]) if "torch" in sys.modules else None


def _torch_gpu() -> Device | None:
    """Ask torch for a GPU, but only where something hints at one: importing torch takes seconds."""
    hints = ("/dev/nvidia0", "/proc/driver/nvidia", "/dev/kfd", "/dev/dxg")
    if not (shutil.which("nvidia-smi") or any(Path(hint).exists() for hint in hints)):
        return None
    try:
        return _ask_torch(importlib.import_module("torch"))
    except ImportError:
        return None


def _ask_torch(torch: Any) -> Device | None:
    try:
        if not torch.cuda.is_available():
            return None
        index = torch.cuda.current_device()
        properties = torch.cuda.get_device_properties(index)
        free_bytes, total_bytes = torch.cuda.mem_get_info(index)
    except (AttributeError, RuntimeError):  # torch without CUDA, a driver that is too old, a GPU that fell off the bus
        return None
    return _gpu(
        torch.cuda.get_device_name(index),
        memory_bytes=total_bytes,
        memory_free_bytes=free_bytes,
        sms=properties.multi_processor_count,
        l2_bytes=getattr(properties, "L2_cache_size", None),
        compute_capability=f"{properties.major}.{properties.minor}",
    )


def _torch_is_for_cpus() -> bool:
    """Return True if the installed torch was built without CUDA and ROCm; without importing it, which takes seconds."""
    try:
        found = importlib.util.find_spec("torch")
        version = Path(found.origin or "").with_name("version.py") if found else Path()
        built_for = dict(re.findall(r"^(cuda|hip)\b[^=\n]*= *(.+)$", version.read_text(encoding="utf-8"), re.MULTILINE))
    except (OSError, ImportError):
        return False  # no torch, which the GPU of other libraries needs not
    return set(built_for.values()) == {"None"}


def _nvml_gpu() -> Device | None:
    if "torch" in sys.modules or _torch_is_for_cpus():
        return None  # a torch that is loaded has been asked, and has no GPU
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    return _ask_nvml(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _ask_nvml(nvml: Any, visible: str | None) -> Device | None:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None  # no driver: no NVIDIA GPU
    try:
        handle = _first_visible(nvml, visible)
        if handle is None:
            return None
        name = nvml.nvmlDeviceGetName(handle)
        name = name.decode() if isinstance(name, bytes) else name
        if (visible or "").startswith("MIG") or _is_sliced(nvml, handle):
            name += " MIG"  # NVML names the whole GPU; the process gets a slice, which no datasheet describes
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        return _gpu(
            name, memory_bytes=memory.total, memory_free_bytes=memory.free, compute_capability=f"{major}.{minor}"
        )
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _first_visible(nvml: Any, visible: str | None) -> Any:
    """Return the NVML handle of the GPU that CUDA calls device 0; None if there is none.

    NVML itself ignores CUDA_VISIBLE_DEVICES.
    """
    if visible is None:
        return nvml.nvmlDeviceGetHandleByIndex(0) if nvml.nvmlDeviceGetCount() else None
    first = visible.split(",")[0].strip()
    if first.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(first)
    if first.isdigit() and int(first) < nvml.nvmlDeviceGetCount():
        return nvml.nvmlDeviceGetHandleByIndex(int(first))
    return None  # empty or -1: the GPUs are hidden on purpose


def _is_sliced(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False  # a GPU without MIG answers "not supported"


def _cpu() -> Device:
    name = _cpu_name()
    key = specs.resolve(name)
    spec = specs.get(key) if key else None
    return Device(
        name=name,
        kind="cpu",
        spec=spec if spec and spec.kind == "cpu" else None,
        cores=limits.usable_cores(),
        memory_bytes=limits.memory_limit_bytes(),
        memory_free_bytes=limits.memory_free_bytes(),
        l2_bytes=limits.cache_bytes().get("l2"),
    )


def _cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE)
        if match:
            return match[1].strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            pass
    return platform.processor() or platform.machine() or "unknown CPU"
