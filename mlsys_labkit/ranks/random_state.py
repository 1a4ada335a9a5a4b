"""The states of the random number generators that a process has: torch's, numpy's global one and Python's."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class RandomState:
    """The states of all three at one moment. Ranks begin with the notebook's, so that a seed set there has an effect.

    Example:
        >>> torch.manual_seed(0) and None
        >>> before = RandomState.capture()
        >>> first = torch.rand(1)
        >>> before.restore()
        >>> torch.equal(first, torch.rand(1))
        True

    Reference: PyTorch, "Reproducibility", https://pytorch.org/docs/stable/notes/randomness.html
    """

    torch: torch.Tensor
    numpy: dict[str, Any]
    python: tuple[Any, ...]

    @staticmethod
    def capture() -> RandomState:
        return RandomState(torch.get_rng_state(), _numpy(), random.getstate())

    def restore(self) -> None:
        torch.set_rng_state(self.torch)
        np.random.set_state(self.numpy)  # noqa: NPY002  (the global generator is what a student seeds)
        random.setstate(self.python)


def _numpy() -> dict[str, Any]:
    return dict(np.random.get_state(legacy=False))  # noqa: NPY002
