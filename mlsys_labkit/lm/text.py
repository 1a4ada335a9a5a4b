"""Generation and evaluation: continue a text, and compute how likely a text is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from mlsys_labkit.lm.cache import KVCache
from mlsys_labkit.lm.errors import ContextError, TokenError
from mlsys_labkit.lm.model import LanguageModel


@torch.no_grad()
def generate(
    model: LanguageModel,
    prompt: Sequence[int],
    new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    seed: int = 0,
    stop: int | None = None,
) -> Iterator[int]:
    """Yield the tokens that follow ``prompt``, one at a time, until ``new_tokens`` of them or ``stop``.

    ``temperature`` 0 takes the likeliest token; above, one is drawn from the ``top_k`` likeliest (0: from all). The
    same seed draws the same text. Raises ContextError when prompt and new tokens exceed the model's context, and
    TokenError for a prompt's number that is no token of the model, and for negative numbers.

    Example:
        >>> from mlsys_labkit import lm
        >>> model, tokenizer = lm.load()
        >>> tokens = list(generate(model, tokenizer.encode("for i in range"), 8))
        >>> len(tokens)
        8
    """
    if not prompt:
        raise ContextError("the prompt has no token; give at least one, e.g. tokenizer.end to begin a new text")
    if new_tokens < 0 or not temperature >= 0:
        raise TokenError(f"new_tokens and temperature are 0 or more, got {new_tokens} and {temperature}")
    if lost := [token for token in prompt if not 0 <= token < model.config.vocabulary]:
        raise TokenError(f"the model's tokens are 0 to {model.config.vocabulary - 1}, the prompt has {lost[0]}")
    if len(prompt) + new_tokens > model.config.context:
        raise ContextError(
            f"{len(prompt)} tokens and {new_tokens} new ones exceed the model's {model.config.context} positions"
        )
    weight = model.lm_head.weight
    generator = torch.Generator(weight.device).manual_seed(seed)
    cache = KVCache(model.config, capacity=len(prompt) + new_tokens, dtype=weight.dtype, device=weight.device)
    tokens = torch.tensor([list(prompt)], device=weight.device)
    for _ in range(new_tokens):
        logits = model(tokens, cache)[0, -1].float()
        if temperature == 0:
            tokens = logits.argmax().view(1, 1)
        else:
            if top_k:
                logits = logits.where(logits >= logits.topk(top_k).values[-1], -math.inf)
            tokens = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator).view(1, 1)
        token = int(tokens)
        yield token
        if token == stop:
            return


@torch.no_grad()
def nats_per_token(model: LanguageModel, tokens: Tensor, window: int | None = None, batch: int = 8) -> float:
    """Return the mean negative log-likelihood of ``tokens`` [n], cut into windows that each begin without a past.

    A window of w tokens predicts w - 1; a remainder shorter than a window is left out. Raises ContextError when the
    text is shorter than one window.

    Example:
        >>> from mlsys_labkit import lm
        >>> model, tokenizer = lm.load()
        >>> tokens = torch.tensor(tokenizer.encode(lm.held_out())[:256])
        >>> nats_per_token(model, tokens, window=128) < 4
        True
    """
    length = window or model.config.context
    count = len(tokens) // length
    if not count:
        raise ContextError(f"a window takes {length} tokens and the text has {len(tokens)}; give more text or a window")
    windows = tokens[: count * length].view(count, length)
    total = 0.0
    for part in torch.split(windows, batch):
        logits = model(part)[:, :-1].float()
        total += float(functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum"))
    return total / (count * (length - 1))


def perplexity(model: LanguageModel, tokens: Tensor, window: int | None = None, batch: int = 8) -> float:
    """Return e to the mean negative log-likelihood: the number of equally likely tokens with the same uncertainty.

    Example:
        >>> import math
        >>> from mlsys_labkit import lm
        >>> model, tokenizer = lm.load()
        >>> tokens = torch.tensor(tokenizer.encode(lm.held_out())[:512])
        >>> 1 < perplexity(model, tokens, window=256) < len(tokenizer)
        True

    Reference: Jelinek et al., "Perplexity: a measure of the difficulty of speech recognition tasks", JASA 62, 1977.
    """
    return math.exp(nats_per_token(model, tokens, window, batch))
