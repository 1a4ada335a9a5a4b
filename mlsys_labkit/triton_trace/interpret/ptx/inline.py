"""``tl.inline_asm_elementwise``: packs the elements of blocks into registers, and the registers of results into blocks.

Reference: Triton, ``triton.language.inline_asm_elementwise``: elements of less than 4 bytes share a register.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.private import Handle, storage_dtype
from mlsys_labkit.triton_trace.interpret.ptx.assembly import Assembly, parsed, widths
from mlsys_labkit.triton_trace.interpret.ptx.machine import Machine
from mlsys_labkit.triton_trace.interpret.run import InterpreterRun, Refused
from mlsys_labkit.triton_trace.interpret.undefined import in_groups

Array = NDArray[Any]


class Results:
    """The results of one call, as Triton's builder returns them."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = handles

    def get_result(self, number: int) -> Any:
        return self._handles[number]


def evaluate(
    run: InterpreterRun,
    text: str,
    constraints: str,
    operands: Sequence[Any],
    results: Sequence[Any],
    *,
    pack: int,
    special: Mapping[str, int],
) -> Results:
    """Run the assembly for ``pack`` elements at a time. Raises Refused for what is not interpreted.

    Args:
        operands: handles of one shape. results: types of the results. special: values of registers as "%smid".
    """
    shape = np.broadcast_shapes(*(one.data.shape for one in operands)) if operands else (1,)
    size = int(np.prod(shape))
    lanes = -(-size // pack)
    wide_results, wide_operands = widths(constraints)
    given: dict[str, Array] = {}
    for one in operands:
        flat = np.broadcast_to(one.data, shape).reshape(-1)
        full = np.pad(flat, (0, lanes * pack - size), mode="edge")  # a GPU has any value there
        for column in _packed(full.reshape(lanes, pack)):
            given[f"${len(wide_results) + len(given)}"] = column
    kinds = [storage_dtype(one.scalar) for one in results]
    counts = [-(-pack // _together(kind, pack)) for kind in kinds]
    if len(given) != len(wide_operands) or sum(counts) != len(wide_results):
        raise Refused(
            f"the constraints {constraints!r} name {len(wide_results)} results and {len(wide_operands)} operands, and "
            f"these blocks with pack={pack} have {sum(counts)} and {len(given)} registers"
        )
    assembly = _read(text)
    names = {f"${i}" for i in range(len(wide_results) + len(wide_operands))}
    everywhere = {name: np.full(lanes, value, np.uint64) for name, value in special.items()}
    machine = Machine(run, lanes, assembly.registers | names, everywhere | given)
    machine.execute(assembly)
    made, first = [], 0
    for one, kind, count in zip(results, kinds, counts, strict=True):
        columns = [machine.register(f"${i}") for i in range(first, first + count)]
        data = _unpacked(columns, kind, pack).reshape(-1)[:size].reshape(shape)
        made.append(Handle(data, one.scalar))
        first += count
    return Results(in_groups(made, operands, pack))


@lru_cache(maxsize=256)
def _read(text: str) -> Assembly:
    return parsed(text)


def _together(kind: np.dtype[Any], pack: int) -> int:
    """Return how many elements share a register."""
    return min(max(4 // kind.itemsize, 1), pack)


def _packed(elements: Array) -> list[Array]:
    """Return the registers of (lanes, pack) elements, the first element in the lowest bits."""
    bits = np.ascontiguousarray(elements).view(f"u{elements.itemsize}")
    step = _together(elements.dtype, elements.shape[1])
    columns = []
    for at in range(0, elements.shape[1], step):
        register = np.zeros(len(bits), np.uint64)
        for i in range(at, min(at + step, elements.shape[1])):
            register |= bits[:, i].astype(np.uint64) << np.uint64(8 * elements.itemsize * (i - at))
        columns.append(register)
    return columns


def _unpacked(columns: Sequence[Array], kind: np.dtype[Any], pack: int) -> Array:
    step, code = _together(kind, pack), np.dtype(f"u{kind.itemsize}")
    parts = [
        (columns[i // step] >> np.uint64(8 * kind.itemsize * (i % step))).astype(code) for i in range(pack)
    ]  # fmt: skip
    data = np.stack(parts, axis=1)
    return (data & 1).astype(np.bool_) if kind == np.bool_ else data.view(kind)
