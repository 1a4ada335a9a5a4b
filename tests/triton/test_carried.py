"""Tests of what Triton's compiler refuses and the interpreter must refuse as well, or may not refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

from mlsys_labkit.triton_trace import RefusedSourceError, TritonKernelError, compile_for, trace
from mlsys_labkit.triton_trace.errors import TritonCompileError

ONE = tl.constexpr(1.0)


@triton.jit
def difference(a, b):
    return a - b


@triton.jit
def times(a, factor: tl.constexpr = ONE) -> tl.tensor:
    return a * factor


@triton.jit
def number_becomes_block(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    s = 0.0
    for _ in range(n):
        s += tl.load(x + i)
    tl.store(out + i, s)


@triton.jit
def whole_becomes_float(x, out, n, B: tl.constexpr):
    s = 0
    for k in tl.range(n):
        s += tl.load(x + k)
    tl.store(out, s)


@triton.jit
def half_becomes_float(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    s = tl.zeros([B], tl.float16)
    k = 0
    while k < n:
        s = s + tl.load(x + i)
        k += 1
    tl.store(out + i, s)


@triton.jit
def block_becomes_number(x, out, n, B: tl.constexpr):
    s = tl.zeros([B], tl.float32)
    for k in range(n):
        for j in range(n):
            s = tl.sum(s, 0) + tl.load(x + k + j)
    tl.store(out, tl.sum(s, 0))


@triton.jit
def none_becomes_number(x, out, n, B: tl.constexpr):
    s = None
    for k in range(n):
        s = tl.load(x + k)
    tl.store(out, s)


@triton.jit
def one_of_two_changes(x, out, n, B: tl.constexpr):
    k, s = 0, 0.0
    for _ in range(n):
        k, s = k + 0.5, s + tl.load(x)
    tl.store(out, s + k)


@triton.jit
def constant_changes(x, out, n, B: tl.constexpr):
    for _ in range(n):
        B = B + 1
    tl.store(out, B)


@triton.jit
def tuple_is_no_shape(x, out, n, B: tl.constexpr):
    rows, columns = B // 2, 2
    tl.store(out, tl.sum(tl.zeros([rows, columns], tl.float32)))


@triton.jit
def right(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    s = tl.zeros([B], tl.float32)
    m, total = tl.full([B], -float("inf"), tl.float32), 0.0
    pointers = x + i
    for k in range(n):
        value = tl.load(pointers)  # first assigned in the loop
        s, m = s + value, tl.maximum(m, value)
        pointers += 0 * k
        total = total * 0.5 + tl.sum(value, 0)
        for j in range(k):
            value = value + j
    last = total
    for _ in tl.static_range(2):
        last = last + s  # unrolled: types may change
    tl.store(out + i, last)


@triton.jit
def words(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    parts = (min(n, 5), max(n, 5), 2)
    v = difference(tl.load(x + i), times(1.0))
    if isinstance(n, tl.constexpr):
        v += 7.0
    for _ in range(len(parts)):
        v += int(2.5) + float("1")
    tl.store(out + i, v, mask=i < min(parts[0] + parts[1], B))


@triton.jit
def python_abs(x, out, n, B: tl.constexpr):
    tl.store(out, abs(tl.load(x)))


@triton.jit
def indexed(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    out[i] = x[i] + 1.0


@triton.jit
def indexed_load(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, x[i])


@triton.jit
def indexed_block(x, out, n, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.store(out, v[0])


REFUSED = {
    number_becomes_block: r"s is one tl.float32 before .* shape \[8\] of tl.float32 .* as tl.zeros\(\[8\], ",
    whole_becomes_float: r"begin with tl\.float32, or convert in the loop: \.to\(tl\.int32\)",
    half_becomes_float: r"begin with tl\.float32, or convert in the loop: \.to\(tl\.float16\)",
    block_becomes_number: r"let s keep its shape in the loop",
    none_becomes_number: r"s is a NoneType before the loop",
    one_of_two_changes: r"k is one tl\.int32 before the loop and one tl\.float32 after a turn",
    constant_changes: r"B is a constant of the compiler, and a loop cannot change it",
    tuple_is_no_shape: r"must have type `constexpr\[int\]`",
    python_abs: r"Triton does not compile Python's abs: write tl\.abs\(x\)",
    indexed: r"a pointer has no \[\]; store with tl\.store\(out \+ i, value, mask=\.\.\.\), and load with tl\.load",
    indexed_load: r"a pointer has no \[\]; load with tl\.load",
    indexed_block: r"a block has \[\] for new axes only",
}


def launch(kernel: Any, how: Any) -> Any:
    return how(kernel)(np.ones(64, np.float32), np.zeros(64, np.float32), 3, B=8)


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda kernel: kernel.__name__)
def test_interpreter_refuses_by_line(kernel: Any) -> None:
    with pytest.raises((TritonKernelError, RefusedSourceError), match=REFUSED[kernel]) as caught:
        launch(kernel, lambda one: trace(one)[1,])
    assert str(caught.value).startswith("test_carried.py line ")
    assert not isinstance(caught.value, SyntaxError)


@pytest.mark.parametrize("kernel", [right, words], ids=lambda kernel: kernel.__name__)
def test_interpreter_runs_what_triton_compiles(kernel: Any) -> None:
    assert launch(kernel, lambda one: trace(one)[1,]).findings is not None
    compiled = launch(kernel, lambda one: lambda *args, **meta: compile_for(one, "sm_90", *args, **meta))
    assert compiled.registers


@pytest.mark.soak
@pytest.mark.parametrize("kernel", REFUSED, ids=lambda kernel: kernel.__name__)
def test_compiler_refuses_what_the_interpreter_refuses(kernel: Any) -> None:
    with pytest.raises((TritonCompileError, RefusedSourceError)):
        launch(kernel, lambda one: lambda *args, **meta: compile_for(one, "sm_90", *args, **meta))


# --- narrow offsets --------------------------------------------------------------------------------------------------


@triton.jit
def narrow(x, out, n, B: tl.constexpr, DTYPE: tl.constexpr):
    i = tl.program_id(0).to(DTYPE) * B + tl.arange(0, B).to(DTYPE)
    inside = i.to(tl.int32)[:, None] < n
    tl.store(out + i.to(tl.int64)[:, None], 1.0, mask=inside & (i >= 0)[:, None] | (n < 0))


@triton.jit
def hashed(x, out, n, B: tl.constexpr, DTYPE: tl.constexpr):
    i = (tl.arange(0, B).to(DTYPE) * 31 + 7) & 63
    tl.store(out + i, 1.0)


@triton.jit
def packed(x, out, n, B: tl.constexpr, DTYPE: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, ((i.to(DTYPE) * 16) >> 4).to(tl.float32))


def kinds(kernel: Any, programs: int, n: int, dtype: Any) -> list[str]:
    out = np.zeros(400, np.float32)
    found = trace(kernel)[programs,](out, out, n, B=64, DTYPE=dtype).findings
    return [one.kind for one in found if one.severity == "error"]


def test_offset_that_overflows_is_an_error_of_its_own() -> None:
    assert kinds(narrow, 2, 100, tl.int8) == []  # 127 is the last number of int8
    assert kinds(narrow, 3, -1, tl.int8)[0] == "integer_overflow"
    assert kinds(narrow, 3, 400, tl.int8) == []  # masked off
    assert kinds(narrow, 3, 400, tl.int16) == []
    assert kinds(narrow, 600, -1, tl.int16)[0] == "integer_overflow"


def test_overflow_that_no_address_is_made_of_is_no_error() -> None:
    assert kinds(hashed, 1, 0, tl.int8) == []
    assert kinds(packed, 1, 0, tl.int8) == []


def test_overflow_names_the_number_that_does_not_fit() -> None:
    out = np.zeros(400, np.float32)
    found = trace(narrow)[3,](out, out, -1, B=64, DTYPE=tl.int8).findings[0]
    assert "overflowed int8 on the way: 128 does not fit (64 elements in all; compute offsets in" in found.message
    assert found.program == (2, 0, 0)
    with pytest.raises(TritonKernelError, match=r"it uses an offset that overflowed int8"):
        narrow[3,](out, out, -1, B=64, DTYPE=tl.int8)
