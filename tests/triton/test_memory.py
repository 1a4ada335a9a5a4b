"""Tests of the arrays of interpreted kernels: stored values, shared memory, and accesses outside every array."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from mlsys_labkit.triton_trace.errors import TritonArgumentError, TritonKernelError
from mlsys_labkit.triton_trace.launch.launcher import reachable
from mlsys_labkit.triton_trace.raw_accesses import trace_raw


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def double_unmasked(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(out + i, value * 2)


@triton.jit
def double_strided(x, out, x_stride, out_stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i * out_stride, tl.load(x + i * x_stride) * 2)


def line_of(kernel: Any, text: str) -> int:
    """Return the line of this file that holds ``text``, inside ``kernel``."""
    first = kernel.fn.__code__.co_firstlineno
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if number >= first and text in line)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
def test_stored_values_reach_the_callers_array(n: int) -> None:
    x, out = torch.randn(n), torch.full((n,), 7.0)
    double[triton.cdiv(n, 64),](x, out, n, BLOCK=64)
    assert torch.equal(out, 2 * x)


def test_views_keep_their_strides() -> None:
    matrix = torch.arange(64.0).reshape(8, 8)
    out = torch.zeros(8, 8)
    double_strided[1,](matrix[:, 3], out[:, 5], 8, 8, BLOCK=8)
    expected = torch.zeros(8, 8)
    expected[:, 5] = 2 * matrix[:, 3]
    assert torch.equal(out, expected)


def test_negative_strides_of_numpy_views() -> None:
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    double_strided[1,](x[::-1], out, -1, 1, BLOCK=8)
    assert out.tolist() == (2 * x[::-1]).tolist()


def test_overlapping_arguments_share_memory() -> None:
    data = np.arange(16, dtype=np.int32)
    double[1,](data[:8], data[8:], 8, BLOCK=8)
    assert data.tolist() == [*range(8), *range(0, 16, 2)]
    both = np.arange(8, dtype=np.int32)
    double[1,](both, both, 8, BLOCK=8)
    assert both.tolist() == list(range(0, 16, 2))


@triton.jit
def write_then_read(a, b, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(a + i, i)
    tl.store(out + i, tl.load(b + i))


def test_store_through_one_argument_is_loaded_through_another() -> None:
    data, out = np.full(12, -1, np.int32), np.zeros(8, np.int32)
    write_then_read[1,](data[:8], data[4:], out, n=8)
    assert out.tolist() == [4, 5, 6, 7, -1, -1, -1, -1]
    assert data.tolist() == [*range(8), -1, -1, -1, -1]


def test_arrays_without_stores_stay_unchanged() -> None:
    x = torch.ones(4)
    x.requires_grad_(True)
    version = x._version
    double[1,](x.detach(), torch.zeros(4), 4, BLOCK=4)
    assert x._version == version


def test_load_past_the_end_names_line_element_and_program() -> None:
    x, out = torch.zeros(100), torch.zeros(128)
    with pytest.raises(TritonKernelError) as caught:
        double_unmasked[2,](x, out, BLOCK=64)
    line = line_of(double_unmasked, "value = tl.load(x + i)")
    assert str(caught.value).startswith(
        f"test_memory.py line {line}: it reads x[100], and x has 100 elements, and 27 more"
    )
    assert caught.value.program == (1, 0, 0)
    assert caught.value.line == line


def test_store_before_the_start_is_refused_beside_another_array() -> None:
    """Two arrays lie side by side in memory: an access past the first must not count as one of the second."""
    data = np.zeros(16, np.float32)
    with pytest.raises(TritonKernelError, match=r"it writes out\[8\], and out has 8 elements"):
        double_unmasked[1,](np.zeros(16, np.float32), data[:8], BLOCK=16)
    with pytest.raises(TritonKernelError, match=r"it writes out\[-1\]"):
        double_strided[1,](np.zeros(16, np.float32), data, 1, -1, BLOCK=2)
    assert not data.any()


@triton.jit
def far_away(x, out, offset, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + offset + i))


@triton.jit
def first_word(x, out):
    tl.store(out, tl.load(x.to(tl.pointer_type(tl.int32))))


@pytest.mark.parametrize("offset", [2**31 - 8, -(2**31), 2**40, -(2**40), 2**61])
def test_pointers_outside_arrays_are_never_followed(offset: int) -> None:
    with pytest.raises(TritonKernelError, match="it reads"):
        far_away[1,](np.zeros(8, np.float32), np.zeros(8, np.float32), offset, BLOCK=8)


def test_access_partly_outside_an_array_is_refused() -> None:
    with pytest.raises(TritonKernelError, match=r"it reads x\[8\], and x has 8 elements; give it a mask"):
        far_away[1,](np.zeros(8, np.float32), np.zeros(8, np.float32), 1, BLOCK=8)
    with pytest.raises(TritonKernelError, match="it reads"):
        first_word[1,](np.zeros(3, np.int8), np.zeros(1, np.int32))


def test_recorded_launch_continues_after_accesses_outside() -> None:
    x, out = np.ones(6, np.float32), np.zeros(8, np.float32)
    load, store = trace_raw(double_unmasked)[(1,)](x, out, BLOCK=8)
    assert load.outside is not None
    assert load.outside.tolist() == [False] * 6 + [True] * 2
    assert store.outside is None
    assert out[:6].tolist() == [2.0] * 6
    assert np.isnan(out[6:]).all()  # poison


def test_addresses_are_aligned_as_on_a_gpu() -> None:
    x, out = np.ones(65, np.float32), np.zeros(64, np.float32)
    load, store = trace_raw(double_unmasked)[(1,)](x[1:], out, BLOCK=64)
    assert load.addresses[0] % 256 == 4  # a view one element into an aligned array
    assert store.addresses[0] % 256 == 0
    assert (np.diff(load.addresses.astype(np.int64)) == 4).all()
    assert load.kind == "load"
    assert load.mask is None
    assert store.value is not None
    assert store.value.tolist() == [2.0] * 64


def test_read_only_array_refuses_stores() -> None:
    x = np.ones(8, np.float32)
    x.flags.writeable = False
    out = np.zeros(8, np.float32)
    double[1,](x, out, 8, BLOCK=8)
    assert out.tolist() == [2.0] * 8
    with pytest.raises(TritonKernelError, match="it stores to out, which is read-only"):
        double[1,](out, x, 8, BLOCK=8)


@triton.jit
def misaligned(x, out):
    bytes_of_x = x.to(tl.pointer_type(tl.int8))
    tl.store(out, tl.load((bytes_of_x + 2).to(tl.pointer_type(tl.float32))))


def test_misaligned_access_is_refused() -> None:
    with pytest.raises(TritonKernelError, match="no multiple of 4"):
        misaligned[1,](np.zeros(8, np.float32), np.zeros(8, np.float32))


@triton.jit
def filled(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=-1.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_masked_off_elements_read_other(dtype: torch.dtype) -> None:
    out = torch.zeros(8, dtype=dtype)
    filled[1,](torch.ones(3, dtype=dtype), out, 3, BLOCK=8)
    assert out.tolist() == [1.0] * 3 + [-1.0] * 5


def test_empty_array_and_empty_grid_run() -> None:
    out = np.zeros(4, np.float32)
    double[1,](np.zeros(0, np.float32), out, 0, BLOCK=4)
    double[0,](np.ones(4, np.float32), out, 4, BLOCK=4)
    assert not out.any()


@triton.jit
def atomics(x, where, out, old, n: tl.constexpr):
    i = tl.arange(0, n)
    at = tl.load(where + i)
    tl.store(old + i, tl.atomic_add(out + at, tl.load(x + i)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float16, torch.bfloat16])
def test_atomic_adds_to_one_address_are_serialised(dtype: torch.dtype) -> None:
    x = torch.arange(1, 9).to(dtype)
    where = torch.tensor([0, 1, 0, 0, 2, 1, 0, 3], dtype=torch.int32)
    out, old = torch.zeros(4, dtype=dtype), torch.zeros(8, dtype=dtype)
    atomics[1,](x, where, out, old, n=8)
    assert out.tolist() == [15.0, 8.0, 5.0, 8.0]
    assert old.tolist() == [0.0, 0.0, 1.0, 4.0, 0.0, 2.0, 8.0, 0.0]


@triton.jit
def every_atomic(out, values, n: tl.constexpr):
    i = tl.arange(0, n)
    value = tl.load(values + i)
    tl.atomic_max(out + 0 * n + i, value)
    tl.atomic_min(out + 1 * n + i, value)
    tl.atomic_and(out + 2 * n + i, value)
    tl.atomic_or(out + 3 * n + i, value)
    tl.atomic_xor(out + 4 * n + i, value)
    tl.atomic_xchg(out + 5 * n + i, value)
    tl.atomic_cas(out + 6 * n + i, tl.full((n,), 5, tl.int32), value)


def test_atomics_compute_their_operation() -> None:
    values = np.array([-7, 3, 5, 12], np.int32)
    out = np.full((7, 4), 5, np.int32)
    out[6, 1] = 6
    every_atomic[1,](out, values, n=4)
    five = np.full(4, 5, np.int32)
    expected = [np.maximum(five, values), np.minimum(five, values), five & values, five | values, five ^ values, values]
    assert np.array_equal(out[:6], expected)
    assert out[6].tolist() == [-7, 6, 5, 12]


@triton.jit
def float_extremes(out, values, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.atomic_max(out + i, tl.load(values + i))
    tl.atomic_min(out + n + i, tl.load(values + i))


def test_atomic_extremes_of_floats() -> None:
    values = np.array([-7.5, 3.0, -0.5, 12.0], np.float32)
    out = np.array([[-1.0, 2.0, -3.0, 4.0]] * 2, np.float32)
    before = out.copy()
    float_extremes[1,](out, values, n=4)
    assert np.array_equal(out, [np.maximum(before[0], values), np.minimum(before[1], values)])


@triton.jit
def count_up(counter, seen):
    turn = tl.atomic_add(counter, 1)
    tl.store(seen + turn, tl.program_id(0) + 10 * tl.program_id(1) + 100 * tl.program_id(2))


@pytest.mark.parametrize("order", ["ascending", "reversed", 7])
def test_programs_run_in_requested_order(order: Any) -> None:
    """Ascending order is a GPU's: x fastest."""
    counter, seen = np.zeros(1, np.int32), np.zeros(24, np.int32)
    trace_raw(count_up, order=order)[(4, 3, 2)](counter, seen)
    ascending = [x + 10 * y + 100 * z for z in range(2) for y in range(3) for x in range(4)]
    if order == "ascending":
        assert seen.tolist() == ascending
    elif order == "reversed":
        assert seen.tolist() == ascending[::-1]
    else:
        assert sorted(seen.tolist()) == sorted(ascending)
        assert seen.tolist() != ascending


@triton.jit
def through_descriptor(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [M, N])
    top, left = tl.program_id(0) * M, tl.program_id(1) * N
    target.store([top, left], source.load([top, left]) + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensor_descriptors_mask_their_edges(dtype: torch.dtype) -> None:
    x = torch.arange(7 * 24).reshape(7, 24).to(dtype)
    out = torch.zeros_like(x)
    through_descriptor[2, 2](x, out, 7, 24, M=4, N=16)
    assert torch.equal(out, x + 1)
    accesses = trace_raw(through_descriptor)[(2, 2)](x, out, 7, 24, M=4, N=16)
    assert sum(int(one.mask.sum()) for one in accesses if one.kind == "load" and one.mask is not None) == 7 * 24


@triton.jit
def host_descriptor(source, out, n: tl.constexpr):
    block = source.load([0, 0])
    tl.store(out + tl.arange(0, n)[:, None] * n + tl.arange(0, n)[None, :], block)


def test_descriptors_made_on_the_host() -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, out = torch.arange(64.0).reshape(8, 8), torch.zeros(8, 8)
    host_descriptor[1,](TensorDescriptor.from_tensor(x, [8, 8]), out, n=8)
    assert torch.equal(out, x)


@triton.jit
def through_block_pointer(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    block = tl.make_block_ptr(x, (rows, columns), (columns, 1), (0, 0), (M, N), (1, 0))
    target = tl.make_block_ptr(out, (rows, columns), (columns, 1), (0, 0), (M, N), (1, 0))
    block = tl.advance(block, (0, N))
    target = tl.advance(target, (0, N))
    tl.store(target, tl.load(block, boundary_check=(0, 1), padding_option="zero") + 1, boundary_check=(0, 1))


def test_block_pointers_mask_checked_axes() -> None:
    x, out = torch.arange(15.0).reshape(3, 5), torch.zeros(3, 5)
    if triton.__version__ >= "3.9":
        with pytest.raises(TritonKernelError, match="removed"):
            through_block_pointer[1,](x, out, 3, 5, M=4, N=4)
        return
    through_block_pointer[1,](x, out, 3, 5, M=4, N=4)
    assert out[:, 4].tolist() == (x[:, 4] + 1).tolist()
    assert not out[:, :4].any()


@pytest.mark.parametrize("value", [object(), [1, 2], {"a": 1}, np.zeros(3, np.complex64), np.zeros(2, "S3")])
def test_unsupported_arguments_are_refused(value: Any) -> None:
    with pytest.raises(TritonArgumentError, match=re.compile("^x: ")):
        double[1,](value, np.zeros(4, np.float32), 4, BLOCK=4)


@triton.jit
def through_pointers(pointers, sizes, out, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    array = tl.load(pointers + group).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, BLOCK)
    block = tl.load(array + i, mask=i < tl.load(sizes + group), other=0.0)
    tl.store(out + group, tl.sum(block))


def test_reachable_arrays_are_read_through_pointers() -> None:
    a, b = torch.arange(5.0), torch.arange(7.0)
    pointers, sizes = torch.tensor([a.data_ptr(), b.data_ptr()]), torch.tensor([5, 7])
    out = torch.zeros(2)
    with reachable(a, b):
        through_pointers[2,](pointers, sizes, out, BLOCK=8)
    assert out.tolist() == [10.0, 21.0]
    with reachable(a, b), pytest.raises(TritonKernelError, match=r"it reads reachable\[0\]\[5\]"):
        through_pointers[2,](pointers, sizes + 1, out, BLOCK=8)
    one, two = np.arange(5, dtype=np.float32), np.arange(7, dtype=np.float32)  # which Python does not list
    of_numpy = torch.tensor([one.ctypes.data, two.ctypes.data])
    with pytest.raises(TritonKernelError, match=r"of no argument; pointers in an array need reachable\(arrays\)"):
        through_pointers[2,](of_numpy, sizes, out, BLOCK=8)
