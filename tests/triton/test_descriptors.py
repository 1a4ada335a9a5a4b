"""Tests of tensor descriptors, scaled dot products and other parts of the language that the tutorials use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from mlsys_labkit.formats import FORMATS
from mlsys_labkit.triton_trace import trace
from mlsys_labkit.triton_trace.errors import RefusedSourceError, TritonKernelError


@triton.jit
def gathered(x, out, rows, height, width, stride, ONE: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=(height, width), strides=(stride, ONE), block_shape=(1, N))
    target = tl.make_tensor_descriptor(out, [8, N], [N, 1], [1, N])
    chosen = tl.load(rows + tl.arange(0, 8))
    block = source.gather(chosen, 4)
    target.scatter(block, tl.arange(0, 8), 0)


def test_descriptors_gather_and_scatter_rows() -> None:
    """Rows and columns outside the matrix are zeros, as TMA fills them."""
    x = np.arange(120, dtype=np.float32).reshape(10, 12)[:, :8]
    rows = np.int32([3, 3, -1, 9, 10, 0, 2, 5])
    out = np.ones((8, 8), np.float32)
    gathered[1,](x, out, rows, 10, 8, 12, ONE=1, N=8)
    wanted = np.zeros((8, 8), np.float32)
    for at, row in enumerate(rows):
        if 0 <= row < 10:
            wanted[at, :4] = x[row, 4:]
    np.testing.assert_array_equal(out, wanted)


@triton.jit
def copied(x, out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), tl.reshape(x.load([0, 0]), (N,)))


@pytest.mark.skipif("round_f32_to_tf32" not in TensorDescriptor.__annotations__, reason="Triton before 3.7")
def test_descriptors_round_to_tf32() -> None:
    x = torch.randn((1, 16), generator=torch.Generator().manual_seed(0))
    x[0, :2] = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11])  # ties
    x[0, 2] = torch.inf
    out = torch.empty(16)
    copied[1,](TensorDescriptor.from_tensor(x, [1, 16], round_f32_to_tf32=True), out, 16)
    np.testing.assert_array_equal(out[:3], [1, 1 + 2**-9, np.inf])
    np.testing.assert_array_equal(out[3:], FORMATS["tf32"].round(x[0, 3:].numpy()))


@triton.jit
def walked(a, b, c, M, N, K, SIDE: tl.constexpr):
    across = tl.cdiv(N, SIDE)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, SIDE) * across, tl.num_programs(0), flatten=True):
        i, j = tile // across * SIDE, tile % across * SIDE
        sums = tl.zeros((SIDE, SIDE), tl.float32)
        for k in range(0, K, SIDE):
            sums = tl.dot(a.load([i, k]), b.load([k, j]), sums)
        c.store([i, j], sums.to(c.dtype))


def test_programs_that_walk_over_tiles_touch_only_what_their_descriptors_bound() -> None:
    generator = torch.Generator().manual_seed(4)
    a, b = torch.randn(40, 24, generator=generator).half(), torch.randn(24, 56, generator=generator).half()
    whole = torch.full((48, 64), float("nan")).half()
    c = whole[:40, :56]
    traced = trace(walked)[(5,)](
        *(TensorDescriptor.from_tensor(each, [16, 16]) for each in (a, b, c)), 40, 56, 24, SIDE=16
    )
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=2**-10, atol=1e-5)
    assert whole[40:].isnan().all()
    assert whole[:, 56:].isnan().all()
    assert not [one for one in traced.findings if one.severity == "error"]
    assert traced.work.bytes_moved >= 2 * (40 * 24 + 24 * 56 + 40 * 56)


@triton.jit
def reduced(target, x, KIND: tl.constexpr, N: tl.constexpr):
    block = tl.load(x + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :])
    getattr(target, KIND)([2, 0], block)


@pytest.mark.parametrize("kind", ["atomic_add", "atomic_min", "atomic_max", "atomic_and", "atomic_or", "atomic_xor"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32])
def test_descriptors_reduce_inside_their_bounds(kind: str, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    name = str(dtype).removeprefix("torch.")
    kept = rng.integers(0, 2**32, (6, 4), np.uint32).view(name)
    x = rng.integers(0, 2**32, (4, 4), np.uint32).view(name)
    target = torch.from_numpy(kept.copy())
    reduced[1,](TensorDescriptor.from_tensor(target[:5], [4, 4]), x, KIND=kind, N=4)
    operation = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}
    wanted = kept.copy()
    wanted[2:5] = operation.get(kind[7:], np.bitwise_xor)(kept[2:5], x[:3])  # the array of 5 rows has no sixth
    np.testing.assert_array_equal(target.numpy(), wanted)


@triton.jit
def with_run_time_strides(x, out, height, width, row, column, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [height, width], [row, column], [N, N])
    tl.store(out + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :], source.load([0, 0]))


def test_last_stride_may_be_an_argument_of_value_1() -> None:
    x, out = np.arange(32, dtype=np.float32).reshape(4, 8), np.zeros((4, 4), np.float32)
    with_run_time_strides[1,](x, out, 4, 8, 8, 1, N=4)
    np.testing.assert_array_equal(out, x[:, :4])
    with pytest.raises(TritonKernelError, match="last dim must be 1"):
        with_run_time_strides[1,](x, out, 4, 8, 8, 2, N=4)


@triton.jit
def scaled_product(a, a_scale, b, b_scale, out, FORM_A: tl.constexpr, FORM_B: tl.constexpr, AK: tl.constexpr,
                   BK: tl.constexpr, K: tl.constexpr):  # fmt: skip
    m, n, groups = tl.arange(0, 16), tl.arange(0, 16), tl.arange(0, K // 32)
    left = tl.load(a + m[:, None] * AK + tl.arange(0, AK)[None, :])
    right = tl.load(b + tl.arange(0, BK)[:, None] * 16 + n[None, :])
    left_scale = tl.load(a_scale + m[:, None] * (K // 32) + groups[None, :])
    right_scale = tl.load(b_scale + n[:, None] * (K // 32) + groups[None, :])
    product = tl.dot_scaled(left, left_scale, FORM_A, right, right_scale, FORM_B)
    tl.store(out + m[:, None] * 16 + n[None, :], product)


@pytest.mark.parametrize("forms", [("e2m1", "e4m3"), ("e4m3", "e2m1"), ("e5m2", "e2m1"), ("e2m1", "e2m1")])
def test_scaled_dot_multiplies_decoded_elements_by_powers_of_two(forms: tuple[str, str]) -> None:
    rng, k = np.random.default_rng(4), 64
    elements, stored = [], []
    for at, form in enumerate(forms):
        table = FORMATS[{"e2m1": "fp4_e2m1", "e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2"}[form]].values()  # type: ignore[union-attr]
        codes = rng.integers(0, 16 if form == "e2m1" else 0x70, (k, 16)).astype(np.uint8)  # k first; no NaN
        elements.append(table[codes])
        packed = codes[0::2] | codes[1::2] << 4 if form == "e2m1" else codes
        stored.append(np.ascontiguousarray(packed.T if at == 0 else packed))
    scales = [rng.integers(120, 135, (16, k // 32)).astype(np.uint8) for _ in forms]
    weights = [np.repeat(2.0 ** (scale.astype(np.float64) - 127), 32, axis=1) for scale in scales]
    out = np.zeros((16, 16), np.float32)
    given = [torch.from_numpy(one) for one in stored]
    scaled_product[1,](given[0], scales[0], given[1], scales[1], out, *forms, stored[0].shape[1], stored[1].shape[0], k)
    wanted = (elements[0].T * weights[0]) @ (elements[1] * weights[1].T)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@triton.jit
def divided(a, b):
    if b == 0:
        return a, 0
    return a // b, a % b


@triton.jit
def by_element(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    quotient, rest = tl.map_elementwise(divided, tl.load(x + i), tl.load(y + i))
    tl.store(out + i, quotient)
    tl.store(out + N + i, rest)


def test_map_elementwise_calls_a_function_of_scalars() -> None:
    x, y = np.int32([7, 8, 9, 11]), np.int32([2, 0, 4, 3])
    out = np.zeros(8, np.int32)
    by_element[1,](x, y, out, N=4)
    assert out.tolist() == [3, 8, 2, 3, 1, 0, 1, 2]


@triton.jit
def members(x, out, N: tl.constexpr, NAME: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    one = tl.sum(v, keep_dims=True).item()
    tl.static_assert(isinstance(one, tl.tensor))
    tl.static_assert(hasattr(v, "dtype"))
    tl.store(out + tl.arange(0, N), getattr(tl, NAME)(v, one) + v.numel)
    parts = tl.tuple([part + 1 for part in (1, 2)])
    tl.store(out + parts[0], parts[1], mask=v.to(tl.pi32_t).item() > 0 if N == 1 else False)


def test_members_of_blocks_and_names_by_getattr() -> None:
    x, out = np.int32([1, 100, 7, 3]), np.zeros(4, np.int32)
    members[1,](x, out, N=4, NAME="maximum")
    assert out.tolist() == [115] * 4
    with pytest.raises(TritonKernelError, match="getattr: __class__ is no attribute that a kernel may use"):
        members[1,](x, out, N=4, NAME="__class__")


@triton.jit
def through_dunder(x, NAME: tl.constexpr):
    tl.store(x, getattr(x, "__class__"))  # noqa: B009


def test_getattr_opens_no_private_names() -> None:
    with pytest.raises((TritonKernelError, RefusedSourceError), match="__class__"):
        trace(through_dunder)[1,](np.zeros(1, np.float32), NAME="x")


@triton.jit
def one_descriptor_per_matrix(x, out, count, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [N, N], [N, 1], [N, N])
    total = tl.zeros((N, N), tl.float32)
    for step in range(2 * count):
        if step % 2 == 0:
            source = tl.make_tensor_descriptor(x + step // 2 * N * N, [N, N], [N, 1], [N, N])
        total += source.load([0, 0])
    tl.store(out + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :], total)


def test_a_branch_may_replace_a_descriptor() -> None:
    x, out = np.arange(48, dtype=np.float32).reshape(3, 4, 4), np.zeros((4, 4), np.float32)
    one_descriptor_per_matrix[1,](x, out, 3, N=4)
    np.testing.assert_array_equal(out, 2 * x.sum(0))
