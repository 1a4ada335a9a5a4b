"""The signature that a kernel is compiled for: types, alignment and values of its arguments, as in a launch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlsys_labkit.triton_trace.errors import TritonArgumentError
from mlsys_labkit.triton_trace.launch.arguments import OPTIONS, bind, wrapped
from mlsys_labkit.triton_trace.names import Name, language_name, name_set
from mlsys_labkit.triton_trace.source import Function

_POINTEE = name_set("""
    i1 i8 i16 i32 i64 u8 u16 u32 u64 fp16 bf16 fp32 fp64 fp8e4nv fp8e5 fp8e4b15 fp8e4b8 fp8e5b16
""")
# Type -> a number that Triton gives this type, and one that 16 divides as well.
_EXAMPLES: dict[str, tuple[Any, Any]] = {
    "i32": (7, 16),
    "i64": (2**40 + 7, 2**40),
    "u64": (2**63 + 7, 2**63),
    "fp32": (0.5, 0.5),
    "u1": (True, True),
}
_TYPE = re.compile(r"(?P<pointer>\*?)(?P<dtype>\w+?)(?::(?P<hint>16|1))?")


def arguments_of(
    kernel: Any,
    function: Function,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    signature: Mapping[str, str] | None,
    config: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return every parameter's argument, as JSON for process.py, and the launch's options. Raises TritonArgumentError.

    Under ``@triton.autotune`` the arguments are those of ``config``, or of its first configuration.
    """
    names = [one.name for one in function.parameters]
    added = wrapped(
        kernel,
        dict(zip(names, args, strict=False)),
        {**config.all_kwargs(), **kwargs} if config else kwargs,
        lambda configs, given: given if config else {**configs[0].all_kwargs(), **given},
    )
    options = {name: value for name, value in added.items() if name in OPTIONS and value is not None}
    given = {n: value for n, value in added.items() if n in names or (n not in OPTIONS and value is not None)}
    for name, text in (signature or {}).items():
        if name in given:
            raise TritonArgumentError(f"{function.name} got {name} twice: as an argument and in signature")
        given[name] = _Typed(text)
    bound = bind(function, args, given)
    constants = {one.name for one in function.parameters if one.constexpr}
    return {name: _json(name, value, name in constants) for name, value in bound.items()}, options


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
        raise TritonArgumentError(
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
    if constant and (found := language_name(value)):  # a function of tl
        return {"language": found.value}
    if constant:
        raise TritonArgumentError(
            f"{name} is a tl.constexpr: expected a number, a string or a type, got {type(value).__name__}"
        )
    if type(value).__name__ == "TensorWrapper" and hasattr(value, "base"):  # triton.reinterpret(tensor, dtype)
        return {**_json(name, value.base, constant), "pointer": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, np.ndarray):
        return {"pointer": value.dtype.name, "address": _offset(value)}
    if hasattr(value, "data_ptr"):
        # Allocations are aligned on a GPU, so only the offset of the tensor in its allocation matters.
        address = value.storage_offset() * value.element_size()
        return {"pointer": str(value.dtype).removeprefix("torch."), "address": address}
    if type(value).__name__ == "TensorDescriptor":
        sizes = {"shape": value.shape, "strides": value.strides, "block": value.block_shape}
        lists = {key: [int(size) for size in given] for key, given in sizes.items()}
        return {"base": _json(name, value.base, False), "padding": value.padding, **lists}
    raise TritonArgumentError(f"{name}: expected an array, a number or None, got {type(value).__name__}")


def _offset(array: np.ndarray[Any, Any]) -> int:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    return int(array.ctypes.data - root.ctypes.data)
