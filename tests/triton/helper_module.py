"""Functions and constants that kernels of other modules use by the name of this one."""

from __future__ import annotations

import triton
import triton.language as tl

SCALE = 3
LIST = [1]


@triton.jit
def scaled(x):
    return x * SCALE_OF_KERNELS


SCALE_OF_KERNELS = tl.constexpr(2)
