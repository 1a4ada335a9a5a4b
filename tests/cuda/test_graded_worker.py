"""Graded kernels have processes of their own: what other code does to its process changes no count and no finding."""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.errors import CudaKernelError, CudaWorkerError
from mlsys_labkit.cuda.kernel.simulator.client import Simulator

RETURN = {"x86_64": "0xc3", "aarch64": "0xd65f03c0"}[platform.machine()]
DOUBLE = "__global__ void twice(float* x) { x[threadIdx.x] = x[threadIdx.x] * 2; }"
RACE = "__global__ void all_to_one(int* x) { x[0] = x[0] + threadIdx.x; }"
# Makes the recorder deaf: its hooks return at once.
SILENCE = f"""
extern "C" int mprotect(void*, unsigned long, int);
extern "C" void __tsan_read4(void*);
extern "C" void __tsan_write4(void*);
__device__ void overwrite(void (*hook)(void*)) {{
  unsigned long at = (unsigned long)hook;
  mprotect((void*)(at & ~4095ul), 8192, 7);
  *(volatile unsigned*)at = {RETURN};
  __builtin___clear_cache((char*)at, (char*)at + 4);
}}
__global__ void silence() {{
  overwrite(&__tsan_read4);
  overwrite(&__tsan_write4);
}}
"""


@pytest.fixture(autouse=True)
def new_workers() -> Iterator[None]:
    Simulator.current().close()
    yield
    Simulator.current().close()


def pids() -> dict[str, int]:
    return {kind: worker.process.pid for kind, worker in Simulator.current()._workers.items()}


def test_code_that_overwrites_the_recorder_changes_no_graded_count() -> None:
    plain, graded = (cuda.compile(DOUBLE, backend="simulator", graded=graded) for graded in (False, True))
    racing = cuda.compile(RACE, backend="simulator", graded=True)
    cuda.compile(SILENCE, "silence", backend="simulator")[1, 1]()
    x = np.ones(32, np.float32)
    assert plain.profile[1, 32](x).global_load_requests == 0  # the attack works
    counted = graded.profile[1, 32](x)
    assert (counted.global_load_requests, counted.global_store_requests) == (1, 1)
    assert [found.kind for found in racing.check[1, 32](np.zeros(1, np.int32))] == ["global_race"]
    assert x.tolist() == [4.0] * 32


def test_each_worker_starts_when_its_first_kernel_does() -> None:
    graded = cuda.compile(DOUBLE, backend="simulator", graded=True)
    cuda.compile(DOUBLE, backend="simulator")[1, 4](np.ones(4, np.float32))
    assert list(pids()) == ["ordinary"]
    graded[1, 4](np.ones(4, np.float32))
    assert sorted(pids()) == ["counted", "graded", "ordinary"]


def test_device_arrays_are_the_same_memory_for_both() -> None:
    plain, graded = (cuda.compile(DOUBLE, backend="simulator", graded=graded) for graded in (False, True))
    arrays = []
    for size in (32, 32, 1000, 7, 32):  # allocated and freed without a message to the workers
        device = cuda.to_device(np.ones(size, np.float32))
        for kernel in (plain, graded, plain.profile, graded.profile):
            kernel[1, min(size, 32)](device)
        assert set(device.numpy()[:32].tolist()) == {16.0}
        arrays = [device] if size == 1000 else [*arrays, device]
    with pytest.raises(CudaKernelError, match="thread"):
        graded[1, 512](cuda.to_device(np.ones(1, np.float32)))


@pytest.mark.parametrize("victim", ["ordinary", "graded", "counted"])
def test_each_outlives_the_others(victim: str) -> None:
    kernels = {graded: cuda.compile(DOUBLE, backend="simulator", graded=graded) for graded in (False, True)}
    device = cuda.to_device(np.ones(32, np.float32))
    for kernel in kernels.values():
        kernel[1, 32](device)
    kernels[True].profile[1, 32](device)
    before = pids()
    os.kill(before[victim], signal.SIGKILL)
    os.waitid(os.P_PID, before[victim], os.WEXITED | os.WNOWAIT)
    for kernel in kernels.values():
        kernel[1, 32](device)
    kernels[True].profile[1, 32](device)
    assert device.numpy().tolist() == [64.0] * 32
    after = pids()
    assert {kind for kind in after if after[kind] != before[kind]} == {victim}


def test_a_plain_kernel_that_ends_its_process_leaves_the_graded_one_alone() -> None:
    graded = cuda.compile(DOUBLE, backend="simulator", graded=True)
    leave = cuda.compile('extern "C" void _exit(int);\n__global__ void leave() { _exit(3); }', backend="simulator")
    graded[1, 4](np.ones(4, np.float32))
    before = pids()["graded"]
    with pytest.raises(CudaWorkerError, match=r"called exit\(3\)"):
        leave[1, 1]()
    graded[1, 4](np.ones(4, np.float32))
    assert pids()["graded"] == before
