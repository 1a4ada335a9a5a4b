"""Tests of every code and every rounding against ml_dtypes, gfloat and numpy."""

from __future__ import annotations

import dataclasses
from typing import Any

import gfloat
import gfloat.formats as oracle
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from mlsys_labkit.formats import FORMATS, FloatFormat, FormatError

DTYPES: dict[str, Any] = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp6_e3m2": ml_dtypes.float6_e3m2fn,
    "fp6_e2m3": ml_dtypes.float6_e2m3fn,
    "fp4_e2m1": ml_dtypes.float4_e2m1fn,
    "e8m0": ml_dtypes.float8_e8m0fnu,
}
GFLOAT = {
    "tf32": dataclasses.replace(oracle.format_info_bfloat16, name="tf32", k=19, precision=11, num_high_nans=2**10 - 1),
    "fp16": oracle.format_info_binary16,
    "bf16": oracle.format_info_bfloat16,
    "fp8_e5m2": oracle.format_info_ocp_e5m2,
    "fp8_e4m3": oracle.format_info_ocp_e4m3,
    "fp6_e3m2": oracle.format_info_ocp_e3m2,
    "fp6_e2m3": oracle.format_info_ocp_e2m3,
    "fp4_e2m1": oracle.format_info_ocp_e2m1,
    "e8m0": oracle.format_info_ocp_e8m0,
}


def floats(name: str) -> FloatFormat:
    made = FORMATS[name]
    assert isinstance(made, FloatFormat)
    return made


def raw(name: str) -> npt.NDArray[Any]:
    """Return every code of the oracle's type, as that type."""
    bits = floats(name).bits
    return np.arange(1 << bits).astype(np.uint16 if bits == 16 else np.uint8).view(DTYPES[name])


@pytest.mark.parametrize("name", DTYPES)
def test_every_code_decodes_as_in_ml_dtypes(name: str) -> None:
    ours, theirs = floats(name).values(), raw(name).astype(np.float64)
    assert np.array_equal(ours, theirs, equal_nan=True)
    assert np.array_equal(np.signbit(ours[~np.isnan(ours)]), np.signbit(theirs[~np.isnan(theirs)]))


@pytest.mark.parametrize("name", [name for name in GFLOAT if name != "tf32"])
def test_every_code_decodes_as_in_gfloat(name: str) -> None:
    theirs = gfloat.decode_ndarray(GFLOAT[name], np.arange(1 << floats(name).bits))
    assert np.array_equal(floats(name).values(), theirs, equal_nan=True)


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "e8m0"])
def test_every_number_middle_and_neighbour_rounds_as_in_ml_dtypes(name: str) -> None:
    numbers = np.sort(floats(name).values()[np.isfinite(floats(name).values())])
    middles = (numbers[1:] + numbers[:-1]) / 2
    beyond = np.array([1, 1.01, 1.03, 1.07, 1.2, 1.24, 1.26, 2, 1e30]) * numbers[-1]
    exact = np.concatenate([numbers, middles, beyond, -beyond]).astype(np.float32)
    tried = np.concatenate([exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))])
    expected = tried.astype(DTYPES[name]).astype(np.float64)
    assert np.array_equal(floats(name).round(tried), expected, equal_nan=True)


@pytest.mark.parametrize("name", GFLOAT)
@given(values=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_any_number_rounds_as_in_gfloat(name: str, values: list[float]) -> None:
    if name == "e8m0":
        values = [abs(value) for value in values if abs(value) >= 2.0**-127] or [1.0]
    mode = gfloat.RoundMode.TiesToEven
    for saturate in (True,) if floats(name).specials == "none" else (False, True):
        expected = [gfloat.round_float(GFLOAT[name], value, mode, saturate) for value in values]
        assert np.array_equal(floats(name).round(values, saturate=saturate), expected, equal_nan=True)


def test_fp32_saturates_at_its_largest_number() -> None:
    largest = float(np.finfo(np.float32).max)
    stored = floats("fp32").round([3.5e38, -np.inf, np.nan], saturate=True)
    assert np.array_equal(stored, [largest, -largest, np.nan], equal_nan=True)


@given(value=st.floats(width=32))
def test_codes_equal_numpys_bits(value: float) -> None:
    if not np.isnan(value):
        for name, word in (("fp16", np.uint16), ("bf16", np.uint16)):
            with np.errstate(over="ignore"):
                expected = np.float32(value).astype(DTYPES[name]).view(word)
            assert floats(name).encode(value) == expected


@pytest.mark.parametrize("name", GFLOAT)
def test_limits_equal_gfloats(name: str) -> None:
    ours, theirs = floats(name), GFLOAT[name]
    assert (ours.bits, ours.max, ours.bias) == (theirs.k, theirs.max, theirs.bias)
    assert ours.min_positive == (theirs.smallest_subnormal if theirs.has_subnormals else theirs.smallest)
    if theirs.has_subnormals:
        assert ours.min_normal == theirs.smallest_normal
    assert ours.epsilon == theirs.eps


def test_fp32_equals_numpy() -> None:
    fp32, numpy = floats("fp32"), np.finfo(np.float32)
    assert (fp32.max, fp32.min_normal, fp32.min_positive) == (numpy.max, numpy.tiny, numpy.smallest_subnormal)
    values = np.random.default_rng(0).standard_normal(1000) * 10.0 ** np.arange(-50, 50).repeat(10)
    with np.errstate(over="ignore"):
        expected = values.astype(np.float32)
    assert np.array_equal(fp32.encode(values), expected.view(np.uint32))
    assert np.array_equal(fp32.decode(expected.view(np.uint32)), expected.astype(np.float64))


@pytest.mark.parametrize("name", DTYPES)
def test_nan_is_kept_or_refused(name: str) -> None:
    if floats(name).specials == "none":
        with pytest.raises(FormatError, match="has no NaN"):
            floats(name).encode(np.nan)
    else:
        assert np.isnan(floats(name).round(np.nan))


def test_codes_and_numbers_that_a_format_lacks_are_refused() -> None:
    with pytest.raises(FormatError, match=r"has the codes 0 to 15; got \[16\]"):
        floats("fp4_e2m1").decode(16)
    with pytest.raises(FormatError, match="has the codes 0 to 255"):
        floats("fp8_e4m3").decode(1.5)
    with pytest.raises(FormatError, match="not even zero"):
        floats("e8m0").encode([1.0, 0.0])
