"""Handwritten digits: the test part of the UCI "Optical Recognition of Handwritten Digits" set, 8 × 8 pixels each.

E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49, CC BY 4.0. Unchanged
but for the storage as uint8: the 1,797 images of ``sklearn.datasets.load_digits`` in their order, as a test makes sure.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import numpy.typing as npt


def digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return images, float64 [1797, 64], brightness 0 to 16 row by row, and the digit that each shows, int64 [1797].

    Both are fresh copies at each call.

    Example:
        >>> images, labels = digits()
        >>> images.shape, int(labels[3])
        ((1797, 64), 3)

    Reference: Alpaydin and Kaynak, "Cascading classifiers", Kybernetika 34(4), 1998.
    """
    with np.load(str(files("mlsys_labkit.datasets") / "digits.npz"), allow_pickle=False) as file:
        return file["images"].astype(np.float64), file["labels"].astype(np.int64)
