"""Kernels with branches that Triton's compiler refuses.

Every kernel takes ``(x, out, n, B, FLAG=False)``. The tests launch it with float32 arrays of 64 elements, n = 3, B = 8.
"""

# ruff: noqa: B007, RET505, SIM102, SIM108 -- the forms of an if are what is tested
from __future__ import annotations

import triton
import triton.language as tl

from tests.triton.branches import early_number, flagged, wider


@triton.jit
def early_whole(n):
    if n < 3:
        return 1
    elif n == 3:
        return 0.5
    return 2


@triton.jit
def number_or_block(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    if n > 5:
        v = tl.load(x + i)
    else:
        v = 0.0
    tl.store(out + i, v)


@triton.jit
def block_or_number(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    if n < 5:
        v = tl.load(x + i)
    else:
        v = 0.0
    tl.store(out + i, v)


@triton.jit
def whole_or_float(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if n > 5:
        v = 1
    else:
        v = 0.5
    tl.store(out, v)


@triton.jit
def whole_before(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    v = 0
    if n < 5:
        v = tl.load(x)
    tl.store(out, v)


@triton.jit
def whole_before_and_not_taken(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    v = 0
    if n > 5:
        v += 0.5
    tl.store(out, v)


@triton.jit
def half_or_single(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    if n > 5:
        v = v.to(tl.float16)
    tl.store(out + i, v)


@triton.jit
def small_or_large_shape(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if n > 5:
        v = tl.load(x + tl.arange(0, B))
    else:
        v = tl.load(x + tl.arange(0, 2 * B))
    tl.store(out, tl.sum(v, 0))


@triton.jit
def integer_widths(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if n > 5:
        k = n.to(tl.int64)
    else:
        k = n
    tl.store(out, k)


@triton.jit
def last_of_a_chain(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if n == 3:
        v = tl.load(x)
    elif n == 5:
        v = 1.0
    elif n == 6:
        v = 2.0
    else:
        v = 3
    tl.store(out, v)


@triton.jit
def inside_the_other_branch(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    v = 0.0
    if n > 5:
        if n > 6:
            v = tl.load(x + tl.arange(0, B))
    tl.store(out, v)


@triton.jit
def loop_in_the_other_branch(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    v = 0
    if n > 5:
        for k in range(n):
            v += 0.5
    tl.store(out, v)


@triton.jit
def returns_with_another_type(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    v = 0
    if n > 5:
        v = tl.load(x)
        tl.store(out, v)
        return
    tl.store(out + 1, v)


@triton.jit
def constant_is_assigned(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if n > 5:
        B = 4
    tl.store(out, B)


@triton.jit
def constants_differ(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if n > 5:
        half: tl.constexpr = B // 2
    else:
        half: tl.constexpr = B // 4
    tl.store(out, half)


@triton.jit
def one_branch_only(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if n < 5:
        v = tl.load(x)
    tl.store(out, v)


@triton.jit
def none_before(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    v = None
    if n < 5:
        v = tl.load(x)
    tl.store(out, v)


@triton.jit
def none_or_number(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if n < 5:
        v = tl.load(x)
    else:
        v = None
    tl.store(out, v)


@triton.jit
def tuples_differ(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if n > 5:
        pair = (1, 2)
    else:
        pair = (1, 2.0)
    tl.store(out, pair[1])


@triton.jit
def expression_differs(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    v = tl.load(x) if n < 5 else 0
    tl.store(out, v)


@triton.jit
def expression_of_block_and_number(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i) if n < 5 else 0.0)


@triton.jit
def helper_differs(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    tl.store(out + i, flagged(n > 5, tl.load(x + i)))


@triton.jit
def helper_differs_for_one_type(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    tl.store(out, wider(tl.load(x), n) + wider(n, n))


@triton.jit
def program_decides(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if tl.program_id(0) == 0:
        v = 1.0
    else:
        v = 1
    tl.store(out, v)


@triton.jit
def pointers_differ(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    p = x
    if n > 5:
        p = x + tl.arange(0, B)
    tl.store(out, tl.sum(tl.load(p) + tl.zeros([B], tl.float32), 0))


@triton.jit
def assigned_number_one(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    m = n
    if m > 5:
        v = 1.0
    else:
        v = 1
    tl.store(out, v)


@triton.jit
def first_assigned_in_a_loop(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    for k in range(n):
        v = tl.load(x + k)
    tl.store(out, v)


@triton.jit
def begins_in_the_first_turn(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    for k in range(n):
        if k == 0:
            v = tl.load(x + i)
        else:
            v = v + tl.load(x + i)
        tl.store(out + i, v)


@triton.jit
def loops_of_two_widths(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    s = 0.0
    if n > 5:
        for k in range(n.to(tl.int64)):
            s += tl.load(x + k)
    else:
        for k in range(n):
            s += tl.load(x + k)
    tl.store(out, s)


@triton.jit
def unrolled_loop(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    s = tl.load(x)
    for k in tl.static_range(3):
        if n > k:
            t = tl.load(x + k) + s
        else:
            t = s
        s = s + t
        s = s + tl.arange(0, B) if k == 1 else s
    tl.store(out + tl.arange(0, B), s)


@triton.jit
def return_differs(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    tl.store(out + i, early_number(tl.load(x + i), n))


@triton.jit
def third_return_differs(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    tl.store(out, early_whole(n))


@triton.jit
def return_in_a_loop(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    for k in range(n):
        if tl.load(x + k) > 3.0:
            return
    tl.store(out, 1.0)
