"""Accesses that are volatile, on which older code relies in place of ``__syncwarp``."""

from __future__ import annotations

from mlsys_labkit.cuda.source.assembly import ASSEMBLY
from mlsys_labkit.cuda.source.source import Source


def has_volatile_accesses(source: Source) -> bool:
    """Return whether memory is accessed as volatile.

    Code from before ``__syncwarp`` relies on lockstep of the lanes of a warp at such accesses, and threads that wait
    for a flag spin there. So a plain launch of it runs the instrumented build: its hooks keep lanes in step and let
    others run. ``asm volatile`` is no access.

    Example:
        >>> has_volatile_accesses(Source("volatile float* s;")), has_volatile_accesses(Source("asm volatile(x);"))
        (True, False)

    Reference: Harris, "Optimizing Parallel Reduction in CUDA" (2007), "Unrolling the last warp".
    """
    code = source.code
    return any(
        token.text == "volatile" and (place == 0 or code[place - 1].text not in ASSEMBLY)
        for place, token in enumerate(code)
    )
