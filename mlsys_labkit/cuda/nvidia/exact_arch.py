"""Architectures by their exact name: NVIDIA's compilers take ``wgmma`` for sm_90a, and refuse it for sm_90."""

from __future__ import annotations

import re

_HOPPER_ALONE = re.compile(r"\b(?:wgmma|setmaxnreg)\.")


def exact_arch(arch: str, *texts: str) -> str:
    """Return ``arch``, with the suffix "a" if one of the texts has instructions of this architecture alone.

    Example:
        >>> exact_arch("sm_90", 'asm("wgmma.fence.sync.aligned;");'), exact_arch("sm_90", "x[0] = 1;")
        ('sm_90a', 'sm_90')
    """
    return f"{arch}a" if arch == "sm_90" and any(map(_HOPPER_ALONE.search, texts)) else arch
