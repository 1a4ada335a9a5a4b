"""The process that renders a chat template: ``python -m mlsys_labkit.serving.server.template_process``.

It reads lines of JSON, the template first and then one chat a line, and answers each with a line.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MOST_BYTES = 1 << 30
_MOST_LETTERS = 16 << 20


class _Generation(Extension):
    """The block ``{% generation %}``, which marks an assistant's words for training and changes nothing here."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own declaration is no class variable

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def renderer(text: str, tokens: Mapping[str, str]) -> Callable[[list[Any], Mapping[str, Any]], str]:
    """Return a function from messages and settings to a text. Raises jinja2.TemplateError.

    Example:
        >>> text = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
        >>> render = renderer(text, {"bos_token": "<s>"})
        >>> render([{"role": "user", "content": "Hello"}], {})
        '<s>[user] Hello'
    """

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, **options: Any) -> str:
        allowed = {name: options[name] for name in ("separators", "sort_keys") if name in options}
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **allowed)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = to_json  # Jinja's own writes for HTML: &#39; in the place of '
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = time.strftime
    template = environment.from_string(text)

    def render(messages: list[Any], settings: Mapping[str, Any]) -> str:
        given = {"add_generation_prompt": True, "tools": None, "documents": None, **tokens, **settings}
        return template.render(**{**given, "messages": messages})

    return render


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows; a lower limit that stands already
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Answer line by line until the input ends."""
    _limit_memory()
    render: Callable[[list[Any], Mapping[str, Any]], str] | None = None
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        try:
            if render is None:
                render = renderer(asked["template"], asked["tokens"])
                told = {"text": ""}
            else:
                told = {"text": render(asked["messages"], asked["settings"])}
                if len(told["text"]) > _MOST_LETTERS:
                    told = {"error": f"it makes a text of more than {_MOST_LETTERS:,} letters"}
        except Exception as error:  # a template may fail in any way; its words come from the model's folder
            words = " ".join(str(error).split())[:500]
            told = {
                "error": words if isinstance(error, TemplateError) and words else f"{type(error).__name__}: {words}"
            }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
