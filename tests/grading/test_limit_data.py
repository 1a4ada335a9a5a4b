"""The limit of a process's data, which counts what it can write, and not the addresses that it reserves."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys

import pytest

from mlsys_grading.sandbox.limits import CUDA_BYTES, limit_data
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts mappings on Linux alone")

MEMORY_BYTES = 2 << 30
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
SHARED = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x4000


def maps(nbytes: int, protection: int, flags: int) -> bool:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_size_t
    libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    return bool(libc.mmap(0, nbytes, protection, flags, -1, 0) != ctypes.c_size_t(-1).value)


def found(gpu: bool) -> list[bool]:
    """Return what a new process under the limit can map.

    CUDA's reservations, a shared map, more than the limit, what CUDA writes, and a part of the limit.
    """
    code = f"from tests.grading.test_limit_data import answers; print(*answers({gpu}))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert not ran.returncode, ran.stderr
    return [word == "True" for word in ran.stdout.split()]


def answers(gpu: bool) -> list[bool]:
    limit_data(MEMORY_BYTES, gpu)
    return [
        maps(1 << 40, 0, PRIVATE),
        maps(64 << 30, READ_WRITE, SHARED),
        maps(MEMORY_BYTES + CUDA_BYTES, READ_WRITE, PRIVATE),
        maps(MEMORY_BYTES + CUDA_BYTES // 2, READ_WRITE, PRIVATE),
        maps(MEMORY_BYTES // 4, READ_WRITE, PRIVATE),
    ]


@pytest.mark.parametrize("gpu", [False, True])
def test_reservations_are_free_and_what_cuda_writes_is_added_beside_a_gpu_alone(gpu: bool) -> None:
    assert found(gpu) == [True, True, False, gpu, True]


@pytest.mark.gpu
def test_cuda_starts_under_the_limit_of_a_proof() -> None:
    code = """from mlsys_grading.sandbox.limits import limit_data
limit_data(4 << 30, gpu=True)
import torch
x = torch.ones(1 << 28, device="cuda")
print(float((x @ x).cpu()), torch.ones(1 << 26).pin_memory().cuda().sum().item())"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ran.stdout.split() == [str(float(1 << 28)), str(float(1 << 26))], ran.stderr[-2000:]
