"""Tests of named tuples, functions among arguments, constexpr_function and names in other modules."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from mlsys_labkit.triton_trace import RefusedSourceError, TritonKernelError, compile_for, trace
from tests.triton import helper_module


class View(NamedTuple):
    pointer: Any
    shape: tuple[int, ...]


class Closure(NamedTuple):
    function: Any
    captured: tuple[Any, ...]


@triton.jit
def halved(x):
    return x * 0.5


@triton.jit
def plus_both(x, a, b):
    return x + a + tl.load(b)


@triton.jit
def viewed(pointer, shape):
    made = View(pointer=pointer, shape=shape)
    return View(made.pointer, made.shape)


@triton.jit
def through_views(x, out, closure, B: tl.constexpr):
    i = tl.arange(0, B)
    again = viewed(x.pointer, x.shape)
    inside = i < again.shape[0]
    value = closure.function(tl.load(again.pointer + i, mask=inside, other=0.0), *closure.captured)
    tl.store(out.pointer + i, value, mask=inside)


def test_named_tuples_and_functions_are_arguments() -> None:
    x, out, b = np.arange(5, dtype=np.float32), np.zeros(5, np.float32), np.full(1, 4, np.float32)
    through_views[1,](View(x, x.shape), View(out, out.shape), Closure(plus_both, (2.0, b)), B=8)
    assert out.tolist() == [6, 7, 8, 9, 10]
    through_views[1,](View(x, x.shape), View(out, out.shape), Closure(halved, ()), B=8)
    assert out.tolist() == [0, 0.5, 1, 1.5, 2]


@triton.jit
def applied(x, out, function: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, function(tl.load(x + i)))


def test_a_function_is_a_constant_of_a_launch() -> None:
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    applied[1,](x, out, halved, B=4)
    assert out.tolist() == [0, 0.5, 1, 1.5]


@triton.constexpr_function
def padded(n, unit=4):
    for _step in range(3):
        if n % unit:
            n = n + 1
    return View(n, (n, unit))


@triton.jit
def with_constants(out, N: tl.constexpr):
    size: tl.constexpr = padded(N).pointer
    tl.static_assert(size == padded(N).shape[0])
    tl.static_assert(padded(N, 5).value.shape[1] == 5 if N < 0 else padded(N, 5).shape[1] == 5)
    i = tl.arange(0, size)
    tl.store(out + i, helper_module.scaled(i) + helper_module.SCALE + math.pi)


def test_constant_functions_and_names_in_other_modules() -> None:
    out = np.zeros(8, np.float64)
    with_constants[1,](out, N=6)
    np.testing.assert_allclose(out, 2 * np.arange(8) + 3 + math.pi, rtol=1e-6)
    assert "st.global" in compile_for(with_constants, "sm_90", out, N=6).ptx


@triton.jit
def types_of_constants(x, pair, N: tl.constexpr):
    tl.static_assert(N.value == 3)
    tl.static_assert(N.type == tl.constexpr_type(3))
    tl.static_assert(pair[1].type == (4).type)
    tl.static_assert(isinstance(pair[0].type, tl.constexpr_type))
    tl.static_assert(pair[2] is None)


def test_types_of_constants() -> None:
    types_of_constants[1,](np.zeros(1, np.float32), (1, tl.constexpr(4), None), N=3)


@triton.jit
def handle_of_a_block(x, out, view):
    tl.store(out, x.handle.data)


class Handles(NamedTuple):
    handle: Any
    data: Any


@triton.jit
def too_few(out):
    tl.store(out, View(out).pointer)


@triton.jit
def list_of_a_module(out):
    tl.store(out, helper_module.LIST)


@triton.jit
def missing_in_a_module(out):
    tl.store(out, helper_module.missing + helper_module.__name__)


@triton.jit
def star_of_a_block(x, out, view):
    tl.store(*x)


@triton.constexpr_function
def reads_a_file(name):
    return open(name)


@triton.jit
def asks_for_a_file(out):
    reads_a_file("/etc/passwd")


def test_names_of_fields_open_no_block() -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(RefusedSourceError, match=r"\.(handle|data) is no attribute of a block that a kernel may use"):
        handle_of_a_block[1,](x, x, None)
    with pytest.raises(TritonKernelError, match=r"\.(handle|data) is no attribute of a block that a kernel may use"):
        handle_of_a_block[1,](x, x, Handles(1, 2))
    with pytest.raises(TritonKernelError, match="a call spreads a tuple"):
        star_of_a_block[1,](x, x, None)
    with pytest.raises(TritonKernelError, match="expected the fields pointer, shape, each once"):
        too_few[1,](x)
    with pytest.raises(RefusedSourceError, match=r"helper_module\.LIST is a list; a kernel cannot use it"):
        list_of_a_module[1,](x)
    with pytest.raises(RefusedSourceError, match=r"helper_module\.missing is not defined"):
        missing_in_a_module[1,](x)
    with pytest.raises(RefusedSourceError, match="open is not defined"):
        asks_for_a_file[1,](x)


@triton.jit
def wrong_axis(x):
    tl.store(x, tl.expand_dims(tl.arange(0, 4), 5))


@triton.jit
def false_assertion(x):
    tl.static_assert(x.dtype == tl.int8)


@triton.jit
def beyond_the_end(x):
    tl.store(x + 4, 1.0)


@triton.jit
def modulo_of_a_list(x):
    x[0] = 1


def test_errors_are_tritons_own_too() -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(triton.CompilationError, match="line") as caught:
        wrong_axis[1,](x)
    assert isinstance(caught.value, TritonKernelError)
    assert "invalid axis 5" in str(caught.value.__cause__)
    with pytest.raises(triton.compiler.errors.CompileTimeAssertionFailure):
        false_assertion[1,](x)
    with pytest.raises(triton.CompilationError) as refused:
        modulo_of_a_list[1,](x)
    assert isinstance(refused.value, RefusedSourceError)
    with pytest.raises(TritonKernelError) as failed:
        beyond_the_end[1,](x)
    assert not isinstance(failed.value, triton.TritonError)
    with pytest.raises(OverflowError):
        beyond_the_end[1,](1 << 64)


def test_text_of_a_kernel_is_the_updated_one() -> None:
    kernel = triton.JITFunction(applied.fn)
    kernel._unsafe_update_src(kernel.src.replace("function(tl.load(x + i))", "7.0"))
    out = np.zeros(4, np.float32)
    kernel[1,](out, out, None, B=4)
    assert out.tolist() == [7] * 4


def bare(value):
    return value.value if isinstance(value, tl.constexpr) else value


@tl.constexpr
def sum_type(dtype):
    if bare(dtype).is_int():
        return tl.int64
    return dtype


@triton.jit
def cumulated(x, out, B: tl.constexpr):
    dtype: tl.constexpr = sum_type(x.type.element_ty)
    i = tl.arange(0, B)
    tl.store(out + i, tl.cumsum(tl.load(x + i).to(dtype), 0) * (1 << 20))


def test_functions_under_constexpr_calculate_with_types() -> None:
    x, out = np.full(4, 1 << 12, np.int32), np.zeros(4, np.int64)
    cumulated[1,](x, out, B=4)
    assert out.tolist() == [(i + 1) << 32 for i in range(4)]


class FlippedView:
    """A view of a tensor from its last element on, as torch has none."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.dtype, self.shape, self.device = tensor.dtype, tensor.shape, tensor.device
        self.untyped_storage, self.element_size, self.numel = (
            tensor.untyped_storage,
            tensor.element_size,
            tensor.numel,
        )

    def data_ptr(self) -> int:
        return self._tensor.data_ptr() + (len(self._tensor) - 1) * self._tensor.element_size()

    def stride(self) -> tuple[int, ...]:
        return (-1,)


@triton.jit
def copied_by_stride(x, out, stride, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i * stride, mask=i < n), mask=i < n)


def test_views_with_negative_and_zero_strides_reach_their_storage() -> None:
    x, out = torch.arange(5.0), torch.zeros(5)
    copied_by_stride[1,](FlippedView(x), out, -1, 5, B=8)
    assert out.tolist() == [4, 3, 2, 1, 0]
    restrided = x[1:].as_strided((4,), (0,))
    copied_by_stride[1,](restrided, out, 1, 4, B=8)
    assert out.tolist() == [1, 2, 3, 4, 0]
    traced = trace(copied_by_stride)[1,](restrided, out, 1, 4, B=8)
    assert [one.kind for one in traced.findings if one.severity == "error"] == []
    with pytest.raises(TritonKernelError, match="it reads x"):
        copied_by_stride[1,](restrided, out, 1, 5, B=8)


@triton.jit
def by_width(x, out, KNOWN: tl.constexpr):
    if x.dtype.element_ty.primitive_bitwidth == 32:
        tl.store(out, 1)
    else:
        raise ValueError("Unsupported dtype", open)
    if tl.load(x) > 5 and not KNOWN:
        raise ValueError(f"{x}")


def test_a_raise_is_refused_where_its_branch_is_read() -> None:
    out = np.zeros(1, np.int32)
    by_width[1,](np.zeros(1, np.float32), out, True)
    assert out[0] == 1
    with pytest.raises(TritonKernelError, match=r"raise ValueError\(.*: the compiler reads this branch"):
        by_width[1,](np.zeros(1, np.float64), out, True)
    with pytest.raises(TritonKernelError, match=r"raise ValueError\(.*: the compiler reads this branch"):
        by_width[1,](np.zeros(1, np.float32), out, False)


@triton.jit
def sized_by_a_constant_tuple(out, GIVEN: tl.constexpr):
    sizes: tl.constexpr = (2, 3)
    tl.static_assert(sizes.type == tl.constexpr_type((2, 3)))
    tl.static_assert(GIVEN.type == tl.constexpr_type((2, 3)))
    tl.static_assert(sizes == GIVEN)
    first: tl.constexpr = sizes[0]
    tl.store(out + tl.arange(0, first), sizes[1])


def test_a_constant_tuple_has_the_type_of_a_constant() -> None:
    """Triton: ``constexpr((2, 3)).type == constexpr_type((2, 3))``."""
    out = np.zeros(2, np.int32)
    sized_by_a_constant_tuple[1,](out, (2, 3))
    assert out.tolist() == [3, 3]
