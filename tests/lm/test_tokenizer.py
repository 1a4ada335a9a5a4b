"""Tests of the tokenizer against Hugging Face's on the same file, and of its training against the definition."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, strategies as st

from mlsys_labkit.lm import CheckpointError, TokenError, Tokenizer
from mlsys_labkit.lm.checkpoint import WEIGHTS
from mlsys_labkit.lm.tokenizer import WORD

TEXTS = [
    "the cat sat on the mat; the rat sat on the cat",
    "def f(x):\n    return x + 1\n\n\ndef g(x):\n    return f(f(x))\n",
    "größer, größte, Größe — naïve café",
    "aaaaaaaaaaaa aaaa aa a",
]


@pytest.fixture(scope="module")
def shipped() -> tuple[Tokenizer, tokenizers.Tokenizer]:
    path = Path(str(WEIGHTS / "tokenizer.json"))
    return Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))


@given(text=st.text())
def test_encode_equals_hugging_faces_tokenizers(shipped: tuple[Tokenizer, tokenizers.Tokenizer], text: str) -> None:
    ours, theirs = shipped
    if "<|endoftext|>" not in text:
        assert ours.encode(text) == theirs.encode(text).ids


@given(text=st.text(alphabet="ab \n\tdefreturn01_().:-é"))
def test_encode_cuts_words_as_tokenizers_does(shipped: tuple[Tokenizer, tokenizers.Tokenizer], text: str) -> None:
    ours, theirs = shipped
    assert ours.encode(text) == theirs.encode(text).ids


@given(text=st.text())
def test_decode_inverts_encode(shipped: tuple[Tokenizer, tokenizers.Tokenizer], text: str) -> None:
    assert shipped[0].decode(shipped[0].encode(text)) == text


def test_encode_treats_end_of_text_string_as_text(shipped: tuple[Tokenizer, tokenizers.Tokenizer]) -> None:
    ours, _ = shipped
    assert ours.end not in ours.encode("<|endoftext|>")
    assert ours.decode([*ours.encode("x"), ours.end]) == "x<|endoftext|>"
    assert len(ours) == 2048


@pytest.mark.parametrize("text", TEXTS)
def test_training_merges_the_most_frequent_pair_each_time(text: str) -> None:
    assert list(Tokenizer.train([text], 300).merges) == merged_slowly(text, 300 - 257)


def test_training_takes_what_encode_takes() -> None:
    lone = "\ud800a"  # a surrogate without its pair, as a damaged file may have
    assert Tokenizer.train([lone], 300).encode(lone)


@pytest.mark.parametrize("token", [-1, 10**6])
def test_numbers_that_are_no_token_are_refused(shipped: tuple[Tokenizer, tokenizers.Tokenizer], token: int) -> None:
    with pytest.raises(TokenError, match=rf"a token is a number from 0 to \d+, got {token}"):
        shipped[0].decode([token])


@given(text=st.text(alphabet="ab c", max_size=60))
def test_training_accepts_any_text(text: str) -> None:
    assert list(Tokenizer.train([text], 270).merges) == merged_slowly(text, 270 - 257)


def merged_slowly(text: str, limit: int) -> list[tuple[int, int]]:
    import re

    words = [list(word.encode()) for word in re.findall(WORD, text)]
    merges: list[tuple[int, int]] = []
    while len(merges) < limit:
        counts = Counter(pair for word in words for pair in pairwise(word))
        if not counts or max(counts.values()) < 2:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        for index, word in enumerate(words):
            result: list[int] = []
            while word:
                if tuple(word[:2]) == best:
                    result.append(256 + len(merges))
                    word = word[2:]
                else:
                    result.append(word[0])
                    word = word[1:]
            words[index] = result
        merges.append(best)
    return merges


def test_saved_tokenizer_loads_unchanged(tmp_path: Path) -> None:
    made = Tokenizer.train(TEXTS, 300)
    made.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").merges == made.merges
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [theirs.encode(text).ids for text in TEXTS] == [made.encode(text) for text in TEXTS]


def test_load_refuses_other_tokenizer_files_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="not a byte-level tokenizer that this kit wrote"):
        Tokenizer.load(tmp_path / "tokenizer.json")
