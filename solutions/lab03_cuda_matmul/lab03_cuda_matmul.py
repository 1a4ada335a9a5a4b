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
# # Lab 03 · CUDA: from one thread to a matrix product
#
# A GPU runs thousands of threads, and the memory system sees none of them. It sees **warps**: 32 threads that ask for data
# together. Two kernels of this lab do the same arithmetic, and one asks for 6.6 times as much data as the other. You
# learn to see why before you run anything.
#
# **You will be able to**
#
# - choose a grid that covers ragged data, and guard its edge;
# - write kernels in CUDA C++: vector add, a grid-stride loop, a matrix product, a stencil;
# - predict the 32-byte sectors that a warp's request touches, and index so that they are few;
# - tell divergence that costs from divergence that does not;
# - read what a checker says of an access out of bounds, and mend it;
# - say how many blocks fit on an H100's SM, and what keeps the next one out.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 130 minutes | ●●○○ | any Linux machine with a C++ compiler; a GPU only for the last, ungraded section | 100 in 10 tasks |
#
# Needs lab 01 (strides), and enough C to read a `for` loop. Reads along with [chapter 6, *CUDA*](../../course/chapters/06_cuda.md).
#
# The 130 minutes include reading. Marks come from right answers and from counted requests and sectors, never from a clock.
# `lk.progress()` shows how far you are.

# %% tags=["install"] jupyter={"source_hidden": true}
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% nbgrader={"grade": false, "grade_id": "lab03_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import numpy as np

import mlsys_labkit as lk

# %% tags=["parameters"]
smoke = False  # True: smaller pictures, for a quick run through
seed = 0

# %% [markdown]
# ## Your kernels run here
#
# A cell that starts with `%%cuda name` holds CUDA C++. It is compiled, and `name` becomes a kernel that you launch from
# Python as `name[grid, block](arguments)`. Where there is an NVIDIA GPU it runs there. Elsewhere it runs on your CPU, block by
# block and warp by warp.
#
# Run the next two cells with Shift+Enter. The first `%%cuda` cell of a session can take much longer than the others, because the
# simulator starts, and on a new machine it compiles its headers first.

# %%
# %%cuda hello
__global__ void hello(int* out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 100 * blockIdx.x + threadIdx.x;
}

# %%
numbers = np.zeros(12, dtype=np.int32)
hello[3, 4](numbers)  # 3 blocks of 4 threads
print(numbers.reshape(3, 4))  # a row a block

# %% [markdown]
# That was a kernel on 12 threads. Change `100` to `1000` in the first cell, run both again, and you have written your first one.
#
# On any machine the kit can do what only a profiler and a sanitizer do on a GPU:
#
# - `name[grid, block](…)` runs the kernel;
# - `name.check[grid, block](…)` runs it and lists races, accesses out of bounds and barriers gone wrong;
# - `name.profile[grid, block](…)` runs it and counts, line by line, what its warps asked of memory.
#
# The counts are a **source-level model**: the accesses of your source, warp by warp, with no caches behind them. They are the same on
# every machine, which is why they can be marks. What is counted are the accesses that the compiler for the CPU has left: if your source
# loads the same element twice and nothing in between can have changed it, the compiler may load it once. `s[t] * s[t]` counts as one load.
#
# Each task goes the same way: **predict** (not graded: committing to a guess is what teaches), **write**,
# **check**, then **look**. Your own code goes where a cell says `YOUR CODE HERE`: replace that line and the one below it. *Run All* stops
# at the first task that is still open, so go on cell by cell. Stuck? `lk.hint("vector_add")` in a new cell gives a nudge, and a stronger
# one each time you ask. Hints and wrong predictions cost no marks. Long checks and the code of pictures are folded: click the three dots
# in a cell to read it.

# %% [markdown]
# ## Part 1 · Cover the data
#
# A launch names a grid of blocks, and all blocks have one size. Data seldom divides by it: 1,000 items in blocks of 256 need
# four blocks, and 24 threads of the last one have nothing to do. You round up on the host, and each thread asks on the device whether
# its item exists.

# %% [markdown]
# ### Task 1 · How many blocks?
# *4 points · 4 minutes · ●○○○*
#
# The pictures of this lab launch your kernels with the function that you write here. A matrix has `rows × columns`, a launch has
# `(x, y)`. From one thread of a warp to the next, `x` grows by one. From one element of a row-major matrix to the next in memory, the
# column grows by one. Therefore **x runs along columns**, here and in the rest of the lab.

# %%
lk.predict("launch_shape")


# %% nbgrader={"grade": false, "grade_id": "launch_shape", "locked": false, "schema_version": 3, "solution": true, "task": false}
def launch_shape(rows, columns, block=(32, 8)):
    """The smallest grid (x, y) of blocks (x, y) that covers a matrix [rows, columns]. x runs along columns.

    >>> launch_shape(10, 100, block=(32, 8))   # 4 blocks side by side for 100 columns, 2 for 10 rows
    (4, 2)
    """
    ### BEGIN SOLUTION
    x, y = block
    return -(-columns // x), -(-rows // y)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "launch_shape_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
grid = launch_shape(10, 100, block=(32, 8))
assert grid not in [(2, 4), (1, 13)], f"{grid}: x and y are swapped. The result is (x, y), and x runs along columns."
lk.checks.expect_equal(grid, (4, 2), name="10 x 100 in blocks of 32 x 8")
lk.checks.expect_equal(launch_shape(8, 32, block=(32, 8)), (1, 1), name="an exact fit, no block to spare")
lk.checks.expect_equal(launch_shape(1, 33, block=(32, 8)), (2, 1), name="one column more than a block has")
lk.checks.expect_equal(launch_shape(1000, 1000, block=(32, 32)), (32, 32), name="1,000 x 1,000 in blocks of 32 x 32")
print("launch_shape: covers ragged matrices, and no block is to spare.")

# %% nbgrader={"grade": true, "grade_id": "launch_shape_test_sizes", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# The same for other sizes and blocks.
lk.checks.expect_equal(launch_shape(70, 5, block=(4, 16)), (2, 5), name="70 x 5 in blocks of 4 x 16")
### BEGIN HIDDEN TESTS
# Input: sizes and blocks at random
rng = np.random.default_rng(311)
for _ in range(50):
    rows, columns = (int(v) for v in rng.integers(1, 500, 2))
    block = tuple(int(v) for v in rng.integers(1, 33, 2))
    x, y = launch_shape(rows, columns, block)
    assert x * block[0] >= columns and y * block[1] >= rows, f"{rows} x {columns} in {block}: grid {(x, y)} leaves some out"
    assert (x - 1) * block[0] < columns and (y - 1) * block[1] < rows, f"{rows} x {columns} in {block}: {(x, y)} is too many"
### END HIDDEN TESTS
print("launch_shape: right for blocks of 4 x 16, too.")

# %% [markdown]
# ### Task 2 · Vector add
# *10 points · 9 minutes · ●○○○*
#
# The first kernel everybody writes, and the first bug everybody writes with it: the last block has threads beyond the end.

# %%
lk.predict("vector_add")

# %% nbgrader={"grade": false, "grade_id": "vector_add", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda vector_add
// c[i] = a[i] + b[i] for 0 <= i < n. One thread an element; the grid covers n and may be
// larger.
__global__ void vector_add(const float* a, const float* b, float* c, int n)
{
    ### BEGIN SOLUTION
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "vector_add_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(vector_add)
rng = np.random.default_rng(321)
a, b = rng.standard_normal((2, 1000), dtype=np.float32)
c = np.full(1000, np.nan, np.float32)
lk.checks.expect_clean(kernel, (4, 256, (a, b, c, 1000)))
lk.checks.expect_close(c, a + b, rtol=1e-6, atol=1e-6, name="vector_add, n=1000")
print("vector_add: 1,000 sums are right, and none of the 1,024 threads read or wrote beyond the end.")

# %% nbgrader={"grade": true, "grade_id": "vector_add_test_sizes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Other sizes: fewer elements than a block has threads, an exact fit, whole blocks beyond the end.
kernel = lk.checks.graded_kernel(vector_add)
a, b, c = np.ones(5, np.float32), np.ones(5, np.float32), np.full(5, np.nan, np.float32)
lk.checks.expect_clean(kernel, (3, 64, (a, b, c, 5)))
lk.checks.expect_close(c, a + b, rtol=0, name="vector_add, n=5 with two blocks to spare")
### BEGIN HIDDEN TESTS
# Input: other sizes: one element, an exact fit, or whole blocks beyond the end
rng = np.random.default_rng(323)
for n, grid, block in [(1, 1, 32), (33, 2, 32), (999, 8, 128), (1024, 4, 256), (7, 4, 64)]:
    a, b = rng.standard_normal((2, n), dtype=np.float32)
    c = np.full(n, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, block, (a, b, c, n)))
    lk.checks.expect_close(c, a + b, rtol=1e-6, atol=1e-6, name=f"vector_add, n={n}, grid {grid}, block {block}")
### END HIDDEN TESTS
print("vector_add: right with two blocks to spare.")

# %% nbgrader={"grade": true, "grade_id": "vector_add_test_traffic", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 1,024 elements are 32 warps: each makes two loads and a store, and each of those is four sectors of 32 bytes.
kernel = lk.checks.graded_kernel(vector_add)
a, b = np.random.default_rng(322).standard_normal((2, 1024), dtype=np.float32)
c = np.zeros(1024, np.float32)
profile = kernel.profile[4, 256](a, b, c, 1024)
lk.checks.expect_close(c, a + b, rtol=1e-6, atol=1e-6, name="c, while it was profiled")
# Wider loads (float4) make fewer requests for the same sectors, which is as good.
lk.checks.expect_counters(profile, at_most_global_load_requests=64, at_most_global_store_requests=32, name="vector_add")
lk.checks.expect_counters(profile, global_load_sectors=256, global_store_sectors=128, name="vector_add")
print("vector_add: each sector was asked for once, 384 in all.")

# %% jupyter={"source_hidden": true}
with lk.picture("Your kernel with its traffic beside each line. Hover, or use the arrow keys."):
    a, b, c = (np.ones(1000, np.float32) for _ in range(3))
    display(lk.widgets.annotated_source(vector_add.profile[4, 256](a, b, c, 1000)))

# %% [markdown]
# ### Task 3 · A loop that fits any grid
# *10 points · 10 minutes · ●●○○*
#
# One thread an element ties the grid to the data. A **grid-stride loop** unties them: each thread takes its element, then the one
# a whole grid further, until the data ends. The grid can then suit the machine and not the data. There are
# two ways to deal elements to threads, and only one keeps a warp's 32 elements side by side.

# %%
lk.predict("saxpy")

# %% nbgrader={"grade": false, "grade_id": "saxpy", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda saxpy
// y[i] = alpha * x[i] + y[i] for 0 <= i < n, right for every grid and block, however small or
// large. n plus the number of threads of the grid fits into an int.
__global__ void saxpy(int n, float alpha, const float* x, float* y)
{
    ### BEGIN SOLUTION
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        y[i] = alpha * x[i] + y[i];
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "saxpy_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(saxpy)
rng = np.random.default_rng(331)
x, y = rng.standard_normal((2, 1000), dtype=np.float32)
expected = 3.0 * x + y
lk.checks.expect_clean(kernel, (2, 64, (1000, 3.0, x, y)))
lk.checks.expect_close(y, expected, rtol=1e-5, atol=1e-5, name="saxpy, 128 threads for 1,000 elements")
x, y = rng.standard_normal((2, 70_000), dtype=np.float32)  # more than 16 bits count
expected = 3.0 * x + y
lk.checks.expect_clean(kernel, (8, 256, (70_000, 3.0, x, y)), name="saxpy, 70,000 elements")
lk.checks.expect_close(y, expected, rtol=1e-5, atol=1e-5, name="saxpy, 2,048 threads for 70,000 elements")
print("saxpy: few threads served many elements, also beyond 65,535, and no two threads met.")

# %% nbgrader={"grade": true, "grade_id": "saxpy_test_launches", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Other launches: more threads than elements, one thread, one warp, a block that is no power of two.
kernel = lk.checks.graded_kernel(saxpy)
x, y = np.ones(7, np.float32), np.ones(7, np.float32)
lk.checks.expect_clean(kernel, (2, 32, (7, 2.0, x, y)))
lk.checks.expect_close(y, np.full(7, 3.0, np.float32), rtol=0, name="saxpy, 64 threads for 7 elements")
### BEGIN HIDDEN TESTS
# Input: other launches: one thread, more threads than elements, or more than 32,767 elements
rng = np.random.default_rng(333)
for n, grid, block in [(1000, 1, 32), (1000, 64, 128), (9, 1, 1), (257, 3, 96), (40_000, 2, 128)]:
    x, y = rng.standard_normal((2, n), dtype=np.float32)
    expected = np.float32(-0.5) * x + y
    lk.checks.expect_clean(kernel, (grid, block, (n, -0.5, x, y)))
    lk.checks.expect_close(y, expected, rtol=1e-5, atol=1e-5, name=f"saxpy, n={n}, grid {grid}, block {block}")
### END HIDDEN TESTS
print("saxpy: right with more threads than elements.")

# %% nbgrader={"grade": true, "grade_id": "saxpy_test_traffic", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 4,096 elements dealt to 256 threads: 128 warp-wide passes, each two loads and a store of four sectors.
kernel = lk.checks.graded_kernel(saxpy)
x, y = np.random.default_rng(332).standard_normal((2, 4096), dtype=np.float32)
expected = 2.0 * x + y
profile = kernel.profile[2, 128](4096, 2.0, x, y)
lk.checks.expect_close(y, expected, rtol=1e-5, atol=1e-5, name="y, while it was profiled")
# Wider loads (float4) make fewer requests for the same sectors, which is as good.
lk.checks.expect_counters(profile, global_load_sectors=1024, at_most_global_load_requests=256, name="saxpy")
lk.checks.expect_counters(profile, global_store_sectors=512, at_most_global_store_requests=128, name="saxpy")
print("saxpy: neighbours went to neighbours. Each sector was read once and written once.")

# %% [markdown]
# ## Part 2 · What a warp asks for
#
# When a warp executes a load, its lanes' addresses become **one request**. Global memory answers in **sectors** of 32 bytes.
# Neighbouring floats share a sector by eights, so the best a full warp can do with 4-byte elements is 4 sectors; the worst is 32, one
# each, of which it throws seven eighths away.

# %% [markdown]
# ### Task 4 · Count the sectors
# *10 points · 10 minutes · ●●○○*
#
# Write the function that turns the addresses of one request into its number of sectors. `profile` counts in the same way.

# %%
lk.predict("request_sectors")


# %% nbgrader={"grade": false, "grade_id": "request_sectors", "locked": false, "schema_version": 3, "solution": true, "task": false}
def request_sectors(addresses, bytes_per_lane=4):
    """Distinct 32-byte sectors that one request of a warp touches.

    addresses: a byte address for each of up to 32 lanes, or None for a lane that is masked off.
    bytes_per_lane: what each lane reads from its address on, 1 to 16. An access may straddle two sectors.

    >>> request_sectors([4 * lane for lane in range(32)])   # 32 neighbouring floats
    4
    """
    ### BEGIN SOLUTION
    touched = set()
    for address in addresses:
        if address is not None:
            touched.update(range(address // 32, (address + bytes_per_lane - 1) // 32 + 1))
    return len(touched)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "request_sectors_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
lanes = range(32)
lk.checks.expect_equal(request_sectors([4 * lane for lane in lanes]), 4, name="32 neighbouring floats")
lk.checks.expect_equal(request_sectors([0] * 32), 1, name="all lanes want one word, which is fetched once")
lk.checks.expect_equal(request_sectors([512 * lane for lane in lanes]), 32, name="a column of a 128-wide matrix")
lk.checks.expect_equal(request_sectors([0, 4096]), 2, name="two lanes far apart: what lies between them is not fetched")
lk.checks.expect_equal(request_sectors([4 + 4 * lane for lane in lanes]), 5, name="32 floats from byte 4 on: a fifth sector")
print("request_sectors: counts distinct sectors, whole rows, columns and rows that begin inside a sector.")

# %% nbgrader={"grade": true, "grade_id": "request_sectors_test_edges", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Lanes that are masked off, and accesses that straddle two sectors.
lk.checks.expect_equal(request_sectors([None] * 31 + [64]), 1, name="one lane asks, 31 are masked off")
lk.checks.expect_equal(request_sectors([None] * 32), 0, name="all lanes are masked off")
lk.checks.expect_equal(request_sectors([28], bytes_per_lane=8), 2, name="bytes 28 to 35 straddle two sectors")
lk.checks.expect_equal(request_sectors([16 * lane for lane in range(32)], bytes_per_lane=16), 16, name="float4")
### BEGIN HIDDEN TESTS
# Input: lanes that are masked off
lk.checks.expect_equal(request_sectors([4 * lane if lane < 10 else None for lane in range(32)]), 2, name="masked lanes ask for nothing")
# Input: accesses of 2 bytes
lk.checks.expect_equal(request_sectors([2 * lane for lane in range(32)], bytes_per_lane=2), 2, name="half")
# Input: an access that straddles two sectors
lk.checks.expect_equal(request_sectors([30], bytes_per_lane=4), 2, name="bytes 30 to 33 lie in two sectors")
### END HIDDEN TESTS
print("request_sectors: masked lanes ask for nothing, and straddling accesses count twice.")

# %% nbgrader={"grade": true, "grade_id": "request_sectors_test_random", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Random addresses, sizes and masks.
lk.checks.expect_equal(request_sectors([100, None, 40, 3000], bytes_per_lane=2), 3, name="three lanes at 100, 40 and 3,000")
### BEGIN HIDDEN TESTS
# Input: addresses, sizes and masks at random
rng = np.random.default_rng(341)
for _ in range(60):
    size = int(rng.choice([1, 2, 4, 8, 16]))
    starts = rng.integers(0, 4096, 32)
    asked = [int(start) if keep else None for start, keep in zip(starts, rng.random(32) < 0.8)]
    # mark every byte, then see which sectors carry a mark
    memory = np.zeros(8192, bool)
    for start in asked:
        if start is not None:
            memory[start : start + size] = True
    assert request_sectors(asked, size) == memory.reshape(-1, 32).any(axis=1).sum(), f"{size} bytes a lane at random addresses"
### END HIDDEN TESTS
print("request_sectors: right for scattered lanes.")

# %% jupyter={"source_hidden": true}
with lk.picture("A warp over memory. Try stride, column and float4; count the coloured sectors."):
    request_sectors([0])
    display(lk.widgets.warp_access(pattern="strided", k=3))

# %% [markdown]
# ## Part 3 · A matrix product, twice
#
# $C = AB$ with $A$ of $m \times k$ and $B$ of $k \times n$, all row-major: element $(i, j)$ of a matrix with $n$ columns is at `i * n + j`.

# %% [markdown]
# ### Task 5 · One thread, one element
# *14 points · 13 minutes · ●●○○*
#
# Each thread computes one element of $C$: a row of $A$ against a column of $B$. The sizes are ragged. Nothing else is asked yet.

# %%
lk.predict("matmul_naive")

# %% nbgrader={"grade": false, "grade_id": "matmul_naive", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda matmul_naive
// C[m, n] = A[m, k] B[k, n], row-major. 2-D blocks of any shape; the grid covers n in x and m
// in y, and may be larger.
__global__ void matmul_naive(const float* A, const float* B, float* C, int m, int n, int k)
{
    ### BEGIN SOLUTION
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < m && column < n) {
        float sum = 0.0f;
        for (int p = 0; p < k; ++p) {
            sum += A[row * k + p] * B[p * n + column];
        }
        C[row * n + column] = sum;
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "matmul_naive_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(matmul_naive)
rng = np.random.default_rng(351)
A, B = rng.standard_normal((13, 7), dtype=np.float32), rng.standard_normal((7, 21), dtype=np.float32)
C = np.full((13, 21), np.nan, np.float32)
# 3 x 4 blocks: 24 columns for 21, and 16 rows for 13
lk.checks.expect_clean(kernel, ((3, 4), (8, 4), (A, B, C, 13, 21, 7)))
alone = not np.isnan(C[:4, :8]).any() and np.isnan(C).sum() == C.size - 32
assert not alone, "only the first 4 x 8 of C are written, which is one block: do blockIdx.x and blockIdx.y enter column and row?"
swapped = not np.isnan(C[:, :16]).any() and np.isnan(C[:, 16:]).all()  # 16 is as far as the blocks reach in y
assert not swapped, "x and y are swapped: 16 columns of C are written, as many as the grid has in y. x runs along columns."
lk.checks.expect_close(C, A.astype(float) @ B, rtol=1e-5, atol=1e-5, name="C, 13 x 7 times 7 x 21")
print("matmul_naive: right on 3 x 4 blocks with ragged edges, and no thread left the matrices.")

# %% nbgrader={"grade": true, "grade_id": "matmul_naive_test_shapes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Wide, tall, an exact fit, blocks to spare.
kernel = lk.checks.graded_kernel(matmul_naive)
C = np.full((4, 8), np.nan, np.float32)
lk.checks.expect_clean(kernel, ((2, 2), (8, 4), (np.ones((4, 3), np.float32), np.ones((3, 8), np.float32), C, 4, 8, 3)))
lk.checks.expect_close(C, np.full((4, 8), 3.0), rtol=0, name="C, 4 x 8, with three blocks to spare")
### BEGIN HIDDEN TESTS
# Input: wide or tall matrices, an exact fit, or blocks to spare
rng = np.random.default_rng(352)
for m, n, k, grid, block in [
    (3, 40, 6, (3, 1), (16, 4)),
    (40, 3, 6, (1, 10), (16, 4)),
    (16, 16, 16, (2, 2), (8, 8)),
    (9, 10, 11, (4, 5), (8, 4)),
]:
    A, B = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
    C = np.full((m, n), np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, block, (A, B, C, m, n, k)))
    # float32 sums of k products: k + 1 roundings at most, each 2**-24 of the sum of magnitudes
    bound = (k + 1) * 2.0**-23 * (np.abs(A).astype(float) @ np.abs(B)).max()
    lk.checks.expect_close(C, A.astype(float) @ B, rtol=0, atol=bound, name=f"C, {m} x {k} times {k} x {n}")
### END HIDDEN TESTS
print("matmul_naive: right with blocks to spare.")

# %% nbgrader={"grade": true, "grade_id": "matmul_naive_test_thin", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# One row, one column, k = 1.
kernel = lk.checks.graded_kernel(matmul_naive)
C = np.full((1, 9), np.nan, np.float32)
lk.checks.expect_clean(kernel, ((2, 1), (8, 4), (np.full((1, 1), 2.0, np.float32), np.ones((1, 9), np.float32), C, 1, 9, 1)))
lk.checks.expect_close(C, np.full((1, 9), 2.0), rtol=0, name="C, one row, k = 1")
### BEGIN HIDDEN TESTS
# Input: one row, one column, or k = 1
rng = np.random.default_rng(353)
for m, n, k, grid, block in [(1, 33, 9, (2, 1), (32, 2)), (33, 1, 9, (1, 9), (8, 4)), (6, 6, 1, (1, 1), (8, 8))]:
    A, B = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
    C = np.full((m, n), np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, block, (A, B, C, m, n, k)))
    bound = (k + 1) * 2.0**-23 * (np.abs(A).astype(float) @ np.abs(B)).max()
    lk.checks.expect_close(C, A.astype(float) @ B, rtol=0, atol=bound, name=f"C, {m} x {k} times {k} x {n}")
### END HIDDEN TESTS
print("matmul_naive: right for one row and for k = 1.")

# %% [markdown]
# ### Task 6 · Who is a warp?
# *14 points · 17 minutes · ●●●○*
#
# Your kernel of task 5 is right for blocks of any shape, and that includes a bad one: blocks of `(1, 32)` threads. A warp is 32
# threads in the order of `threadIdx.x` first, so here its lanes stand in one **column** of $C$. Predict what its loads touch, then
# run the cell that profiles them, before you read on.

# %%
lk.predict("matmul_coalesced")

# %% jupyter={"source_hidden": true}
with lk.picture("Your product in blocks of one column: requests and sectors of each line."):
    A, B, C = (np.ones((64, 64), np.float32) for _ in range(3))
    columns = matmul_naive.profile[launch_shape(64, 64, (1, 32)), (1, 32)](A, B, C, 64, 64, 64)
    display(lk.widgets.annotated_source(columns))

# %% [markdown]
# A step makes two requests and 33 sectors: 32 for a column of $A$, one for the element of $B$ that all lanes share. The picture shows
# their mean, 16.5 sectors a request. (Do you see 2.5? Then `x` runs along rows in your kernel: go back to task 5, whose check says so,
# and mend that first.) Now think of the warp that you want. Its 32 threads should share one row of $A$ (one sector: a **broadcast**) and
# read 32 neighbours of a row of $B$ (four sectors). Write the kernel for **one-dimensional blocks**: 256 threads, so 8 warps, each with
# 32 columns of one row. The grid is `(columns / 32, rows / 8)`, both rounded up, so you have to find `row` and `column` from
# `threadIdx.x` alone.

# %% nbgrader={"grade": false, "grade_id": "matmul_coalesced", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda matmul_coalesced
// C[m, n] = A[m, k] B[k, n], row-major. Blocks of 256 threads in x: each block computes 8 rows
// and 32 columns of C, block (x, y) those from row 8 * y and column 32 * x on. The grid covers
// C and may be larger.
__global__ void matmul_coalesced(const float* A, const float* B, float* C, int m, int n, int k)
{
    ### BEGIN SOLUTION
    int column = blockIdx.x * 32 + threadIdx.x % 32;
    int row = blockIdx.y * 8 + threadIdx.x / 32;
    if (row < m && column < n) {
        float sum = 0.0f;
        for (int p = 0; p < k; ++p) {
            sum += A[row * k + p] * B[p * n + column];
        }
        C[row * n + column] = sum;
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "matmul_coalesced_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(matmul_coalesced)
rng = np.random.default_rng(361)
A, B = rng.standard_normal((10, 7), dtype=np.float32), rng.standard_normal((7, 40), dtype=np.float32)
C = np.full((10, 40), np.nan, np.float32)
lk.checks.expect_clean(kernel, ((2, 2), 256, (A, B, C, 10, 40, 7)))
never = np.argwhere(np.isnan(C)).tolist()
first = f"C{never[0]} was never written" if never else ""
assert len(never) in (0, C.size), f"{first}. Block (x, y) begins at row 8 * y and column 32 * x, and blockDim.x is 256, not 32."
lk.checks.expect_close(C, A.astype(float) @ B, rtol=1e-5, atol=1e-5, name="C, 10 x 7 times 7 x 40")
print("matmul_coalesced: right on 2 x 2 blocks with ragged edges.")

# %% nbgrader={"grade": true, "grade_id": "matmul_coalesced_test_shapes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Other sizes: one element, an exact fit, one past it, blocks to spare.
kernel = lk.checks.graded_kernel(matmul_coalesced)
C = np.full((2, 3), np.nan, np.float32)
lk.checks.expect_clean(kernel, ((2, 2), 256, (np.ones((2, 5), np.float32), np.ones((5, 3), np.float32), C, 2, 3, 5)))
lk.checks.expect_close(C, np.full((2, 3), 5.0), rtol=0, name="C, 2 x 3, with three blocks to spare")
### BEGIN HIDDEN TESTS
# Input: one element, an exact fit, one past it, or blocks to spare
rng = np.random.default_rng(363)
for m, n, k, grid in [(1, 1, 1, (1, 1)), (8, 32, 5, (1, 1)), (9, 33, 12, (2, 2)), (3, 100, 4, (4, 1)), (30, 5, 8, (2, 5))]:
    A, B = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
    C = np.full((m, n), np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, 256, (A, B, C, m, n, k)))
    bound = (k + 1) * 2.0**-23 * (np.abs(A).astype(float) @ np.abs(B)).max()
    lk.checks.expect_close(C, A.astype(float) @ B, rtol=0, atol=bound, name=f"C, {m} x {k} times {k} x {n}")
### END HIDDEN TESTS
print("matmul_coalesced: right with blocks to spare.")

# %% nbgrader={"grade": true, "grade_id": "matmul_coalesced_test_traffic", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
# 64 x 64 x 64: 128 warps, 64 steps each. A step is one sector of A and four of B; the store is four sectors a warp.
kernel = lk.checks.graded_kernel(matmul_coalesced)
A, B = np.random.default_rng(362).integers(-4, 5, (2, 64, 64)).astype(np.float32)  # sums of whole numbers are exact
C = np.full((64, 64), np.nan, np.float32)
profile = kernel.profile[(2, 8), 256](A, B, C, 64, 64, 64)
lk.checks.expect_close(C, A @ B, rtol=0, name="C, while it was profiled")
lk.checks.expect_counters(profile, at_least_global_load_sectors=2 * 64 * 64 // 8, name="matmul_coalesced")
lk.checks.expect_counters(profile, at_most_global_load_sectors=128 * 64 * (1 + 4), name="matmul_coalesced")
lk.checks.expect_counters(profile, at_most_global_load_requests=128 * 64 * 2, global_store_sectors=128 * 4, name="matmul_coalesced")
lk.checks.expect_counters(profile, global_atomic_requests=0, name="matmul_coalesced")  # an atomic would be a load in disguise
print(f"matmul_coalesced: {profile.sectors_per_load_request:.1f} sectors a request, where task 5 in columns has 16.5.")

# %% jupyter={"source_hidden": true}
with lk.picture("Same arithmetic, other warps: the totals of both launches, and one request of the coalesced one."):
    A, B, C = (np.ones((64, 64), np.float32) for _ in range(3))
    coalesced = matmul_coalesced.profile[(2, 8), 256](A, B, C, 64, 64, 64)
    columns = matmul_naive.profile[launch_shape(64, 64, (1, 32)), (1, 32)](A, B, C, 64, 64, 64)
    for name, seen in (("columns", columns), ("coalesced", coalesced)):
        print(f"{name:10s} {seen.sectors_per_load_request:5.2f} sectors a request, {seen.work.bytes_read / 1e3:7.1f} kB")
    display(lk.widgets.warp_access(coalesced))

# %% [markdown]
# A step of the warp is 32 multiply-adds, 64 FLOPs, and 5 sectors of 32 bytes: 0.4 FLOP a byte, against 0.06 in columns. Both are far
# below what an H100 needs, about 20 FLOP a byte in float32, because each element of $A$ and $B$ is asked for again by every warp that needs it. (The
# caches of a GPU soften that, and this model leaves them out.) Lab 04 stops asking twice.
#
# ## Part 4 · Divergence
#
# A warp executes one instruction at a time, and its lanes may disagree about an `if`.

# %% [markdown]
# ### Task 7 · Branch by warp
# *8 points · 10 minutes · ●●○○*
#
# The kernel below sends even elements one way and odd ones the other, and every warp has both.

# %%
# %%cuda alternate_slow
__device__ float even_path(float v) { for (int s = 0; s < 16; ++s) v = sqrtf(v + 1.0f); return v; }
__device__ float odd_path(float v) { for (int s = 0; s < 16; ++s) v = v * 0.5f + 1.0f; return v; }

__global__ void alternate_slow(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = i % 2 ? odd_path(x[i]) : even_path(x[i]);
}

# %%
lk.predict("alternate")

# %% [markdown]
# When lanes of a warp disagree about an `if`, both sides are executed one after the other, each with part of the lanes.
# **SIMT efficiency** is the share of lanes at work, over all steps. Which thread takes which element is up to you. Deal them so that
# whole warps agree.

# %% nbgrader={"grade": false, "grade_id": "alternate", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda alternate
__device__ float even_path(float v) { for (int s = 0; s < 16; ++s) v = sqrtf(v + 1.0f); return v; }
__device__ float odd_path(float v) { for (int s = 0; s < 16; ++s) v = v * 0.5f + 1.0f; return v; }

// What alternate_slow computes, for n elements with n a multiple of 64, in blocks of a
// multiple of 64 threads. The grid covers n and may be larger: blocks, or a part of the last
// one, may stand beyond n.
__global__ void alternate(const float* x, float* y, int n)
{
    ### BEGIN SOLUTION
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int pair = thread / 64;  // two warps share 64 elements: one takes the even ones, one the odd ones
    int odd = thread / 32 % 2;
    int i = 64 * pair + 2 * (thread % 32) + odd;
    if (i < n) {
        y[i] = odd ? odd_path(x[i]) : even_path(x[i]);
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "alternate_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(alternate)
rng = np.random.default_rng(371)


def alternate_expected(x):
    even, odd = x.astype(float).copy(), x.astype(float).copy()
    for _ in range(16):
        even, odd = np.sqrt(even + 1), odd * 0.5 + 1
    return np.where(np.arange(len(x)) % 2 == 0, even, odd)


x, y = rng.random(192, dtype=np.float32), np.full(192, np.nan, np.float32)
lk.checks.expect_clean(kernel, (3, 128, (x, y, 192)))  # half of the second block and all of the third stand beyond n
lk.checks.expect_close(y, alternate_expected(x), rtol=1e-5, name="alternate, n=192, 384 threads")
print("alternate: right, also with half of the threads beyond n.")

# %% nbgrader={"grade": true, "grade_id": "alternate_test_launches", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# Other launches, with and without threads beyond n.
kernel = lk.checks.graded_kernel(alternate)
x, y = np.ones(64, np.float32), np.full(64, np.nan, np.float32)
lk.checks.expect_clean(kernel, (1, 64, (x, y, 64)))
lk.checks.expect_close(y, alternate_expected(x), rtol=1e-5, name="alternate, n=64")
### BEGIN HIDDEN TESTS
# Input: other launches, some with threads beyond n
rng = np.random.default_rng(373)
for n, grid, block in [(320, 5, 64), (320, 3, 128), (1024, 4, 256), (64, 2, 256)]:
    x, y = rng.random(n, dtype=np.float32), np.full(n, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, block, (x, y, n)))
    lk.checks.expect_close(y, alternate_expected(x), rtol=1e-5, name=f"alternate, n={n}, grid {grid}, block {block}")
### END HIDDEN TESTS
print("alternate: right for one block.")

# %% nbgrader={"grade": true, "grade_id": "alternate_test_simt", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 512 elements are 16 warps: each makes one load and one store, and takes one side of the branch with all of its lanes.
kernel = lk.checks.graded_kernel(alternate)
x, y = np.random.default_rng(372).random(512, dtype=np.float32), np.zeros(512, np.float32)
profile = kernel.profile[2, 256](x, y, 512)
lk.checks.expect_close(y, alternate_expected(x), rtol=1e-5, name="y, while it was profiled")
assert profile.flops != 2 * 512 * 32, "twice the operations: every thread computes both sides. Only the side that is stored may be computed."
lk.checks.expect_counters(profile, simt_efficiency=1.0, at_most_flops=512 * 32, name="alternate")
lk.checks.expect_counters(profile, at_most_global_load_requests=16, at_most_global_store_requests=16, name="alternate")
print("alternate: every lane was at work in every step.")

# %% jupyter={"source_hidden": true}
with lk.picture("Steps that warps take, and the share of lanes at work in them."):
    x, y = np.ones(512, np.float32), np.zeros(512, np.float32)
    for each in (alternate_slow, alternate):
        seen = each.profile[2, 256](x, y, 512)
        print(
            f"{each.name:15s} {seen.steps:5d} warp steps, SIMT efficiency {seen.simt_efficiency:4.0%}, "
            f"{seen.sectors_per_load_request:.0f} sectors a load"
        )

# %% [markdown]
# Little more than half the steps, at a price: each warp now reads every second float, 8 sectors where 4 would do. Divergence and
# coalescing often pull in opposite directions. Which one to pay for depends on what the branches cost. Sometimes neither has to be paid:
# half as many threads can each load a pair as a `float2`, and compute its even element and then its odd one without a branch.
#
# ## Part 5 · Neighbours

# %% [markdown]
# ### Task 8 · A five-point stencil
# *12 points · 18 minutes · ●●○○*
#
# Heat spreads: a cell's next value is the mean of its four neighbours and itself, and the rim stays as it is. Each thread has
# one cell; the rim's threads must not look over the edge. A plate with one or two rows is all rim.

# %%
lk.predict("stencil")

# %% nbgrader={"grade": false, "grade_id": "stencil", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda stencil
// out[r, c] = (in[r, c] + its neighbours above, below, left and right) / 5 inside; out = in on
// the rim. in and out are [rows, columns], row-major, and differ. 2-D blocks; the grid covers
// columns in x and rows in y.
__global__ void stencil(const float* in, float* out, int rows, int columns)
{
    ### BEGIN SOLUTION
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= columns) return;
    int i = r * columns + c;
    float value = in[i];
    if (r > 0 && r < rows - 1 && c > 0 && c < columns - 1) {
        value = (value + in[i - columns] + in[i + columns] + in[i - 1] + in[i + 1]) / 5.0f;
    }
    out[i] = value;
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "stencil_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(stencil)
rng = np.random.default_rng(381)


def stencil_expected(grid):
    out = grid.astype(float)
    inner = out[1:-1, 1:-1] + out[:-2, 1:-1] + out[2:, 1:-1] + out[1:-1, :-2] + out[1:-1, 2:]
    out[1:-1, 1:-1] = inner / 5
    return out


plate = rng.standard_normal((6, 9), dtype=np.float32)
out = np.full((6, 9), np.nan, np.float32)
lk.checks.expect_clean(kernel, ((2, 2), (8, 4), (plate, out, 6, 9)))
lk.checks.expect_close(out, stencil_expected(plate), rtol=1e-5, atol=1e-6, name="a 6 x 9 plate")
print("stencil: inside and rim are right, and no thread looked over the edge.")

# %% nbgrader={"grade": true, "grade_id": "stencil_test_thin", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Plates that are all rim.
kernel = lk.checks.graded_kernel(stencil)
plate = np.arange(10, dtype=np.float32).reshape(2, 5)
out = np.full((2, 5), np.nan, np.float32)
lk.checks.expect_clean(kernel, ((1, 1), (8, 4), (plate, out, 2, 5)))
lk.checks.expect_close(out, plate, rtol=0, name="a 2 x 5 plate, all rim")
### BEGIN HIDDEN TESTS
# Input: a plate that is all rim
for rows, columns, grid, block in [(1, 5, (1, 1), (8, 2)), (5, 1, (1, 3), (4, 2)), (2, 2, (1, 1), (4, 4)), (4, 2, (2, 2), (8, 2))]:
    plate = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    out = np.full((rows, columns), np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, block, (plate, out, rows, columns)))
    lk.checks.expect_close(out, plate, rtol=0, name=f"a {rows} x {columns} plate, all rim")
### END HIDDEN TESTS
print("stencil: a plate that is all rim stays as it is.")

# %% nbgrader={"grade": true, "grade_id": "stencil_test_plates", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Other plates: the smallest with an inside, many blocks, blocks to spare.
kernel = lk.checks.graded_kernel(stencil)
plate, out = np.eye(3, dtype=np.float32), np.full((3, 3), np.nan, np.float32)
lk.checks.expect_clean(kernel, ((2, 2), (4, 2), (plate, out, 3, 3)))
lk.checks.expect_close(out, stencil_expected(plate), rtol=1e-5, atol=1e-6, name="a 3 x 3 plate")
### BEGIN HIDDEN TESTS
# Input: plates of several blocks, some with blocks to spare
rng = np.random.default_rng(383)
for rows, columns, grid, block in [(3, 4, (1, 1), (8, 8)), (17, 40, (3, 3), (16, 8)), (40, 17, (2, 5), (16, 8)), (5, 33, (3, 3), (32, 2))]:
    plate = rng.standard_normal((rows, columns), dtype=np.float32)
    out = np.full((rows, columns), np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, block, (plate, out, rows, columns)))
    lk.checks.expect_close(out, stencil_expected(plate), rtol=1e-5, atol=1e-6, name=f"a {rows} x {columns} plate")
### END HIDDEN TESTS
print("stencil: right for the smallest plate with an inside.")

# %% nbgrader={"grade": true, "grade_id": "stencil_test_traffic", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 32 x 128 cells in blocks of 32 x 8: 128 warps, each a piece of one row. Five loads are enough, and the rows at the rim need one.
# 60 warps have a cell of the rim beside cells of the inside. With a branch for each, they make one load and one store more.
kernel = lk.checks.graded_kernel(stencil)
plate = np.random.default_rng(382).standard_normal((32, 128), dtype=np.float32)
out = np.zeros((32, 128), np.float32)
profile = kernel.profile[(4, 4), (32, 8)](plate, out, 32, 128)
lk.checks.expect_close(out, stencil_expected(plate), rtol=1e-5, atol=1e-6, name="out, while it was profiled")
lk.checks.expect_counters(profile, at_most_global_store_requests=128 + 60, at_most_global_store_sectors=512 + 60, name="stencil")
lk.checks.expect_counters(profile, at_least_global_load_requests=128, at_most_global_load_requests=8 + 5 * 120 + 60, name="stencil")
# the inside: three aligned loads of 4 sectors, and two shifted ones that reach into a fifth
lk.checks.expect_counters(profile, at_most_global_load_sectors=8 * 4 + 120 * (3 * 4 + 2 * 5) + 60, name="stencil")
lk.checks.expect_counters(profile, bytes_read=32 * 128 * 4, bytes_written=32 * 128 * 4, name="stencil")
print("stencil: each warp loads and stores pieces of rows.")

# %% jupyter={"source_hidden": true}
with lk.picture("A hot spot on a cold plate, after 0, 8 and 64 of your steps."):
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    plate = np.zeros((48, 64), np.float32)
    plate[20:26, 24:40] = 1.0
    figure = make_subplots(1, 3, subplot_titles=["start", "8 steps", "64 steps"])
    steps = 0
    for place, until in enumerate([0, 8, 64], start=1):
        while steps < until:
            out = np.zeros_like(plate)
            stencil[launch_shape(48, 64, (32, 8)), (32, 8)](plate, out, 48, 64)
            plate, steps = out, steps + 1
        figure.add_trace(go.Heatmap(z=plate, colorscale="Inferno", showscale=False, zmin=0, zmax=1), 1, place)
    figure.update_layout(height=240, margin={"l": 10, "r": 10, "t": 30, "b": 10})
    lk.show(figure, summary="A bright rectangle spreads and fades as the stencil is applied 8 and 64 times.")

# %% [markdown]
# ## Part 6 · Errors, on purpose
#
# On a GPU, an access one element past the end usually hits other data, and no error is reported. Here are three mistakes and what the kit
# says of each. Nothing breaks: kernels run in a process of their own.

# %%
# %%cuda past_the_end
__global__ void past_the_end(float* x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) x[i] = 2.0f * x[i];
}

# %%
small = np.ones(100, np.float32)
for finding in past_the_end.check[1, 128](small, 100):
    print(finding, "\n")
for attempt in (
    lambda: past_the_end[1, 128](np.ones(100), 100),  # numpy's default is float64
    lambda: past_the_end[1, 1025](small, 100),
):
    try:
        attempt()
    except lk.LabkitError as error:
        print(f"{type(error).__name__}: {error}\n")

# %% [markdown]
# ### Task 9 · Find the fault
# *10 points · 10 minutes · ●●○○*
#
# This kernel sums each row of a matrix whose rows are stored with a **pitch**: `pitch` elements from one row to the next, of
# which the first `columns` count. What lies between is padding, and behind the last row there need not be any. The author tested it with
# the two rows of the next cell, and both sums were right. The kernel has **three faults**. On these two rows `check` sees only the one
# that leaves the arrays, and it is silent once that one is mended. Read what it says, find the other two, then write the kernel right.

# %%
# %%cuda row_sums_broken
__global__ void row_sums_broken(const float* x, float* sums, int rows, int columns, int pitch)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r > rows) return;
    float sum = 0.0f;
    for (int c = 0; c <= columns; ++c) sum += x[r * columns + c];
    sums[r] = sum;
}

# %%
# Two rows of three, stored four apart.
padded = np.array([[1, 2, 3, 0], [4, 5, 6, 0]], np.float32)
sums = np.zeros(2, np.float32)
for finding in row_sums_broken.check[1, 32](padded, sums, 2, 3, 4):
    print(finding, "\n")
print(sums, "is even right: with a zero as padding, two of the faults cancel")

# %%
lk.predict("row_sums")

# %% nbgrader={"grade": false, "grade_id": "row_sums", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda row_sums
// sums[r] = x[r, 0] + ... + x[r, columns - 1], rows stored `pitch` elements apart. One thread
// a row.
__global__ void row_sums(const float* x, float* sums, int rows, int columns, int pitch)
{
    ### BEGIN SOLUTION
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float sum = 0.0f;
    for (int c = 0; c < columns; ++c) sum += x[r * pitch + c];
    sums[r] = sum;
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "row_sums_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(row_sums)
padded = np.array([1, 2, 3, 7, 4, 5, 6, 8, 7, 8, 9], np.float32)  # rows of three, stored four apart; no padding behind the last
sums = np.full(3, np.nan, np.float32)
lk.checks.expect_clean(kernel, (1, 32, (padded, sums, 3, 3, 4)))
began_wrong = np.array_equal(sums, [6, 16, 21])  # three elements each from 0, 3 and 6 on, where rows begin at 0, 4 and 8
assert not began_wrong, "rows are read from elements 0, 3 and 6 on, which are columns apart. They are stored pitch = 4 apart."
lk.checks.expect_close(sums, np.array([6.0, 15.0, 24.0]), rtol=1e-6, name="row sums of 3 x 3, pitch 4")
padded = np.arange(40 * 5, dtype=np.float32)
sums = np.full(40, np.nan, np.float32)
lk.checks.expect_clean(kernel, (2, 32, (padded, sums, 40, 2, 5)))
lk.checks.expect_close(sums, padded[::5] + padded[1::5], rtol=1e-6, name="row sums of 40 x 2, pitch 5, two blocks")
print("row_sums: all three faults are gone: no thread left the matrix, and no padding was added.")

# %% nbgrader={"grade": true, "grade_id": "row_sums_test_pitches", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Pitch and columns equal, one row, one thread.
kernel = lk.checks.graded_kernel(row_sums)
sums = np.full(1, np.nan, np.float32)
lk.checks.expect_clean(kernel, (1, 1, (np.ones(4, np.float32), sums, 1, 4, 4)))
lk.checks.expect_close(sums, np.array([4.0]), rtol=0, name="one row, pitch equal to columns")
### BEGIN HIDDEN TESTS
# Input: a pitch equal to the columns, or a single row
rng = np.random.default_rng(391)
for rows, columns, pitch, grid, block in [(33, 5, 5, 2, 32), (1, 6, 8, 1, 1)]:
    x = rng.standard_normal(rows * pitch, dtype=np.float32)
    sums = np.full(rows, np.nan, np.float32)
    expected = x.reshape(rows, pitch)[:, :columns].astype(float).sum(axis=1)
    lk.checks.expect_clean(kernel, (grid, block, (x, sums, rows, columns, pitch)))
    lk.checks.expect_close(sums, expected, rtol=1e-5, atol=1e-5, name=f"row sums, {rows} x {columns}, pitch {pitch}")
### END HIDDEN TESTS
print("row_sums: right where pitch and columns are equal.")

# %% nbgrader={"grade": true, "grade_id": "row_sums_test_padding", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# A padding full of numbers, one column, no padding behind the last row.
kernel = lk.checks.graded_kernel(row_sums)
sums = np.full(3, np.nan, np.float32)
lk.checks.expect_clean(kernel, (1, 4, (np.array([1, 9, 2, 9, 3], np.float32), sums, 3, 1, 2)))
lk.checks.expect_close(sums, np.array([1.0, 2.0, 3.0]), rtol=0, name="three rows of one column, pitch 2")
### BEGIN HIDDEN TESTS
# Input: a padding full of numbers, one column, or no padding behind the last row
rng = np.random.default_rng(392)
for rows, columns, pitch, grid, block in [(7, 4, 9, 1, 32), (40, 1, 3, 3, 16)]:
    x = rng.standard_normal((rows - 1) * pitch + columns, dtype=np.float32)
    sums = np.full(rows, np.nan, np.float32)
    expected = np.array([x[r * pitch : r * pitch + columns].astype(float).sum() for r in range(rows)])
    lk.checks.expect_clean(kernel, (grid, block, (x, sums, rows, columns, pitch)))
    lk.checks.expect_close(sums, expected, rtol=1e-5, atol=1e-5, name=f"row sums, {rows} x {columns}, pitch {pitch}")
### END HIDDEN TESTS
print("row_sums: right for rows of one column with padding between them.")

# %% [markdown]
# ## Part 7 · How many blocks fit?
#
# A streaming multiprocessor hides memory's latency with other warps, as many as fit. Four things run out: warps, blocks, registers
# and shared memory. (The calculator below lists a fifth, hardware barriers. An SM of an H100 has 64, so a kernel that needs one a block
# never runs out of them.) The limits below are those of compute capability 9.0, an H100: from NVIDIA's CUDA programming guide, and the steps
# of allocation from its occupancy calculator.

# %% nbgrader={"grade": false, "grade_id": "lab03_limits", "locked": true, "schema_version": 3, "solution": false, "task": false}
SM_90 = {
    "warps": 64,  # resident on an SM
    "blocks": 32,
    "registers": 65_536,  # of 32 bits
    "registers_unit": 256,  # allocated to a warp in steps of this many
    "shared_bytes": 233_472,  # 228 KiB
    "shared_reserved": 1_024,  # bytes that the system takes in every block
    "shared_unit": 128,  # allocated in steps of this many bytes
}

# %% [markdown]
# ### Task 10 · Blocks on an SM
# *8 points · 10 minutes · ●●○○*
#
# Compute how many blocks each of the four resources allows; the least of the four is the answer. Registers need the most care: an SM
# has four partitions with a quarter of the registers each, and a warp's registers lie in one partition. Count the warps that fit into
# a partition, and four times as many fit into the SM.

# %%
lk.predict("blocks_per_sm")


# %% nbgrader={"grade": false, "grade_id": "blocks_per_sm", "locked": false, "schema_version": 3, "solution": true, "task": false}
def blocks_per_sm(threads, registers, shared_bytes, limits=SM_90):
    """Blocks of a kernel that are resident on one SM: the least that warps, blocks, registers and shared memory allow.

    threads a block (whole warps are allocated), registers a thread, shared bytes a block. A warp's registers,
    32 x registers, round up to limits["registers_unit"]; a block's shared memory, with limits["shared_reserved"] on top,
    to limits["shared_unit"]. Each of an SM's four partitions has a quarter of its registers, and a warp's registers lie in one.

    >>> blocks_per_sm(threads=256, registers=32, shared_bytes=0)
    8
    """
    ### BEGIN SOLUTION
    warps = -(-threads // 32)
    by_warps = limits["warps"] // warps
    unit = limits["registers_unit"]
    a_warp = -(-32 * registers // unit) * unit
    by_registers = 4 * (limits["registers"] // 4 // a_warp) // warps
    unit = limits["shared_unit"]
    a_block = -(-(shared_bytes + limits["shared_reserved"]) // unit) * unit
    by_shared = limits["shared_bytes"] // a_block
    return min(by_warps, limits["blocks"], by_registers, by_shared)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "blocks_per_sm_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(blocks_per_sm(threads=256, registers=32, shared_bytes=0), 8, name="32 registers, 64 warps: full")
blocks = blocks_per_sm(threads=65, registers=32, shared_bytes=0)
assert blocks != 20, "20 blocks, 5 in each partition: a block's warps may lie in different partitions. Count warps in a partition, not blocks."
lk.checks.expect_equal(blocks, 21, name="65 threads are three warps")
lk.checks.expect_equal(blocks_per_sm(threads=32, registers=16, shared_bytes=0), 32, name="no more than 32 blocks, however small")
### BEGIN HIDDEN TESTS
# Input: a block of 33 threads
lk.checks.expect_equal(blocks_per_sm(threads=33, registers=32, shared_bytes=0), 32, name="33 threads are two warps")
# Input: a block whose last warp is not full
lk.checks.expect_equal(blocks_per_sm(threads=97, registers=32, shared_bytes=0), 16, name="97 threads are four warps")
# Input: a block of one thread
lk.checks.expect_equal(blocks_per_sm(threads=1, registers=16, shared_bytes=0), 32, name="a block of one thread")
### END HIDDEN TESTS
print("blocks_per_sm: whole warps are counted, and at most 32 blocks.")

# %% nbgrader={"grade": true, "grade_id": "blocks_per_sm_test_registers", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Registers: allocated to whole warps, in steps, from one quarter of the SM.
blocks = blocks_per_sm(threads=1024, registers=64, shared_bytes=0)
assert blocks != 0, "0 blocks: the 32 warps of a block may lie in different partitions, 8 in each. Only a single warp lies in one."
lk.checks.expect_equal(blocks, 1, name="64 registers a thread, 1,024 threads")
blocks = blocks_per_sm(threads=256, registers=33, shared_bytes=0)
assert blocks != 7, "7 blocks: a warp of 33 registers a thread takes 1,056, which are rounded up to 1,280."
lk.checks.expect_equal(blocks, 6, name="33 registers cost as much as 40")
blocks = blocks_per_sm(threads=96, registers=33, shared_bytes=0)
assert blocks != 17, "17 blocks are 51 warps, as many as the whole SM has registers for. A partition has registers for 12, and the SM has four."
lk.checks.expect_equal(blocks, 16, name="12 warps fit into a quarter of the registers")
### BEGIN HIDDEN TESTS
# Input: a large block, and registers that are rounded up
lk.checks.expect_equal(blocks_per_sm(threads=1024, registers=33, shared_bytes=0), 1, name="and 32 warps of 40 registers fit once")
# Input: registers that are rounded up
lk.checks.expect_equal(blocks_per_sm(threads=128, registers=50, shared_bytes=0), 9, name="50 registers cost as much as 56")
### END HIDDEN TESTS
print("blocks_per_sm: registers are rounded up for each warp, and a warp's registers lie in one quarter.")

# %% nbgrader={"grade": true, "grade_id": "blocks_per_sm_test_shared", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Shared memory: the reserve is added, then the sum is rounded up. Then other SMs: each limit is read from `limits`.
lk.checks.expect_equal(blocks_per_sm(threads=128, registers=32, shared_bytes=49_152), 4, name="48 KiB of shared memory a block")
lk.checks.expect_equal(blocks_per_sm(threads=64, registers=16, shared_bytes=115_712), 2, name="113 KiB each, and the reserve twice")
lk.checks.expect_equal(blocks_per_sm(threads=64, registers=16, shared_bytes=115_713), 1, name="one byte more rounds up to another 128")
for limit, changed, kernel, expected in [
    ("warps", 32, (256, 32, 0), 4),
    ("blocks", 16, (32, 16, 0), 16),
    ("registers", 32_768, (128, 64, 0), 4),
    ("registers_unit", 512, (128, 33, 0), 10),  # 1,056 round up to 1,536, and 10 warps fit into a quarter
    ("shared_bytes", 116_736, (128, 32, 49_152), 2),
    ("shared_reserved", 0, (64, 16, 116_736), 2),
    ("shared_unit", 1_024, (64, 16, 28_160), 7),  # 28,160 + 1,024 round up to 29,696
]:
    blocks = blocks_per_sm(*kernel, limits={**SM_90, limit: changed})
    lk.checks.expect_equal(blocks, expected, name=f"blocks_per_sm{kernel} on an SM with limits[{limit!r}] = {changed:,}")
### BEGIN HIDDEN TESTS
# Input: shared memory that fills the SM
lk.checks.expect_equal(blocks_per_sm(threads=64, registers=16, shared_bytes=232_448), 1, name="227 KiB and the reserve fill an SM")
# Input: shared memory just within a limit
lk.checks.expect_equal(blocks_per_sm(threads=64, registers=16, shared_bytes=28_160), 8, name="27.5 KiB, eight times, with the reserve")
# Input: shared memory just beyond a limit
lk.checks.expect_equal(blocks_per_sm(threads=64, registers=16, shared_bytes=28_161), 7, name="27.5 KiB and one byte")
### END HIDDEN TESTS
print("blocks_per_sm: shared memory counts with its reserve and in whole steps, and every limit is read from `limits`.")

# %% jupyter={"source_hidden": true}
with lk.picture("Turn the sliders: what keeps the next block out?"):
    blocks_per_sm(256, 32, 0)
    display(lk.widgets.occupancy("sm_90", threads=256, registers=40, shared_bytes=8192))

# %% [markdown]
# How many registers does your kernel take? NVIDIA's own compiler knows, and it needs no GPU to say so.

# %% jupyter={"source_hidden": true}
with lk.picture("What NVIDIA's compiler makes of your kernel for an H100."):
    kernel = lk.checks.graded_kernel(matmul_coalesced)
    try:
        print(kernel.resources("sm_90"))
    except lk.LabkitError as error:
        print(f"Skipped: {error}")

# %% [markdown]
# ## On your GPU
#
# Not graded. Where there is a GPU, the next cell times the two products at 2,048 and says how they compare. Elsewhere it says why it
# does nothing.

# %% jupyter={"source_hidden": true}
device = lk.detect()
if device.kind != "cuda" or device.virtual:
    print(f"Skipped: this needs a CUDA GPU, and here is: {device.label}. Nothing was measured.")
else:
    import torch

    with lk.picture("Your two products on this GPU, under its roof."):
        size = 2048
        A, B, C = (torch.randn(size, size, device="cuda") for _ in range(3))
        roof = lk.Roofline.of(device)
        for each, launch in ((matmul_naive, ((2048, 64), (1, 32))), (matmul_coalesced, ((64, 256), 256))):
            timing = lk.bench(each[launch], A, B, C, size, size, size, name=each.name)
            work = lk.Work(flops=2 * size**3, bytes_read=8 * size**2, bytes_written=4 * size**2, name=each.name)
            print(timing, roof.place(work.with_seconds(timing.median)).verdict, sep="\n  ")

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel, run all cells, save, and look here: which tasks pass the checks you see, and what is left. In
# JupyterLab, a right-click on the panel and *Create New View for Cell Output* keeps it beside the notebook while you work.

# %%
lk.progress()

# %% [markdown]
# ## The ladder
#
# One product in six bars. The first three are launches of kernels that you have, and lab 04 builds the next two. The last bar is no
# kernel but the least possible: each matrix is read once. FLOP/B counts the bytes read, without those written.

# %% jupyter={"source_hidden": true}
with lk.picture("Bytes that one matrix product asks memory for, on a logarithmic scale."):
    import plotly.graph_objects as go

    n = 64 if smoke else 128
    A, B, C = (np.ones((n, n), np.float32) for _ in range(3))
    launches = {
        "task 5, lanes down a column": (matmul_naive, launch_shape(n, n, (1, 32)), (1, 32)),
        "task 5, lanes along a row": (matmul_naive, launch_shape(n, n, (32, 8)), (32, 8)),
        "task 6, 8 rows of 32 a block": (matmul_coalesced, launch_shape(n, n, (32, 8)), 256),
    }
    rungs = {label: each.profile[grid, block](A, B, C, n, n, n).work.bytes_read for label, (each, grid, block) in launches.items()}
    rungs["lab 04, tiles of 16 (theory)"] = 2 * n**3 // 16 * 4
    rungs["lab 04, tiles of 64 in registers (theory)"] = 2 * n**3 // 64 * 4
    rungs["each matrix once"] = 2 * n**2 * 4
    sizes = list(rungs.values())
    labels = [f"{label}: {size / 1e6:.3g} MB, {2 * n**3 / size:.2g} FLOP/B" for label, size in rungs.items()]
    bars = go.Bar(x=sizes, y=labels, orientation="h", marker_pattern_shape=["", "", "", "/", "/", "/"])
    figure = go.Figure(bars)
    figure.update_layout(height=320, margin={"l": 10, "r": 10, "t": 10, "b": 40})
    figure.update_yaxes(autorange="reversed", ticks="outside", ticklen=8, tickcolor="rgba(0,0,0,0)")  # a gap before the bars
    figure.update_xaxes(type="log", title=f"bytes read, {n} x {n} x {n}")
    lk.show(figure, summary="; ".join(labels))

# %% [markdown]
# An H100 wants about 20 FLOP for each byte. Warps that read rows took you from 0.06 to 0.4, with the same arithmetic and the same result.
#
# ## What to take along
#
# - Round the grid up and guard the edge, or write a grid-stride loop, which fits any grid.
# - Memory sees warps: 32 lanes, one request, sectors of 32 bytes. Four is a full row of floats, 32 is a column.
# - `threadIdx.x` runs along the last index of a row-major array. Everything else follows.
# - Lanes that disagree wait for each other; warps that disagree do not.
# - A right answer proves little. Run `check` before you believe it.
#
# ## Next
#
# [Chapter 6, *CUDA*](../../course/chapters/06_cuda.md), tells where grids and warps come from. Lab 04 keeps the coalesced warps and stops asking for the same bytes twice.
