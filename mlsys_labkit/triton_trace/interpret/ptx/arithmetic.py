"""Instructions of PTX that calculate: each a function of a type, its modifiers and numbers.

Approximations (``ex2.approx``, ``rcp.approx``, ...) are exact here up to one rounding.

Reference: NVIDIA, "PTX ISA", 9.7.1 to 9.7.8.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret import gpu_arithmetic
from mlsys_labkit.triton_trace.interpret.ptx.types import Type

Array = NDArray[Any]
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED_COMPARISONS = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def compared(how: str, kind: Type, a: Array, b: Array) -> Array | None:
    """Return the truth of a comparison, or None for one that is unknown; "equ" and its like are true of NaN."""
    if how in ("num", "nan"):
        return np.asarray((np.isnan(a) | np.isnan(b)) == (how == "nan"))
    if not kind.floats and how in _UNSIGNED_COMPARISONS:
        how = _UNSIGNED_COMPARISONS[how]
    base = how[:-1] if kind.floats and len(how) == 3 and how.endswith("u") else how
    if base not in _COMPARISONS:
        return None
    unordered = np.isnan(a) | np.isnan(b) if kind.floats else np.False_
    truth = _COMPARISONS[base](a, b) & ~unordered
    return np.asarray(truth | unordered if base != how else truth)


def flushed(numbers: Array) -> Array:
    """Return fp32 numbers with 0 for what is subnormal, as ``.ftz`` asks."""
    return np.where(np.abs(numbers) < np.float32(2.0**-126), np.copysign(numbers.dtype.type(0), numbers), numbers)


def saturated(numbers: Array) -> Array:
    """Return floats held in [0, 1], and 0 for NaN."""
    return np.asarray(np.clip(np.nan_to_num(numbers, nan=0.0, posinf=np.inf, neginf=-np.inf), 0, 1))


def _product(kind: Type, modifiers: Collection[str], a: Array, b: Array) -> Array:
    """Return a product; ``.hi`` is the upper half of an integer's, and machine.py widens the operands of ``.wide``."""
    if "hi" not in modifiers:
        return np.asarray(a * b)
    if kind.bits < 64:
        wide = np.dtype(f"{'i' if kind.signed else 'u'}{kind.bits // 4}")
        return np.asarray((a.astype(wide) * b.astype(wide)) >> wide.type(kind.bits))
    high = gpu_arithmetic.high_half(gpu_arithmetic.unsigned(a), gpu_arithmetic.unsigned(b)).view(a.dtype)
    return np.asarray(high - np.where(a < 0, b, 0) - np.where(b < 0, a, 0) if kind.signed else high)


def _multiplied_and_added(kind: Type, modifiers: Collection[str], a: Array, b: Array, c: Array) -> Array:
    if kind.floats:
        return gpu_arithmetic.fused(a, b, c)
    return _product(kind, modifiers, a, b).astype(c.dtype) + c


def _quotient(kind: Type, modifiers: Collection[str], a: Array, b: Array) -> Array:
    return np.asarray(a / b) if kind.floats else gpu_arithmetic.divided(a, b)


def _least(kind: Type, modifiers: Collection[str], a: Array, b: Array) -> Array:
    return np.asarray((np.minimum if "NaN" in modifiers else np.fmin)(a, b))


def _greatest(kind: Type, modifiers: Collection[str], a: Array, b: Array) -> Array:
    return np.asarray((np.maximum if "NaN" in modifiers else np.fmax)(a, b))


def _shifted_left(kind: Type, modifiers: Collection[str], a: Array, count: Array) -> Array:
    moved: Array = a << np.minimum(count, kind.bits - 1).astype(a.dtype)
    return np.where(count < kind.bits, moved, a.dtype.type(0))


def _shifted_right(kind: Type, modifiers: Collection[str], a: Array, count: Array) -> Array:
    moved: Array = a >> np.minimum(count, kind.bits - 1).astype(a.dtype)
    return moved if kind.signed else np.where(count < kind.bits, moved, a.dtype.type(0))


def _funnel(kind: Type, modifiers: Collection[str], low: Array, high: Array, count: Array) -> Array:
    """Shift 64 bits and take 32: the upper ones of a shift to the left, the lower ones of one to the right."""
    by = (count & 31 if "wrap" in modifiers else np.minimum(count, 32)).astype(np.uint64)
    both = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
    return np.asarray(both << by >> np.uint64(32) if "l" in modifiers else both >> by)


def _by_table(kind: Type, modifiers: Collection[str], a: Array, b: Array, c: Array, table: Array) -> Array:
    """Return for each bit what the table says of the bits of a, b and c. Reference: lop3."""
    result = np.zeros_like(a)
    for row in range(8):
        chosen = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        result = result | np.where(table >> row & 1, chosen, a.dtype.type(0))
    return result


def _permuted(kind: Type, modifiers: Collection[str], a: Array, b: Array, selector: Array) -> Array:
    """Return four of the eight bytes of a and b, or copies of their signs. Reference: prmt in its default mode."""
    both = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
    result = np.zeros(both.shape, np.uint64)
    for i in range(4):
        chosen = selector.astype(np.uint64) >> np.uint64(4 * i)
        byte = both >> (chosen & np.uint64(7)) * np.uint64(8) & np.uint64(0xFF)
        sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        result = result | np.where(chosen & np.uint64(8), sign, byte) << np.uint64(8 * i)
    return result


def _field(kind: Type, modifiers: Collection[str], a: Array, start: Array, length: Array) -> Array:
    """Return a field of bits, with its sign in a signed type. Reference: bfe."""
    begin, count = (np.minimum(one & 0xFF, kind.bits).astype(np.int64) for one in (start, length))
    upper = np.minimum(begin + count, kind.bits)
    bits = gpu_arithmetic.unsigned(a).astype(object)
    kept = (bits >> begin.astype(object)) & ((1 << (upper - begin).astype(object)) - 1)
    if not kind.signed:
        return np.asarray(kept.astype(np.uint64))
    last = np.maximum(np.minimum(begin + count - 1, kind.bits - 1), 0).astype(object)
    negative = ((bits >> last) & 1).astype(np.bool_) & (count > 0)
    filled = np.where(negative, kept - (1 << (upper - begin).astype(object)), kept)
    return np.asarray(filled.astype(np.int64))


def _inserted(kind: Type, modifiers: Collection[str], a: Array, b: Array, start: Array, length: Array) -> Array:
    """Return b with the lowest bits of a in a field of it. Reference: bfi."""
    begin, count = (np.minimum(one & 0xFF, kind.bits).astype(object) for one in (start, length))
    mask = (((1 << count) - 1) << begin) & ((1 << kind.bits) - 1)
    return np.asarray(((b.astype(object) & ~mask) | ((a.astype(object) << begin) & mask)).astype(np.uint64))


def _reversed(kind: Type, modifiers: Collection[str], a: Array) -> Array:
    return np.array([int(f"{int(one):0{kind.bits}b}"[::-1], 2) for one in a.reshape(-1)], np.uint64).reshape(a.shape)


def _leading_zeros(kind: Type, modifiers: Collection[str], a: Array) -> Array:
    return np.array([kind.bits - int(one).bit_length() for one in a.reshape(-1)], np.uint64).reshape(a.shape)


def _in_double(function: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda kind, modifiers, a: np.asarray(function(a.astype(np.float64)))


def _plain(function: Callable[..., Any]) -> Callable[..., Array]:
    return lambda kind, modifiers, *numbers: np.asarray(function(*numbers))


# Opcode -> function of (type, modifiers, numbers), of which those of COUNTS are u32 whatever the type is.
CALCULATIONS: dict[str, Callable[..., Array]] = {
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _product,
    "mad": _multiplied_and_added,
    "fma": _multiplied_and_added,
    "div": _quotient,
    "rem": _plain(np.fmod),
    "min": _least,
    "max": _greatest,
    "neg": _plain(np.negative),
    "abs": _plain(np.abs),
    "and": _plain(np.bitwise_and),
    "or": _plain(np.bitwise_or),
    "xor": _plain(np.bitwise_xor),
    "not": _plain(np.invert),
    "shl": _shifted_left,
    "shr": _shifted_right,
    "shf": _funnel,
    "lop3": _by_table,
    "prmt": _permuted,
    "bfe": _field,
    "bfi": _inserted,
    "brev": _reversed,
    "popc": _plain(np.bitwise_count),
    "clz": _leading_zeros,
    "rcp": _in_double(lambda x: 1 / x),
    "sqrt": _in_double(np.sqrt),
    "rsqrt": _in_double(lambda x: 1 / np.sqrt(x)),
    "ex2": _in_double(np.exp2),
    "lg2": _in_double(np.log2),
    "sin": _in_double(np.sin),
    "cos": _in_double(np.cos),
    "tanh": _in_double(np.tanh),
}
COUNTS = {"shl": (1,), "shr": (1,), "shf": (2,), "lop3": (3,), "bfe": (1, 2), "bfi": (2, 3)}
_LOGIC = frozenset(("and", "or", "xor", "not"))
_INTEGERS = frozenset(("rem", *_LOGIC, *COUNTS, "prmt", "brev", "popc", "clz"))
_APPROXIMATED = frozenset(("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"))
_FULL_PRODUCTS = frozenset(("lo", "hi", "wide"))


def exists(opcode: str, kind: Type, modifiers: Collection[str]) -> bool:
    """Return whether an instruction is one that is interpreted: with this type, and with each choice that it needs."""
    given = set(modifiers)
    if len(given) != len(modifiers):
        return False
    if kind.floats:
        roundings = given & {"rn", "approx", "full"}
        allowed = {"rn", "ftz", "sat"} | ({"NaN"} if opcode in ("min", "max") else set())
        if opcode in _APPROXIMATED or opcode == "div":
            allowed |= {"approx"} | ({"full"} if opcode == "div" else set())
        needs = opcode in ("fma", "div") or opcode in _APPROXIMATED
        return opcode not in _INTEGERS and given <= allowed and (len(roundings) == 1 if needs else len(roundings) <= 1)
    if opcode == "fma" or opcode in _APPROXIMATED or (kind.letter == "pred" and opcode not in _LOGIC):
        return False
    if opcode in ("mul", "mad"):
        return len(given) == 1 and given <= _FULL_PRODUCTS
    if opcode == "shf":
        return len(given & {"l", "r"}) == 1 and len(given & {"wrap", "clamp"}) == 1 and len(given) == 2
    return not given
