"""The GPU backend on the real cuda-core and cuda-bindings, over a driver in host memory (``stand_in_driver.py``)."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.errors import CudaArgumentError, CudaCompileError, CudaError, CudaKernelError, CudaLaunchError
from mlsys_labkit.cuda.kernel.backends import gpu as gpu_backend
from mlsys_labkit.cuda.kernel.compilation import compile_all
from mlsys_labkit.cuda.kernel.kernel import Kernel
from mlsys_labkit.cuda.nvidia import device, nvrtc
from mlsys_labkit.cuda.nvidia.driver import Gpu
from mlsys_labkit.cuda.source.source import Source
from tests.cuda.gpu_kernels import KERNELS, SOURCE
from tests.cuda.stand_in_driver import REASON, CUresult, DriverInMemory, Launched

pytestmark = pytest.mark.skipif(
    not nvrtc.available(), reason="needs NVIDIA's run-time compiler; run: pip install 'mlsys-labkit[cuda]'"
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverInMemory]:
    if REASON:
        pytest.skip(REASON)
    made = DriverInMemory(dict(KERNELS))
    standing_in = Gpu(0)
    monkeypatch.setattr(device, "the_gpu", lambda: standing_in)
    monkeypatch.setattr(device, "why_no_gpu", lambda: "")
    monkeypatch.setattr(gpu_backend, "the_gpu", lambda: standing_in)
    monkeypatch.setattr(gpu_backend, "gpu_of_torch", lambda: standing_in)
    monkeypatch.setattr("mlsys_labkit.cuda.kernel.compilation.the_gpu", lambda: standing_in)
    monkeypatch.setattr("mlsys_labkit.cuda.kernel.compilation.why_no_gpu", lambda: "")
    yield made
    assert not made.live, "device memory that a launch made is given back, however it ended"


@pytest.fixture
def kernel(fake: DriverInMemory) -> Kernel:
    return cuda.compile(SOURCE, "scale")


def whole(count: int) -> np.ndarray:
    return np.array((0, count), dtype=[("begin", "i4"), ("end", "i4")])[()]


# --- Launches -----------------------------------------------------------------------------------------------------


def test_auto_takes_a_gpu_that_works(kernel: Kernel) -> None:
    assert kernel.backend == "gpu"
    assert repr(kernel) == "<kernel scale on the GPU>"


def test_numpy_goes_in_and_comes_out(fake: DriverInMemory, kernel: Kernel) -> None:
    source, out = np.arange(100, dtype=np.float32), np.full(100, -1, np.float32)
    kernel[4, 32](out, source, 3, np.array((10, 90), dtype=[("begin", "i4"), ("end", "i4")])[()])
    expected = np.where((np.arange(100) >= 10) & (np.arange(100) < 90), 3 * source, -1)
    np.testing.assert_array_equal(out, expected)
    (launched,) = fake.launches
    assert (launched.grid, launched.block, launched.shared) == ((4, 1, 1), (32, 1, 1), 0)
    assert not launched.cooperative


def test_what_a_kernel_prints_is_python_s_output(fake: DriverInMemory, capsys: pytest.CaptureFixture[str]) -> None:
    """The driver prints through C's stdout when the host waits; a notebook shows what goes through sys.stdout."""
    say = cuda.compile('__global__ void say(float* x) { printf("thread %d says %g\\n", threadIdx.x, x[0]); }')
    before = os.fstat(1)
    say[1, 1](np.full(1, 42, np.float32))
    assert capsys.readouterr().out == "thread 0 says 42\n"
    assert os.fstat(1) == before
    say[1, 1](cuda.to_device(np.full(1, 42, np.float32)))  # nothing else would wait for this one
    assert capsys.readouterr().out == "thread 0 says 42\n"


def test_one_array_twice_is_one(fake: DriverInMemory, kernel: Kernel) -> None:
    x = np.ones(32, np.float32)
    kernel[1, 32](x, x, 5, whole(32))
    assert len(set(fake.launches[0].addresses)) == 1
    np.testing.assert_array_equal(x, 5)


def test_device_arrays_stay_where_they_are(fake: DriverInMemory, kernel: Kernel) -> None:
    x = cuda.to_device(np.arange(8, dtype=np.float32))
    assert x.on_gpu
    address = x.address
    kernel[1, 8](x, x, 2, whole(8))
    assert fake.launches[0].addresses == [address, address]
    np.testing.assert_array_equal(x.numpy(), 2 * np.arange(8))
    np.testing.assert_array_equal(x.copy_from(7).numpy(), np.full(8, 7))
    assert cuda.zeros((2, 3), np.int32).numpy().tolist() == [[0, 0, 0], [0, 0, 0]]
    x.free()
    x.free()
    with pytest.raises(CudaError, match="was freed"):
        kernel[1, 8](x, x, 2, whole(8))


def test_a_device_array_of_the_gpu_is_refused_by_the_simulator(fake: DriverInMemory) -> None:
    x = cuda.to_device(np.zeros(8, np.float32))
    simulated = cuda.compile(SOURCE, "stray", backend="simulator")
    assert simulated.backend == "simulator"
    with pytest.raises(CudaArgumentError, match=r"argument 1 \(x\) of stray lies on the GPU.*pass its \.numpy\(\)"):
        simulated[1, 1](x, 0)
    x.free()


def tensor(fake: DriverInMemory, array: np.ndarray, contiguous: bool = True) -> Any:
    """Return a fake with the part of a torch tensor on a GPU that the backend uses."""
    address = fake.allocate(array.nbytes)
    fake.array(address, array.dtype, array.size)[:] = array.reshape(-1)
    members = {
        "__module__": "torch", "is_cuda": True, "shape": array.shape, "dtype": f"torch.{array.dtype}",
        "address": address, "stride": lambda self: (1,), "is_contiguous": lambda self: contiguous,
        "data_ptr": lambda self: address,
        "numel": lambda self: array.size, "element_size": lambda self: array.itemsize,
    }  # fmt: skip
    return type("Tensor", (), members)()


def test_torch_tensors_are_passed_by_pointer(fake: DriverInMemory, kernel: Kernel) -> None:
    x, y = tensor(fake, np.arange(8, dtype=np.float32)), np.zeros(8, np.float32)
    kernel[1, 8](y, x, 4, whole(8))
    np.testing.assert_array_equal(y, 4 * np.arange(8))
    assert fake.launches[0].addresses[1] == x.address
    fake.live.pop(x.address)


def test_a_tensor_that_does_not_fit_is_named(fake: DriverInMemory, kernel: Kernel) -> None:
    double, strided = tensor(fake, np.zeros(8)), tensor(fake, np.zeros(8, np.float32), contiguous=False)
    y = np.zeros(8, np.float32)
    with pytest.raises(CudaArgumentError, match=r"argument 2 \(in\) of scale is an array of float64.*const float\*"):
        kernel[1, 8](y, double, 4, whole(8))
    with pytest.raises(
        CudaArgumentError, match=r"argument 2 \(in\) of scale has shape \(8,\).*pass tensor.contiguous\(\)"
    ):
        kernel[1, 8](y, strided, 4, whole(8))
    with pytest.raises(CudaArgumentError, match="scale takes 4 arguments and got 2"):
        kernel[1, 8](y, y)
    assert not fake.launches
    fake.live.clear()


def test_a_kernel_that_syncs_the_grid_is_launched_cooperatively(fake: DriverInMemory) -> None:
    both = """#include <cooperative_groups.h>
    __global__ void all(int* x) { cooperative_groups::this_grid().sync(); x[0] = 1; }"""
    fake.kernels["_Z3allPi"] = lambda launched: None
    cuda.compile(both, "all")[2, 32](np.zeros(1, np.int32))
    cuda.compile("// no this_grid\n__global__ void all(int* x) { x[0] = 1; }", "all")[2, 32](np.zeros(1, np.int32))
    assert [launched.cooperative for launched in fake.launches] == [True, False]


def test_more_than_48_kib_of_shared_memory_is_opted_in_to(fake: DriverInMemory) -> None:
    kernel = cuda.compile(SOURCE, "tile")
    x = np.zeros(2, np.float32)
    kernel[1, 32, 100 << 10](x)
    assert fake.launches[0].shared == 100 << 10
    assert list(fake.shared_allowed.values()) == [100 << 10]


def test_what_nvcc_refuses_is_raised_when_it_is_compiled(fake: DriverInMemory) -> None:
    with pytest.raises(CudaCompileError, match='line 1: identifier "only_g" is undefined'):
        gpu_backend.GpuBackend(Source("__global__ void k(int* x) { x[0] = only_g; }"), ["k"], {}, simulator=None)  # type: ignore[arg-type]


# --- Profile and check --------------------------------------------------------------------------------------------


def test_a_profile_has_the_simulators_counts_beside_the_measured_time(fake: DriverInMemory, kernel: Kernel) -> None:
    count = 512 * 64
    source, out = np.arange(count, dtype=np.float32), np.zeros(count, np.float32)
    profile = kernel.profile[512, 64](out, source, 2, whole(count))
    np.testing.assert_array_equal(out, 2 * source)
    assert (profile.blocks_run, profile.blocks_total) == (256, 512)
    assert profile.global_load_sectors == 256 * 64 * 4 // 32, "64 floats a block are 8 sectors"
    assert (profile.gpu, profile.gpu_seconds) == ("NVIDIA Stand-in", pytest.approx(1.5e-3))
    assert "256 of 512 blocks were run. Measured on NVIDIA Stand-in: the whole launch took 1.50 ms" in str(profile)
    assert len(fake.launches) == 1


def test_a_small_grid_is_profiled_whole_and_a_sample_as_asked(fake: DriverInMemory, kernel: Kernel) -> None:
    x = np.zeros(32, np.float32)
    assert kernel.profile[1, 32](x, x, 2, whole(32)).blocks_run == 1
    big = np.zeros(300 * 32, np.float32)
    assert kernel.profile.sampled(7)[300, 32](big, big, 2, whole(300 * 32)).blocks_run == 7


def test_a_simulated_profile_states_that_no_gpu_was_measured(fake: DriverInMemory) -> None:
    x = np.zeros(8, np.float32)
    profile = cuda.compile(SOURCE, "scale", backend="simulator").profile[1, 8](x, x, 2, whole(8))
    assert (profile.gpu, profile.gpu_seconds) == ("", None)
    assert "not measured on a GPU" in str(profile)


def test_check_is_the_simulators_and_its_results_come_back(fake: DriverInMemory, kernel: Kernel) -> None:
    x = cuda.to_device(np.arange(8, dtype=np.float32))
    y = np.zeros(8, np.float32)
    assert kernel.check[1, 8](y, x, 2, whole(8)) == []
    np.testing.assert_array_equal(y, 2 * np.arange(8))
    (found,) = cuda.compile(SOURCE, "stray").check[1, 1](x, 8)
    assert (found.kind, found.line) == ("out_of_bounds", 7)
    assert not fake.launches
    x.free()


# --- Errors -------------------------------------------------------------------------------------------------------


def test_an_illegal_address_is_one_clear_line_and_stays_one(fake: DriverInMemory, kernel: Kernel) -> None:
    x = np.zeros(8, np.float32)
    bad = cuda.compile(SOURCE, "stray")
    with pytest.raises(CudaKernelError) as caught:
        bad[1, 1](x, 1 << 20)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("kernel stray read or wrote outside its arrays (CUDA_ERROR_ILLEGAL_ADDRESS); this process")
    assert "restart the notebook's kernel" in text
    with pytest.raises(CudaKernelError, match=re.escape(text)):
        kernel[1, 8](x, x, 2, whole(8))
    with pytest.raises(CudaKernelError, match=re.escape(text)):
        cuda.zeros(4)
    (found,) = bad.check[1, 1](x, 8)  # what it advises works without the GPU
    assert found.line == 7


def test_out_of_memory_states_the_requested_size(fake: DriverInMemory, kernel: Kernel) -> None:
    fake.memory_bytes = 1000
    x = np.zeros(1 << 18, np.float32)
    with pytest.raises(CudaError, match=r"^out of GPU memory: 1\.0 MiB do not fit on NVIDIA Stand-in; free") as caught:
        kernel[1, 8](x, x, 2, whole(8))
    assert not isinstance(caught.value, CudaKernelError), "nothing is lost"
    fake.memory_bytes = 1 << 30
    kernel[1, 8](x, x, 2, whole(8))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            r"too many resources .* 1024 threads .*kernel\.resources\('sm_90'\)",
        ),
        (CUresult.CUDA_ERROR_INVALID_VALUE, r"refuses the launch <<<\(1, 1, 1\), \(1024, 1, 1\)>>>"),
    ],
)
def test_a_refused_launch_is_a_launch_error(fake: DriverInMemory, kernel: Kernel, status: CUresult, words: str) -> None:
    x = np.zeros(8, np.float32)
    fake.next_launch = status
    with pytest.raises(CudaLaunchError, match=words):
        kernel[1, 1024](x, x, 2, whole(8))
    kernel[1, 8](x, x, 2, whole(8))  # the next one works


def test_shared_memory_is_held_against_the_gpus_own_limit(
    fake: DriverInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device.the_gpu(), "arch", "sm_86")
    x = np.zeros(2, np.float32)
    with pytest.raises(
        CudaLaunchError, match=r"102,400 bytes of shared memory, and NVIDIA Stand-in \(sm_86\) has 101,376"
    ):
        cuda.compile(SOURCE, "tile")[1, 32, 100 << 10](x)


# --- Which backend ------------------------------------------------------------------------------------------------


@pytest.fixture
def real_choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if REASON:
        pytest.skip(REASON)
    monkeypatch.setattr(device, "WorkerGpu", lambda: Gpu(0))  # test_gpu_worker.py has the process
    device.the_gpu.cache_clear()
    device.why_no_gpu.cache_clear()
    yield
    device.the_gpu.cache_clear()
    device.why_no_gpu.cache_clear()


def test_without_a_gpu_auto_is_the_simulator(real_choice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_HINTS", ())
    assert "no NVIDIA GPU" in device.why_no_gpu()
    assert cuda.compile(SOURCE, "stray").backend == "simulator"
    with pytest.raises(CudaError, match="no NVIDIA GPU, or its driver is not installed"):
        cuda.compile(SOURCE, "stray", backend="gpu")


def test_a_driver_that_does_not_answer_is_no_gpu(real_choice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = DriverInMemory()
    fake.failing = CUresult.CUDA_ERROR_INVALID_VALUE
    monkeypatch.setattr(device, "_HINTS", ("/",))
    assert "CUDA_ERROR_INVALID_VALUE" in device.why_no_gpu()
    assert cuda.compile(SOURCE, "stray").backend == "simulator"


def test_an_old_cuda_core_leaves_the_simulator_and_says_so(real_choice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    DriverInMemory()
    monkeypatch.setattr(device, "_HINTS", ("/",))
    monkeypatch.setattr("cuda.core.__version__", "0.5.1")
    assert device.why_no_gpu() == "cuda-core 0.5.1 is too old; run: pip install -U 'mlsys-labkit[gpu]'"
    assert cuda.compile(SOURCE, "stray").backend == "simulator"


def test_a_cuda_core_with_other_names_leaves_the_simulator(real_choice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    DriverInMemory()
    monkeypatch.setattr(device, "_HINTS", ("/",))
    monkeypatch.delattr("cuda.core.ObjectCode")
    assert device.why_no_gpu().startswith("NVIDIA Stand-in")
    assert "ObjectCode" in device.why_no_gpu()
    assert cuda.compile(SOURCE, "stray").backend == "simulator"


@pytest.mark.parametrize("right", [True, False])
def test_a_gpu_has_to_compute_before_it_is_trusted(
    real_choice: None, monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    def probe(launched: Launched) -> None:
        launched.gpu.array(launched.argument(0, ctypes.c_uint64).value, np.int32, 32)[:] = 3 * np.arange(32) + right

    fake = DriverInMemory({"_Z5probePi": probe})
    monkeypatch.setattr(device, "_HINTS", ("/",))
    assert device.why_no_gpu() == (
        "" if right else "NVIDIA Stand-in computes wrong numbers: a kernel of one warp gave [0, 3, 6, 9] ..."
    )
    assert not fake.live


def test_only_one_file_imports_cuda_core() -> None:
    kit = Path(device.__file__).parents[2]
    naming = {path.name for path in kit.rglob("*.py") if re.search(r"cuda[._]core|cuda\.bindings", path.read_text())}
    assert naming == {"driver.py"}


@pytest.mark.gpu
def test_a_real_gpu_agrees_with_the_simulator() -> None:
    """The same launch on both: equal to the last bit, since the kernel only multiplies."""
    importlib.import_module("cuda.core")
    source = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    results = []
    for backend in ("simulator", "gpu"):
        out = np.zeros(1000, np.float32)
        cuda.compile(SOURCE, "scale", backend=backend)[4, 256](out, source, 3, whole(1000))
        results.append(out)
    np.testing.assert_array_equal(*results)
    everything = compile_all(SOURCE, backend="gpu")
    assert everything.scale.profile[4, 256](results[0], source, 3, whole(1000)).gpu_seconds > 0
