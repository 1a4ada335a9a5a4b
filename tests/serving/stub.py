"""A stub model that reads its text from the pages, so that one wrong slot changes the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlsys_labkit.serving import Chunk, Request
from mlsys_labkit.serving.sampling import draw, probabilities, uniform
from mlsys_labkit.serving.speculative import Guess

VOCABULARY = 5
Key = tuple[int, ...]


def logits_after(text: Sequence[int]) -> Tensor:
    """Return scores of the next token, a function of every token before and of their order."""
    return torch.tensor([hash((token, *text)) % 1009 / 200 for token in range(VOCABULARY)])


def continuation(request: Request, sample: int = 0) -> list[int]:
    """Return the expected continuation of a request, drawn one by one from the text alone."""
    text = list(request.prompt)
    while len(text) < len(request.prompt) + request.max_new_tokens:
        scores = logits_after(text)
        if request.temperature:
            number = uniform(request.seed + sample, len(text))
            text += draw(probabilities(scores[None], [request]), [number])
        else:
            text.append(int(scores.argmax()))
        if text[-1] in request.stop:
            break
    return text[len(request.prompt) :]


class StubMemory:
    """A cache with one number per slot: the token that is stored there."""

    block_bytes = 8

    def __init__(self, blocks: int, block_size: int) -> None:
        self.slots = [[-1] * block_size for _ in range(blocks)]

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        for source, target in pairs:
            self.slots[target] = self.slots[source].copy()

    def swap_out(self, blocks: Sequence[int]) -> Any:
        return [self.slots[block].copy() for block in blocks]

    def swap_in(self, copy: Any, blocks: Sequence[int]) -> None:
        for saved, block in zip(copy, blocks, strict=True):
            self.slots[block] = saved.copy()

    def read(self, blocks: Sequence[int], tokens: int) -> list[int]:
        return [token for block in blocks for token in self.slots[block]][:tokens]


class StubRunner:
    """A runner that writes tokens into their slots and continues from what it reads there."""

    vocabulary = VOCABULARY

    def __init__(self, blocks: int, block_size: int, context: int = 1000) -> None:
        self.cache, self.block_size, self.context = StubMemory(blocks, block_size), block_size, context

    def run(self, chunks: Sequence[Chunk]) -> Tensor:
        written: set[tuple[int, int]] = set()
        for chunk in chunks:
            assert chunk.tokens, "a part without a token has no business in a batch"
            for place, token in enumerate(chunk.tokens, chunk.past):
                block, slot = chunk.blocks[place // self.block_size], place % self.block_size
                assert (block, slot) not in written, "two sequences write one slot"
                written.add((block, slot))
                self.cache.slots[block][slot] = token
        rows = []
        for chunk in chunks:
            text = self.cache.read(chunk.blocks, chunk.past + len(chunk.tokens))
            rows += [logits_after(text[: len(text) - left]) for left in reversed(range(chunk.logits))]
        return torch.stack(rows) if rows else torch.zeros(0, VOCABULARY)


class StubDraft:
    """A draft that guesses right more often than wrong, at most ``guesses`` tokens and sometimes none."""

    def __init__(self, guesses: int) -> None:
        self.guesses = guesses

    def prepare(self, vocabulary: int, blocks: int, block_size: int) -> list[Any]:
        return []

    def follow(self, parts: Sequence[Any]) -> None:
        pass

    def guess(self, parts: Sequence[Any]) -> list[Guess]:
        found = []
        for part in parts:
            text = list(part.sequence.tokens)
            for _ in range(hash((9, *text)) % (part.guesses + 1)):
                wrong = hash((8, *text)) % 4 == 0
                text.append((int(logits_after(text).argmax()) + wrong) % VOCABULARY)
            found.append(Guess(text[len(part.sequence.tokens) :]))
        return found

    def known(self, sequence: Any) -> int:
        return int(sequence.table.held)

    def seconds(self) -> float:
        return 0.0
