"""Arithmetic with a rounding mode in its name (``__nv_fadd_rz``): exact in fractions, then rounded once.

Modes: rn (nearest, ties to even), rz (toward zero), rd (down), ru (up). Reference: NVIDIA, "PTX ISA".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.gpu_arithmetic import fused, whole

Array = NDArray[Any]
_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "fma": lambda a, b, c: a * b + c,
}
_NEAREST: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x.astype(np.float64)),
    "fma": fused,
}


def directed(operation: str, mode: str, *operands: Array) -> Array:
    """Return an operation's result in the operands' type, rounded in ``mode``."""
    dtype = operands[0].dtype
    nearest = np.asarray(_NEAREST[operation](*operands)).astype(dtype)
    if mode == "rn":
        return nearest
    result = np.array(nearest)
    spread = [np.broadcast_to(one, result.shape) for one in operands]
    for at in np.ndindex(result.shape):
        numbers = [float(one[at]) for one in spread]
        if all(map(math.isfinite, numbers)) and not math.isnan(nearest[at]):
            result[at] = _neighbour(mode, _sign(operation, numbers, nearest[at]), nearest[at])
    return result


def _neighbour(mode: str, difference: int, nearest: Any) -> Any:
    """Return the nearest result, or its neighbour on the other side of the exact one.

    Args:
        difference: the sign of exact - nearest.
    """
    up = mode == "ru" or (mode == "rz" and (nearest < 0 or (nearest == 0 and difference < 0)))
    if difference > 0 and up:
        return np.nextafter(nearest, nearest.dtype.type(np.inf))
    if difference < 0 and not up:
        return np.nextafter(nearest, nearest.dtype.type(-np.inf))
    return nearest


def _sign(operation: str, numbers: list[float], nearest: Any) -> int:
    if np.isinf(nearest):
        divided_by_zero = operation in ("div", "rcp") and numbers[-1] == 0
        return 0 if divided_by_zero else -1 if nearest > 0 else 1
    guess = Fraction(float(nearest))
    if operation == "sqrt":
        exact, guess = Fraction(numbers[0]), guess * guess
    else:
        exact = _EXACT[operation](*map(Fraction, numbers))
    return (exact > guess) - (exact < guess)


def converted(mode: str, numbers: Array, dtype: np.dtype[Any]) -> Array:
    """Return numbers as another type, rounded in ``mode``; integers saturate."""
    if dtype.kind in "iu":
        return whole(_WHOLE[mode](numbers), dtype)
    result = numbers.astype(dtype)
    if mode != "rn":
        for at in np.ndindex(result.shape):
            if np.isfinite(numbers[at]):
                exact, nearest = numbers[at].item(), result[at]
                difference = (exact > float(nearest)) - (exact < float(nearest))  # Python compares exactly
                result[at] = _neighbour(mode, difference, nearest)
    return result


_WHOLE: dict[str, Callable[[Array], Array]] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
