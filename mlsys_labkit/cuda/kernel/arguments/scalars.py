"""Python numbers and structs as the bytes of a parameter that is passed by value."""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

import numpy as np

from mlsys_labkit.cuda.errors import CudaArgumentError
from mlsys_labkit.cuda.kernel.arguments.parameters import Parameter

_INTEGER = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOAT = {4: "f", 8: "d"}


def value_bytes(label: str, parameter: Parameter, argument: Any) -> bytes:
    """Return the bytes of a parameter passed by value."""
    if parameter.kind == "record":
        return _record(label, parameter, argument)
    argument = _scalar(argument)
    if isinstance(argument, bool | np.bool_):
        argument = int(argument)
    if isinstance(argument, int | np.integer):
        number: float | int = int(argument)
    elif isinstance(argument, float | np.floating) and parameter.kind in ("float", "half", "bfloat16"):
        number = float(argument)
    else:
        more = ""
        if isinstance(argument, float | np.floating):
            more = f"; pass int({argument!r}), or declare the parameter float"
        raise CudaArgumentError(f"{label} is {shown(argument)}, and the kernel expects {parameter.type}{more}")
    try:
        return _number_bytes(parameter, number)
    except (struct.error, OverflowError):
        low, high = _limits(parameter)
        raise CudaArgumentError(
            f"{label} is {number}, and {parameter.type} holds {low} to {high}; "
            "pass a smaller number, or declare a wider type"
        ) from None


def _number_bytes(parameter: Parameter, number: float) -> bytes:
    if parameter.kind == "bool":
        if number not in (0, 1):
            raise OverflowError
        return struct.pack("<?", number)
    if parameter.kind == "half":
        return struct.pack("<e", number)
    if parameter.kind == "bfloat16":
        return _bfloat16(number)
    if parameter.kind == "float":
        if parameter.nbytes not in _FLOAT:
            raise OverflowError  # long double: no kernel has one
        return struct.pack("<" + _FLOAT[parameter.nbytes], number)
    code = _INTEGER[parameter.nbytes]
    return struct.pack("<" + (code.upper() if parameter.kind == "unsigned" else code), number)


def _bfloat16(number: float) -> bytes:
    """Return the number rounded to the nearest bfloat16, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    if math.isnan(number):
        return struct.pack("<H", bits >> 16 | 0x40)
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def _limits(parameter: Parameter) -> tuple[str, str]:
    if parameter.kind == "bool":
        return "False", "True"
    if parameter.kind in ("half", "float", "bfloat16"):
        most = {"half": "65504", "bfloat16": "3.39e38"}.get(parameter.kind, "3.40e38")
        return f"-{most}", most
    bits = 8 * parameter.nbytes
    low, high = (0, 2**bits - 1) if parameter.kind == "unsigned" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return f"{low:,}", f"{high:,}"


def _record(label: str, parameter: Parameter, argument: Any) -> bytes:
    data: bytes | None = None
    if isinstance(argument, bytes | bytearray | memoryview):
        data = bytes(argument)
    elif isinstance(argument, np.ndarray | np.generic):
        data = argument.tobytes()
    elif isinstance(argument, ctypes.Structure | ctypes.Array | ctypes.Union):
        data = bytes(memoryview(argument))
    if data is None or len(data) != parameter.nbytes:
        came = shown(argument) if data is None else f"{len(data)} bytes"
        raise CudaArgumentError(
            f"{label} is {came}, and the struct {parameter.type} has {parameter.nbytes} bytes; "
            "pass them as a numpy structured scalar, an array, a ctypes.Structure or bytes"
        )
    return data


def _scalar(argument: Any) -> Any:
    """Return the number in an array or tensor without dimensions."""
    if getattr(argument, "shape", None) == () and callable(getattr(argument, "item", None)):
        return argument.item() if not isinstance(argument, np.generic) else argument
    return argument


def shown(argument: Any) -> str:
    """Return a value as an error names it."""
    if argument is None:
        return "None"
    if isinstance(argument, bool | int | float | str | np.generic) and len(repr(argument)) < 60:
        return f"{argument!r} ({type(argument).__name__})"
    shape = getattr(argument, "shape", None)
    return f"a {type(argument).__name__}" + (f" of shape {tuple(shape)}" if shape is not None else "")
