"""Whether a source leaves to volatile what ``__syncwarp`` is for."""

from __future__ import annotations

from mlsys_labkit.cuda.source.special_registers import ASSEMBLY
from mlsys_labkit.cuda.source.tokens import code_tokens, tokenize

__all__ = ["has_volatile_accesses"]


def has_volatile_accesses(source: str) -> bool:
    """Whether memory is accessed as volatile.

    Code of the time before ``__syncwarp`` counts on the lanes of a warp being in step at such accesses, and threads
    that wait for a flag spin there. So a plain launch of it runs the instrumented build: its hooks keep lanes in step
    and let others run. ``asm volatile`` is no access.

    Example:
        >>> has_volatile_accesses("volatile float* s = sums;"), has_volatile_accesses("asm volatile(x);")
        (True, False)

    Reference: Harris, "Optimizing Parallel Reduction in CUDA" (2007), "Unrolling the last warp".
    """
    tokens = code_tokens(tokenize(source))
    return any(
        token.text == "volatile" and (place == 0 or tokens[place - 1].text not in ASSEMBLY)
        for place, token in enumerate(tokens)
    )
