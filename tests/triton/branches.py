"""Kernels with branches that Triton's compiler accepts.

Every kernel takes ``(x, out, n, B, FLAG=False)``. The tests launch it with float32 arrays of 64 elements, n = 3, B = 8.
"""

# ruff: noqa: RET505, SIM108 -- the forms of an if are what is tested
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def flagged(flag, x):
    if flag:
        v = 1.0
    else:
        v = x
    return v


@triton.jit
def clipped(v, n):
    if n > 5:
        v = v * 2.0
    return v


@triton.jit
def wider(v, n):
    if n > 5:
        w = v + 1.0
    else:
        w = v
    return w


@triton.jit
def early(v, n):
    if n > 3:
        return v
    return v * 2.0


@triton.jit
def early_number(v, n):
    if n > 3:
        return v
    return 0.0


@triton.jit
def same_types(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    if n > 5:
        v = tl.load(x + i)
    else:
        v = tl.zeros([B], tl.float32)
    tl.store(out + i, v)


@triton.jit
def constant_condition(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    v = 0
    if FLAG:
        v = tl.load(x + i)
    else:
        v = 2.5
    if B > 4 and not FLAG:
        w = 1
    tl.store(out + i, v + w)


@triton.jit
def constant_through_a_helper(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    tl.store(out + i, flagged(FLAG, tl.load(x + i)) + flagged(True, tl.load(x)))


@triton.jit
def number_one_is_a_constant(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    if n == 1:
        v = tl.load(x + i)
    else:
        v = 0.0
    if n > 0 and B > 4:
        w = 1
    else:
        w = 0.5
    tl.store(out + i, v + w)


@triton.jit
def number_one_through_a_helper(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    tl.store(out + i, flagged(n, tl.load(x + i)))


@triton.jit
def unused_after(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    if n > 5:
        t = tl.load(x + i)
        tl.store(out + i, t)
    if n < 5:
        t = 1
        tl.store(out + i, t)


@triton.jit
def early_return(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if tl.program_id(0) > n:
        return
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i))


@triton.jit
def return_in_both(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    if n > 5:
        v = tl.load(x + i)
        tl.store(out + i, v)
        return
    else:
        v = tl.load(x + i) * 2.0
        tl.store(out + i, v)
        return


@triton.jit
def chain(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    v = 0.0
    if n == 4:
        v = tl.load(x)
    elif n == 5:
        v = tl.load(x + 1)
    elif n == 6:
        pass
    else:
        v = v + 1.0
    tl.store(out, v)


@triton.jit
def nested(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    if n > 5:
        if n > 6:
            v = tl.load(x + i)
        else:
            v = tl.load(x + i + 1)
    else:
        v = i.to(tl.float32)
    tl.store(out + i, v)


@triton.jit
def loops_of_their_own(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    s = 0.0
    if n > 5:
        for k in range(n):
            t = tl.load(x + k)
            s += t
    else:
        for k in range(n):
            t = k + 1
            s += tl.load(x + t)
        j = n
        while j > 0:
            t = tl.load(x + tl.arange(0, B))
            s += tl.sum(t, 0)
            j -= 1
    tl.store(out, s)


@triton.jit
def in_a_loop(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    s = tl.zeros([B], tl.float32)
    for k in range(n):
        if k % 2 == 0:
            s += tl.load(x + i + k)
        else:
            v = tl.load(x + i)
            s -= v
    tl.store(out + i, s)


@triton.jit
def other_branch_goes_far(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    if n > 5:
        j = 1 << 40
        v = tl.load(x + j + i)
        tl.atomic_add(out + j + i, v)
        tl.store(out + j + i, v)
        tl.device_assert(n > 9)
        tl.device_print("never", v)
        while j > 0:
            j -= n - n
        for k in range(j):
            v += clipped(v, k)
    tl.store(out + i, v)


@triton.jit
def whole_numbers(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    k = 0
    if n > 5:
        k = 7
    else:
        k += n
    if n > 5:
        m = B
    else:
        m = n
    tl.store(out, k + m)


@triton.jit
def two_numbers_at_once(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    a, b = 0.0, 1
    if n > 5:
        a, b = tl.load(x), n
    pair = (a, b)
    if n > 6:
        pair = (a + 1.0, b)
    tl.store(out, pair[0] + pair[1])


@triton.jit
def constants_of_both(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    if n > 5:
        half: tl.constexpr = B // 2
        v = tl.sum(tl.arange(0, half), 0)
    else:
        half: tl.constexpr = B // 2
        v = half + n
    tl.store(out, v)


@triton.jit
def expression(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    v = tl.load(x) if n > 5 else 0.5
    w = 1 if FLAG else tl.load(x + i)
    u = tl.load(x + i) if n == 3 else tl.zeros([B], tl.float32)
    tl.store(out + i, v + w + u)


@triton.jit
def helper_of_two_types(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    v = clipped(tl.load(x + i), n) + clipped(tl.load(x), n) + clipped(tl.load(x).to(tl.float16), n)
    tl.store(out + i, v + wider(tl.load(x + i), n) + wider(tl.load(x), n))


@triton.jit
def pointers_of_both(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    p = x
    if n > 5:
        p = x + 4
    if n > 6:
        q = out
    else:
        q = out + 1
    tl.store(q, tl.load(p))


@triton.jit
def kept_as_it_is(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    v = tl.load(x)
    k = 1
    if n > 5:
        v = v
        k = v
    else:
        v = v
        k = v
    tl.store(out, v + k)


@triton.jit
def none_that_stays(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False, bias=None):
    v = tl.load(x)
    if bias is not None:
        v = tl.load(bias + tl.arange(0, B))
    if n > 5:
        v += 1.0
    tl.store(out, v)


@triton.jit
def two_loops_of_one_name(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    s = 0.0
    for k in range(n):
        t = tl.load(x + k)
        s += t
    for k in range(n):
        t = k + 1
        s += tl.load(x + t)
    tl.store(out, s)


@triton.jit
def while_with_branches(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    k, s, found = 0, 0.0, False
    while k < n:
        if tl.load(x + k) > 5.0:
            s += tl.load(x + k)
            k += 2
        elif FLAG:
            k = 0.5
        else:
            found = s > 1.0
            k += 1
    tl.store(out, s if found else 0.0)


@triton.jit
def helpers_that_return_early(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    i = tl.arange(0, B)
    v = early(tl.load(x + i), n) + early(n, 1.0) + early_number(tl.load(x), n)
    for k in range(n):
        v += k
    tl.store(out + i, v + k)


@triton.jit
def block_pointers(x, out, n, B: tl.constexpr, FLAG: tl.constexpr = False):
    here = tl.make_block_ptr(x, (n,), (1,), (0,), (B,), (0,))
    s = tl.zeros([B], tl.float32)
    for k in range(n):
        if k > 5:
            s += tl.load(here, boundary_check=(0,), padding_option="zero")
        here = tl.advance(here, (1,))
    s += tl.load(here, boundary_check=(0,), padding_option="zero")
    tl.store(out + tl.arange(0, B), s)


ONE = (number_one_is_a_constant, number_one_through_a_helper)  # accepted where n is 1
ACCEPTED = (
    same_types,
    constant_condition,
    constant_through_a_helper,
    unused_after,
    early_return,
    return_in_both,
    chain,
    nested,
    loops_of_their_own,
    in_a_loop,
    other_branch_goes_far,
    whole_numbers,
    two_numbers_at_once,
    constants_of_both,
    expression,
    helper_of_two_types,
    pointers_of_both,
    kept_as_it_is,
    none_that_stays,
    two_loops_of_one_name,
    while_with_branches,
    helpers_that_return_early,
    block_pointers,
)
