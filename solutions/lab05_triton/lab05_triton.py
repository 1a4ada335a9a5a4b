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
# - search a space of configurations without trying them all.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 150 minutes | ●●●○ | any Linux machine; a GPU only for the last, ungraded section | 100 in 10 tasks |
#
# Needs lab 01 (strides, bytes) and, for the comparison, lab 04 (tiles). Reads along with chapter 8, *Compilers*.
#
# Each task goes the same way: **predict** (your guess is not graded, committing to it is what teaches), **write**,
# **check**, then **look**. Marks come from right answers and from counted bytes, never from a clock: a slow laptop loses nothing.
# Stuck? `lk.hint("softmax")` in a new cell gives a nudge, and a stronger one each time you ask.
# `lk.progress()` in a new cell shows how far you are.

# %% tags=["install"]
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% nbgrader={"grade": false, "grade_id": "lab05_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
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
# On a GPU this ran compiled. On any other machine the kit interpreted it, program after program, with the same results.
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
# place; `tl.store(pointers, values, mask=inside)` leaves it alone. A masked-off lane costs no bytes.
#
# The next cell is what the tests use: run under the tracer, complain if anything was found.


# %% nbgrader={"grade": false, "grade_id": "lab05_helpers", "locked": true, "schema_version": 3, "solution": false, "task": false}
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
# *8 points · 10 minutes · ●○○○*
#
# The grid must cover all `n` elements, and the mask must stop where they end. (`triton.cdiv(a, b)` divides and rounds up.)

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


# %% nbgrader={"grade": true, "grade_id": "add_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(501)
x, y, out = torch.randn(1000, generator=generator), torch.randn(1000, generator=generator), unwritten(1000)
lk.checks.expect_equal(add_grid(1000, 256), (4,), name="grid for 1,000 elements in blocks of 256")
clean(add, add_grid(1000, 256), x, y, out, 1000, BLOCK=256)
lk.checks.expect_close(out, x.double() + y.double(), rtol=1e-6, atol=1e-6, name="x + y")
### BEGIN HIDDEN TESTS
# one element; one short of a block; exactly one; one more; a block of one lane
for n, BLOCK in [(1, 64), (63, 64), (64, 64), (65, 64), (5, 1), (300, 128)]:
    x, y, out = torch.randn(n, generator=generator), torch.randn(n, generator=generator), unwritten(n)
    lk.checks.expect_equal(add_grid(n, BLOCK), (-(-n // BLOCK),), name=f"grid, n={n} BLOCK={BLOCK}")
    clean(add, (-(-n // BLOCK),), x, y, out, n, BLOCK=BLOCK)
    lk.checks.expect_close(out, x.double() + y.double(), rtol=1e-6, atol=1e-6, name=f"x + y, n={n} BLOCK={BLOCK}")
# arrays longer than n: what lies behind n belongs to somebody else
x, y, out = torch.ones(20), torch.ones(20), torch.full((20,), 7.0)
clean(add, (2,), x, y, out, 11, BLOCK=8)
lk.checks.expect_equal(out.tolist(), [2.0] * 11 + [7.0] * 9, name="out beyond n")
# half the bits, rounded once
x, y, out = torch.tensor([1.0, 2.5, 3.0]).bfloat16(), torch.tensor([0.5, 2.5, 2**-9]).bfloat16(), unwritten(3, dtype=torch.bfloat16)
clean(add, (1,), x, y, out, 3, BLOCK=4)
lk.checks.expect_equal(out.tolist(), [1.5, 5.0, 3.0], name="x + y in bfloat16")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "add_test_bytes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
x, y, out = torch.ones(1000), torch.ones(1000), unwritten(1000)
trace = clean(add, (4,), x, y, out, 1000, BLOCK=256)
lk.checks.expect_close(out, torch.full((1000,), 2.0), rtol=0, name="x + y")
lk.checks.expect_traffic(trace, "x", loaded_bytes=4000, stored_bytes=0)
lk.checks.expect_traffic(trace, "y", loaded_bytes=4000, stored_bytes=0)
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=4000)

# %%
with lk.picture("Line by line: 1,000 elements asked for, and 24 lanes masked off in the last program."):
    display(lk.triton_trace.trace(add)[add_grid(1000, 256)](torch.ones(1000), torch.ones(1000), torch.zeros(1000), 1000, BLOCK=256))

# %% [markdown]
# ### Task 2 · A matrix that is not contiguous
# *8 points · 12 minutes · ●●○○*
#
# A block may have two axes: `rows[:, None]` is a column, `columns[None, :]` a row, and together they broadcast as in
# NumPy. A tensor with *strides* (lab 01) keeps element $(r, c)$ at `r * x_row + c * x_column`, and a transposed or sliced view is a
# tensor like any other. Here, program $(i, j)$ takes a block of `ROWS` × `COLUMNS`, and every row has its own factor.

# %%
lk.predict("scale_rows")


# %% nbgrader={"grade": false, "grade_id": "scale_rows", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def scale_rows(x, scale, out, M, N, x_row, x_column, out_row, out_column, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out[r, c] = scale[r] * x[r, c] for x and out [M, N] with these strides, in elements; scale [M] is contiguous.

    Program (i, j) takes the rows from i * ROWS and the columns from j * COLUMNS on, and loads each of its scales once.
    """
    ### BEGIN SOLUTION
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    block = tl.load(x + rows[:, None] * x_row + columns[None, :] * x_column, mask=inside)
    factor = tl.load(scale + rows, mask=rows < M)
    tl.store(out + rows[:, None] * out_row + columns[None, :] * out_column, factor[:, None] * block, mask=inside)
    ### END SOLUTION


# %% nbgrader={"grade": false, "grade_id": "lab05_layouts", "locked": true, "schema_version": 3, "solution": false, "task": false}
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


# %% nbgrader={"grade": true, "grade_id": "scale_rows_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
x, scale, out = torch.arange(15.0).reshape(5, 3), torch.tensor([1.0, 10.0, 100.0, 1000.0, 2.0]), unwritten(5, 3)
scaled(x, scale, out, rows=4, columns=4)
lk.checks.expect_close(out, scale[:, None] * x, rtol=1e-6, name="rows of a contiguous 5 x 3")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(502)
# ragged both ways; a single row; a single column; blocks wider than the matrix
for M, N, rows, columns in [(9, 13, 4, 8), (1, 10, 2, 4), (7, 1, 4, 2), (3, 5, 8, 16)]:
    values, scale = torch.randn(M, N, generator=generator), torch.randn(M, generator=generator)
    for of_x, x in layouts(values).items():
        for of_out, out in layouts(torch.full((M, N), float("nan"))).items():
            scaled(x, scale, out, rows, columns)
            lk.checks.expect_close(
                out, scale[:, None].double() * values.double(), rtol=1e-6, atol=1e-7, name=f"{M} x {N}, x {of_x}, out {of_out}"
            )
# what lies between the rows is not yours to write
padded = torch.full((4, 7), 99.0)
scaled(torch.ones(4, 4), torch.ones(4), padded[:, :4], 2, 2)
lk.checks.expect_close(padded, torch.tensor([[1.0] * 4 + [99.0] * 3] * 4), rtol=0, name="rows of out with their padding")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "scale_rows_test_bytes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 20 x 22 in blocks of 8 x 8: nine programs, and each row's scale is needed by three of them
generator = torch.Generator().manual_seed(512)
values, scale = torch.randn(20, 22, generator=generator), torch.randn(20, generator=generator)
x, out = layouts(values)["transposed"], unwritten(20, 22)
trace = scaled(x, scale, out, rows=8, columns=8)
lk.checks.expect_close(out, scale[:, None].double() * values.double(), rtol=1e-6, atol=1e-7, name="x transposed, 20 x 22")
lk.checks.expect_traffic(trace, "x", loaded_bytes=4 * 20 * 22)
lk.checks.expect_traffic(trace, "scale", loaded_bytes=3 * 4 * 20)
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=4 * 20 * 22)

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
# *12 points · 15 minutes · ●●○○*

# %%
lk.predict("softmax")


# %% nbgrader={"grade": false, "grade_id": "softmax", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def softmax(x, out, N, x_row, out_row, BLOCK: tl.constexpr):
    """out[r] = softmax(x[r]) for rows of N ≤ BLOCK elements. Program r takes row r.

    x and out may be fp32, fp16 or bf16; arithmetic is in fp32. Neighbours in a row are neighbours in memory, and rows
    begin x_row and out_row elements apart. Rows hold finite numbers of any size, or -inf beside them.
    """
    ### BEGIN SOLUTION
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < N
    values = tl.load(x + row * x_row + columns, mask=inside, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * out_row + columns, powers / tl.sum(powers, axis=0), mask=inside)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "softmax_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
x, out = torch.tensor([[0.0, math.log(3.0), 0.0], [1.0, 1.0, 1.0]]), unwritten(2, 3)
clean(softmax, (2,), x, out, 3, 3, 3, BLOCK=4)
lk.checks.expect_close(out, [[0.2, 0.6, 0.2], [1 / 3] * 3], rtol=1e-5, name="softmax of two rows")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(503)
rows = {
    "ordinary numbers": torch.randn(3, 37, generator=generator),
    "all far below zero": torch.randn(3, 37, generator=generator) - 200.0,  # whatever stands behind the end must not win
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
x = layouts(torch.randn(5, 30, generator=generator))["rows padded by 3"]
out = layouts(torch.full((5, 30), float("nan")))["rows padded by 3"]
clean(softmax, (5,), x, out, 30, 33, 33, BLOCK=32)
lk.checks.expect_close(out, torch.softmax(x.double(), 1), rtol=1e-5, atol=1e-7, name="softmax of padded rows")
for dtype in (torch.bfloat16, torch.float16):
    x = (3 * torch.randn(4, 50, generator=generator)).to(dtype)
    out = unwritten(4, 50, dtype=dtype)
    clean(softmax, (4,), x, out, 50, 50, 50, BLOCK=64)
    unit = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11  # one rounding, of the result
    lk.checks.expect_close(out, torch.softmax(x.double(), 1), rtol=1.02 * unit, atol=1e-7, name=f"softmax in {dtype}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "softmax_test_bytes", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(513)
x, out = torch.randn(6, 100, generator=generator), unwritten(6, 100)
trace = clean(softmax, (6,), x, out, 100, 100, 100, BLOCK=128)
lk.checks.expect_close(out, torch.softmax(x.double(), 1), rtol=1e-5, atol=1e-7, name="softmax of 6 x 100")
lk.checks.expect_traffic(trace, "x", loaded_bytes=4 * 600)  # one pass: each element once
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=4 * 600)

# %%
with lk.picture("The same softmax, operation by operation and in one pass."):

    def softmax_chain(x):
        shifted = x - x.amax(1, keepdim=True)
        powers = torch.exp(shifted)
        return powers / powers.sum(1, keepdim=True)

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

# %% [markdown]
# ### Task 4 · Bias and GELU in one kernel
# *10 points · 12 minutes · ●●○○*

# %%
lk.predict("bias_gelu")


# %% nbgrader={"grade": false, "grade_id": "bias_gelu", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def bias_gelu(x, bias, out, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out[r, c] = gelu(x[r, c] + bias[c]) for contiguous x and out [M, N] and bias [N]; fp32 or bf16, arithmetic in fp32.

    Program (i, j) takes the rows from i * ROWS and the columns from j * COLUMNS on, and loads each of its biases once.
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


# %% nbgrader={"grade": true, "grade_id": "bias_gelu_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
x, bias, out = torch.tensor([[0.0, 1.0, -1.0], [2.0, -3.0, 0.5]]), torch.tensor([0.0, 1.0, 0.0]), unwritten(2, 3)
clean(bias_gelu, (1, 1), x, bias, out, 2, 3, ROWS=2, COLUMNS=4)
exact = torch.nn.functional.gelu((x + bias).double())
lk.checks.expect_close(out, exact, rtol=1e-5, atol=1e-6, name="gelu(x + b) of 2 x 3")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(504)
for M, N, rows, columns in [(9, 21, 4, 8), (1, 40, 2, 16), (13, 1, 4, 2), (8, 16, 4, 8)]:  # ragged, a row, a column, whole blocks
    x, bias, out = 2 * torch.randn(M, N, generator=generator), torch.randn(N, generator=generator), unwritten(M, N)
    clean(bias_gelu, (-(-M // rows), -(-N // columns)), x, bias, out, M, N, ROWS=rows, COLUMNS=columns)
    exact = torch.nn.functional.gelu(x.double() + bias.double())
    lk.checks.expect_close(out, exact, rtol=1e-5, atol=2e-6, name=f"gelu(x + b), {M} x {N} in {rows} x {columns}")
# bf16 in and out: one rounding, at the very end. A sum that was rounded first is off by more where gelu is steep
x, bias = torch.randn(16, 64, generator=generator).bfloat16(), torch.randn(64, generator=generator).bfloat16()
out = unwritten(16, 64, dtype=torch.bfloat16)
clean(bias_gelu, (4, 2), x, bias, out, 16, 64, ROWS=4, COLUMNS=32)
exact = torch.nn.functional.gelu(x.double() + bias.double())
lk.checks.expect_close(out, exact, rtol=1.02 * 2.0**-8, atol=2e-6, name="gelu(x + b) in bfloat16")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "bias_gelu_test_bytes", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 20 x 48 in blocks of 8 x 16: three programs down need each bias once, and x moves once in and once out
generator = torch.Generator().manual_seed(514)
x, bias, out = torch.randn(20, 48, generator=generator), torch.randn(48, generator=generator), unwritten(20, 48)
trace = clean(bias_gelu, (3, 3), x, bias, out, 20, 48, ROWS=8, COLUMNS=16)
lk.checks.expect_close(out, torch.nn.functional.gelu(x.double() + bias.double()), rtol=1e-5, atol=2e-6, name="gelu(x + b), 20 x 48")
lk.checks.expect_traffic(trace, "x", loaded_bytes=4 * 20 * 48, stored_bytes=0)
lk.checks.expect_traffic(trace, "bias", loaded_bytes=3 * 4 * 48)
lk.checks.expect_traffic(trace, "out", loaded_bytes=0, stored_bytes=4 * 20 * 48)

# %%
with lk.picture("The same FLOPs, fewer bytes: fusing moves the point to the right, and up along the slope. Choose other GPUs."):

    def bias_gelu_chain(x, bias):
        t = x + bias
        return 0.5 * t * (1.0 + torch.erf(t / math.sqrt(2.0)))

    x, bias, out = torch.randn(128, 512), torch.randn(512), torch.empty(128, 512)
    chain = lk.count_work(bias_gelu_chain, x, bias)
    moved = lk.triton_trace.trace(bias_gelu)[(8, 8)](x, bias, out, 128, 512, ROWS=16, COLUMNS=64).work
    fused = lk.Work(flops=chain.flops, bytes_read=moved.bytes_read, bytes_written=moved.bytes_written, name="fused")
    print(f"unfused {chain.bytes_moved / 1e3:,.0f} kB, fused {fused.bytes_moved / 1e3:,.0f} kB: {chain.bytes_moved / fused.bytes_moved:.1f} times fewer")
    display(lk.widgets.roofline(["h100-sxm"], works=[chain, fused]))

# %% [markdown]
# ## Part 4 · A matrix product, and the order of its tiles
#
# Now a program owns a tile of $C$, `BM` × `BN`, in registers. It walks along $k$ in steps of `BK`: load `BM` × `BK` of $A$ and
# `BK` × `BN` of $B$, multiply them with `tl.dot`, which a GPU gives to its tensor cores, and add up **in FP32**, also for
# operands in FP16. Shared memory, barriers, bank conflicts: the compiler's affair now. Three ragged edges are yours. At two of them a
# lane that reads too far spoils an element of $C$ that nobody stores. The third edge is different: along $k$ everything is summed up.

# %% [markdown]
# ### Task 5 · One tile of the product
# *14 points · 25 minutes · ●●●○*
#
# Write `matmul_tile`; `matmul` below it says which tile. A function under `@triton.jit` may call another. Each program should ask for exactly
# the elements of $A$ and $B$ that its tile needs, each of them once.

# %%
lk.predict("matmul_tile")


# %% nbgrader={"grade": false, "grade_id": "matmul_tile", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def matmul_tile(a, b, c, M, N, K, i, j, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Tile (i, j) of c[M, N] = a[M, K] b[K, N]: the rows from i * BM and the columns from j * BN on.

    a and b are fp16 (or bf16), c is fp32 or fp16, all contiguous; sums are in fp32. M, N, K need not be multiples of anything.
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


# %% nbgrader={"grade": false, "grade_id": "lab05_product", "locked": true, "schema_version": 3, "solution": false, "task": false}
def product(a, b, c, bm, bn, bk):
    """Launch matmul cleanly. Returns the trace."""
    (M, K), N = a.shape, b.shape[1]
    return clean(matmul, (triton.cdiv(M, bm), triton.cdiv(N, bn)), a, b, c, M, N, K, BM=bm, BN=bn, BK=bk)


# %% nbgrader={"grade": true, "grade_id": "matmul_tile_test", "locked": true, "points": 9, "schema_version": 3, "solution": false, "task": false}
generator = torch.Generator().manual_seed(505)
a, b = torch.randn(40, 50, generator=generator).half(), torch.randn(50, 35, generator=generator).half()
c = unwritten(40, 35)
product(a, b, c, 16, 16, 16)
lk.checks.expect_close(c, a.double() @ b.double(), k=50, name="40 x 50 times 50 x 35")
### BEGIN HIDDEN TESTS
# every edge ragged; a single row; a single column; a sum shorter than a step; whole tiles; tiles that are not square
for M, N, K, bm, bn, bk in [(33, 17, 41, 16, 16, 16), (1, 20, 37, 16, 16, 16), (20, 1, 16, 16, 16, 16), (16, 16, 3, 16, 16, 16), (32, 32, 32, 16, 16, 16), (70, 40, 50, 64, 16, 32)]:
    a, b = torch.randn(M, K, generator=generator).half(), torch.randn(K, N, generator=generator).half()
    c = unwritten(M, N)
    product(a, b, c, bm, bn, bk)
    lk.checks.expect_close(c, a.double() @ b.double(), k=K, name=f"M={M} N={N} K={K} in tiles of {bm} x {bn} x {bk}")
# 2,100 ones: FP16 cannot count beyond 2,048
a, b, c = torch.ones(3, 2100).half(), torch.ones(2100, 2).half(), unwritten(3, 2)
product(a, b, c, 16, 16, 64)
lk.checks.expect_close(c, torch.full((3, 2), 2100.0), rtol=1e-6, name="sums of 2,100 ones")
a, b = torch.randn(20, 30, generator=generator).bfloat16(), torch.randn(30, 20, generator=generator).bfloat16()
c = unwritten(20, 20, dtype=torch.float16)
product(a, b, c, 16, 16, 16)
lk.checks.expect_close(c, a.double() @ b.double(), rtol=2.0**-10, atol=1e-3, name="bf16 operands, fp16 result")
# what lies behind the last row of a does not enter the sums, be it NaN
a, b = torch.full((17, 20), float("nan")).half(), torch.full((21, 16), float("nan")).half()
a[:16], b[:20] = 1.0, 1.0
c = unwritten(16, 16)
product(a[:16], b[:20], c, 16, 16, 16)
lk.checks.expect_close(c, torch.full((16, 16), 20.0), rtol=1e-6, name="NaN in the neighbourhood")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "matmul_tile_test_bytes", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 40 x 36 in tiles of 16 x 16: three tiles down, three across. A is read once for each tile column, B for each tile row.
generator = torch.Generator().manual_seed(515)
a, b = torch.randn(40, 50, generator=generator).half(), torch.randn(50, 36, generator=generator).half()
c = unwritten(40, 36)
trace = product(a, b, c, 16, 16, 16)
lk.checks.expect_close(c, a.double() @ b.double(), k=50, name="40 x 50 times 50 x 36")
lk.checks.expect_traffic(trace, "a", loaded_bytes=3 * 2 * 40 * 50)
lk.checks.expect_traffic(trace, "b", loaded_bytes=3 * 2 * 50 * 36)
lk.checks.expect_traffic(trace, "c", loaded_bytes=0, stored_bytes=4 * 40 * 36)

# %%
with lk.picture("Larger tiles, fewer bytes: double the side, halve the traffic. The tile lives in registers, and those run out (task 9)."):
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
# *10 points · 15 minutes · ●●●○*
#
# From the number of a program to its tile, on whole numbers: `//`, `%` and `tl.minimum`. The trap is at the bottom: when `tiles_m` is no multiple of
# `GROUP`, the last group is lower than the others. Every tile must still be someone's, and only one's.

# %%
lk.predict("tile_of")


# %% nbgrader={"grade": false, "grade_id": "tile_of", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def tile_of(program, tiles_m, tiles_n, GROUP: tl.constexpr):
    """The tile (i, j), i < tiles_m, j < tiles_n, of a program: in groups of GROUP rows of tiles, each column by column.

    Within a column of a group, from the top down; the last group has the rows that are left.
    """
    ### BEGIN SOLUTION
    a_group = GROUP * tiles_n
    first = program // a_group * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = program % a_group
    return first + within % height, within // height
    ### END SOLUTION


# %% nbgrader={"grade": false, "grade_id": "lab05_order", "locked": true, "schema_version": 3, "solution": false, "task": false}
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


# %% nbgrader={"grade": true, "grade_id": "tile_of_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
picture = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)]
lk.checks.expect_equal(order_of(4, 4, 2)[:8], picture, name="the first eight programs, 4 x 4 tiles in groups of 2")
lk.checks.expect_equal(order_of(4, 4, 2)[8:], [(i + 2, j) for i, j in picture], name="the other eight")
### BEGIN HIDDEN TESTS
# a last group that is lower; one tile row; one tile column; a group of everything, and one of more than everything; row by row
for tiles_m, tiles_n, group in [(5, 3, 2), (7, 4, 3), (1, 6, 4), (6, 1, 4), (4, 5, 4), (3, 4, 8), (3, 4, 1)]:
    expected = []
    for first in range(0, tiles_m, group):  # group by group, column by column
        expected += [(i, j) for j in range(tiles_n) for i in range(first, min(first + group, tiles_m))]
    got = order_of(tiles_m, tiles_n, group)
    lk.checks.expect_equal(len(set(got)), tiles_m * tiles_n, name=f"different tiles of {tiles_m} x {tiles_n}, group {group}")
    lk.checks.expect_equal(got, expected, name=f"order of {tiles_m} x {tiles_n} tiles, group {group}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "tile_of_test_l2", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 8 x 8 tiles: a strip of A or B is 4 KiB, a tile of C 8 KiB, and the cache holds 64 KiB.
# Row by row, 7 strips of B and 8 tiles of C go by before a strip of B is wanted again: 96 KiB, so each of 8 rows reads all of B.
# In groups of 4, a strip of A is wanted again after 3 of A, 2 of B and 4 tiles of C, 52 KiB: A is read once, B once a group.
strip, written, cache = 64 * 32 * 2, (8 * 64) ** 2 * 2, 65_536
rowwise, grouped = touched(8, 8, 1), touched(8, 8, 4)
lk.checks.expect_equal(grouped.work.bytes_read, rowwise.work.bytes_read, name="bytes asked for, in whichever order")
lk.checks.expect_equal(rowwise.l2_bytes(cache), 8 * (strip + 8 * strip) + written, name="bytes to and from memory, row by row")
lk.checks.expect_equal(grouped.l2_bytes(cache), 2 * (4 * strip + 8 * strip) + written, name="bytes to and from memory, in groups of 4")

# %%
with lk.picture(
    "Above: which program computes which tile. Below: what memory delivers as the cache grows. As soon as a group's strips fit, all of B is read "
    "once a group and not once a row."
):
    tiles = 8 if smoke else 12
    numbers = np.zeros((tiles, tiles), dtype=int)
    for number, tile in enumerate(order_of(tiles, tiles, 4)):
        numbers[tile] = number
    figure = go.Figure(
        go.Heatmap(z=numbers, text=numbers, texttemplate="%{text}", colorscale="Blues", showscale=False, hoverinfo="skip")
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
    lk.show(figure, summary="Bytes read from memory against cache size for three orders: groups come down at a smaller cache.")

# %% [markdown]
# The cache here is a model: least recently used, lines of 128 bytes, one program after another. On a GPU hundreds of programs run at once, and
# a real cache sees them mixed. `touched(12, 12, 4).l2_bytes(49_152, programs_at_once=16)` lets 16 take turns: try it, with groups of 1 and 4.
#
# ## Part 5 · How many bits does a sum need?
#
# Narrow formats save bytes on the way. They are no place to add in. BF16 has eight bits of significand: from 256 on, its neighbours
# are 2 apart, and $256 + 1$ rounds to $256$. A running sum of ones **stalls there for ever**. FP16 has eleven bits, stalls at 2,048,
# and knows nothing above 65,504. So: load narrow, convert with `.to(tl.float32)`, add up, and round once at the end.

# %% [markdown]
# ### Task 7 · Means of long rows
# *10 points · 12 minutes · ●●○○*
#
# Rows may be longer than a block now, so walk along them in steps of `BLOCK` and keep a block of partial sums: one `tl.sum` at the end.

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


# %% nbgrader={"grade": true, "grade_id": "row_mean_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
x, out = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 0.0, 0.0, 0.0, 10.0]]), unwritten(2)
clean(row_mean, (2,), x, out, 5, 5, BLOCK=4)
lk.checks.expect_close(out, [3.0, 2.0], rtol=1e-6, name="means of two rows of five")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(507)
for N, BLOCK in [(1, 16), (15, 16), (16, 16), (17, 16), (100, 32), (64, 128)]:  # shorter, exactly a block, one more, several
    x, out = torch.randn(3, N, generator=generator), unwritten(3)
    trace = clean(row_mean, (3,), x, out, N, N, BLOCK=BLOCK)
    lk.checks.expect_close(out, x.double().mean(1), rtol=1e-5, atol=1e-6, name=f"means of rows of {N}, BLOCK={BLOCK}")
    lk.checks.expect_traffic(trace, "x", loaded_bytes=4 * 3 * N)
    lk.checks.expect_traffic(trace, "out", stored_bytes=4 * 3)
x, out = layouts(torch.randn(4, 20, generator=generator))["rows padded by 3"], unwritten(4)
clean(row_mean, (4,), x, out, 20, 23, BLOCK=16)
lk.checks.expect_close(out, x.double().mean(1), rtol=1e-5, atol=1e-6, name="means of padded rows")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "row_mean_test_bits", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 4,800 ones in BF16, 16 lanes: each lane counts to 300, and BF16 stops counting at 256
x, out = torch.ones(1, 4800).bfloat16(), unwritten(1, dtype=torch.bfloat16)
clean(row_mean, (1,), x, out, 4800, 4800, BLOCK=16)
lk.checks.expect_close(out, [1.0], rtol=0, name="mean of 4,800 ones in bfloat16")
### BEGIN HIDDEN TESTS
# 1,000 times 200 is more than FP16 can hold; the mean is not
x, out = torch.full((2, 1000), 200.0).half(), unwritten(2, dtype=torch.float16)
clean(row_mean, (2,), x, out, 1000, 1000, BLOCK=64)
lk.checks.expect_close(out, [200.0, 200.0], rtol=2.0**-11, name="mean of 1,000 times 200 in float16")
# a large number first, small ones after it; and random rows: nothing is rounded but the result
generator = torch.Generator().manual_seed(517)
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
        lk.checks.expect_close(out, narrow.double().mean(1), rtol=1e-5, name=f"means of {what}, {dtype} into float32")
### END HIDDEN TESTS

# %%
with lk.picture("Adding ones, one at a time. BF16 stops at 256. Your kernel's mean of n ones stays 1."):
    count = 600
    running = {"FP32": torch.tensor(0.0), "BF16": torch.tensor(0.0).bfloat16()}
    sums = {name: [] for name in running}
    for _ in range(count):
        for name in running:
            running[name] = running[name] + 1
            sums[name].append(float(running[name]))
    figure = go.Figure([go.Scatter(x=list(range(1, count + 1)), y=values, mode="lines", name=name) for name, values in sums.items()])
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
# registers (`tl.histogram(values, BINS)` counts a whole block; values must lie in 0 … `BINS` − 1), then add a bin's total once.

# %% [markdown]
# ### Task 8 · A histogram without a race
# *10 points · 15 minutes · ●●●○*
#
# At most one atomic for each bin and program. Mind the lanes behind the end: they would count, too.

# %%
lk.predict("count_values")


# %% nbgrader={"grade": false, "grade_id": "count_values", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def count_values(values, counts, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """Add to counts[v], for every v among the n values, how often it occurs.

    values int32 [n], all in 0 … BINS - 1; counts int32 [BINS], which already holds earlier counts; BINS is a power of two.
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


# %% nbgrader={"grade": true, "grade_id": "count_values_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
values, counts = torch.tensor([3, 1, 3, 0, 3], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
clean(count_values, (2,), values, counts, 5, BLOCK=4, BINS=4)
lk.checks.expect_equal(counts.tolist(), [1, 1, 0, 3], name="counts of 3 1 3 0 3")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(508)
# ragged; less than a block; exactly two blocks; everything in one bin, the first, where masked lanes would show; one value
for what, values, BLOCK, BINS in [
    ("500 values", torch.randint(0, 16, (500,), generator=generator), 64, 16),
    ("10 values", torch.randint(0, 8, (10,), generator=generator), 64, 8),
    ("128 values", torch.randint(0, 32, (128,), generator=generator), 64, 32),
    ("300 times 5", torch.full((300,), 5), 128, 8),
    ("300 times 0", torch.zeros(300), 128, 8),
    ("one value", torch.tensor([7]), 16, 8),
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
values, counts = torch.randint(0, 16, (1000,), generator=generator).to(torch.int32), torch.zeros(16, dtype=torch.int32)
trace = clean(count_values, (4,), values, counts, 1000, BLOCK=256, BINS=16)
lk.checks.expect_equal(counts.tolist(), np.bincount(values.numpy(), minlength=16).tolist(), name="counts of 1,000 values")
lk.checks.expect_traffic(trace, "values", loaded_bytes=4000)
lk.checks.expect_traffic(trace, "counts", at_most_stored_bytes=4 * 16 * 4)

# %% [markdown]
# ## Part 7 · From source to PTX
#
# Triton's compiler lowers a kernel in four steps: **TTIR**, blocks and their arithmetic, still without threads; **TTGIR**, where each block has got a
# *layout* (which thread holds which element), shared memory and pipelining; **LLVM IR**, one thread; **PTX**, NVIDIA's portable assembly, from
# which `ptxas` makes machine code. It needs no GPU for any of that. Here is your own `add` as an H100 would get it. Choose a line: it lights up in
# every stage.

# %%
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


# %% [markdown]
# ### Task 9 · What fits on the chip
# *8 points · 12 minutes · ●●○○*

# %%
lk.predict("tile_resources")


# %% nbgrader={"grade": false, "grade_id": "tile_resources", "locked": false, "schema_version": 3, "solution": true, "task": false}
def tile_resources(tiles, bytes_per_element=2):
    """Return what a `Tiles` takes on an H100: (bytes of shared memory a program, registers a thread for the sums alone).

    Shared memory holds `stages` buffers, each with one tile of A and one of B. Sums are FP32.

    >>> tile_resources(Tiles(bm=64, bn=64, bk=32, stages=2, warps=4))
    (16384, 32)
    """
    ### BEGIN SOLUTION
    shared = tiles.stages * (tiles.bm * tiles.bk + tiles.bk * tiles.bn) * bytes_per_element
    return shared, -(-tiles.bm * tiles.bn // (32 * tiles.warps))
    ### END SOLUTION


def fits(tiles, bytes_per_element=2):
    """True if its shared memory is within SHARED_LIMIT and its sums leave a register for anything else (below REGISTER_LIMIT)."""
    ### BEGIN SOLUTION
    shared, registers = tile_resources(tiles, bytes_per_element)
    return shared <= SHARED_LIMIT and registers < REGISTER_LIMIT
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "tile_resources_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(tile_resources(Tiles(64, 64, 32, stages=2, warps=4)), (16_384, 32), name="64 x 64 x 32, two stages, four warps")
lk.checks.expect_equal(fits(Tiles(128, 128, 64, stages=3, warps=4)), True, name="128 x 128 x 64 fits")
### BEGIN HIDDEN TESTS
# what Triton's compiler said for sm_90, fp16 operands: the last number is the shared memory of the compiled kernel
for bm, bn, bk, stages, warps, shared in [
    (128, 128, 64, 3, 4, 98_304),
    (128, 128, 64, 4, 8, 131_072),
    (128, 256, 64, 3, 8, 147_456),
    (128, 256, 64, 4, 8, 196_608),
    (64, 128, 32, 3, 4, 36_864),
    (128, 128, 64, 1, 4, 32_768),
]:
    got = tile_resources(Tiles(bm, bn, bk, stages, warps))
    lk.checks.expect_equal(got, (shared, bm * bn // (32 * warps)), name=f"{bm} x {bn} x {bk}, {stages} stages, {warps} warps")
lk.checks.expect_equal(tile_resources(Tiles(64, 32, 128, 2, 4), bytes_per_element=1), (24_576, 16), name="operands of one byte")
for tiles, expected, why in [
    (Tiles(128, 256, 64, 4, 8), True, "192 KiB and 128 registers"),
    (Tiles(128, 256, 64, 5, 8), False, "240 KiB of shared memory"),
    (Tiles(256, 256, 64, 3, 8), False, "256 registers a thread"),
    (Tiles(256, 256, 64, 3, 16), True, "192 KiB and 128 registers, over 16 warps"),
    (Tiles(128, 256, 32, 2, 4), False, "256 registers a thread, over 4 warps"),
    (Tiles(16, 16, 1816, 2, 4), True, "exactly 227 KiB"),
    (Tiles(16, 16, 1817, 2, 4), False, "128 bytes more than 227 KiB"),
]:
    lk.checks.expect_equal(fits(tiles), expected, name=f"fits: {why}")
lk.checks.expect_equal(fits(Tiles(128, 256, 64, 5, 8), bytes_per_element=1), True, name="fits: half the bytes, 120 KiB")
### END HIDDEN TESTS

# %%
with lk.picture("Your prediction against the compiler's own figures. The last line spills: what has no register goes to memory and back."):
    a = torch.zeros(512, 512).half()
    for tiles in [Tiles(64, 64, 32, 2, 4), Tiles(64, 128, 64, 3, 4), Tiles(128, 256, 32, 2, 4)]:
        shared, sums = tile_resources(tiles)
        compiled = lk.triton_trace.compile_for(
            matmul, "sm_90", a, a, a, 512, 512, 512, BM=tiles.bm, BN=tiles.bn, BK=tiles.bk, num_stages=tiles.stages, num_warps=tiles.warps
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
# ### Task 10 · Search
# *10 points · 15 minutes · ●●○○*

# %%
lk.predict("search")


# %% nbgrader={"grade": false, "grade_id": "search", "locked": false, "schema_version": 3, "solution": true, "task": false}
def search(configs, fits, bound, measure):
    """The fastest configuration, with as few measurements as possible. Returns (config, its measured seconds).

    fits(config): False if it cannot run. bound(config): seconds that it cannot beat, cheap. measure(config): its seconds, dear,
    never below its bound; math.inf if it turned out not to run. A config whose bound is not below the best measurement so far is
    never measured, and none is measured twice. Raises ValueError if nothing runs.

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


# %% nbgrader={"grade": false, "grade_id": "lab05_bench", "locked": true, "schema_version": 3, "solution": false, "task": false}
class Counted:
    """A table of costs, called as a function, that remembers what it was asked."""

    def __init__(self, costs):
        self.costs, self.asked = costs, []

    def __call__(self, config):
        self.asked.append(config)
        return self.costs[config]


# %% nbgrader={"grade": true, "grade_id": "search_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
times = {"a": 3.0, "b": 2.0, "c": 9.0, "d": 1.0}
found = search(list(times), lambda c: c != "d", lambda c: times[c] - 1, lambda c: times[c])
lk.checks.expect_equal(found, ("b", 2.0), name="the fastest that fits")
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
    lk.checks.expect_equal([c for c in measure.asked if not runs[c]], [], name="configurations that cannot run, measured")
# one that seemed to fit and did not
costs = {"greedy": math.inf, "modest": 5.0}
lk.checks.expect_equal(search(list(costs), lambda c: True, lambda c: 1.0, costs.get), ("modest", 5.0), name="one fails to run")
lk.checks.expect_raises(ValueError, search, ["a"], lambda c: False, lambda c: 0.0, lambda c: 1.0)
lk.checks.expect_raises(ValueError, search, ["a"], lambda c: True, lambda c: 0.0, lambda c: math.inf)
lk.checks.expect_raises(ValueError, search, [], lambda c: True, lambda c: 0.0, lambda c: 1.0)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "search_test_measurements", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# bounds 1 2 3 4, times 4 3 5 6: measure the first (4), the second (3); the third cannot be below 3, so it and the rest are out
costs, bounds = {"a": 4.0, "b": 3.0, "c": 5.0, "d": 6.0}, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
measure = Counted(costs)
lk.checks.expect_equal(search(["d", "c", "b", "a"], lambda c: True, bounds.get, measure), ("b", 3.0), name="the best of four")
lk.checks.expect_equal(sorted(measure.asked), ["a", "b"], name="measured")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(520)
for count in (5, 20, 100):
    costs = {f"config {i}": float(rng.uniform(1, 10)) for i in range(count)}
    bounds = {config: cost * float(rng.uniform(0.3, 0.99)) for config, cost in costs.items()}
    best = min(costs.values())
    measure = Counted(costs)
    lk.checks.expect_close(search(list(costs), lambda c: True, bounds.get, measure)[1], best, rtol=0, name=f"seconds of the best of {count}")
    # whatever could still win by its bound has to be measured, and nothing else
    needed = sorted(config for config in costs if bounds[config] < best)
    lk.checks.expect_equal(sorted(measure.asked), needed, name=f"measured of {count}")
### END HIDDEN TESTS

# %% [markdown]
# Now on 288 ways to multiply two 4,096 × 4,096 matrices on an H100. There is none here, so a **model** stands in for the measurement: programs go in waves over the SMs, as many
# at a time as shared memory lets in; the buffers in flight must cover the latency (Little's law). The bound
# is a roofline with three roofs: FLOPs at peak, what programs ask of the L2 cache at its bandwidth, and what the groups leave to memory at memory's.

# %% nbgrader={"grade": false, "grade_id": "lab05_model", "locked": true, "schema_version": 3, "solution": false, "task": false}
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
    waiting = waves * -(-n // tiles.bk) * LATENCY / (tiles.stages - 1)  # a step cannot start before its tiles are there
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

# %%
with lk.picture("Each dot is a configuration: what the bound promised, what the model said. Only those left of the dashed line had to be tried."):
    tried = []

    def try_one(tiles):
        tried.append(tiles)
        return model_seconds(tiles)

    best, seconds = search(space, fits, roofline_bound, try_one)
    possible = [tiles for tiles in space if fits(tiles)]
    print(f"{len(space)} configurations, {len(possible)} fit, {len(tried)} tried (by the model, not measured)")
    print(f"best: {best}, {1e6 * seconds:.0f} µs, {2 * 4096**3 / seconds / 1e12:.0f} TFLOP/s")
    figure = go.Figure()
    for name, chosen in [("never tried", [t for t in possible if t not in tried]), ("tried", tried)]:
        figure.add_scatter(
            x=[1e6 * roofline_bound(t) for t in chosen], y=[1e6 * model_seconds(t) for t in chosen], mode="markers", name=name
        )
    figure.add_vline(x=1e6 * seconds, line_dash="dash")
    figure.update_layout(height=340, xaxis_title="bound, µs", yaxis_title="model, µs")
    lk.show(figure, summary="Bound against modelled time of every configuration that fits; the search tried only part of them.")

# %% [markdown]
# ## On your GPU
#
# Not graded. Where there is a GPU, the next cells time your kernels against torch's, let `search` measure for real, and show the Triton that
# `torch.compile` writes for bias and GELU: compare it with yours. Elsewhere they say why they do nothing.


# %%
@triton.jit
def matmul_grouped(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    i, j = tile_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    matmul_tile(a, b, c, M, N, K, i, j, BM, BN, BK)


device = lk.detect()
if not on_gpu:
    print(f"Skipped: this needs a CUDA GPU, and here is: {device.label}. Nothing was measured.")
else:
    x, bias = torch.randn(4096, 8192, device="cuda"), torch.randn(8192, device="cuda")
    out = torch.empty_like(x)
    compiled_chain = torch.compile(bias_gelu_chain)
    for name, call in {
        "softmax, yours": lambda: softmax[(4096,)](x, out, 8192, 8192, 8192, BLOCK=8192, num_warps=8),
        "softmax, torch": lambda: torch.softmax(x, 1),
        "bias + GELU, yours": lambda: bias_gelu[(1024, 32)](x, bias, out, 4096, 8192, ROWS=4, COLUMNS=256),
        "bias + GELU, torch in eager mode": lambda: bias_gelu_chain(x, bias),
        "bias + GELU, torch.compile": lambda: compiled_chain(x, bias),
    }.items():
        call()
        timing = lk.bench(call, name=name, device="cuda")
        print(timing, f"  {2 * x.nbytes / timing.median / 1e9:,.0f} GB/s, if x moves once in and once out", sep="\n")

# %%
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
                lambda: matmul_grouped[grid](a, b, c, n, n, n, **sizes, num_stages=tiles.stages, num_warps=tiles.warps),
                device="cuda",
            ).median
        except triton.runtime.errors.OutOfResources:
            return math.inf

    few = [tiles for tiles in space if tiles.bk == 64 and tiles.stages in (3, 4) and tiles.group == 8]
    known = "H100" in torch.cuda.get_device_name()  # the bounds are an H100's; of another GPU nothing is promised
    best, seconds = search(few, fits, roofline_bound if known else lambda tiles: 0.0, measured)
    library = lk.bench(torch.matmul, a, b, name="torch.matmul")
    print(f"{best}: {2 * n**3 / seconds / 1e12:.0f} TFLOP/s, {library.median / seconds:.0%} of torch.matmul's speed")

# %%
if not on_gpu:
    print(f"Skipped: this needs a CUDA GPU, and here is: {device.label}. Nothing was compiled.")
else:
    from torch._inductor.utils import run_and_get_code

    _, (code, *_) = run_and_get_code(torch.compile(bias_gelu_chain), x, bias)
    first = code.index("@triton.jit")
    print(code[first : code.index("'''", first)])

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
# - A race that gives the right answer is a race.
# - Before you measure, ask what fits and what can win.
#
# ## Next
#
# Chapter 8, *Compilers*, goes from here to Dynamo, Inductor, XLA and TVM. Lab 06 uses these kernels to read weights of four bits.
