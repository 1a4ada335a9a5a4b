"""Tests of chats: templates against transformers, the texts against its tokens, and templates that mean harm."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from mlsys_labkit import lm
from mlsys_labkit.lm.checkpoint import WEIGHTS, end_tokens
from mlsys_labkit.serving import Engine
from mlsys_labkit.serving.scheduler import Limits
from mlsys_labkit.serving.server import template as templates
from mlsys_labkit.serving.server.fields import ApiError
from mlsys_labkit.serving.server.job import Served
from mlsys_labkit.serving.server.template import ChatTemplate, TemplateProcess, find_template
from mlsys_labkit.serving.server.template_process import renderer
from tests.serving.endpoint import CODEC, MODEL
from tests.serving.running import Running, run

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.xdist_group("endpoint")

# In the manner of Llama 3.1: dates, tools, a system message of its own, and a refusal.
HEADERS = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|start|>system<|end|>\n\nCutting knowledge: " + strftime_now("%Y") + "\n" + system + eos_token }}
{%- if tools is not none %}{{ tools | tojson(indent=4) }}{% endif %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception("Roles must alternate user/assistant, and 'it' is <so>!") }}
    {%- endif %}
    {{- '<|start|>' + message['role'] + '<|end|>\n\n' + message['content'] | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant<|end|>\n\n' }}{%- endif %}"""
# In the manner of ChatML, with what newer templates use: macros, namespaces, loop controls, generation, JSON.
CHATML = """{% macro line(role, text) -%}<|im_start|>{{ role }}
{{ text }}<|im_end|>{%- endmacro %}
{% set seen = namespace(count=0) %}
{% for message in messages %}
{% if message.role == 'developer' %}{% continue %}{% endif %}
{% set seen.count = seen.count + 1 %}
{% if message.role == 'assistant' %}
{% generation %}{{ line('assistant', message.content) }}{% endgeneration %}

{% else %}
{{ line(message.role, message.content) }}
{% endif %}
{% if message.name is defined %}{{ {"name": message.name, "é<'&>": [1, none, true]} | tojson }}{% endif %}
{% if seen.count > 6 %}{% break %}{% endif %}
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think></think>
{% endif %}{% endif %}"""
BARE = "{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}"
CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "def read"}],
    [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "Hello <b>é😀</b> & 'you'"}],
    [
        {"role": "user", "content": "one\n\n"},
        {"role": "assistant", "content": "  two"},
        {"role": "user", "content": "three {{ 7 * 7 }} {% if %}", "name": "Ann 'é'"},
    ],
    [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}],
    [{"role": "assistant", "content": "I begin"}],
]
TOKENS = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}  # the one special token that this model has


def theirs(text: str) -> Any:
    import transformers

    file = str(Path(str(WEIGHTS)) / "tokenizer.json")
    return transformers.PreTrainedTokenizerFast(tokenizer_file=file, chat_template=text, **TOKENS)


@pytest.mark.parametrize("text", [HEADERS, CHATML, BARE])
def test_templates_are_rendered_as_transformers_does(text: str) -> None:
    from jinja2 import TemplateError

    render, oracle = renderer(text, TOKENS), theirs(text)
    refused = 0
    for chat in CHATS:
        for settings in ({}, {"add_generation_prompt": False}, {"enable_thinking": False}):
            asked = {"add_generation_prompt": True, **settings}
            try:
                expected = oracle.apply_chat_template(chat, tokenize=False, **asked)
            except TemplateError as error:
                refused += 1
                with pytest.raises(TemplateError, match=re.escape(str(error))):
                    render(chat, settings)
            else:
                assert render(chat, settings) == expected
    assert refused == (6 if text == HEADERS else 0)


# --- where a template and the tokens that end a text are found -------------------------------------------------------


def test_template_is_found_in_each_of_its_places(tmp_path: Path) -> None:
    assert find_template(tmp_path) is None
    settings: dict[str, Any] = {
        "bos_token": {"content": "<s>", "lstrip": False},
        "eos_token": "</s>",
        "pad_token": None,
    }
    config = tmp_path / "tokenizer_config.json"
    config.write_text("[1")
    assert find_template(tmp_path) is None
    config.write_text(json.dumps(settings))
    assert find_template(tmp_path) is None
    config.write_text(json.dumps({**settings, "chat_template": BARE}))
    assert find_template(tmp_path) == ChatTemplate(BARE, {"bos_token": "<s>", "eos_token": "</s>"})
    several = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": CHATML}]
    config.write_text(json.dumps({"chat_template": several}))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<e>"}))
    assert find_template(tmp_path) == ChatTemplate(CHATML, {"eos_token": "<e>"})
    (tmp_path / "chat_template.jinja").write_text(HEADERS)
    assert find_template(tmp_path) == ChatTemplate(HEADERS, {"eos_token": "<e>"})


def test_all_tokens_that_end_a_turn_are_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 9}))
    assert end_tokens(tmp_path, CODEC) == (CODEC.end, 5, 6, 9)
    for damaged, says in (('{"eos', "generation_config.json is not JSON"), ('{"eos_token_id": "</s>"}', "is '</s>'")):
        (tmp_path / "generation_config.json").write_text(damaged)
        with pytest.raises(lm.CheckpointError, match=says):
            end_tokens(tmp_path, CODEC)


# --- the route -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chatting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    served = Served(
        "mlsys-chat",
        CODEC,
        MODEL.config.context,
        MODEL.config.vocabulary,
        slots=99,
        template=TemplateProcess(ChatTemplate(HEADERS, TOKENS)),
    )
    with Running(Engine(MODEL, blocks=256, limits=Limits(running=8)), served) as running:
        yield running


@pytest.fixture(scope="module")
def chat(chatting: Running) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(base_url=f"{chatting.url}/v1", api_key="none", max_retries=0, timeout=600) as client:
        yield client


def expected(messages: list[dict[str, Any]], count: int) -> tuple[list[int], str, str]:
    """Return the prompt's tokens by transformers, the greedy text behind it, and how it ends."""
    prompt = theirs(HEADERS).apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
    made = list(lm.generate(MODEL, prompt, count, stop=CODEC.end))
    ended = made[-1] == CODEC.end
    return prompt, CODEC.decode(made[:-1] if ended else made), "stop" if ended else "length"


@pytest.mark.parametrize("stream", [False, True])
def test_chat_continues_the_text_of_the_template(chat: openai.OpenAI, stream: bool) -> None:
    for messages in CHATS[:3]:
        prompt, text, reason = expected(messages, 12)
        given = chat.chat.completions.create(
            model="mlsys-chat",
            messages=messages,
            max_completion_tokens=12,
            temperature=0,
            stream=stream,
            **({"stream_options": {"include_usage": True}} if stream else {}),
        )
        if stream:
            *chunks, last = list(given)
            assert chunks[0].choices[0].delta.role == "assistant"
            assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
            got = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            ended, usage = chunks[-1].choices[0].finish_reason, last.usage
        else:
            assert (given.object, given.choices[0].message.role) == ("chat.completion", "assistant")
            got, ended, usage = given.choices[0].message.content, given.choices[0].finish_reason, given.usage
        assert (got, ended) == (text, reason)
        assert usage.prompt_tokens == len(prompt)


def test_chat_logprobs_and_choices(chat: openai.OpenAI) -> None:
    prompt, text, _ = expected(CHATS[0], 4)
    answer = chat.chat.completions.create(
        model="mlsys-chat", messages=CHATS[0], max_tokens=4, temperature=0, logprobs=True, top_logprobs=2, n=2
    )
    with torch.no_grad():
        rows = MODEL(torch.tensor([prompt + CODEC.encode(text)]))[0].log_softmax(-1)[len(prompt) - 1 :]
    for choice in answer.choices:
        assert choice.message.content == text
        content = choice.logprobs.content
        assert b"".join(bytes(each.bytes) for each in content) == text.encode()
        for row, each in zip(rows, content, strict=False):
            assert [top.logprob for top in each.top_logprobs] == pytest.approx(row.topk(2).values.tolist(), abs=1e-4)
            assert (each.token, each.logprob) == (each.top_logprobs[0].token, each.top_logprobs[0].logprob)


def test_chat_without_a_length_takes_the_room_that_is_left(chatting: Running) -> None:
    body = {"messages": CHATS[0], "temperature": 0, "ignore_eos": True}
    answer = chatting.ask("/v1/chat/completions", body)[1]
    assert answer["usage"]["total_tokens"] == 100  # 99 slots, and the last token needs none
    body["messages"] = [{"role": "user", "content": "a " * 600}]
    status, answer, _ = chatting.ask("/v1/chat/completions", body)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert "and no token fits behind it" in answer["error"]["message"]


def test_chat_that_the_template_refuses_is_answered_with_its_words(chat: openai.OpenAI) -> None:
    import openai

    with pytest.raises(
        openai.BadRequestError, match="refuses this chat: Roles must alternate user/assistant"
    ) as caught:
        chat.chat.completions.create(model="mlsys-chat", messages=CHATS[4])
    assert caught.value.param == "messages"
    with pytest.raises(openai.BadRequestError, match="tools is not supported"):
        chat.chat.completions.create(
            model="mlsys-chat", messages=CHATS[0], tools=[{"type": "function", "function": {"name": "f"}}]
        )


# --- templates that mean harm ----------------------------------------------------------------------------------------

HARM = [
    ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
    ("{{ messages.append(1) }}", "unsafe|not safely callable"),
    ("{{ cycler.__init__.__globals__.os.system('touch /tmp/harm') }}", "unsafe"),
    ("{% include '/etc/passwd' %}", "no loader"),
    ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "takes longer than 1 s"),
    ("{{ 'x' * 10 ** 10 }}", "MemoryError|more memory"),
    ("{{ range(10 ** 9) }}", "Range too big"),
    ("{{ 'x' * 20000000 }}", "a text of more than 16,777,216 letters"),
    ("{% for %}", "is no Jinja template: Expected|is no Jinja template: expected"),
    ("{{ nothing.at.all }}", "is undefined"),
    ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
]


def test_harmful_templates_end_in_one_line_and_the_next_chat_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def all_of_them() -> None:
        for text, says in HARM:
            # On a busy machine the others may take seconds, too.
            monkeypatch.setattr(templates, "RENDER_SECONDS", 1.0 if "longer" in says else 60.0)
            process = TemplateProcess(ChatTemplate(text, TOKENS))
            with pytest.raises(ApiError, match=says) as caught:
                await process.render(CHATS[0], {})
            assert (caught.value.status, "\n" in str(caught.value)) == (400, False)
            await process.stop()
        slow = "{% if messages[0].content == 'x' %}" + HARM[4][0] + "{% endif %}{{ messages[0].content }}"
        process = TemplateProcess(ChatTemplate(slow, TOKENS))
        monkeypatch.setattr(templates, "RENDER_SECONDS", 1.0)
        with pytest.raises(ApiError, match="takes longer"):
            await process.render([{"role": "user", "content": "x"}], {})
        monkeypatch.setattr(templates, "RENDER_SECONDS", 60.0)
        assert await process.render([{"role": "user", "content": "y"}], {}) == "y"
        await process.stop()

    run(lambda: asyncio.run(all_of_them()))
