"""Atomic operations of a block on the arrays of a launch, one lane after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.memory import LaunchMemory, Reach
from mlsys_labkit.triton_trace.interpret.narrow_floats import Narrow

Array = NDArray[Any]


def atomic(
    memory: LaunchMemory, name: str, reach: Reach, value: Array, compare: Array | None, form: Narrow | None
) -> Array:
    """Apply an atomic to each lane in order and return the values before it, 0 where masked off."""
    addresses = reach.addresses
    old = np.zeros(addresses.shape, value.dtype)
    values = np.broadcast_to(value, addresses.shape)
    compares = None if compare is None else np.broadcast_to(compare, addresses.shape)
    active = np.ones(addresses.shape, np.bool_) if reach.mask is None else reach.mask
    if reach.outside is not None:
        active = active & ~reach.outside
    turns = _turns(addresses, active)
    for turn in range(int(turns.max(initial=-1)) + 1):
        now = turns == turn
        place = memory.reach(addresses, now, value.itemsize)
        before = memory.load(place, np.zeros(1, value.dtype))
        if compares is None:
            after = _combined(name, before, values, form)
        else:
            after = np.where(before == compares, values, before)
        memory.store(place, after)
        old[now] = before[now]
    return old


def _turns(addresses: NDArray[np.uint64], active: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count, per lane, the active lanes before it with the same address; -1 for inactive lanes."""
    turns = np.full(addresses.shape, -1, np.int64)
    chosen = addresses[active]
    order = np.argsort(chosen, kind="stable")
    ordered = chosen[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if ordered.size else order
    lengths = np.diff(np.append(starts, ordered.size))
    rank = np.empty(ordered.size, np.int64)
    rank[order] = np.arange(ordered.size) - np.repeat(starts, lengths)
    turns[active] = rank
    return turns


_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "min": np.fmin,
    "max": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda before, value: value,
}


def _combined(name: str, before: Array, value: Array, form: Narrow | None) -> Array:
    if name in ("umin", "umax"):
        unsigned = np.dtype(f"u{value.itemsize}")
        return _OPERATIONS[name[1:]](before.view(unsigned), value.view(unsigned)).view(value.dtype)
    if form and name != "xchg":
        return form.encode(_OPERATIONS[name](form.decode(before), form.decode(value)).astype(np.float32))
    return _OPERATIONS[name](before, value)
