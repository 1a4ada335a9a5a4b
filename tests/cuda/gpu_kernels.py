"""Kernels, and what they do on the device in host memory (``stand_in_driver.py``)."""

from __future__ import annotations

import ctypes

import numpy as np

from tests.cuda.stand_in_driver import EndlessError, KernelBody, Launched, TrapError

SOURCE = """
struct Range { int begin, end; };
__global__ void scale(float* out, const float* in, float factor, Range range) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= range.begin && i < range.end) out[i] = factor * in[i];
}
__global__ void stray(float* x, int where) { x[where] = 1; }
__global__ void endless(float* x) { while (((volatile float*)x)[0] == 0) {} }
__global__ void trap(float* x) { if (x[0] == 0) __trap(); }
__global__ void tile(float* x) { extern __shared__ float s[]; s[threadIdx.x] = x[0]; x[1] = s[0]; }
"""


class Range(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_int), ("end", ctypes.c_int))


def scale(launched: Launched) -> None:
    """Do what the kernel of that name does, from the bytes that the driver would read."""
    begin, end = (getattr(launched.argument(3, Range), name) for name in ("begin", "end"))
    out, source = launched.addresses = [launched.argument(index, ctypes.c_uint64).value for index in (0, 1)]
    factor = launched.argument(2, ctypes.c_float).value
    count = min(end, launched.grid[0] * launched.block[0]) - begin
    result = launched.gpu.array(out + 4 * begin, np.float32, count)
    result[:] = factor * launched.gpu.array(source + 4 * begin, np.float32, count)


def stray(launched: Launched) -> None:
    address = launched.argument(0, ctypes.c_uint64).value + 4 * launched.argument(1, ctypes.c_int).value
    launched.gpu.array(address, np.float32, 1)[:] = 1


def endless(launched: Launched) -> None:
    """Run for ever, if the first element is 0."""
    if launched.gpu.array(launched.argument(0, ctypes.c_uint64).value, np.float32, 1)[0] == 0:
        raise EndlessError


def trap(launched: Launched) -> None:
    """Trap."""
    raise TrapError


def say(launched: Launched) -> None:
    """Print as the driver does, to C's stdout."""
    ctypes.CDLL(None).printf(b"thread 0 says 42\n")


KERNELS: dict[str, KernelBody] = {
    "_Z5scalePfPKff5Range": scale,
    "_Z5strayPfi": stray,
    "_Z7endlessPf": endless,
    "_Z4trapPf": trap,
    "_Z3sayPf": say,
    "_Z4tilePf": lambda launched: None,
}
