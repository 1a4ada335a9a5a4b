"""Arguments of a launch: parameters bound to values, arrays at simulated GPU addresses, everything else as JSON."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.errors import TritonArgumentError, TritonLaunchError, TritonOverflowError
from mlsys_labkit.triton_trace.gluon.aggregates import is_aggregate
from mlsys_labkit.triton_trace.gluon.layouts import layout_name
from mlsys_labkit.triton_trace.interpret.memory import DISTANCE, MemoryRegion
from mlsys_labkit.triton_trace.names import aggregate_name, constant, function_key, is_jitted, language_name, name_set
from mlsys_labkit.triton_trace.recorder import Argument
from mlsys_labkit.triton_trace.source import Function, layers

# Keywords that Triton takes beside the parameters: choices of code generation that do not change the results.
OPTIONS = name_set("""
    num_warps num_stages num_ctas maxnreg enable_fp_fusion launch_cooperative_grid launch_pdl debug sanitize_overflow
    arch cluster_dims warp_size instrumentation_mode ir_override extern_libs enable_reflect_ftz ptx_options ptx_version
    clc
""")
_TYPES = {
    "bool": "u1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}


@dataclass
class ArraySpan:
    """An array of the caller: bytes [low, high) of this process, in an allocation that begins at ``root``."""

    name: str
    pointer: int
    low: int
    high: int
    root: int
    dtype: str
    itemsize: int
    writable: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    keep: Any = None


@dataclass
class Packed:
    """A launch's arguments, ready to be sent.

    Attributes:
        arguments: parameter -> JSON, as Interpreter.launch takes them.
        regions: start, stop (a GPU's addresses), writable and the place in this process of each.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    arrays: list[Argument] = field(default_factory=list)
    regions: list[tuple[int, int, bool, int]] = field(default_factory=list)

    @property
    def layout(self) -> tuple[list[dict[str, Any]], int]:
        """Return the place of each region in shared memory, and the bytes that all of them need."""
        rows, offset = [], 0
        for start, stop, writable, place in self.regions:
            rows.append({"start": start, "stop": stop, "writable": writable, "place": place, "offset": offset})
            offset += -(-MemoryRegion.room(start, stop) // 64) * 64
        return rows, offset


def bind(function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Bind arguments to parameters as Python does, without the options of a launch. Raises TritonArgumentError."""
    names = [one.name for one in function.parameters]
    positional = [one.name for one in function.parameters if not one.keyword_only]
    if len(args) > len(positional):
        raise TritonArgumentError(f"{function.name} takes {len(positional)} positional arguments, got {len(args)}")
    bound = dict(zip(positional, args, strict=False))
    for name, value in kwargs.items():
        if name in bound:
            raise TritonArgumentError(f"{function.name} got {name} twice")
        if name in names:
            bound[name] = value
        elif name not in OPTIONS:
            raise TritonArgumentError(f"{function.name} has no parameter {name}; it has {', '.join(names)}")
    for one in function.parameters:
        if one.name not in bound and one.default is not None:
            bound[one.name] = constant(one.default.value) if one.default.kind == "constant" else one.default
    if missing := [name for name in names if name not in bound]:
        raise TritonArgumentError(f"{function.name} is not given {', '.join(missing)}")
    return {name: bound[name] for name in names}


def wrapped(
    kernel: Any,
    positional: Mapping[str, Any],
    kwargs: dict[str, Any],
    configure: Callable[[list[Any], dict[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """Return ``kwargs`` with what the kernel's wrappers add, from the outermost to the kernel.

    ``configure(configs, added)`` adds the choice of ``@triton.autotune``; ``@triton.heuristics`` computes its values.
    """
    added = dict(kwargs)
    for layer in layers(kernel):
        if getattr(layer, "configs", None):
            added = configure(layer.configs, added)
        elif isinstance(getattr(layer, "values", None), dict):
            for name, rule in layer.values.items():
                added[name] = rule({**positional, **added})
    return added


def grid_of(grid: Any, bound: dict[str, Any]) -> tuple[int, int, int]:
    """Return the grid as (x, y, z). Raises TritonLaunchError."""
    given = grid(bound) if callable(grid) else grid
    sizes = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not 1 <= len(sizes) <= 3:
        raise TritonLaunchError(f"a grid has 1 to 3 numbers, got {sizes}")
    whole = (*map(_whole, sizes), 1, 1)[:3]
    if any(size < 0 for size in whole) or whole[0] >= 1 << 31 or max(whole[1:]) > 65535:
        raise TritonLaunchError(f"expected a grid of at most 2147483647 x 65535 x 65535 programs, got {sizes}")
    return whole[0], whole[1], whole[2]


def _whole(size: Any) -> int:
    try:
        if isinstance(size, bool):
            raise TypeError
        return operator.index(size)
    except TypeError:
        hint = "; round up with triton.cdiv(n, BLOCK)" if isinstance(size, (float, np.floating)) else ""
        raise TritonLaunchError(f"a grid is made of whole numbers, got {size!r}{hint}") from None


def pack(function: Function, bound: dict[str, Any], reachable: Sequence[Any] = ()) -> Packed:
    """Give every array, the ``reachable`` ones too, its address.

    Raises TritonArgumentError for a value that does not fit.
    """
    packed = Packed()
    spans: list[ArraySpan] = []
    constexprs = {one.name for one in function.parameters if one.constexpr}
    annotations = {one.name: one.annotation for one in function.parameters}
    for name, value in bound.items():
        if name in constexprs:
            packed.arguments[name] = _constant(name, value)
        else:
            packed.arguments[name] = _packed(name, value, spans, annotations[name])
    spans += [_span(f"reachable[{i}]", array) for i, array in enumerate(reachable)]
    _place(spans, packed)
    return packed


def _packed(name: str, value: Any, spans: list[ArraySpan], annotation: str = "") -> Any:
    if isinstance(value, tuple):
        parts = [_packed(f"{name}[{i}]", part, spans) for i, part in enumerate(value)]
        return {"tuple": parts, "fields": getattr(value, "_fields", ())}
    if is_jitted(value):
        return {"function": function_key(value)}
    if type(value).__name__ == "TensorWrapper" and hasattr(value, "base"):  # triton.reinterpret(tensor, dtype)
        spans.append(replace(_span(name, value.base), dtype=_short(name, value.dtype)))
        return {"pointer": spans[-1].dtype, "address": len(spans) - 1}
    if hasattr(value, "data_ptr") or isinstance(value, np.ndarray):
        spans.append(_span(name, value))
        return {"pointer": spans[-1].dtype, "address": len(spans) - 1}
    if type(value).__name__ == "TensorDescriptor" and hasattr(value, "block_shape"):
        return {
            "base": _packed(name, value.base, spans),
            "shape": [int(n) for n in value.shape],
            "strides": [int(n) for n in value.strides],
            "block": [int(n) for n in value.block_shape],
            "padding": value.padding,
            "tf32": bool(getattr(value, "round_f32_to_tf32", False)),
            "layout": layout_name(getattr(value, "layout", None)),
        }
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str) or type(value).__name__ in ("dtype", "constexpr", "type"):
        return _constant(name, value)
    if isinstance(value, bool):
        return {"scalar": "u1", "value": value}
    if isinstance(value, int):
        return {"scalar": _declared(annotation) or _integer_type(name, value), "value": value}
    if isinstance(value, float):
        return {"scalar": _declared(annotation) or "fp32", "value": value}
    if hasattr(value, "kind") and value.kind == "language":
        return {"language": value.value}
    raise TritonArgumentError(f"{name}: expected an array, a number or None, got {type(value).__name__}")


def _short(name: str, dtype: Any) -> str:
    """Return Triton's short name of a type that ``triton.reinterpret`` was given."""
    short = _TYPES.get(str(dtype).removeprefix("torch."), str(dtype).replace("uint", "u").replace("int", "i"))
    short = {"u1": "i1"}.get(short, short)
    if short not in {*_TYPES.values(), "i1", "fp8e4b15"}:
        raise TritonArgumentError(f"{name}: a kernel cannot take a pointer to {dtype}")
    return short


def _declared(annotation: str) -> str:
    """Return the type that a parameter's annotation asks for, "" where it asks for none."""
    return _TYPES.get(annotation, annotation if annotation in _TYPES.values() else "")


def _integer_type(name: str, value: int) -> str:
    for kind, low, high in (("i32", -(2**31), 2**31), ("i64", -(2**63), 2**63), ("u64", 0, 2**64)):
        if low <= value < high:
            return kind
    raise TritonOverflowError(f"{name}: {value} does not fit into 64 bits")


def _constant(name: str, value: Any) -> Any:
    """Return a compile-time constant as JSON."""
    if type(value).__name__ == "constexpr":
        value = value.value
    if isinstance(value, np.generic):
        value = value.item()
    if type(value).__name__ == "dtype" and hasattr(value, "primitive_bitwidth"):
        found = language_name(value)
        return {"language": found.value if found else str(value)}
    if hasattr(value, "kind") and value.kind in ("language", "layout"):
        return {value.kind: value.value}
    if found := language_name(value):  # a function of tl
        return {"language": found.value}
    if isinstance(value, tuple):
        parts = [_constant(name, part) for part in value]
        return {"tuple": parts, "fields": getattr(value, "_fields", ()), "constant": True}
    if is_jitted(value):
        return {"function": function_key(value)}
    if (layout := layout_name(value)) is not None:
        return {"layout": layout}
    if is_aggregate(value):
        return {"aggregate": aggregate_name(value, []).value}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TritonArgumentError(
        f"{name} is a tl.constexpr: expected a number, a string or a type, got {type(value).__name__}"
    )


def _span(name: str, value: Any) -> ArraySpan:
    if isinstance(value, np.ndarray):
        return _numpy_span(name, value)
    return _torch_span(name, value)


def _numpy_span(name: str, array: NDArray[Any]) -> ArraySpan:
    dtype = _TYPES.get(array.dtype.name)
    if dtype is None or not array.dtype.isnative:
        raise TritonArgumentError(f"{name}: a kernel cannot take an array of {array.dtype}")
    pointer, itemsize = array.ctypes.data, array.itemsize
    steps = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    low = pointer + sum(step for step in steps if step < 0)
    high = pointer + sum(step for step in steps if step > 0) + itemsize if array.size else low
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    begin = min(root.ctypes.data, low)
    writable = bool(array.flags.writeable)
    return ArraySpan(name, pointer, low, high, begin, dtype, itemsize, writable, array.shape, array.strides, array)


def _torch_span(name: str, tensor: Any) -> ArraySpan:
    if getattr(getattr(tensor, "device", None), "type", "cpu") != "cpu":
        raise TritonArgumentError(f"{name}: expected a tensor on the CPU, got one on {tensor.device}")
    dtype = _TYPES.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None:
        raise TritonArgumentError(f"{name}: a kernel cannot take a tensor of {tensor.dtype}")
    pointer, itemsize = tensor.data_ptr(), tensor.element_size()
    shape, storage = tuple(tensor.shape), tensor.untyped_storage()
    strides = tuple(step * itemsize for step in tensor.stride())
    steps = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    low = pointer + sum(step for step in steps if step < 0)  # of an object that is like a tensor, as flipped views are
    high = pointer + sum(step for step in steps if step > 0) + itemsize
    if not math.prod(shape):
        low = high = pointer
    root = storage.data_ptr()
    if any(step == 0 and n > 1 for n, step in zip(shape, strides, strict=True)):  # programs index within the storage
        low, high = root, root + storage.nbytes()
    return ArraySpan(name, pointer, low, high, root, dtype, itemsize, True, shape, strides, tensor)


def _place(spans: list[ArraySpan], packed: Packed) -> None:
    """Put overlapping arrays into one region, regions a DISTANCE apart, and keep each allocation's alignment."""
    regions: list[list[int]] = []
    for i in sorted(range(len(spans)), key=lambda i: spans[i].low):
        if regions and spans[i].low < max(spans[j].high for j in regions[-1]):
            regions[-1].append(i)
        else:
            regions.append([i])
    shifts: dict[int, int] = {}  # from an address of this process to one of the simulated GPU
    for members in sorted(regions, key=min):
        low, high = min(spans[i].low for i in members), max(spans[i].high for i in members)
        shift = (len(packed.regions) + 1) * DISTANCE - min(spans[i].root for i in members)
        writable = all(spans[i].writable for i in members)
        packed.regions.append((low + shift, high + shift, writable, low))
        shifts |= dict.fromkeys(members, shift)
    for i, span in enumerate(spans):
        address, start, stop = (at + shifts[i] for at in (span.pointer, span.low, span.high))
        packed.arrays.append(
            Argument(span.name, address, start, stop, span.dtype, span.itemsize, span.shape, span.strides)
        )
    _resolve(packed.arguments, [one.address for one in packed.arrays])


def _resolve(tree: Any, addresses: Sequence[int]) -> None:
    """Replace the numbers of spans by addresses."""
    for value in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(value, dict):
            if "pointer" in value:
                value["address"] = addresses[value["address"]]
            else:
                _resolve(value, addresses)
        elif isinstance(value, list):
            _resolve(value, addresses)
