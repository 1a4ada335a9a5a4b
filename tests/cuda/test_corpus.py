"""Sixty kernels in the idioms of textbooks and public collections: each compiles unchanged, runs right and is clean.

The oracles are numpy in float64. ``check`` runs every kernel in other orders of warps and lanes and must be silent, but
for two that are known for it: one relies on lanes in step, a race on every GPU since Volta; one reads with a plain load
what others claim with compare-and-swap, which does no harm and is a race by CUDA's memory model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.source.source import Source

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(CORPUS.glob("*.cu"))
F = np.float32


@dataclass(frozen=True)
class Case:
    """One launch: ``arguments`` are the inputs, ``expected`` the outputs by position.

    Of a tuple of outputs each element has to be in one of them.
    """

    shape: tuple[Any, ...]
    arguments: tuple[Any, ...]
    expected: dict[int, Any]
    rtol: float = 1e-5
    kinds: frozenset[str] = field(default_factory=frozenset)


def rng() -> np.random.Generator:
    return np.random.default_rng(2024)


def normal(*shape: int) -> np.ndarray:
    return rng().standard_normal(shape, dtype=F)


X, Y = rng().standard_normal((2, 1000), dtype=F)
N = len(X)
FLAT = (8, 128)
OUT = np.zeros(N, F)
INTS = rng().integers(-50, 50, 1024).astype(np.int32)
BYTES = rng().integers(0, 256, 3000).astype(np.uint8)
SQUARE_A, SQUARE_B = rng().standard_normal((2, 40, 40), dtype=F)
A64, B64 = rng().standard_normal((2, 64, 64), dtype=F)
ROWS = normal(5, 70)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(float) @ b


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(float) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def blocks_scanned(x: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([np.cumsum(x[i : i + size].astype(float)) for i in range(0, len(x), size)])


def random_csr() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    dense = normal(37, 50) * (rng().random((37, 50)) < 0.2)
    starts = np.concatenate([[0], np.cumsum((dense != 0).sum(1))]).astype(np.int32)
    rows, columns = np.nonzero(dense)
    x = normal(50)
    return starts, columns.astype(np.int32), dense[rows, columns].astype(F), x, product(dense, x)


def graph() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a ring of 60 with chords: starts, edges, and vertex 0's neighbours."""
    neighbours = [sorted({(v + 1) % 60, (v - 1) % 60, (v * 7) % 60} - {v}) for v in range(60)]
    starts = np.cumsum([0] + [len(each) for each in neighbours]).astype(np.int32)
    return starts, np.concatenate(neighbours).astype(np.int32), np.array(neighbours[0])


def life(board: np.ndarray) -> np.ndarray:
    around = sum(np.roll(board, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx)
    return ((around == 3) | ((around == 2) & (board == 1))).astype(np.int32)


def heat(plate: np.ndarray) -> np.ndarray:
    out = np.zeros(plate.shape)
    p = plate.astype(float)
    inner = p[1:-1, 1:-1, 1:-1]
    around = p[:-2, 1:-1, 1:-1] + p[2:, 1:-1, 1:-1] + p[1:-1, :-2, 1:-1] + p[1:-1, 2:, 1:-1]
    around = around + p[1:-1, 1:-1, :-2] + p[1:-1, 1:-1, 2:]
    out[1:-1, 1:-1, 1:-1] = inner + 0.1 * (around - 6 * inner)
    return out


def julia(dim: int, c: complex) -> np.ndarray:
    x, y = np.meshgrid(np.arange(dim), np.arange(dim))
    a = (1.5 * (dim / 2 - x) / (dim / 2) + 1.5j * (dim / 2 - y) / (dim / 2)).astype(np.complex64)
    count = np.full((dim, dim), 50)
    left = np.ones((dim, dim), bool)
    for n in range(50):
        a[left] = a[left] * a[left] + np.complex64(c)
        out = left & (a.real**2 + a.imag**2 > 1000)
        count[out] = n
        left &= ~out
    return count.astype(np.int32)


def gravity(bodies: np.ndarray) -> np.ndarray:
    b = bodies.astype(float)
    r = b[None, :, :3] - b[:, None, :3]
    inverse = 1 / np.sqrt((r**2).sum(-1) + 0.01)
    return (r * (b[None, :, 3] * inverse**3)[..., None]).sum(1)


def rotated(x: np.ndarray) -> np.ndarray:
    tokens, dim = x.shape
    angle = np.arange(tokens)[:, None] * 10000.0 ** (-2.0 * np.arange(dim // 2) / dim)
    z = (x[:, 0::2].astype(float) + 1j * x[:, 1::2]) * np.exp(1j * angle)
    return np.stack([z.real, z.imag], -1).reshape(tokens, dim)


def elementwise() -> dict[str, Case]:
    total = X.astype(float) + Y
    gray = rng().integers(0, 256, (9, 20, 3)).astype(np.uint8)
    c = (77 * gray[..., 0].astype(int) + 150 * gray[..., 1].astype(int) + 29 * gray[..., 2].astype(int)) >> 8
    sigmoid = 1 / (1 + np.exp(-X.astype(float)))
    cubic = 1.0 - 2.0 * X.astype(float) + 0.5 * X**2 + 0.25 * X**3
    gelu = 0.5 * X * (1 + np.tanh(0.7978845608 * (X.astype(float) + 0.044715 * X.astype(float) ** 3)))
    return {
        "add": Case(FLAT, (X, Y, OUT, N), {2: total}),
        "add_early_out": Case(FLAT, (OUT, X, Y, N), {0: total}),
        "add_strided": Case((2, 64), (N, X, Y), {2: total}),
        "saxpy": Case((3, 96), (N, 2.5, X, Y), {3: 2.5 * X.astype(float) + Y}),
        "relu": Case(FLAT, (X, OUT, N), {1: np.maximum(X, 0)}),
        "sigmoid": Case(FLAT, (X, OUT, N), {1: sigmoid}),
        "gelu_tanh": Case(FLAT, (X, OUT, N), {1: gelu}),
        "silu": Case((4, 256), (X, OUT, N), {1: X * sigmoid}),
        "scale_vec<float, 4>": Case((3, 128), (X, 3.0, N), {0: 3.0 * X}),
        "float4_copy": Case((2, 128), (X, OUT, N // 4), {1: X}),
        "reverse_in_place": Case(FLAT, (X, N), {0: X[::-1]}),
        "polynomial": Case(FLAT, (X, OUT, N), {1: cubic}),
        "rgb_to_gray": Case(((2, 2), (16, 8)), (gray, np.zeros((9, 20), np.uint8), 20, 9), {1: c}),
    }


def matrix() -> dict[str, Case]:
    v, wide = normal(40), normal(50, 70)
    zeros, zeros64 = np.zeros((40, 40), F), np.zeros((64, 64), F)
    small_a, small_b = A64[:16, :16].copy(), B64[:16, :16].copy()
    mixed = 0.5 * product(A64, B64) + 2.0 * A64
    return {
        "matvec": Case((2, 32), (SQUARE_A, v, np.zeros(40, F), 40, 40), {2: product(SQUARE_A, v)}),
        "MatrixMulKernel": Case(
            ((3, 5), (16, 8)), (SQUARE_A, SQUARE_B, zeros, 40), {2: product(SQUARE_A, SQUARE_B)}, 1e-4
        ),
        "tiled_matmul": Case(
            ((3, 3), (16, 16)), (SQUARE_A, SQUARE_B, zeros, 40), {2: product(SQUARE_A, SQUARE_B)}, 1e-4
        ),
        "sgemm_1d<32, 32, 8, 4>": Case(((2, 2), 256), (64, 64, 64, 0.5, A64, B64, 2.0, A64.copy()), {7: mixed}, 1e-4),
        "sgemm_2d_vectorized<32, 32, 8, 4, 4>": Case(
            ((2, 2), 64), (64, 64, 64, A64, B64, zeros64), {5: product(A64, B64)}, 1e-4
        ),
        "transposeNaive": Case(((5, 7), (16, 8)), (np.zeros((70, 50), F), wide, 70, 50), {0: wide.T}),
        "transposeNoBankConflicts": Case(((3, 2), (32, 8)), (np.zeros((70, 50), F), wide, 70, 50), {0: wide.T}),
        "submatrix_matmul": Case(
            ((2, 2), (8, 8)), (small_a, small_b, np.zeros((16, 16), F)), {2: product(small_a, small_b)}, 1e-4
        ),
    }


def reduce() -> dict[str, Case]:
    sums = INTS.reshape(4, 256).sum(1)
    zeros = np.zeros(4, np.int32)
    shared = (4, 256, 1024)
    dot = [X.astype(float) @ Y]
    one = np.zeros(1, F)
    prefix = np.concatenate([np.cumsum(INTS[i : i + 32]) for i in range(0, 1024, 32)])
    return {
        "reduce_interleaved": Case(shared, (INTS, zeros), {1: sums}),
        "reduce_strided_index": Case(shared, (INTS, zeros), {1: sums}),
        "reduce_sequential": Case(shared, (INTS, zeros), {1: sums}),
        "reduce_last_warp_volatile<128>": Case(
            (2, 128, 512), (INTS, zeros[:2], 1000), {}, kinds=frozenset({"shared_race"})
        ),
        "sum_atomic": Case((4, 128), (X, one, N), {1: [X.astype(float).sum()]}, 1e-4),
        "dot_product": Case((4, 128), (X, Y, one, N), {2: dot}, 1e-4),
        "max_reduce": Case((3, 64, 256), (X, np.full(1, -1e30, F), N), {1: [X.max()]}),
        "cg_sum": Case((3, 96), (INTS, zeros[:1], 1024), {1: [INTS.sum()]}),
        "kogge_stone": Case((16, 64), (X, OUT, N), {1: blocks_scanned(X, 64)}, 1e-4),
        "brent_kung": Case((16, 32), (X, OUT, N), {1: blocks_scanned(X, 64)}, 1e-4),
        "warp_inclusive_scan": Case((8, 128), (INTS, 1024), {0: prefix}),
    }


def neural() -> dict[str, Case]:
    zeros = np.zeros_like(ROWS)
    weight, bias = rng().standard_normal((2, 70), dtype=F)
    wide = ROWS.astype(float)
    mean, deviation = wide.mean(1), 1 / np.sqrt(wide.var(1) + 1e-5)
    normed = (wide - mean[:, None]) * deviation[:, None] * weight + bias
    rms = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * weight
    labels = np.array([3, 0, 69, 12, 40], np.int32)
    loss = -np.log(softmax(ROWS)[np.arange(5), labels]).mean()
    q, k, v = rng().standard_normal((3, 12, 16), dtype=F)
    attention = product(softmax(product(q, k.T) * 0.25), v)
    h, g = X.astype(np.float16), Y.astype(np.float16)
    third = np.float16(0.3)
    fused = (h.astype(float) * float(third) + g).astype(np.float16)
    pairs = (h.astype(F) + g.astype(F)).astype(np.float16)
    brain = X.astype(ml_dtypes.bfloat16)
    a, b = rng().integers(-128, 128, (2, 24, 24)).astype(np.int8)
    tokens = np.array([4, 0, 9, 4], np.int32)
    wte, wpe = normal(10, 6), normal(4, 6)
    x = normal(7, 12)
    return {
        "softmax_rows": Case((5, 32, 128), (ROWS, zeros, 5, 70), {1: softmax(ROWS)}, 1e-4),
        "softmax_online_warp": Case((3, 64), (ROWS, zeros, 5, 70), {1: softmax(ROWS)}, 1e-4),
        "layernorm_forward": Case(
            (1, 32),
            (zeros, np.zeros(5, F), np.zeros(5, F), ROWS, weight, bias, 5, 70),
            {0: normed, 1: mean, 2: deviation},
            1e-4,
        ),
        "rmsnorm": Case((5, 64), (ROWS, weight, zeros, 70, 1e-5), {2: rms}, 1e-4),
        "cross_entropy": Case((1, 32), (ROWS, labels, np.zeros(1, F), 5, 70), {2: [loss]}, 1e-4),
        "attention_row<16>": Case((12, 16), (q, k, v, np.zeros_like(q), 12, 0.25), {3: attention}, 1e-4),
        # ptxas joins __hmul and __hadd to one HFMA, which rounds once: on a GPU an element is one or the other.
        "half_axpy": Case(FLAT, (N, third, h, g), {3: ((third * h).astype(np.float16) + g, fused)}, 0),
        "half2_add": Case((4, 128), (h, g, np.zeros(N, np.float16), N // 2), {2: pairs}, 0),
        "bf16_to_float": Case(FLAT, (brain.view(np.uint16), OUT, N), {1: brain.astype(F) * 2}, 0),
        "rope": Case((7, 8), (x, 7, 12), {0: rotated(x)}, 1e-4),
        "int8_matmul": Case(((3, 3), (8, 8)), (a, b, np.zeros((24, 24), np.int32), 24), {2: a.astype(int) @ b.T}),
        "embedding": Case((1, 32), (tokens, wte, wpe, np.zeros((4, 6), F), 4, 6), {3: wte[tokens] + wpe}),
    }


def irregular() -> dict[str, Case]:
    counts = np.bincount(BYTES, minlength=256)
    empty = np.zeros(256, np.uint32)
    line = rng().integers(0, 100, 128 + 6).astype(np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(line, 7).sum(1)
    blur = np.convolve(X.astype(float), [0.1, 0.2, 0.4, 0.2, 0.1], "same")
    block = normal(6, 7, 9)
    board = rng().integers(0, 2, (11, 13)).astype(np.int32)
    starts, columns, data, x, y = random_csr()
    from_, edges, near = graph()
    level = np.full(60, -1, np.int32)
    level[0] = 0
    after = level.copy()
    after[near[after[near] == -1]] = 1
    dist = rng().integers(1, 100, (20, 20)).astype(np.int32)
    np.fill_diagonal(dist, 0)
    through = np.minimum(dist, dist[:, 5:6] + dist[5:6, :])
    values = normal(64)
    half = np.sort(values.reshape(-1, 2), 1)
    half[1::2] = half[1::2, ::-1]
    mixed = rng().integers(0, 1000, 50).astype(np.int32)
    a, b = np.sort(rng().integers(0, 100, 37)).astype(np.int32), np.sort(rng().integers(0, 90, 44)).astype(np.int32)
    plain_read = frozenset({"global_race"})
    bodies, one = normal(50, 4), np.zeros(1, np.int32)
    return {
        "histo_naive": Case((4, 256), (BYTES, 3000, empty), {2: counts}),
        "histo_private": Case((4, 256), (BYTES, 3000, empty), {2: counts}),
        "stencil_1d": Case((2, 64), (line, np.zeros(128, np.int32), 128), {1: windows}),
        "convolution_1D": Case(FLAT, (X, OUT, N), {1: blur}),
        "heat_7point": Case(((2, 2, 2), (8, 4, 4)), (block, np.zeros_like(block), 9, 7, 6), {1: heat(block)}),
        "game_of_life": Case(((2, 2), (8, 8)), (board, np.zeros_like(board), 13, 11), {1: life(board)}),
        "spmv_csr_scalar": Case((2, 32), (37, starts, columns, data, x, np.zeros(37, F)), {5: y}, 1e-4),
        "spmv_csr_vector": Case((10, 128), (37, starts, columns, data, x, np.zeros(37, F)), {5: y}, 1e-4),
        "bfs_level": Case((2, 32), (from_, edges, level, 60, 0, one), {2: after, 5: [1]}, kinds=plain_read),
        "floyd_warshall_step": Case(((2, 2), (16, 16)), (dist, 20, 5), {0: through}),
        "bitonic_step": Case((2, 32), (values, 1, 2), {0: half.ravel()}, 0),
        "odd_even_sort_block": Case((1, 50, 200), (mixed, 50), {0: np.sort(mixed)}),
        "compact_positive": Case((8, 128), (INTS, np.zeros_like(INTS), one, 1000), {2: [(INTS[:1000] > 0).sum()]}),
        "single_pass_sum": Case((8, 128), (INTS, np.zeros(8, np.int32), one, 1024), {2: [INTS.sum()]}),
        "merge_path": Case((3, 32), (a, 37, b, 44, np.zeros(81, np.int32)), {4: np.sort(np.concatenate([a, b]))}),
        "julia": Case(((24, 24), 1), (np.zeros((24, 24), np.int32), 24, -0.8, 0.156), {0: julia(24, -0.8 + 0.156j)}),
        "nbody_forces": Case((2, 32, 512), (bodies, np.zeros((50, 3), F), 50), {1: gravity(bodies)}, 1e-3),
    }  # fmt: skip


def unusual() -> dict[str, Case]:
    zeros, one = np.zeros_like(INTS), np.zeros(1, np.int32)
    flags = np.zeros(16, np.int32)
    scanned = np.cumsum(INTS)
    t = np.arange(48)
    fibonacci = np.array([0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89])
    mirror = np.arange(64)[::-1]
    split = X[:64][::-1].astype(float) + (mirror + 3) - mirror + mirror % 100
    warps = INTS[:64].reshape(2, 32)
    alike = np.concatenate([[warp[warp % 2 == v % 2].sum() for v in warp] for warp in warps])
    shorts = (INTS[:32] % 5).astype(np.int16)
    same = [sum(1 << lane for lane in range(32) if shorts[lane] == v) for v in shorts]
    return {
        "lookback_packed": Case((16, 64), (INTS, zeros, np.zeros(16, np.uint64), one), {1: scanned}),
        "lookback_volatile": Case((16, 64), (INTS, zeros, flags, flags, flags, one), {1: scanned}),
        "persistent_squares": Case((3, 64), (one, 1000, INTS, zeros), {3: np.append(INTS[:1000] ** 2, [0] * 24)}),
        "counted_under_lock": Case((8, 64), (one,), {0: [16]}),
        "message": Case((2, 32), (one, one, one), {2: [42]}),
        "split_dynamic": Case((1, 64, 64 * (8 + 16 + 2 + 1)), (X, np.zeros(64)), {1: split}),
        "folded<Largest, 777>": Case((1, 256), (INTS, one), {1: [INTS[:777].max()]}),
        "through_pointers": Case(
            (1, 48), (np.zeros(48, np.int32),), {0: np.where(t % 2, t % 12 * 2, fibonacci[t % 12])}
        ),
        "rows_by_value": Case((1, 64), (X, np.zeros(64, F)), {1: X[:512].reshape(64, 8).astype(float).sum(1)}),
        "from_new": Case((1, 64), (INTS, zeros, 16), {1: INTS.reshape(64, 16)[:, ::-1].ravel()}),
        "sums_by_parity": Case((1, 64), (INTS, np.zeros(64, np.int32)), {1: alike}),
        "all_alike": Case((1, 32), (shorts, np.zeros(32, np.uint32)), {1: same}),
    }


CASES = {
    (make.__name__, name): case
    for make in (elementwise, matrix, reduce, neural, irregular, unusual)
    for name, case in make().items()
}
NAMES = pytest.mark.parametrize(("file", "name"), CASES, ids=[f"{file}-{name}" for file, name in CASES])


@functools.cache
def kernels(file: str) -> Callable[[str], cuda.Kernel]:
    path = CORPUS / f"{file}.cu"
    plain = cuda.compile_all(path, backend="simulator")
    return lambda name: plain[name] if name in plain else cuda.compile(path, name, backend="simulator")


def fresh(case: Case) -> tuple[Any, ...]:
    return tuple(each.copy() if isinstance(each, np.ndarray) else each for each in case.arguments)


def compare(case: Case, arguments: tuple[Any, ...]) -> None:
    for place, expected in case.expected.items():
        got = np.asarray(arguments[place], float)
        given = expected if isinstance(expected, tuple) else (expected,)
        ways = [np.asarray(way, float).reshape(got.shape) for way in given]
        wanted = np.select([got == way for way in ways], ways, ways[0])
        np.testing.assert_allclose(got, wanted, rtol=case.rtol, atol=case.rtol)


def test_no_kernel_is_left_out():
    there = {(path.stem, kernel.name) for path in FILES for kernel in Source(path.read_text()).kernels}
    tried = {(file, name.split("<")[0]) for file, name in CASES}
    assert tried == there
    assert len(there) >= 60


@NAMES
@pytest.mark.xdist_group("cuda-corpus")
def test_runs_right(file, name):
    case = CASES[file, name]
    for seed in (0, 3):
        kernel = kernels(file)(name)
        arguments = fresh(case)
        (kernel.seeded(seed) if seed else kernel)[case.shape](*arguments)
        compare(case, arguments)


@NAMES
@pytest.mark.xdist_group("cuda-corpus")
def test_is_clean(file, name):
    case = CASES[file, name]
    for seed in (1, 2, 3):
        arguments = fresh(case)
        findings = kernels(file)(name).check.seeded(seed)[case.shape](*arguments)
        assert {finding.kind for finding in findings} == case.kinds, "\n".join(map(str, findings))
        compare(case, arguments)


@NAMES
@pytest.mark.xdist_group("cuda-corpus")
def test_profile_counts_what_it_wrote(file, name):
    case = CASES[file, name]
    arguments = fresh(case)
    profile = kernels(file)(name).profile[case.shape](*arguments)
    compare(case, arguments)
    changed = sum(
        int((now != before).sum()) * now.itemsize
        for now, before in zip(arguments, case.arguments, strict=True)
        if isinstance(now, np.ndarray)
    )
    assert profile.bytes_written >= changed > 0
    assert profile.blocks_run == profile.blocks_total


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_nvidias_compiler_takes_it(path):
    from mlsys_labkit.cuda.nvidia import nvrtc

    names = [name for file, name in CASES if file == path.stem]
    for name in [name for name in names if "<" in name] or names[:1]:  # each compiles the whole file
        assert nvrtc.check(path.read_text(), name) == ()
