"""Kernels with a planted bug each, which ``BUG=False`` takes out; the finding is in the line that ends in ``# @``."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl


@triton.jit
def largest_without_other(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=None if BUG else float("-inf"))  # @
    tl.store(out, tl.max(v, 0))


@triton.jit
def mean_without_other(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=None if BUG else 0.0)  # @
    tl.store(out, tl.sum(v, 0) / n)


@triton.jit
def product_without_other(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    i, k = tl.arange(0, B), tl.arange(0, 32)
    a = tl.load(x + i[:, None] * n + k[None, :], mask=k[None, :] < n, other=None if BUG else 0.0)  # @
    b = tl.load(x + k[:, None] * 16 + i[None, :], mask=k[:, None] < n, other=0.0)
    tl.store(out + i[:, None] * 16 + i[None, :], tl.dot(a, b))


@triton.jit
def stride_of_the_other_array(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    stride = 8 if BUG else n
    tl.store(out + row * n + i, tl.load(x + row * stride + i, mask=i < n), mask=i < n)  # @


@triton.jit
def tail_of_k_left_out(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    total = tl.zeros([B], tl.float32)
    for k in range(n // B if BUG else tl.cdiv(n, B)):
        i = k * B + tl.arange(0, B)
        total += tl.load(x + i, mask=i < n, other=0.0)  # @
    tl.store(out, tl.sum(total, 0))


@triton.jit
def first_row_left_out(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    total = 0.0
    for row in range(1 if BUG else 0, n // B):
        total += tl.sum(tl.load(x + row * B + tl.arange(0, B)), 0)  # @
    tl.store(out, total)


@triton.jit
def sum_in_half(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    total = tl.zeros([B], tl.float16 if BUG else tl.float32)
    for k in range(tl.cdiv(n, B)):
        i = k * B + tl.arange(0, B)
        total += tl.load(x + i, mask=i < n, other=0.0).to(total.dtype)  # @
    tl.store(out, tl.sum(total.to(tl.float32), 0))


@triton.jit
def product_in_half(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros([B, B], tl.float16 if BUG else tl.float32)
    for _ in range(2):
        a = tl.load(x + i[:, None] * B + i[None, :]).to(tl.float16)
        total = tl.dot(a, a, total, out_dtype=total.dtype)  # @
    tl.store(out + i[:, None] * B + i[None, :], total.to(tl.float32))


@triton.jit
def sum_in_int8(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    total = tl.zeros([B], tl.int8 if BUG else tl.int32)
    for k in range(tl.cdiv(n, B)):
        i = k * B + tl.arange(0, B)
        total += (tl.load(x + i, mask=i < n, other=0.0) * 0 + 40).to(total.dtype)  # @
    tl.store(out, tl.sum(total.to(tl.int32), 0))


@triton.jit
def page_beyond_int32(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    page = tl.program_id(0).to(tl.int32 if BUG else tl.int64) * 4
    at = page * (1 << 30) - page * ((1 << 30) - 2) if BUG else page * 2
    tl.store(out + at + tl.arange(0, B), tl.load(x + at + tl.arange(0, B)))  # @


@triton.jit
def offset_in_int16(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    i = tl.arange(0, B).to(tl.int16 if BUG else tl.int32)
    at = (i * 20000 - i * 19999) if BUG else i
    tl.store(out + at, tl.load(x + at))  # @


@triton.jit
def counter_that_orders_nothing(x, out, counter, n, B: tl.constexpr, BUG: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i) + 1.0)  # @
    if tl.atomic_add(counter, 1, sem="relaxed" if BUG else "acq_rel") == tl.num_programs(0) - 1:
        tl.store(out, tl.sum(tl.load(x + tl.arange(0, 4 * B)), 0))


@triton.jit
def counter_of_one_program(x, out, counter, n, B: tl.constexpr, BUG: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i) + 1.0)  # @
    if tl.atomic_add(counter, 1, scope="cta" if BUG else "gpu") == tl.num_programs(0) - 1:
        tl.store(out, tl.sum(tl.load(x + tl.arange(0, 4 * B)), 0))


@triton.jit
def release_that_acquires(x, out, counter, n, B: tl.constexpr, BUG: tl.constexpr):
    while tl.atomic_cas(counter, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + 1.0)  # @
    tl.atomic_xchg(counter, 0, sem="acquire" if BUG else "release")


@triton.jit
def sum_without_atomics(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    part = tl.sum(tl.load(x + i), 0)
    if BUG:
        tl.store(out, tl.load(out) + part)  # @
    else:
        tl.atomic_add(out, part)


@triton.jit
def value_beyond_the_bins(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    v = (tl.load(x + tl.arange(0, B)) * 0 + (16 if BUG else 15)).to(tl.int32)
    tl.store(out + tl.arange(0, 16), tl.histogram(v, 16))  # @


@triton.jit
def grid_of_whole_blocks(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    last = tl.num_programs(0) * B - (B if BUG else 0)
    tl.store(out + i, tl.load(x + i), mask=i < last)  # @


@triton.jit
def mask_of_the_wrong_length(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    i = tl.arange(0, B)
    inside = i < (n + 1 if BUG else n)
    tl.store(out + i, tl.load(x + i, mask=inside), mask=i < n)  # @


@triton.jit
def lanes_that_collide(x, out, n, B: tl.constexpr, BUG: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + (i // 2 if BUG else i), tl.load(x + i))  # @


def _f(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def _z(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def _i(*shape: int) -> Any:
    return np.zeros(shape, np.int32)


# kernel -> kind of the finding, programs, arguments, block
PLANTED: dict[Any, tuple[str, int, Any, int]] = {
    largest_without_other: ("undefined_value", 1, lambda: (_f(5), _z(1), 5), 8),
    mean_without_other: ("undefined_value", 1, lambda: (_f(5), _z(1), 5), 8),
    product_without_other: ("undefined_value", 1, lambda: (_f(16, 20), _z(16, 16), 20), 16),
    stride_of_the_other_array: ("unread", 3, lambda: (_f(3, 10), _z(3, 10), 10), 16),
    tail_of_k_left_out: ("unread", 1, lambda: (_f(20), _z(1), 20), 8),
    first_row_left_out: ("unread", 1, lambda: (_f(4, 8), _z(1), 32), 8),
    sum_in_half: ("narrow_accumulator", 1, lambda: (_f(20), _z(1), 20), 8),
    product_in_half: ("narrow_accumulator", 1, lambda: (_f(16, 16) / 256, _z(16, 16), 16), 16),
    sum_in_int8: ("integer_overflow", 1, lambda: (_f(40), _i(1), 40), 8),
    page_beyond_int32: ("integer_overflow", 2, lambda: (_f(16), _z(16), 16), 8),
    offset_in_int16: ("integer_overflow", 1, lambda: (_f(8), _z(8), 8), 8),
    counter_that_orders_nothing: ("race", 4, lambda: (_f(32), _z(1), _i(1), 32), 8),
    counter_of_one_program: ("race", 4, lambda: (_f(32), _z(1), _i(1), 32), 8),
    release_that_acquires: ("race", 3, lambda: (_f(1), _z(1), _i(1), 1), 8),
    sum_without_atomics: ("race", 4, lambda: (_f(32), _z(1), 32), 8),
    value_beyond_the_bins: ("histogram_range", 1, lambda: (_f(8), _i(16), 8), 8),
    grid_of_whole_blocks: ("unwritten", 4, lambda: (_f(32), _z(32), 32), 8),
    mask_of_the_wrong_length: ("out_of_bounds", 1, lambda: (_f(5), _z(5), 5), 8),
    lanes_that_collide: ("conflicting_store", 1, lambda: (_f(8), _z(8), 8), 8),
}
