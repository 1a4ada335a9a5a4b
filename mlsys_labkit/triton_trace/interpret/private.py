"""Every private name of Triton that the kit uses, as one list (Triton 3.6 to 3.9). Imported by the worker only.

From Triton come the language, its type rules and the handles of its interpreter. Arithmetic, memory, control flow and
the loop over programs are the kit's own, the same on every version.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as theirs

__all__ = [
    "ATOMICS",
    "DOT_PRECISIONS",
    "PAD_NAN",
    "PROPAGATE_NONE",
    "ROUND_NEAREST",
    "BuilderBase",
    "Handle",
    "Options",
    "TritonSemantic",
    "give_semantic",
    "on_library_call",
    "smallest_dot",
    "speak_through",
    "speaking",
    "storage_dtype",
]

Handle = theirs.TensorHandle
BuilderBase = theirs.InterpreterBuilder
Options = theirs.InterpreterOptions
PAD_NAN = ir.PADDING_OPTION.PAD_NAN
PROPAGATE_NONE = ir.PROPAGATE_NAN.NONE
ROUND_NEAREST = ir.ROUNDING_MODE.RTNE
DOT_PRECISIONS = nvidia.CUDAOptions.allowed_dot_input_precisions
ATOMICS = {
    ir.ATOMIC_OP.ADD: "add",
    ir.ATOMIC_OP.FADD: "add",
    ir.ATOMIC_OP.MIN: "min",
    ir.ATOMIC_OP.UMIN: "umin",
    ir.ATOMIC_OP.MAX: "max",
    ir.ATOMIC_OP.UMAX: "umax",
    ir.ATOMIC_OP.AND: "and",
    ir.ATOMIC_OP.OR: "or",
    ir.ATOMIC_OP.XOR: "xor",
    ir.ATOMIC_OP.XCHG: "xchg",
}


@functools.cache
def storage_dtype(dtype: Any) -> np.dtype[Any]:
    """Return numpy's type for a handle of a scalar type: bf16 and fp8 as their bits, a pointer as its address."""
    found: np.dtype[Any] = theirs._get_np_dtype(dtype)
    return found


def speak_through(builder: Any, semantic: Any) -> None:
    """Make the functions of ``tl`` and the operators of blocks call ``builder``, for the rest of the process."""
    theirs.interpreter_builder = builder
    theirs.interpreter_semantic = semantic
    theirs._patch_lang(FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core}))


def give_semantic(package: Any) -> None:
    """Make the functions of a module or a class of Triton's use the type rules of the language that speaks."""
    theirs._patch_builtin(package, theirs.interpreter_builder, theirs._LangPatchScope())


@contextmanager
def speaking(semantic: Any) -> Iterator[None]:
    """Use other type rules inside."""
    before, theirs.interpreter_semantic = theirs.interpreter_semantic, semantic
    try:
        yield
    finally:
        theirs.interpreter_semantic = before


def on_library_call(call: Callable[..., Any]) -> None:
    """Run Triton's own jitted functions (tl.sum, tl.sort, ...) as ``call(python_function)(*arguments)``."""

    def refuse(function: Any, grid: Any) -> Any:
        raise TypeError("a kernel launches no kernel")

    theirs.InterpretedFunction.__getitem__ = refuse
    theirs.InterpretedFunction.__call__ = lambda function, *args, **kwargs: call(function.fn)(*args, **kwargs)


def smallest_dot() -> Callable[..., Any]:
    """Return the rule for the least m, n, k of ``tl.dot`` on a Hopper GPU."""
    rule: Callable[..., Any] = nvidia.min_dot_size(GPUTarget("cuda", 90, 32))
    return rule
