"""trace_memory and expect_peak on numpy code: against counting by hand, tracemalloc itself and a table of arrays."""

from __future__ import annotations

import re
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mlsys_labkit.checks import CheckError, expect_peak
from mlsys_labkit.memory import trace_memory

pytestmark = pytest.mark.usefixtures("small_heap")

N = 100_000


def careless(x):
    centred = x - x.mean()
    return centred / np.sqrt((centred**2).mean())


def frugal(x):
    out = x - x.mean()
    out /= np.sqrt(np.dot(out, out) / len(out))
    return out


PYTHON = 16 * 1024  # bytes of Python's own objects that a temporary may be overstated by


def test_numpy_peak_matches_a_hand_count():
    x = np.arange(float(N))
    for run, arrays in [
        (lambda: careless(x), 2),
        (lambda: frugal(x), 1),
        (lambda: np.concatenate([x, x]), 2),
        (lambda: (x + 1) * (x + 2), 2),  # numpy writes the product into a temporary without other references
        (lambda: x[::2].T, 0),
    ]:
        assert abs(trace_memory(run).peak_bytes - arrays * x.nbytes) < PYTHON
    assert trace_memory(np.zeros, (10, 10), np.float32).peak_bytes == 400


def test_the_stream_of_numpy_is_that_of_tracemalloc():
    domain = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    with trace_memory() as trace:
        kept = [np.zeros(n) for n in (10, 1000, 77)]
        kept.append(kept[1] * 2)
        kept[0] = np.resize(kept[0], 500)
        snapshot = tracemalloc.take_snapshot().filter_traces([domain])
    alive = sum(event.bytes for event in trace.events)
    assert alive == sum(one.size for one in snapshot.traces) == sum(one.nbytes for one in kept)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=20))
def test_live_bytes_follow_a_table_of_arrays(program):
    def run():
        table: dict[int, np.ndarray] = {}
        for slot, size in program:
            table.pop(slot, None)
            if size:
                table[slot] = np.empty(size * 10_000, np.uint8)

    model: dict[int, int] = {}
    peak = 0
    for slot, size in program:
        model.pop(slot, None)
        if size:
            model[slot] = size * 10_000
        peak = max(peak, sum(model.values()))
    trace = trace_memory(run)
    assert abs(trace.peak_bytes - peak) < PYTHON
    assert sum(event.bytes for event in trace.events) == 0


def test_numpy_trace_is_deterministic():
    x = np.ones(N) + np.arange(N)
    careless(x)
    peaks = [trace_memory(careless, x).peak_bytes for _ in range(5)]
    assert max(peaks) - min(peaks) < PYTHON


def test_each_line_of_a_function_is_an_event():
    def three(x):
        a = x + 1
        b = a * 2
        del a
        return b.sum()

    big = [e for e in trace_memory(three, np.ones(N)).events if abs(e.bytes) > PYTHON]
    assert [(e.bytes // N, e.name) for e in big] == [
        (8, "a = x + 1"),
        (8, "b = a * 2"),
        (-8, "a = x + 1"),
        (-8, "b = a * 2"),
    ]


def test_numpy_trace_names_the_line():
    with trace_memory() as trace:
        big = np.zeros(N)
    assert trace.peak_tensors[0].code == "big = np.zeros(N)"
    assert trace.peak_tensors[0].line.startswith("test_memory_numpy.py:")
    assert trace.peak_tensors[0].name == "big = np.zeros(N)"
    assert trace.resident_after_bytes is None or trace.resident_after_bytes > 10_000_000
    del big


def test_numpy_traces_can_be_nested():
    with trace_memory():
        pass  # the first trace of a process imports what it needs: megabytes that are not the nested one's
    with trace_memory() as outer:
        a = np.ones(N)
        with trace_memory() as inner:
            b = np.ones(2 * N)
            del b
            c = np.ones(3 * N)
        del c  # made inside, freed outside: the outer trace has both events
    assert [e.bytes // N for e in inner.events if e.bytes > N] == [16, 24]
    assert inner.python_peak_bytes // N == 24
    assert 32 <= outer.python_peak_bytes / N < 33  # what setting up the inner trace took is not the user's
    assert sum(e.bytes for e in outer.events) == sum(t.bytes for t in outer.tensors if "a = np" in t.code) == 8 * N
    del a


def test_lines_are_never_those_of_generated_code():
    space = {"__name__": "collections"}
    exec("def passing():\n    held = bytes(100_000)\n    return len(held)", space)  # as namedtuple makes its __new__
    trace = trace_memory(lambda: space["passing"]())
    assert trace.tensors
    assert not [tensor.line for tensor in trace.tensors if tensor.line.startswith("<string>")]


def test_the_trace_function_is_put_back_when_the_code_fails():
    with pytest.raises(ZeroDivisionError), trace_memory():
        1 / 0  # noqa: B018
    assert sys.gettrace() is None
    assert sys._getframe().f_trace is None
    assert not tracemalloc.is_tracing()


@pytest.mark.parametrize(
    "fails",
    [
        lambda: np.array([1.0] * 100 + ["a"], dtype=float),
        lambda: np.concatenate([np.ones(3), np.ones((2, 2))]),
        lambda: np.fromiter((1 / (5 - i) for i in range(10)), float),
        lambda: np.linalg.inv(np.zeros((3, 3))),
    ],
)
def test_errors_of_numpy_come_through_unchanged(fails):
    with pytest.raises(Exception) as plain:
        fails()
    with pytest.raises(Exception) as traced:
        trace_memory(fails)
    assert (type(traced.value), str(traced.value)) == (type(plain.value), str(plain.value))


def test_a_tracemalloc_of_the_users_keeps_running():
    tracemalloc.start()
    try:
        trace_memory(np.zeros, 10)
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()


def test_a_debugger_keeps_its_trace_function():
    calls = []

    def debugger(frame, event, arg):
        calls.append(event)

    before = sys.gettrace()
    sys.settrace(debugger)
    try:
        trace = trace_memory(careless, np.arange(float(N)))
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(before)
    assert abs(trace.peak_bytes - 2 * 8 * N) < 16 * PYTHON  # begin and end only: one temporary
    assert "call" in calls


# ---- expect_peak


def test_expect_peak_counts_arrays_and_gives_the_result():
    x = np.arange(float(N))
    np.testing.assert_array_equal(expect_peak(np.add, x, 1, at_most_bytes=x.nbytes + PYTHON), x + 1)
    with pytest.raises(CheckError):
        expect_peak(np.add, x, 1, at_most_bytes=x.nbytes - 1)
    expect_peak(frugal, x, at_most_bytes=x.nbytes + PYTHON)
    with pytest.raises(CheckError) as caught:
        expect_peak(careless, x, at_most_bytes=x.nbytes + PYTHON)
    text = str(caught.value)
    assert text.startswith("careless: peak memory too high\n  expected  at most 816 384 B of new memory\n")
    assert re.search(r"\(1\.9[5-9]x\)", text)  # two arrays and a little of Python's own, where one is allowed
    assert "made at test_memory_numpy.py:" in text


def test_expect_peak_counts_torch_too():
    torch = pytest.importorskip("torch")
    x = torch.ones(N)
    assert expect_peak(lambda: x + 1, at_most_bytes=4 * N)[0] == 2
    with pytest.raises(CheckError, match="2x"):
        expect_peak(lambda: (x + 1) * 2, at_most_bytes=4 * N)


@pytest.mark.parametrize(
    "hide",
    [lambda x: x.tolist(), lambda x: bytearray(x), lambda x: [float(v) for v in x]],
    ids=["list", "bytes", "floats"],
)
def test_hiding_an_array_in_python_objects_is_seen(hide):
    x = np.arange(20_000.0)
    with pytest.raises(CheckError, match="Python objects"):
        expect_peak(hide, x, at_most_bytes=1000)


def test_many_small_arrays_one_after_the_other_fit():
    def stream():
        total = np.zeros(10)
        for i in range(2000):
            total += np.full(10, float(i))
        return total

    expect_peak(stream, at_most_bytes=2 * 80 + PYTHON)
