"""The types of PTX: numbers of each from the bits of 64-bit registers, and back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.narrow_floats import NARROW, Narrow

Array = NDArray[Any]
_TYPE = re.compile(r"(?P<letter>b|u|s|f|bf)(?P<bits>8|16|32|64|128)(?P<count>x2)?")
_NARROW = {"bf": NARROW["bf16"], "e4m3": NARROW["fp8e4nv"], "e5m2": NARROW["fp8e5"]}


@dataclass(frozen=True)
class Type:
    """A type, as "s32": ``letter`` "s", ``bits`` 32. ``count``: 2 of "f16x2", which has two numbers."""

    letter: str
    bits: int
    count: int = 1

    @property
    def floats(self) -> bool:
        return self.letter not in ("b", "u", "s", "pred")

    @property
    def signed(self) -> bool:
        return self.letter == "s"

    @property
    def narrow(self) -> Narrow | None:
        return _NARROW.get(self.letter)

    @property
    def storage(self) -> np.dtype[Any]:
        """Return numpy's type for the bits of one number, or for integers themselves."""
        return np.dtype(f"{'i' if self.signed else 'u'}{self.bits // 8}")

    def numbers(self, register: Array) -> Array:
        """Return the numbers in registers; of two numbers the low one first, on an axis of their own."""
        if self.count == 2:
            one = Type(self.letter, self.bits)
            return np.stack([one.numbers(register), one.numbers(register >> np.uint64(self.bits))])
        if self.letter == "pred":
            return np.asarray(register != 0)
        codes = register.astype(np.dtype(f"u{self.bits // 8}"))
        if self.narrow:
            return self.narrow.decode(codes)
        if self.letter == "f":
            exact: Array = codes.view(np.dtype(f"f{self.bits // 8}"))
            return exact.astype(np.float32) if self.bits == 16 else exact
        return codes.view(self.storage)

    def register(self, numbers: Array) -> Array:
        """Return the bits of numbers, rounded once; signed integers fill the register with their sign."""
        if self.count == 2:
            one = Type(self.letter, self.bits)
            low, high = one.register(numbers[0]), one.register(numbers[1])
            return np.asarray(low | high << np.uint64(self.bits))
        if self.letter == "pred":
            return numbers.astype(np.uint64)
        if self.narrow:
            return self.narrow.encode(np.asarray(numbers)).astype(np.uint64)
        if self.letter == "f":
            rounded = np.ascontiguousarray(numbers.astype(np.dtype(f"f{self.bits // 8}")))
            return rounded.view(np.dtype(f"u{self.bits // 8}")).astype(np.uint64)
        whole = numbers.astype(self.storage)
        return whole.astype(np.int64).view(np.uint64) if self.signed else whole.astype(np.uint64)


@cache
def type_of(name: str) -> Type | None:
    """Return the type that a modifier names, or None."""
    if name == "pred":
        return Type("pred", 8)
    if name in ("e4m3x2", "e5m2x2"):
        return Type(name[:4], 8, 2)
    match = _TYPE.fullmatch(name)
    if not match or (match["letter"] == "bf" and match["bits"] != "16") or match["bits"] == "128":
        return None
    return Type(match["letter"], int(match["bits"]), 2 if match["count"] else 1)
