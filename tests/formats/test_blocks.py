"""Tests of block formats against gfloat, and of integer and table formats against numpy, torch and publications."""

from __future__ import annotations

import gfloat
import gfloat.formats as oracle
import numpy as np
import pytest
import scipy
import torch
from hypothesis import given, strategies as st

from mlsys_labkit.formats import FORMATS, BlockFormat, CodebookFormat, FormatError, IntegerFormat

MX = {
    "mxfp8_e5m2": oracle.format_info_mxfp8_e5m2,
    "mxfp8_e4m3": oracle.format_info_mxfp8_e4m3,
    "mxfp6_e3m2": oracle.format_info_mxfp6_e3m2,
    "mxfp6_e2m3": oracle.format_info_mxfp6_e2m3,
    "mxfp4": oracle.format_info_mxfp4_e2m1,
}


def blocks(name: str) -> BlockFormat:
    made = FORMATS[name]
    assert isinstance(made, BlockFormat)
    return made


@pytest.mark.parametrize("name", MX)
@given(seed=st.integers(0, 2**32 - 1), power=st.integers(-130, 120), spread=st.integers(0, 12))
def test_microscaling_equals_gfloat(name: str, seed: int, power: int, spread: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.standard_normal(32), power + rng.integers(-spread, spread + 1, 32))
    expected = gfloat.quantize_block(MX[name], values, gfloat.compute_scale_amax, gfloat.RoundMode.TiesToEven)
    assert np.array_equal(blocks(name).round(values), expected)


@pytest.mark.parametrize(
    ("name", "bits"), [("mxfp4", 4.25), ("nvfp4", 4.5), ("mxfp6_e2m3", 6.25), ("mxfp8_e4m3", 8.25)]
)
def test_bits_per_number(name: str, bits: float) -> None:
    assert blocks(name).bits_per_number == bits
    assert blocks(name).quantize(np.ones((4, 64))).bytes == 4 * 64 * bits / 8 + (4 if name == "nvfp4" else 0)


@given(seed=st.integers(0, 2**32 - 1), power=st.integers(-60, 60))
def test_nvfp4_follows_its_definition(seed: int, power: int) -> None:
    """Compute NVFP4 with torch's own E4M3 and a search through the eight magnitudes, in float64."""
    values = np.ldexp(np.random.default_rng(seed).standard_normal((2, 32)), power)
    tensor_scale = np.float64(np.float32(np.abs(values).max() / (6.0 * 448.0)))
    sizes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    expected = np.empty_like(values)
    for row in range(2):
        for start in (0, 16):
            block = values[row, start : start + 16]
            wanted = torch.tensor(np.abs(block).max() / tensor_scale / 6.0)
            scale = float(wanted.clamp(max=448.0).to(torch.float8_e4m3fn)) * tensor_scale
            ratio = np.minimum(np.abs(block) / scale, 6.0)
            distance = np.abs(ratio[:, None] - sizes)
            nearest = [min(range(8), key=lambda code, d=d: (d[code], code % 2)) for d in distance]  # type: ignore[misc]
            expected[row, start : start + 16] = np.sign(block) * sizes[nearest] * scale
    assert np.allclose(blocks("nvfp4").round(values), expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("name", [*MX, "nvfp4", "nf4_blocks"])
def test_zeros_stay_zeros_and_outliers_keep_their_sign(name: str) -> None:
    values = np.zeros((2, 64))
    assert np.array_equal(blocks(name).round(values), values)
    values[1, 5] = -3.0
    back = blocks(name).round(values)
    assert back[1, 5] == pytest.approx(-3.0, rel=0.15)
    assert np.count_nonzero(back) == 1


def test_nf4_is_the_table_that_its_construction_gives() -> None:
    """Quantiles of a normal distribution: eight above zero, seven below, zero, scaled to one (QLoRA, eq. 4)."""
    offset = 0.9677083
    above = scipy.stats.norm.ppf(np.linspace(offset, 0.5, 9))[:-1]
    below = -scipy.stats.norm.ppf(np.linspace(offset, 0.5, 8))[:-1]
    made = np.sort([*above, *below, 0.0]) / above.max()
    nf4 = FORMATS["nf4"]
    assert isinstance(nf4, CodebookFormat)
    assert np.allclose(nf4.values(), made, atol=1e-6)
    values = np.linspace(-1.2, 1.2, 1001)
    assert np.array_equal(nf4.round(values), nf4.values()[np.abs(values[:, None] - nf4.values()).argmin(1)])


@pytest.mark.parametrize("bits", [8, 4])
def test_integers_are_twos_complement(bits: int) -> None:
    made = FORMATS[f"int{bits}"]
    assert isinstance(made, IntegerFormat)
    signed = np.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
    assert np.array_equal(made.decode(signed.astype(np.uint8) & (1 << bits) - 1), signed)
    values = np.linspace(-300, 300, 2401)
    expected = torch.tensor(values).round().clamp(signed[0], signed[-1]).numpy()
    assert np.array_equal(made.round(values), expected)
    assert np.array_equal(made.decode(made.encode(values)), expected)


@pytest.mark.filterwarnings("error")
def test_nvfp4_holds_the_largest_and_the_smallest_numbers_at_its_limits() -> None:
    """The scale of the tensor is a float32: beyond it numbers saturate, below it they are 0."""
    largest = blocks("nvfp4").round(np.full(16, 1e300))
    assert np.isfinite(largest).all()
    assert (largest > 1e38).all()
    assert (blocks("nvfp4").round(np.full(16, 1e-45)) == 0).all()
    assert blocks("nvfp4").round(np.ones((0, 16))).shape == (0, 16)


def test_formats_refuse_values_and_shapes_they_cannot_hold() -> None:
    with pytest.raises(FormatError, match="blocks of 32 along the last axis; its length is 33"):
        blocks("mxfp4").quantize(np.ones(33))
    with pytest.raises(FormatError, match="its length is none"):
        blocks("mxfp4").quantize(1.0)
    with pytest.raises(FormatError, match="must be finite"):
        blocks("mxfp4").quantize(np.full(32, np.inf))
    with pytest.raises(FormatError, match="has no NaN"):
        FORMATS["int8"].encode(np.nan)  # type: ignore[union-attr]
    with pytest.raises(FormatError, match="codes 0 to 15"):
        FORMATS["nf4"].decode([16])  # type: ignore[union-attr]
