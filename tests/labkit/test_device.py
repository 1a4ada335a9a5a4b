from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlsys_labkit import device as device_room, specs
from mlsys_labkit.device import Device, detect
from mlsys_labkit.errors import LabkitError


def fake_torch(name: str, available: bool = True) -> Any:
    properties = SimpleNamespace(multi_processor_count=80, L2_cache_size=6 * 2**20, major=8, minor=6)
    cuda = SimpleNamespace(
        is_available=lambda: available,
        current_device=lambda: 0,
        get_device_properties=lambda index: properties,
        mem_get_info=lambda index: (20 * 2**30, 24 * 2**30),
        get_device_name=lambda index: name,
    )
    return SimpleNamespace(cuda=cuda)


class FakeNvml:
    """A fake of nvidia-ml-py with two GPUs, the second one split."""

    class NVMLError(Exception):
        pass

    def __init__(self, names: tuple[Any, ...] = ("NVIDIA L4", "NVIDIA A100-SXM4-80GB"), driver: bool = True) -> None:
        self.names, self.driver, self.open = names, driver, 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise self.NVMLError("driver not loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return int(uuid[-1])

    def nvmlDeviceGetName(self, handle: int) -> Any:
        return self.names[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=24 * 2**30, free=23 * 2**30)

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 8, 9

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        if handle == 0:
            raise self.NVMLError("not supported")
        return [1, 1]


def test_a_virtual_device_says_so_and_carries_the_datasheet() -> None:
    device = detect({"LABKIT_DEVICE": "h100-sxm"})
    assert device.virtual
    assert device.spec == specs.get("h100-sxm")
    assert device.label == "NVIDIA H100 SXM5 80 GB (model, not measured)"
    assert (device.kind, device.sms, device.compute_capability) == ("cuda", 132, "9.0")
    assert device.memory_bytes == 80 * 2**30
    assert device.memory_free_bytes is None
    assert detect({"LABKIT_DEVICE": " epyc-9654 "}).kind == "cpu"


@pytest.mark.parametrize("key", specs.keys())
def test_every_spec_makes_a_virtual_device(key: str) -> None:
    assert detect({"LABKIT_DEVICE": key}, probes=()).label.endswith("(model, not measured)")


def test_an_unknown_virtual_device_is_one_line_with_near_matches() -> None:
    with pytest.raises(LabkitError) as caught:
        detect({"LABKIT_DEVICE": "H100"})
    assert str(caught.value) == "LABKIT_DEVICE=H100: no device spec 'H100'; did you mean h100-sxm, h100-pcie?"


def test_the_environment_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_DEVICE", "t4")
    assert detect().name == "NVIDIA T4"
    monkeypatch.setenv("LABKIT_DEVICE", "")
    assert not detect(probes=()).virtual


def test_without_a_gpu_the_cpu_with_its_limits() -> None:
    device = detect({}, probes=(lambda: None,))
    assert device.kind == "cpu"
    assert not device.virtual
    assert device.cores > 0
    assert "cores" in device.label
    assert "datasheet" not in device.label


def test_the_first_probe_that_finds_something_wins() -> None:
    gpu = Device(name="Fake GPU", kind="cuda")
    assert detect({}, probes=(lambda: None, lambda: gpu, lambda: pytest.fail("asked too much"))) is gpu


def test_a_known_gpu_from_torch_gets_its_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch("NVIDIA GeForce RTX 3090"))
    device = detect({})
    assert device.spec == specs.get("rtx3090")
    assert device.memory_free_bytes == 20 * 2**30
    assert device.sms == 80  # the value read from the hardware overrides the table
    assert not device.virtual


@pytest.mark.parametrize(
    "name", ["NVIDIA A10G", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"]
)
def test_an_unknown_gpu_gets_no_spec(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(name))
    device = detect({})
    assert device.name == name
    assert device.spec is None
    assert device.sms == 80
    assert "no datasheet on record" in device.label


def test_torch_without_cuda_is_no_gpu() -> None:
    assert device_room._ask_torch(fake_torch("x", available=False)) is None
    assert device_room._ask_torch(SimpleNamespace()) is None


def test_nvml_reports_the_device_that_cuda_would_use() -> None:
    nvml = FakeNvml()
    device = device_room._ask_nvml(nvml, None)
    assert device is not None
    assert device.spec == specs.get("l4")
    assert (device.sms, device.compute_capability) == (58, "8.9")
    assert nvml.open == 0
    for hidden in ("", "-1", "7"):
        assert device_room._ask_nvml(nvml, hidden) is None
    assert nvml.open == 0


@pytest.mark.parametrize("visible", ["1", "GPU-0000-1", "MIG-0000-1", "1,0"])
def test_nvml_names_the_whole_gpu_but_a_slice_has_no_datasheet(visible: str) -> None:
    device = device_room._ask_nvml(FakeNvml(), visible)
    assert device is not None
    assert device.name == "NVIDIA A100-SXM4-80GB MIG"
    assert device.spec is None


@pytest.mark.parametrize(("cuda", "kind"), [("None", "cpu"), ("'13.0'", "cuda")])
def test_a_gpu_beside_a_torch_for_cpus_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cuda: str, kind: str
) -> None:
    """The installed torch is read and not imported, which takes seconds."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError('imported')")
    (tmp_path / "torch" / "version.py").write_text(f"cuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert detect({}, (device_room._loaded_torch_gpu, device_room._nvml_gpu)).kind == kind


def test_a_loaded_torch_without_a_gpu_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.setitem(sys.modules, "torch", fake_torch("x", available=False))
    monkeypatch.setattr(device_room, "_torch_gpu", lambda: None)
    assert detect({}).kind == "cpu"


def test_nvml_without_driver_or_with_old_bytes_names() -> None:
    assert device_room._ask_nvml(FakeNvml(driver=False), None) is None
    old = device_room._ask_nvml(FakeNvml(names=(b"Tesla T4",)), None)
    assert old is not None
    assert old.spec == specs.get("t4")
    assert device_room._ask_nvml(FakeNvml(names=()), None) is None


def test_torch_is_not_imported_where_nothing_hints_at_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_room.shutil, "which", lambda name: None)
    monkeypatch.setattr(device_room.Path, "exists", lambda self: False)
    monkeypatch.setattr(device_room.importlib, "import_module", lambda name: pytest.fail(f"imported {name}"))
    assert device_room._torch_gpu() is None


def test_the_cpu_name_is_the_kernels(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\n")
    assert device_room._cpu_name(cpuinfo) == "AMD EPYC 9654 96-Core Processor"
    assert device_room._cpu_name(tmp_path / "none")


def test_a_notebook_shows_a_device_as_a_table_in_binary_units_and_says_when_it_is_a_model() -> None:
    here = Device(
        "A <fast> CPU", "cpu", cores=2.5, memory_bytes=16 * 2**30, memory_free_bytes=3 * 2**29, l2_bytes=2**20
    )
    page = here._repr_html_()
    assert "A &lt;fast&gt; CPU" in page
    assert "<fast>" not in page
    for shown in ("2.5", "16.0 GiB", "1.5 GiB", "1 MiB", "never guessed"):
        assert shown in page
    assert "SMs" not in page
    assert "None" not in page
    assert "not measured" not in page
    model = detect({"LABKIT_DEVICE": "t4"})._repr_html_()
    assert "model, not measured" in model
    assert '<td style="text-align:left">40</td>' in model
