"""The names of the GPU made of host memory (``fake_cuda.py``) against those of cuda.core and the driver."""

from __future__ import annotations

import inspect
import re

import pytest

from mlsys_labkit.cuda.nvidia import nvrtc
from tests.cuda.fake_cuda import CUresult, FakeGpu

pytestmark = pytest.mark.skipif(
    not nvrtc.available(), reason="needs NVIDIA's run-time compiler; run: pip install 'mlsys-labkit[cuda]'"
)


FAKED = [(owner, name) for owner, names in {
    "Device": ("allocate", "set_current", "sync"), "ObjectCode": ("from_cubin", "get_kernel"),
    "Stream": ("from_handle", "record"), "Event": ("sync",), "Buffer": ("close",),
}.items() for name in names]  # fmt: skip


@pytest.mark.parametrize(("owner", "name"), FAKED)
def test_the_fakes_methods_are_cuda_cores(owner: str, name: str) -> None:
    core = pytest.importorskip("cuda.core", reason="needs cuda-core; run: pip install 'mlsys-labkit[gpu]'")
    ours = inspect.signature(getattr(getattr(FakeGpu().core, owner), name)).parameters
    theirs = inspect.signature(getattr(getattr(core, owner), name)).parameters
    kinds = {parameter: ours[parameter].kind for parameter in ours}
    assert list(kinds) == list(theirs)
    assert [kind.name for kind in kinds.values()] == [theirs[name].kind.name for name in theirs]


def test_the_fakes_properties_are_cuda_cores() -> None:
    core = pytest.importorskip("cuda.core", reason="needs cuda-core; run: pip install 'mlsys-labkit[gpu]'")
    assert core.EventOptions(timing_enabled=True).timing_enabled
    for owner, names in {
        "Device": ("name", "arch", "device_id", "default_stream"),
        "Buffer": ("handle",),
        "Event": ("__sub__",),
        "Kernel": ("handle",),
        "Stream": ("handle",),
    }.items():
        assert all(hasattr(getattr(core, owner), name) for name in names)


def test_the_fakes_calls_are_the_drivers() -> None:
    driver = pytest.importorskip(
        "cuda.bindings.driver", reason="needs cuda-bindings; run: pip install 'mlsys-labkit[gpu]'"
    )
    for name, ours in vars(FakeGpu().driver).items():
        if not name.startswith("cu"):
            continue
        theirs = re.match(rf"{name}\((.*?)\)", (getattr(driver, name).__doc__ or "").replace("\n", " "))
        assert theirs, name
        parts = [part.strip() for part in theirs[1].split(",")]
        names = [part.split(":")[0] if ":" in part else part.split()[-1] for part in parts]
        assert names == list(inspect.signature(ours).parameters), name
    real = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert int(real) == FakeGpu().driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert all(int(getattr(driver.CUresult, status.name)) == status for status in CUresult)
