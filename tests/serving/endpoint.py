"""A tiny model behind the endpoint, and its greedy text."""

from __future__ import annotations

import socket
from typing import Any

from mlsys_labkit import lm
from mlsys_labkit.lm import Tokenizer
from mlsys_labkit.serving import Engine
from mlsys_labkit.serving.scheduler import Limits
from mlsys_labkit.serving.server.job import Served
from tests.serving.running import Running, Script

MODEL, CODEC = lm.load()
PROMPTS = ["def read", "import os\n", "class Node:\n    def", "for i in range(", "é = '€'  # ", "    return "]
BYTES = Tokenizer.train(["x"], 257)


def alone(prompt: str, count: int) -> tuple[str, int, str]:
    """Return the model's own greedy text, its tokens, and how it ends."""
    tokens = list(lm.generate(MODEL, CODEC.encode(prompt), count, stop=CODEC.end))
    ended = tokens[-1] == CODEC.end
    return CODEC.decode(tokens[:-1] if ended else tokens), len(tokens), "stop" if ended else "length"


def greedy(prompt: str, count: int) -> str:
    return alone(prompt, count)[0]


def scripted(script: list[int], **options: Any) -> Running:
    blocks = options.pop("blocks", 64)
    engine = Engine(runner=Script(script, **options), blocks=blocks, limits=Limits(running=16))
    return Running(engine, Served("scripted", BYTES, 4096, 257))


def rest(client: socket.socket) -> bytes:
    """Return everything that can be read until the server closes the connection."""
    got = b""
    try:
        while piece := client.recv(1 << 20):
            got += piece
    except ConnectionResetError:
        pass
    return got
