"""Comparisons of arrays bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def same(ours: Any, expected: Any) -> bool:
    """Return whether two arrays are equal bit for bit, where any NaN equals any NaN."""
    a, b = np.asarray(ours), np.asarray(expected)
    nan = np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32)) if a.dtype.kind in "fV" else False
    width = np.dtype(f"u{a.itemsize}")
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.all((a.view(width) == b.view(width)) | nan))


def bits(tensor: torch.Tensor, dtype: Any) -> Any:
    """Return a torch tensor as numpy's extended type, bit for bit."""
    width = {1: torch.uint8, 2: torch.uint16}[tensor.element_size()]
    return tensor.view(width).numpy().view(dtype)
