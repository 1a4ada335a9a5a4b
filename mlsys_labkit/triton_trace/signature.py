"""What a kernel is compiled for: types, alignment and values of its arguments, as a launch shows them to Triton."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import numpy as np

from mlsys_labkit.triton_trace.arguments import OPTIONS, bind
from mlsys_labkit.triton_trace.errors import ArgumentError
from mlsys_labkit.triton_trace.source import Function, Name

__all__ = ["arguments_of", "wrapped"]

_POINTEE = (
    *("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    *("fp16", "bf16", "fp32", "fp64", "fp8e4nv", "fp8e5", "fp8e4b15", "fp8e4b8", "fp8e5b16"),
)
# A number that Triton types so: any, and one that 16 divides.
_EXAMPLES: dict[str, tuple[Any, Any]] = {
    "i32": (7, 16),
    "i64": (2**40 + 7, 2**40),
    "u64": (2**63 + 7, 2**63),
    "fp32": (0.5, 0.5),
    "u1": (True, True),
}
_TYPE = re.compile(r"(?P<pointer>\*?)(?P<dtype>\w+?)(?::(?P<hint>16|1))?")


def arguments_of(
    function: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any], signature: Mapping[str, str] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every parameter's argument, as JSON for compile_process.py, and the launch's options. Raises ArgumentError."""
    options = {name: value for name, value in kwargs.items() if name in OPTIONS}
    given = {name: value for name, value in kwargs.items() if name not in OPTIONS}
    for name, text in (signature or {}).items():
        if name in given:
            raise ArgumentError(f"{function.name} got {name} twice: as an argument and in signature")
        given[name] = _Typed(text)
    bound = bind(function, args, given)
    constants = {one.name for one in function.parameters if one.constexpr}
    return {name: _json(name, value, name in constants) for name, value in bound.items()}, options


def wrapped(
    kernel: Any, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any], config: Any
) -> dict[str, Any]:
    """``kwargs`` with what ``@triton.autotune`` (``config``, or its first) and ``@triton.heuristics`` add."""
    added = dict(kwargs)
    if config is not None:
        added = {**config.all_kwargs(), **added}
    layer = kernel
    while not isinstance(layer, FunctionType) and hasattr(layer, "fn"):
        if config is None and getattr(layer, "configs", None):
            added = {**layer.configs[0].all_kwargs(), **added}
        elif isinstance(getattr(layer, "values", None), dict):
            for name, rule in layer.values.items():
                added[name] = rule({**dict(zip(names, args, strict=False)), **added})
        layer = layer.fn
    return {name: value for name, value in added.items() if value is not None or name in names}


class _Typed:
    """A type as Triton's ahead-of-time compiler writes it: "*fp16:16", a pointer that 16 divides; "i32", a number."""

    def __init__(self, text: str) -> None:
        self.text = text

    def argument(self, name: str) -> Any:
        match = _TYPE.fullmatch(self.text.strip())
        if match and match["pointer"] and match["dtype"] in _POINTEE and match["hint"] != "1":
            return {"pointer": match["dtype"], "address": 16 if match["hint"] else 1}
        if match and not match["pointer"] and match["dtype"] in _EXAMPLES:
            plain, divisible = _EXAMPLES[match["dtype"]]
            return 1 if match["hint"] == "1" else divisible if match["hint"] else plain
        raise ArgumentError(
            f'{name}: {self.text!r} is no type of an argument; expected "*fp16:16" (a pointer that 16 divides), '
            f'"i32", "i32:16" or alike; a launch passes a number as one of {", ".join(_EXAMPLES)}'
        )


def _json(name: str, value: Any, constant: bool) -> Any:
    if type(value).__name__ == "constexpr":
        value = value.value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _Typed):
        return value.argument(name)
    if isinstance(value, Name):
        return {"language": value.value}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return {"tuple": [_json(name, part, constant) for part in value]}
    if type(value).__name__ == "dtype" and hasattr(value, "primitive_bitwidth"):
        return {"dtype": str(value)}
    if constant:
        raise ArgumentError(
            f"{name} is a tl.constexpr: expected a number, a string or a type, got {type(value).__name__}"
        )
    if isinstance(value, np.ndarray):
        return {"pointer": value.dtype.name, "address": _offset(value)}
    if hasattr(value, "data_ptr"):
        # Allocations are aligned on a GPU: what counts is where in one the tensor begins.
        address = value.storage_offset() * value.element_size()
        return {"pointer": str(value.dtype).removeprefix("torch."), "address": address}
    if type(value).__name__ == "TensorDescriptor":
        sizes = {"shape": value.shape, "strides": value.strides, "block": value.block_shape}
        lists = {key: [int(size) for size in given] for key, given in sizes.items()}
        return {"base": _json(name, value.base, False), "padding": value.padding, **lists}
    raise ArgumentError(f"{name}: expected an array, a number or None, got {type(value).__name__}")


def _offset(array: np.ndarray[Any, Any]) -> int:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    return int(array.ctypes.data - root.ctypes.data)
