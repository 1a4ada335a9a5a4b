"""Log-probabilities of tokens: of those that are drawn, and of those of a prompt."""

from __future__ import annotations

from collections.abc import Sequence as Items

import torch
from torch import Tensor

from mlsys_labkit.serving.records import TokenLogprob
from mlsys_labkit.serving.runner import Chunk
from mlsys_labkit.serving.scheduler import Part

_ROWS = 64  # of logits that are held in float32 beside the model's own, at a time


def token_logprobs(logits: Tensor, tokens: Items[int], likeliest: int) -> list[TokenLogprob]:
    """Return the log-probability of each of ``tokens`` under its row of ``logits`` [token, vocabulary].

    Example:
        >>> [found] = token_logprobs(torch.tensor([[0.25, 0.75]]).log(), [0], likeliest=1)
        >>> round(found.logprob, 3), found.likeliest[0][0]
        (-1.386, 1)
    """
    found: list[TokenLogprob] = []
    for first in range(0, len(tokens), _ROWS):
        own = list(tokens[first : first + _ROWS])
        rows = logits[first : first + len(own)].float().log_softmax(-1)
        chosen = rows.gather(-1, torch.tensor(own, device=rows.device)[:, None])[:, 0].tolist()
        best = rows.topk(min(likeliest, rows.shape[-1]), dim=-1)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        found += [
            TokenLogprob(token, logprob, tuple(zip(*pair, strict=True)))
            for token, logprob, pair in zip(own, chosen, pairs, strict=True)
        ]
    return found


def score_prompts(parts: Items[Part], chunks: Items[Chunk], logits: Tensor) -> None:
    """Give the sequences the log-probabilities of their prompts' tokens that this step computed."""
    row = 0
    for part, chunk in zip(parts, chunks, strict=True):
        sequence = part.sequence
        if count := part.scores:
            done = len(sequence.prompt_logprobs)
            tokens = sequence.tokens[done + 1 : done + 1 + count]
            sequence.prompt_logprobs += token_logprobs(
                logits[row : row + count], tokens, sequence.request.logprobs or 0
            )
        row += chunk.logits
