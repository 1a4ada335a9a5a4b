"""The mistakes that students make in the labs, and the words of the message that each of them leads to.

Most results are computed by numpy with the index arithmetic of the wrong kernel. ``says`` has to be in the message,
``never`` must not be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from mlsys_labkit import checks
from mlsys_labkit.access import trace_accesses
from mlsys_labkit.checks import CheckError
from mlsys_labkit.work import Work

random = np.random.default_rng(17)
NAN = np.nan


def of(*shape: int) -> np.ndarray:
    return random.standard_normal(shape)


def floats(*shape: int) -> np.ndarray:
    return of(*shape).astype(np.float32)


def filled(shape: Any, value: float, *parts: tuple[Any, Any]) -> np.ndarray:
    """Return an array of ``value`` into which ``parts`` (index, values) were written: what a kernel left of it."""
    made = np.full(shape, value)
    for index, values in parts:
        made[index] = values
    return made


def changed(array: np.ndarray, *parts: tuple[Any, Any]) -> np.ndarray:
    made = array.copy()
    for index, values in parts:
        made[index] = values
    return made


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def gelu_of(sums: torch.Tensor) -> torch.Tensor:
    gelu = torch.nn.functional.gelu(sums.double())
    return gelu if sums.dtype == torch.float64 else gelu.to(sums.dtype)


def tiles(n: int, tile: int) -> Any:
    """Return the row and the column of each element's tile, and its row and column inside the tile."""
    row, column = np.indices((n, n))
    return row // tile, column // tile, row % tile, column % tile


V, W, M, S, C = floats(1000), floats(100), floats(24, 36), floats(32, 32), floats(4, 6, 6)
R, T, G = floats(64, 64), floats(48, 48), floats(37, 53)
HALF = (V.astype(np.float16) * np.float16(1.001)).astype(np.float32)
ROWS, Z = np.indices((32, 32))[0], np.zeros
TI, TJ, INNER, ACROSS = tiles(64, 16)
COUNTS = np.arange(1, 41) ** 2
LOGITS, P = 4 * of(6, 9), softmax(4 * of(6, 9))
SCANNED = np.cumsum(np.abs(of(50)))
ONE = [0]
STATE = {"running": 1}
INDEX = np.arange(1000)
lab09 = np.random.default_rng(9)
QUERIES, KEYS, VALUES = (lab09.standard_normal(shape) for shape in ((12, 16), (20, 16), (20, 8)))
SCORES = QUERIES @ KEYS.T / 4
POWERS, ATTENDED = np.exp(SCORES - SCORES.max(1, keepdims=True)), softmax(SCORES) @ VALUES
LSE, DK = np.log(np.exp(SCORES).sum(1)), SCORES.T @ QUERIES / 4
SHARES = (POWERS.sum(1) / (POWERS.sum(1) + 11 * np.exp(-SCORES.max(1))))[:, None]  # 11 lanes with a score of 0
B16 = torch.bfloat16
N16 = torch.from_numpy(of(8, 40)).to(B16) + torch.from_numpy(of(40)).to(B16).double()  # a sum of BF16 numbers
with np.errstate(all="ignore"):
    OVERFLOWED = np.exp(changed(LOGITS, (2, 800.0)))
    OVERFLOWED /= OVERFLOWED.sum(-1, keepdims=True)


@dataclass(frozen=True)
class Planted:
    """One mistake: the lab, the mistake in words, the check with its arguments, and words of the message."""

    lab: str
    mistake: str
    actual: Any
    expected: Any
    says: str
    never: str = "ragged"
    check: Callable[..., Any] = checks.expect_close


def equal(lab: str, mistake: str, actual: Any, expected: Any, says: str, never: str = "ragged") -> Planted:
    return Planted(lab, mistake, actual, expected, says, never, checks.expect_equal)


PLANTED = [
    # Lab 00: units and a roofline
    Planted("lab00", "GB for GiB", 80 * 1e9, 80 * 2**30, "(1000/1024)³ times"),
    Planted("lab00", "milliseconds for seconds", 4.25e-3 * 1000, 4.25e-3, "1000 times"),
    Planted("lab00", "a multiply-add counted once", 512.0, 1024.0, "half of the expected value"),
    Planted("lab00", "bits for bytes", 3200.0, 400.0, "bytes, bits or elements"),
    equal("lab00", "the last index for the length", 41, 42, "one less than expected", "ragged"),
    equal("lab00", "the median of an even count", [3, 5, 1], [1, 3, 5], "turned by one place", "reverse"),
    Planted("lab00", "a multiply-add counted once, the bytes right", (80, 68), (160, 68), "element [0] is half of the",
            "a border"),
    Planted("lab00", "one byte count without the result", (16, 64), (16, 68), "only element [1] is wrong", "a border"),
    Planted("lab00", "ranks for samples", (2, 9), (1.0, 8.0), "by hand", "fractions"),
    equal("lab00", "a verdict the wrong way round", False, True, "wrong value", "off by one"),
    # Lab 01: views, strides, reductions
    Planted("lab01", "the transpose of a square", S.T, S, "the transpose", "ragged"),
    Planted("lab01", "column order read as rows", M.T.reshape(24, 36), M, "column by column", "transpose"),
    Planted("lab01", "rows stored as columns", M.reshape(36, 24).T, M, "stored column by column", "another order"),
    Planted("lab01", "the last two axes of a batch swapped", C.transpose(0, 2, 1), C, "axes 1 and 2 are swapped"),
    Planted("lab01", "a row stride one too long",
            M.reshape(-1)[np.minimum(np.arange(24)[:, None] * 37 + np.arange(36), 863)],
            M, "37 * i on, and a row has 36", "block"),
    Planted("lab01", "the number of rows as row stride", M.reshape(-1)[np.arange(24)[:, None] * 24 + np.arange(36)],
            M, "24 * i on, and a row has 36", "block"),
    Planted("lab01", "stride 0 along rows", np.broadcast_to(M[0], M.shape), M, "what the first one should", "block"),
    Planted("lab01", "every second element", W[np.minimum(np.arange(100) * 2, 99)], W, "element 2 * i",
            "only index 0"),
    Planted("lab01", "a reversed axis", W[::-1], W, "axis 0 is reversed", "another order"),
    Planted("lab01", "softmax along columns", softmax(LOGITS, 0), softmax(LOGITS, 1), "sum to 1 along axis 0",
            "factor"),
    Planted("lab01", "softmax not divided by its sum", np.exp(LOGITS - LOGITS.max(1, keepdims=True)), softmax(LOGITS),
            "the expected lines sum to 1", "constant"),
    Planted("lab01", "a sum for a mean", M.sum(0), M.mean(0), "every element is 24 times", "axis 0 is reversed"),
    Planted("lab01", "a mean over the last axis, times its length", 36 * W[:36], W[:36],
            "36 times the expected one: the length", "ragged"),
    Planted("lab01", "the shape transposed", Z((3, 2)), Z((2, 3)), "axes are reversed", "missing"),
    Planted("lab01", "keepdims forgotten", Z(3), Z((3, 1)), "drop or add the axes of length 1", "reversed"),
    equal("lab01", "strides in the wrong order", (8, 24), (24, 8), "the two items are swapped"),
    equal("lab01", "strides in elements for bytes", 3, 24, "1/8 of the expected value"),
    equal("lab01", "the last byte taken for the first of the next line", 2, 1, "one more", "multiply-add"),
    equal("lab01", "the lines inside a long element forgotten", 6, 12, "half of the expected value", "multiply-add"),
    Planted("lab01", "1e-11 added to a length", np.float64(M) / (1 + 1e-11), np.float64(M),
            "more digits are right than float32 has", "cast"),
    Planted("lab01", "a view in place of a copy", M.T, M, "memory shared", check=checks.expect_copy),
    Planted("lab01", "a copy in place of a view", M.T.copy(), M, "a copy came", check=checks.expect_shares_memory),
    # Lab 02: PCA
    Planted("lab02", "not centred", M + M.mean(0), M, "off by a constant of its own", "factor"),
    Planted("lab02", "centred along rows", M - np.arange(24)[:, None], M, "along axis 1 is off by a constant"),
    Planted("lab02", "eigenvalues ascending", SCANNED, SCANNED[::-1], "axis 0 is reversed", "another order"),
    Planted("lab02", "the sign of components", M * np.where(np.arange(24) % 3, 1, -1)[:, None], M,
            "but for the sign of", "rounding"),
    Planted("lab02", "singular values for variances", np.sqrt(SCANNED), SCANNED, "the square root of", "factor"),
    Planted("lab02", "a variance for a deviation", SCANNED**2, SCANNED, "the square of", "factor"),
    Planted("lab02", "divided by n, not n - 1", M * 23 / 24, M, "every element is 0.958333 times", "ragged"),
    Planted("lab02", "unnormalised rows", M * np.arange(1, 25)[:, None], M, "off by a factor of its own", "constant"),
    Planted("lab02", "a share for its complement", 1 - P, P, "1 minus the expected one", "ragged"),
    # Lab 03: CUDA kernels
    Planted("lab03", "blockIdx missing in the index", filled(1000, 0.0, (slice(128), V[:128])), V, "blockIdx",
            "ragged"),
    Planted("lab03", "blockIdx missing in what is read", V[INDEX % 128], V, "the first 128 of axis 0 repeat",
            "ragged"),
    Planted("lab03", "gridDim missing in a loop over the grid", filled(1024, NAN, (slice(256), 1.0)), np.ones(1024),
            "gridDim", "ragged"),
    Planted("lab03", "the grid rounded down", filled(1000, NAN, (slice(960), V[:960])), V, "ragged part", "blockIdx"),
    Planted("lab03", "the last element left out", changed(V, (-1, 0.0)), V, "only element [999]", "ragged"),
    Planted("lab03", "the stride of a thread is the block", filled(1000, NAN, (INDEX[::4] // 4 * 4, V[::4])), V,
            "NaN", "ragged"),
    Planted("lab03", "only thread 0 right", changed(floats(1000), (0, V[0])), V, "only index 0", "ragged"),
    Planted("lab03", "x and y swapped", T.T, T, "x usually counts columns", "ragged"),
    Planted("lab03", "the pitch is the row",
            T.reshape(-1)[np.minimum(np.arange(48)[:, None] * 50 + np.arange(48), 2303)],
            T, "50 * i on, and a row has 48", "ragged"),
    Planted("lab03", "rows beyond the first block", changed(G, ((slice(32, None),), 0.0)), G,
            "right up to index 31 of axis 0", "right up to index 52"),
    Planted("lab03", "columns beyond the first blocks", changed(G, ((slice(None), slice(48, None)), 0.0)), G,
            "ragged part", "gridDim"),
    Planted("lab03", "a stencil without borders", changed(V, (0, 9.0), (999, 9.0)), V,
            "the first and the last index", "ragged"),
    Planted("lab03", "a rim that no thread writes",
            filled(G.shape, NAN, ((slice(1, -1), slice(1, -1)), G[1:-1, 1:-1])), G, "the border is NaN", "0/0"),
    Planted("lab03", "added to an output full of NaN", filled(1000, NAN), V, "what the memory held before", "ragged"),
    Planted("lab03", "nothing written", Z(1000), V, "every element is 0", "ragged"),
    Planted("lab03", "an int16 index", COUNTS * 997 % 65536, COUNTS * 997, "modulo 2^16", "ragged"),
    equal("lab03", "grid as (y, x)", ((2, 4), 1048), ((4, 2), 1048), "the two items are swapped", "ragged"),
    equal("lab03", "the grid rounded down by one", 7, 8, "is the last one rounded up", "ragged"),
    equal("lab03", "one block to spare", (2, 1), (1, 1), "is the last one rounded up", "multiply-add"),
    equal("lab03", "one sector for an access that straddles two", 1, 2, "one less than expected", "multiply-add"),
    equal("lab03", "idle threads of one block", [[1, 2, 3], [4, 5, 6]], [[2, 3, 1], [5, 6, 4]], "axis 1 is turned",
            "axis 0"),
    # Lab 04: tiles
    Planted("lab04", "a tile read with its indices swapped", R[TI * 16 + ACROSS, TJ * 16 + INNER], R,
            "inside each tile of 16 x 16", "ragged"),
    Planted("lab04", "tiles stored at [j, i]", R[TJ * 16 + INNER, TI * 16 + ACROSS], R, "tile [j, i] belongs",
            "ragged"),
    Planted("lab04", "every block computes tile (0, 0)", R[INNER, ACROSS], R, "what the first one should", "ragged"),
    Planted("lab04", "two tiles of k in place of three", R[:, :32] @ R[:32], R @ R, "the values differ", "ragged"),
    Planted("lab04", "one barrier missing: every 8th column", changed(R, ((slice(None), slice(3, None, 8)), 0.0)),
            R, "3 + 8k of axis 1", "ragged"),
    Planted("lab04", "the accumulator is not set to 0", np.cumsum(R, 1), R, "running sums", "ragged"),
    Planted("lab04", "no halo at one seam", changed(W, (slice(63, 65), 9.0)), W, "only indices 63 and 64", "ragged"),
    Planted("lab04", "no halo at any seam", changed(V, (slice(63, None, 64), 9.0), (slice(64, None, 64), 9.0)), V,
            "other pairs at multiples of 64", "ragged"),
    Planted("lab04", "two neighbours, no seam", changed(W, (slice(61, 63), 9.0)), W, "the values differ", "block"),
    Planted("lab04", "a tile transposed on the way out", R.T, R, "the transpose", "tile"),
    equal("lab04", "one tile in shared memory, not two", (131072, 16384, 1024), (131072, 16384, 2048),
          "half of the expected value", "only element"),
    # Lab 05: Triton
    Planted("lab05", "no mask: the tail of a row", changed(G, ((slice(None), slice(32, None)), 7.0)), G,
            "right up to index 31 of axis 1", "rounding"),
    Planted("lab05", "exp overflows in a row", OVERFLOWED, softmax(LOGITS), "row's own maximum", "ragged"),
    Planted("lab05", "other = 0 in a masked lane of a softmax", softmax(np.pad(LOGITS, ((0, 0), (0, 1))))[:, :-1],
            softmax(LOGITS), "masked lanes may add", "a division may be missing"),
    Planted("lab05", "no correction when the maximum grows", [0.78167, 2.18518], [0.18518, 2.18518],
            "how does its input differ", "a border"),
    Planted("lab05", "added in BF16", gelu_of(N16.to(B16)), gelu_of(N16), "that computes in bfloat16", "by hand",
            partial(checks.expect_close, rtol=1.02 * 2.0**-8, atol=2e-6)),
    Planted("lab05", "another function", np.sin(9 * M), M, "all are off: begin with a step that all share",
            "and compare"),
    Planted("lab05", "no maximum subtracted", np.full(9, np.inf), np.ones(9), "subtract the maximum", "ragged"),
    Planted("lab05", "program_id missing", filled(1000, NAN, (slice(256), V[:256])), V, "program_id",
            "every element"),
    Planted("lab05", "an output that stays unwritten", np.full(9, NAN), np.ones(9), "every element is NaN", "ragged"),
    Planted("lab05", "N as the stride of a padded row", np.arange(60.0)[np.arange(6)[:, None] * 8 + np.arange(8)],
            np.arange(60.0)[np.arange(6)[:, None] * 10 + np.arange(8)], "row i stands at element 10 * i", "block"),
    Planted("lab05", "a mask in place of -inf", np.where(ROWS.T > ROWS, 0.0, S),
            np.where(ROWS.T > ROWS, -np.inf, S), "inf was expected", "ragged"),
    Planted("lab05", "causal with > for >=", changed(S, (np.diag_indices(32), 0.0)), S, "on the diagonal", "ragged"),
    Planted("lab05", "no causal mask", np.where(ROWS.T > ROWS, 5.0, S), S, "above the diagonal", "ragged"),
    Planted("lab05", "an accumulator in half precision",
            HALF, V * np.float32(1.001), "a sum that is kept in it", "ragged"),
    # Lab 06: number formats
    Planted("lab06", "stored as bfloat16", torch.tensor(V).bfloat16().float(), V, "exactly one of bfloat16", "factor"),
    Planted("lab06", "stored as float16", V.astype(np.float16).astype(np.float32), V,
            "exactly one of tf32 or float16", "ragged"),
    Planted("lab06", "the scale left out", V / 127, V, "every element is 0.00787402 times", "ragged"),
    Planted("lab06", "int8 wraps round", ((COUNTS + 128) % 256 - 128).astype(np.int8), COUNTS,
            "an integer of 8 bits overflowed", "ragged"),
    Planted("lab06", "cut in place of rounded", np.floor(np.abs(V) * 9), np.abs(V) * 9, "without its fraction",
            "ragged"),
    Planted("lab06", "the zero point left out", V + 8, V, "every element is +8 away", "ragged"),
    Planted("lab06", "two nibbles swapped", COUNTS[np.arange(40) ^ 1], COUNTS, "another order", "ragged"),
    Planted("lab06", "scales of the wrong group", np.repeat(W[:10], 10), W, "comes 10 times", "ragged"),
    equal("lab06", "a zero loses its sign", [0, 0, 8], [0, 8, 8], "if these are counts", "in a count"),
    equal("lab06", "the columns from left to right", [[7, 2, -3, 1], [-3, 7, 4, -2]], [[7, 3, -4, 1], [-3, 7, 5, -3]],
          "by hand", "stride"),
    equal("lab06", "codes of a block cut off", [[7], [5], [0]], [[7], [4], [1]], "different from index 0", "stride"),
    equal("lab06", "another one of equals", [1.0, -1.0, 2.0, 2.0], [1.0, 1.0, 2.0, -2.0], "is there a tie", "absolute"),
    equal("lab06", "the first two of four", [1, 2, 3, 4], [5, 6, 3, 4], "the input, a start value", "may begin"),
    # Lab 07: ranks
    Planted("lab07", "summed over 8 ranks, not averaged", 8 * V, V, "every element is 8 times", "ragged"),
    Planted("lab07", "one turn of the ring too few", np.roll(S, 1, 0), S, "off by one turn", "ragged"),
    Planted("lab07", "shards concatenated along rows", S.reshape(2, 16, 32).transpose(1, 0, 2).reshape(32, 32), S,
            "another order", "ragged"),
    Planted("lab07", "the first of 4 shards everywhere", W[np.arange(100) % 25], W, "the first 25 of axis 0 repeat",
            "ragged"),
    Planted("lab07", "1/sqrt(d) left out", S * np.sqrt(48), S, "the square root of 48", "ragged"),
    equal("lab07", "ranks count from 1", [1, 2, 3, 0], [0, 1, 2, 3], "turned by one place", "ragged"),
    equal("lab07", "the order of a reduction", ["a", "c", "b"], ["a", "b", "c"], "another order", "ragged"),
    # Lab 08: a serving engine
    Planted("lab08", "an exclusive scan", np.concatenate([[0], SCANNED[:-1]]), SCANNED, "1 place earlier", "ragged"),
    Planted("lab08", "no running sum", np.diff(SCANNED, prepend=0), SCANNED, "running sums of these", "ragged"),
    Planted("lab08", "the position begins at 1", W[1:51], W[:50], "1 place later", "ragged"),
    Planted("lab08", "the cache holds its last page everywhere", np.broadcast_to(M[-1], M.shape), M, "one buffer",
            "ragged"),
    equal("lab08", "a table in place of its snapshot", [ONE, ONE], [[1], [0]], "one and the same list", "ragged"),
    equal("lab08", "one state for all steps", [STATE] * 3, [{"running": k} for k in range(3)],
            "one and the same dict", "ragged"),
    equal("lab08", "last in, first out", [7, 5, 3, 2], [2, 3, 5, 7], "reverse order", "in a grid"),
    equal("lab08", "one page too few", [1, 2], [1, 2, 3], "1 missing at the end", "ragged"),
    equal("lab08", "a float for a count", 3.0, 3, "return an int", "ragged"),
    # Lab 09: attention
    Planted("lab09", "powers not divided by their sum", POWERS @ VALUES, ATTENDED,
            "a division may be missing", "ragged"),
    Planted("lab09", "weights of a key add up to 1", softmax(SCORES, 0), softmax(SCORES),
            "sum to 1 along axis 0", "factor"),
    Planted("lab09", "a query that sees nothing", changed(ATTENDED, (0, NAN)), ATTENDED,
            "0/0, if a mask hides all of a row", "ragged"),
    Planted("lab09", "one maximum for all rows", changed(ATTENDED[:2], (1, NAN)), ATTENDED[:2],
            "another row's maximum was subtracted", "stride"),
    Planted("lab09", "a score of 0 for keys that do not exist", ATTENDED * SHARES, ATTENDED, "masked lanes may add",
            "a division may be missing"),
    Planted("lab09", "a score of 0, all values of a row alike", np.outer(LSE**2, np.ones(8)),
            np.outer(np.arange(1, 13), np.ones(8)), "the values differ by more than rounding", "factor of its own"),
    Planted("lab09", "the last tile of queries is not stored", changed(ATTENDED, (slice(8, None), NAN)), ATTENDED,
            "right up to index 7 of axis 0", "row's maximum"),
    Planted("lab09", "the first tile of queries everywhere", np.tile(ATTENDED[:4], (3, 1)), ATTENDED,
            "the first 4 of axis 0 repeat", "ragged"),
    Planted("lab09", "the sign of the logsumexp", -LSE, LSE, "look for a sign", "ragged"),
    Planted("lab09", "dk without the scale", 4 * DK, DK, "sqrt(16)", "ragged"),
    Planted("lab09", "dv of whole blocks only", changed(VALUES, (slice(16, None), 0.0)), VALUES, "ragged part",
            "only the last index"),
    Planted("lab09", "each chunk divides", ATTENDED / POWERS.sum(1)[:, None], ATTENDED, "off by a factor of its own",
            "ragged"),
    equal("lab09", "numbers for bytes", (22, 24, 22), (44, 48, 44), "every element is 0.5 times", "ragged"),
    equal("lab09", "tiles of queries rounded down", 10, 11, "is the last one rounded up", "ragged"),
    equal("lab09", "the sum of the rows of a tile for its rows", 1536, 384, "4 times the expected value", "ragged"),
]  # fmt: skip


CALLS: list[tuple[str, str, Callable[[], Any], str, str]] = [
    ("lab01", "a multiply-add counted as one operation",
     lambda: checks.expect_work(Work(flops=64.0), flops=128), "a multiply-add is two operations", "size of an element"),
    ("lab01", "bytes of float64 for float32",
     lambda: checks.expect_work(Work(bytes_read=800), bytes_read=400), "the size of an element", "multiply-add"),
    ("lab02", "the whole product at once",
     lambda: checks.expect_peak(np.zeros, 100_000, at_most_bytes=100_000), "work in blocks", "most of it is in Python"),
    ("lab04", "down the columns",
     lambda: checks.expect_cache_misses(
         trace_accesses(lambda a: [a[i, j] for j in range(64) for i in range(64)], np.zeros((64, 64))),
         at_most=600, lines=32), "along its rows or down its columns", "fewer"),
    ("lab08", "bad input is taken",
     lambda: checks.expect_raises(ValueError, abs, -1), "check the input first", "another exception"),
    ("lab08", "a position from the end is taken",
     lambda: checks.expect_raises(IndexError, [7, 5].__getitem__, -1), "__getitem__(-1): no exception", "a int"),
    ("lab08", "no answer where an exception is due",
     lambda: checks.expect_raises(ValueError, [7, 5].reverse), "None was returned", "a NoneType"),
    ("lab08", "the wrong exception",
     lambda: checks.expect_raises(ValueError, {}.__getitem__, 1), "another exception", "no exception"),
    ("lab06", "the wrong dtype",
     lambda: checks.expect_close(V.astype(float), V, dtype="float32"), "allocate the result as float32", "rounding"),
    ("lab09", "all blocks of weights are kept",
     lambda: checks.expect_peak(lambda: [np.zeros(50_000) for _ in range(8)], at_most_bytes=1_000_000),
     "drop references", "most of it is in Python"),
    ("lab06", "an object that wraps the result",
     lambda: checks.expect_close(None, 1.0), "did the function forget its return", "rounding"),
]  # fmt: skip


def message(check: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(CheckError) as caught:
        check(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: f"{one.lab}-{one.mistake}")
def test_planted_mistake(planted: Planted) -> None:
    said = message(planted.check, planted.actual, planted.expected)
    assert planted.says in said, said
    assert planted.never not in said, said
    assert "mlsys_labkit" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("lab", "mistake", "call", "says", "never"), CALLS, ids=lambda one: one if type(one) is str else ""
)
def test_planted_mistake_in_a_count(lab: str, mistake: str, call: Callable[[], Any], says: str, never: str) -> None:
    said = message(call)
    assert says in said, said
    assert never not in said, said


def test_every_lab_has_planted_mistakes() -> None:
    labs = {one.lab for one in PLANTED} | {one[0] for one in CALLS}
    assert labs >= {f"lab0{number}" for number in range(10)}
    assert len(PLANTED) + len(CALLS) >= 60


@pytest.mark.parametrize("shape", [(12,), (200,), (9, 9), (16, 16), (6, 40), (4, 8, 8)])
def test_values_without_a_pattern_get_no_diagnosis(shape: tuple[int, ...]) -> None:
    for seed in range(20):
        generator = np.random.default_rng(seed)
        actual, expected = generator.standard_normal((2, *shape))
        for dtype in (np.float64, np.float32):
            said = message(checks.expect_close, actual.astype(dtype), expected.astype(dtype))
            assert "the values differ by more than rounding" in said, said
        integers = generator.integers(-(10**6), 10**6, (2, *shape))
        assert "must be equal to the last bit" in message(checks.expect_equal, *integers)


def test_a_few_wrong_elements_are_not_called_a_stride_or_a_block() -> None:
    for seed in range(40):
        generator = np.random.default_rng(seed)
        expected = generator.standard_normal((30, 30))
        actual = expected.copy()
        for _ in range(4):
            actual[tuple(generator.integers(0, 30, 2))] += 1
        said = message(checks.expect_close, actual, expected)
        assert not any(word in said for word in ("stride", "block", "ragged", "transpose")), said
