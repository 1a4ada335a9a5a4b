"""Faults of kernels on a GPU: the process that owns its context ends, the notebook and the next launch do not.

The driver is the one in host memory (``stand_in_driver.py``), under the real cuda-core and cuda-bindings.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.errors import CudaError, CudaKernelError, CudaLaunchError, CudaWorkerError, KernelInterrupt
from mlsys_labkit.cuda.kernel.backends import gpu as gpu_backend
from mlsys_labkit.cuda.nvidia import device, gpu_worker, nvrtc
from mlsys_labkit.cuda.nvidia.driver import Gpu
from mlsys_labkit.cuda.nvidia.gpu_worker import WorkerGpu
from mlsys_labkit.timing import clock
from tests.cuda.gpu_kernels import KERNELS, SOURCE
from tests.cuda.stand_in_driver import REASON, DriverInMemory

pytestmark = pytest.mark.skipif(
    not nvrtc.available(), reason="needs NVIDIA's run-time compiler; run: pip install 'mlsys-labkit[cuda]'"
)


def _use(patch: pytest.MonkeyPatch, gpu: WorkerGpu) -> None:
    for module in (device, gpu_backend, sys.modules["mlsys_labkit.cuda.kernel.compilation"]):
        patch.setattr(module, "the_gpu", lambda: gpu)
    for module in (device, sys.modules["mlsys_labkit.cuda.kernel.compilation"]):
        patch.setattr(module, "why_no_gpu", lambda: "")


@pytest.fixture(scope="module")
def gpu() -> Iterator[WorkerGpu]:
    """Return a GPU whose worker process is real, and whose driver is not."""
    if REASON:
        pytest.skip(REASON)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_worker, "COMMAND", [sys.executable, "-m", "tests.cuda.stand_in_worker"])
        made = WorkerGpu()
        _use(patch, made)
        yield made
        made.close()


@pytest.fixture(scope="module")
def kernels(gpu: WorkerGpu) -> cuda.Kernels:
    return cuda.compile_all(SOURCE)


def whole(count: int) -> np.ndarray:
    return np.array((0, count), dtype=[("begin", "i4"), ("end", "i4")])[()]


def works(kernels: cuda.Kernels) -> bool:
    """Return True if a launch gives the right numbers."""
    x = np.arange(8, dtype=np.float32)
    kernels.scale[1, 8](x, x, 2, whole(8))
    return bool((x == 2 * np.arange(8)).all())


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("stray", (1 << 20,), r"kernel stray read or wrote outside its arrays \(CUDA_ERROR_ILLEGAL_ADDRESS\); "),
        ("trap", (), r"kernel trap failed on the GPU \(CUDA_ERROR_LAUNCH_FAILED\); "),
    ],
)
def test_a_fault_is_one_line_and_the_next_launch_works(
    gpu: WorkerGpu, kernels: cuda.Kernels, name: str, arguments: tuple[int, ...], words: str
) -> None:
    x = np.zeros(8, np.float32)
    with pytest.raises(
        CudaKernelError, match=words + "its process was ended with all device arrays, and the"
    ) as caught:
        kernels[name][1, 1](x, *arguments)
    assert "\n" not in str(caught.value)
    assert works(kernels)
    (found,) = kernels.stray.check[1, 1](x, 1 << 20)  # what the line advises, with the same inputs
    assert (found.line, found.thread) == (7, (0, 0, 0))


def test_an_endless_kernel_is_ended_with_its_process_and_named(kernels: cuda.Kernels) -> None:
    x = np.zeros(8, np.float32)
    with pytest.raises(CudaKernelError, match=r"^kernel endless still runs after 0\.05 s; its process was ended"):
        kernels.endless.within(0.05)[1, 1](x)
    assert works(kernels)


def test_the_usual_limit_holds_without_within(kernels: cuda.Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_CUDA_SECONDS", "0.05")
    with pytest.raises(CudaKernelError, match=r"still runs after 0\.05 s"):
        kernels.endless[1, 1](np.zeros(8, np.float32))
    assert works(kernels)


def test_ctrl_c_ends_the_worker_and_the_next_launch_starts_another(kernels: cuda.Kernels) -> None:
    assert works(kernels)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KernelInterrupt, match="process on the GPU was ended; all device arrays on the GPU are lost"):
        kernels.endless.within(60)[1, 1](np.zeros(8, np.float32))
    assert works(kernels)


def test_out_of_memory_loses_nothing(gpu: WorkerGpu, kernels: cuda.Kernels) -> None:
    kept = cuda.to_device(np.arange(4, dtype=np.float32))
    with pytest.raises(CudaError, match=r"^out of GPU memory: 100\.0 MiB do not fit on NVIDIA Stand-in"):
        kernels.trap[1, 1](np.zeros(25 << 20, np.float32))
    np.testing.assert_array_equal(kept.numpy(), np.arange(4))


def test_device_arrays_live_in_the_worker_and_end_with_it(gpu: WorkerGpu, kernels: cuda.Kernels) -> None:
    x = cuda.to_device(np.arange(8, dtype=np.float32))
    for _ in range(2):
        kernels.scale[1, 8](x, x, 2, whole(8))
    np.testing.assert_array_equal(x.numpy(), 4 * np.arange(8))
    with pytest.raises(CudaKernelError):
        kernels.trap[1, 1](x)
    with pytest.raises(CudaError, match="was lost when a kernel on the GPU was ended; make the array again"):
        kernels.scale[1, 8](x, x, 2, whole(8))
    assert works(kernels)


def test_memory_is_given_back(gpu: WorkerGpu, kernels: cuda.Kernels) -> None:
    """The device has 64 MiB, and each of these launches needs 20."""
    big = np.zeros(5 << 20, np.float32)
    for _ in range(5):
        kernels.scale[1, 8](big, big, 2, whole(8))
        cuda.to_device(big).free()


def test_an_array_larger_than_the_window_goes_in_parts(
    gpu: WorkerGpu, kernels: cuda.Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_worker, "_WINDOW_BYTES", 100)
    x = np.arange(1000, dtype=np.float32)
    kernels.scale[1, 1000](x, x, 2, whole(1000))
    np.testing.assert_array_equal(x, 2 * np.arange(1000))


def test_a_worker_that_dies_is_reported_and_replaced(gpu: WorkerGpu, kernels: cuda.Kernels) -> None:
    assert works(kernels)
    assert gpu._process
    os.kill(gpu._process._process.pid, signal.SIGKILL)
    gpu._process._process.wait()
    with pytest.raises(CudaWorkerError, match="the process on the GPU ended with -9; all device arrays"):
        works(kernels)
    assert works(kernels)


def test_what_a_kernel_prints_comes_from_the_worker(gpu: WorkerGpu, capfd: pytest.CaptureFixture[str]) -> None:
    say = cuda.compile('__global__ void say(float* x) { printf("thread %d says %g\\n", threadIdx.x, x[0]); }')
    say[1, 1](np.full(1, 42, np.float32))
    assert capfd.readouterr().out == "thread 0 says 42\n"


def test_a_refused_launch_loses_nothing(gpu: WorkerGpu, kernels: cuda.Kernels) -> None:
    kept = cuda.to_device(np.zeros(2, np.float32))
    with pytest.raises(CudaLaunchError):
        kernels.tile[1, 2048](kept)
    assert kept.numpy().tolist() == [0, 0]


def test_a_profile_measures_in_the_worker(kernels: cuda.Kernels) -> None:
    x = np.zeros(32, np.float32)
    profile = kernels.scale.profile[1, 32](x, x, 2, whole(32))
    assert (profile.gpu, profile.gpu_seconds) == ("NVIDIA Stand-in", pytest.approx(1.5e-3))


def test_a_seeded_launch_runs_in_the_simulator(gpu: WorkerGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU lets a program choose the order of its warps."""
    kernel = cuda.compile("__global__ void last(int* x) { x[0] = threadIdx.x; }")
    assert kernel.backend == "gpu"
    x = cuda.to_device(np.full(1, -1, np.int32))
    kernel.seeded(7)[1, 32](x)  # the stand-in has no kernel of this name
    assert 0 <= x.numpy()[0] < 32


def test_a_forked_process_starts_a_worker_of_its_own(gpu: WorkerGpu, kernels: cuda.Kernels) -> None:
    assert works(kernels)
    process = gpu._process
    child = os.fork()
    if not child:
        try:
            os._exit(0 if works(kernels) and gpu._process is not process else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert works(kernels)
    assert gpu._process is process


# --- Tensors of torch on the GPU, which only this process can use -----------------------------------------------------


@pytest.fixture
def here(gpu: WorkerGpu, monkeypatch: pytest.MonkeyPatch) -> DriverInMemory:
    """Return the device of this process, beside the worker's."""
    made, local = DriverInMemory(dict(KERNELS)), Gpu(0)
    monkeypatch.setattr(gpu_backend, "gpu_of_torch", lambda: local)
    return made


def tensor(driver: DriverInMemory, array: np.ndarray) -> Any:
    """Return a fake with the part of a torch tensor on a GPU that the backend uses."""
    address = driver.allocate(array.nbytes)
    driver.array(address, array.dtype, array.size)[:] = array.reshape(-1)
    members = {
        "__module__": "torch", "is_cuda": True, "shape": array.shape, "dtype": f"torch.{array.dtype}",
        "is_contiguous": lambda self: True, "data_ptr": lambda self: address,
        "numel": lambda self: array.size, "element_size": lambda self: array.itemsize,
        "numpy": lambda self: driver.array(address, array.dtype, array.size),
    }  # fmt: skip
    return type("Tensor", (), members)()


def test_tensors_and_device_arrays_go_together(here: DriverInMemory, kernels: cuda.Kernels) -> None:
    x, y = tensor(here, np.arange(8, dtype=np.float32)), cuda.to_device(np.zeros(8, np.float32))
    kernels.scale[1, 8](y, x, 3, whole(8))
    np.testing.assert_array_equal(y.numpy(), 3 * np.arange(8))
    assert len(here.launches) == 1


def test_copies_of_arrays_are_on_the_stream_of_the_kernel(
    here: DriverInMemory, kernels: cuda.Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own streams do not wait for the default one."""
    stream = types.SimpleNamespace(cuda_stream=0xABC)
    torch = types.SimpleNamespace(is_initialized=lambda: True, current_stream=lambda: stream)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=torch))
    y = np.zeros(8, np.float32)
    kernels.scale[1, 8](y, tensor(here, np.arange(8, dtype=np.float32)), 3, whole(8))
    np.testing.assert_array_equal(y, 3 * np.arange(8))
    assert [*here.copies, here.launches[0].stream] == [0xABC] * 3


def test_a_fault_on_a_tensor_leaves_launches_on_arrays(here: DriverInMemory, kernels: cuda.Kernels) -> None:
    x = tensor(here, np.zeros(8, np.float32))
    words = (
        "kernel stray read or wrote outside its arrays (CUDA_ERROR_ILLEGAL_ADDRESS); this process has lost the GPU "
        "with all tensors on it: restart the notebook's kernel to use them again, although launches on numpy arrays "
        "go on"
    )
    for _ in range(2):  # each further launch on a tensor says so again
        with pytest.raises(CudaKernelError, match=re.escape(words)):
            kernels.stray[1, 1](x, 1 << 20)
    assert works(kernels)


def test_an_endless_kernel_on_a_tensor_does_not_hang_the_notebook(here: DriverInMemory, kernels: cuda.Kernels) -> None:
    x, ones = tensor(here, np.zeros(8, np.float32)), tensor(here, np.ones(8, np.float32))
    with pytest.raises(CudaKernelError, match=r"kernel endless still runs after 0\.05 s; and only a restart of the"):
        kernels.endless.within(0.05)[1, 1](x)
    with pytest.raises(CudaKernelError, match=r"kernel endless still runs; and only a restart"):
        kernels.endless[1, 1](ones)
    assert works(kernels)
    here.endless = False  # it was only slow
    kernels.endless[1, 1](ones)


def test_ctrl_c_ends_the_wait_for_a_tensor(here: DriverInMemory, kernels: cuda.Kernels) -> None:
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        kernels.endless.within(60)[1, 1](tensor(here, np.zeros(8, np.float32)))
    here.endless = False


def test_a_launch_that_is_timed_is_queued_and_not_waited_for(here: DriverInMemory, kernels: cuda.Kernels) -> None:
    x = tensor(here, np.zeros(8, np.float32))
    with clock._queueing():
        kernels.endless[1, 1](x)
    assert here.endless
    here.endless = False


# --- What only a GPU can tell -----------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_real_gpu_goes_on_after_each_fault() -> None:
    real = cuda.compile_all(SOURCE, backend="gpu")
    x = np.zeros(8, np.float32)
    for name, arguments in (("stray", (1 << 28,)), ("trap", ()), ("endless", ())):
        with pytest.raises(CudaKernelError, match=f"^kernel {name} "):
            real[name].within(2)[1, 1](x, *arguments)
        assert works(real)
    with pytest.raises(CudaError, match="out of GPU memory"):
        cuda.empty(1 << 42, np.uint8)
    assert works(real)
    assert real.scale.profile[1, 8](x, x, 2, whole(8)).gpu_seconds > 0
    threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        real.endless.within(600)[1, 1](x)
    assert works(real)


@pytest.mark.gpu
def test_a_real_gpu_orders_copies_with_torch_s_stream() -> None:
    torch = pytest.importorskip("torch")
    scale = cuda.compile(SOURCE, "scale", backend="gpu")
    n = 1 << 22
    with torch.cuda.stream(torch.cuda.Stream()):
        for turn in range(20):
            x, y = np.full(n, turn, np.float32), torch.zeros(n, device="cuda")
            scale[n // 256, 256](y, x, 2, whole(n))
            assert (y == 2 * turn).all()


@pytest.mark.gpu
def test_a_real_endless_kernel_on_a_tensor_raises() -> None:
    """In a process of its own, which the kernel then ends with."""
    import subprocess

    code = f"""import torch; from mlsys_labkit import cuda
k = cuda.compile_all({SOURCE!r}, backend="gpu")
try: k.endless.within(1)[1, 1](torch.zeros(8, device="cuda"))
except cuda.CudaKernelError as error: print(error, flush=True)
import os; os._exit(0)"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.stdout.startswith("kernel endless still runs after 1 s"), ran.stderr
