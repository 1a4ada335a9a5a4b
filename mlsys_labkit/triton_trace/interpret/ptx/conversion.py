"""The instruction ``cvt`` of PTX. Reference: NVIDIA, "PTX ISA", cvt."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret import gpu_arithmetic
from mlsys_labkit.triton_trace.interpret.ptx.arithmetic import flushed, saturated
from mlsys_labkit.triton_trace.interpret.ptx.types import Type

Array = NDArray[Any]
_TO_WHOLE: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_LARGEST = {("f", 16): 65504.0, ("bf", 16): 2.0**127 * (2 - 2.0**-7)}


def exists(target: Type, source: Type, modifiers: Collection[str]) -> bool:
    """Return whether there is such a conversion: what may round says how, and nothing else does."""
    rounded = {"rn", "rz"}.intersection(modifiers)
    whole = set(_TO_WHOLE).intersection(modifiers)
    others = set(modifiers) - rounded - whole - {"sat", "satfinite", "relu", "ftz"}
    if others or "pred" in (target.letter, source.letter):
        return False
    if not target.floats:
        return not rounded and len(whole) == source.floats
    if not source.floats:
        return len(rounded) == 1 and not whole
    if target.bits < source.bits:
        return len(rounded) == 1 and not whole
    return len(rounded) <= (target.letter != source.letter) and len(whole) <= (target == source)


def converted(target: Type, source: Type, modifiers: Collection[str], numbers: Array) -> Array:
    """Return registers of ``target`` from numbers of ``source``, rounded once."""
    if "ftz" in modifiers and source.letter == "f" and source.bits == 32:
        numbers = flushed(numbers)
    if not target.floats:
        return target.register(_whole(target, source, modifiers, numbers))
    if rule := next((_TO_WHOLE[one] for one in modifiers if one in _TO_WHOLE), None):
        numbers = rule(numbers)
    if "relu" in modifiers:
        numbers = np.maximum(numbers, numbers.dtype.type(0))
    if "sat" in modifiers:
        numbers = saturated(numbers)
    largest = _LARGEST.get((target.letter, target.bits))
    if "satfinite" in modifiers and largest:
        numbers = np.clip(numbers, -largest, largest)
    if "rz" not in modifiers:
        return target.register(numbers)
    if target.narrow:
        codes = target.narrow.encode(np.asarray(numbers), toward_zero=True).astype(np.uint64)
        return codes[0] | codes[1] << np.uint64(target.bits) if target.count == 2 else codes
    return target.register(gpu_arithmetic.toward_zero(numbers, np.dtype(f"f{target.bits // 8}")))


def _whole(target: Type, source: Type, modifiers: Collection[str], numbers: Array) -> Array:
    if source.floats:
        rule = next((_TO_WHOLE[one] for one in modifiers if one in _TO_WHOLE), np.trunc)
        return gpu_arithmetic.whole(rule(numbers), target.storage)
    if "sat" not in modifiers:
        return numbers
    limits = np.iinfo(target.storage)
    return np.array([min(max(int(one), limits.min), limits.max) for one in numbers.reshape(-1)], target.storage)
