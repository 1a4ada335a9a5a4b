"""The shipped digits are the published ones."""

from __future__ import annotations

import numpy as np

from mlsys_labkit import datasets


def test_the_digits_are_the_published_ones() -> None:
    images, labels = datasets.digits()
    from sklearn.datasets import load_digits

    published_images, published_labels = load_digits(return_X_y=True)
    assert images.dtype == np.float64
    assert labels.dtype == np.int64
    assert np.array_equal(images, published_images)
    assert np.array_equal(labels, published_labels)


def test_each_call_returns_fresh_arrays() -> None:
    datasets.digits()[0][:] = 0
    assert datasets.digits()[0].any()
