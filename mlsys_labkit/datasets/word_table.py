"""A small table of real sentence-model embeddings of single English words, and the groups that the words come in.

The vectors were computed by ``make_words.py`` with all-MiniLM-L6-v2, a 22-million-parameter transformer encoder
(sentence-transformers, Apache-2.0; https://www.sbert.net), and are stored as int8 with one float32 scale per word.
The list of words is the kit's own.
"""

from __future__ import annotations

import shlex
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from mlsys_labkit.errors import LabkitError

HERE = files("mlsys_labkit.datasets")


def words() -> tuple[list[str], npt.NDArray[np.float32]]:
    """Return the words and their embeddings: a list of n strings and a float32 array [n, d], d = 384.

    Rows have length 1 to within the int8 rounding (0.1 %), so a dot product is nearly a cosine. Both are fresh
    copies at each call. Raises LabkitError if the files do not belong together.

    Example:
        >>> names, table = words()
        >>> table.shape == (len(names), 384)
        True

    Reference: Reimers and Gurevych, "Sentence-BERT", EMNLP 2019.
    """
    names = [word for group in word_groups().values() for word in group]
    with np.load(str(HERE / "words.npz"), allow_pickle=False) as file:
        codes, scales = file["codes"], file["scales"]
    if codes.shape[0] != len(names):
        raise LabkitError(
            f"words.txt lists {len(names)} words and words.npz holds {codes.shape[0]} vectors; run make_words.py again"
        )
    return names, codes.astype(np.float32) * scales[:, None]


@cache
def _groups() -> tuple[tuple[str, tuple[str, ...]], ...]:
    lines = (HERE / "words.txt").read_text(encoding="utf-8").splitlines()
    split = (line.split(":", 1) for line in lines if line and not line.startswith("#"))
    return tuple((name, tuple(shlex.split(members))) for name, members in split)


def word_groups() -> dict[str, tuple[str, ...]]:
    """Return words by semantic group, in the table's order; groups such as "tense/present" and "tense/past" go in step.

    Example:
        >>> groups = word_groups()
        >>> dict(zip(groups["world/country"], groups["world/capital"]))["Japan"]
        'Tokyo'
    """
    return dict(_groups())
