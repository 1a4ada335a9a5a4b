"""Tests of streamed text: pieces join to the whole, end at character boundaries, and stop at stop strings."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, strategies as st

from mlsys_labkit import lm
from mlsys_labkit.lm import Tokenizer
from mlsys_labkit.serving.server.text import StopFinder, TextStream

BYTES = Tokenizer.train(["x"], 257)
TINY = lm.load()[1]


def pieces(codec: lm.Tokenizer, tokens: list[int], prompt: tuple[int, ...] = ()) -> list[str]:
    stream = TextStream(codec, prompt)
    return [*(stream.push(token) for token in tokens), stream.flush()]


@given(st.text())
@example("a\u0301 👩‍👩‍👧 \ufffd 𝔘 ж")
def test_text_stream_gives_whole_characters(text: str) -> None:
    encoded = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    got = pieces(BYTES, BYTES.encode(encoded))
    assert "".join(got) == encoded
    if "\ufffd" not in encoded:
        assert all("\ufffd" not in piece for piece in got)
        assert got[-1] == ""  # nothing is held back behind a whole character


@given(st.lists(st.integers(0, 255)), st.text(max_size=5))
def test_text_stream_equals_decoding_all_bytes_at_once(tokens: list[int], before: str) -> None:
    assert "".join(pieces(BYTES, tokens)) == BYTES.decode(tokens)
    prompt = tuple(BYTES.encode(before))
    assert "".join(pieces(BYTES, tokens, prompt)) == BYTES.decode(tokens)


def test_text_stream_equals_the_tokenizer_on_any_tokens() -> None:
    pick = random.Random(5)
    for _ in range(200):
        tokens = [pick.randrange(TINY.end + 1) for _ in range(30)]
        assert "".join(pieces(TINY, tokens)) == TINY.decode(tokens)


def test_character_appears_with_the_token_that_completes_it() -> None:
    assert pieces(BYTES, BYTES.encode("é€😀!")) == ["", "é", "", "", "€", "", "", "", "😀", "!", ""]


class Words:
    """A decoder that trims the first space of a text, as SentencePiece's decoders do."""

    end = None

    def decode(self, tokens: list[int]) -> str:
        return "".join(f" w{token}" for token in tokens).removeprefix(" ")


def test_text_stream_keeps_spaces_with_a_trimming_decoder() -> None:
    assert "".join(pieces(Words(), [1, 2, 3], prompt=(0,))) == " w1 w2 w3"
    assert "".join(pieces(Words(), [1, 2, 3])) == "w1 w2 w3"


letters = st.text("ab", max_size=14)
stops = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


@given(letters, stops, st.randoms())
def test_stop_finder_cuts_at_the_first_complete_stop_string(
    text: str, given_stops: list[str], chance: random.Random
) -> None:
    finder = StopFinder(given_stops)
    got, at = "", 0
    while at < len(text):
        size = chance.randint(1, 4)
        got += finder.push(text[at : at + size])
        at += size
        assert not any(stop in got for stop in given_stops)
    got += finder.flush()
    # Brute force: read letter by letter until some stop string is complete, the longest one if several are.
    want = text
    for end in range(len(text) + 1):
        if done := [stop for stop in given_stops if text[:end].endswith(stop)]:
            want = text[: end - max(map(len, done))]
            break
    assert got == want
    assert finder.found == (want != text)


def test_stop_finder_holds_back_only_possible_stop_strings() -> None:
    finder = StopFinder(["###", "\n\n"])
    assert [finder.push(text) for text in ("a\n", "b#", "#", "c")] == ["a", "\nb", "", "##c"]


@pytest.mark.parametrize("stop", ["a", "ab", "aba"])
def test_stop_finder_returns_nothing_after_a_stop_string(stop: str) -> None:
    finder = StopFinder([stop])
    assert finder.push("xxaba") == "xx"
    assert (finder.push("more"), finder.flush(), finder.found) == ("", "", True)
