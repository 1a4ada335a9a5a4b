"""Seeds that a test cell sets, as they are set."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["noted_seeds"]

_SEEDING: tuple[tuple[str, Any, str], ...] = (
    ("torch.manual_seed", torch, "manual_seed"),
    ("numpy.random.seed", np.random, "seed"),
    ("random.seed", random, "seed"),
)


@contextmanager
def noted_seeds(note: Callable[[str, int], None]) -> Iterator[None]:
    """Call ``note`` with the function and the seed, at each seed that the block sets."""
    originals = [(path, module, getattr(module, name), name) for path, module, name in _SEEDING]

    def noting(path: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def seed(value: Any = None, *more: Any, **keywords: Any) -> Any:
            if type(value) is int:
                note(path, value)
            return original(value, *more, **keywords)

        return seed

    for path, module, original, name in originals:
        setattr(module, name, noting(path, original))
    try:
        yield
    finally:
        for _, module, original, name in originals:
            setattr(module, name, original)
