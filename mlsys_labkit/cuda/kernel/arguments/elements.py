"""Comparison of an array's elements with the type that a kernel's pointer points to."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlsys_labkit.cuda.errors import CudaArgumentError
from mlsys_labkit.cuda.kernel.arguments.parameters import Parameter

# The elements of CUDA's vector types such as float4: numpy's kind and bytes.
_VECTOR_BASES = {
    "char": ("i", 1),
    "uchar": ("u", 1),
    "short": ("i", 2),
    "ushort": ("u", 2),
    "int": ("i", 4),
    "uint": ("u", 4),
    "long": ("i", 8),
    "ulong": ("u", 8),
    "longlong": ("i", 8),
    "ulonglong": ("u", 8),
    "float": ("f", 4),
    "double": ("f", 8),
}


def check_elements(label: str, parameter: Parameter, dtype: np.dtype[Any] | str, nbytes: int) -> None:
    kind, size = parameter.element_kind, parameter.element_bytes
    name = str(dtype)
    if isinstance(dtype, str) or name == "bfloat16":
        fits = kind == "bfloat16" or (kind == "record" and nbytes % size == 0) or kind == "void"
    elif kind in ("void", "record"):
        fits = kind == "void" or (dtype.itemsize == size if dtype.fields else _fills(parameter, dtype, nbytes))
    elif kind == "pointer":
        fits = dtype.kind in "iu" and dtype.itemsize == 8
    elif kind in ("half", "bfloat16"):
        fits = (dtype.kind == "u" and dtype.itemsize == 2) or (kind == "half" and dtype == np.float16)
    elif kind == "float":
        fits = dtype.kind == "f" and dtype.itemsize == size
    else:
        kinds = "iub" if size == 1 else "iu"
        fits = dtype.kind in kinds and dtype.itemsize == size
    if not fits:
        raise CudaArgumentError(
            f"{label} is an array of {name}, and the kernel expects {parameter.type}; pass {_remedy(kind, size)}"
        )


def _fills(parameter: Parameter, dtype: np.dtype[Any], nbytes: int) -> bool:
    """Return whether numbers can stand for structs: ``float4*`` takes float32, a struct of the student's any number."""
    base, width = parameter.element_type.rstrip("1234"), parameter.element_type[-1:]
    if base in _VECTOR_BASES and width in "1234":
        kind, size = _VECTOR_BASES[base]
        if dtype.itemsize != size and dtype.itemsize != parameter.element_bytes:
            return False
        if dtype.itemsize == size and (dtype.kind == "f") != (kind == "f"):
            return False
    return nbytes % parameter.element_bytes == 0


def _remedy(kind: str, size: int) -> str:
    if kind == "record":
        return f"a structured array with {size} bytes an element, or plain numbers that fill a multiple of {size} bytes"
    if kind == "pointer":
        return "an array of uint64 with addresses of device arrays"
    if kind == "bfloat16":
        return "a torch.bfloat16 tensor, or the bits as uint16"
    dtype = {"float": f"float{8 * size}", "half": "float16", "bool": "bool", "integer": f"int{8 * size}"}.get(
        kind, f"uint{8 * size}"
    )
    return (
        f"array.astype(np.{'bool_' if dtype == 'bool' else dtype}), or declare the parameter with the array's own type"
    )
