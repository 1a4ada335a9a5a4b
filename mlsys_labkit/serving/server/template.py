"""Chat templates: the Jinja text in a checkpoint's folder that makes one text of the messages of a chat.

A folder comes from anywhere, so its template is not trusted. Jinja's sandbox keeps it from files and from Python's
internals, and a process of its own keeps its loops and its memory from the server: one that takes too long is killed.

Reference: Hugging Face, "Chat templates": the variables, functions and filters that a template may use.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlsys_labkit.serving.server.fields import ApiError

RENDER_SECONDS = 5.0
START_SECONDS = 60.0
_MOST_LINE_BYTES = 64 << 20
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class ChatTemplate:
    """The text of a template, and the special tokens that it may name."""

    text: str
    tokens: Mapping[str, str]


def find_template(folder: Path) -> ChatTemplate | None:
    """Return the template of a checkpoint's folder: chat_template.jinja, or that in tokenizer_config.json."""
    settings = _object(folder / "tokenizer_config.json")
    named = _object(folder / "special_tokens_map.json")
    tokens = {name: text for name in _SPECIAL if (text := _content(settings.get(name) or named.get(name)))}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return ChatTemplate((folder / "chat_template.jinja").read_text(encoding="utf-8"), tokens)
    text = settings.get("chat_template")
    if isinstance(text, list):  # several by name, for chats with tools for example
        texts = {each.get("name"): each.get("template") for each in text if isinstance(each, dict)}
        text = texts.get("default")
    return ChatTemplate(text, tokens) if isinstance(text, str) else None


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _content(token: Any) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


class TemplateProcess:
    """A process that renders one template; it is started on first use, and again after one that had to be killed."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def render(self, messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> str:
        """Return the text of a chat. Raises ApiError 400 if the template refuses it or cannot be used."""
        async with self._turn:
            if self._process is None:
                await self._start()
            told = await self._ask({"messages": messages, "settings": settings}, RENDER_SECONDS)
        if "error" in told:
            raise ApiError(400, f"the model's chat template refuses this chat: {told['error']}", param="messages")
        return str(told["text"])

    async def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process and process.returncode is None:
            process.kill()
            await process.wait()

    async def _start(self) -> None:
        # -P: a file json.py in the folder where the server was started is none of its modules.
        command = [sys.executable, "-P", "-m", "mlsys_labkit.serving.server.template_process"]
        pipe = asyncio.subprocess.PIPE
        # A session of its own: Ctrl-C is for the server, which still answers chats and then ends this process.
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=_MOST_LINE_BYTES, start_new_session=True
        )
        told = await self._ask({"template": self._template.text, "tokens": dict(self._template.tokens)}, START_SECONDS)
        if "error" in told:
            await self.stop()
            raise ApiError(400, f"the model's chat template is no Jinja template: {told['error']}", param="messages")

    async def _ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        process = self._process
        assert process, "it was started"
        assert process.stdin, "it was started with pipes"
        assert process.stdout, "it was started with pipes"
        reason = f"it takes longer than {seconds:g} s"
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            line = await asyncio.wait_for(process.stdout.readline(), seconds)
            if line.endswith(b"\n"):
                found: dict[str, Any] = json.loads(line)
                return found
            reason = "it takes more memory than a template may have"
        except (TimeoutError, asyncio.LimitOverrunError, ValueError):
            pass
        except OSError as error:
            reason = f"its process ended ({error})"
        except asyncio.CancelledError:
            await self.stop()  # its answer would be taken for that of the next chat
            raise
        await self.stop()
        return {"error": reason}
