"""Seeds that a test cell sets, as they are set."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

_SEEDING = {"torch.manual_seed": torch, "numpy.random.seed": np.random, "random.seed": random}


@contextmanager
def noted_seeds(note: Callable[[str, int], None]) -> Iterator[None]:
    """Call ``note`` with the function and the seed, at each seed that the block sets."""

    def noting(path: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def seed(value: Any = None, *more: Any, **keywords: Any) -> Any:
            if type(value) is int:
                note(path, value)
            return original(value, *more, **keywords)

        return seed

    with ExitStack() as stack:
        for path, module in _SEEDING.items():
            name = path.rpartition(".")[2]
            original = getattr(module, name)
            stack.callback(setattr, module, name, original)
            setattr(module, name, noting(path, original))
        yield
