"""Settings of the CUDA tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.kernel.backends import module
from mlsys_labkit.cuda.kernel.compilation import Kernels
from mlsys_labkit.cuda.kernel.gcc.flags import Build
from mlsys_labkit.cuda.kernel.simulator.client import Simulator
from tests.cuda import worker_kernels as worker


@pytest.fixture(scope="session", autouse=True)
def _patient_compilers() -> Iterator[None]:
    """Raise the compilers' time limit to what a machine with twenty times its work needs; it has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_CUDA_COMPILE_SECONDS", "900")
        yield


@pytest.fixture(scope="module")
def checked_kernels() -> Iterator[None]:
    """Compile the instrumented build first: kernels that are only checked and profiled need no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "first_build", lambda unit: Build.INSTRUMENTED)
        yield


@pytest.fixture(scope="session")
def engine_kernels() -> Kernels:
    return cuda.compile_all(Path(__file__).with_name("engine.cu"))


@pytest.fixture(scope="session")
def volatile_engine_kernels() -> Kernels:
    return cuda.compile_all(Path(__file__).with_name("engine_volatile.cu"))


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "graded"])
def worker_kernels(request: pytest.FixtureRequest) -> Iterator[worker.Kernels]:
    yield worker.Kernels(Simulator.current(), request.param)
    Simulator.current().close()


@pytest.fixture
def nvrtc_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return one cache for all tests of NVIDIA's compiler, empty at their start: the headers are unpacked once."""
    folder = tmp_path_factory.getbasetemp() / "nvrtc-cache"
    monkeypatch.setenv("LABKIT_CUDA_CACHE", str(folder))
    return folder
