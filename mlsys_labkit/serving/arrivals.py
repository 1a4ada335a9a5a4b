"""Request traces: arrival times, lengths and shared prefixes, drawn from one seed.

Reference: Poisson arrivals as in Kwon et al., "PagedAttention", SOSP 2023, sec. 6.1; Gamma gaps with a chosen
coefficient of variation as in Li et al., "AlpaServe", OSDI 2023, sec. 6.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.serving.errors import RecordError, RequestError
from mlsys_labkit.serving.files import write_whole
from mlsys_labkit.serving.records import Request

Lengths = Callable[[np.random.Generator, int], NDArray[np.int64]]
_GAPS, _PROMPT_LENGTHS, _OUTPUT_LENGTHS, _TEXT, _PREFIXES = range(5)  # random streams: a new rate keeps the prompts


@dataclass(frozen=True)
class SharedPrefixes:
    """System prompts that requests begin with: ``count`` texts of ``tokens`` each.

    The i-th is drawn with a probability in proportion to 1/i**``zipf``; with 0 all are equally likely.

    Reference: Breslau et al., "Web caching and Zipf-like distributions", INFOCOM 1999.
    """

    count: int
    tokens: int
    zipf: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1 or self.tokens < 1 or not 0 <= self.zipf < math.inf:
            raise RequestError(
                f"shared prefixes take count and tokens from 1 up and zipf from 0 up, "
                f"got {self.count}, {self.tokens} and {self.zipf}"
            )

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Return the probability of each prefix, the likeliest first."""
        weights = np.arange(1, self.count + 1, dtype=np.float64) ** -self.zipf
        return np.asarray(weights / weights.sum())


def log_normal(mean: float, variation: float, *, least: int = 1, most: int = 1_000_000) -> Lengths:
    """Return a sampler of lengths with this mean and coefficient of variation (deviation over mean), cut to a range.

    Raises RequestError when the mean is not within ``least`` and ``most`` or the variation is negative.

    Example:
        >>> draw = log_normal(100, 0.5, most=400)
        >>> lengths = draw(np.random.default_rng(0), 1000)
        >>> bool(95 < lengths.mean() < 105 and lengths.max() <= 400)
        True

    Reference: lengths of prompts and answers have long tails: Patel et al., "Splitwise", ISCA 2024, sec. 3.
    """
    if not 1 <= least <= mean <= most or not 0 <= variation < math.inf:
        raise RequestError(
            f"expected 1 <= least <= mean <= most and variation from 0 up, got {least}, {mean}, {most}, {variation}"
        )
    spread = math.log1p(variation**2)  # variance of the logarithm

    def draw(random: np.random.Generator, count: int) -> NDArray[np.int64]:
        real = random.lognormal(math.log(mean) - spread / 2, math.sqrt(spread), count)
        return np.asarray(np.clip(np.rint(real), least, most).astype(np.int64))

    return draw


def arrival_times(count: int, rate_per_second: float, *, variation: float = 1.0, seed: int = 0) -> list[float]:
    """Draw arrival times of ``count`` requests, in seconds from 0: independent gaps of mean 1 / ``rate_per_second``.

    ``variation`` is the gaps' coefficient of variation. 1: a Poisson process; above: bursts and lulls (Gamma gaps);
    below: more regular; 0: equal gaps. Raises RequestError for a rate that is not positive, or a negative variation.

    Example:
        >>> arrival_times(4, rate_per_second=2, variation=0)
        [0.5, 1.0, 1.5, 2.0]
        >>> arrival_times(9, 2.0) == arrival_times(9, 2.0)
        True

    Reference: Li et al., "AlpaServe", OSDI 2023, sec. 6.
    """
    if count < 0 or not 0 < rate_per_second < math.inf or not 0 <= variation < math.inf:
        raise RequestError(
            f"expected count and variation from 0 up and a rate above 0, got {count}, {variation}, {rate_per_second}"
        )
    gaps = np.full(count, 1 / rate_per_second)
    if variation:
        scale = variation**2 / rate_per_second
        gaps = np.random.default_rng([seed, _GAPS]).gamma(1 / variation**2, scale, count)
    return [float(seconds) for seconds in np.cumsum(gaps)]


def request_trace(
    count: int,
    rate_per_second: float,
    *,
    variation: float = 1.0,
    prompt_tokens: Lengths | Sequence[int] | int = 64,
    output_tokens: Lengths | Sequence[int] | int = 32,
    prefixes: SharedPrefixes | None = None,
    source: Sequence[int] | int | None = None,
    temperature: float = 0.0,
    seed: int = 0,
) -> tuple[Request, ...]:
    """Draw requests "r0", "r1", ... in the order of arrival.

    Args:
        count, rate_per_second, variation: as in :func:`arrival_times`.
        prompt_tokens: length of each prompt behind its prefix: one number, a list to draw from (a measured
            distribution), or :func:`log_normal`.
        output_tokens: ``max_new_tokens`` of each, given likewise.
        prefixes: system prompts to begin with.
        source: tokens of a text, whose passages become the prompts; or the size of a vocabulary, to draw each token
            at random. None: the held-out text of the kit's own model, in its own tokens (needs torch).
        temperature: of every request; each draws with a seed of its own.
        seed: the same seed gives the same trace. The rate and the variation change arrivals only, never the prompts.
            NumPy may change its generators between versions: save a trace to keep it.

    Raises RequestError for a length below 1, or for a source that is too short for a prompt.

    Example:
        >>> first, second = request_trace(2, 10.0, prompt_tokens=[3, 5], prefixes=SharedPrefixes(1, 4), source=100)
        >>> first.prompt[:4] == second.prompt[:4], first.id, len(first.prompt) in (7, 9)
        (True, 'r0', True)
    """
    seconds = arrival_times(count, rate_per_second, variation=variation, seed=seed)
    prompts = _lengths(prompt_tokens, "prompt_tokens", np.random.default_rng([seed, _PROMPT_LENGTHS]), count)
    outputs = _lengths(output_tokens, "output_tokens", np.random.default_rng([seed, _OUTPUT_LENGTHS]), count)
    if source is None:
        from mlsys_labkit import lm

        source = lm.load()[1].encode(lm.held_out())
    heads: list[tuple[int, ...]] = [()]
    chosen = np.zeros(count, dtype=np.int64)
    if prefixes:
        random = np.random.default_rng([seed, _PREFIXES])
        chosen = random.choice(prefixes.count, count, p=prefixes.probabilities)
        heads = [_passage(source, prefixes.tokens, random) for _ in range(prefixes.count)]
    random = np.random.default_rng([seed, _TEXT])
    return tuple(
        Request(
            id=f"r{index}",
            prompt=heads[chosen[index]] + _passage(source, int(prompts[index]), random),
            max_new_tokens=int(outputs[index]),
            arrival_seconds=seconds[index],
            temperature=temperature,
            seed=seed + index,
        )
        for index in range(count)
    )


def save_requests(requests: Iterable[Request], path: str | Path) -> Path:
    """Write one request per line as JSON; the file appears complete or not at all.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     kept = save_requests([Request("a", prompt=(1, 2))], Path(folder, "trace.jsonl"))
        ...     load_requests(kept)[0].prompt
        (1, 2)
    """
    rows = (json.dumps(asdict(request), separators=(",", ":")) + "\n" for request in requests)
    return write_whole(path, "".join(rows))


def load_requests(path: str | Path) -> tuple[Request, ...]:
    """Read what :func:`save_requests` wrote, or a hand-written file with at least ``id`` and ``prompt`` a line.

    Raises RecordError for a file that cannot be read, or for a line that is no request, repeats an id or has an earlier
    arrival time than the line above it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     written = Path(folder, "trace.jsonl").write_text('{"id": "a", "prompt": [5], "max_new_tokens": 2}')
        ...     load_requests(Path(folder, "trace.jsonl"))[0].max_new_tokens
        2
    """
    requests: list[Request] = []
    seen: set[str] = set()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise RecordError(f"{path} is not text; expected a request a line, as save_requests writes them") from None
    except OSError as error:
        raise RecordError(f"{path} cannot be read ({error.strerror}); name a file that save_requests wrote") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        request = _request(line, f"{path}, line {number}")
        if request.id in seen:
            raise RecordError(f"{path}, line {number}: the id {request.id!r} is there already; give each its own")
        if requests and request.arrival_seconds < requests[-1].arrival_seconds:
            raise RecordError(f"{path}, line {number}: arrives before the line above it; sort by arrival_seconds")
        seen.add(request.id)
        requests.append(request)
    return tuple(requests)


def _request(line: str, place: str) -> Request:
    try:
        row: Any = json.loads(line)
        if not isinstance(row, dict) or not {"id", "prompt"} <= row.keys():
            raise RecordError(f"{place}: expected an object with id and prompt, got {line[:60]}")
        return Request(**row)
    except (TypeError, ValueError) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(f"{place}: {error}; expected a request as save_requests writes it") from None


def _lengths(
    given: Lengths | Sequence[int] | int, name: str, random: np.random.Generator, count: int
) -> NDArray[np.int64]:
    if callable(given):
        lengths = given(random, count)
    else:
        choices = np.atleast_1d(np.asarray(given))
        if choices.ndim != 1 or not choices.size or not np.issubdtype(choices.dtype, np.integer):
            raise RequestError(f"{name} takes a whole number, a list of them or log_normal(...), got {given!r}")
        lengths = random.choice(choices, count)
    if len(lengths) and lengths.min() < 1:
        raise RequestError(f"{name} has a length of {lengths.min()}; lengths are from 1 up")
    return lengths


def _passage(source: Sequence[int] | int, tokens: int, random: np.random.Generator) -> tuple[int, ...]:
    if isinstance(source, int):
        return tuple(int(token) for token in random.integers(0, source, tokens))
    if len(source) < tokens:
        raise RequestError(f"a prompt of {tokens} tokens does not fit a source of {len(source)}; give a longer text")
    start = int(random.integers(0, len(source) - tokens + 1))
    return tuple(source[start : start + tokens])
