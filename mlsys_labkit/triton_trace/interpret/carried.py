"""Variables that a loop carries from turn to turn: Triton compiles a loop only if their types and shapes stay."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import triton.language as tl

from mlsys_labkit.triton_trace.gluon.objects import Aggregate
from mlsys_labkit.triton_trace.interpret.blocks import shape_of
from mlsys_labkit.triton_trace.interpret.overflow import overflow_of
from mlsys_labkit.triton_trace.interpret.run import CompilerRefusal, InterpreterRun
from mlsys_labkit.triton_trace.names import language_name

_NARROW = ("fp16", "bf16", "int8", "int16")
_TURNS = "labkit turns"
COMPILER = "Triton's compiler refuses that"
CONSTANTS = (bool, int, float, str)  # assigned numbers are tensors: a variable with one of these is the compiler's


def scope_of(frame: FrameType) -> dict[str, Any]:
    """Return the variables of a function of the student's; those of a branch that is tried are globals."""
    return frame.f_globals if frame.f_code.co_name.startswith("_lk_") else frame.f_locals


def variables(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the variables of the calling function among ``names`` that have a value."""
    found = scope_of(sys._getframe(1))
    return {name: found[name] for name in names if name in found}


def carried(before: dict[str, Any], name: str, now: Any) -> None:
    """Raise CompilerRefusal if a variable had another type before its loop than it has after a turn.

    Reference: Triton, ``CodeGenerator._verify_loop_carried_variable``.
    """
    require_kept(name, before[name], now, place="loop", part="loop", after="a turn")


def note_sum(run: InterpreterRun, before: dict[str, Any], name: str, now: Any) -> None:
    """Report a sum over the turns of a loop that is kept in a narrow type: it loses digits, or it overflows."""
    dtype = now.dtype.name if isinstance(now, tl.tensor) else ""
    if dtype not in _NARROW:
        return
    overflow = overflow_of(now.handle)
    wide = "tl.float32" if now.dtype.is_floating() else "tl.int32"
    if overflow and overflow.lanes.any():
        message = f"adds up to {overflow.exact:,} in {name}, which does not fit into {dtype}: begin with {wide}"
        run.misuse("integer_overflow", message)
    key = f"{_TURNS} {name}"
    turns = before[key] = before.get(key, 0) + 1
    if turns == 2:
        message = f"adds up {name} in {dtype} over the turns of a loop: begin with {wide}, and convert at the end"
        run.misuse("narrow_accumulator", message, severity="information")


def require_kept(name: str, first: Any, now: Any, *, place: str, part: str, after: str) -> None:
    """Raise CompilerRefusal unless a variable has the same type before the ``place`` and ``after`` its ``part`` ran."""
    if now is first or kind_of(first) == kind_of(now):
        return
    if isinstance(first, CONSTANTS):
        raise CompilerRefusal(
            f"{name} is a constant of the compiler, and a {part} cannot change it: give the result another name"
        )
    said = f"{name} is {words(first)} before the {place} and {words(now)} after {after}; {COMPILER}"
    if not isinstance(first, tl.tensor) or not isinstance(now, tl.tensor):
        raise CompilerRefusal(said)
    if shape_of(first) == shape_of(now):
        advice = f"begin with {dtype_word(now)}, or convert in the {part}: .to({dtype_word(first)})"
    elif shape_of(now):
        advice = f"give {name} that shape before the {place}, {as_block(now)}"
    else:
        advice = f"let {name} keep its shape in the {part}"
    raise CompilerRefusal(f"{said}: {advice}")


def kind_of(value: Any) -> Any:
    """Return what Triton's compiler compares of a value: type and shape."""
    if isinstance(value, tl.tensor):
        return value.type
    if isinstance(value, (tuple, tl.tuple)):
        return [kind_of(one) for one in value]
    if isinstance(value, Aggregate):
        return value.kind  # the compiler does not compare the fields
    return type(value)


def as_block(block: Any) -> str:
    if block.dtype.is_ptr():
        return f"as pointer + tl.zeros({shape_of(block)}, tl.int32) has it"
    return f"as tl.zeros({shape_of(block)}, {dtype_word(block)}) has it"


def dtype_word(block: Any) -> str:
    known = language_name(block.dtype)
    return f"tl.{known.value.rpartition('.')[2]}" if known else "its type"


def words(value: Any) -> str:
    """Return a value's type and shape in words."""
    if isinstance(value, (tuple, tl.tuple)):
        return f"({', '.join(words(one) for one in value)})"
    if not isinstance(value, tl.tensor):
        return f"a {type(value).__name__}"
    shape, pointer = shape_of(value), value.dtype.is_ptr()
    if not shape:
        return "one pointer" if pointer else f"one {dtype_word(value)}"
    return f"a block of shape {shape} of {'pointers' if pointer else dtype_word(value)}"
