"""Tests of request bodies: valid ones are read as sent, and invalid ones get an answer, never a crash."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit.serving.server.fields import ApiError
from mlsys_labkit.serving.server.protocol import Chat, Completion, read_chat, read_completion

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
    assert read.max_tokens is not None
    assert (read.max_tokens >= 0, 0 <= read.temperature <= 2, 0 < read.top_p <= 1, read.n >= 1) == (True,) * 4


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
        "logprobs": 3,
        "presence_penalty": 0,
        "frequency_penalty": -1,
        "repetition_penalty": 1.5,
        "logit_bias": {"7": -100, "8": 0.5},
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
        logprobs=3,
        frequency_penalty=-1.0,
        repetition_penalty=1.5,
        logit_bias=((7, -100.0), (8, 0.5)),
    )


CHAT = ("messages", "model", "max_completion_tokens", "logprobs", "top_logprobs", "tools", "response_format")
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


@given(st.dictionaries(st.sampled_from(READ + OTHERS + CHAT), anything), st.just(MESSAGES) | anything)
def test_any_chat_is_read_or_refused_in_one_line(asked: dict[str, object], messages: object) -> None:
    try:
        read = read_chat(json.dumps({**asked, "messages": messages}).encode(), "tiny")
    except ApiError as error:
        refused = error
    else:
        assert isinstance(read, Chat)
        assert all(isinstance(each["role"], str) and isinstance(each["content"], str) for each in read.messages)
        return
    assert refused.status in (400, 404)
    assert str(refused)
    assert "\n" not in str(refused)


def test_chat_fields_are_read() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    asked = {
        "model": "tiny",
        "messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": None, "tool_calls": [1]}],
        "max_tokens": 9,
        "max_completion_tokens": 7,
        "logprobs": True,
        "top_logprobs": 2,
        "tools": [],
        "response_format": {"type": "text"},
        "chat_template_kwargs": {"enable_thinking": False},
    }
    read = read_chat(json.dumps(asked).encode(), "tiny")
    assert [each["content"] for each in read.messages] == ["one\ntwo", ""]
    assert read.messages[1]["tool_calls"] == [1]
    assert (read.completion.max_tokens, read.completion.logprobs) == (7, 2)
    assert read.settings == {"add_generation_prompt": True, "enable_thinking": False}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"messages": []}, "messages is an empty list, expected a list of messages"),
        ({"messages": [{"content": "a"}]}, "message 0 is .*, expected an object with a role"),
        ({"messages": [{"role": "user", "content": 5}]}, "the content of message 0 is 5"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "this server takes text only"),
        ({"tools": [{"type": "function"}]}, "tools is not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format is not supported"),
        ({"top_logprobs": 2}, "top_logprobs goes with logprobs=true"),
        ({"prompt": "a"}, "there is no field 'prompt' in a request for chat completions"),
    ],
)
def test_wrong_chat_is_refused_by_name(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ApiError, match=says):
        read_chat(json.dumps({"messages": MESSAGES, **fields}).encode(), "tiny")


def test_null_means_the_default() -> None:
    nulls = dict.fromkeys([field for field in READ + OTHERS if field not in ("prompt", "model")])
    assert read_completion(json.dumps({"prompt": "a", **nulls}).encode(), "tiny") == Completion(("a",))
    assert read_completion(b'{"prompt": "a", "top_k": -1}', "tiny").top_k == 0  # other servers' notation for "all"


def test_deeply_nested_body_is_refused() -> None:
    with pytest.raises(ApiError, match="is not JSON"):
        read_completion(b'{"prompt":' + b"[" * 100_000, "tiny")
