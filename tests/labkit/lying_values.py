"""Values whose own comparisons lie."""

from __future__ import annotations

import numpy as np
import torch


class AlwaysEqual:
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __repr__(self):
        return "AlwaysEqual()"  # an address here would give each test worker other test names

    __hash__ = object.__hash__

    def __array__(self, dtype=None, copy=None):
        return np.ones(3)

    def __float__(self):
        return 1.0

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return 1.0


class LyingArray(np.ndarray):
    def __eq__(self, other):
        return np.ones(self.shape, bool)

    def __array__(self, *args, **kwargs):
        return np.ones(3)

    def __array_ufunc__(self, *args, **kwargs):
        return np.ones(3)

    def __array_function__(self, *args, **kwargs):
        return np.ones(3)

    def astype(self, *args, **kwargs):
        return np.ones(3)

    @property
    def shape(self):
        return (3,)


class LyingTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return torch.ones(3)


class LyingFloat(float):
    def __eq__(self, other):
        return True

    def __sub__(self, other):
        return 0.0

    __hash__ = float.__hash__


class LyingScalar(np.float64):
    def __eq__(self, other):
        return True

    __hash__ = np.float64.__hash__


class LyingStr(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


class LyingTuple(tuple):
    def __iter__(self):
        return iter((1.0, 1.0, 1.0))

    def __len__(self):
        return 3

    def __eq__(self, other):
        return True

    __hash__ = tuple.__hash__


class LyingDict(dict):
    def items(self):
        return {"a": 1}.items()

    def __getitem__(self, key):
        return 1

    def __eq__(self, other):
        return True

    __hash__ = None


LIARS = [
    AlwaysEqual(),
    [AlwaysEqual()] * 3,
    np.array([AlwaysEqual()] * 3, dtype=object),
    np.zeros(3).view(LyingArray),
    torch.zeros(3).as_subclass(LyingTensor),
    [LyingFloat(2.0)] * 3,
    [LyingScalar(2.0)] * 3,
    LyingTuple((2.0, 2.0, 2.0)),
    None,
    "111",
]
