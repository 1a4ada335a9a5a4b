# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lab 09 · FlashAttention: attention without its matrix
#
# Attention compares every query with every key. Written operation by operation, it stores that $N \times N$ matrix in memory and reads it
# again, twice. FlashAttention computes the same numbers and never stores the matrix. In this lab you build it from its one idea, a softmax
# that can be corrected later, up to a kernel on tensor cores.
#
# **You will be able to**
#
# - compute a softmax in one pass over its row, in pieces of any size, and prove that the result is exact;
# - write the forward pass of FlashAttention in Triton, with a causal mask and ragged lengths, and count that it reads no tile in vain;
# - say from the size of the on-chip memory how many bytes attention moves;
# - differentiate attention without its matrix;
# - decode one token with grouped heads, split over many programs, and merge what they found;
# - put a tile on tensor cores in CUDA C++, with asynchronous copies and without bank conflicts.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 205 minutes | ●●●○ | any Linux machine with a C++ compiler; a GPU only for the last, ungraded section | 100 in 11 tasks |
#
# The time includes reading. Take two sittings: Parts 1 to 4 (100 minutes), then Parts 5 to 8 (105 minutes). A summary stands between them.
#
# Needs lab 05 (Triton) and, for Part 7, lab 04 (shared memory, banks). Reads along with
# [chapter 5, *Roofline*](../../course/chapters/05_roofline.md), which counts attention's bytes, and
# [chapter 2, *From neurons to transformers*](../../course/chapters/02_transformers.md), which says what attention is for.
#
# Each task goes the same way: **predict** (not graded: committing to a guess is what teaches), **write**, **check**, then **look**.
# Marks come from right answers and from counted bytes, never from a clock. Stuck? `lk.hint("attention")` in a new cell gives a nudge, and a
# stronger one each time you ask. Hints cost no marks. `lk.progress()` shows how far you are. Long checks, helpers and the code of
# pictures are folded: click the three dots in a cell to read it.

# %% jupyter={"source_hidden": true} tags=["install"]
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab09_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import math

import numpy as np
import plotly.graph_objects as go
import torch
import triton
import triton.language as tl

import mlsys_labkit as lk
import mlsys_labkit.triton_trace  # from here on kernels also run on a machine without a GPU

# %% tags=["parameters"]
smoke = False  # True: smaller pictures, for a quick run through
seed = 0

# %% [markdown]
# Try it: a row of scores arrives in two pieces. Each piece is summed relative to its own largest score, 2 and then 5. By which factor
# must the first sum be corrected? Change it and run the cell again. Part 2 says why.

# %%
factor = 1.0  # change it
first, second = np.array([1.0, 2.0]), np.array([5.0, 3.0])
in_pieces = factor * np.exp(first - 2).sum() + np.exp(second - 5).sum()
at_once = np.exp(np.array([*first, *second]) - 5).sum()
print(f"in pieces {in_pieces:.3f}, at once {at_once:.3f}: " + ("found it" if abs(in_pieces - at_once) < 0.002 else "not yet"))

# %% [markdown]
# ## Part 1 · The chain
#
# One head of attention has a query for each of $M$ positions, and a key and a value for each of $N$; all are rows of $d$ numbers. Each output
# is a mean of the values, weighted by how well the keys fit the query:
#
# $$S = \frac{Q K^\top}{\sqrt d}, \qquad P = \mathrm{softmax}(S) \text{ row by row}, \qquad O = P V.$$
#
# $S$ and $P$ are $M \times N$; $O$ is $M \times d$. As in lab 05, softmax subtracts the largest score of the row before `exp`.

# %% [markdown]
# ### Task 1 · Attention in three lines
# *5 points · 4 minutes · ●○○○*

# %%
lk.predict("attention")


# %% nbgrader={"grade": false, "grade_id": "attention", "locked": false, "schema_version": 3, "solution": true, "task": false}
def attention(q, k, v):
    """softmax(q kᵀ / √d) v, for NumPy arrays q [M, d], k [N, d] and v [N, d]. Returns [M, d].

    Scores may be of any finite size: 5,000 must not overflow.

    >>> attention(np.zeros((1, 4)), np.ones((2, 4)), np.array([[1.0, 2, 3, 4], [3, 4, 5, 6]]))
    array([[2., 3., 4., 5.]])
    """
    ### BEGIN SOLUTION
    scores = q @ k.T / math.sqrt(q.shape[1])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True) @ v
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "attention_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# d = 4, so √d = 2: the two scores are log 3 and 0, and the weights 3/4 and 1/4
q = np.array([[2 * math.log(3.0), 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
k = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
v = np.array([[4.0, 8.0, 0.0, 0.0], [0.0, 0.0, 4.0, 8.0]])
lk.checks.expect_close(attention(q, k, v)[0], [3.0, 6.0, 1.0, 2.0], rtol=1e-9, name="weights 3/4 and 1/4")
lk.checks.expect_close(attention(q, k, v)[1:], [[2.0, 4.0, 2.0, 4.0]] * 2, rtol=1e-9, name="two queries that see no difference")
print("Right: scaled by √d, and one weighted mean of the values for each query.")

# %% nbgrader={"grade": true, "grade_id": "attention_test_range", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
rng = np.random.default_rng(901)
k, v = np.zeros((2, 4)), np.array([[4.0, 0.0, 0.0, 0.0], [0.0, 4.0, 0.0, 0.0]])
k[0, 0] = 1.0
q = np.array([[1e4, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
lk.checks.expect_close(attention(q, k, v), [[4.0, 0.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0]], rtol=1e-9, name="a score of 5,000, and a query that has none")
### BEGIN HIDDEN TESTS
for M, N, d in [(5, 9, 16), (1, 3, 8), (7, 1, 2)]:  # more keys than queries, one query, one key
    q, k, v = 3 * rng.standard_normal((M, d)), 3 * rng.standard_normal((N, d)), rng.standard_normal((N, d))
    exact = torch.nn.functional.scaled_dot_product_attention(*(torch.from_numpy(each)[None] for each in (q, k, v)))[0]
    lk.checks.expect_close(attention(q, k, v), exact, rtol=1e-9, atol=1e-12, name=f"{M} queries, {N} keys, d={d}")
### END HIDDEN TESTS
print("Right: no score overflows.")

# %% [markdown]
# In eager mode these are three kernels. The first reads $Q$ and $K$ and writes $S$. The second reads $S$ and writes $P$. The third
# reads $P$ and $V$ and writes $O$. Count each input of a kernel as read once and each output as written once. No cache can do better.

# %% [markdown]
# ### Task 2 · The bill of the chain
# *5 points · 7 minutes · ●○○○*

# %%
lk.predict("chain_bytes")


# %% nbgrader={"grade": false, "grade_id": "chain_bytes", "locked": false, "schema_version": 3, "solution": true, "task": false}
def chain_bytes(M, N, d, item=2):
    """Bytes that each of the three kernels moves, read and written together: (scores, softmax, output).

    M queries and N keys of d numbers, `item` bytes each; S and P have `item` bytes a number, too.

    >>> chain_bytes(4, 6, 2, item=1)
    (44, 48, 44)
    """
    ### BEGIN SOLUTION
    queries, keys, matrix = M * d * item, N * d * item, M * N * item
    return queries + keys + matrix, 2 * matrix, matrix + keys + queries
    ### END SOLUTION


def least_bytes(M, N, d, item=2):
    """Bytes that any kernel moves: Q, K and V read once, O written once.

    >>> least_bytes(4, 6, 2, item=1)
    40
    """
    ### BEGIN SOLUTION
    return (2 * M * d + 2 * N * d) * item
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "chain_bytes_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(tuple(chain_bytes(4, 6, 2, item=1)), (44, 48, 44), name="4 queries, 6 keys, d = 2: bytes of each kernel")
lk.checks.expect_equal(sum(chain_bytes(4096, 4096, 64)), 136_314_880, name="4,096 positions, d = 64, FP16: bytes of the chain")
lk.checks.expect_equal(least_bytes(4, 6, 2, item=1), 40, name="4 queries, 6 keys, d = 2: least bytes")
lk.checks.expect_equal(least_bytes(4096, 4096, 64), 2_097_152, name="4,096 positions, d = 64, FP16: least bytes")
print("Right: the chain moves 65 times the bytes that it has to.")

# %% nbgrader={"grade": true, "grade_id": "chain_bytes_test_more", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# one query against a cache of 1,000 keys, in FP32
lk.checks.expect_equal(tuple(chain_bytes(1, 1000, 8, item=4)), (36_032, 8_000, 36_032), name="1 query, 1,000 keys: bytes of each kernel")
lk.checks.expect_equal(least_bytes(1, 1000, 8, item=4), 64_064, name="1 query, 1,000 keys: least bytes")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(902)
for _ in range(20):
    M, N, d = (int(each) for each in rng.integers(1, 50, 3))
    for kind in (np.float16, np.float32):
        Q, K, V, S = np.zeros((M, d), kind), np.zeros((N, d), kind), np.zeros((N, d), kind), np.zeros((M, N), kind)
        moved = Q.nbytes + K.nbytes + S.nbytes, S.nbytes + S.nbytes, S.nbytes + V.nbytes + Q.nbytes
        lk.checks.expect_equal(tuple(chain_bytes(M, N, d, S.itemsize)), moved, name=f"M={M} N={N} d={d}, {kind.__name__}")
        lk.checks.expect_equal(least_bytes(M, N, d, S.itemsize), 2 * Q.nbytes + 2 * K.nbytes, name=f"least, M={M} N={N} d={d}")
### END HIDDEN TESTS
print("Right for one query and 1,000 keys in FP32, too.")

# %% jupyter={"source_hidden": true}
with lk.picture("The matrix against everything else, as the sequence grows."):
    for n in (256, 1024, 4096, 16_384):
        chain, least = sum(chain_bytes(n, n, 64)), least_bytes(n, n, 64)
        print(f"N = {n:6,}: chain {chain / 1e6:8,.1f} MB, inputs and output {least / 1e6:5.1f} MB: {chain / least:5.0f} times as many")

# %% [markdown]
# ## Part 2 · A softmax that can be corrected
#
# To fuse the three kernels, a program must use a score as soon as it has it, and throw it away. The obstacle is the softmax: every weight
# $e^{s_j - m} / \sum_i e^{s_i - m}$ needs the largest score $m$ of the whole row, and the sum over the whole row. Both are known
# only at the end.
#
# **Milakov and Gimelshein (2018)** found the way out: use the largest score *so far*, and correct what you have when a larger one comes. Keep three
# things of a row, over the scores seen so far:
#
# $$m = \max_j s_j, \qquad \ell = \sum_j e^{s_j - m}, \qquad o = \sum_j e^{s_j - m}\, v_j .$$
#
# A new block of scores comes, and the largest is now $m' = \max(m, \text{largest of the block})$. **Claim:** multiplying the old $\ell$ and
# $o$ by $e^{m - m'}$ makes them what they would be had $m'$ been known from the start. **Proof:** each old term is
# $e^{s_j - m}$, and $e^{s_j - m} \cdot e^{m - m'} = e^{s_j - m'}$. A factor common to all terms can be taken out of a sum. So
#
# $$\ell' = \ell\, e^{m - m'} + \sum_{j \text{ new}} e^{s_j - m'}, \qquad o' = o\, e^{m - m'} + \sum_{j \text{ new}} e^{s_j - m'}\, v_j .$$
#
# After the last block $o / \ell$ is the row of the output, exactly, in whatever pieces the row came. No exponent is ever above 0, so nothing overflows.
#
# An example in pieces of one, with $d = 1$: scores $\ln 1, \ln 4, \ln 2$ and values $10, 20, 30$.
#
# | after | $m$ | correction $e^{m - m'}$ | $\ell$ | $o$ |
# |---|---|---|---|---|
# | nothing | $-\infty$ | | 0 | 0 |
# | $\ln 1$, 10 | $\ln 1$ | 0 | $1$ | $10$ |
# | $\ln 4$, 20 | $\ln 4$ | $1/4$ | $1/4 + 1 = 5/4$ | $10/4 + 20 = 22.5$ |
# | $\ln 2$, 30 | $\ln 4$ | $1$ | $5/4 + 1/2 = 7/4$ | $22.5 + 30/2 = 37.5$ |
#
# $37.5 / (7/4) = 150/7$, and the softmax says $(1 \cdot 10 + 4 \cdot 20 + 2 \cdot 30) / 7$. The same.

# %% [markdown]
# ### Task 3 · One step of the online softmax
# *8 points · 10 minutes · ●●○○*
#
# A score of $-\infty$ has weight 0: that is how masks are written. A row may begin with a block that is masked altogether, and then
# there is nothing to correct: $-\infty - (-\infty)$ is not a number.

# %%
lk.predict("step")


# %% nbgrader={"grade": false, "grade_id": "step", "locked": false, "schema_version": 3, "solution": true, "task": false}
def step(state, scores, values):
    """The state (m, l, o) of one row after one more block: scores [B], their values [B, d].
    Returns the new (m, l, o).

    m is the largest score so far, l the sum of exp(s - m) and o [d] the sum of exp(s - m) v
    over all scores so far. Before the first block the state is (-inf, 0.0, zeros). While
    all scores were -inf, it stays like that.
    """
    ### BEGIN SOLUTION
    m, l, o = state
    largest = max(m, float(scores.max()))
    if largest == -math.inf:
        return state
    correction = math.exp(m - largest)
    powers = np.exp(scores - largest)
    return largest, correction * l + powers.sum(), correction * o + powers @ values
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab09_walk", "locked": true, "schema_version": 3, "solution": false, "task": false}
def nothing_yet(d):
    """The state of a row before its first block."""
    return -math.inf, 0.0, np.zeros(d)


def expect_state(state, m, l, o, name):
    """Check the three parts of a state."""
    lk.checks.expect_close(state[0], m, rtol=1e-9, atol=1e-12, name=f"{name}: m, the largest so far")
    lk.checks.expect_close(state[1], l, rtol=1e-9, atol=1e-12, name=f"{name}: l, the sum of powers")
    lk.checks.expect_close(state[2], o, rtol=1e-9, atol=1e-12, name=f"{name}: o, the weighted sum of values")


def whole_row(scores, values):
    """The state of a row, from all its scores at once."""
    m = scores.max()
    powers = np.exp(scores - m)
    return m, powers.sum(), powers @ values


# %% nbgrader={"grade": true, "grade_id": "step_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# the example of the text, one score at a time
state = nothing_yet(1)
for score, value, m, l, o in [(1.0, 10.0, 1.0, 1.0, 10.0), (4.0, 20.0, 4.0, 1.25, 22.5), (2.0, 30.0, 4.0, 1.75, 37.5)]:
    state = step(state, np.array([math.log(score)]), np.array([[value]]))
    expect_state(state, math.log(m), l, [o], name=f"after the score log {score:.0f}")
print("Right: both sums are corrected when a larger score comes, and not when a smaller one does.")

# %% nbgrader={"grade": true, "grade_id": "step_test_blocks", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
rng = np.random.default_rng(903)
for what, scores in [("rising", np.arange(12.0)), ("falling", -np.arange(12.0)), ("large", 5000 + np.arange(12.0))]:
    values, state = rng.standard_normal((12, 3)), nothing_yet(3)
    for start in (0, 4, 8):
        state = step(state, scores[start : start + 4], values[start : start + 4])
    expect_state(state, *whole_row(scores, values), name=f"{what} scores in blocks of 4")
### BEGIN HIDDEN TESTS
for size in (1, 5, 7, 30):  # one at a time, a ragged last block, all at once
    scores, values, state = 4 * rng.standard_normal(30), rng.standard_normal((30, 6)), nothing_yet(6)
    for start in range(0, 30, size):
        state = step(state, scores[start : start + size], values[start : start + size])
    expect_state(state, *whole_row(scores, values), name=f"random scores in blocks of {size}")
### END HIDDEN TESTS
print("Right: the state does not depend on the pieces.")

# %% nbgrader={"grade": true, "grade_id": "step_test_masked", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
masked, values = np.full(2, -math.inf), np.array([[1.0], [2.0]])
state = step(nothing_yet(1), masked, values)
expect_state(state, -math.inf, 0.0, [0.0], name="a masked block before everything")
state = step(state, np.array([0.0, -math.inf]), values)
expect_state(state, 0.0, 1.0, [1.0], name="a block that is masked in part")
expect_state(step(state, masked, values), 0.0, 1.0, [1.0], name="a masked block at the end")
expect_state(step(state, np.array([-math.inf, 0.0]), values), 0.0, 2.0, [3.0], name="a block whose first score is masked")
print("Right: masked blocks change nothing.")

# %% [markdown]
# What holds for a block holds for a whole part of the row. Cut a row in two, let two programs make a state of each half, and one correction on
# either side joins them: $m = \max(m_a, m_b)$, and each half is multiplied by $e^{m_a - m}$ or $e^{m_b - m}$. The result does not depend on how you cut
# and in which order you join: merging is **associative** and **commutative**, as adding is, and an empty part changes nothing. So a row can
# be split over as many programs as you like, which is what task 10 does.

# %% [markdown]
# ### Task 4 · Merge two parts
# *8 points · 10 minutes · ●●○○*
#
# For many rows at once. A part may be empty in some rows: there $m = -\infty$, $\ell = 0$, $o = 0$, in one part or in both. NumPy warns of
# $-\infty - (-\infty)$ ("invalid value encountered in subtract") even where `np.where` drops the result: choose what to subtract first, and it is silent.

# %%
lk.predict("merge")


# %% nbgrader={"grade": false, "grade_id": "merge", "locked": false, "schema_version": 3, "solution": true, "task": false}
def merge(a, b):
    """The state (m, l, o) of R rows, from the states a and b of two parts of them: m [R], l
    [R], o [R, d] each.

    A part that has seen nothing of a row has m = -inf, l = 0 and o = 0 there. If neither
    has, then neither has the result.
    """
    ### BEGIN SOLUTION
    largest = np.maximum(a[0], b[0])
    finite = np.where(np.isneginf(largest), 0.0, largest)  # where both parts are empty there is nothing to correct
    of_a, of_b = np.exp(a[0] - finite), np.exp(b[0] - finite)
    return largest, of_a * a[1] + of_b * b[1], of_a[:, None] * a[2] + of_b[:, None] * b[2]
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab09_parts", "locked": true, "schema_version": 3, "solution": false, "task": false}
def part(scores, values):
    """The state of R rows over these scores [R, B], with values [B, d] that all rows share."""
    m = scores.max(axis=1)
    powers = np.exp(scores - m[:, None])
    return m, powers.sum(axis=1), powers @ values


def fresh(state):
    """A copy of a state, for an answer that works in place."""
    return tuple(np.copy(each) for each in state)


def empty_part(rows, d):
    """The state of rows of which nothing has been seen."""
    return np.full(rows, -math.inf), np.zeros(rows), np.zeros((rows, d))


# %% nbgrader={"grade": true, "grade_id": "merge_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# row 0: log 4 meets log 1; row 1: log 2 meets log 8
a = np.log([4.0, 2.0]), np.array([1.0, 1.0]), np.array([[20.0], [1.0]])
b = np.log([1.0, 8.0]), np.array([1.0, 1.5]), np.array([[10.0], [6.0]])
for first, second, what in [(a, b, "a with b"), (b, a, "b with a")]:
    expect_state(merge(fresh(first), fresh(second)), np.log([4.0, 8.0]), [1.25, 1.75], [[22.5], [6.25]], name=what)
print("Right: each part is multiplied by its own correction.")

# %% nbgrader={"grade": true, "grade_id": "merge_test_order", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
rng = np.random.default_rng(904)
scores, values = 3 * rng.standard_normal((5, 24)) + 2000, rng.standard_normal((24, 4))
one, two, three = (part(scores[:, at : at + 8], values[at : at + 8]) for at in (0, 8, 16))
expect_state(merge(merge(fresh(one), fresh(two)), fresh(three)), *part(scores, values), name="(1 with 2) with 3")
expect_state(merge(fresh(one), merge(fresh(two), fresh(three))), *part(scores, values), name="1 with (2 with 3)")
### BEGIN HIDDEN TESTS
for rows, d, cut in [(1, 1, 1), (7, 3, 20), (3, 16, 11)]:
    scores, values = 9 * rng.standard_normal((rows, 24)) - 700, rng.standard_normal((24, d))
    joined = merge(part(scores[:, :cut], values[:cut]), part(scores[:, cut:], values[cut:]))
    expect_state(joined, *part(scores, values), name=f"{rows} rows cut at {cut} of 24")
### END HIDDEN TESTS
print("Right: merging is associative.")

# %% nbgrader={"grade": true, "grade_id": "merge_test_empty", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
some, none = part(np.log([[1.0, 4.0], [2.0, 2.0]]), np.array([[1.0], [3.0]])), empty_part(2, 1)
expect_state(merge(fresh(some), fresh(none)), *some, name="with an empty part")
expect_state(merge(fresh(none), fresh(some)), *some, name="an empty part with it")
expect_state(merge(fresh(none), fresh(none)), *none, name="two empty parts")
half = np.array([0.0, -math.inf]), np.array([1.0, 0.0]), np.array([[5.0], [0.0]])
expect_state(merge(fresh(half), fresh(none)), *half, name="row 1 is empty in both parts, row 0 in one")
print("Right: an empty part changes nothing.")

# %% [markdown]
# ## Part 3 · The kernel
#
# **Dao et al. (2022)** made FlashAttention of this: a program owns a tile of `BM` queries and keeps them on the chip, with $m$ and $\ell$ of each row
# and the `BM` × $d$ sums $o$. It walks over the keys and values in tiles of `BN`, and for each tile does one `step` for all its rows. Scores and
# powers exist as one tile of `BM` × `BN`, in registers, for a moment. (The order of the loops is that of FlashAttention-2, Dao 2023: queries
# outside, keys inside.)
#
#              keys  →
#            ┌────┬────┬────┬────┐
#     tile   │ S₀ │ S₁ │ S₂ │ S₃ │    program i:  for each tile of keys:
#     i of   └────┴────┴────┴────┘                   S = scale · Q_i K_jᵀ        tl.dot
#     queries      one program,                      correct m, l, o             exp, max, sum
#              from left to right                    o += exp(S − m) V_j         tl.dot
#                                                store o / l
#
# The next cell is what the tests use, as in lab 05: run under the tracer, complain if anything was found.


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab09_helpers", "locked": true, "schema_version": 3, "solution": false, "task": false}
def clean(kernel, grid, *args, **meta):
    """Run `kernel[grid](*args, **meta)` under the tracer; no finding may come up. Returns the trace."""
    trace = lk.triton_trace.trace(kernel)[grid](*args, **meta)
    lk.checks.expect_no_findings(trace)
    return trace


def unwritten(*shape, dtype=torch.float32):
    """A tensor full of NaN, so that an element which no program stores gives itself away."""
    return torch.full(shape, float("nan"), dtype=dtype)


def heads(generator, M, N, d, spread=1.0):
    """Random q [M, d], k [N, d], v [N, d] in FP16; a larger spread makes the scores differ more."""
    q, k, v = (torch.randn(rows, d, generator=generator) for rows in (M, N, N))
    return (spread * q).half(), (spread * k).half(), v.half()


def exactly(q, k, v, scale, mask=None):
    """Attention in float64, with its matrix; `mask` [M, N] is True where a query may look."""
    scores = scale * (q.double() @ k.double().T)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, 1) @ v.double()


# Weights are rounded to FP16 before they are multiplied by values: 2**-11 each, values up to 4 or so.
ROUNDING = 4e-3

# %% [markdown]
# ### Task 5 · The forward pass, tile by tile
# *13 points · 25 minutes · ●●●○*
#
# The loads and the loop are given. Yours is what a tile does (scores, maximum, correction, sums), and after the loop the store of $o / \ell$.
# `tl.dot` takes FP16 tiles and returns FP32; `tl.trans(tile)` transposes. Convert the powers back with `.to(values.dtype)` before the second
# product. A variable that the loop carries must keep its type and shape.

# %%
lk.predict("flash")


# %% nbgrader={"grade": false, "grade_id": "flash", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def flash(q, k, v, out, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """out = softmax(scale q kᵀ) v, without mask: k and v [N, D], q and out a tile of BM
    rows for each program, all contiguous.

    q, k, v are fp16, out is fp32 or fp16; sums are in fp32. BN divides N. Program i takes
    the rows from i * BM on.
    """
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.arange(0, D)
    queries = tl.load(q + rows[:, None] * D + columns[None, :])
    m = tl.full([BM], -float("inf"), dtype=tl.float32)  # the largest score of each row so far
    l = tl.zeros([BM], dtype=tl.float32)  # the sum of exp(s - m)
    o = tl.zeros([BM, D], dtype=tl.float32)  # the sum of exp(s - m) v
    for start in range(0, N, BN):
        at = (start + tl.arange(0, BN))[:, None] * D + columns[None, :]
        keys = tl.load(k + at)
        values = tl.load(v + at)
        ### BEGIN SOLUTION
        scores = scale * tl.dot(queries, tl.trans(keys))
        largest = tl.maximum(m, tl.max(scores, axis=1))
        correction = tl.exp(m - largest)
        powers = tl.exp(scores - largest[:, None])
        l = l * correction + tl.sum(powers, axis=1)
        o = o * correction[:, None] + tl.dot(powers.to(values.dtype), values)
        m = largest
    tl.store(out + rows[:, None] * D + columns[None, :], o / l[:, None])
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "flash_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 16 keys with score log 4 and value 5, 16 with score 0 and value 10: (4 * 5 + 1 * 10) / 5 = 6, whichever tile comes first
for tile in (0, 1):
    q, k, out = torch.zeros(16, 16).half(), torch.zeros(32, 16).half(), unwritten(16, 16)
    q[:, 0], k[16 * tile : 16 * tile + 16, 0] = math.log(4.0), 1.0
    v = (10 - 5 * k[:, :1]).expand(32, 16).contiguous()
    clean(flash, (1,), q, k, v, out, 32, 1.0, D=16, BM=16, BN=16)
    lk.checks.expect_close(out, torch.full((16, 16), 6.0), rtol=2e-3, name=f"the larger scores in tile {tile}")
generator = torch.Generator().manual_seed(905)
q, k, v = heads(generator, 32, 64, 16, spread=2.0)
out = unwritten(32, 16)
clean(flash, (2,), q, k, v, out, 64, 0.25, D=16, BM=16, BN=32)
lk.checks.expect_close(out, exactly(q, k, v, 0.25), atol=ROUNDING, name="32 queries, 64 keys, d = 16, tiles 16 x 32")
print("Right: the weighted means, whichever tile has the larger scores. Whether large scores overflow is the next question.")

# %% nbgrader={"grade": true, "grade_id": "flash_test_more", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# scores of 512, whose exp is infinite in FP32, and then scores of 0: the running maximum must not fall
q, k, v = torch.full((16, 16), 8.0).half(), torch.full((32, 16), 4.0).half(), torch.ones(32, 16).half()
k[16:] = 0.0
out = unwritten(16, 16)
clean(flash, (1,), q, k, v, out, 32, 1.0, D=16, BM=16, BN=16)
lk.checks.expect_close(out, torch.ones(16, 16), rtol=2e-3, name="scores of 512, then scores of 0")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(915)
for M, N, d, bm, bn, spread in [(48, 32, 32, 16, 32, 1.0), (32, 96, 16, 32, 16, 3.0), (16, 16, 64, 16, 16, 0.5)]:
    q, k, v = heads(generator, M, N, d, spread)
    for dtype in (torch.float32, torch.float16):
        out = unwritten(M, d, dtype=dtype)
        clean(flash, (M // bm,), q, k, v, out, N, 0.2, D=d, BM=bm, BN=bn)
        lk.checks.expect_close(out, exactly(q, k, v, 0.2), atol=ROUNDING, name=f"{M} queries, {N} keys, d={d}, tiles {bm} x {bn}")
### END HIDDEN TESTS
print("Right: large scores do not overflow.")

# %% nbgrader={"grade": true, "grade_id": "flash_test_bytes", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 4 tiles of 16 queries: each query is loaded once, each key and value once for each tile of queries
generator = torch.Generator().manual_seed(925)
q, k, v = heads(generator, 64, 64, 32)
out = unwritten(64, 32)
trace = clean(flash, (4,), q, k, v, out, 64, 0.2, D=32, BM=16, BN=32)
lk.checks.expect_close(out, exactly(q, k, v, 0.2), atol=ROUNDING, name="64 queries, 64 keys, d = 32")
lk.checks.expect_traffic(trace, "q", loaded_bytes=64 * 32 * 2)
lk.checks.expect_traffic(trace, "k", loaded_bytes=4 * 64 * 32 * 2)
lk.checks.expect_traffic(trace, "v", loaded_bytes=4 * 64 * 32 * 2)
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=64 * 32 * 4)
print("Right: no byte of the matrix in memory, and out is written once.")

# %% jupyter={"source_hidden": true}
with lk.picture("The chain and your kernel at d = 64, in tiles of 128 queries. The chain's bytes grow with N², and so do yours, by a smaller factor: part 4 says which."):
    generator = torch.Generator().manual_seed(seed)
    for n in (128, 256) if smoke else (128, 256, 512):
        q, k, v = heads(generator, n, n, 64)
        work = lk.triton_trace.trace(flash)[(n // 128,)](q, k, v, torch.empty(n, 64).half(), n, 0.125, D=64, BM=128, BN=64).work
        chain = sum(chain_bytes(n, n, 64))
        print(f"N = {n:4}: chain {chain / 1e3:8,.0f} kB, yours {work.bytes_moved / 1e3:6,.0f} kB, {work.intensity:5.1f} FLOP/B")

# %% [markdown]
# ### Half of the matrix
#
# A language model looks back only: query $i$ may use the keys $j \le i$. A score that it may not use becomes $-\infty$ **before** the maximum
# and the exponential; its power is then $e^{-\infty} = 0$. Tiles that lie above the diagonal altogether contribute nothing: do not load them.
# The picture shows 100 positions in tiles of 32 × 16. The last tile of queries is ragged, and so is the last tile of keys.

# %% jupyter={"source_hidden": true}
at = np.arange(100)
N, BM, BN = 100, 32, 16
starts, ends = at // BM * BM, np.minimum((at // BM + 1) * BM, N)
kinds = np.zeros((N, N))
for row in range(N):
    last = -(-ends[row] // BN) * BN  # where the tiles that the row's program needs end
    kinds[row, :last] = 1
    kinds[row, : row + 1] = 2
scale = [[0, "rgba(128,128,128,0.45)"], [0.5, "#cc5a00"], [1, "#2a7fbf"]]
figure = go.Figure(go.Heatmap(z=kinds, colorscale=scale, showscale=False, hoverinfo="skip"))
for edge in range(BM, N, BM):
    figure.add_hline(y=edge - 0.5, line={"color": "#7a7a7a", "width": 1})
for edge in range(BN, N, BN):
    figure.add_vline(x=edge - 0.5, line={"color": "#7a7a7a", "width": 1})
figure.update_yaxes(autorange="reversed", scaleanchor="x", title="query")
figure.update_xaxes(title="key", constrain="domain")
figure.update_layout(height=380, margin={"l": 10, "r": 10, "t": 10, "b": 10})
lk.show(figure, summary="Blue: scores that count. Orange: loaded and masked, in tiles that the diagonal crosses. Grey: tiles that no program loads.")

# %% [markdown]
# Blue scores count. Orange ones lie in a tile that the diagonal crosses: computed, then masked. Grey tiles are never loaded.

# %% [markdown]
# ### Task 6 · Causal, and of any length
# *13 points · 20 minutes · ●●●○*
#
# Start from your `flash`. Three things are new. `N` need not be a multiple of anything, so loads and stores take masks. The loop ends where
# the tile of queries needs no more keys. And the kernel also stores the **logsumexp** of each row, $L_i = m_i + \ln \ell_i$: one number for each query, from
# which part 5 will rebuild any weight, $P_{ij} = e^{S_{ij} - L_i}$.

# %%
lk.predict("flash_causal")


# %% nbgrader={"grade": false, "grade_id": "flash_causal", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def flash_causal(q, k, v, out, lse, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """out = softmax(scale q kᵀ) v where query i sees the keys j ≤ i; q, k, v, out [N, D],
    contiguous, for any N ≥ 1.

    q, k, v are fp16, out is fp32 or fp16; sums are in fp32. lse [N] fp32 gets the logsumexp
    of each row of scaled scores. Program i takes the rows from i * BM on. It loads no tile
    of BN keys that none of its rows may see.
    """
    first = tl.program_id(0) * BM
    rows = first + tl.arange(0, BM)
    columns = tl.arange(0, D)
    mine = rows[:, None] * D + columns[None, :]
    m = tl.full([BM], -float("inf"), dtype=tl.float32)
    l = tl.zeros([BM], dtype=tl.float32)
    o = tl.zeros([BM, D], dtype=tl.float32)
    ### BEGIN SOLUTION
    queries = tl.load(q + mine, mask=rows[:, None] < N, other=0.0)
    for start in range(0, tl.minimum(N, first + BM), BN):
        at = start + tl.arange(0, BN)
        inside = at[:, None] < N
        keys = tl.load(k + at[:, None] * D + columns[None, :], mask=inside, other=0.0)
        values = tl.load(v + at[:, None] * D + columns[None, :], mask=inside, other=0.0)
        scores = scale * tl.dot(queries, tl.trans(keys))
        scores = tl.where(at[None, :] <= rows[:, None], scores, -float("inf"))
        largest = tl.maximum(m, tl.max(scores, axis=1))
        correction = tl.exp(m - largest)
        powers = tl.exp(scores - largest[:, None])
        l = l * correction + tl.sum(powers, axis=1)
        o = o * correction[:, None] + tl.dot(powers.to(values.dtype), values)
        m = largest
    tl.store(out + mine, o / l[:, None], mask=rows[:, None] < N)
    tl.store(lse + rows, m + tl.log(l), mask=rows < N)
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab09_causal", "locked": true, "schema_version": 3, "solution": false, "task": false}
def causal(q, k, v, out, lse, scale, bm, bn):
    """Launch flash_causal cleanly. Returns the trace."""
    N, D = q.shape
    return clean(flash_causal, (triton.cdiv(N, bm),), q, k, v, out, lse, N, scale, D=D, BM=bm, BN=bn)


def looking_back(N):
    """True where query i may see key j."""
    return torch.ones(N, N).tril().bool()


def exact_lse(q, k, scale, mask):
    """Logsumexp of each row of scores, in float64."""
    return (scale * (q.double() @ k.double().T)).masked_fill(~mask, -math.inf).logsumexp(1)


# %% nbgrader={"grade": true, "grade_id": "flash_causal_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# every score is -20,000, and that of the last key is 0: query i weighs keys 0 to i equally, and only the last one sees the last key
q, k, v = torch.zeros(32, 16).half(), torch.zeros(32, 16).half(), torch.arange(32.0)[:, None].expand(32, 16).half()
q[:, 0], k[:31, 0] = 100.0, -200.0
out, expected = unwritten(32, 16), v.float() / 2
expected[31] = 31.0
causal(q, k, v.contiguous(), out, unwritten(32), 1.0, 16, 16)
lk.checks.expect_close(out, expected, atol=ROUNDING, name="every score is -20,000, and one that a query may not use is -inf, before the maximum is taken")
generator = torch.Generator().manual_seed(906)
q, k, v = heads(generator, 64, 64, 16, spread=2.0)
for bm, bn in [(16, 16), (32, 16), (16, 32)]:  # square tiles, and tiles that the diagonal crosses twice or in the middle
    out = unwritten(64, 16)
    causal(q, k, v, out, unwritten(64), 0.25, bm, bn)
    lk.checks.expect_close(out[0], v[0], atol=ROUNDING, name=f"the first query, which sees the first key only, tiles {bm} x {bn}")
    lk.checks.expect_close(out, exactly(q, k, v, 0.25, looking_back(64)), atol=ROUNDING, name=f"64 positions, tiles {bm} x {bn}")
print("Right: each query sees itself and what comes before.")

# %% nbgrader={"grade": true, "grade_id": "flash_causal_test_ragged", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(916)
for N in (50, 7):  # ragged last tiles; less than one tile
    q, k, v = heads(generator, N, N, 16)
    out = unwritten(N, 16)
    causal(q, k, v, out, unwritten(N), 0.25, 16, 16)
    lk.checks.expect_close(out, exactly(q, k, v, 0.25, looking_back(N)), atol=ROUNDING, name=f"{N} positions in tiles of 16")
### BEGIN HIDDEN TESTS
for N, d, bm, bn in [(1, 16, 16, 16), (33, 32, 32, 16), (65, 16, 16, 32), (47, 16, 32, 32), (100, 16, 32, 16)]:
    q, k, v = heads(generator, N, N, d, spread=1.5)
    out, lse = unwritten(N, d, dtype=torch.float16), unwritten(N)
    causal(q, k, v, out, lse, 0.3, bm, bn)
    lk.checks.expect_close(out, exactly(q, k, v, 0.3, looking_back(N)), atol=ROUNDING, name=f"{N} positions, d={d}, tiles {bm} x {bn}")
### END HIDDEN TESTS
print("Right: a ragged last tile, and less than one tile.")

# %% nbgrader={"grade": true, "grade_id": "flash_causal_test_lse", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(926)
q, k, v = heads(generator, 40, 40, 16, spread=2.0)
lse = unwritten(40)
causal(q, k, v, unwritten(40, 16), lse, 0.25, 16, 16)
lk.checks.expect_close(lse, exact_lse(q, k, 0.25, looking_back(40)), rtol=1e-3, atol=2e-3, name="logsumexp of 40 rows")
print("Right: m + log l of the scaled scores.")

# %% nbgrader={"grade": true, "grade_id": "flash_causal_test_bytes", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 100 positions, as in the picture: the four tiles of 32 queries need 32, 64, 96 and 100 keys, in tiles of 16
generator = torch.Generator().manual_seed(936)
q, k, v = heads(generator, 100, 100, 16)
out = unwritten(100, 16)
trace = causal(q, k, v, out, unwritten(100), 0.25, 32, 16)
lk.checks.expect_close(out, exactly(q, k, v, 0.25, looking_back(100)), atol=ROUNDING, name="100 positions, tiles 32 x 16")
needed = (32 + 64 + 96 + 100) * 16 * 2
for array in ("k", "v"):
    lk.checks.expect_traffic(trace, array, loaded_bytes=needed)
lk.checks.expect_traffic(trace, "q", loaded_bytes=100 * 16 * 2)
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=100 * 16 * 4)
# 40 positions in tiles of 16 x 32: 16, 32 and 40 keys are needed, and tiles of 32 make 32, 32 and 40 of them
q, k, v = heads(generator, 40, 40, 16)
trace = causal(q, k, v, unwritten(40, 16), unwritten(40), 0.25, 16, 32)
lk.checks.expect_traffic(trace, "k", at_least_loaded_bytes=(16 + 32 + 40) * 16 * 2, at_most_loaded_bytes=(32 + 32 + 40) * 16 * 2)
print("Right: no tile above the diagonal is loaded.")

# %% jupyter={"source_hidden": true}
with lk.picture("Bytes of keys and values, all tiles against those below the diagonal: towards one half as there are more tiles."):
    generator = torch.Generator().manual_seed(seed)
    for n in (64, 128) if smoke else (64, 128, 256):
        q, k, v = heads(generator, n, n, 32)
        trace = lk.triton_trace.trace(flash_causal)[(n // 32,)](q, k, v, torch.empty(n, 32), torch.empty(n), n, 0.2, D=32, BM=32, BN=32)
        loaded, everything = trace.arrays["k"].loaded_bytes, n // 32 * n * 32 * 2
        print(f"N = {n:3}: {loaded / 1e3:6.1f} kB of keys loaded, {everything / 1e3:6.1f} kB without skipping: {loaded / everything:.0%}")

# %% [markdown]
# ## Part 4 · How many bytes, and why no fewer
#
# On-chip memory holds four tiles of $B$ rows of $d$ numbers: one of $Q$, of $K$, of $V$ and of $O$. So $C$ numbers of memory allow
# $B = C / 4d$ rows. $Q$ and $O$ move once. $K$ and $V$ pass by once for every tile of queries, $N / B$ times:
#
# $$2Nd + 2Nd \cdot \frac{N}{B} \;=\; 2Nd + \frac{8 N^2 d^2}{C} \quad\text{numbers, or}\quad \Theta\!\left(\frac{N^2 d^2}{C}\right).$$
#
# This is Theorem 2 of Dao et al. (2022), who write $M$ for $C$, for $d \le C \le Nd$; the chain moves $\Theta(Nd + N^2)$. Their Proposition 3 says that no exact
# algorithm moves asymptotically less for every $C$ in this range. The $N^2$ has not gone: it is divided by $C / d^2$. An A100 has 192 KB on each SM (their section 2.1),
# and $d$ is 64 or 128.

# %% [markdown]
# ### Task 7 · Bytes from the size of the on-chip memory
# *7 points · 10 minutes · ●●○○*

# %%
lk.predict("flash_bytes")


# %% nbgrader={"grade": false, "grade_id": "flash_bytes", "locked": false, "schema_version": 3, "solution": true, "task": false}
def tile_rows(sram, d, item=2):
    """The most rows B such that four tiles of B rows of d numbers, `item` bytes each, fit
    into `sram` bytes.

    Raises ValueError if not even one row fits.

    >>> tile_rows(196_608, 64)
    384
    """
    ### BEGIN SOLUTION
    rows = sram // (4 * d * item)
    if rows < 1:
        raise ValueError(f"{sram} bytes do not hold four rows of {d} numbers")
    return rows
    ### END SOLUTION


def flash_bytes(N, d, sram, item=2):
    """Bytes that attention over N positions moves in tiles of `tile_rows` rows: Q and O
    once, K and V once for each tile of queries.

    The last tile of queries may be smaller than the others, and needs all keys as they do.

    >>> flash_bytes(4096, 64, 196_608)
    12582912
    """
    ### BEGIN SOLUTION
    tiles = -(-N // tile_rows(sram, d, item))
    return (2 * N * d + tiles * 2 * N * d) * item
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "flash_bytes_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(tile_rows(196_608, 64), 384, name="rows in 192 KiB, d = 64, FP16")
lk.checks.expect_equal(tile_rows(1000, 8, item=4), 7, name="rows in 1,000 bytes, d = 8, FP32")
lk.checks.expect_equal(flash_bytes(4096, 64, 196_608), 12_582_912, name="4,096 positions, d = 64: 11 tiles of queries")
lk.checks.expect_equal(flash_bytes(4096, 64, 2**40), 4 * 4096 * 64 * 2, name="memory for everything: each byte once")
lk.checks.expect_equal(flash_bytes(20, 8, 1000, item=4), 4 * (2 * 20 * 8 + 3 * 2 * 20 * 8), name="20 positions in tiles of 7, FP32")
lk.checks.expect_equal(flash_bytes(64, 8, 1024), 2 * (2 * 64 * 8 + 4 * 2 * 64 * 8), name="64 positions in 4 full tiles of 16")
print("Right: keys and values pass by once for each tile of queries.")

# %% nbgrader={"grade": true, "grade_id": "flash_bytes_test_more", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(flash_bytes(1, 4, 64), 2 * (2 * 4 + 2 * 4), name="one position")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(907)
for _ in range(20):
    N, d, item = int(rng.integers(1, 60)), int(rng.integers(1, 20)), int(rng.choice([1, 2, 4]))
    sram = int(rng.integers(4 * d * item, 100 * d * item))
    most = max(rows for rows in range(1, sram + 1) if 4 * rows * d * item <= sram)
    moved = 0
    for start in range(0, N, most):  # tile after tile
        moved += 2 * (min(N, start + most) - start) * d * item + 2 * N * d * item
    lk.checks.expect_equal(tile_rows(sram, d, item), most, name=f"rows in {sram} bytes, d={d}, {item} bytes each")
    lk.checks.expect_equal(flash_bytes(N, d, sram, item), moved, name=f"bytes for N={N} d={d}, {sram} bytes of memory, {item} each")
### END HIDDEN TESTS
print("Right for other sizes as well.")

# %% nbgrader={"grade": true, "grade_id": "flash_bytes_test_small", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_raises(ValueError, tile_rows, 63, 8)
lk.checks.expect_equal(tile_rows(64, 8), 1, name="rows in 64 bytes, d = 8, FP16")
print("Right: too little memory is an error, and one row is enough.")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "4,096 positions, FP16. Each doubling of the on-chip memory about halves the bytes, until one tile holds all queries (d = 64: at 2 MiB): then Q, K, V and O "
    "move once each. Where a line crosses its dashed one, tiles begin to pay: at about 4d² bytes."
):
    figure = go.Figure()
    sizes = [2**power for power in range(11, 22)]
    for d, colour in ((64, "#2a7fbf"), (128, "#cc5a00")):
        fitting = [size for size in sizes if size >= 8 * d]
        moved = [flash_bytes(4096, d, size) / 1e6 for size in fitting]
        figure.add_scatter(x=[size / 1024 for size in fitting], y=moved, mode="lines+markers", name=f"tiles, d = {d}", line={"color": colour})
        chain = sum(chain_bytes(4096, 4096, d)) / 1e6
        figure.add_scatter(x=[2, 2048], y=[chain] * 2, mode="lines", name=f"chain, d = {d}", line={"color": colour, "dash": "dash"})
    figure.add_vline(x=192, line={"color": "#7a7a7a", "dash": "dot"})
    # On a logarithmic axis an annotation takes the exponent, and add_vline would give it 192.
    figure.add_annotation(x=math.log10(192), y=1, yref="y domain", yanchor="bottom", showarrow=False, text="an SM of an A100")
    figure.update_xaxes(type="log", title="on-chip memory, KiB", tickvals=[2, 8, 32, 128, 512, 2048])
    figure.update_yaxes(type="log", title="bytes moved, MB")
    figure.update_layout(height=380)
    lk.show(figure, summary="Bytes moved against on-chip memory, both on logarithmic axes: lines that fall by about half for each doubling.")
    generator = torch.Generator().manual_seed(seed)
    q, k, v = heads(generator, 256, 256, 64)
    work = lk.triton_trace.trace(flash)[(4,)](q, k, v, torch.empty(256, 64).half(), 256, 0.125, D=64, BM=64, BN=64).work
    print(f"your kernel, tiles of 64 queries: {work.bytes_moved:,.0f} bytes counted, {flash_bytes(256, 64, 4 * 64 * 64 * 2):,} by your formula")

# %% [markdown]
# ### Between the sittings
#
# You have the forward pass: one pass over the row (task 3), parts that merge (task 4), a program that owns a tile of queries and corrects its
# sums (task 5), no tile above the diagonal (task 6), and the bytes, $8N^2d^2/C$ numbers instead of $4N^2$ (task 7). What follows: its
# gradient, its use in serving, the tensor cores, and at the end a language model that reads with your kernel. If you stop here, save; another day run
# the notebook from the top and go on.
#
# ## Part 5 · Backward, and a matrix that comes back
#
# To differentiate softmax one needs its weights $P$, and nobody stored them. FlashAttention-2 stores $L$, one number for each row, and computes each
# tile of $P$ a second time, $P_{ij} = e^{S_{ij} - L_i}$: no maximum, no sum, no second pass. Given $\mathrm{d}O$, the gradient of the loss by the output:
#
# - $O = PV$, so $\mathrm{d}V = P^\top \mathrm{d}O$ and $\mathrm{d}P = \mathrm{d}O\, V^\top$.
# - Softmax, row by row: $\mathrm{d}S_{ij} = P_{ij}\,(\mathrm{d}P_{ij} - \delta_i)$ with $\delta_i = \sum_j P_{ij}\,\mathrm{d}P_{ij}$ (the papers write $D_i$).
# - $\delta_i$ seems to need a whole row of $P$. It does not: $\delta_i = \sum_j P_{ij} \sum_c \mathrm{d}O_{ic} V_{jc} = \sum_c \mathrm{d}O_{ic} \sum_j P_{ij} V_{jc} = \sum_c \mathrm{d}O_{ic} O_{ic}$, the
#   row sum of $\mathrm{d}O \circ O$.
# - $S = \mathrm{scale} \cdot Q K^\top$, so $\mathrm{d}Q = \mathrm{scale} \cdot \mathrm{d}S\, K$ and $\mathrm{d}K = \mathrm{scale} \cdot \mathrm{d}S^\top Q$.
#
# Each line works on a block of keys alone; only $\mathrm{d}Q$ is a sum over the blocks. (Dao et al. 2022, appendix B.2.)

# %% [markdown]
# ### Task 8 · Backward without the matrix
# *11 points · 20 minutes · ●●●○*
#
# In NumPy. Take the keys and values in blocks of `block` rows, and never hold all $M \times N$ weights at once: a test measures it.

# %%
lk.predict("backward")


# %% nbgrader={"grade": false, "grade_id": "backward", "locked": false, "schema_version": 3, "solution": true, "task": false}
def backward(q, k, v, o, lse, do, block):
    """The gradients (dq, dk, dv) of a loss whose gradient by the output o is do, for o =
    softmax(q kᵀ / √d) v without mask.

    q, o, do [M, d], k and v [N, d]; lse [M] is the logsumexp of each row of q kᵀ / √d.
    Works on `block` keys at a time, the last block may be smaller, and holds no more than a
    few arrays of M x block numbers.
    """
    ### BEGIN SOLUTION
    scale = 1 / math.sqrt(q.shape[1])
    delta = (do * o).sum(axis=1)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for start in range(0, len(k), block):
        part = slice(start, start + block)
        weights = np.exp(scale * (q @ k[part].T) - lse[:, None])
        dv[part] = weights.T @ do
        dscores = weights * (do @ v[part].T - delta[:, None])
        dq += scale * (dscores @ k[part])
        dk[part] = scale * (dscores.T @ q)
    return dq, dk, dv
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab09_autograd", "locked": true, "schema_version": 3, "solution": false, "task": false}
def problem(rng, M, N, d):
    """Random q, k, v, do, and the o, lse and gradients that torch's autograd finds with the whole matrix: (inputs, gradients)."""
    q, k, v, do = (torch.from_numpy(rng.standard_normal((rows, d))) for rows in (M, N, N, M))
    q, k, v = (each.requires_grad_() for each in (q, k, v))
    scores = q @ k.T / math.sqrt(d)
    o = torch.softmax(scores, 1) @ v
    o.backward(do)
    inputs = [each.detach().numpy() for each in (q, k, v, o, scores.logsumexp(1), do)]
    return inputs, [each.grad.numpy() for each in (q, k, v)]


def expect_gradients(came, expected, name):
    """Check dq, dk and dv."""
    for one, gradient, wanted in zip(("dv", "dk", "dq"), (came[2], came[1], came[0]), (expected[2], expected[1], expected[0])):
        lk.checks.expect_close(gradient, wanted, rtol=1e-7, atol=1e-9, name=f"{one}, {name}")


# %% nbgrader={"grade": true, "grade_id": "backward_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
inputs, gradients = problem(np.random.default_rng(908), 6, 8, 4)
expect_gradients(backward(*inputs, 8), gradients, name="6 queries, 8 keys, one block")
expect_gradients(backward(*inputs, 4), gradients, name="6 queries, 8 keys, two blocks")
print("Right: the gradients are those of autograd.")

# %% nbgrader={"grade": true, "grade_id": "backward_test_ragged", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
inputs, gradients = problem(np.random.default_rng(918), 5, 10, 4)
for block in (4, 64):
    expect_gradients(backward(*inputs, block), gradients, name=f"10 keys in blocks of {block}")
print("Right: a smaller last block, and a block larger than everything.")

# %% nbgrader={"grade": true, "grade_id": "backward_test_more", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
rng = np.random.default_rng(928)
inputs, gradients = problem(rng, 1, 5, 9)
expect_gradients(backward(*inputs, 2), gradients, name="1 query, 5 keys, d = 9")
### BEGIN HIDDEN TESTS
for M, N, d, block in [(12, 12, 16, 5), (9, 1, 3, 1), (20, 33, 2, 8)]:
    inputs, gradients = problem(rng, M, N, d)
    expect_gradients(backward(*inputs, block), gradients, name=f"{M} queries, {N} keys, d={d}, blocks of {block}")
### END HIDDEN TESTS
print("Right for other shapes as well.")

# %% nbgrader={"grade": true, "grade_id": "backward_test_memory", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 1,024 queries and 6,144 keys: a matrix of weights has 50 MB, whether in one piece or in many; a block of 512 keys has 4.2 MB.
# The gradients are those of torch's own FlashAttention, which makes no matrix either.
print("About 10 seconds, more on a busy machine.")
rng = np.random.default_rng(938)
q, k, v, do = (torch.from_numpy(rng.standard_normal((1, 1, rows, 8))) for rows in (1024, 6144, 6144, 1024))
q, k, v = (each.requires_grad_() for each in (q, k, v))
o = torch.nn.functional.scaled_dot_product_attention(q, k, v)
o.backward(do)
with torch.no_grad():
    lse = torch.cat([(rows @ k[0, 0].T / math.sqrt(8)).logsumexp(1) for rows in q[0, 0].split(256)])
inputs = [each.detach().numpy() for each in (q[0, 0], k[0, 0], v[0, 0], o[0, 0], lse, do[0, 0])]
came = lk.checks.expect_peak(backward, *inputs, 512, at_most_bytes=48_000_000, name="backward over 6,144 keys in blocks of 512")
expect_gradients(came, [each.grad[0, 0].numpy() for each in (q, k, v)], name="6,144 keys in blocks of 512")
print("Right: no matrix of all weights.")

# %% [markdown]
# Recomputing costs FLOPs and saves bytes. Dao et al. (2022, figure 2) measured attention of GPT-2 medium on an A100, forward and backward: 66.6
# GFLOP and 40.3 GB took 41.7 ms; with FlashAttention, 75.2 GFLOP and 4.4 GB took 7.3 ms. More arithmetic, a ninth of the bytes, 5.7 times as fast.
#
# ## Part 6 · One token at a time
#
# While a model writes text, each step has **one** query for each head, and all keys and values of what was said before. Reading these is the
# whole cost. Two things make it fast.
#
# **Grouped heads** (GQA, Ainslie et al. 2023): several query heads share one head of keys and values. With $H$ query heads in groups of $G$
# there are only $H/G$ heads of keys to keep and to read. Query head $h$ uses head $\lfloor h / G \rfloor$ of the keys: neighbours share. The saving is real
# only if a key that was loaded is used by the whole group, so one program takes all $G$ query heads of a group as the rows of its tile.

# %% [markdown]
# ### Task 9 · Decode with grouped heads
# *8 points · 15 minutes · ●●○○*
#
# `tl.dot` wants at least 16 rows, so a tile has `BG` rows, and those behind the group are masked. There is no diagonal: the new token sees all `N` keys. But
# a tile of keys may stick out, and **a key that does not exist is not a score of 0**.

# %%
lk.predict("grouped_decode")


# %% nbgrader={"grade": false, "grade_id": "grouped_decode", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def grouped_decode(
    q, k, v, out, N, scale, GROUP,
    D: tl.constexpr, BG: tl.constexpr, BN: tl.constexpr,
):
    """out = attention of one token: q and out [heads, D], k and v [heads / GROUP, N, D],
    contiguous; fp16, out fp32.

    Head h of q uses head h // GROUP of k and v, and sees all N ≥ 1 keys. Program g takes
    head g of k and v and the GROUP ≤ BG heads of q that use it, and loads each key and
    value once.
    """
    g = tl.program_id(0)
    row, columns = tl.arange(0, BG), tl.arange(0, D)
    m = tl.full([BG], -float("inf"), dtype=tl.float32)
    l = tl.zeros([BG], dtype=tl.float32)
    o = tl.zeros([BG, D], dtype=tl.float32)
    ### BEGIN SOLUTION
    mine = (g * GROUP + row)[:, None] * D + columns[None, :]
    queries = tl.load(q + mine, mask=row[:, None] < GROUP, other=0.0)
    for start in range(0, N, BN):
        at = start + tl.arange(0, BN)
        place = (g * N + at)[:, None] * D + columns[None, :]
        keys = tl.load(k + place, mask=at[:, None] < N, other=0.0)
        values = tl.load(v + place, mask=at[:, None] < N, other=0.0)
        scores = tl.where(at[None, :] < N, scale * tl.dot(queries, tl.trans(keys)), -float("inf"))
        largest = tl.maximum(m, tl.max(scores, axis=1))
        correction = tl.exp(m - largest)
        powers = tl.exp(scores - largest[:, None])
        l = l * correction + tl.sum(powers, axis=1)
        o = o * correction[:, None] + tl.dot(powers.to(values.dtype), values)
        m = largest
    tl.store(out + mine, o / l[:, None], mask=row[:, None] < GROUP)
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab09_cache", "locked": true, "schema_version": 3, "solution": false, "task": false}
def cache(generator, kv_heads, group, N, d):
    """Random q [kv_heads * group, d] of one token, and k and v [kv_heads, N, d] of those before, in FP16."""
    q = 2 * torch.randn(kv_heads * group, d, generator=generator)
    k, v = (torch.randn(kv_heads, N, d, generator=generator) for _ in range(2))
    return q.half(), k.half(), v.half()


def exactly_grouped(q, k, v, scale):
    """Attention of one token in float64: neighbouring query heads share a head of keys."""
    group = len(q) // len(k)
    return torch.cat([exactly(q[h : h + 1], k[h // group], v[h // group], scale) for h in range(len(q))])


# %% nbgrader={"grade": true, "grade_id": "grouped_decode_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(909)
q, k, v = cache(generator, 2, 4, 48, 16)
out = unwritten(8, 16)
clean(grouped_decode, (2,), q, k, v, out, 48, 0.25, 4, D=16, BG=16, BN=16)
expected = exactly_grouped(q, k, v, 0.25)
for h in range(8):
    lk.checks.expect_close(out[h], expected[h], atol=ROUNDING, name=f"query head {h} of 8, which uses head {h // 4} of 2")
print("Right: neighbouring heads share their keys.")

# %% nbgrader={"grade": true, "grade_id": "grouped_decode_test_ragged", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(919)
for kv_heads, group, N in [(3, 2, 21), (1, 16, 5)]:
    q, k, v = cache(generator, kv_heads, group, N, 16)
    out = unwritten(len(q), 16)
    clean(grouped_decode, (kv_heads,), q - 4, k + 1, v, out, N, 0.25, group, D=16, BG=16, BN=16)
    lk.checks.expect_close(out, exactly_grouped(q - 4, k + 1, v, 0.25), atol=ROUNDING, name=f"{kv_heads} groups of {group}, {N} keys in tiles of 16")
### BEGIN HIDDEN TESTS
for kv_heads, group, N, d, bn in [(4, 1, 33, 16, 32), (2, 5, 16, 32, 16), (2, 8, 1, 16, 16)]:
    q, k, v = cache(generator, kv_heads, group, N, d)
    out = unwritten(len(q), d)
    clean(grouped_decode, (kv_heads,), q - 3, k + 1, v, out, N, 0.2, group, D=d, BG=16, BN=bn)
    lk.checks.expect_close(out, exactly_grouped(q - 3, k + 1, v, 0.2), atol=ROUNDING, name=f"{kv_heads} groups of {group}, {N} keys, d={d}")
### END HIDDEN TESTS
print("Right: a ragged last tile has no weight.")

# %% nbgrader={"grade": true, "grade_id": "grouped_decode_test_bytes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(929)
q, k, v = cache(generator, 2, 8, 40, 16)
out = unwritten(16, 16)
trace = clean(grouped_decode, (2,), q, k, v, out, 40, 0.25, 8, D=16, BG=16, BN=16)
lk.checks.expect_close(out, exactly_grouped(q, k, v, 0.25), atol=ROUNDING, name="2 groups of 8, 40 keys")
for array in ("k", "v"):
    lk.checks.expect_traffic(trace, array, loaded_bytes=2 * 40 * 16 * 2)
lk.checks.expect_traffic(trace, "q", loaded_bytes=16 * 16 * 2)
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=16 * 16 * 4)
print("Right: each key is loaded once for its whole group.")

# %% [markdown]
# **Split keys.** One sequence, 8 heads of keys: that is a grid of 8 programs, on an H100 with 132 SMs. 124 of them do nothing, however long the sequence. So cut the *keys*
# into chunks, too. Program $(g, s)$ makes the state $(m, \ell, o)$ of chunk $s$, and a second, small step merges the chunks, as in task 4. (FlashAttention calls
# this Flash-Decoding: Dao, Haziza, Massa, Sizov 2023.)
#
#     keys      0 ........ CHUNK ........ 2 CHUNK ........ N
#     program     (g, 0)         (g, 1)          (g, 2)          each writes m, l, o, without dividing
#                    └──────────────┼───────────────┘
#                              combine                            one correction for each chunk, then o / l

# %% [markdown]
# ### Task 10 · Split, and combine
# *9 points · 18 minutes · ●●●○*
#
# Start from your `grouped_decode`: another range of keys, other stores. `combine` is NumPy. A chunk may lie behind the end altogether; its
# state is that of nothing.

# %%
lk.predict("decode_split")


# %% nbgrader={"grade": false, "grade_id": "decode_split", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def decode_split(
    q, k, v, m_out, l_out, o_out, N, CHUNK, scale, GROUP,
    D: tl.constexpr, BG: tl.constexpr, BN: tl.constexpr,
):
    """The state of each head over each chunk of keys: m_out, l_out [chunks, heads] and
    o_out [chunks, heads, D], fp32.

    As `grouped_decode`, but program (g, s) sees the keys from s * CHUNK to (s + 1) * CHUNK
    only, and none from N on. CHUNK need not be a multiple of BN. Each key and value is
    loaded once by all programs together. A chunk without keys has m = -inf, l = 0, o = 0.
    """
    g, s = tl.program_id(0), tl.program_id(1)
    total = tl.num_programs(0) * GROUP  # query heads
    row, columns = tl.arange(0, BG), tl.arange(0, D)
    m = tl.full([BG], -float("inf"), dtype=tl.float32)
    l = tl.zeros([BG], dtype=tl.float32)
    o = tl.zeros([BG, D], dtype=tl.float32)
    ### BEGIN SOLUTION
    head = g * GROUP + row
    queries = tl.load(q + head[:, None] * D + columns[None, :], mask=row[:, None] < GROUP, other=0.0)
    end = tl.minimum(N, (s + 1) * CHUNK)
    for start in range(s * CHUNK, end, BN):
        at = start + tl.arange(0, BN)
        place = (g * N + at)[:, None] * D + columns[None, :]
        keys = tl.load(k + place, mask=at[:, None] < end, other=0.0)
        values = tl.load(v + place, mask=at[:, None] < end, other=0.0)
        scores = tl.where(at[None, :] < end, scale * tl.dot(queries, tl.trans(keys)), -float("inf"))
        largest = tl.maximum(m, tl.max(scores, axis=1))
        correction = tl.exp(m - largest)
        powers = tl.exp(scores - largest[:, None])
        l = l * correction + tl.sum(powers, axis=1)
        o = o * correction[:, None] + tl.dot(powers.to(values.dtype), values)
        m = largest
    tl.store(m_out + s * total + head, m, mask=row < GROUP)
    tl.store(l_out + s * total + head, l, mask=row < GROUP)
    tl.store(o_out + (s * total + head)[:, None] * D + columns[None, :], o, mask=row[:, None] < GROUP)
    ### END SOLUTION


def combine(m, l, o):
    """The output [heads, d] from the states of all chunks: NumPy arrays m and l [chunks,
    heads], o [chunks, heads, d].

    A chunk may be empty (m = -inf, l = 0, o = 0), but never all chunks of a head.
    """
    ### BEGIN SOLUTION
    corrections = np.exp(m - m.max(axis=0))
    return (corrections[:, :, None] * o).sum(axis=0) / (corrections * l).sum(axis=0)[:, None]
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab09_split", "locked": true, "schema_version": 3, "solution": false, "task": false}
def split(q, k, v, chunk, chunks, scale=0.25, bn=16):
    """Launch decode_split cleanly. Returns (trace, m, l, o), the states as NumPy arrays."""
    (kv_heads, N, d), heads = k.shape, len(q)
    m, l, o = unwritten(chunks, heads), unwritten(chunks, heads), unwritten(chunks, heads, d)
    trace = clean(
        decode_split, (kv_heads, chunks), q, k, v, m, l, o, N, chunk, scale, heads // kv_heads, D=d, BG=16, BN=bn
    )
    return trace, m.numpy(), l.numpy(), o.numpy()


def expect_chunks(q, k, v, chunk, states, scale=0.25):
    """Check the states of all chunks against float64."""
    m, l, o = states
    group, N = len(q) // len(k), k.shape[1]
    for s in range(len(m)):
        first, last = s * chunk, min(N, (s + 1) * chunk)
        what = f"chunk {s}, keys {first} to {last - 1} and no other lane" if first < N else f"chunk {s}, behind the end"
        for h in range(len(q)):
            keys, values = k[h // group, first:last].double().numpy(), v[h // group, first:last].double().numpy()
            wanted = whole_row(scale * keys @ q[h].double().numpy(), values) if first < N else nothing_yet(k.shape[2])
            lk.checks.expect_close(m[s, h], wanted[0], rtol=1e-3, atol=2e-3, name=f"m of head {h}, {what}")
            lk.checks.expect_close(l[s, h], wanted[1], rtol=4e-3, name=f"l of head {h}, {what}")
            lk.checks.expect_close(o[s, h], wanted[2], atol=ROUNDING * max(1.0, wanted[1]), name=f"o of head {h}, {what}")


# %% nbgrader={"grade": true, "grade_id": "decode_split_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(910)
q, k, v = cache(generator, 2, 4, 80, 16)
trace, *states = split(q, k, v, chunk=32, chunks=3)
expect_chunks(q, k, v, 32, states)
for array in ("k", "v"):
    lk.checks.expect_traffic(trace, array, loaded_bytes=2 * 80 * 16 * 2)
q, k, v = cache(generator, 1, 2, 40, 16)
trace, *states = split(q, k, v, chunk=20, chunks=2)
expect_chunks(q, k, v, 20, states)
for array in ("k", "v"):
    lk.checks.expect_traffic(trace, array, loaded_bytes=40 * 16 * 2)
print("Right: each chunk has its own state, and each key one chunk.")

# %% nbgrader={"grade": true, "grade_id": "decode_split_test_combine", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# one head: log 4 with l = 1 and o = 20; log 1 with l = 1 and o = 10; log 2 with l = 1 and o = 30: 150 / 7, as in part 2
m, l, o = np.log([[4.0], [1.0], [2.0]]), np.ones((3, 1)), np.array([[[20.0]], [[10.0]], [[30.0]]])
lk.checks.expect_close(combine(m, l, o), [[150 / 7]], rtol=1e-9, name="three chunks")
# two heads whose scores are 2,000 apart; in the first, log 3 meets log 1: (3 * 8 + 1 * 4) / 4
m, o = np.array([[0.0, 2000.0], [math.log(3.0), 2000.0]]), np.array([[[4.0], [4.0]], [[8.0], [8.0]]])
lk.checks.expect_close(combine(m, np.ones((2, 2)), o), [[7.0], [6.0]], rtol=1e-9, name="two heads, one with far larger scores")
rng = np.random.default_rng(920)
scores, values = 3 * rng.standard_normal((4, 30)) + 1000, rng.standard_normal((30, 2))
parts = [part(scores[:, at : at + 10], values[at : at + 10]) for at in (0, 10, 20)]
m, l, o = (np.stack([each[i] for each in parts]) for i in range(3))
total = part(scores, values)
lk.checks.expect_close(combine(m, l, o), total[2] / total[1][:, None], rtol=1e-9, atol=1e-12, name="four heads in three chunks")
print("Right: every chunk is corrected to the common maximum, and the division comes last.")

# %% nbgrader={"grade": true, "grade_id": "decode_split_test_empty", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(930)
q, k, v = cache(generator, 1, 3, 20, 16)
trace, *states = split(q, k, v, chunk=16, chunks=4)
expect_chunks(q, k, v, 16, states)
lk.checks.expect_close(combine(*states), exactly_grouped(q, k, v, 0.25), atol=ROUNDING, name="two of four chunks are empty")
print("Right: empty chunks change nothing.")

# %% nbgrader={"grade": true, "grade_id": "decode_split_test_more", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(940)
q, k, v = cache(generator, 2, 2, 33, 16)
lk.checks.expect_close(combine(*split(q, k, v, chunk=11, chunks=3)[1:]), exactly_grouped(q, k, v, 0.25), atol=ROUNDING, name="33 keys in chunks of 11")
### BEGIN HIDDEN TESTS
for kv_heads, group, N, d, chunk, bn in [(3, 1, 64, 16, 16, 16), (1, 7, 50, 32, 25, 32), (2, 8, 17, 16, 17, 16)]:
    q, k, v = cache(generator, kv_heads, group, N, d)
    states = split(q, k, v, chunk, -(-N // chunk), bn=bn)[1:]
    name = f"{kv_heads} groups of {group}, {N} keys in chunks of {chunk}"
    lk.checks.expect_close(combine(*states), exactly_grouped(q, k, v, 0.25), atol=ROUNDING, name=name)
### END HIDDEN TESTS
print("Right for other shapes as well.")

# %% jupyter={"source_hidden": true}
with lk.picture("One token against a cache of 512 keys, two heads of keys. More chunks, more programs at work, fewer steps in each; the bytes of the cache stay."):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = cache(generator, 2, 4, 512, 32)
    print("chunks  programs  steps of each  bytes of keys  bytes of states")
    for chunks in (1, 2, 4, 8, 16):
        trace, *states = split(q, k, v, 512 // chunks, chunks)
        written = sum(trace.arrays[name].stored_bytes for name in ("m_out", "l_out", "o_out"))
        print(f"{chunks:6}  {2 * chunks:8}  {512 // chunks // 16:13}  {trace.arrays['k'].loaded_bytes:13,}  {written:15,}")
        lk.checks.expect_close(combine(*states), exactly_grouped(q, k, v, 0.25), atol=ROUNDING, name=f"{chunks} chunks")

# %% [markdown]
# ## Part 7 · The same tile on tensor cores
#
# What does `tl.dot` become? In CUDA C++ a **warp** multiplies tiles of 16 × 16 × 16 halves on a tensor core. Its operands are *fragments*, spread over the 32
# lanes:
#
#     wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;   // matrix_b: col_major reads a stored row as a column
#     wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
#     wmma::fill_fragment(c, 0.0f);
#     wmma::load_matrix_sync(a, &tile[0][16], ROW);                          // the 16 x 16 from there on; rows are ROW numbers apart
#     wmma::mma_sync(c, a, b, c);                                            // c = a b + c
#     wmma::store_matrix_sync(&sums[0][0], c, 24, wmma::mem_row_major);      // accumulators are loaded with a layout, too
#
# $QK^\top$ needs the transpose of a tile of keys: `col_major` for `matrix_b` takes it as it lies. WMMA does not say which lane holds which element, so a row's
# maximum cannot be taken in a fragment. Scores, powers and the sums $o$ go through shared memory here. (Real kernels use `mma.sync` or `wgmma`, whose
# layouts are documented, and keep $o$ in registers.)
#
# **Banks.** A fragment of halves has 512 bytes, and shared memory gives 128 in a wavefront: a load takes four, each of eight rows of 16 bytes. Rows of 64 halves are
# 128 bytes apart: all eight begin in bank 0, each of the four becomes eight, and the load takes 32 wavefronts. Choose a distance between rows that is a multiple of
# 16 bytes, as WMMA demands, and sends eight rows to 32 different banks.
#
# **Alignment.** WMMA also demands that the address of each 16 × 16 piece is a multiple of 32 bytes (CUDA C++ Programming Guide, *Warp Matrix Functions*). An array of
# halves may begin at any multiple of 2: declare shared tiles with `alignas(32)`, as the given ones are. The simulator cannot know where `nvcc` would
# put an array, so `check` does not see it if the word is missing; on a GPU the load may read elsewhere, or end the kernel.
#
# **Asynchronous copies.** `__pipeline_memcpy_async(to, from, 16)` starts a copy from global to shared memory and does not wait. `__pipeline_commit()` makes a batch of the
# copies that were started; `__pipeline_wait_prior(n)` waits until at most the `n` newest batches are under way. So the next tile can be on its way while this one is multiplied:
#
#     tile in buffer 0    copy 0 ──┐ use 0 ──────┐ copy 2 ──┐ use 2
#     tile in buffer 1             └ copy 1 ──┐  └ use 1 ───┴──────
#
# A lane waits for its own copies only: `__syncwarp()` after the wait lets it see those of the others. Another one must stand where tiles have been read, before the next copy
# overwrites them.

# %% [markdown]
# ### Task 11 · FlashAttention with WMMA
# *13 points · 40 minutes · ●●●●*
#
# One warp a block, 16 queries, tiles of 16 keys, $d = 64$. The copy of a tile, the step of the softmax, the beginning and the end are given. Yours are the shared tiles of $Q$, $K$
# and $V$, the two buffers, and the two products. Wanted: no finding, no bank conflict, each tile copied once, both products on tensor cores.

# %%
lk.predict("flash_wmma")

# %% nbgrader={"grade": false, "grade_id": "flash_wmma", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda flash_wmma
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda;

constexpr int D = 64;  // numbers in a query, key, value
constexpr int T = 16;  // rows of a tile

// Given. Starts the copy of T rows of D halves to a shared tile whose rows are `stride` halves
// apart: 16 bytes a lane and turn.
__device__ void copy_tile(half* tile, int stride, const half* from)
{
    for (int piece = threadIdx.x; piece < T * D / 8; piece += 32) {
        int row = piece / 8, column = piece % 8 * 8;
        __pipeline_memcpy_async(tile + row * stride + column, from + row * D + column, 16);
    }
}

// Given. Lanes 0 to 15 share one row, lanes 16 to 31 another; in eight turns they take all 16.
__device__ int row_in(int turn) { return turn % 2 + turn / 2 * 4 + threadIdx.x / 16 * 2; }

__device__ float largest_of_16(float x)
{
    for (int d = 8; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, d));
    return x;
}

__device__ float sum_of_16(float x)
{
    for (int d = 8; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffff, x, d);
    return x;
}

// Given. Task 3 for sixteen rows: s holds the scores of a tile, not yet scaled; p gets the
// powers; m, l and o are corrected.
__device__ void softmax_step(const float s[T][24], half p[T][24], float o[T][72],
                             float* m, float* l, float scale)
{
    int column = threadIdx.x % 16;
    for (int turn = 0; turn < 8; ++turn) {
        int row = row_in(turn);
        float score = scale * s[row][column];
        float largest = fmaxf(m[turn], largest_of_16(score));
        float correction = expf(m[turn] - largest), power = expf(score - largest);
        l[turn] = l[turn] * correction + sum_of_16(power);
        m[turn] = largest;
        p[row][column] = __float2half(power);
        for (int c = column; c < D; c += 16) o[row][c] *= correction;
    }
}

// q [16 * gridDim.x, 64], k and v [keys, 64], out as q; 16 divides keys. One warp a block,
// block b takes the 16 queries from 16 * b on.
__global__ void flash_wmma(const half* q, const half* k, const half* v, float* out,
                           int keys, float scale)
{
    __shared__ alignas(32) float s[T][24];  // scores
    __shared__ alignas(32) half p[T][24];   // powers
    __shared__ alignas(32) float o[T][72];  // weighted sums of values
    float m[8], l[8];
    for (int turn = 0; turn < 8; ++turn) {
        m[turn] = -INFINITY, l[turn] = 0.0f;
        for (int c = threadIdx.x % 16; c < D; c += 16) o[row_in(turn)][c] = 0.0f;
    }
    ### BEGIN SOLUTION
    constexpr int ROW = 72;  // 36 words: eight rows begin in banks 0, 4, 8, ... 28
    __shared__ alignas(32) half q_tile[T][ROW], k_tile[2][T][ROW], v_tile[2][T][ROW];
    copy_tile(q_tile[0], ROW, q + blockIdx.x * T * D);
    copy_tile(k_tile[0][0], ROW, k);
    copy_tile(v_tile[0][0], ROW, v);
    __pipeline_commit();
    for (int t = 0; t < keys / T; ++t) {
        int now = t % 2;
        if (t + 1 < keys / T) {
            copy_tile(k_tile[1 - now][0], ROW, k + (t + 1) * T * D);
            copy_tile(v_tile[1 - now][0], ROW, v + (t + 1) * T * D);
        }
        __pipeline_commit();  // in the last turn an empty batch
        __pipeline_wait_prior(1);  // all batches but the newest are here
        __syncwarp();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> key;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
        wmma::fill_fragment(sum, 0.0f);
        for (int c = 0; c < D; c += 16) {
            wmma::load_matrix_sync(left, &q_tile[0][c], ROW);
            wmma::load_matrix_sync(key, &k_tile[now][0][c], ROW);
            wmma::mma_sync(sum, left, key, sum);
        }
        wmma::store_matrix_sync(&s[0][0], sum, 24, wmma::mem_row_major);
        __syncwarp();
        softmax_step(s, p, o, m, l, scale);
        __syncwarp();
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> value;
        wmma::load_matrix_sync(left, &p[0][0], 24);
        for (int c = 0; c < D; c += 16) {
            wmma::load_matrix_sync(value, &v_tile[now][0][c], ROW);
            wmma::load_matrix_sync(sum, &o[0][c], 72, wmma::mem_row_major);
            wmma::mma_sync(sum, left, value, sum);
            wmma::store_matrix_sync(&o[0][c], sum, 72, wmma::mem_row_major);
        }
        __syncwarp();  // nobody reads these tiles any more
    }
    ### END SOLUTION
    for (int turn = 0; turn < 8; ++turn) {
        int row = row_in(turn);
        float* to = out + (blockIdx.x * T + row) * D;
        for (int c = threadIdx.x % 16; c < D; c += 16) to[c] = o[row][c] / l[turn];
    }
}

# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab09_wmma", "locked": true, "schema_version": 3, "solution": false, "task": false}
def halves(rng, *shape):
    """Random numbers as FP16."""
    return rng.standard_normal(shape).astype(np.float16)


def with_matrix(q, k, v, scale):
    """Attention in float64, with its matrix."""
    return exactly(*(torch.from_numpy(each) for each in (q, k, v)), scale)


# %% nbgrader={"grade": true, "grade_id": "flash_wmma_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(flash_wmma)
rng = np.random.default_rng(911)
q, k, v, out = 2 * halves(rng, 32, 64), halves(rng, 48, 64), halves(rng, 48, 64), np.full((32, 64), np.nan, np.float32)
lk.checks.expect_clean(kernel, (2, 32, (q, k, v, out, 48, 0.125)))
lk.checks.expect_close(out, with_matrix(q, k, v, 0.125), atol=ROUNDING, name="32 queries, three tiles of keys")
print("Right: no race, no copy read before it ended, and the right numbers.")

# %% nbgrader={"grade": true, "grade_id": "flash_wmma_test_more", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(flash_wmma)
rng = np.random.default_rng(921)
q, k, v, out = halves(rng, 16, 64), halves(rng, 16, 64), halves(rng, 16, 64), np.full((16, 64), np.nan, np.float32)
lk.checks.expect_clean(kernel, (1, 32, (q, k, v, out, 16, 0.25)))
lk.checks.expect_close(out, with_matrix(q, k, v, 0.25), atol=ROUNDING, name="one tile of keys")
### BEGIN HIDDEN TESTS
for M, N, scale in [(48, 32, 0.125), (16, 80, 0.3)]:
    q, k, v, out = halves(rng, M, 64), halves(rng, N, 64), halves(rng, N, 64), np.full((M, 64), np.nan, np.float32)
    lk.checks.expect_clean(kernel, (M // 16, 32, (q, k, v, out, N, scale)))
    lk.checks.expect_close(out, with_matrix(q, k, v, scale), atol=ROUNDING, name=f"{M} queries, {N} keys")
### END HIDDEN TESTS
print("Right: one tile of keys is enough.")

# %% nbgrader={"grade": true, "grade_id": "flash_wmma_test_traffic", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 2 blocks, 4 tiles of keys: each block copies one tile of Q, 4 of K and 4 of V; a tile is 2 KiB, 64 sectors.
# Two products of 16 x 16 x 64 for each block and tile, a multiply-add is two FLOPs.
kernel = lk.checks.graded_kernel(flash_wmma)
rng = np.random.default_rng(931)
q, k, v, out = halves(rng, 32, 64), halves(rng, 64, 64), halves(rng, 64, 64), np.full((32, 64), np.nan, np.float32)
profile = kernel.profile[2, 32](q, k, v, out, 64, 0.125)
lk.checks.expect_close(out, with_matrix(q, k, v, 0.125), atol=ROUNDING, name="out, while it was profiled")
lk.checks.expect_counters(profile, at_least_global_load_sectors=(32 + 64 + 64) * 4, name="flash_wmma")
lk.checks.expect_counters(profile, at_most_global_load_sectors=2 * (1 + 4 + 4) * 64, global_store_sectors=32 * 8, name="flash_wmma")
tensor_flops = profile.instructions.get("tensor", 0)
lk.checks.expect_equal(tensor_flops, 2 * 4 * 2 * (2 * 16 * 16 * 64), name="FLOPs on tensor cores")
print("Right: each tile is copied once, and both products are on tensor cores. (Races and unfinished copies: the first two cells.)")

# %% nbgrader={"grade": true, "grade_id": "flash_wmma_test_banks", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(flash_wmma)
rng = np.random.default_rng(941)
q, k, v, out = halves(rng, 16, 64), halves(rng, 32, 64), halves(rng, 32, 64), np.full((16, 64), np.nan, np.float32)
profile = kernel.profile[1, 32](q, k, v, out, 32, 0.125)
lk.checks.expect_close(out, with_matrix(q, k, v, 0.125), atol=ROUNDING, name="out, while it was profiled")
lk.checks.expect_counters(profile, at_least_shared_load_requests=1, bank_conflicts=0, name="flash_wmma")
print("Right: no load or store waits for a bank. (Races and unfinished copies: the first two cells.)")

# %% [markdown]
# The counters do not see whether a copy overlaps with a product; `check` sees every read of a copy that has not ended. A kernel that waits with
# `__pipeline_wait_prior(0)` earns the same marks, and on a GPU stands still while each tile arrives.

# %% jupyter={"source_hidden": true}
with lk.picture("Your kernel, line by line. Turn the heat to shared memory: the products read, the softmax reads and writes, the copies write."):
    rng = np.random.default_rng(seed)
    q, k, v, out = halves(rng, 16, 64), halves(rng, 64, 64), halves(rng, 64, 64), np.zeros((16, 64), np.float32)
    display(lk.widgets.annotated_source(flash_wmma.profile[1, 32](q, k, v, out, 64, 0.125)))

# %% [markdown]
# ## Part 8 · All of it
#
# First the ladder: the same attention over 256 positions, in four ways. Then the kit's small language model, trained on Python's standard library, reads a line of code with **your**
# `flash_causal` in place of torch's attention, in all layers and heads, and continues it. Without a GPU
# that takes about 10 seconds.

# %% jupyter={"source_hidden": true}
with lk.picture("Bytes of one head, 256 positions, d = 64, FP16: from the chain to what has to move."):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = heads(generator, 256, 256, 64)
    out = torch.empty(256, 64).half()
    whole = lk.triton_trace.trace(flash)[(2,)](q, k, v, out, 256, 0.125, D=64, BM=128, BN=32).work
    half = lk.triton_trace.trace(flash_causal)[(2,)](q, k, v, out, torch.empty(256), 256, 0.125, D=64, BM=128, BN=32).work
    ladder = {
        "chain": sum(chain_bytes(256, 256, 64)),
        "flash, yours": whole.bytes_moved,
        "flash_causal, yours": half.bytes_moved,
        "least": least_bytes(256, 256, 64),
    }
    for name, moved in ladder.items():
        print(f"{name:20} {moved / 1e3:6.0f} kB")
    figure = go.Figure(go.Bar(x=[moved / 1e3 for moved in ladder.values()], y=list(ladder), orientation="h", marker_color="#2a7fbf"))
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(height=240, xaxis_title="kB moved")
    lk.show(figure, summary="Bars of bytes moved: the chain, your kernel, your causal kernel, and the least.")

# %% jupyter={"source_hidden": true}
with lk.picture("A real language model reads with your kernel."):
    from unittest.mock import patch

    from mlsys_labkit import lm

    model, tokenizer = lm.load()

    def yours(queries, keys, values, *mask, **settings):
        """Causal attention [1, heads, N, width] by flash_causal, a launch for each head."""
        _, many, N, width = queries.shape
        group, outs = many // keys.shape[1], []
        for h in range(many):
            tile = [each.half().contiguous().to(place) for each in (queries[0, h], keys[0, h // group], values[0, h // group])]
            out = torch.empty(N, width, device=place)
            grid = (triton.cdiv(N, 32),)
            flash_causal[grid](*tile, out, torch.empty(N, device=place), N, width**-0.5, D=width, BM=32, BN=32)
            outs.append(out.cpu())
        return torch.stack(outs)[None].to(queries.dtype)

    place = "cuda" if lk.detect().kind == "cuda" and not lk.detect().virtual else "cpu"
    prompt = "class Stack:\n    def __init__(self):\n        self."
    tokens = tokenizer.encode(prompt)
    with torch.no_grad():
        expected = model(torch.tensor([tokens]))
        with patch("torch.nn.functional.scaled_dot_product_attention", yours):
            came = model(torch.tensor([tokens]))
            for _ in range(2 if smoke else 8):
                tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    agreed = int((came.argmax(-1) == expected.argmax(-1)).sum())
    print(f"{agreed} of {came.shape[1]} next tokens are those with torch's attention; logits differ by at most {(came - expected).abs().max():.3f}")
    print(tokenizer.decode(tokens))

# %% [markdown]
# ## On your GPU
#
# Not graded. Where there is a GPU, the next cell times `flash_causal` and the chain against `scaled_dot_product_attention`, which calls FlashAttention. Elsewhere it says why it does
# nothing.

# %% jupyter={"source_hidden": true}
device = lk.detect()
if device.kind != "cuda" or device.virtual:
    print(f"Skipped: this needs a CUDA GPU, and here is: {device.label}. Nothing was measured.")
else:

    def ways(n):
        """Return the three ways for n queries and keys, and the memory that yours writes to."""
        q, k, v = (torch.randn(n, 64, device="cuda").half() for _ in range(3))
        out, lse = torch.empty_like(q), torch.empty(n, device="cuda")
        future = torch.ones(n, n, device="cuda").triu(1).bool()
        calls = {
            "yours": lambda: flash_causal[(triton.cdiv(n, 64),)](q, k, v, out, lse, n, 0.125, D=64, BM=64, BN=64),
            "torch": lambda: torch.nn.functional.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None], is_causal=True),
            "chain": lambda: torch.softmax((0.125 * (q @ k.T)).masked_fill(future, -math.inf), 1) @ v,
        }
        return calls, out

    with lk.picture("Three ways to causal attention, timed on this GPU."):
        for n in (1024, 4096, 16_384):
            calls, out = ways(n)
            seconds = {}
            for name, call in calls.items():
                call()
                seconds[name] = lk.bench(call, name=name, device="cuda").median
            difference = (out - calls["torch"]()[0, 0]).abs().max().item()
            print(f"N = {n:6,}: " + ", ".join(f"{name} {1e6 * took:,.0f} µs" for name, took in seconds.items()) + f"; largest difference {difference:.4f}")

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel, run all cells, save, and look here: which tasks pass the checks you see, and what is left. In
# JupyterLab, a right-click on the panel and *Create New View for Cell Output* keeps it beside the notebook while you work.

# %%
lk.progress()

# %% [markdown]
# ## What to take along
#
# - A softmax needs no second pass: keep a maximum, a sum and a weighted sum, and correct the sums when the maximum grows.
# - States of parts merge in any order. That is how one row is split over tiles, chunks, or GPUs (ring attention, lab 07).
# - On-chip memory of $C$ numbers divides the $N^2 d^2$ of attention by $C$; the matrix never goes to memory.
# - What can be recomputed from one number for each row need not be stored, even if it costs FLOPs.
# - Mask before the maximum. A key that does not exist is not a score of 0.
# - Grouped heads save bytes only if one load serves the group.
#
# ## Sources
#
# - M. Milakov, N. Gimelshein. [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867). 2018.
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré. [FlashAttention: fast and memory-efficient exact attention with IO-awareness](https://arxiv.org/abs/2205.14135). NeurIPS 2022.
# - T. Dao. [FlashAttention-2: faster attention with better parallelism and work partitioning](https://arxiv.org/abs/2307.08691). 2023.
# - J. Ainslie et al. [GQA: training generalized multi-query transformer models from multi-head checkpoints](https://arxiv.org/abs/2305.13245). EMNLP 2023.
# - T. Dao, D. Haziza, F. Massa, G. Sizov. [Flash-Decoding for long-context inference](https://crfm.stanford.edu/2023/10/12/flashdecoding.html). 2023.
#
# ## Next
#
# Chapter 11, *Serving*, is about the cache that tasks 9 and 10 read. Lab 08 builds the engine around it.
