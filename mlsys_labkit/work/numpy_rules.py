"""FLOP rules for numpy's ufuncs and functions, on plain arrays: names in numpy and their FLOPs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from mlsys_labkit.work import conventions
from mlsys_labkit.work.record import WorkError

Array = npt.NDArray[Any]

_REDUCING = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}


def function_flops(
    name: str, operands: list[Array], args: Any, kwargs: dict[str, Any], results: list[Array]
) -> float | None:
    elements_in: int = max((item.size for item in operands), default=0)
    elements_out: int = sum(item.size for item in results)
    if name in ("dot", "inner", "vdot", "tensordot", "matmul"):
        return _product_flops(name, operands, elements_out)
    if name == "einsum":
        return einsum_flops(args, kwargs)
    if name in ("outer", "kron", "round", "around"):
        return float(elements_out)
    if name in conventions.FACTORISATIONS:
        if name == "svd" and kwargs.get("compute_uv", True) is False:
            name = "svdvals"
        columns = operands[1].size // operands[1].shape[0] if name == "solve" and operands[1].ndim < 3 else 0
        return conventions.factorisation_flops(name, operands[0].shape, columns)
    if name == "norm" and not _is_euclidean(operands[0], kwargs.get("ord", args[1] if len(args) > 1 else None)):
        return None
    if name == "cov" and len(operands) == 1 and kwargs.get("rowvar", True) and operands[0].ndim == 2:
        d, n = operands[0].shape  # the mean, the difference, one product, one division
        return float(2 * d * n + d + 2 * d * d * n + d * d)
    return conventions.flops_of(name, elements_in, elements_out)


def _is_euclidean(array: Array, order: object) -> bool:
    return order is None or order == "fro" or (order == 2 and array.ndim == 1)


def _product_flops(name: str, operands: list[Array], elements_out: int) -> float:
    a, b = operands[:2]
    if not a.ndim or not b.ndim:
        return float(elements_out)
    if name in ("inner", "dot", "vdot", "matmul"):
        return 2.0 * elements_out * (a.size if name == "vdot" else a.shape[-1])
    return 2.0 * math.sqrt(a.size * b.size * elements_out)  # a is m·k, b is k·n, the result m·n


def einsum_flops(args: Any, kwargs: dict[str, Any]) -> float:
    """Return the FLOPs of an einsum.

    For two operands: sums over the indices that only one of them has, then a product (elementwise if nothing is
    contracted).
    """
    if not isinstance(args[0], str):
        raise WorkError("einsum is counted when the subscripts are a string; write np.einsum('ij,jk->ik', a, b)")
    subscripts, operands = args[0].replace(" ", ""), list(args[1:])
    if "." in subscripts or (len(operands) > 2 and kwargs.get("optimize", False) is not False):
        raise WorkError(
            "einsum is counted without '...' and, beyond two operands, without optimize; write the steps out"
        )
    inputs, _, output = subscripts.partition("->")
    terms = inputs.split(",")
    if "->" not in subscripts:
        output = "".join(sorted(letter for letter in set(inputs) - {","} if inputs.count(letter) == 1))
    sizes = {
        letter: size
        for term, item in zip(terms, operands, strict=True)
        for letter, size in zip(term, item.shape, strict=True)
    }

    def volume(letters: Iterable[str]) -> float:
        return float(math.prod(sizes[letter] for letter in set(letters)))

    if len(terms) == 1:
        return volume(terms[0]) if set(terms[0]) - set(output) else 0.0
    if len(terms) > 2:  # numpy's own loop: every product and one addition for each point of the index space
        return len(terms) * volume("".join(terms))
    flops = 0.0
    for position, (term, other) in enumerate(((terms[0], terms[1]), (terms[1], terms[0]))):
        alone = set(term) - set(other) - set(output)
        if alone:
            flops += volume(term)
            terms[position] = "".join(letter for letter in term if letter not in alone)
    indices = set(terms[0]) | set(terms[1])
    return flops + volume(indices) * (2 if indices - set(output) else 1)


def ufunc_flops(ufunc: Any, method: str, inputs: list[Array], results: list[Array]) -> float | None:
    name = ufunc.__name__
    elements_in: int = inputs[0].size
    elements_out: int = sum(item.size for item in results)
    if ufunc.signature is not None:
        if name in ("matmul", "vecdot", "matvec", "vecmat"):
            return float(2 * elements_out * int(inputs[0].shape[-1]))
        return None
    if name in conventions.FREE or dtype_of(inputs) == "bool":
        return 0.0
    if method in ("reduce", "accumulate", "reduceat"):
        return conventions.flops_of(_REDUCING.get(name, "sum"), elements_in, elements_out)
    if method == "at":
        return float(inputs[1].size)
    weight: int = conventions.POINTWISE.get(name, 1)
    return float(weight * elements_out)


def dtype_of(arrays: list[Any]) -> str:
    dtypes = [array.dtype for array in arrays]
    floating = [dtype for dtype in dtypes if dtype.kind not in "biu"]
    return str(np.result_type(*floating)) if floating else str((dtypes or [np.dtype("float64")])[0])
