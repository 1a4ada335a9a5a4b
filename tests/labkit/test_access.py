"""Recorded addresses against index arithmetic; cache misses against closed forms and stack distances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import array_shapes

from mlsys_labkit.access import AccessError, AccessTrace, TracedArray, cache_misses, lines_touched, trace_accesses
from mlsys_labkit.errors import LabkitError

N, LINE = 32, 8  # a 32 x 32 matrix of float64; 8 elements a line of 64 B
ROW = N // LINE  # lines a row


def matmul(order: str):
    def run(a, b, c):
        for x in range(N):
            for y in range(N):
                for z in range(N):
                    at = dict(zip(order, (x, y, z), strict=True))
                    i, j, k = at["i"], at["j"], at["k"]
                    c[i, j] += a[i, k] * b[k, j]

    return run


@pytest.fixture(scope="module")
def traces() -> dict[str, AccessTrace]:
    rng = np.random.default_rng(0)
    a, b = rng.random((N, N)), rng.random((N, N))
    out = {}
    for order in ("ijk", "ikj", "jki"):
        c = np.zeros((N, N))
        out[order] = trace_accesses(matmul(order), a, b, c)
        np.testing.assert_allclose(c, a @ b)
    return out


def test_every_access_of_a_matmul_is_there(traces):
    for trace in traces.values():
        assert trace.reads == (N**3,) * 3
        assert trace.writes == (0, 0, N**3)
        assert lines_touched(trace) == 3 * N * ROW
        assert lines_touched(trace, line_bytes=8) == 3 * N * N


# 7 or 8 lines: no row of B or C and no column survives until its next use; the line under the running index does.
@pytest.mark.parametrize(
    ("order", "lines", "a", "b", "c"),
    [
        ("ijk", 8, N * N * ROW, N**3, N * ROW),  # A by rows, B by columns, C stays
        ("ikj", 2 * ROW - 1, N * ROW, N * N * ROW, N * N * ROW),  # A stays, B and C by rows
        ("jki", 8, N**3, N * ROW * LINE, N**3),  # A and C by columns, B down a column
        ("ikj", 2 * ROW + 2, N * ROW, N * N * ROW, N * ROW),  # the row of C survives
        ("ijk", 3 * N * ROW, N * ROW, N * ROW, N * ROW),  # all fits: compulsory misses alone
    ],
)
def test_misses_of_loop_orders_follow_their_closed_forms(traces, order, lines, a, b, c):
    assert cache_misses(traces[order], lines=lines).per_array == (a, b, c)


def test_cache_misses_reuse_the_columns_that_fit(traces):
    # 40 lines: the 32 lines of a column of B stay while j runs over the 8 columns that share them.
    assert cache_misses(traces["ijk"], lines=ROW + N + 2).per_array[1] == N * N * ROW


def naive_misses(lines: list[int], capacity: int) -> int:
    """Count misses by Mattson's rule: at least ``capacity`` other lines were referenced since the line's last use."""
    misses = 0
    for t, line in enumerate(lines):
        last = next((s for s in range(t - 1, -1, -1) if lines[s] == line), None)
        misses += last is None or len(set(lines[last + 1 : t])) >= capacity
    return misses


@given(st.lists(st.integers(0, 63), max_size=120), st.integers(1, 6), st.sampled_from([8, 16, 64]))
def test_lru_equals_stack_distance(order, capacity, line_bytes):
    trace = trace_accesses(lambda a: [a[i] for i in order], np.zeros(64))
    lines = [8 * i // line_bytes for i in order]
    got = cache_misses(trace, line_bytes=line_bytes, lines=capacity)
    assert got.misses == naive_misses(lines, capacity)
    assert got.misses >= cache_misses(trace, line_bytes=line_bytes, lines=capacity + 1).misses >= len(set(lines))
    assert lines_touched(trace, line_bytes) == len(set(lines))


@settings(deadline=None)
@given(array_shapes(max_dims=4, max_side=5), st.data())
def test_views_keep_the_addresses_of_their_elements(shape, data):
    base = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)  # an element holds its own offset
    axes = data.draw(st.permutations(range(len(shape))))
    index = tuple(
        data.draw(st.one_of(st.integers(-n, n - 1), st.slices(n), st.just(slice(None, None, -1)))) for n in shape
    )
    trace = trace_accesses(lambda a: np.asarray(a[index]), base)
    assert (trace.address // 4).tolist() == np.ravel(base[index]).tolist()
    trace = trace_accesses(lambda a: a.transpose(axes) + 0, base)
    assert (trace.address // 4).tolist() == base.transpose(axes).ravel().tolist()
    assert not trace.write.any()


def touched(trace: AccessTrace) -> list[tuple[int, str]]:
    return [(int(a) // 8, "rw"[int(w)]) for a, w in zip(trace.address, trace.write, strict=True)]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda a: a[1, 2], "5r"),
        (lambda a: a[-1, -1], "5r"),
        (lambda a: a[1][2], "5r"),
        (lambda a: a.T[2, 1], "5r"),
        (lambda a: a.reshape(6)[5], "5r"),
        (lambda a: a.reshape(-1)[1], "1r"),
        (lambda a: a[1], ""),
        (lambda a: a[:, 1:], ""),
        (lambda a: a[1] + 1, "3r 4r 5r"),
        (lambda a: 1 - a[:, 0], "0r 3r"),
        (lambda a: a[1].sum(), "3r 4r 5r"),
        (lambda a: np.dot(a[0], a[1]), "0r 1r 2r 3r 4r 5r"),
        (lambda a: a[0] @ a[1], "0r 1r 2r 3r 4r 5r"),
        (lambda a: np.stack([a[1], a[0]]), "3r 4r 5r 0r 1r 2r"),
        (lambda a: np.sum(a, axis=0), "0r 1r 2r 3r 4r 5r"),
        (lambda a: np.transpose(a)[2, 0], "2r"),
        (lambda a: np.zeros_like(a) + np.ndim(a), ""),
        (lambda a: a[[0, 1], [2, 0]], "2r 3r"),
        (lambda a: [x for row in a for x in row], "0r 1r 2r 3r 4r 5r"),
        (lambda a: a.__setitem__((0, 1), 7), "1w"),
        (lambda a: a.__setitem__(0, 7), "0w 1w 2w"),
        (lambda a: a.__setitem__(0, a[1]), "3r 4r 5r 0w 1w 2w"),
        (lambda a: a.fill(0), "0w 1w 2w 3w 4w 5w"),
        (lambda a: np.add(a[0], 1, out=a[1]), "0r 1r 2r 3w 4w 5w"),
        (lambda a: a.T.reshape(6).sum(), "0r 3r 1r 4r 2r 5r"),
        (lambda a: a[[1]].__setitem__(0, 3), "3r 4r 5r"),
        (lambda a: float(a[0, 1:2].reshape(())), "1r"),
    ],
)
def test_what_each_operation_touches(run, expected):
    assert touched(trace_accesses(run, np.arange(6.0).reshape(2, 3))) == [
        (int(word[:-1]), word[-1]) for word in expected.split()
    ]


def test_augmented_assignment_reads_and_writes_once():
    def element(a):
        a[0, 1] += 5

    def row(a):
        a[1] += 5

    x = np.arange(6.0).reshape(2, 3)
    assert touched(trace_accesses(element, x)) == [(1, "r"), (1, "w")]
    assert touched(trace_accesses(row, x)) == [(3, "r"), (4, "r"), (5, "r"), (3, "w"), (4, "w"), (5, "w")]
    assert x.tolist() == [[0, 6, 2], [8, 9, 10]]
    assert (trace_accesses(element, x).at_once, trace_accesses(row, x).at_once) == (0, 2)


def test_arrays_lie_on_pages_of_their_own_and_aliases_coincide():
    x, y = np.zeros(3, np.float32), np.zeros((2, 2))
    trace = trace_accesses(lambda a, n, b, c: (a[0], b[1, 1], c[0]), x, 7, y, x[1:])
    assert trace.array.tolist() == [0, 1, 2]
    assert trace.address.tolist() == [0, 4096 + 24, 4]
    assert trace.bytes.tolist() == [4, 8, 4]


def test_a_straddling_element_asks_for_two_lines():
    raw = np.zeros(129, np.uint8)
    unaligned = raw[60:68].view(np.float64)
    trace = trace_accesses(lambda a: a[0], unaligned)
    assert cache_misses(trace).misses == cache_misses(trace).accesses == lines_touched(trace) == 2


def test_trace_accesses_returns_plain_arrays():
    x = np.arange(4.0)
    trace = trace_accesses(lambda a: a[1:], x)
    assert type(trace.result) is np.ndarray
    assert trace.result.tolist() == [1, 2, 3]


def test_trace_accesses_refuses_what_it_cannot_trace():
    with pytest.raises(AccessError, match="arrays of numbers"):
        trace_accesses(len, np.array([None]))
    with pytest.raises(LabkitError, match="at least 1 B"):
        cache_misses(trace_accesses(len, np.zeros(1)), lines=0)
    with pytest.raises(IndexError):
        trace_accesses(lambda a: a[3], np.zeros(3))
    with pytest.raises(AttributeError, match=r"np\.argmax"):
        trace_accesses(lambda a: a.argmax(), np.zeros(3))
    with pytest.raises(AccessError, match=r"assign: a\[\.\.\.\]"):
        trace_accesses(lambda a: np.copyto(a, 1.0), np.zeros(3))
    with pytest.raises(AccessError, match=r"add\.at .* assign: a\[\.\.\.\]"):
        trace_accesses(lambda a: np.add.at(a, [0, 0], 1.0), np.zeros(3))
    with pytest.raises(AccessError, match="at most 128 arrays, got more"):
        trace_accesses(lambda *a: None, *[np.zeros(1)] * 129)
    assert isinstance(trace_accesses(lambda a: isinstance(a, TracedArray), np.zeros(1)).result, bool)
