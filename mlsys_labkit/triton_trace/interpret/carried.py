"""Variables that a loop carries from turn to turn: Triton compiles a loop only if their types and shapes stay."""

from __future__ import annotations

import sys
from typing import Any

import triton.language as tl

from mlsys_labkit.triton_trace.interpret.blocks import shape_of
from mlsys_labkit.triton_trace.interpret.run import Refused
from mlsys_labkit.triton_trace.source import language_name

_COMPILER = "Triton's compiler refuses that"


def variables(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the variables of the calling function among ``names`` that have a value."""
    found = sys._getframe(1).f_locals
    return {name: found[name] for name in names if name in found}


def carried(before: dict[str, Any], name: str, now: Any) -> None:
    """Raise Refused if a variable had another type before its loop than it has after a turn.

    Reference: Triton, ``CodeGenerator._verify_loop_carried_variable``.
    """
    if name not in before or _type(before[name]) == _type(now):
        return
    first = before[name]
    if isinstance(first, (bool, int, float, str)):  # assigned numbers are blocks: this one is an argument
        raise Refused(
            f"{name} is a constant of the compiler, and a loop cannot change it: give the result another name"
        )
    if not isinstance(first, tl.tensor) or not isinstance(now, tl.tensor):
        raise Refused(f"{name} is {_words(first)} before the loop and {_words(now)} after a turn; {_COMPILER}")
    if shape_of(first) != shape_of(now):
        before_loop = f"give {name} that shape before the loop, as tl.zeros({shape_of(now)}, {_dtype(now)}) has it"
        advice = before_loop if shape_of(now) else f"let {name} keep its shape in the loop"
    else:
        advice = f"begin with {_dtype(now)}, or convert in the loop: .to({_dtype(first)})"
    raise Refused(f"{name} is {_words(first)} before the loop and {_words(now)} after a turn; {_COMPILER}: {advice}")


def _type(value: Any) -> Any:
    if isinstance(value, tl.tensor):
        return value.type
    if isinstance(value, (tuple, tl.tuple)):
        return [_type(one) for one in value]
    return type(value)


def _dtype(block: Any) -> str:
    known = language_name(block.dtype)
    return f"tl.{known.value.rpartition('.')[2]}" if known else "its type"


def _words(value: Any) -> str:
    if not isinstance(value, tl.tensor):
        return f"a {type(value).__name__}"
    shape, dtype = shape_of(value), _dtype(value) if language_name(value.dtype) else "pointers"
    return f"a block of shape {shape} of {dtype}" if shape else f"one {dtype}"
