"""The formats by name."""

from __future__ import annotations

from mlsys_labkit.formats.blocks import BlockFormat
from mlsys_labkit.formats.floats import FloatFormat
from mlsys_labkit.formats.integers import CodebookFormat, IntegerFormat

# The sixteen quantiles of a normal distribution, scaled to [-1, 1], as QLoRA's appendix E prints them.
_NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)

_FP32 = FloatFormat("fp32", exponent_bits=8, mantissa_bits=23)
_TF32 = FloatFormat("tf32", exponent_bits=8, mantissa_bits=10, storage_bits=32)
_BF16 = FloatFormat("bf16", exponent_bits=8, mantissa_bits=7)
_FP16 = FloatFormat("fp16", exponent_bits=5, mantissa_bits=10)
_E5M2 = FloatFormat("fp8_e5m2", exponent_bits=5, mantissa_bits=2)
_E4M3 = FloatFormat("fp8_e4m3", exponent_bits=4, mantissa_bits=3, specials="nan")
_E3M2 = FloatFormat("fp6_e3m2", exponent_bits=3, mantissa_bits=2, specials="none")
_E2M3 = FloatFormat("fp6_e2m3", exponent_bits=2, mantissa_bits=3, specials="none")
_E2M1 = FloatFormat("fp4_e2m1", exponent_bits=2, mantissa_bits=1, specials="none")
_E8M0 = FloatFormat("e8m0", exponent_bits=8, mantissa_bits=0, specials="nan", signed=False, subnormals=False)

_FLOATS = (_FP32, _TF32, _BF16, _FP16, _E5M2, _E4M3, _E3M2, _E2M3, _E2M1, _E8M0)
_OTHERS = (
    IntegerFormat("int8", 8),
    IntegerFormat("int4", 4),
    CodebookFormat("nf4", 4, _NF4),
    BlockFormat("mxfp8_e5m2", _E5M2, _E8M0, 32, "power of two"),
    BlockFormat("mxfp8_e4m3", _E4M3, _E8M0, 32, "power of two"),
    BlockFormat("mxfp6_e3m2", _E3M2, _E8M0, 32, "power of two"),
    BlockFormat("mxfp6_e2m3", _E2M3, _E8M0, 32, "power of two"),
    BlockFormat("mxfp4", _E2M1, _E8M0, 32, "power of two"),
    BlockFormat("nvfp4", _E2M1, _E4M3, 16, "two levels"),
    BlockFormat("nf4_blocks", CodebookFormat("nf4", 4, _NF4), _FP32, 64, "largest"),
)

FORMATS: dict[str, FloatFormat | IntegerFormat | CodebookFormat | BlockFormat] = {
    each.name: each for each in (*_FLOATS, *_OTHERS)
}
