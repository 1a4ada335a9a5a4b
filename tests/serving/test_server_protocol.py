"""Tests of request bodies: valid ones are read as sent, and invalid ones get an answer, never a crash."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit.serving.server.protocol import ApiError, Completion, read_completion

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
READ = ("prompt", "model", "max_tokens", "temperature", "top_p", "top_k", "n", "seed", "stop", "stream", "echo")
OTHERS = ("stream_options", "ignore_eos", "logprobs", "best_of", "suffix", "logit_bias", "presence_penalty", "user")


@given(st.dictionaries(st.sampled_from(READ + OTHERS), anything) | anything)
def test_any_json_is_read_or_refused_in_one_line(asked: object) -> None:
    try:
        read = read_completion(json.dumps(asked).encode(), "tiny")
    except ApiError as error:
        refused = error
    else:
        refused = None
    if refused:
        assert refused.status in (400, 404)
        assert str(refused)
        assert "\n" not in str(refused)
        return
    assert isinstance(read, Completion)
    assert read.prompts
    assert (read.max_tokens >= 1, 0 <= read.temperature <= 2, 0 < read.top_p <= 1, read.n >= 1) == (True,) * 4


@given(st.binary())
def test_invalid_json_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read_completion(b"{" + body, "tiny") if body[:1] != b'"' else read_completion(body[1:] + b"{", "tiny")
    assert caught.value.status == 400


def test_all_fields_are_read() -> None:
    asked = {
        "model": "tiny",
        "prompt": ["a", [1, 2]],
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "n": 2,
        "seed": -3,
        "stop": ["x"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "echo": True,
        "ignore_eos": True,
        "user": "me",
        "best_of": 1,
        "logprobs": None,
        "presence_penalty": 0,
    }
    assert read_completion(json.dumps(asked).encode(), "tiny") == Completion(
        prompts=("a", (1, 2)),
        max_tokens=5,
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        n=2,
        seed=-3,
        stop=("x",),
        stream=True,
        usage=True,
        echo=True,
        ignore_eos=True,
    )


def test_null_means_the_default() -> None:
    nulls = dict.fromkeys([field for field in READ + OTHERS if field not in ("prompt", "model")])
    assert read_completion(json.dumps({"prompt": "a", **nulls}).encode(), "tiny") == Completion(("a",))
    assert read_completion(b'{"prompt": "a", "top_k": -1}', "tiny").top_k == 0  # other servers' notation for "all"


def test_deeply_nested_body_is_refused() -> None:
    with pytest.raises(ApiError, match="is not JSON"):
        read_completion(b'{"prompt":' + b"[" * 100_000, "tiny")
