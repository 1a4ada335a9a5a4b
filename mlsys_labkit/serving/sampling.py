"""Drawing tokens: greedy, temperature, top-k and top-p, each request by its own seed, independent of the batch.

Reference: Holtzman et al., "The Curious Case of Neural Text Degeneration", arXiv:1904.09751 (top-p); Fan et al.,
"Hierarchical Neural Story Generation", arXiv:1805.04833 (top-k).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from mlsys_labkit.serving.records import Request


def uniform(seed: int, place: int, purpose: str = "token") -> float:
    """Return a number in [0, 1) for the token at ``place`` of a text, a function of the arguments alone.

    A generator has a state, which would depend on how often a text was preempted or guessed ahead.

    Example:
        >>> uniform(0, 7) == uniform(0, 7) != uniform(1, 7)
        True

    Reference: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011 (counters instead of states).
    """
    digest = hashlib.blake2b(f"{seed} {place} {purpose}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def probabilities(logits: Tensor, requests: Sequence[Request]) -> Tensor:
    """Return the distribution of each request, float64 [row, vocabulary], for ``logits`` [row, vocabulary].

    Temperature first, then the ``top_k`` likeliest, then of these the fewest whose share reaches ``top_p``. At
    temperature 0 the likeliest token has probability 1.

    Example:
        >>> asked = Request("a", (1,), temperature=1.0, top_k=2)
        >>> probabilities(torch.tensor([[1.0, 0.0, 1.0]]).log(), [asked])
        tensor([[0.5000, 0.0000, 0.5000]], dtype=torch.float64)
    """

    def column(values: Iterable[float]) -> Tensor:
        return torch.tensor([*values], dtype=torch.float64, device=logits.device)[:, None]

    temperature, top_p = column(each.temperature for each in requests), column(each.top_p for each in requests)
    top_k = column(min(each.top_k, logits.shape[-1]) for each in requests)  # as given, it may exceed any float
    sharpened = logits.double() / temperature.where(temperature > 0, 1.0)
    ordered, tokens = sharpened.softmax(-1).sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    ordered = ordered.where((top_k == 0) | (rank < top_k), 0.0)
    ordered = ordered / ordered.sum(-1, keepdim=True)
    ordered = ordered.where(ordered.cumsum(-1) - ordered < top_p, 0.0)
    ordered = ordered.where(temperature > 0, (rank == 0).double())
    return torch.zeros_like(ordered).scatter_(-1, tokens, ordered / ordered.sum(-1, keepdim=True))


def shape_logits(logits: Tensor, request: Request, tokens: Sequence[int]) -> Tensor:
    """Return ``logits`` [vocabulary] with a request's bias and penalties; ``tokens`` are its prompt and those drawn.

    Example:
        >>> asked = Request("a", (0,), frequency_penalty=0.5, presence_penalty=1.0, logit_bias=((2, 9.0),))
        >>> shape_logits(torch.zeros(3), asked, [0, 1, 1]).tolist()
        [0.0, -2.0, 9.0]

    Reference: OpenAI, "API reference" (frequency and presence penalties, logit_bias); Keskar et al., "CTRL",
    arXiv:1909.05858, sec. 4.1 (repetition penalty). Bias first, then repetition, then the others, as in vLLM.
    """
    shaped = logits.clone()

    def indices(kind: Iterable[int]) -> Tensor:
        return torch.tensor(list(kind), dtype=torch.int64, device=logits.device)

    def numbers(kind: Iterable[float]) -> Tensor:
        return torch.tensor(list(kind), dtype=logits.dtype, device=logits.device)

    if request.logit_bias:
        biases = dict(request.logit_bias)
        shaped[indices(biases)] += numbers(biases.values())
    if request.repetition_penalty != 1:
        seen = indices(set(tokens))
        found = shaped[seen]
        shaped[seen] = torch.where(found > 0, found / request.repetition_penalty, found * request.repetition_penalty)
    if request.frequency_penalty or request.presence_penalty:
        counts = Counter(tokens[len(request.prompt) :])
        penalties = (request.frequency_penalty * count + request.presence_penalty for count in counts.values())
        shaped[indices(counts)] -= numbers(penalties)
    return shaped


def draw(shares: Tensor, numbers: Sequence[float]) -> list[int]:
    """Draw one token per row of ``shares`` [row, vocabulary], which need not add up to 1, by a uniform number per row.

    Example:
        >>> draw(torch.tensor([[0.2, 0.0, 0.6], [1.0, 1.0, 0.0]]), [0.3, 0.75])
        [2, 1]
    """
    upto = shares.cumsum(-1)
    thresholds = torch.tensor(numbers, dtype=shares.dtype, device=shares.device)[:, None] * upto[:, -1:]
    tokens = (upto <= thresholds).sum(-1)
    last = shares.shape[-1] - 1 - (shares.flip(-1) > 0).int().argmax(-1)  # rounding must not end on a share of 0
    result: list[int] = tokens.minimum(last).tolist()
    return result
