"""Speculative decoding: guess a few tokens cheaply and verify them in one pass, with the same distribution of texts.

Reference: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", arXiv:2211.17192; Saxena,
"Prompt Lookup Decoding", 2023 (guessing by n-grams).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Items
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.lm.model import LanguageModel
from mlsys_labkit.serving.cache import PagedCache
from mlsys_labkit.serving.clock import StepCost
from mlsys_labkit.serving.records import Scheduled
from mlsys_labkit.serving.runner import Chunk, Runner
from mlsys_labkit.serving.sampling import draw, probabilities, shape_logits, uniform
from mlsys_labkit.serving.scheduler import Part, Sequence


class Guess(NamedTuple):
    """Guessed tokens, and the distributions [token, vocabulary] they were drawn from; None if not drawn."""

    tokens: list[int]
    shares: Tensor | None = None


class Draft(Protocol):
    """The interface of a draft, which guesses at most ``guesses`` tokens at a time."""

    guesses: int

    def prepare(self, vocabulary: int, blocks: int, block_size: int) -> list[PagedCache]:
        """Return the draft's own caches, which share the engine's block numbers; called once by the engine."""

    def follow(self, parts: Items[Part]) -> None:
        """Process pieces of prompts that the model has just computed."""

    def guess(self, parts: Items[Part]) -> list[Guess]:
        """Guess at most ``part.guesses`` tokens to follow each part's sequence."""

    def known(self, sequence: Sequence) -> int:
        """Return how many tokens of a sequence are in the model's cache and in the draft's."""

    def seconds(self) -> float:
        """Return the virtual seconds spent since the last call."""


def accept(guess: Guess, shares: Tensor, seed: int, place: int) -> list[int]:
    """Return the accepted guesses and one more token, so that the text has the distribution ``shares``.

    A token with probability q in the draft and p in the model is accepted with probability min(1, p/q). The first
    rejected one is drawn again from the excess of p over q; if none is, one more comes from the model's last row.

    For a guess that was not drawn, q is 1, and the rule is equal to drawing from p and comparing with the guess. The
    code does the latter, because then a seed gives the same text as without guesses.

    Args:
        guess: k tokens and the draft's distributions.
        shares: the model's distributions [k + 1, vocabulary].
        seed, place: of the text, and how many tokens it has before the guess.

    Example:
        >>> model = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
        >>> accept(Guess([1, 1]), model, seed=0, place=5)
        [1, 2]

    Reference: Leviathan et al., arXiv:2211.17192, algorithm 1.
    """
    kept: list[int] = []
    for at, token in enumerate(guess.tokens):
        if guess.shares is None:
            own = draw(shares[at : at + 1], [uniform(seed, place + at)])
            kept += own
            if own != [token]:
                return kept
            continue
        q = guess.shares[at].to(shares)
        if uniform(seed, place + at, "accept") * float(q[token]) < float(shares[at, token]):
            kept.append(token)
            continue
        over = (shares[at] - q).clamp_min(0)
        return [*kept, *draw(over[None], [uniform(seed, place + at, "again")])]
    return [*kept, *draw(shares[-1:], [uniform(seed, place + len(kept))])]


def chunk_of(part: Part, guess: Guess) -> Chunk:
    """Return a part's tokens and the guesses behind them, which the model computes and verifies.

    Its logits are those of the tokens that score the prompt, if it does, and then those that tokens are drawn from.
    """
    sequence, start, end = part.sequence, part.scheduled.cached_tokens, part.end
    tokens = sequence.tokens[start:end] + guess.tokens
    wanted = 1 + len(guess.tokens) if part.draws else 0
    if part.scores:
        wanted = end - len(sequence.prompt_logprobs)
    return Chunk(tokens, start, sequence.table.blocks, wanted)


def drawn_rows(parts: Items[Part], guesses: Items[Guess], chunks: Items[Chunk]) -> list[range]:
    """Return for each part the rows of the logits that its tokens are drawn from; none inside a prompt."""
    rows, end = [], 0
    for part, guess, chunk in zip(parts, guesses, chunks, strict=True):
        end += chunk.logits
        rows.append(range(end - 1 - len(guess.tokens) if part.draws else end, end))
    return rows


def drawn_tokens(
    parts: Items[Part], guesses: Items[Guess], rows: Items[range], logits: Tensor
) -> list[list[list[int]]]:
    """Return the new tokens of each part: a list per sample that begins here, else one list, empty inside a prompt."""
    logits = _shaped(parts, guesses, rows, logits)
    likeliest: list[int] = logits.argmax(-1).tolist()
    drawn: list[list[list[int]]] = []
    for part, guess, own in zip(parts, guesses, rows, strict=True):
        sequence = part.sequence
        if not own:
            drawn.append([[]])
        elif not sequence.request.temperature:
            best = likeliest[own.start : own.stop]
            stands = 0
            while stands < len(guess.tokens) and guess.tokens[stands] == best[stands]:
                stands += 1
            drawn.append([best[: stands + 1]] * sequence.seats)
        else:
            shares = probabilities(logits[own.start : own.stop], [sequence.request] * len(own))
            seeds = range(sequence.seed, sequence.seed + sequence.seats)
            drawn.append([accept(guess, shares, seed, len(sequence.tokens)) for seed in seeds])
    return drawn


def _shaped(parts: Items[Part], guesses: Items[Guess], rows: Items[range], logits: Tensor) -> Tensor:
    """Return the logits that tokens are drawn from: the model's own where no request asks for anything else."""
    if not any(own and part.sequence.request.shapes_logits for part, own in zip(parts, rows, strict=True)):
        return logits
    shaped = logits.to(torch.float32, copy=True)
    for part, guess, own in zip(parts, guesses, rows, strict=True):
        request, tokens = part.sequence.request, part.sequence.tokens
        if request.shapes_logits:
            for at, row in enumerate(own):
                shaped[row] = shape_logits(shaped[row], request, [*tokens, *guess.tokens[:at]])
    return shaped


class NgramDraft:
    """A draft that continues the text as after the last occurrence of its newest ``longest`` (or fewer) tokens.

    Example:
        >>> NgramDraft(guesses=3).look_up([7, 1, 2, 3, 9, 4, 1, 2], 3)
        [3, 9, 4]
    """

    def __init__(self, guesses: int = 4, longest: int = 3) -> None:
        self.guesses, self.longest = guesses, longest

    def look_up(self, tokens: Items[int], guesses: int) -> list[int]:
        """Return at most ``guesses`` tokens, none if no ending of the text occurs in it twice."""
        text = array("q", tokens).tobytes()  # bytes are searched in C, because this runs in every step
        for length in range(min(self.longest, len(tokens) - 1), 0, -1):
            ending, end = text[-8 * length :], len(text) - 8
            while (at := text.rfind(ending, 0, end)) >= 0:
                if at % 8 == 0:
                    start = at // 8 + length
                    return list(tokens[start : start + guesses])
                end = at + len(ending) - 1  # the match began inside a token
        return []

    def prepare(self, vocabulary: int, blocks: int, block_size: int) -> list[PagedCache]:
        return []

    def follow(self, parts: Items[Part]) -> None:
        """Do nothing: the guesses depend on the text alone."""

    def guess(self, parts: Items[Part]) -> list[Guess]:
        return [Guess(self.look_up(part.sequence.tokens, part.guesses)) for part in parts]

    def known(self, sequence: Sequence) -> int:
        return sequence.table.held

    def seconds(self) -> float:
        return 0.0


class ModelDraft:
    """A draft by a smaller model with the same tokens, one pass per token for all sequences together.

    Its cache has its own pages under the same block numbers as the large model's. One table therefore serves both, and
    sharing, copying and swapping apply to both.

    Args:
        model: any ``lm.LanguageModel`` with the large model's vocabulary.
        guesses: tokens per step.
        cost: virtual seconds of its passes, for an engine on a virtual clock.
    """

    def __init__(self, model: LanguageModel, guesses: int = 4, cost: StepCost | None = None) -> None:
        self.model, self.guesses, self.cost = model, guesses, cost
        self._seconds = 0.0

    def prepare(self, vocabulary: int, blocks: int, block_size: int) -> list[PagedCache]:
        if self.model.config.vocabulary != vocabulary:
            raise LabkitError(
                f"the draft model has {self.model.config.vocabulary} tokens and the model {vocabulary}; "
                "guesses need one vocabulary"
            )
        weight = self.model.lm_head.weight
        cache = PagedCache(self.model.config, blocks, block_size, weight.dtype, weight.device)
        self._runner = Runner(self.model, cache)
        return [cache]

    def follow(self, parts: Items[Part]) -> None:
        for part in parts:
            assert part.sequence.drafted <= part.scheduled.cached_tokens, "the draft holds no more than the model"
        ends = [part.scheduled.cached_tokens + part.scheduled.tokens for part in parts]
        self._run([part.sequence for part in parts], ends, 0)

    def guess(self, parts: Items[Part]) -> list[Guess]:
        guesses: list[tuple[list[int], list[Tensor]]] = [([], []) for _ in parts]
        while active := [(part, *own) for part, own in zip(parts, guesses, strict=True) if len(own[0]) < part.guesses]:
            sequences = [part.sequence for part, _, _ in active]
            ends = [len(part.sequence.tokens) + len(tokens) for part, tokens, _ in active]
            logits = self._run(sequences, ends, 1, [tokens for _, tokens, _ in active])
            shares = probabilities(logits, [sequence.request for sequence in sequences])
            numbers = [
                uniform(one.seed, len(one.tokens) + len(own), "guess")
                for one, (_, own, _) in zip(sequences, active, strict=True)
            ]
            for (_, tokens, drawn_from), token, share in zip(active, draw(shares, numbers), shares, strict=True):
                tokens.append(token)
                drawn_from.append(share)
        return [Guess(tokens, torch.stack(shares) if shares else None) for tokens, shares in guesses]

    def _run(
        self, sequences: list[Sequence], ends: list[int], logits: int, guessed: list[list[int]] | None = None
    ) -> Tensor:
        """Run the draft model over each sequence up to its end, guesses included."""
        chunks, scheduled = [], []
        for at, (sequence, end) in enumerate(zip(sequences, ends, strict=True)):
            text = sequence.tokens + guessed[at] if guessed else sequence.tokens
            chunks.append(Chunk(text[sequence.drafted : end], sequence.drafted, sequence.table.blocks, logits))
            scheduled.append(Scheduled(sequence.name, "decode", end - sequence.drafted, sequence.drafted))
            sequence.drafted = end
        if self.cost:
            self._seconds += self.cost.seconds(scheduled)
        return self._runner.run(chunks)

    def known(self, sequence: Sequence) -> int:
        sequence.drafted = min(sequence.drafted, sequence.table.held)  # rejected guesses are dropped
        return sequence.drafted

    def seconds(self) -> float:
        spent, self._seconds = self._seconds, 0.0
        return spent
