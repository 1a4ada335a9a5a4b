"""Functions of NVIDIA's libdevice by their symbols (``__nv_tanhf``), computed in float64 and rounded once.

The types of operands and results are those of ``triton.language.extra.libdevice`` itself, whose functions call the
builder with a symbol. A GPU's functions may be off by some units in the last place; the fast_ ones by more.

Reference: NVIDIA, "libdevice User's Guide"; NVIDIA, "PTX ISA".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret import special_functions as special
from mlsys_labkit.triton_trace.interpret.directed import converted, directed
from mlsys_labkit.triton_trace.interpret.gpu_arithmetic import erf, fused, high_half, signed, unsigned, whole

Array = NDArray[Any]
_ROUNDED = re.compile(r"(?:[fd](?!ma_))?(?P<operation>add|sub|mul|div|rcp|sqrt|rsqrt|fma)f?_(?P<mode>r[nzdu])")
_CONVERTED = re.compile(r"(?P<source>\w+?)2(?P<target>\w+?)_(?P<mode>r[nzdu])")


def evaluate(symbol: str, operands: list[Array], dtype: np.dtype[Any]) -> Array | None:
    """Return the result of a function in numpy's type ``dtype``, or None for an unknown symbol."""
    name = symbol.removeprefix("__nv_")
    if match := _CONVERTED.fullmatch(name):
        return converted(match["mode"], operands[0], dtype)
    if match := _ROUNDED.fullmatch(name):
        return directed(match["operation"], match["mode"], *operands).astype(dtype, copy=False)
    plain = name.removeprefix("fast_")
    function = next((_FUNCTIONS[one] for one in (plain, plain[:-1], plain[:-2]) if one in _FUNCTIONS), None)
    if function is None:
        return None
    result = np.asarray(function(*operands))
    if result.dtype.kind == "f" and dtype.kind in "iu":
        return whole(result, dtype)
    return result.astype(dtype, copy=False)


def _wide(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a function of floats that is computed in float64."""
    return lambda *operands: function(*(one.astype(np.float64) if one.dtype.kind == "f" else one for one in operands))


def _each(function: Callable[..., float]) -> Callable[..., Array]:
    """Return a function of one number of Python's, lane by lane, with NaN where it is not defined."""

    def one(*numbers: float) -> float:
        try:
            return function(*numbers)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return _wide(lambda *operands: np.asarray(np.vectorize(one, otypes=[np.float64])(*operands)))


def _bits(number: Array) -> Array:
    return unsigned(number)


def _popcount(number: Array) -> Array:
    return np.bitwise_count(_bits(number))


def _leading_zeros(number: Array) -> Array:
    bits, width = _bits(number), 8 * number.itemsize
    for shift in (1, 2, 4, 8, 16, 32)[: 5 if width == 32 else 6]:
        bits = bits | (bits >> bits.dtype.type(shift))
    return width - np.bitwise_count(bits).astype(np.int32)


def _first_set(number: Array) -> Array:
    bits = _bits(number)
    lowest = bits & (~bits + bits.dtype.type(1))
    return np.where(bits == 0, 0, 8 * number.itemsize - _leading_zeros(lowest))


def _reversed(number: Array) -> Array:
    octets = np.ascontiguousarray(number).view(np.uint8).reshape(*number.shape, number.itemsize)
    turned = np.packbits(np.unpackbits(octets, axis=-1)[..., ::-1], axis=-1)
    return np.ascontiguousarray(turned).view(number.dtype).reshape(number.shape)


def _chosen_bytes(x: Array, y: Array, selector: Array) -> Array:
    """Return four of the eight bytes of y:x, chosen by the low three bits of each hexadecimal digit."""
    wide = (_bits(y).astype(np.uint64) << np.uint64(32)) | _bits(x).astype(np.uint64)
    digits = _bits(selector).astype(np.uint64)
    result = np.zeros(np.broadcast_shapes(x.shape, selector.shape), np.uint64)
    for i in range(4):
        place = (digits >> np.uint64(4 * i)) & np.uint64(7)
        result |= ((wide >> (place * np.uint64(8))) & np.uint64(0xFF)) << np.uint64(8 * i)
    return result.astype(np.uint32).view(np.int32)


def _high(a: Array, b: Array) -> Array:
    """Return the upper half of a product, signed for signed numbers."""
    if a.dtype.kind == "u":
        return high_half(a, b)
    high = high_half(unsigned(a), unsigned(b))
    for one, other in ((a, b), (b, a)):
        high = high - np.where(one < 0, unsigned(other), high.dtype.type(0))
    return signed(high)


def _low_24(a: Array, b: Array) -> Array:
    shift = a.dtype.type(8)
    return np.asarray(((a << shift) >> shift) * ((b << shift) >> shift))


def _half_sum(extra: int) -> Callable[[Array, Array], Array]:
    return lambda a, b: (a.astype(np.int64) + b.astype(np.int64) + extra) >> 1


def _rounded_away(number: Array) -> Array:
    """Round halves away from zero. Adding 0.5 to 0.49999999999999994 gives 1, so the fraction is compared instead."""
    whole = np.trunc(number)
    return np.copysign(np.where(np.abs(number - whole) >= 0.5, np.abs(whole) + 1, np.abs(whole)), number)


def _scaled(number: Array, exponent: Array) -> Array:
    return np.ldexp(number.astype(np.float64), np.clip(exponent, -5000, 5000).astype(np.int32))


def _exponent(number: Array) -> Array:
    """Return the unbiased exponent of finite numbers, as floats."""
    return np.where(number == 0, -np.inf, np.where(np.isfinite(number), np.frexp(number)[1] - 1.0, np.abs(number)))


def _exponent_integer(number: Array) -> Array:
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    exponent = np.frexp(np.where(np.isfinite(number), number, 1.0))[1] - 1
    return np.where(np.isnan(number) | (number == 0), low, np.where(np.isinf(number), high, exponent))


def _of_pi(function: Callable[[Array], Array], turn: float) -> Callable[[Array], Array]:
    """Return sin or cos of pi x; the remainder by 2 keeps large arguments exact."""

    def create(number: Array) -> Array:
        angle = np.fmod(number, 2.0)
        exact = np.fmod(np.abs(angle) + turn, 1.0) == 0
        return np.where(exact, 0.0 * number, function(np.pi * angle))

    return create


def _length(*parts: Array) -> Array:
    total = np.abs(parts[0])
    for one in parts[1:]:
        total = np.hypot(total, one)
    return total


def _saturated(number: Array) -> Array:
    return np.where(np.isnan(number), 0.0, np.clip(number, 0.0, 1.0))


def _double(high: Array, low: Array) -> Array:
    bits = (_bits(high).astype(np.uint64) << np.uint64(32)) | _bits(low).astype(np.uint64)
    return bits.view(np.float64)


def _ieee_remainder(a: float, b: float) -> float:
    return math.remainder(a, b)


def _as(dtype: str) -> Callable[[Array], Array]:
    return lambda number: np.ascontiguousarray(number).view(dtype)


_SHIFT = np.uint64(32)
_FUNCTIONS: dict[str, Callable[..., Array]] = {
    # Integers
    "clz": _leading_zeros,
    "popc": _popcount,
    "ffs": _first_set,
    "brev": _reversed,
    "byte_perm": _chosen_bytes,
    "mulhi": _high,
    "umulhi": _high,
    "mul64hi": _high,
    "umul64hi": _high,
    "mul24": _low_24,
    "umul24": _low_24,
    "sad": lambda a, b, c: np.where(a > b, a - b, b - a) + c,
    "usad": lambda a, b, c: np.where(a > b, a - b, b - a) + c,
    "hadd": _half_sum(0),
    "uhadd": _half_sum(0),
    "rhadd": _half_sum(1),
    "urhadd": _half_sum(1),
    "abs": np.abs,
    "llabs": np.abs,
    # Bits
    "int_as_float": _as("f4"),
    "uint_as_float": _as("f4"),
    "float_as_int": _as("i4"),
    "float_as_uint": _as("u4"),
    "longlong_as_double": _as("f8"),
    "double_as_longlong": _as("i8"),
    "hiloint2double": _double,
    "double2loint": lambda x: x.view(np.uint64).astype(np.uint32).view(np.int32),
    "double2hiint": lambda x: (x.view(np.uint64) >> _SHIFT).astype(np.uint32).view(np.int32),
    "signbit": np.signbit,
    "signbitd": np.signbit,
    "isnan": np.isnan,
    "isnand": np.isnan,
    "isinf": np.isinf,
    "isinfd": np.isinf,
    "finite": np.isfinite,
    "isfinited": np.isfinite,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "ilogb": _exponent_integer,
    "logb": _exponent,
    "ldexp": _scaled,
    "scalbn": _scaled,
    # Rounding and remainders
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "round": _rounded_away,
    "llrint": np.rint,
    "llround": _rounded_away,
    "fmod": np.fmod,
    "remainder": _each(_ieee_remainder),
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0.0)),
    "saturate": _saturated,
    "fma": fused,
    "fdivide": np.divide,
    # Roots, powers, exponentials and logarithms
    "sqrt": np.sqrt,
    "rsqrt": _wide(lambda x: 1 / np.sqrt(x)),
    "rcp64h": _wide(lambda x: _as("f8")((1 / x).view(np.uint64) >> _SHIFT << _SHIFT)),
    "cbrt": _wide(np.cbrt),
    "rcbrt": _wide(lambda x: 1 / np.cbrt(x)),
    "hypot": _wide(_length),
    "rhypot": _wide(lambda *parts: 1 / _length(*parts)),
    "norm3d": _wide(_length),
    "rnorm3d": _wide(lambda *parts: 1 / _length(*parts)),
    "norm4d": _wide(_length),
    "rnorm4d": _wide(lambda *parts: 1 / _length(*parts)),
    "pow": _wide(np.power),
    "powi": _wide(np.power),
    "exp": _wide(np.exp),
    "exp2": _wide(np.exp2),
    "exp10": _wide(lambda x: np.power(10.0, x)),
    "expm1": _wide(np.expm1),
    "log": _wide(np.log),
    "log2": _wide(np.log2),
    "log10": _wide(np.log10),
    "log1p": _wide(np.log1p),
    # Angles
    "sin": _wide(np.sin),
    "cos": _wide(np.cos),
    "tan": _wide(np.tan),
    "sinpi": _wide(_of_pi(np.sin, 0.0)),
    "cospi": _wide(_of_pi(np.cos, 0.5)),
    "asin": _wide(np.arcsin),
    "acos": _wide(np.arccos),
    "atan": _wide(np.arctan),
    "atan2": _wide(np.arctan2),
    "sinh": _wide(np.sinh),
    "cosh": _wide(np.cosh),
    "tanh": _wide(np.tanh),
    "asinh": _wide(np.arcsinh),
    "acosh": _wide(np.arccosh),
    "atanh": _wide(np.arctanh),
    # Statistics and special functions
    "erf": _wide(erf),
    "erfc": _each(math.erfc),
    "erfcx": _each(special.erfcx),
    "erfinv": _each(special.erfinv),
    "erfcinv": _each(special.erfcinv),
    "normcdf": _each(lambda x: math.erfc(-x / math.sqrt(2)) / 2),
    "normcdfinv": _each(lambda p: -math.sqrt(2) * special.erfcinv(2 * p)),
    "tgamma": _each(special.gamma),
    "lgamma": _each(special.log_gamma),
    "j0": _each(lambda x: special.bessel_j(0, x)),
    "j1": _each(lambda x: special.bessel_j(1, x)),
    "jn": _each(lambda n, x: special.bessel_j(int(n), x)),
    "y0": _each(lambda x: special.bessel_y(0, x)),
    "y1": _each(lambda x: special.bessel_y(1, x)),
    "yn": _each(lambda n, x: special.bessel_y(int(n), x)),
    "cyl_bessel_i0": _each(lambda x: special.bessel_i(0, x)),
    "cyl_bessel_i1": _each(lambda x: special.bessel_i(1, x)),
}
