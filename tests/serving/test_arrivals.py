"""Tests of arrivals against the theory of their distributions, with fixed seeds, and of wrong trace files."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy
from hypothesis import given, strategies as st

from mlsys_labkit import lm, serving
from mlsys_labkit.serving import RecordError, Request, RequestError, SharedPrefixes

MANY = 20_000


def gaps(**options: float) -> np.ndarray:
    return np.diff(serving.arrival_times(MANY, **options), prepend=0.0)


def test_poisson_gaps_are_exponential_and_independent() -> None:
    got = gaps(rate_per_second=8.0, seed=3)
    assert scipy.stats.kstest(got, scipy.stats.expon(scale=1 / 8).cdf).pvalue > 0.01
    assert abs(np.corrcoef(got[:-1], got[1:])[0, 1]) < 4 / math.sqrt(MANY)
    # A Poisson process by its other face: counts a second have variance equal to the mean.
    seconds = np.cumsum(got)
    counts = np.bincount(seconds.astype(int))[:-1]
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("variation", [0.25, 0.5, 2.0])
def test_arrival_gaps_have_requested_rate_and_variation(variation: float) -> None:
    got = gaps(rate_per_second=5.0, variation=variation, seed=1)
    shape = 1 / variation**2  # of a Gamma distribution with that coefficient of variation
    assert scipy.stats.kstest(got, scipy.stats.gamma(shape, scale=0.2 / shape).cdf).pvalue > 0.01
    assert got.mean() == pytest.approx(0.2, rel=5 * variation / math.sqrt(MANY))
    assert got.std() / got.mean() == pytest.approx(variation, rel=0.06)


def test_arrival_gaps_without_variation_are_equal() -> None:
    assert serving.arrival_times(3, 4, variation=0) == [0.25, 0.5, 0.75]
    assert serving.arrival_times(0, 4) == []


def test_log_normal_lengths_have_requested_mean_and_tail() -> None:
    lengths = serving.log_normal(200, 1.2)(np.random.default_rng(5), MANY)
    assert lengths.mean() == pytest.approx(200, rel=5 * 1.2 / math.sqrt(MANY))
    sigma = math.sqrt(math.log(1 + 1.2**2))
    # The median of a log-normal is its mean over e^(sigma²/2); the 97.7th percentile lies two sigma above.
    assert np.median(lengths) == pytest.approx(200 * math.exp(-(sigma**2) / 2), rel=0.03)
    assert np.percentile(lengths, 97.725) == pytest.approx(200 * math.exp(2 * sigma - sigma**2 / 2), rel=0.05)
    cut = serving.log_normal(10, 2, least=4, most=30)(np.random.default_rng(0), MANY)
    assert (cut.min(), cut.max()) == (4, 30)


def heads(trace: tuple[Request, ...], tokens: int) -> Counter[tuple[int, ...]]:
    return Counter(request.prompt[:tokens] for request in trace)


@pytest.mark.parametrize("zipf", [0.0, 1.0, 2.0])
def test_prefixes_are_drawn_by_zipfs_law(zipf: float) -> None:
    trace = serving.request_trace(
        5000, 1.0, prompt_tokens=1, prefixes=SharedPrefixes(6, 20, zipf=zipf), source=1000, seed=2
    )
    seen = [count for _, count in heads(trace, 20).most_common()]
    law = np.array([1 / rank**zipf for rank in range(1, 7)])
    assert len(seen) == 6
    assert scipy.stats.chisquare(seen, 5000 * law / law.sum()).pvalue > 0.01
    assert len({request.prompt for request in trace}) > 1500  # what follows the prefix is the request's own


def test_lengths_come_from_number_list_or_distribution() -> None:
    trace = serving.request_trace(300, 1.0, prompt_tokens=[3, 9, 9, 9], output_tokens=7, source=50, seed=4)
    assert {request.max_new_tokens for request in trace} == {7}
    counts = Counter(len(request.prompt) for request in trace)
    assert set(counts) == {3, 9}
    assert scipy.stats.binomtest(counts[9], 300, 0.75).pvalue > 0.01
    long = serving.request_trace(50, 1.0, output_tokens=serving.log_normal(40, 0.5, most=64), source=50)
    assert max(request.max_new_tokens for request in long) <= 64


def test_prompts_are_passages_of_held_out_text() -> None:
    _, tokenizer = lm.load()
    trace = serving.request_trace(20, 4.0, prompt_tokens=24, prefixes=SharedPrefixes(2, 16), seed=1)
    everything = tokenizer.encode(lm.held_out())
    windows = {tuple(everything[at : at + 24]) for at in range(len(everything))}
    assert all(request.prompt[16:] in windows for request in trace)
    assert len(heads(trace, 16)) == 2


def test_seed_fixes_the_trace_and_rate_changes_arrivals_only() -> None:
    def trace(**options: float) -> tuple[Request, ...]:
        settings = {"rate_per_second": 3.0, "seed": 0, **options}
        return serving.request_trace(
            40,
            prompt_tokens=serving.log_normal(9, 0.7),
            output_tokens=[2, 4, 8],
            prefixes=SharedPrefixes(3, 4),
            source=500,
            **settings,
        )

    def asked(requests: tuple[Request, ...]) -> list[object]:
        return [(one.prompt, one.max_new_tokens, one.seed) for one in requests]

    assert trace() == trace()
    assert asked(trace()) != asked(trace(seed=1))
    assert asked(trace()) == asked(trace(rate_per_second=9.0, variation=3.0))
    assert [one.arrival_seconds for one in trace()] != [one.arrival_seconds for one in trace(variation=3.0)]
    assert len({one.seed for one in trace()}) == 40


requests = st.builds(
    Request,
    id=st.text(min_size=1),
    prompt=st.lists(st.integers(0, 9999), min_size=1, max_size=5).map(tuple),
    max_new_tokens=st.integers(1, 99),
    arrival_seconds=st.floats(0, 1e6),
    temperature=st.floats(0, 5),
    top_k=st.integers(0, 9),
    top_p=st.floats(0.01, 1),
    seed=st.integers(0, 2**40),
    stop=st.lists(st.integers(0, 9999), max_size=3).map(tuple),
    samples=st.integers(1, 4),
)


@given(st.lists(requests, max_size=6, unique_by=lambda one: one.id))
def test_saved_requests_load_unchanged(tmp_path_factory: pytest.TempPathFactory, trace: list[Request]) -> None:
    trace.sort(key=lambda one: one.arrival_seconds)
    path = serving.save_requests(trace, tmp_path_factory.mktemp("trace") / "trace.jsonl")
    assert serving.load_requests(path) == tuple(trace)
    assert [one.name for one in path.parent.iterdir()] == ["trace.jsonl"]


GOOD = {"id": "a", "prompt": [1, 2], "arrival_seconds": 1.0}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 3: Expecting property name"),
        ("[1, 2]", "line 3: expected an object with id and prompt"),
        ('{"id": "b"}', "line 3: expected an object with id and prompt"),
        (json.dumps({**GOOD, "id": "b", "prompt": []}), "line 3: request 'b' has an empty prompt"),
        (
            json.dumps({**GOOD, "id": "b", "prompt": "hello"}),
            "line 3: request 'b': prompt is 'hello', expected token numbers",
        ),
        (
            json.dumps({**GOOD, "id": "b", "prompt": [1, "x"]}),
            "line 3: request 'b': prompt is [1, 'x'], expected token numbers",
        ),
        (json.dumps({**GOOD, "id": "b", "max_new_tokens": 2.5}), "max_new_tokens is 2.5, expected a whole number"),
        (json.dumps({**GOOD, "id": "b", "stop": [-1]}), "line 3: request 'b': stop is [-1], expected token numbers"),
        (json.dumps({**GOOD, "id": 5}), "line 3: a request's id is 5, expected text"),
        (json.dumps({**GOOD, "id": "b", "samples": True}), "samples is True, expected a whole number"),
        (json.dumps({**GOOD, "id": "b", "top_p": 0}), "line 3: request 'b': top_p is 0"),
        (json.dumps({**GOOD, "id": "b", "arrival_seconds": math.nan}), "line 3: request 'b': arrival_seconds is nan"),
        (json.dumps({**GOOD, "id": "b", "colour": 3}), "line 3: "),
        (json.dumps(GOOD), "line 3: the id 'a' is there already"),
        (json.dumps({**GOOD, "id": "b", "arrival_seconds": 0.5}), "line 3: arrives before the line above it"),
    ],
)
def test_load_requests_names_the_wrong_line(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n\n{line}\n")
    with pytest.raises(RecordError) as caught:
        serving.load_requests(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_load_requests_refuses_binary_file(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="is not text"):
        serving.load_requests(tmp_path / "trace.jsonl")


def test_load_requests_refuses_missing_file(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none.jsonl", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(RecordError, match=f"cannot be read .{says}"):
            serving.load_requests(path)


def test_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = serving.save_requests([Request("a", prompt=(1,))], tmp_path / "trace.jsonl")
    before = path.read_text()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        serving.save_requests([Request("b", prompt=(2,))], path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rate_per_second": 0}, "a rate above 0"),
        ({"rate_per_second": math.nan}, "a rate above 0"),
        ({"variation": -1}, "variation from 0 up"),
        ({"prompt_tokens": 0}, "prompt_tokens has a length of 0"),
        ({"prompt_tokens": []}, "prompt_tokens takes a whole number"),
        ({"output_tokens": 2.5}, "output_tokens takes a whole number"),
        ({"source": [1, 2, 3]}, "does not fit a source of 3"),
    ],
)
def test_request_trace_refuses_impossible_values(options: dict[str, object], says: str) -> None:
    settings = {"rate_per_second": 1.0, "source": 10, **options}
    with pytest.raises(RequestError, match=says):
        serving.request_trace(4, **settings)


@pytest.mark.parametrize("wrong", [(0, 4, 0.0), (2, 0, 0.0), (2, 4, -1.0)])
def test_shared_prefixes_refuse_impossible_values(wrong: tuple[int, int, float]) -> None:
    with pytest.raises(RequestError, match="from 1 up"):
        SharedPrefixes(*wrong)
    with pytest.raises(RequestError, match="least <= mean"):
        serving.log_normal(0.5, 1.0)
