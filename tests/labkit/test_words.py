"""The word table: complete, small, and in agreement with independent facts about the words."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files

import numpy as np
import pytest

from mlsys_labkit import datasets
from mlsys_labkit.datasets import word_table
from mlsys_labkit.errors import LabkitError


def vectors_of(group: str) -> np.ndarray:
    names, table = datasets.words()
    row = {name: i for i, name in enumerate(names)}
    return table[[row[word] for word in datasets.word_groups()[group]]].astype(np.float64)


def test_word_vectors_are_unit_vectors_without_duplicates() -> None:
    names, table = datasets.words()
    assert table.shape == (len(names), 384)
    assert table.dtype == np.float32
    assert Counter(names).most_common(1)[0][1] == 1, "a word stands in one group only"
    assert names == [word for group in datasets.word_groups().values() for word in group]
    assert np.abs(np.linalg.norm(table, axis=1) - 1).max() < 0.005


def test_word_groups_share_their_offset() -> None:
    lengths: dict[str, set[int]] = {}
    for name, members in datasets.word_groups().items():
        assert members, name
        if "/" in name:
            lengths.setdefault(name.split("/")[0], set()).add(len(members))
    assert lengths.keys() == {"world", "people", "tense", "count"}
    assert all(len(sizes) == 1 for sizes in lengths.values()), lengths


@pytest.mark.parametrize(
    ("first", "second", "least"),
    [("world/country", "world/capital", 0.85), ("tense/present", "tense/past", 0.85), ("count/one", "count/many", 1.0)],
)
def test_a_word_finds_its_partner(first: str, second: str, least: float) -> None:
    """France is nearest to Paris: knowledge of the world, which no shuffled or mislabelled row would have."""
    one, other = vectors_of(first), vectors_of(second)
    one, other = one - one.mean(axis=0), other - other.mean(axis=0)
    nearest = np.argmax(one @ other.T, axis=1)
    assert np.mean(nearest == np.arange(len(one))) >= least


def test_each_call_returns_a_fresh_table() -> None:
    datasets.words()[1][:] = 0
    datasets.words()[0].clear()
    assert datasets.words()[1].any()
    assert datasets.words()[0]


def test_the_table_is_small() -> None:
    folder = files("mlsys_labkit.datasets")
    assert sum(len((folder / name).read_bytes()) for name in ("words.npz", "words.txt")) < 1_000_000


def test_a_list_that_does_not_fit_the_vectors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "word_groups", lambda: {"animals": ("cat",)})
    with pytest.raises(LabkitError, match=r"lists 1 words .* holds \d+ vectors; run make_words.py again"):
        word_table.words()
