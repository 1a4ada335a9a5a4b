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
# # Lab 05 · Triton: kernels in blocks
#
# In CUDA you wrote what one thread does, and then counted what a warp of them asks for. In Triton you write what one
# **program** does with a whole block of numbers, and the compiler deals with threads. What it cannot know stays with you: which elements
# there are, how often each is read, in which order the programs go, and how many bits a sum needs. This lab is about those.
#
# **You will be able to**
#
# - write Triton kernels for ragged, strided and narrow data, and show that each touches its bytes once and no others;
# - fuse a chain of operations into one pass, and say beforehand how many bytes that saves;
# - tile a matrix product and choose the order of its programs so that a cache can help;
# - recognise overflow, stalled sums and races before they cost you a training run;
# - read what the compiler made of a kernel, from Triton's own code down to PTX, for a GPU you do not have;
# - search a space of configurations without trying them all;
# - write the loss of a language model as one kernel that reads the logits once, where torch's operations move them six times.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 185 minutes | ●●●○ | any Linux machine; a GPU only for the last, ungraded section | 100 in 10 tasks |
#
# The time includes reading. Take two sittings: Parts 1 to 4 (100 minutes), then Parts 5 to 9 (85 minutes). A summary stands between them.
#
# Needs lab 01 (strides, bytes) and, for the comparison, lab 04 (tiles). Reads along with
# [chapter 8, *Compilers*](../../course/chapters/08_compilers.md).

# %% jupyter={"source_hidden": true} tags=["install"]
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab05_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import math
from dataclasses import dataclass

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
# ## Part 1 · A program and its block
#
# A kernel is a function under `@triton.jit`. `kernel[grid](...)` starts as many *programs* as the grid says; each asks
# `tl.program_id(0)` which one it is. `tl.arange(0, BLOCK)` is a block of `BLOCK` numbers, a power of two that is known when the kernel is
# compiled (`tl.constexpr`). A tensor arrives as a pointer to its first element. Pointer plus block of offsets is a block of
# addresses, and `tl.load`, `tl.store` go there, all at once:


# %%
@triton.jit
def double(x, out, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    lanes = start + tl.arange(0, BLOCK)
    tl.store(out + lanes, 2 * tl.load(x + lanes))


on_gpu = lk.detect().kind == "cuda" and not lk.detect().virtual
place = "cuda" if on_gpu else "cpu"
x, out = torch.arange(8.0, device=place), torch.zeros(8, device=place)
double[(2,)](x, out, BLOCK=4)
print(out)

# %% [markdown]
# On a GPU this ran compiled. On any other machine the kit interpreted it, program after program, with the same results. Try it: with
# `BLOCK=2`, which grid doubles all eight numbers? Change the launch and run the cell again.
#
# Seven numbers instead of eight, and the last lane of the last program is beyond the end. On a GPU it would read and
# overwrite whatever lives there. `trace` runs a kernel, on any machine, and keeps account of every single access:

# %%
x, out = torch.arange(7.0), torch.zeros(7)
trace = lk.triton_trace.trace(double)[(2,)](x, out, BLOCK=4)
for finding in trace.findings:
    print(finding, end="\n\n")

# %% [markdown]
# The cure is a **mask**: `tl.load(pointers, mask=inside, other=0.0)` does not touch an address whose mask is False, and puts `other` in its
# place; without `other`, Triton does not define what the lane holds. `tl.store(pointers, values, mask=inside)` leaves such an address alone.
# A masked-off lane costs no bytes.
#
# Each task goes the same way: **predict** (not graded: committing to a guess is what teaches), **write**,
# **check**, then **look**. Marks come from right answers and from counted bytes, never from a clock.
# Stuck? `lk.hint("softmax")` in a new cell gives a nudge, and a stronger one each time you ask. Hints cost no marks.
# `lk.progress()` shows how far you are. Long checks, helpers and the code of pictures are folded: click the three dots in a cell to read it.
#
# The next cell is what the tests use: run under the tracer, complain if anything was found.


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab05_helpers", "locked": true, "schema_version": 3, "solution": false, "task": false}
def clean(kernel, grid, *args, **meta):
    """Run `kernel[grid](*args, **meta)` under the tracer; no finding may come up. Returns the trace."""
    trace = lk.triton_trace.trace(kernel)[grid](*args, **meta)
    lk.checks.expect_no_findings(trace)
    return trace


def unwritten(*shape, dtype=torch.float32):
    """A tensor full of NaN, so that an element which no program stores gives itself away."""
    return torch.full(shape, float("nan"), dtype=dtype)


# %% [markdown]
# ### Task 1 · Add two vectors
# *6 points · 7 minutes · ●○○○*
#
# The grid must cover all `n` elements, with no program more than needed, and the mask must stop where they end. (`triton.cdiv(a, b)`
# divides and rounds up.) `double` above is half of the answer.

# %%
lk.predict("add")


# %% nbgrader={"grade": false, "grade_id": "add", "locked": false, "schema_version": 3, "solution": true, "task": false}
def add_grid(n, BLOCK):
    """The launch grid of `add` for n elements: a tuple with the number of programs, no more than needed.

    >>> add_grid(1000, 256)
    (4,)
    """
    ### BEGIN SOLUTION
    return (triton.cdiv(n, BLOCK),)
    ### END SOLUTION


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for i < n. Program p takes the elements from p * BLOCK on."""
    ### BEGIN SOLUTION
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, total, mask=inside)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "add_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(add_grid(1000, 256), (4,), name="grid for 1,000 elements in blocks of 256")
lk.checks.expect_equal(add_grid(1024, 256), (4,), name="grid for 1,024 elements, exactly four blocks")
generator = torch.Generator().manual_seed(501)
x, y, out = torch.randn(1000, generator=generator), torch.randn(1000, generator=generator), unwritten(1000)
clean(add, (4,), x, y, out, 1000, BLOCK=256)
lk.checks.expect_close(out, x.double() + y.double(), rtol=1e-6, atol=1e-6, name="x + y")
print("Passed: the grid is no larger than needed, and 1,000 sums are right in four programs.")

# %% nbgrader={"grade": true, "grade_id": "add_test_edges", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
x, y, out = torch.ones(20), torch.ones(20), torch.full((20,), 7.0)
clean(add, (2,), x, y, out, 11, BLOCK=8)  # arrays longer than n: what lies behind n belongs to others
lk.checks.expect_equal(out.tolist(), [2.0] * 11 + [7.0] * 9, name="out, with nine elements beyond n")
print("Passed: nothing beyond n is written.")
### BEGIN HIDDEN TESTS
# one element; one short of a block; exactly one; one more; a block of one lane
generator = torch.Generator().manual_seed(521)
for what, n, BLOCK in [
    ("one element", 1, 64),
    ("one short of a block", 63, 64),
    ("exactly a block", 64, 64),
    ("one more than a block", 65, 64),
    ("blocks of one lane", 5, 1),
    ("a ragged last block", 300, 128),
]:
    x, y, out = torch.randn(n, generator=generator), torch.randn(n, generator=generator), unwritten(n)
    lk.checks.expect_equal(add_grid(n, BLOCK), (-(-n // BLOCK),), name=f"grid, {what}")
    clean(add, (-(-n // BLOCK),), x, y, out, n, BLOCK=BLOCK)
    lk.checks.expect_close(out, x.double() + y.double(), rtol=1e-6, atol=1e-6, name=f"x + y, {what}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "add_test_bytes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
x, y, out = torch.ones(1000), torch.ones(1000), unwritten(1000)
trace = clean(add, (4,), x, y, out, 1000, BLOCK=256)
lk.checks.expect_close(out, torch.full((1000,), 2.0), rtol=0, name="x + y")
lk.checks.expect_traffic(trace, "x", loaded_bytes=4000, stored_bytes=0)
lk.checks.expect_traffic(trace, "y", loaded_bytes=4000, stored_bytes=0)
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=4000)
print("Passed: 8,000 bytes in, 4,000 bytes out, each once.")

# %% jupyter={"source_hidden": true}
with lk.picture("Line by line: 1,000 elements asked for, and 24 lanes masked off in the last program."):
    display(
        lk.triton_trace.trace(add)[add_grid(1000, 256)](
            torch.ones(1000), torch.ones(1000), torch.zeros(1000), 1000, BLOCK=256
        )
    )

# %% [markdown]
# ### Task 2 · A matrix that is not contiguous
# *8 points · 14 minutes · ●●○○*
#
# A block may have two axes: `rows[:, None]` is a column, `columns[None, :]` a row, and together they broadcast as in
# NumPy. A tensor with *strides* (lab 01) keeps element $(r, c)$ at `r * x_row + c * x_column`, and a transposed or sliced view is a
# tensor like any other. Here, program $(i, j)$ takes a block of `ROWS` × `COLUMNS`, and every row has its own factor.

# %%
lk.predict("scale_rows")


# %% nbgrader={"grade": false, "grade_id": "scale_rows", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def scale_rows(
    x, scale, out, M, N, x_row, x_column, out_row, out_column, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """out[r, c] = scale[r] * x[r, c] for x and out [M, N] with these strides, in elements.

    scale [M] is contiguous. Program (i, j) takes the rows from i * ROWS and the columns from j * COLUMNS on, and loads
    each of its scales once.
    """
    ### BEGIN SOLUTION
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    block = tl.load(x + rows[:, None] * x_row + columns[None, :] * x_column, mask=inside)
    factor = tl.load(scale + rows, mask=rows < M)
    tl.store(out + rows[:, None] * out_row + columns[None, :] * out_column, factor[:, None] * block, mask=inside)
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab05_layouts", "locked": true, "schema_version": 3, "solution": false, "task": false}
def layouts(values):
    """The same matrix in four layouts: name -> a tensor that equals `values` and has strides of its own."""
    M, N = values.shape
    padded, sparse, transposed = torch.full((M, N + 3), 99.0), torch.full((M, 2 * N), 99.0), torch.empty(N, M)
    views = {
        "contiguous": torch.empty(M, N),
        "transposed": transposed.T,
        "rows padded by 3": padded[:, :N],
        "every second column": sparse[:, ::2],
    }
    for view in views.values():
        view.copy_(values)
    return views


def scaled(x, scale, out, rows, columns):
    """Launch scale_rows cleanly on whatever strides x and out have. Returns the trace."""
    M, N = x.shape
    grid = (triton.cdiv(M, rows), triton.cdiv(N, columns))
    return clean(scale_rows, grid, x, scale, out, M, N, *x.stride(), *out.stride(), ROWS=rows, COLUMNS=columns)


# %% nbgrader={"grade": true, "grade_id": "scale_rows_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
values, scale = torch.arange(15.0).reshape(5, 3), torch.tensor([1.0, 10.0, 100.0, 1000.0, 2.0])
right = scale[:, None] * values
for of_x, of_out in [
    ("contiguous", "contiguous"),
    ("transposed", "every second column"),
    ("every second column", "transposed"),
]:
    x, out = layouts(values)[of_x], layouts(torch.full((5, 3), float("nan")))[of_out]
    scaled(x, scale, out, rows=4, columns=2)
    lk.checks.expect_close(out, right, rtol=1e-6, name=f"rows of a 5 x 3, x {of_x}, out {of_out}")
print("Passed: rows of a 5 x 3 are right, and each tensor is read or written by its own strides.")

# %% nbgrader={"grade": true, "grade_id": "scale_rows_test_layouts", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
padded = torch.full((4, 7), 99.0)  # what lies between the rows is not yours to write
scaled(torch.ones(4, 3), torch.ones(4), padded[:, :3], 2, 2)
lk.checks.expect_close(
    padded, torch.tensor([[1.0] * 3 + [99.0] * 4] * 4), rtol=0, name="out with the padding of its rows"
)
print("Passed: the padding between the rows keeps its values.")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(502)
# ragged both ways; a single row; a single column; blocks wider than the matrix
for M, N, rows, columns in [(9, 13, 4, 8), (1, 10, 2, 4), (7, 1, 4, 2), (3, 5, 8, 16)]:
    values, scale = torch.randn(M, N, generator=generator), torch.randn(M, generator=generator)
    for of_x, x in layouts(values).items():
        for of_out, out in layouts(torch.full((M, N), float("nan"))).items():
            scaled(x, scale, out, rows, columns)
            lk.checks.expect_close(
                out,
                scale[:, None].double() * values.double(),
                rtol=1e-6,
                atol=1e-7,
                name=f"{M} x {N}, x {of_x}, out {of_out}",
            )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "scale_rows_test_bytes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 20 x 14 in blocks of 8 x 8: six programs, and each row's scale is needed by two of them
generator = torch.Generator().manual_seed(512)
values, scale = torch.randn(20, 14, generator=generator), torch.randn(20, generator=generator)
x, out = layouts(values)["transposed"], unwritten(20, 14)
trace = scaled(x, scale, out, rows=8, columns=8)
lk.checks.expect_close(
    out, scale[:, None].double() * values.double(), rtol=1e-6, atol=1e-7, name="x transposed, 20 x 14"
)
lk.checks.expect_traffic(trace, "x", loaded_bytes=4 * 20 * 14)
lk.checks.expect_traffic(trace, "scale", loaded_bytes=2 * 4 * 20)
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=4 * 20 * 14)
print("Passed: each element once, and each scale once a program.")

# %% [markdown]
# ## Part 2 · One pass
#
# Softmax of a row $x$ is $e^{x_c - m} / \sum_j e^{x_j - m}$, where $m$ is the row's largest element: subtracting it changes nothing in exact
# arithmetic, and keeps $e^{100}$ from being infinite in FP32. Written with torch's basic operations it is five kernels that move the matrix eight
# times, in or out. One kernel moves it twice, if a row fits into a block: load it, keep it in registers, store the result.
#
# Two reductions over the block are all you need: `tl.max(block, axis=0)` and `tl.sum(block, axis=0)`. They take **every** lane, also
# those behind the end of the row. What must stand there, so that neither of the two notices?

# %% [markdown]
# ### Task 3 · Softmax of rows
# *12 points · 17 minutes · ●●○○*

# %%
lk.predict("softmax")


# %% nbgrader={"grade": false, "grade_id": "softmax", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def softmax(x, out, N, x_row, out_row, BLOCK: tl.constexpr):
    """out[r] = softmax(x[r]) for rows of N ≤ BLOCK elements. Program r takes row r.

    x and out may be fp32, fp16 or bf16; arithmetic is in fp32. Neighbours in a row are neighbours in memory, and
    rows begin x_row and out_row elements apart. Rows hold finite numbers of any size, or -inf beside them.
    """
    ### BEGIN SOLUTION
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < N
    values = tl.load(x + row * x_row + columns, mask=inside, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * out_row + columns, powers / tl.sum(powers, axis=0), mask=inside)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "softmax_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
x, out = torch.tensor([[0.0, math.log(3.0), 0.0], [1.0, 1.0, 1.0]]), unwritten(2, 3)
clean(softmax, (2,), x, out, 3, 3, 3, BLOCK=4)
lk.checks.expect_close(out, [[0.2, 0.6, 0.2], [1 / 3] * 3], rtol=1e-5, name="softmax of two rows")
for what, numbers in {
    "far below zero": -102.0 + torch.arange(3.0),
    "far above zero": 1000.0 + torch.arange(3.0),
    "of the same number, -3e38": torch.full((3,), -3e38),
}.items():
    x, out = numbers.reshape(1, 3), unwritten(1, 3)
    clean(softmax, (1,), x, out, 3, 3, 3, BLOCK=4)
    lk.checks.expect_close(out, torch.softmax(x.double(), 1), rtol=1e-5, name=f"softmax of a row {what}")
print("Passed: rows of three and a masked lane, ordinary numbers and numbers whose powers are 0 or infinite in FP32.")

# %% nbgrader={"grade": true, "grade_id": "softmax_test_rows", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
x, out = torch.tensor([[1.0, -float("inf"), 2.0]]), unwritten(1, 3)
clean(softmax, (1,), x, out, 3, 3, 3, BLOCK=4)
lk.checks.expect_close(out, torch.softmax(x.double(), 1), rtol=1e-5, name="softmax of a row with -inf in it")
print("Passed: -inf gets the probability 0.")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(503)
rows = {
    "ordinary numbers": torch.randn(3, 37, generator=generator),
    "all far below zero": torch.randn(3, 37, generator=generator)
    - 200.0,  # whatever stands behind the end must not win
    "all far above zero": torch.randn(3, 37, generator=generator) + 1e4,  # exp of these is infinite in FP32
    "one stands out": torch.eye(3, 37) * 300.0,
    "a masked half": torch.randn(3, 37, generator=generator).masked_fill(torch.arange(37) > 17, -float("inf")),
    "a single column": torch.randn(4, 1, generator=generator),
    "a full block": torch.randn(2, 64, generator=generator),
}
for what, x in rows.items():
    M, N = x.shape
    out = unwritten(M, N)
    clean(softmax, (M,), x, out, N, N, N, BLOCK=64)
    lk.checks.expect_close(out, torch.softmax(x.double(), 1), rtol=1e-5, atol=1e-7, name=f"softmax, {what}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "softmax_test_types", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(523)
values = torch.randn(3, 6, generator=generator)
x, out = layouts(values)["rows padded by 3"], layouts(torch.full((3, 6), float("nan")))["contiguous"]
clean(softmax, (3,), x, out, 6, 9, 6, BLOCK=8)
lk.checks.expect_close(
    out, torch.softmax(values.double(), 1), rtol=1e-5, name="softmax of padded rows, x_row = 9 and out_row = 6"
)
# FP16 with one rounding, of the result: arithmetic in FP16 would be off by more
x, out = (3 * torch.randn(3, 50, generator=generator)).half(), unwritten(3, 50, dtype=torch.float16)
clean(softmax, (3,), x, out, 50, 50, 50, BLOCK=64)
lk.checks.expect_close(
    out, torch.softmax(x.double(), 1), rtol=1.02 * 2.0**-11, atol=1e-7, name="softmax in FP16, arithmetic in FP32"
)
print("Passed: rows with padding, and FP16 in and out with arithmetic in FP32.")
### BEGIN HIDDEN TESTS
x = layouts(torch.randn(5, 30, generator=generator))["rows padded by 3"]
out = layouts(torch.full((5, 30), float("nan")))["rows padded by 3"]
clean(softmax, (5,), x, out, 30, 33, 33, BLOCK=32)
lk.checks.expect_close(out, torch.softmax(x.double(), 1), rtol=1e-5, atol=1e-7, name="softmax of padded rows")
for dtype in (torch.bfloat16, torch.float16):
    x = (3 * torch.randn(4, 50, generator=generator)).to(dtype)
    out = unwritten(4, 50, dtype=dtype)
    clean(softmax, (4,), x, out, 50, 50, 50, BLOCK=64)
    unit = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11  # one rounding, of the result
    lk.checks.expect_close(
        out, torch.softmax(x.double(), 1), rtol=1.02 * unit, atol=1e-7, name=f"softmax in {dtype}"
    )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "softmax_test_bytes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(513)
x, out = torch.randn(6, 100, generator=generator), unwritten(6, 100)
trace = clean(softmax, (6,), x, out, 100, 100, 100, BLOCK=128)
lk.checks.expect_close(out, torch.softmax(x.double(), 1), rtol=1e-5, atol=1e-7, name="softmax of 6 x 100")
lk.checks.expect_traffic(trace, "x", loaded_bytes=4 * 600)  # one pass: each element once
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=4 * 600)
print("Passed: the matrix moves once in and once out.")

# %% jupyter={"source_hidden": true}
with lk.picture("The same softmax, operation by operation and in one pass."):

    def softmax_chain(x):
        shifted = x - x.amax(1, keepdim=True)
        powers = torch.exp(shifted)
        return powers / powers.sum(1, keepdim=True)

    print("Some seconds, more on a busy machine.")
    x, out = torch.randn(64, 1000), torch.empty(64, 1000)
    chain = lk.count_work(softmax_chain, x)
    fused = lk.triton_trace.trace(softmax)[(64,)](x, out, 1000, 1000, 1000, BLOCK=1024).work
    for name, work in [("torch, one operation after another", chain), ("your kernel", fused)]:
        print(f"{work.bytes_moved / 1e3:8,.0f} kB   {name}")

# %% [markdown]
# ## Part 3 · Fusion
#
# A transformer's feed-forward layer ends in $\mathrm{gelu}(x + b)$. Two small operations, and each is a trip to memory and back: in eager
# mode the sum is written, read again, and so on through the formula. A *fused* kernel reads $x$, does all of it in registers, writes
# the result. This is what `torch.compile` generates for you, in Triton, and why it pays.
#
# GELU here is the exact one, $\mathrm{gelu}(t) = \tfrac{t}{2}\left(1 + \mathrm{erf}(t / \sqrt 2)\right)$, and Triton has `tl.erf`, for FP32.
# Python's `math` does not exist in a kernel: write $\sqrt 2$ as `tl.sqrt(2.0)`, or as a number.

# %% [markdown]
# ### Task 4 · Bias and GELU in one kernel
# *10 points · 11 minutes · ●●○○*

# %%
lk.predict("bias_gelu")


# %% nbgrader={"grade": false, "grade_id": "bias_gelu", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def bias_gelu(x, bias, out, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out[r, c] = gelu(x[r, c] + bias[c]) for contiguous x and out [M, N] and bias [N].

    All are fp32 or bf16, and arithmetic is in fp32. Program (i, j) takes the rows from i * ROWS and the columns from
    j * COLUMNS on, and loads each of its biases once.
    """
    ### BEGIN SOLUTION
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    at = rows[:, None] * N + columns[None, :]
    t = tl.load(x + at, mask=inside).to(tl.float32)
    t += tl.load(bias + columns, mask=columns < N).to(tl.float32)[None, :]
    tl.store(out + at, 0.5 * t * (1.0 + tl.erf(t * 0.7071067811865476)), mask=inside)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "bias_gelu_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
x, bias, out = torch.tensor([[0.0, 1.0, -1.0], [2.0, -3.0, 0.5]]), torch.tensor([0.0, 1.0, 0.0]), unwritten(2, 3)
clean(bias_gelu, (1, 2), x, bias, out, 2, 3, ROWS=2, COLUMNS=2)
exact = torch.nn.functional.gelu((x + bias).double())
lk.checks.expect_close(out, exact, rtol=1e-5, atol=1e-6, name="gelu(x + b) of 2 x 3")
print("Passed: the exact GELU of a 2 x 3, with a bias for each column.")

# %% nbgrader={"grade": true, "grade_id": "bias_gelu_test_blocks", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(504)
# bf16 in and out: one rounding, at the very end. A sum that was rounded first is off by more where gelu is steep
x, bias = torch.randn(8, 40, generator=generator).bfloat16(), torch.randn(40, generator=generator).bfloat16()
out = unwritten(8, 40, dtype=torch.bfloat16)
clean(bias_gelu, (2, 2), x, bias, out, 8, 40, ROWS=4, COLUMNS=32)
exact = torch.nn.functional.gelu(x.double() + bias.double())
lk.checks.expect_close(out, exact, rtol=1.02 * 2.0**-8, atol=2e-6, name="gelu(x + b) in BF16, arithmetic in FP32")
print("Passed: BF16 in and out, rounded once.")
### BEGIN HIDDEN TESTS
for M, N, rows, columns in [
    (9, 21, 4, 8),
    (1, 40, 2, 16),
    (13, 1, 4, 2),
    (8, 16, 4, 8),
]:  # ragged, a row, a column, whole blocks
    x, bias, out = 2 * torch.randn(M, N, generator=generator), torch.randn(N, generator=generator), unwritten(M, N)
    clean(bias_gelu, (-(-M // rows), -(-N // columns)), x, bias, out, M, N, ROWS=rows, COLUMNS=columns)
    exact = torch.nn.functional.gelu(x.double() + bias.double())
    lk.checks.expect_close(
        out, exact, rtol=1e-5, atol=2e-6, name=f"gelu(x + b), {M} x {N} in blocks of {rows} x {columns}"
    )
x, bias = torch.randn(16, 64, generator=generator).bfloat16(), torch.randn(64, generator=generator).bfloat16()
out = unwritten(16, 64, dtype=torch.bfloat16)
clean(bias_gelu, (4, 2), x, bias, out, 16, 64, ROWS=4, COLUMNS=32)
exact = torch.nn.functional.gelu(x.double() + bias.double())
lk.checks.expect_close(out, exact, rtol=1.02 * 2.0**-8, atol=2e-6, name="gelu(x + b) of 16 x 64 in BF16")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "bias_gelu_test_bytes", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 20 x 32 in blocks of 8 x 16: three programs down need each bias once, and x moves once in and once out
generator = torch.Generator().manual_seed(514)
x, bias, out = torch.randn(20, 32, generator=generator), torch.randn(32, generator=generator), unwritten(20, 32)
trace = clean(bias_gelu, (3, 2), x, bias, out, 20, 32, ROWS=8, COLUMNS=16)
exact = torch.nn.functional.gelu(x.double() + bias.double())
lk.checks.expect_close(out, exact, rtol=1e-5, atol=2e-6, name="gelu(x + b), 20 x 32")
lk.checks.expect_traffic(trace, "x", loaded_bytes=4 * 20 * 32, stored_bytes=0)
lk.checks.expect_traffic(trace, "bias", loaded_bytes=3 * 4 * 32)
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=4 * 20 * 32)
print("Passed: x moves once in and once out, and each bias is loaded once a program.")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "The same FLOPs, fewer bytes: fusing moves the work from the diamond to the large dot, to the right and up along the slope. Choose other GPUs."
):

    def bias_gelu_chain(x, bias):
        t = x + bias
        return 0.5 * t * (1.0 + torch.erf(t / math.sqrt(2.0)))

    x, bias, out = torch.randn(128, 512), torch.randn(512), torch.empty(128, 512)
    chain = lk.count_work(bias_gelu_chain, x, bias)
    moved = lk.triton_trace.trace(bias_gelu)[(8, 8)](x, bias, out, 128, 512, ROWS=16, COLUMNS=64).work
    unfused = lk.Work(flops=chain.flops, bytes_read=chain.bytes_read, bytes_written=chain.bytes_written, name="unfused")
    fused = lk.Work(flops=chain.flops, bytes_read=moved.bytes_read, bytes_written=moved.bytes_written, name="fused")
    print(
        f"unfused {chain.bytes_moved / 1e3:,.0f} kB, fused {fused.bytes_moved / 1e3:,.0f} kB: {chain.bytes_moved / fused.bytes_moved:.1f} times fewer"
    )
    display(lk.widgets.roofline(["h100-sxm"], works=[unfused, fused]))

# %% [markdown]
# ## Part 4 · A matrix product, and the order of its tiles
#
# Now a program owns a tile of $C$, `BM` × `BN`, in registers. It walks along $k$ in steps of `BK`: load `BM` × `BK` of $A$ and
# `BK` × `BN` of $B$, multiply them with `tl.dot`, which a GPU gives to its tensor cores, and add up **in FP32**, also for
# operands in FP16. Shared memory, barriers, bank conflicts: the compiler's affair now. Three ragged edges are yours. At two of them a
# lane that reads too far spoils an element of $C$ that nobody stores. The third edge is different: along $k$ everything is summed up.

# %% [markdown]
# ### Task 5 · One tile of the product
# *14 points · 28 minutes · ●●●○*
#
# Write `matmul_tile`; `matmul` below it says which tile. A function under `@triton.jit` may call another. Each program should ask for exactly
# the elements of $A$ and $B$ that its tile needs, each of them once.

# %%
lk.predict("matmul_tile")


# %% nbgrader={"grade": false, "grade_id": "matmul_tile", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def matmul_tile(a, b, c, M, N, K, i, j, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Tile (i, j) of c[M, N] = a[M, K] b[K, N]: the rows from i * BM and the columns from j * BN on.

    a and b are fp16 (or bf16), c is fp32 or fp16, all contiguous; sums are in fp32. M, N, K need not be multiples of
    anything.
    """
    ### BEGIN SOLUTION
    rows = (i * BM + tl.arange(0, BM))[:, None]
    columns = (j * BN + tl.arange(0, BN))[None, :]
    steps = tl.arange(0, BK)
    total = tl.zeros([BM, BN], dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + steps
        left = tl.load(a + rows * K + k[None, :], mask=(rows < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + columns, mask=(k[:, None] < K) & (columns < N), other=0.0)
        total += tl.dot(left, right)
    tl.store(c + rows * N + columns, total, mask=(rows < M) & (columns < N))
    ### END SOLUTION


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    matmul_tile(a, b, c, M, N, K, tl.program_id(0), tl.program_id(1), BM, BN, BK)


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab05_product", "locked": true, "schema_version": 3, "solution": false, "task": false}
def product(a, b, c, bm, bn, bk):
    """Launch matmul cleanly. Returns the trace."""
    (M, K), N = a.shape, b.shape[1]
    return clean(matmul, (triton.cdiv(M, bm), triton.cdiv(N, bn)), a, b, c, M, N, K, BM=bm, BN=bn, BK=bk)


# %% nbgrader={"grade": true, "grade_id": "matmul_tile_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# three tiles down and two across, and every edge is ragged: i and j, M, N and K all differ
generator = torch.Generator().manual_seed(505)
a, b = torch.randn(40, 50, generator=generator).half(), torch.randn(50, 35, generator=generator).half()
c = unwritten(40, 35)
product(a, b, c, 16, 32, 16)
lk.checks.expect_close(c, a.double() @ b.double(), k=50, name="40 x 50 times 50 x 35 in tiles of 16 x 32")
# what lies behind the last row of a and b does not enter the sums, be it NaN
a, b = torch.full((17, 20), float("nan")).half(), torch.full((21, 16), float("nan")).half()
a[:16], b[:20] = 1.0, 1.0
c = unwritten(16, 16)
product(a[:16], b[:20], c, 16, 16, 16)
lk.checks.expect_close(
    c, torch.full((16, 16), 20.0), rtol=1e-6, name="K = 20 in steps of 16, with NaN behind a and b"
)
print("Passed: a ragged 40 x 50 x 35, and no lane beyond K enters a sum.")

# %% nbgrader={"grade": true, "grade_id": "matmul_tile_test_shapes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
a, b, c = torch.ones(3, 2049).half(), torch.ones(2049, 2).half(), unwritten(3, 2)
product(a, b, c, 16, 16, 64)
lk.checks.expect_close(c, torch.full((3, 2), 2049.0), rtol=1e-6, name="sums of 2,049 ones (FP16 has no 2,049)")
print("Passed: a sum of 2,049 ones, which FP16 cannot hold.")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(525)
for what, M, N, K, bm, bn, bk in [
    ("every edge ragged", 33, 17, 41, 16, 16, 16),
    ("a single row", 1, 20, 37, 16, 16, 16),
    ("a single column", 20, 1, 16, 16, 16, 16),
    ("K shorter than a step", 16, 16, 3, 16, 16, 16),
    ("whole tiles", 32, 32, 32, 16, 16, 16),
    ("tiles that are not square", 70, 40, 50, 64, 16, 32),
]:
    a, b = torch.randn(M, K, generator=generator).half(), torch.randn(K, N, generator=generator).half()
    c = unwritten(M, N)
    product(a, b, c, bm, bn, bk)
    lk.checks.expect_close(
        c, a.double() @ b.double(), k=K, name=f"{what}: M={M} N={N} K={K} in tiles of {bm} x {bn} x {bk}"
    )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "matmul_tile_test_types", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(535)
a, b = torch.randn(18, 20, generator=generator).bfloat16(), torch.randn(20, 17, generator=generator).bfloat16()
c = unwritten(18, 17, dtype=torch.float16)
product(a, b, c, 16, 16, 16)
lk.checks.expect_close(c, a.double() @ b.double(), rtol=2.0**-10, atol=1e-3, name="BF16 operands, FP16 result")
print("Passed: BF16 operands and an FP16 result.")
### BEGIN HIDDEN TESTS
a, b = torch.randn(20, 30, generator=generator).half(), torch.randn(30, 20, generator=generator).half()
c = unwritten(20, 20, dtype=torch.float16)
product(a, b, c, 16, 16, 16)
lk.checks.expect_close(c, a.double() @ b.double(), rtol=2.0**-10, atol=1e-3, name="FP16 operands, FP16 result")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "matmul_tile_test_bytes", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 40 x 36 in tiles of 16 x 32: three tiles down, two across. A is read once for each tile column, B for each tile row.
generator = torch.Generator().manual_seed(515)
a, b = torch.randn(40, 50, generator=generator).half(), torch.randn(50, 36, generator=generator).half()
c = unwritten(40, 36)
trace = product(a, b, c, 16, 32, 16)
lk.checks.expect_close(c, a.double() @ b.double(), k=50, name="40 x 50 times 50 x 36")
lk.checks.expect_traffic(trace, "a", loaded_bytes=2 * 2 * 40 * 50)
lk.checks.expect_traffic(trace, "b", loaded_bytes=3 * 2 * 50 * 36)
lk.checks.expect_traffic(trace, "c", loaded_bytes=0, stored_bytes=4 * 40 * 36)
print("Passed: A is read twice, B three times, C is written once. That is the least with these tiles.")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Larger tiles, fewer bytes: double the side, halve the traffic. The tile lives in registers, and those run out (Part 7)."
):
    n = 64 if smoke else 128
    a, b, c = torch.randn(n, n).half(), torch.randn(n, n).half(), torch.empty(n, n)
    for side in (16, 32, 64):
        tiles = n // side
        work = lk.triton_trace.trace(matmul)[(tiles, tiles)](a, b, c, n, n, n, BM=side, BN=side, BK=32).work
        print(f"{side:3d} x {side:<3d} {work.bytes_read / 1e3:8,.0f} kB read, {work.intensity:5.1f} FLOP/B")

# %% [markdown]
# ### Who goes first?
#
# Those bytes are what programs *ask for*. What memory must deliver is less, for the L2 cache keeps what was asked for lately, and another
# program may want it soon. That is a matter of **order**. A GPU starts programs by number. With one program after another along
# a row of tiles, a whole row goes by (and with it all of $B$) before anything of $B$ is needed again. In *groups*, programs first go down
# `GROUP` tiles in a column, then to the next column: those of $A$ stay, and each tile of $B$ serves `GROUP` times.
#
#     row by row            in groups of 2
#      0  1  2  3            0  2  4  6
#      4  5  6  7            1  3  5  7
#      8  9 10 11            8 10 12 14
#     12 13 14 15            9 11 13 15

# %% [markdown]
# ### Task 6 · Tiles in groups
# *10 points · 17 minutes · ●●●○*
#
# From the number of a program to its tile, on whole numbers: `//`, `%` and `tl.minimum`. The trap is at the bottom: when `tiles_m` is no multiple of
# `GROUP`, the last group is lower than the others. Every tile must still be someone's, and only one's. Five rows of three tiles in groups of 2:
#
#      0  2  4      group 0: programs 0 to 5, two rows
#      1  3  5
#      6  8 10      group 1: programs 6 to 11, two rows
#      7  9 11
#     12 13 14      group 2: programs 12 to 14, the row that is left

# %%
lk.predict("tile_of")


# %% nbgrader={"grade": false, "grade_id": "tile_of", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def tile_of(program, tiles_m, tiles_n, GROUP: tl.constexpr):
    """The tile (i, j) of a program, i < tiles_m, j < tiles_n.

    In groups of GROUP rows of tiles; a group goes column by column, and a column from the top down. The last group has
    the rows that are left.
    """
    ### BEGIN SOLUTION
    a_group = GROUP * tiles_n
    first = program // a_group * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = program % a_group
    return first + within % height, within // height
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab05_order", "locked": true, "schema_version": 3, "solution": false, "task": false}
@triton.jit
def note_order(rows, columns, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Return the tile that each program gets."""
    program = tl.program_id(0)
    i, j = tile_of(program, tiles_m, tiles_n, GROUP)
    tl.store(rows + program, i)
    tl.store(columns + program, j)


@triton.jit
def touch(a, b, c, tiles_m, tiles_n, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """Reads and writes what a matrix product of whole tiles does, without multiplying; BK ≥ K."""
    i, j = tile_of(tl.program_id(0), tiles_m, tiles_n, GROUP)
    rows, columns, k = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    left = tl.load(a + rows[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
    right = tl.load(b + k[:, None] * (tiles_n * BN) + columns[None, :], mask=k[:, None] < K, other=0.0)
    sums = tl.sum(left.to(tl.float32), axis=1)[:, None] + tl.sum(right.to(tl.float32), axis=0)[None, :]
    tl.store(c + rows[:, None] * (tiles_n * BN) + columns[None, :], sums)


def order_of(tiles_m, tiles_n, group):
    """The tiles in the order of the programs: a list of (i, j)."""
    programs = tiles_m * tiles_n
    rows, columns = torch.full((programs,), -1, dtype=torch.int32), torch.full((programs,), -1, dtype=torch.int32)
    clean(note_order, (programs,), rows, columns, tiles_m, tiles_n, GROUP=group)
    return list(zip(rows.tolist(), columns.tolist()))


def touched(tiles_m, tiles_n, group):
    """Trace of the memory traffic of an FP16 product in tiles of 64 x 64, k = 32, in this order."""
    a = torch.ones(tiles_m * 64, 32).half()
    b, c = torch.ones(32, tiles_n * 64).half(), unwritten(tiles_m * 64, tiles_n * 64, dtype=torch.float16)
    trace = clean(touch, (tiles_m * tiles_n,), a, b, c, tiles_m, tiles_n, 32, BM=64, BN=64, BK=32, GROUP=group)
    lk.checks.expect_close(c, torch.full(c.shape, 64.0), rtol=0, name="every tile of c")
    return trace


# %% nbgrader={"grade": true, "grade_id": "tile_of_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
picture = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)]
lk.checks.expect_equal(order_of(4, 4, 2)[:8], picture, name="the first eight programs, 4 x 4 tiles in groups of 2")
lk.checks.expect_equal(order_of(4, 4, 2)[8:], [(i + 2, j) for i, j in picture], name="the other eight")
# ten rows of tiles in groups of 4: the last group has two rows
last = [(8, 0), (9, 0), (8, 1), (9, 1), (8, 2), (9, 2)]
lk.checks.expect_equal(order_of(10, 3, 4)[24:], last, name="the last six programs, 10 x 3 tiles in groups of 4")
# seven rows in groups of 4: the last group has three rows, and begins with program 8, which 3 does not divide
last = [(4, 0), (5, 0), (6, 0), (4, 1), (5, 1), (6, 1)]
lk.checks.expect_equal(order_of(7, 2, 4)[8:], last, name="the last six programs, 7 x 2 tiles in groups of 4")
print("Passed: 4 x 4 tiles as in the picture, and last groups that are lower.")

# %% nbgrader={"grade": true, "grade_id": "tile_of_test_shapes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
by_row = [(i, j) for i in range(3) for j in range(4)]
lk.checks.expect_equal(order_of(3, 4, 1), by_row, name="groups of 1 are row by row")
lk.checks.expect_equal(
    order_of(2, 2, 8), [(0, 0), (1, 0), (0, 1), (1, 1)], name="a group of more rows than there are"
)
print("Passed: groups of one row, and a group larger than the matrix.")
### BEGIN HIDDEN TESTS
# a last group that is lower; one tile row; one tile column; a group of everything, and one of more than everything; row by row
for tiles_m, tiles_n, group in [(5, 3, 2), (7, 4, 3), (1, 6, 4), (6, 1, 4), (4, 5, 4), (3, 4, 8), (3, 4, 1)]:
    expected = []
    for first in range(0, tiles_m, group):  # group by group, column by column
        expected += [(i, j) for j in range(tiles_n) for i in range(first, min(first + group, tiles_m))]
    got = order_of(tiles_m, tiles_n, group)
    lk.checks.expect_equal(
        len(set(got)), tiles_m * tiles_n, name=f"different tiles of {tiles_m} x {tiles_n}, group {group}"
    )
    lk.checks.expect_equal(got, expected, name=f"order of {tiles_m} x {tiles_n} tiles, group {group}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "tile_of_test_l2", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 8 x 8 tiles: a strip of A or B is 4 KiB, a tile of C 8 KiB, and the cache holds 64 KiB.
# Row by row, 7 strips of B and 8 tiles of C go by before a strip of B is wanted again: 96 KiB, so each of 8 rows reads all of B.
# In groups of 4, a strip of A is wanted again after 3 of A, 2 of B and 4 tiles of C, 52 KiB: A is read once, B once a group.
strip, written, cache = 64 * 32 * 2, (8 * 64) ** 2 * 2, 65_536
rowwise, grouped = touched(8, 8, 1), touched(8, 8, 4)
lk.checks.expect_equal(grouped.work.bytes_read, rowwise.work.bytes_read, name="bytes asked for, in whichever order")
lk.checks.expect_equal(
    rowwise.l2_bytes(cache), 8 * (strip + 8 * strip) + written, name="bytes to and from memory, row by row"
)
lk.checks.expect_equal(
    grouped.l2_bytes(cache), 2 * (4 * strip + 8 * strip) + written, name="bytes to and from memory, in groups of 4"
)
print("Passed: 8 x 8 tiles, two whole groups: the same bytes are asked for, and memory delivers less than half as many in groups of 4.")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Above: which program computes which tile. Below: what memory delivers as the cache grows. As soon as a group's strips fit, all of B is read "
    "once a group and not once a row; in a cache too small for that, groups read more. In a cache that keeps all of B and a row of tiles of C, row by row "
    "reads everything once. Groups need a larger one for that: from group to group a strip of B waits while GROUP rows of tiles of C go by, and they push it out."
):
    tiles = 8 if smoke else 12
    numbers = np.zeros((tiles, tiles), dtype=int)
    for number, tile in enumerate(order_of(tiles, tiles, 4)):
        numbers[tile] = number
    figure = go.Figure(
        go.Heatmap(
            z=numbers,
            text=numbers,
            texttemplate="%{text}",
            textfont={"size": 10},
            colorscale="Blues",
            showscale=False,
            hoverinfo="skip",
        )
    )
    figure.update_yaxes(autorange="reversed", scaleanchor="x", visible=False)
    figure.update_xaxes(visible=False)
    figure.update_layout(height=340, margin={"l": 10, "r": 10, "t": 10, "b": 10})
    lk.show(figure, summary=f"The numbers of the programs over {tiles} by {tiles} tiles, in groups of 4 rows.")
    figure = go.Figure()
    caches = [16_384 * k for k in range(1, 13)]
    for name, group in [("row by row", 1), ("groups of 2", 2), ("groups of 4", 4)]:
        trace = touched(tiles, tiles, group)
        written = (tiles * 64) ** 2 * 2
        read = [(trace.l2_bytes(cache) - written) / 1e3 for cache in caches]
        figure.add_scatter(x=[cache / 1e3 for cache in caches], y=read, mode="lines+markers", name=name)
    figure.update_xaxes(title="cache, kB", rangemode="tozero")
    figure.update_yaxes(title="kB of A and B from memory", rangemode="tozero")
    figure.update_layout(height=340)
    lk.show(
        figure,
        summary="Bytes read from memory against cache size for three orders: groups come down at a smaller cache.",
    )

# %% [markdown]
# The cache here is a model: least recently used, lines of 128 bytes, one program after another. On a GPU hundreds of programs run at once, and
# a real cache sees them mixed. `touched(12, 12, 4).l2_bytes(49_152, programs_at_once=16)` lets 16 take turns: try it, with groups of 1 and 4.
#
# ## Half-way
#
# A good place to stop: save the notebook, and run all cells when you come back. So far:
#
# - a program owns a block; a mask says which lanes exist, and `other` is what a reduction must not notice;
# - strides are arguments, and a transposed view costs nothing;
# - one pass over the data beats five kernels: softmax moves its matrix twice instead of eight times;
# - a ragged $k$ spoils every element of $C$, a ragged row or column only what nobody stores;
# - the order of the tiles decides what a cache can do, for nothing: groups where all of B does not fit, row by row where it does.
#
# ## Part 5 · How many bits does a sum need?
#
# Narrow formats save bytes on the way. They are no place to add in. BF16 has eight bits of significand: from 256 on, its neighbours
# are 2 apart, and $256 + 1$ rounds to $256$. A running sum of ones **stalls there for ever**. FP16 has eleven bits, stalls at 2,048,
# and knows nothing above 65,504. So: load narrow, convert with `.to(tl.float32)`, add up, and round once at the end.

# %% [markdown]
# ### Task 7 · Means of long rows
# *10 points · 14 minutes · ●●○○*
#
# Rows may be longer than a block now, so walk along them in steps of `BLOCK` and keep a block of partial sums: one `tl.sum` at the end.
# Load each element once.

# %%
lk.predict("row_mean")


# %% nbgrader={"grade": false, "grade_id": "row_mean", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def row_mean(x, out, N, x_row, BLOCK: tl.constexpr):
    """out[r] = the mean of the N elements of row r, for rows of any length that begin x_row elements apart.

    Program r takes row r. x and out are bf16, fp16 or fp32: the sum is in fp32, and out is rounded once.
    """
    ### BEGIN SOLUTION
    start_of_row = x + tl.program_id(0) * x_row
    lanes = tl.arange(0, BLOCK)
    partial = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        at = start + lanes
        partial += tl.load(start_of_row + at, mask=at < N, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0), tl.sum(partial, axis=0) / N)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "row_mean_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
x, out = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 0.0, 0.0, 0.0, 10.0]]), unwritten(2)
trace = clean(row_mean, (2,), x, out, 5, 5, BLOCK=4)
lk.checks.expect_close(out, [3.0, 2.0], rtol=1e-6, name="means of two rows of five, BLOCK=4")
lk.checks.expect_traffic(trace, "x", loaded_bytes=4 * 2 * 5)
lk.checks.expect_traffic(trace, "out", stored_bytes=4 * 2)
x, out = layouts(torch.arange(12.0).reshape(3, 4))["rows padded by 3"], unwritten(3)
clean(row_mean, (3,), x, out, 4, 7, BLOCK=16)
lk.checks.expect_close(out, [1.5, 5.5, 9.5], rtol=1e-6, name="means of padded rows, x_row = 7")
print("Passed: rows longer and shorter than a block, rows with padding, each element loaded once.")

# %% nbgrader={"grade": true, "grade_id": "row_mean_test_bits", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 4,800 ones in BF16, 16 lanes: each lane counts to 300, and BF16 stops counting at 256
x, out = torch.ones(1, 4800).bfloat16(), unwritten(1, dtype=torch.bfloat16)
clean(row_mean, (1,), x, out, 4800, 4800, BLOCK=16)
lk.checks.expect_close(out, [1.0], rtol=0, name="mean of 4,800 ones in BF16")
# 1,000 times 200 is more than FP16 can hold; the mean is not
x, out = torch.full((1, 1000), 200.0).half(), unwritten(1, dtype=torch.float16)
clean(row_mean, (1,), x, out, 1000, 1000, BLOCK=64)
lk.checks.expect_close(out, [200.0], rtol=2.0**-11, name="mean of 1,000 times 200 in FP16")
out = unwritten(1)  # an FP32 result shows whether anything was rounded to FP16 on the way
clean(row_mean, (1,), x, out, 1000, 1000, BLOCK=64)
lk.checks.expect_close(out, [200.0], rtol=1e-6, name="mean of 1,000 times 200 in FP16, out in FP32")
print("Passed: the sum is in FP32 until it has been divided.")

# %% nbgrader={"grade": true, "grade_id": "row_mean_test_rows", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
x, out = torch.tensor([[4.0]]), unwritten(1)
clean(row_mean, (1,), x, out, 1, 1, BLOCK=16)
lk.checks.expect_close(out, [4.0], rtol=0, name="mean of one number")
print("Passed: a row of one number.")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(507)
for N, BLOCK in [(15, 16), (16, 16), (17, 16), (100, 32), (64, 128)]:  # shorter, exactly a block, one more, several
    x, out = torch.randn(3, N, generator=generator), unwritten(3)
    clean(row_mean, (3,), x, out, N, N, BLOCK=BLOCK)
    lk.checks.expect_close(
        out, x.double().mean(1), rtol=1e-5, atol=1e-6, name=f"means of rows of {N}, BLOCK={BLOCK}"
    )
# a large number first, small ones after it; and random rows: nothing is rounded but the result
for what, x in {
    "one large number, then small ones": torch.cat([torch.full((1, 8), 1024.0), torch.full((1, 2000), 1.5)], 1),
    "random numbers with a mean": 1.0 + torch.rand(2, 3000, generator=generator),
}.items():
    for dtype, unit in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
        narrow = x.to(dtype)
        out = unwritten(len(x), dtype=dtype)
        clean(row_mean, (len(x),), narrow, out, x.shape[1], x.shape[1], BLOCK=32)
        lk.checks.expect_close(out, narrow.double().mean(1), rtol=1.02 * unit, name=f"means of {what}, {dtype}")
        out = unwritten(len(x))
        clean(row_mean, (len(x),), narrow, out, x.shape[1], x.shape[1], BLOCK=32)
        lk.checks.expect_close(out, narrow.double().mean(1), rtol=1e-5, name=f"means of {what}, {dtype} into FP32")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture("Adding ones, one at a time. BF16 stops at 256. Your kernel's mean of n ones stays 1."):
    count = 600
    running = {"FP32": torch.tensor(0.0), "BF16": torch.tensor(0.0).bfloat16()}
    sums = {name: [] for name in running}
    for _ in range(count):
        for name in running:
            running[name] = running[name] + 1
            sums[name].append(float(running[name]))
    figure = go.Figure(
        [
            go.Scatter(x=list(range(1, count + 1)), y=values, mode="lines", name=name)
            for name, values in sums.items()
        ]
    )
    figure.update_layout(height=300, xaxis_title="ones added", yaxis_title="running sum")
    lk.show(figure, summary="The running sum of ones: a straight line in FP32, flat from 256 on in BF16.")
    for n in (256, 4096, 20_000):
        mean = torch.zeros(1, device=place).bfloat16()
        row_mean[(1,)](torch.ones(1, n, device=place).bfloat16(), mean, n, n, BLOCK=64)
        print(f"your mean of {n:6,} ones: {mean.item()}")

# %% [markdown]
# A sum is not the only thing that outgrows its bits. Offsets do, too: `row * x_row` is computed in 32 bits here, and a
# tensor of more than $2^{31}$ elements wraps around to negative addresses. Real kernels write `row.to(tl.int64) * x_row`.
#
# ## Part 6 · Programs that meet
#
# So far no two programs wrote to the same place. In a histogram they do: whoever finds a 3 must add one to `counts[3]`. Load, add, store are three
# steps, and between them another program may do the same. Both read 5, both write 6, and one value is lost. The interpreter runs programs one by one,
# so the answer comes out right here, and that is what makes races cruel. The tracer sees it none the less:


# %%
@triton.jit
def racy(values, counts):
    number = tl.program_id(0)
    bin = tl.load(values + number)
    tl.store(counts + bin, tl.load(counts + bin) + 1)


values, counts = torch.tensor([3, 1, 3], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
trace = lk.triton_trace.trace(racy)[(3,)](values, counts)
print("counts", counts.tolist(), "are right, and yet:", end="\n\n")
print(trace.findings[0])

# %% [markdown]
# `tl.atomic_add(pointers, amounts, mask=…)` is the three steps as one that nobody can come between. Memory does atomics to the same address one after
# the other, so a million programs that all say `counts[0] += 1` stand in line. The cure is from lab 04: count privately first, in
# registers (`tl.histogram(values, BINS, mask=…)` counts a block, without the lanes whose mask is False; values that count must lie in 0 … `BINS` − 1), then add
# a bin's total once.

# %% [markdown]
# ### Task 8 · A histogram without a race
# *10 points · 17 minutes · ●●●○*
#
# At most one atomic for each bin and program. `counts` holds earlier counts: add to them. Mind the lanes behind the end: they would
# count, too, and a lane that holds a number outside 0 … `BINS` − 1 may land in any bin on a GPU.

# %%
lk.predict("count_values")


# %% nbgrader={"grade": false, "grade_id": "count_values", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def count_values(values, counts, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """Add to counts[v], for every v among the n values, how often it occurs.

    values int32 [n], all in 0 … BINS - 1; counts int32 [BINS], which already holds earlier counts; BINS is a power of
    two.
    Program p takes the values from p * BLOCK on, loads each once, and makes at most one atomic a bin.
    """
    ### BEGIN SOLUTION
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.arange(0, BINS)
    found = tl.load(values + at, mask=at < n, other=0)
    mine = tl.histogram(found, BINS)
    behind = tl.sum((at >= n).to(tl.int32), axis=0)  # lanes that counted as 0
    mine -= tl.where(bins == 0, behind, 0)
    tl.atomic_add(counts + bins, mine, mask=mine > 0)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "count_values_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
values, counts = torch.tensor([3, 1, 3, 0, 3], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
clean(count_values, (2,), values, counts, 5, BLOCK=4, BINS=4)
lk.checks.expect_equal(
    counts.tolist(), [1, 1, 0, 3], name="counts of 3 1 3 0 3, two programs, three lanes behind the end"
)
counts = torch.tensor([10, 20, 30, 40], dtype=torch.int32)
clean(count_values, (2,), values, counts, 5, BLOCK=4, BINS=4)
lk.checks.expect_equal(counts.tolist(), [11, 21, 30, 43], name="counts of 3 1 3 0 3 on top of earlier ones")
print("Passed: five values in two programs, without a race, and earlier counts stay.")

# %% nbgrader={"grade": true, "grade_id": "count_values_test_blocks", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
values, counts = torch.tensor([7], dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
clean(count_values, (1,), values, counts, 1, BLOCK=16, BINS=8)
lk.checks.expect_equal(counts.tolist(), [0] * 7 + [1], name="counts of one value in a block of 16")
print("Passed: one value, and fifteen lanes that do not count.")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(508)
# ragged; less than a block; exactly two blocks; everything in one bin, the first, where masked lanes would show
for what, values, BLOCK, BINS in [
    ("500 values", torch.randint(0, 16, (500,), generator=generator), 64, 16),
    ("10 values", torch.randint(0, 8, (10,), generator=generator), 64, 8),
    ("128 values", torch.randint(0, 32, (128,), generator=generator), 64, 32),
    ("300 times 5", torch.full((300,), 5), 128, 8),
    ("300 times 0", torch.zeros(300), 128, 8),
]:
    values = values.to(torch.int32)
    counts = torch.arange(BINS, dtype=torch.int32)  # earlier counts stay
    expected = counts.numpy() + np.bincount(values.numpy(), minlength=BINS)
    clean(count_values, (-(-len(values) // BLOCK),), values, counts, len(values), BLOCK=BLOCK, BINS=BINS)
    lk.checks.expect_equal(counts.tolist(), expected.tolist(), name=f"counts, {what}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "count_values_test_atomics", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 1,000 values in 4 programs and 16 bins: at most 4 * 16 atomics of 4 bytes, and not 1,000
generator = torch.Generator().manual_seed(518)
values, counts = (
    torch.randint(0, 16, (1000,), generator=generator).to(torch.int32),
    torch.zeros(16, dtype=torch.int32),
)
trace = clean(count_values, (4,), values, counts, 1000, BLOCK=256, BINS=16)
lk.checks.expect_equal(
    counts.tolist(), np.bincount(values.numpy(), minlength=16).tolist(), name="counts of 1,000 values"
)
lk.checks.expect_traffic(trace, "values", loaded_bytes=4000)
lk.checks.expect_traffic(trace, "counts", at_most_stored_bytes=4 * 16 * 4)
print("Passed: each value is loaded once, and 64 atomics do for 1,000 values.")

# %% [markdown]
# ## Part 7 · From source to PTX
#
# Triton's compiler lowers a kernel in four steps: **TTIR**, blocks and their arithmetic, still without threads; **TTGIR**, where each block has got a
# *layout* (which thread holds which element), shared memory and pipelining; **LLVM IR**, one thread; **PTX**, NVIDIA's portable assembly, from
# which `ptxas` makes machine code. It needs no GPU for any of that. Here is your own `add` as an H100 would get it. Choose a line: it lights up in
# every stage.

# %% jupyter={"source_hidden": true}
with lk.picture("One line of yours, and what becomes of it in four languages."):
    x = torch.zeros(1024)
    for n in (1000, 1008):
        compiled = lk.triton_trace.compile_for(add, "sm_90", x, x, x, n, BLOCK=1024, num_warps=4)
        loads, wide = compiled.ptx.count("ld.global"), compiled.ptx.count("ld.global.v4")
        print(f"n = {n:,}: {loads:2d} load instructions a thread, {wide} of them of four numbers at once")
    display(lk.widgets.compiled_stages(compiled))

# %% [markdown]
# Two kernels, one source. When a kernel is first launched, Triton asks of each integer and pointer whether 16 divides it. If it
# divides `n`, then no four neighbours are ever half inside, so a thread may load four numbers with one instruction. It does not divide 1,000: the same bytes,
# one at a time. That is one reason why the dimensions of models are multiples of 64.
#
# A matrix product keeps two things on the chip. Its operands wait in **shared memory**, in `stages` buffers: while the tensor cores work on one, the
# others are being filled. (It takes sizes that 16 divides; for others the compiler gives up on that.) Its sums sit in **registers**, spread evenly
# over `32 * warps` threads, one FP32 number in each. On an A100 `tl.dot` becomes `mma`, on an H100 `wgmma`: look for it below.

# So what a `Tiles` takes is a line of arithmetic each, and both have limits on an H100: 227 KiB of shared memory a block, 255 registers a thread.
# For 256 × 256 with 8 warps: 65,536 sums over 256 threads are 256 registers, one more than there are, before anything else has got one.

# %% nbgrader={"grade": false, "grade_id": "lab05_tiles", "locked": true, "schema_version": 3, "solution": false, "task": false}
SHARED_LIMIT = 232_448  # bytes of shared memory that one block can have on an H100 (227 KiB)
REGISTER_LIMIT = 255  # registers that one thread can have, on every GPU of today


@dataclass(frozen=True)
class Tiles:
    """One way to run the matrix product: tile sizes, buffers, warps a program, and rows of tiles in a group."""

    bm: int
    bn: int
    bk: int
    stages: int = 3
    warps: int = 4
    group: int = 8


def tile_resources(tiles):
    """Return (bytes of shared memory a program, registers a thread for the FP32 sums alone) with operands of two bytes."""
    shared = (
        tiles.stages * (tiles.bm * tiles.bk + tiles.bk * tiles.bn) * 2
    )  # one tile of A and one of B for each stage
    return shared, -(-tiles.bm * tiles.bn // (32 * tiles.warps))


def fits(tiles):
    """Return True if the shared memory is within SHARED_LIMIT and the sums leave a register for anything else."""
    shared, registers = tile_resources(tiles)
    return shared <= SHARED_LIMIT and registers < REGISTER_LIMIT


# %% jupyter={"source_hidden": true}
with lk.picture(
    "The arithmetic against the compiler's figures for your `matmul`. The last line spills: what has no register goes to memory and back."
):
    a = torch.zeros(512, 512).half()
    for tiles in [Tiles(64, 64, 32, 2, 4), Tiles(64, 128, 64, 3, 4), Tiles(128, 256, 32, 2, 4)]:
        shared, sums = tile_resources(tiles)
        compiled = lk.triton_trace.compile_for(
            matmul,
            "sm_90",
            a,
            a,
            a,
            512,
            512,
            512,
            BM=tiles.bm,
            BN=tiles.bn,
            BK=tiles.bk,
            num_stages=tiles.stages,
            num_warps=tiles.warps,
        )
        print(f"{tiles.bm:3d} x {tiles.bn:3d} x {tiles.bk}, {tiles.stages} stages, {tiles.warps} warps: ", end="")
        print(f"shared {shared:,} predicted, {compiled.shared_bytes:,} compiled; ", end="")
        print(f"{sums} registers for sums, {compiled.registers} in all, {compiled.spills} B spilled")
    display(lk.widgets.compiled_stages(compiled))

# %% [markdown]
# ## Part 8 · Autotuning is a search
#
# Which `Tiles` is fastest? `@triton.autotune` tries every configuration in a list and times it: compile, warm up, measure, a second or so each. Four
# sizes of `bm` and `bn`, three of `bk`, four of `stages`, three of `warps` are 576. Two things save most of that. What **cannot run** need not be tried. And
# what **cannot win** need not either: if the roofline says that a configuration takes at least 3 ms, and you have already measured one that takes 2, then it is out,
# unseen. A bound that never exceeds the truth is called *admissible*; trying the most promising first and stopping when the bound of the next is no better than
# the best so far is **best-first branch and bound**. It finds the true optimum, and no method that knows only the bounds can do with fewer measurements.

# %% [markdown]
# ### Task 9 · Search
# *6 points · 14 minutes · ●●○○*
#
# No kernel this time: plain Python, as in an autotuner.

# %%
lk.predict("search")


# %% nbgrader={"grade": false, "grade_id": "search", "locked": false, "schema_version": 3, "solution": true, "task": false}
def search(configs, fits, bound, measure):
    """The fastest configuration, with as few measurements as possible. Returns (config, its measured seconds).

    fits(config): False if it cannot run. bound(config): seconds that it cannot beat, cheap. measure(config): its
    seconds, expensive, never below its bound; math.inf if it turned out not to run. A config that does not fit, or whose
    bound is not below the best measurement so far, is never measured, and none is measured twice. Configurations cannot
    be compared with < or sorted, only their bounds can. Raises ValueError if nothing runs.

    >>> times = {"a": 3.0, "b": 2.0, "c": 9.0}
    >>> search(["a", "b", "c"], lambda c: True, lambda c: times[c] - 1, lambda c: times[c])
    ('b', 2.0)
    """
    ### BEGIN SOLUTION
    best, best_seconds = None, math.inf
    promising = sorted(((bound(config), number) for number, config in enumerate(configs) if fits(config)))
    for least, number in promising:
        if least >= best_seconds:
            break
        seconds = measure(configs[number])
        if seconds < best_seconds:
            best, best_seconds = configs[number], seconds
    if best is None:
        raise ValueError("no configuration runs")
    return best, best_seconds
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab05_bench", "locked": true, "schema_version": 3, "solution": false, "task": false}
class Counted:
    """A table of costs, called as a function, that remembers what it was asked."""

    def __init__(self, costs):
        self.costs, self.asked = costs, []

    def __call__(self, config):
        self.asked.append(config)
        return self.costs[config]


# %% nbgrader={"grade": true, "grade_id": "search_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
times = {"a": 3.0, "b": 2.0, "c": 9.0, "d": 1.0}
measure = Counted(times)
found = search(list(times), lambda c: c != "d", lambda c: times[c] - 1, measure)
lk.checks.expect_equal(found, ("b", 2.0), name="the fastest that fits")
lk.checks.expect_equal("d" in measure.asked, False, name="a configuration that cannot run was measured")
found = search(["greedy", "modest"], lambda c: True, lambda c: 1.0, {"greedy": math.inf, "modest": 5.0}.get)
lk.checks.expect_equal(found, ("modest", 5.0), name="one that seemed to fit and did not run")
# two configurations with the same bound; like Tiles, they have no order of their own
found = search([2j, 1j], lambda c: True, lambda c: 1.0, {2j: 4.0, 1j: 3.0}.get)
lk.checks.expect_equal(found, (1j, 3.0), name="configurations that cannot be compared with <")
print("Passed: the best of four, and of two of which one does not run.")

# %% nbgrader={"grade": true, "grade_id": "search_test_random", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_raises(ValueError, search, ["a"], lambda c: False, lambda c: 0.0, lambda c: 1.0)
lk.checks.expect_raises(ValueError, search, [], lambda c: True, lambda c: 0.0, lambda c: 1.0)
lk.checks.expect_raises(ValueError, search, ["a"], lambda c: True, lambda c: 0.0, lambda c: math.inf)
print("Passed: ValueError if nothing fits, if there is nothing, and if nothing runs.")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(510)
for count in (1, 2, 10, 60):
    costs = {f"config {i}": float(rng.uniform(1, 10)) for i in range(count)}
    bounds = {config: cost * float(rng.uniform(0.3, 1.0)) for config, cost in costs.items()}
    runs = {config: bool(rng.random() < 0.7) or i == 0 for i, config in enumerate(costs)}
    best = min((cost, config) for config, cost in costs.items() if runs[config])  # by trying them all
    measure = Counted(costs)
    found = search(list(costs), runs.get, bounds.get, measure)
    lk.checks.expect_equal(found, (best[1], best[0]), name=f"the best of {count}")
    lk.checks.expect_equal(
        [c for c in measure.asked if not runs[c]], [], name="configurations that cannot run, measured"
    )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "search_test_measurements", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# bounds 1 2 3 4, times 4 3 5 6: measure the first (4), the second (3); the third cannot be below 3, so it and the rest are out
costs, bounds = {"a": 4.0, "b": 3.0, "c": 5.0, "d": 6.0}, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
measure = Counted(costs)
lk.checks.expect_equal(
    search(["d", "c", "b", "a"], lambda c: True, bounds.get, measure), ("b", 3.0), name="the best of four"
)
lk.checks.expect_equal(sorted(measure.asked), ["a", "b"], name="measured")
print("Passed: two measurements for four configurations.")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(520)
for count in (5, 20, 100):
    costs = {f"config {i}": float(rng.uniform(1, 10)) for i in range(count)}
    bounds = {config: cost * float(rng.uniform(0.3, 0.99)) for config, cost in costs.items()}
    best = min(costs.values())
    measure = Counted(costs)
    found = search(list(costs), lambda c: True, bounds.get, measure)
    lk.checks.expect_close(found[1], best, rtol=0, name=f"seconds of the best of {count}")
    # whatever could still win by its bound has to be measured, and nothing else
    needed = sorted(config for config in costs if bounds[config] < best)
    lk.checks.expect_equal(sorted(measure.asked), needed, name=f"measured of {count}")
### END HIDDEN TESTS

# %% [markdown]
# Now on 288 ways to multiply two 4,096 × 4,096 matrices on an H100. There is none here, so a **model** stands in for the measurement: programs go in waves over the SMs, as many
# at a time as shared memory lets in; the buffers in flight must cover the latency (Little's law). The bound
# is a roofline with three roofs: FLOPs at peak, what programs ask of the L2 cache at its bandwidth, and what the groups leave to memory at memory's.

# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab05_model", "locked": true, "schema_version": 3, "solution": false, "task": false}
H100 = lk.specs.get("h100-sxm")
PEAK, BANDWIDTH, SMS = H100.peaks["float16"].value, H100.bandwidths["dram"].value, int(H100.facts["sms"].value)
L2_BANDWIDTH = 9e12  # bytes a second to all SMs; like the latency a figure of the right size, not a measurement
LATENCY = 600e-9  # seconds from asking to having


def roofline_bound(tiles, n=4096):
    """Seconds that no n³ product in these tiles can beat: the slowest of FLOPs, bytes from L2, and bytes from memory."""
    down, across = -(-n // tiles.bm), -(-n // tiles.bn)
    padded = 2 * down * tiles.bm * across * tiles.bn * n
    asked = 2 * (across + down) * n * n
    delivered = 2 * (2 + -(-down // tiles.group)) * n * n  # A once, B once a group, C once
    return max(padded / PEAK, asked / L2_BANDWIDTH, delivered / BANDWIDTH)


def model_seconds(tiles, n=4096):
    """A model, not a measurement: programs run in waves, and loads take latency over the bytes in flight."""
    buffer = (tiles.bm + tiles.bn) * tiles.bk * 2
    registers = min(REGISTER_LIMIT, tiles.bm * tiles.bn // (32 * tiles.warps) + 48)
    by_shared = 233_472 // (tiles.stages * buffer + 1024)
    resident = min(by_shared, 65_536 // (32 * tiles.warps * registers), 64 // tiles.warps)
    if resident == 0:
        return math.inf
    programs = -(-n // tiles.bm) * -(-n // tiles.bn)
    waves = -(-programs // (SMS * resident))
    computing = waves * resident * 2 * tiles.bm * tiles.bn * n / (PEAK / SMS)
    waiting = (
        waves * -(-n // tiles.bk) * LATENCY / (tiles.stages - 1)
    )  # a step cannot start before its tiles are there
    ends = waves * 2 * LATENCY  # to fill the buffers, and to get the tile of C out
    return max(computing, waiting, roofline_bound(tiles, n)) + ends


space = [
    Tiles(bm, bn, bk, stages, warps, group)
    for bm in (64, 128, 256)
    for bn in (64, 128, 256)
    for bk in (32, 64)
    for stages in (2, 3, 4, 5)
    for warps in (4, 8)
    for group in (1, 8)
]

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Each dot is a configuration: what the bound promised, what the model said. Only those left of the dashed line had to be tried."
):
    tried = []

    def try_one(tiles):
        tried.append(tiles)
        return model_seconds(tiles)

    best, seconds = search(space, fits, roofline_bound, try_one)
    possible = [tiles for tiles in space if fits(tiles)]
    print(f"{len(space)} configurations, {len(possible)} fit, {len(tried)} tried (by the model, not measured)")
    print(f"best: {best}, {1e6 * seconds:.0f} µs, {2 * 4096**3 / seconds / 1e12:.0f} TFLOP/s")
    figure = go.Figure()
    for name, chosen, marker in [
        ("never tried", [t for t in possible if t not in tried], {"color": "#7c7c7c", "size": 5}),
        ("tried", tried, {"color": "#cc5a00", "size": 9, "symbol": "diamond"}),
    ]:
        figure.add_scatter(
            x=[1e6 * roofline_bound(t) for t in chosen],
            y=[1e6 * model_seconds(t) for t in chosen],
            mode="markers",
            name=name,
            marker=marker,
        )
    figure.add_vline(x=1e6 * seconds, line={"color": "#7a7a7a", "dash": "dash"})
    figure.update_layout(height=340, xaxis_title="bound, µs", yaxis_title="model, µs")
    lk.show(
        figure,
        summary="Bound against modelled time of every configuration that fits; the search tried only part of them.",
    )

# %% [markdown]
# ## Part 9 · The last kernel: a loss in one pass
#
# A language model gives every token a row of *logits*, one for each word of its vocabulary. Its loss is the cross-entropy
#
# $$\ell_r = \log \sum_j e^{x_{rj}} - x_{r,\,\mathrm{label}_r},$$
#
# one number a row. With 128,000 words the matrix of logits is the largest array of a training step, and torch's basic operations move
# it six times to get that one number. Your softmax would move it twice, and needs a row to fit into a block. Once is enough, with rows of any length.
#
# What stands in the way is the maximum: it is known only at the end of the row, and the sum of powers needs it from the start. The way out is to
# use the largest number *so far*, $m$, and to **correct the sum whenever $m$ grows**. From $m$ to $m'$, every power in the sum
# must shrink by the same factor, $e^{m - m'}$. For the row 1 3 2 5 in blocks of two:
#
# | block | largest so far $m$ | sum $s$ of $e^{x - m}$ |
# |---|---|---|
# | (none) | $-\infty$ | $0$ |
# | 1, 3 | $3$ | $0 + e^{1-3} + e^{3-3} = 1.135$ |
# | 2, 5 | $5$ | $1.135 \cdot e^{3-5} + e^{2-5} + e^{5-5} = 1.203$ |
#
# At the end $\log \sum_j e^{x_j} = m + \log s = 5 + \log 1.203 = 5.185$. This is **online softmax**. FlashAttention is the same correction, applied to a
# sum of vectors: [lab 09](../lab09_flash_attention/lab09_flash_attention.ipynb) takes your loop from here.

# %% [markdown]
# ### Task 10 · Cross-entropy, reading the logits once
# *14 points · 20 minutes · ●●●○*
#
# Walk along the row as in task 7, with the mask and `other` of task 3. The label's logit may be loaded a second time; nothing else may.

# %%
lk.predict("token_loss")


# %% nbgrader={"grade": false, "grade_id": "token_loss", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def token_loss(x, labels, out, N, x_row, BLOCK: tl.constexpr):
    """out[r] = log(Σ_j exp(x[r, j])) - x[r, labels[r]], for rows of any length N that begin x_row elements apart.

    Program r takes row r, and loads each of its N numbers once (the label's perhaps twice). x is fp32, fp16 or bf16 and
    holds finite numbers of any size; labels are int64, from 0 to N - 1; out is fp32, and so is arithmetic.
    """
    ### BEGIN SOLUTION
    row = x + tl.program_id(0) * x_row
    lanes = tl.arange(0, BLOCK)
    top, total = -float("inf"), 0.0
    for start in range(0, N, BLOCK):
        at = start + lanes
        values = tl.load(row + at, mask=at < N, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(values, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(values - higher), axis=0)
        top = higher
    chosen = tl.load(row + tl.load(labels + tl.program_id(0))).to(tl.float32)
    tl.store(out + tl.program_id(0), top + tl.log(total) - chosen)
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab05_losses", "locked": true, "schema_version": 3, "solution": false, "task": false}
def losses(x, labels, block):
    """Launch token_loss cleanly on the rows of x. Returns the losses and the trace."""
    out = unwritten(len(x))
    trace = clean(token_loss, (len(x),), x, torch.tensor(labels), out, x.shape[1], x.stride(0), BLOCK=block)
    return out, trace


def exact_losses(x, labels):
    """The same from the definition, in float64."""
    wide = x.double()
    return torch.logsumexp(wide, 1) - wide[torch.arange(len(x)), torch.tensor(labels)]


# %% nbgrader={"grade": true, "grade_id": "token_loss_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
x = torch.tensor([[1.0, 3.0, 2.0, 5.0], [5.0, 3.0, 2.0, 1.0]])
for what, block in [("two blocks of two", 2), ("one block", 4), ("one block that is not full", 8)]:
    out, _ = losses(x, [3, 1], block)
    lk.checks.expect_close(
        out, [0.18518, 2.18518], rtol=0, atol=2e-5, name=f"losses of a rising and a falling row, {what}"
    )
print("Passed: the row 1 3 2 5 and its mirror image, in one block and in several.")

# %% nbgrader={"grade": true, "grade_id": "token_loss_test_bytes", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(519)
x, labels = torch.randn(5, 100, generator=generator), [0, 99, 50, 31, 32]
out, trace = losses(x, labels, 32)
lk.checks.expect_close(out, exact_losses(x, labels), rtol=1e-5, atol=1e-6, name="losses of 5 rows of 100, BLOCK=32")
lk.checks.expect_traffic(trace, "x", at_least_loaded_bytes=4 * 500, at_most_loaded_bytes=4 * 505)
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=4 * 5)
print("Passed: the logits are read once, and one number a row is written.")

# %% nbgrader={"grade": true, "grade_id": "token_loss_test_rows", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(529)
rows = {
    "far above zero": 1000.0 + torch.randn(2, 10, generator=generator),
    "far below zero": -1000.0 + torch.randn(2, 10, generator=generator),
    "with its largest number at the very end": torch.arange(10.0).repeat(2, 1) * 30,
    "with its largest number at the very start": torch.arange(10.0).flip(0).repeat(2, 1) * 30,
}
for what, x in rows.items():
    out, _ = losses(x, [9, 4], 4)
    lk.checks.expect_close(out, exact_losses(x, [9, 4]), rtol=1e-5, atol=1e-4, name=f"losses of rows {what}")
x = -20_000.0 + torch.arange(10.0).repeat(2, 1)  # numbers of this size are 0.002 apart in FP32
out, _ = losses(x, [9, 4], 4)
lk.checks.expect_close(out, exact_losses(x, [9, 4]), rtol=1e-5, atol=4e-3, name="losses of rows around -20,000")
print("Passed: numbers whose powers are 0 or infinite in FP32, and a maximum in the last block or in the first.")
### BEGIN HIDDEN TESTS
for N, BLOCK in [
    (1, 8),
    (8, 8),
    (9, 8),
    (37, 16),
    (100, 128),
]:  # one number, a whole block, one more, several, less than a block
    for what, size in (("ordinary", 2.0), ("large", 300.0)):
        x = size * torch.randn(3, N, generator=generator)
        labels = torch.randint(0, N, (3,), generator=generator).tolist()
        out, _ = losses(x, labels, BLOCK)
        lk.checks.expect_close(
            out, exact_losses(x, labels), rtol=1e-5, atol=1e-4, name=f"losses of {what} rows of {N}, BLOCK={BLOCK}"
        )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "token_loss_test_types", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(539)
x = layouts(torch.randn(3, 10, generator=generator))["rows padded by 3"]
out, _ = losses(x, [0, 9, 5], 4)
lk.checks.expect_close(
    out, exact_losses(x, [0, 9, 5]), rtol=1e-5, atol=1e-5, name="losses of padded rows, x_row = 13"
)
x = (3 * torch.randn(2, 400, generator=generator)).bfloat16()
out, _ = losses(x, [7, 300], 64)
lk.checks.expect_close(
    out, exact_losses(x, [7, 300]), rtol=1e-5, atol=1e-5, name="losses of BF16 logits, arithmetic in FP32"
)
print("Passed: rows with padding, and BF16 logits.")
### BEGIN HIDDEN TESTS
x = layouts(torch.randn(4, 21, generator=generator))["rows padded by 3"]
out, _ = losses(x, [20, 0, 5, 8], 8)
lk.checks.expect_close(
    out, exact_losses(x, [20, 0, 5, 8]), rtol=1e-5, atol=1e-5, name="losses of 4 padded rows of 21"
)
for dtype in (torch.float16, torch.bfloat16):
    x = (3 * torch.randn(2, 300, generator=generator)).to(dtype)
    out, _ = losses(x, [299, 0], 32)
    lk.checks.expect_close(out, exact_losses(x, [299, 0]), rtol=1e-5, atol=1e-5, name=f"losses of {dtype} logits")
### END HIDDEN TESTS

# %% [markdown]
# Now the real thing: the logits of a small language model on text that it has never seen, and the loss of every token by your kernel. The exponential
# of the mean is the model's *perplexity*, on which lab 06 will judge quantization.

# %% jupyter={"source_hidden": true}
with lk.picture("One loss, three ways to compute it: the same perplexity, and a sixth of the bytes."):
    from mlsys_labkit import lm

    model, tokenizer = lm.load()
    tokens = torch.tensor(tokenizer.encode(lm.held_out())[: 33 if smoke else 129])
    with torch.no_grad():
        logits = model(tokens[None, :-1])[0].contiguous()
    labels, (rows, words) = tokens[1:], logits.shape

    def loss_chain(x, labels):
        top = x.amax(1, keepdim=True)
        shifted = x - top
        powers = torch.exp(shifted)
        total = powers.sum(1, keepdim=True)
        return torch.log(total) - shifted.gather(1, labels[:, None])

    def by_softmax(x, labels):  # task 3 writes the probabilities, then one number of each row is read
        probabilities = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        trace = lk.triton_trace.trace(softmax)[(len(x),)](
            x, probabilities, x.shape[1], x.shape[1], x.shape[1], BLOCK=block
        )
        return -torch.log(probabilities.gather(1, labels[:, None])), trace.work.bytes_moved + 2 * 4 * len(x)

    by_torch, chain = loss_chain(logits, labels), lk.count_work(loss_chain, logits, labels)
    two, two_bytes = by_softmax(logits, labels)
    one = torch.empty(rows)
    fused = lk.triton_trace.trace(token_loss)[(rows,)](logits, labels, one, words, words, BLOCK=512).work
    once = logits.nbytes
    print(f"{rows} tokens, {words:,} words: the logits are {once / 1e6:.2f} MB")
    for name, loss, moved in [
        ("torch, operation by operation", by_torch, chain.bytes_moved),
        ("your softmax, then one number a row", two, two_bytes),
        ("your kernel, one pass", one, fused.bytes_moved),
    ]:
        print(
            f"{name:36s} {moved / 1e6:6.2f} MB, {moved / once:4.1f} times the logits   perplexity {float(loss.mean().exp()):.3f}"
        )
    h100 = lk.specs.get("h100-sxm").bandwidths["dram"].value
    step = 8192 * 128_256 * 4
    print(
        f"\n8,192 tokens of a vocabulary of 128,256 in FP32 are {step / 1e9:.1f} GB. At an H100's {h100 / 1e12:.2f} TB/s that takes at least"
    )
    print(
        f"{1e3 * step * chain.bytes_moved / once / h100:.1f} ms as a chain and {1e3 * step * fused.bytes_moved / once / h100:.1f} ms in your kernel (counted bytes, no measurement)."
    )

# %% [markdown]
# ## On your GPU
#
# Not graded. Where there is a GPU, the next cells time your kernels against torch's, let `search` measure for real, and show the Triton that
# `torch.compile` writes for bias and GELU: compare it with yours. Elsewhere they say why they do nothing. Last comes the product once more.


# %% jupyter={"source_hidden": true}
@triton.jit
def matmul_grouped(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    i, j = tile_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    matmul_tile(a, b, c, M, N, K, i, j, BM, BN, BK)


device = lk.detect()
if not on_gpu:
    print(f"Skipped: this needs a CUDA GPU, and here is: {device.label}. Nothing was measured.")
else:
    x, bias = torch.randn(4096, 8192, device="cuda"), torch.randn(8192, device="cuda")
    out, labels, each = (
        torch.empty_like(x),
        torch.randint(0, 8192, (4096,), device="cuda"),
        torch.empty(4096, device="cuda"),
    )
    compiled_chain = torch.compile(bias_gelu_chain)
    for name, call in {
        "softmax, yours": lambda: softmax[(4096,)](x, out, 8192, 8192, 8192, BLOCK=8192, num_warps=8),
        "softmax, torch": lambda: torch.softmax(x, 1),
        "bias + GELU, yours": lambda: bias_gelu[(1024, 32)](x, bias, out, 4096, 8192, ROWS=4, COLUMNS=256),
        "bias + GELU, torch in eager mode": lambda: bias_gelu_chain(x, bias),
        "bias + GELU, torch.compile": lambda: compiled_chain(x, bias),
        "cross-entropy, yours": lambda: token_loss[(4096,)](x, labels, each, 8192, 8192, BLOCK=2048, num_warps=8),
        "cross-entropy, torch": lambda: torch.nn.functional.cross_entropy(x, labels, reduction="none"),
    }.items():
        call()
        timing = lk.bench(call, name=name, device="cuda")
        moved = x.nbytes if name.startswith("cross-entropy") else 2 * x.nbytes
        print(
            timing,
            f"  {moved / timing.median / 1e9:,.0f} GB/s, counting {'once in' if moved == x.nbytes else 'x once in and once out'}",
            sep="\n",
        )

# %% jupyter={"source_hidden": true}
if not on_gpu:
    print(f"Skipped: this needs a CUDA GPU, and here is: {device.label}. Nothing was measured.")
else:
    n = 4096
    a, b = torch.randn(n, n, device="cuda").half(), torch.randn(n, n, device="cuda").half()
    c = torch.empty(n, n, device="cuda").half()

    def measured(tiles):
        grid = (triton.cdiv(n, tiles.bm) * triton.cdiv(n, tiles.bn),)
        sizes = {"BM": tiles.bm, "BN": tiles.bn, "BK": tiles.bk, "GROUP": tiles.group}
        try:
            return lk.bench(
                lambda: matmul_grouped[grid](
                    a, b, c, n, n, n, **sizes, num_stages=tiles.stages, num_warps=tiles.warps
                ),
                device="cuda",
            ).median
        except triton.runtime.errors.OutOfResources:
            return math.inf

    few = [tiles for tiles in space if tiles.bk == 64 and tiles.stages in (3, 4) and tiles.group == 8]
    known = "H100" in torch.cuda.get_device_name()  # the bounds are an H100's; of another GPU nothing is promised
    best, seconds = search(few, fits, roofline_bound if known else lambda tiles: 0.0, measured)
    library = lk.bench(torch.matmul, a, b, name="torch.matmul")
    print(
        f"{best}: {2 * n**3 / seconds / 1e12:.0f} TFLOP/s, {library.median / seconds:.0%} of torch.matmul's speed"
    )

# %%
if not on_gpu:
    print(f"Skipped: this needs a CUDA GPU, and here is: {device.label}. Nothing was compiled.")
else:
    from torch._inductor.utils import run_and_get_code

    _, (code, *_) = run_and_get_code(torch.compile(bias_gelu_chain), x, bias)
    first = code.index("@triton.jit")
    print(code[first : code.index("'''", first)])

# %% [markdown]
# ### The same product on Hopper
#
# `matmul_tile` runs on any GPU. `matmul_persistent` below is given, computes the same product, and differs in four ways:
#
# - **Addresses.** In `matmul_tile` the threads compute them. A *tensor descriptor* holds an array's address, bounds and strides and the shape of a
#   block. `a.load([row, column])` names one corner, and a copy engine in the multiprocessor, the TMA unit, computes the rest.
# - **Masks.** There are none, because the descriptor knows the bounds: elements outside are read as 0 and not written. In return, each
#   row must begin at a multiple of 16 bytes. In FP16, $K$ and $N$ must be multiples of 8.
# - **Programs.** One program per multiprocessor walks over many tiles, in the order of `tile_of`. `flatten=True` makes one loop of two, so that
#   the loads of the next tile run while this one is stored. `matmul_grouped` starts a program per tile, and waits for its first loads each time.
# - **Sums.** `sums` goes into `tl.dot`, and the tensor cores add to it in place.
#
# On an H100 80GB HBM3 (2026-11-27, torch 2.11, Triton 3.6.0; $4096^3$ in FP16) `matmul_grouped` has 90 % of cuBLAS's speed, and this kernel 99 %.

# %%
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def matmul_persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """c[M, N] = a[M, K] b[K, N], for descriptors with blocks of [BM, BK] (a), [BK, BN] (b) and [BM, BN] (c)."""
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        i, j = tile_of(tile, tiles_m, tiles_n, GROUP)
        sums = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            sums = tl.dot(a.load([i * BM, k]), b.load([k, j * BN]), sums)
        c.store([i * BM, j * BN], sums.to(c.dtype))


def descriptors(a, b, c, BM, BN, BK):
    blocks = [BM, BK], [BK, BN], [BM, BN]
    return [TensorDescriptor.from_tensor(array, block) for array, block in zip((a, b, c), blocks)]


with lk.picture(
    "Nine tiles, four programs, ragged edges, no mask in the source. A program loads some rows and columns again, for its next tile."
):
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(80, 40, generator=generator).half(), torch.randn(40, 72, generator=generator).half()
    c, tiles = unwritten(80, 72, dtype=torch.float16), {"BM": 32, "BN": 32, "BK": 16}
    trace = clean(matmul_persistent, (4,), *descriptors(a, b, c, **tiles), 80, 72, 40, **tiles, GROUP=2)
    lk.checks.expect_close(c, a.double() @ b.double(), rtol=2**-10, atol=1e-5, name="a b, 80 x 40 times 40 x 72")
    display(trace)

# %% jupyter={"source_hidden": true}
if not on_gpu or torch.cuda.get_device_capability() < (9, 0):  # before Hopper, Triton makes addresses and masks of descriptors
    print(f"Skipped: this needs a CUDA GPU with TMA units, and here is: {device.label}. Nothing was measured.")
else:
    a, b = torch.randn(n, n, device="cuda").half(), torch.randn(n, n, device="cuda").half()
    c, exact = torch.empty_like(a), a.float() @ b.float()
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    tiles = {"BM": 128, "BN": 256, "BK": 64}
    made = descriptors(a, b, c, **tiles)
    found = {"BM": best.bm, "BN": best.bn, "BK": best.bk, "GROUP": best.group}
    grid = (triton.cdiv(n, best.bm) * triton.cdiv(n, best.bn),)
    for name, call in {
        "torch.matmul": lambda: torch.matmul(a, b, out=c),
        "matmul_grouped": lambda: matmul_grouped[grid](
            a, b, c, n, n, n, **found, num_stages=best.stages, num_warps=best.warps
        ),
        "matmul_persistent": lambda: matmul_persistent[(programs,)](
            *made, n, n, n, **tiles, GROUP=8, num_stages=3, num_warps=8
        ),
    }.items():
        c.fill_(math.nan)
        try:
            call()
        except triton.runtime.errors.OutOfResources as error:  # the tiles are those of an H100
            print(f"{name}: {error}")
            continue
        torch.testing.assert_close(c.float(), exact, rtol=2**-10, atol=1e-2)
        graph = torch.cuda.CUDAGraph()  # replayed without Python, whose launch takes a good part of such a time
        with torch.cuda.graph(graph):
            call()
        timing = lk.bench(graph.replay, name=name, device="cuda")
        print(timing, f"  {2 * n**3 / timing.median / 1e12:.0f} TFLOP/s", sep="\n")

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
# - A program owns a block. Masks say which lanes exist; `other` says what the rest must be so that a reduction does not notice.
# - Strides are arguments. Nothing is contiguous until somebody promises it.
# - Fusion saves round trips. Count the chain, count the kernel, and you know the speed-up of anything memory bound.
# - Order costs nothing and decides what a cache can do.
# - Load narrow, add in FP32, round once.
# - A maximum that is not known yet is no reason for a second pass: correct the sum when it grows.
# - A race that gives the right answer is a race.
# - Before you measure, ask what fits and what can win.
#
# ## Next
#
# [Chapter 8, *Compilers*](../../course/chapters/08_compilers.md), goes from here to Dynamo, Inductor, XLA and TVM. Lab 06 uses these kernels to read
# weights of four bits, and lab 09 makes FlashAttention of the last one.
