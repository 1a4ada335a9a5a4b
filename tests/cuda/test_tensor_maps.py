"""Tensor maps: boxes that copies bring and take, against numpy, and the rules that a map has to keep."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from tests.cuda.program_helpers import run

SOURCE = (Path(__file__).with_name("hopper") / "tensor_maps.cu").read_text()
TYPES = [
    np.uint8, np.uint16, np.uint32, np.int32, np.uint64, np.int64, np.float16, np.float32, np.float64,
    ml_dtypes.bfloat16, *[np.float32] * 4,
]  # fmt: skip
U8, U16, U32, S32, F16, F32, BF16 = 0, 1, 2, 3, 6, 7, 9
LOAD = -1


class Axis(NamedTuple):
    """One dimension of a tensor and of a box; the innermost comes first. ``gap``: bytes up to the next index."""

    size: int
    box: int
    at: int = 0
    step: int = 1
    gap: int = 0


def copied(what: int, kind: int, axes: list[Axis], swizzle: int = 0, fill: int = 0, **options: bool) -> np.ndarray:
    numbers = [number for axis in axes for number in (axis.size, axis.box, axis.step, axis.at, axis.gap)]
    result = run(SOURCE, what, kind, swizzle, fill, *numbers, **options)
    assert result.returncode == 0, result
    assert result.findings == ()
    return np.frombuffer(bytes.fromhex(result.stdout), np.uint8)


def memory(count: int) -> np.ndarray:
    numbers = np.arange(count)
    return (numbers * 37 ^ numbers >> 8).astype(np.uint8)


def places(kind: int, axes: list[Axis]) -> np.ndarray:
    """Return, for each element of the box, its first byte in the tensor, -1 outside; the innermost axis is last."""
    strides, size = [], np.dtype(TYPES[kind]).itemsize
    for axis in axes:
        strides.append(size)
        size = size * axis.size + axis.gap
    rows = [axis.at + np.arange(0, axis.box, axis.step if i else 1) for i, axis in enumerate(axes)]
    grid = np.meshgrid(*rows[::-1], indexing="ij")[::-1]
    inside = np.all([(g >= 0) & (g < axis.size) for g, axis in zip(grid, axes, strict=True)], axis=0)
    return np.where(inside, sum(g * stride for g, stride in zip(grid, strides, strict=True)), -1)


def in_shared(box: np.ndarray, swizzle: int) -> np.ndarray:
    """Return where each byte of a box lies: address bits 4 to 6 are XORed with bits 7 to 9 (CUDA programming guide)."""
    row_bytes = box.shape[-1]
    pitch = 16 << swizzle if swizzle else row_bytes
    plain = np.arange(box.size) // row_bytes * pitch + np.arange(box.size) % row_bytes
    return plain ^ (plain >> 7 & (1 << swizzle) - 1) << 4


def box_bytes(kind: int, axes: list[Axis], fill: int = 0) -> np.ndarray:
    item = np.dtype(TYPES[kind]).itemsize
    first = places(kind, axes)
    nan = {F16: [0xFF, 0x7F], F32: [0xFF, 0xFF, 0xFF, 0x7F], BF16: [0xFF, 0x7F]}
    outside = np.array(nan[kind] if fill else [0] * item, np.uint8)
    wanted = memory(1 << 16)[first[..., None] + np.arange(item)]
    return np.where(first[..., None] < 0, outside, wanted).reshape(*first.shape[:-1], -1)


PAGE = [Axis(100, 16, at=90, gap=8), Axis(8, 4, at=6)]  # half of it is outside
LOADS = {
    "a row": (U32, [Axis(64, 16, at=8)], 0, 0),
    "before its beginning": (S32, [Axis(64, 16, at=-5), Axis(9, 3, at=-1)], 0, 0),
    "beyond its end": (U16, PAGE, 0, 0),
    "beyond its end, with NaN": (BF16, PAGE, 0, 1),
    "outside altogether": (F32, [Axis(16, 8, at=40), Axis(4, 2, at=9)], 0, 1),
    "at an odd place": (F16, [Axis(64, 8, at=3), Axis(4, 4)], 0, 0),
    "swizzle of 32 bytes": (F16, [Axis(48, 16, at=16), Axis(32, 32)], 1, 0),
    "swizzle of 64 bytes": (F32, [Axis(48, 16, at=16), Axis(32, 20, at=2)], 2, 0),
    "swizzle of 128 bytes": (BF16, [Axis(128, 64, at=64), Axis(40, 33, at=3)], 3, 0),
    "swizzle in three dimensions": (BF16, [Axis(64, 64), Axis(20, 10, at=12), Axis(3, 2, at=1)], 3, 0),
    "every second row": (U8, [Axis(32, 16, at=8), Axis(12, 7, at=1, step=2), Axis(6, 4, at=2, step=3)], 0, 0),
    "four dimensions": (S32, [Axis(12, 4, at=2), Axis(3, 2, at=1), Axis(4, 3, at=2), Axis(3, 2)], 0, 0),
    "five dimensions": (U16, [Axis(8, 8), Axis(3, 2, at=1), Axis(2, 2), Axis(3, 2, at=2), Axis(2, 2, at=1)], 0, 0),
}


@pytest.mark.parametrize("name", LOADS)
def test_load_brings_the_box_to_where_the_swizzle_says(name: str) -> None:
    kind, axes, swizzle, fill = LOADS[name]
    box = box_bytes(kind, axes, fill)
    shared = copied(LOAD, kind, axes, swizzle, fill)
    np.testing.assert_array_equal(shared[in_shared(box, swizzle)], box.reshape(-1))


@pytest.mark.parametrize("kind", [10, 11, 12])
def test_load_flushes_and_rounds_as_the_type_says(kind: int) -> None:
    axes = [Axis(64, 64), Axis(128, 128)]
    before = box_bytes(kind, axes).view(np.uint32)
    exponent = before >> 23 & 0xFF
    subnormal = (exponent == 0) & (before << 1 != 0)
    expected = np.where(subnormal & (kind != 11), before & 0x80000000, before)
    if kind > 10:  # to nearest even, with 10 bits of fraction
        even = np.rint(expected / 8192).astype(np.uint32) * 8192
        expected = np.where(exponent == 0xFF, expected, even)
    assert subnormal.any()
    np.testing.assert_array_equal(copied(LOAD, kind, axes).view(np.uint32), expected.reshape(-1))


def test_check_finds_nothing_in_correct_copies() -> None:
    copied(LOAD, U16, PAGE, check=True)
    copied(0, U16, PAGE, check=True)


REDUCTIONS = {
    0: lambda old, new: new, 1: np.add, 2: np.minimum, 3: np.maximum, 4: np.bitwise_and, 5: np.bitwise_or,
    6: np.bitwise_xor, 7: lambda old, new: np.where(old >= new, 0, old + 1),
    8: lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
}  # fmt: skip


@pytest.mark.parametrize(("what", "kind", "swizzle"), [
    *product((0, 1, 2, 3), (S32,), (0,)), *product((4, 5, 6, 7, 8), (U32,), (0,)),
    (0, BF16, 3), (1, U8, 2), (1, BF16, 0),
])  # fmt: skip
def test_store_changes_what_lies_in_the_tensor(what: int, kind: int, swizzle: int) -> None:
    axes = [Axis(48, 16, at=38), Axis(9, 5, at=6)]
    dtype = np.dtype(TYPES[kind])
    before = memory((48 * 9) * dtype.itemsize)
    expected = before.copy()
    first = places(kind, axes)
    shape = (*first.shape[:-1], first.shape[-1] * dtype.itemsize)
    source = memory(1 << 15)[in_shared(np.empty(shape), swizzle)].view(dtype).reshape(first.shape)
    inside = first >= 0
    old = before.view(dtype)[first[inside] // dtype.itemsize]
    with np.errstate(all="ignore"):
        expected.view(dtype)[first[inside] // dtype.itemsize] = REDUCTIONS[what](old, source[inside])
    found = copied(what, kind, axes, swizzle).view(dtype)
    np.testing.assert_array_equal(found.astype(np.float64), expected.view(dtype).astype(np.float64))  # NaN is NaN


def test_profile_counts_the_sectors_of_the_rows() -> None:
    # 16 rows of 128 bytes, 128 bytes apart.
    result = run(SOURCE, LOAD, F16, 3, 0, 128, 64, 1, 0, 0, 16, 16, 1, 0, 0, profile=True)
    (profile,) = result.profiles
    lines = [one for one in profile.lines if one.space == "global" and one.op == "load"]
    assert [(one.sectors, one.ideal_sectors) for one in lines] == [(64, 64)]
    assert (profile.bulk_copies, profile.bulk_bytes_in_flight) == (1, 2048)


RULES = {
    "a stride": ([Axis(100, 16), Axis(8, 4)], U16, 0, 0, "globalStrides[0] is 200 bytes, no multiple of 16"),
    "a box": ([Axis(512, 257), Axis(8, 4)], U8, 0, 0, "boxDim[0] is 257, not 1 to 256"),
    "a row of a box": ([Axis(64, 6), Axis(8, 4)], U16, 0, 0, "has 12 bytes, no multiple of 16"),
    "a swizzle": ([Axis(128, 128), Axis(8, 4)], F16, 3, 0, "256 bytes, more than the 128 of the swizzle"),
    "a step": ([Axis(64, 16), Axis(8, 4, step=9)], U16, 0, 0, "elementStrides[1] is 9, not 1 to 8"),
    "a fill": ([Axis(64, 16)], U16, 0, 1, "oobFill asks for NaN in a tensor of integers"),
    "a rank": ([], U16, 0, 0, "tensorRank is 0, not 1 to 5"),
}


@pytest.mark.parametrize("name", RULES)
def test_map_against_a_rule_is_refused_with_the_rule(name: str) -> None:
    axes, kind, swizzle, fill, words = RULES[name]
    numbers = [number for axis in axes for number in (axis.size, axis.box, axis.step, axis.at, axis.gap)]
    result = run(SOURCE, LOAD, kind, swizzle, fill, *numbers)
    assert result.returncode == 2
    assert any(words in note for note in result.notes), result.notes
