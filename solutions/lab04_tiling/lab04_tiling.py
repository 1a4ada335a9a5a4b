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
# # Lab 04 · Staying local: tiles, registers, shuffles
#
# A naive matrix product asks global memory for every operand of every multiplication, and nearly all of them it has asked for
# before. This lab keeps them: in shared memory for a block, in registers for a thread, in a shuffle for a warp. Each level
# saves bytes, and brings a new way of going wrong.
#
# **You will be able to**
#
# - say from a tile's size how many bytes a matrix product moves, and write the kernel that moves no more;
# - place barriers: at most two for each step along $k$, and never in a branch;
# - lay out shared memory so that 32 lanes use 32 banks;
# - compute several outputs a thread, load four floats at once, reduce by shuffles, count in private bins;
# - find the races and edge errors that tests let pass.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 215 minutes | ●●●○ | any Linux machine with a C++ compiler; a GPU only for the last, ungraded section | 100 in 10 tasks |
#
# Needs lab 03. Reads along with [chapter 7, *Staying local: tiling*](../../course/chapters/07_tiling.md).
#
# Each task goes the same way: **predict** (not graded: committing to a guess is what teaches), **write**,
# **check**, then **look**. Marks come from right answers and from counted sectors, wavefronts and barriers, never from a clock.
# Stuck? `lk.hint("matmul_tiled")` in a new cell gives a nudge, and a stronger one each time you ask.
# Hints and wrong predictions cost no marks. `lk.progress()` shows how far you are. Long checks and the code of pictures are folded:
# click the three dots in a cell to read it.
#
# The 215 minutes include reading. Take **two sittings** of less than two hours: tasks 1 to 5, the matrix product, then tasks 6 to 10. Between them is
# a summary.

# %% tags=["install"] jupyter={"source_hidden": true}
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% nbgrader={"grade": false, "grade_id": "lab04_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import numpy as np

import mlsys_labkit as lk


def whole(rng, *shape):
    """Return random whole numbers from -99 to 99 as float32. Their sums, if below 2**24, are exact in any order."""
    return rng.integers(-99, 100, shape).astype(np.float32)


# %% tags=["parameters"]
smoke = False  # True: smaller pictures, for a quick run through
seed = 0

# %% [markdown]
# Lab 03 told what `check` and `profile` do. The counts are a **source-level model**: the accesses of your source, warp by
# warp, with no caches behind them. They are the same on every machine, which is why they can be marks. Where the compiler for the CPU makes
# one load of several equal ones, one is counted.
#
# Here is what lab 03 ended with: coalesced, and wasteful. Run both cells, then try another `n`. What does the last number depend on?

# %%
# %%cuda matmul_lab03
__global__ void matmul_lab03(const float* A, const float* B, float* C, int m, int n, int k)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int p = 0; p < k; ++p) sum += A[row * k + p] * B[p * n + column];
    C[row * n + column] = sum;
}

# %%
n = 64
A, B, C = (np.ones((n, n), np.float32) for _ in range(3))
asked = matmul_lab03.profile[(-(-n // 32), -(-n // 8)), (32, 8)](A, B, C, n, n, n).work.bytes_read
held = A.nbytes + B.nbytes
print(f"A and B have {held:,} bytes. The kernel asks for {asked:,}: each byte {asked / held:.0f} times.")

# %% [markdown]
# ## Part 1 · What a tile saves
#
# The last number grows with $n$: it is about $5n/8$. For 32 multiply-adds a warp needs 64 operands. They lie in five sectors, because all
# lanes share one element of $A$.
#
# Cut $C$ into tiles of $T \times T$ and let a block compute one. It walks along $k$: load a $T \times T$ tile of $A$ and one of $B$, use each
# element $T$ times, go on. Every element of $A$ is then loaded once for each *tile column* of $C$, not once for each column.
# Press play, and watch the two tiles walk.
#
# Two numbers of the picture differ from those above. It counts the elements that *threads* load: without tiles each element is loaded
# $n = 64$ times, 2.1 MB in all. The 40 times above count sectors, and the 32 lanes of a warp share one sector of $A$. Its FLOP/B count the bytes
# of $C$, too, which are written once.

# %%
lk.widgets.tile_walk(n=64, tile=16)

# %% [markdown]
# ### Task 1 · Bytes of a tiled product
# *8 points · 9 minutes · ●○○○*
#
# Before the kernel, its bill. The sizes are ragged: a tile that sticks out reads only what exists.

# %%
lk.predict("tile_traffic")


# %% nbgrader={"grade": false, "grade_id": "tile_traffic", "locked": false, "schema_version": 3, "solution": true, "task": false}
def tile_traffic(m, n, k, tile, bytes_per_element=4):
    """Bytes that C[m, n] = A[m, k] B[k, n] moves with square tiles: (read, written, shared memory a block).

    Every tile of C reads the rows of A and the columns of B that it needs, once; elements outside the matrices are not read.
    Each element of C is written once. A block holds one tile of A and one of B in shared memory.

    >>> tile_traffic(64, 64, 64, 16)
    (131072, 16384, 2048)
    """
    ### BEGIN SOLUTION
    tile_rows, tile_columns = -(-m // tile), -(-n // tile)
    read = tile_columns * m * k + tile_rows * k * n
    return read * bytes_per_element, m * n * bytes_per_element, 2 * tile * tile * bytes_per_element
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "tile_traffic_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(tile_traffic(64, 64, 64, 16), (131_072, 16_384, 2_048), name="64³ in tiles of 16: (read, written, shared)")
lk.checks.expect_equal(tile_traffic(64, 64, 64, 1)[0], 2 * 64**3 * 4, name="a tile of one: every operand of every product")
expected = (2 * (2 * 48 * 16 + 3 * 16 * 32), 2 * 48 * 32, 2 * 2 * 256)
halves = tile_traffic(48, 32, 16, 16, bytes_per_element=2)
turned = 2 * (3 * 48 * 16 + 2 * 16 * 32)
assert halves[0] != turned, f"{turned} bytes read: A is counted once for each of the 3 rows of tiles of C. Which tiles need the first row of A?"
lk.checks.expect_equal(halves, expected, name="48 x 32 x 16 in halves: (read, written, shared)")
# 3 x 5 in tiles of 2: C has 2 rows of tiles and 3 columns of tiles, so A [3, 4] is read 3 times, B [4, 5] twice
lk.checks.expect_equal(tile_traffic(3, 5, 4, 2), (4 * (3 * 12 + 2 * 20), 4 * 15, 4 * 8), name="3 x 5 x 4 in tiles of 2: (read, written, shared)")
print("tile_traffic: right for cubes, ragged sizes and halves.")

# %% nbgrader={"grade": true, "grade_id": "tile_traffic_test_sizes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Other sizes, against blocks that are counted one by one.
lk.checks.expect_equal(tile_traffic(64, 64, 64, 64)[0], 2 * 64 * 64 * 4, name="one tile reads each matrix once")
### BEGIN HIDDEN TESTS
# Input: sizes and tiles at random
rng = np.random.default_rng(411)
for _ in range(20):
    m, n, k, tile = (int(v) for v in rng.integers(1, 40, 4))
    read = 0
    for row in range(0, m, tile):  # what the blocks really read, one by one
        for column in range(0, n, tile):
            read += k * (min(tile, m - row) + min(tile, n - column))
    lk.checks.expect_equal(tile_traffic(m, n, k, tile)[0], 4 * read, name=f"m={m} n={n} k={k} tile={tile}")
### END HIDDEN TESTS
print("tile_traffic: right for a single tile.")

# %% [markdown]
# For a large cube of side $n$ that is $8n^3/T$ bytes *read* for $2n^3$ FLOPs: an intensity of $T/4$ FLOP a byte read. The bytes of $C$ lower it
# a little, and less the larger $n$ is: 3.56 in the picture above, where $T/4 = 4$. An H100 needs about 20 before its FP32 units, and not its
# memory, set the pace. Keep the number for task 5.
#
# ## Part 2 · Shared memory and barriers
#
# `__shared__` arrays belong to a block. Threads write them for each other, so every reader must know that the writers are done, and
# every writer that the readers are: `__syncthreads()` lets nobody pass until all threads of the block have arrived.

# %% [markdown]
# ### Task 2 · The tiled matrix product
# *16 points · 31 minutes · ●●●○*
#
# A block of $T \times T$ threads computes a tile of $C$. Matrices are ragged: where a tile sticks out, put zeros into shared memory.
# Every thread, also one that has no element of $C$, fills its place in both tiles and goes to every barrier. Keep both tiles
# `float[T][T]`, with `threadIdx.x` as their last index: the tests count bank conflicts, which part 3 explains, and this layout has none.
# `T` is a template parameter: the compiler knows its value, so that it may stand in the size of an array. The first line of the cell sets
# it to 16.

# %%
lk.predict("matmul_tiled")

# %% nbgrader={"grade": false, "grade_id": "matmul_tiled", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda matmul_tiled matmul_tiled<16>
// C[m, n] = A[m, k] B[k, n], row-major, any sizes. Blocks of T x T threads.
// Block (x, y) computes the tile of C from row T * y and column T * x on.
template <int T>
__global__ void matmul_tiled(const float* A, const float* B, float* C, int m, int n, int k)
{
    ### BEGIN SOLUTION
    __shared__ float a[T][T];
    __shared__ float b[T][T];
    int tx = threadIdx.x, ty = threadIdx.y;
    int column = blockIdx.x * T + tx;
    int row = blockIdx.y * T + ty;
    float sum = 0.0f;
    for (int from = 0; from < k; from += T) {
        a[ty][tx] = row < m && from + tx < k ? A[row * k + from + tx] : 0.0f;
        b[ty][tx] = from + ty < k && column < n ? B[(from + ty) * n + column] : 0.0f;
        __syncthreads();  // the tiles are whole
        for (int p = 0; p < T; ++p) sum += a[ty][p] * b[p][tx];
        __syncthreads();  // and nobody needs them any more
    }
    if (row < m && column < n) C[row * n + column] = sum;
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "matmul_tiled_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(matmul_tiled)
rng = np.random.default_rng(421)
# whole tiles first; then every edge ragged, k as well
for m, n, k in [(32, 32, 48), (21, 40, 19)]:
    A, B = whole(rng, m, k), whole(rng, k, n)
    C = np.full((m, n), np.nan, np.float32)
    lk.checks.expect_clean(kernel, ((-(-n // 16), -(-m // 16)), (16, 16), (A, B, C, m, n, k)), name=f"C, {m} x {k} times {k} x {n}")
    cut = k // 16 * 16
    is_cut = cut < k and np.array_equal(C, A[:, :cut] @ B[:cut])
    assert not is_cut, f"C has only the first {cut} of k = {k} products of each sum: the last step along k, a ragged one, is missing."
    ragged = " (whole tiles were right, and here every edge is ragged, k as well)" if cut < k else ""
    lk.checks.expect_close(C, A @ B, rtol=0, name=f"C, {m} x {k} times {k} x {n}{ragged}")
print("matmul_tiled: right for whole and ragged tiles, without a race.")

# %% nbgrader={"grade": true, "grade_id": "matmul_tiled_test_shapes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Other sizes: an exact fit, one past it, less than a tile, one element, one step along k.
kernel = lk.checks.graded_kernel(matmul_tiled)
C = np.full((1, 2), np.nan, np.float32)
lk.checks.expect_clean(kernel, ((1, 1), (16, 16), (np.ones((1, 3), np.float32), np.ones((3, 2), np.float32), C, 1, 2, 3)))
lk.checks.expect_close(C, np.full((1, 2), 3.0), rtol=0, name="C, 1 x 3 times 3 x 2, less than a tile")
### BEGIN HIDDEN TESTS
# Input: an exact fit, one past it, one element, or one step along k
rng = np.random.default_rng(423)
for m, n, k in [(16, 16, 16), (17, 33, 5), (1, 1, 40), (40, 3, 17), (5, 50, 1), (31, 31, 31)]:
    A, B = whole(rng, m, k), whole(rng, k, n)
    C = np.full((m, n), np.nan, np.float32)
    lk.checks.expect_clean(kernel, ((-(-n // 16), -(-m // 16)), (16, 16), (A, B, C, m, n, k)))
    lk.checks.expect_close(C, A @ B, rtol=0, name=f"C, {m} x {k} times {k} x {n}")
### END HIDDEN TESTS
print("matmul_tiled: right for less than a tile.")

# %% nbgrader={"grade": true, "grade_id": "matmul_tiled_test_traffic", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
# 64 x 64 x 64 in 4 x 4 blocks, 4 tiles along k: 2 x 64³ / 16 floats read, eight to a sector; two barriers a tile.
kernel = lk.checks.graded_kernel(matmul_tiled)
rng = np.random.default_rng(422)
A, B, C = whole(rng, 64, 64), whole(rng, 64, 64), np.zeros((64, 64), np.float32)
profile = kernel.profile[(4, 4), (16, 16)](A, B, C, 64, 64, 64)
lk.checks.expect_close(C, A @ B, rtol=0, name="C, while it was profiled")
lk.checks.expect_counters(profile, at_least_global_load_sectors=2 * 64 * 64 // 8, name="matmul_tiled")
lk.checks.expect_counters(profile, at_most_global_load_sectors=2 * 64**3 // 16 // 8, name="matmul_tiled")
lk.checks.expect_counters(profile, at_most_barriers=16 * 4 * 2, global_store_sectors=64 * 64 // 8, name="matmul_tiled")
lk.checks.expect_counters(profile, global_atomic_requests=0, shared_atomic_requests=0, name="matmul_tiled")  # loads in disguise
print(f"matmul_tiled: {profile.work.bytes_read:,} bytes, as task 1 computes, with two barriers a step or fewer.")

# %% nbgrader={"grade": true, "grade_id": "matmul_tiled_test_banks", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Part 3 explains banks. Here it is enough that threadIdx.x is the last index of both tiles, and that they are T wide.
kernel = lk.checks.graded_kernel(matmul_tiled)
A, B, C = whole(np.random.default_rng(424), 32, 32), np.eye(32, dtype=np.float32), np.zeros((32, 32), np.float32)
profile = kernel.profile[(2, 2), (16, 16)](A, B, C, 32, 32, 32)
lk.checks.expect_close(C, A, rtol=0, name="C = A times the unit matrix, while it was profiled")
assert profile.total("shared", "load", "requests"), "nothing is read from shared memory: where are the tiles?"
lk.checks.expect_counters(profile, bank_conflicts=0, name="matmul_tiled")
print("matmul_tiled: no bank of shared memory was asked for two words at once.")

# %% jupyter={"source_hidden": true}
with lk.picture("Your product, line by line. Turn the heat to shared: where has the traffic gone?"):
    A, B, C = (np.ones((64, 64), np.float32) for _ in range(3))
    tiled = matmul_tiled.profile[(4, 4), (16, 16)](A, B, C, 64, 64, 64)
    display(lk.widgets.annotated_source(tiled))

# %% [markdown]
# ### Task 3 · The race that gives the right answer
# *8 points · 11 minutes · ●●○○*
#
# A long vector comes in pieces of 128. For each element of a piece, `y` gets its right neighbour minus the element itself; beyond
# the piece's end stands a zero. A block takes one piece after the other through one shared array.

# %%
# %%cuda differences_racy
__global__ void differences_racy(const float* x, float* y, int pieces)
{
    __shared__ float s[128];
    int tid = threadIdx.x;
    for (int p = blockIdx.x; p < pieces; p += gridDim.x) {
        int gid = p * 128 + tid;
        s[tid] = x[gid];
        __syncthreads();
        y[gid] = (tid == 127 ? 0.0f : s[tid + 1]) - s[tid];
    }
}

# %%
x, y = np.arange(512, dtype=np.float32) ** 2, np.zeros(512, np.float32)
right = np.diff(x.reshape(4, 128), axis=1, append=0).ravel()
for _ in range(10):
    differences_racy[2, 128](x, y, 4)
    print(np.array_equal(y, right), end=" ")

# %% [markdown]
# Ten out of ten, and luck: the simulator takes threads in rising order unless told otherwise. A GPU promises no order. `seeded` takes
# another one, and what `check` says does not depend on any.

# %%
for order in range(1, 6):
    findings = differences_racy.check.seeded(order)[2, 128](x, y, 4)
    print(f"order {order}: {np.count_nonzero(y != right):3d} of 512 wrong, check says: {findings[0].kind}")
print(f"\n{findings[0]}")

# %% [markdown]
# A warp that is done with one piece runs ahead to the next, and overwrites what a slower one has still to read. Write the kernel without
# the race, and with no more barriers than it needs.

# %%
lk.predict("differences")

# %% nbgrader={"grade": false, "grade_id": "differences", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda differences
// y[i] = x[i + 1] - x[i] in each piece of 128, y[i] = 0 - x[i] at its end. Blocks of 128
// threads, any grid. Each element of x is read from global memory once.
__global__ void differences(const float* x, float* y, int pieces)
{
    __shared__ float piece[128];
    int t = threadIdx.x;
    for (int p = blockIdx.x; p < pieces; p += gridDim.x) {
        ### BEGIN SOLUTION
        float mine = x[128 * p + t];
        piece[t] = mine;
        __syncthreads();  // the piece is whole
        float next = t < 127 ? piece[t + 1] : 0.0f;
        __syncthreads();  // and everybody has what they need of it
        y[128 * p + t] = next - mine;
        ### END SOLUTION
    }
}

# %% nbgrader={"grade": true, "grade_id": "differences_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(differences)
x, y = np.arange(512, dtype=np.float32) ** 2, np.full(512, np.nan, np.float32)
lk.checks.expect_clean(kernel, (2, 128, (x, y, 4)))
lk.checks.expect_close(y.reshape(4, 128), np.diff(x.reshape(4, 128), axis=1, append=0), rtol=0, name="differences of four pieces")
# 8 pieces of 4 warps: a load and a store each, four sectors; two barriers a piece
x, y = whole(np.random.default_rng(431), 1024), np.zeros(1024, np.float32)
profile = kernel.profile[2, 128](x, y, 8)
lk.checks.expect_close(y.reshape(8, 128), np.diff(x.reshape(8, 128), axis=1, append=0), rtol=0, name="y, while it was profiled")
lk.checks.expect_counters(profile, at_most_global_load_requests=32, global_load_sectors=128, name="differences")
lk.checks.expect_counters(profile, at_most_global_store_requests=32, global_store_sectors=128, name="differences")
lk.checks.expect_counters(profile, at_most_barriers=2 * 8, bank_conflicts=0, name="differences")
print("differences: right, without a race, with two barriers a piece or fewer, and each element is read once.")

# %% nbgrader={"grade": true, "grade_id": "differences_test_grids", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Other grids: blocks without a piece, unequal shares, all pieces in one block.
kernel = lk.checks.graded_kernel(differences)
x, y = np.arange(128, dtype=np.float32), np.full(128, np.nan, np.float32)
lk.checks.expect_clean(kernel, (3, 128, (x, y, 1)))
lk.checks.expect_close(y, np.diff(x, append=0), rtol=0, name="differences, one piece and three blocks")
### BEGIN HIDDEN TESTS
# Input: one piece, blocks without a piece, or unequal shares
rng = np.random.default_rng(432)
for pieces, grid in [(1, 1), (3, 8), (9, 2), (5, 1)]:
    x, y = whole(rng, 128 * pieces), np.full(128 * pieces, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, 128, (x, y, pieces)))
    expected = np.diff(x.reshape(-1, 128), axis=1, append=0)
    lk.checks.expect_close(y.reshape(-1, 128), expected, rtol=0, name=f"differences, {pieces} pieces, {grid} blocks")
### END HIDDEN TESTS
print("differences: right with blocks that have no piece.")

# %% [markdown]
# ## Part 3 · Banks
#
# Shared memory has 32 banks, each 4 bytes wide: word $w$ lives in bank $w \bmod 32$. A request is served in one **wavefront** when no bank is
# asked for two different words. A column of a `float[32][32]` lies in one bank, so its 32 lanes take 32 wavefronts.

# %% [markdown]
# ### Task 4 · Transpose
# *12 points · 18 minutes · ●●○○*
#
# A naive transpose either reads or writes columns of global memory: 32 sectors a request. Take the detour through a shared tile so
# that both sides are rows, and lay the tile out so that its columns are not one bank.

# %%
lk.predict("transpose_tiled")

# %% nbgrader={"grade": false, "grade_id": "transpose_tiled", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda transpose_tiled
// out[columns, rows] = in[rows, columns] transposed, any rows and columns. Blocks of 32 x 8
// threads. Block (x, y) takes the 32 x 32 tile of `in` from row 32 * y and column 32 * x on:
// each thread moves four elements.
__global__ void transpose_tiled(const float* in, float* out, int rows, int columns)
{
    ### BEGIN SOLUTION
    __shared__ float tile[32][33];  // one float of padding: a column now visits every bank
    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) {
        if (x < columns && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * columns + x];
    }
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) {
        if (x < rows && y + j < columns) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "transpose_tiled_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(transpose_tiled)
rng = np.random.default_rng(441)
for rows, columns in [(64, 64), (40, 70)]:  # whole tiles first; then both edges ragged
    matrix, out = whole(rng, rows, columns), np.full((columns, rows), np.nan, np.float32)
    launch = (-(-columns // 32), -(-rows // 32)), (32, 8), (matrix, out, rows, columns)
    lk.checks.expect_clean(kernel, launch, name=f"{rows} x {columns} transposed")
    lk.checks.expect_close(out, matrix.T, rtol=0, name=f"{rows} x {columns} transposed")
print("transpose_tiled: right for whole and ragged tiles, without a race.")

# %% nbgrader={"grade": true, "grade_id": "transpose_tiled_test_shapes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Other sizes: one element, narrow, wide.
kernel = lk.checks.graded_kernel(transpose_tiled)
matrix, out = np.arange(66, dtype=np.float32).reshape(2, 33), np.full((33, 2), np.nan, np.float32)
lk.checks.expect_clean(kernel, ((2, 1), (32, 8), (matrix, out, 2, 33)))
lk.checks.expect_close(out, matrix.T, rtol=0, name="2 x 33 transposed")
### BEGIN HIDDEN TESTS
# Input: one element, narrow or wide matrices, or an exact fit
rng = np.random.default_rng(443)
for rows, columns in [(1, 1), (33, 5), (5, 33), (70, 40), (32, 32)]:
    matrix, out = whole(rng, rows, columns), np.full((columns, rows), np.nan, np.float32)
    lk.checks.expect_clean(kernel, ((-(-columns // 32), -(-rows // 32)), (32, 8), (matrix, out, rows, columns)))
    lk.checks.expect_close(out, matrix.T, rtol=0, name=f"{rows} x {columns} transposed")
### END HIDDEN TESTS
print("transpose_tiled: right for a matrix of two rows.")

# %% nbgrader={"grade": true, "grade_id": "transpose_tiled_test_traffic", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
# 64 x 64: 128 rows of 32 floats in and as many out, four sectors each, and no bank asked twice.
kernel = lk.checks.graded_kernel(transpose_tiled)
matrix, out = whole(np.random.default_rng(442), 64, 64), np.zeros((64, 64), np.float32)
profile = kernel.profile[(2, 2), (32, 8)](matrix, out, 64, 64)
lk.checks.expect_close(out, matrix.T, rtol=0, name="out, while it was profiled")
lk.checks.expect_counters(profile, global_load_sectors=512, global_store_sectors=512, name="transpose_tiled")
lk.checks.expect_counters(profile, bank_conflicts=0, at_most_barriers=4, name="transpose_tiled")
print("transpose_tiled: rows in, rows out, and no bank asked twice.")

# %% jupyter={"source_hidden": true}
with lk.picture("Your tile's column: 32 banks. Pattern 'column of a 32 x 32 tile': one bank."):
    matrix, out = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
    transposed = transpose_tiled.profile[(2, 2), (32, 8)](matrix, out, 64, 64)
    column = next((one.line for one in transposed.lines if (one.space, one.op) == ("shared", "load")), None)
    display(lk.widgets.warp_access(transposed, column))

# %% [markdown]
# ## Part 4 · Registers, and wider loads
#
# The tiled product loads two floats from shared memory for every multiply-add. A thread that computes $4 \times 4$ outputs loads eight for
# sixteen. That is tiling again, one level further in.

# %% [markdown]
# ### Task 5 · Sixteen outputs a thread
# *14 points · 36 minutes · ●●●●*
#
# Blocks of $16 \times 16$ threads compute $64 \times 64$ tiles of $C$ and walk along $k$ in steps of 16. To spread neighbouring outputs over
# neighbouring threads, let thread $(x, y)$ own rows $y, y + 16, y + 32, y + 48$ of the tile and columns $x, x + 16, x + 32, x + 48$.
# The tests count shared loads (eight for each step of $p$), barriers, and bank conflicts: none, on the way into shared memory
# either. A warp here is two rows of 16 threads. An odd row length, which spreads the *column* of task 4, makes conflicts here and mends
# none: work out the banks that the two rows of a warp need, and choose the row length by them.

# %%
lk.predict("matmul_registers")

# %% nbgrader={"grade": false, "grade_id": "matmul_registers", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda matmul_registers
// C[m, n] = A[m, k] B[k, n], row-major, any sizes.
// Blocks of 16 x 16 threads, each block a 64 x 64 tile of C.
__global__ void matmul_registers(const float* A, const float* B, float* C, int m, int n, int k)
{
    ### BEGIN SOLUTION
    __shared__ float a[64][16];  // [row][p]: a warp reads two rows, 16 banks apart
    __shared__ float b[16][80];  // [p][column], padded: the two rows that a warp writes lie 16 banks apart, too
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * 64, column = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int from = 0; from < k; from += 16) {
        for (int i = 0; i < 64; i += 16) {
            int r = row + ty + i, c = column + tx + i;
            a[ty + i][tx] = r < m && from + tx < k ? A[r * k + from + tx] : 0.0f;
            b[ty][tx + i] = from + ty < k && c < n ? B[(from + ty) * n + c] : 0.0f;
        }
        __syncthreads();
        for (int p = 0; p < 16; ++p) {
            float x[4], y[4];
            for (int i = 0; i < 4; ++i) x[i] = a[ty + 16 * i][p];
            for (int j = 0; j < 4; ++j) y[j] = b[p][tx + 16 * j];
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 4; ++j) sum[i][j] += x[i] * y[j];
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            int r = row + ty + 16 * i, c = column + tx + 16 * j;
            if (r < m && c < n) C[r * n + c] = sum[i][j];
        }
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "matmul_registers_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(matmul_registers)
rng = np.random.default_rng(451)
# whole tiles first; then every edge ragged, k as well
for m, n, k in [(64, 128, 32), (70, 41, 19)]:
    A, B = whole(rng, m, k), whole(rng, k, n)
    C = np.full((m, n), np.nan, np.float32)
    lk.checks.expect_clean(kernel, ((-(-n // 64), -(-m // 64)), (16, 16), (A, B, C, m, n, k)), name=f"C, {m} x {k} times {k} x {n}")
    lk.checks.expect_close(C, A @ B, rtol=0, name=f"C, {m} x {k} times {k} x {n}")
print("matmul_registers: right for whole and ragged tiles, without a race.")

# %% nbgrader={"grade": true, "grade_id": "matmul_registers_test_shapes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Other sizes: one element, one past a tile, a wide one.
kernel = lk.checks.graded_kernel(matmul_registers)
C = np.full((1, 2), np.nan, np.float32)
lk.checks.expect_clean(kernel, ((1, 1), (16, 16), (np.ones((1, 3), np.float32), np.ones((3, 2), np.float32), C, 1, 2, 3)))
lk.checks.expect_close(C, np.full((1, 2), 3.0), rtol=0, name="C, 1 x 3 times 3 x 2, less than a tile")
### BEGIN HIDDEN TESTS
# Input: one element, one past a tile, or a wide matrix
rng = np.random.default_rng(453)
for m, n, k in [(1, 1, 1), (65, 64, 16), (64, 65, 17), (30, 100, 7), (128, 64, 20)]:
    A, B = whole(rng, m, k), whole(rng, k, n)
    C = np.full((m, n), np.nan, np.float32)
    lk.checks.expect_clean(kernel, ((-(-n // 64), -(-m // 64)), (16, 16), (A, B, C, m, n, k)))
    lk.checks.expect_close(C, A @ B, rtol=0, name=f"C, {m} x {k} times {k} x {n}")
### END HIDDEN TESTS
print("matmul_registers: right for less than a tile.")

# %% nbgrader={"grade": true, "grade_id": "matmul_registers_test_traffic", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 128 x 128 x 64: 4 blocks of 8 warps, 4 steps of 16 along k. Global traffic of a 64-wide tile, and eight shared loads for 16 FMAs.
kernel = lk.checks.graded_kernel(matmul_registers)
rng = np.random.default_rng(452)
A, B, C = whole(rng, 128, 64), whole(rng, 64, 128), np.zeros((128, 128), np.float32)
profile = kernel.profile[(2, 2), (16, 16)](A, B, C, 128, 128, 64)
lk.checks.expect_close(C, A @ B, rtol=0, name="C, while it was profiled")
lk.checks.expect_counters(profile, at_least_global_load_sectors=2 * 128 * 64 // 8, name="matmul_registers")
lk.checks.expect_counters(profile, at_most_global_load_sectors=2 * 2 * 128 * 64 // 8, name="matmul_registers")
lk.checks.expect_counters(profile, at_most_shared_load_requests=4 * 8 * 64 * 8, at_most_barriers=4 * 4 * 2, name="matmul_registers")
lk.checks.expect_counters(profile, global_atomic_requests=0, shared_atomic_requests=0, name="matmul_registers")
print(f"matmul_registers: {profile.work.bytes_read:,} bytes, and eight shared loads or fewer for sixteen multiply-adds.")

# %% nbgrader={"grade": true, "grade_id": "matmul_registers_test_banks", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Which two rows does a warp write, and which two does it read? Their words have to lie in different banks.
kernel = lk.checks.graded_kernel(matmul_registers)
A, B, C = whole(np.random.default_rng(454), 64, 64), np.eye(64, dtype=np.float32), np.zeros((64, 64), np.float32)
profile = kernel.profile[(1, 1), (16, 16)](A, B, C, 64, 64, 64)
lk.checks.expect_close(C, A, rtol=0, name="C = A times the unit matrix, while it was profiled")
assert profile.total("shared", "load", "requests"), "nothing is read from shared memory: where are the tiles?"
lk.checks.expect_counters(profile, bank_conflicts=0, name="matmul_registers")
print("matmul_registers: no bank was asked for two words at once, on the way in or out.")

# %% jupyter={"source_hidden": true}
with lk.picture("From naive to tiled to registers: the same FLOPs, under an H100's roof."):
    n = 128
    A, B, C = (np.ones((n, n), np.float32) for _ in range(3))
    # Lab 03's coalesced kernel: five sectors for a warp's 32 multiply-adds.
    naive = lk.Work(flops=2 * n**3, bytes_read=5 * n**3, bytes_written=4 * n**2, name="one output a thread, from global memory (theory)")
    works = [
        naive,
        matmul_tiled.profile[(8, 8), (16, 16)](A, B, C, 128, 128, 128).work,
        matmul_registers.profile[(2, 2), (16, 16)](A, B, C, 128, 128, 128).work,
    ]
    for work in works:
        print(f"{work.bytes_moved / 1e3:8.1f} kB read and written, {work.intensity:5.2f} FLOP/B   {work.name}")
    display(lk.widgets.roofline(["h100-sxm"], works=works))

# %% [markdown]
# ## End of the first sitting
#
# The matrix product is done. In short:
#
# - a tile of $T$ in shared memory divides global traffic by $T$; it costs two barriers a step, one for the writers, one for the readers;
# - a race may give the right answer ten times out of ten, and `check` still sees it;
# - a column of a 32-wide shared array is one bank; a row length that is odd spreads it over all;
# - sixteen outputs a thread need eight shared loads a step, half a load for each multiply-add;
# - of the 20 FLOP a byte that an H100 needs, tiles of 16 give 4, and tiles of 64 give 16, for each byte read. The picture above has less,
#   3.76 and 12.8, because it counts the bytes of $C$, too, and $n$ is only 128.
#
# Save, and close the notebook. To go on another day, select this cell and choose *Run All Above Selected Cell*: your kernels and
# predictions come back. The second sitting has five shorter tasks: wide loads, two reductions, a histogram, four published mistakes.

# %% [markdown]
# ### Task 6 · Four floats at once
# *8 points · 11 minutes · ●●○○*
#
# A `float4` is four floats in 16 bytes.
# `reinterpret_cast<const float4*>(x)` takes the same memory for an array of `float4`, each with members `x`, `y`, `z` and `w`. The
# address of a `float4` has to be a multiple of 16, and $n$ need not be a multiple of 4.

# %%
lk.predict("scale4")

# %% nbgrader={"grade": false, "grade_id": "scale4", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda scale4
// y[i] = alpha * x[i] for 0 <= i < n. x and y start at multiples of 16 bytes; n is any number.
// The grid has at least (n + 3) / 4 threads, and may have more.
__global__ void scale4(const float* x, float* y, float alpha, int n)
{
    ### BEGIN SOLUTION
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i + 3 < n) {
        float4 v = reinterpret_cast<const float4*>(x)[i];
        v.x *= alpha;
        v.y *= alpha;
        v.z *= alpha;
        v.w *= alpha;
        reinterpret_cast<float4*>(y)[i] = v;
    } else {
        for (int j = 4 * i; j < n; ++j) y[j] = alpha * x[j];
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "scale4_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(scale4)
rng = np.random.default_rng(461)
for n in (1024, 1023, 1021):  # a multiple of four; three, then one element left over
    x, y = rng.standard_normal(n, dtype=np.float32), np.full(n, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (4, 64, (x, y, 2.5, n)), name=f"scale4, n={n}")
    lk.checks.expect_close(y, 2.5 * x, rtol=1e-6, name=f"scale4, n={n}")
print("scale4: right with and without elements left over.")

# %% nbgrader={"grade": true, "grade_id": "scale4_test_sizes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Other sizes: fewer than four elements, threads to spare.
kernel = lk.checks.graded_kernel(scale4)
x, y = np.ones(2, np.float32), np.full(2, np.nan, np.float32)
lk.checks.expect_clean(kernel, (2, 32, (x, y, 3.0, 2)))
lk.checks.expect_close(y, 3 * x, rtol=0, name="scale4, n=2 with 64 threads")
### BEGIN HIDDEN TESTS
# Input: fewer than four elements, or one to three left over
rng = np.random.default_rng(463)
for n, grid, block in [(1, 1, 32), (3, 1, 32), (5, 1, 32), (130, 2, 32), (1022, 4, 64), (1025, 5, 64)]:
    x, y = rng.standard_normal(n, dtype=np.float32), np.full(n, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, block, (x, y, -0.5, n)))
    lk.checks.expect_close(y, -0.5 * x, rtol=1e-6, name=f"scale4, n={n}")
### END HIDDEN TESTS
print("scale4: right for fewer than four elements.")

# %% nbgrader={"grade": true, "grade_id": "scale4_test_traffic", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 1,024 floats are 256 float4, eight warps: eight requests each way, sixteen sectors a request.
kernel = lk.checks.graded_kernel(scale4)
x, y = np.random.default_rng(462).standard_normal(1024, dtype=np.float32), np.full(1024, np.nan, np.float32)
profile = kernel.profile[4, 64](x, y, 2.5, 1024)
lk.checks.expect_close(y, 2.5 * x, rtol=1e-6, name="y, while it was profiled")
lk.checks.expect_counters(profile, at_most_global_load_requests=8, at_most_global_store_requests=8, name="scale4")
lk.checks.expect_counters(profile, global_load_sectors=128, global_store_sectors=128, name="scale4")
print("scale4: eight requests each way for 128 sectors.")

# %% [markdown]
# ## Part 5 · Reductions
#
# A sum is a tree. Which thread adds which pair decides everything: whether lanes idle in the middle of warps, and whether neighbours fight over a
# bank.

# %% [markdown]
# ### Task 7 · A tree in shared memory
# *10 points · 18 minutes · ●●○○*
#
# Each block sums 512 elements with 256 threads. Take *sequential addressing*: halve the distance each round and let the first threads add.
# The last block may have fewer than 512 elements: what does not exist counts as 0.

# %%
lk.predict("block_sum")

# %% nbgrader={"grade": false, "grade_id": "block_sum", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda block_sum
// sums[b] = the sum of x[512 b] ... x[512 b + 511], as far as they exist (n elements in all).
// Blocks of 256 threads.
__global__ void block_sum(const float* x, float* sums, int n)
{
    ### BEGIN SOLUTION
    __shared__ float part[256];
    int t = threadIdx.x;
    int i = blockIdx.x * 512 + t;
    part[t] = (i < n ? x[i] : 0.0f) + (i + 256 < n ? x[i + 256] : 0.0f);
    for (int distance = 128; distance > 0; distance /= 2) {
        __syncthreads();
        if (t < distance) part[t] += part[t + distance];
    }
    if (t == 0) sums[blockIdx.x] = part[0];
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "block_sum_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(block_sum)
rng = np.random.default_rng(471)
for n in (2048, 1900, 1100):  # whole blocks; a last block with 364 elements; one with 76
    x, sums = whole(rng, n), np.full(-(-n // 512), np.nan, np.float32)
    lk.checks.expect_clean(kernel, (len(sums), 256, (x, sums, n)), name=f"block_sum, n={n}")
    lk.checks.expect_close(sums, np.add.reduceat(x, np.arange(0, n, 512)), rtol=0, name=f"block_sum, n={n}")
print("block_sum: right for whole and ragged blocks, without a race.")

# %% nbgrader={"grade": true, "grade_id": "block_sum_test_sizes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Other sizes: one element, half a block, one past it.
kernel = lk.checks.graded_kernel(block_sum)
sums = np.full(1, np.nan, np.float32)
lk.checks.expect_clean(kernel, (1, 256, (np.ones(300, np.float32), sums, 300)))
lk.checks.expect_close(sums, np.array([300.0]), rtol=0, name="block_sum, 300 ones")
### BEGIN HIDDEN TESTS
# Input: one element, half a block, one past it, or a ragged last block
rng = np.random.default_rng(473)
for n in [1, 255, 257, 512, 513, 1500]:
    x, sums = whole(rng, n), np.full(-(-n // 512), np.nan, np.float32)
    lk.checks.expect_clean(kernel, (len(sums), 256, (x, sums, n)))
    lk.checks.expect_close(sums, np.add.reduceat(x, np.arange(0, n, 512)), rtol=0, name=f"block_sum, n={n}")
### END HIDDEN TESTS
print("block_sum: right for less than one block.")

# %% nbgrader={"grade": true, "grade_id": "block_sum_test_traffic", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 4 blocks: two coalesced loads a warp, then a tree of 256 or of 512 numbers with a barrier before each round and one more.
kernel = lk.checks.graded_kernel(block_sum)
x, sums = whole(np.random.default_rng(472), 2048), np.zeros(4, np.float32)
profile = kernel.profile[4, 256](x, sums, 2048)
lk.checks.expect_close(sums, x.reshape(4, 512).sum(axis=1), rtol=0, name="sums, while they were profiled")
lk.checks.expect_counters(profile, at_most_global_load_requests=64, global_load_sectors=256, bank_conflicts=0, name="block_sum")
lk.checks.expect_counters(profile, at_most_barriers=4 * 10, name="block_sum")
# 16 requests fill an array of 512; nine rounds keep 8, 4, 2, 1, 1, 1, 1, 1, 1 warps busy, with two loads each; one load gets the sum
lk.checks.expect_counters(profile, at_most_shared_store_requests=4 * (16 + 20), at_most_shared_load_requests=4 * (40 + 1), name="block_sum")
print("block_sum: busy lanes stand side by side, and no bank was asked twice.")

# %% [markdown]
# ### Task 8 · A tree without memory
# *8 points · 18 minutes · ●●●○*
#
# Lanes of a warp can hand each other registers: `__shfl_down_sync(0xffffffff, v, d)` gives a lane the `v` of the lane `d` further on.
# The mask `0xffffffff` says that all 32 lanes take part. Five shuffles sum a warp. Then only the sums of the eight warps go through
# shared memory, and one barrier is enough.

# %%
lk.predict("shuffle_sum")

# %% nbgrader={"grade": false, "grade_id": "shuffle_sum", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda shuffle_sum
// What block_sum computes, with one barrier a block. Blocks of 256 threads.
__global__ void shuffle_sum(const float* x, float* sums, int n)
{
    ### BEGIN SOLUTION
    __shared__ float part[8];
    int t = threadIdx.x;
    int i = blockIdx.x * 512 + t;
    float v = (i < n ? x[i] : 0.0f) + (i + 256 < n ? x[i + 256] : 0.0f);
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
    if (t % 32 == 0) part[t / 32] = v;
    __syncthreads();
    if (t < 32) {
        v = t < 8 ? part[t] : 0.0f;
        for (int d = 4; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
        if (t == 0) sums[blockIdx.x] = v;
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "shuffle_sum_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(shuffle_sum)
rng = np.random.default_rng(481)
for n in (2048, 1100):  # whole blocks, and a ragged last one
    x, sums = whole(rng, n), np.full(-(-n // 512), np.nan, np.float32)
    lk.checks.expect_clean(kernel, (len(sums), 256, (x, sums, n)), name=f"shuffle_sum, n={n}")
    lk.checks.expect_close(sums, np.add.reduceat(x, np.arange(0, n, 512)), rtol=0, name=f"shuffle_sum, n={n}")
# 4 blocks of 8 warps: two loads a warp; one barrier, and shared memory touched once for each warp's sum
x, sums = whole(rng, 2048), np.full(4, np.nan, np.float32)
profile = kernel.profile[4, 256](x, sums, 2048)
lk.checks.expect_close(sums, x.reshape(4, 512).sum(axis=1), rtol=0, name="sums, while they were profiled")
lk.checks.expect_counters(profile, at_most_barriers=4, at_most_global_load_requests=64, name="shuffle_sum")
lk.checks.expect_counters(profile, at_most_shared_store_requests=4 * 8, at_most_shared_load_requests=4 * 8, name="shuffle_sum")
print("shuffle_sum: right, with one barrier a block and one float of shared memory a warp.")

# %% nbgrader={"grade": true, "grade_id": "shuffle_sum_test_sizes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Other sizes: one element, a warp and one more, half a block.
kernel = lk.checks.graded_kernel(shuffle_sum)
sums = np.full(1, np.nan, np.float32)
lk.checks.expect_clean(kernel, (1, 256, (np.ones(40, np.float32), sums, 40)))
lk.checks.expect_close(sums, np.array([40.0]), rtol=0, name="shuffle_sum, 40 ones")
### BEGIN HIDDEN TESTS
# Input: one element, a warp and one more, or a ragged last block
rng = np.random.default_rng(483)
for n in [1, 31, 33, 256, 700, 1025]:
    x, sums = whole(rng, n), np.full(-(-n // 512), np.nan, np.float32)
    lk.checks.expect_clean(kernel, (len(sums), 256, (x, sums, n)))
    lk.checks.expect_close(sums, np.add.reduceat(x, np.arange(0, n, 512)), rtol=0, name=f"shuffle_sum, n={n}")
### END HIDDEN TESTS
print("shuffle_sum: right for less than one block.")

# %% [markdown]
# ## Part 6 · Histograms

# %% [markdown]
# ### Task 9 · Private bins
# *8 points · 18 minutes · ●●●○*
#
# `atomicAdd` on one histogram in global memory counts right. Give each block **its own** bins in shared memory all the same, and add them to
# the histogram once, at the end. The prediction asks what that is good for.

# %%
lk.predict("histogram")

# %% nbgrader={"grade": false, "grade_id": "histogram", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda histogram
// counts[v] += how often v occurs in values[0 .. n - 1], 0 <= v < 256. Any grid and block.
// counts may hold earlier counts.
__global__ void histogram(const unsigned char* values, unsigned int* counts, int n)
{
    ### BEGIN SOLUTION
    __shared__ unsigned int bins[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&bins[values[i]], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x) {
        if (bins[b] > 0) atomicAdd(&counts[b], bins[b]);
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "histogram_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(histogram)
rng = np.random.default_rng(491)
values, counts = rng.integers(0, 256, 5000, dtype=np.uint8), np.zeros(256, np.uint32)
lk.checks.expect_clean(kernel, (4, 128, (values, counts, 5000)))
lk.checks.expect_close(counts, np.bincount(values, minlength=256), rtol=0, name="counts of 5,000 values by 512 threads")
lk.checks.expect_clean(kernel, (2, 320, (values, counts, 1000)))  # more threads than bins; the first 1,000 once more
expected = np.bincount(values, minlength=256) + np.bincount(values[:1000], minlength=256)
lk.checks.expect_close(counts, expected, rtol=0, name="1,000 values on top of earlier counts")
profile = kernel.profile[4, 128](values, counts, 5000)
# at most one global atomic a bin and block, and a warp makes 32 of them in one request
lk.checks.expect_counters(profile, at_most_global_atomic_requests=4 * 256 // 32, name="histogram")
lk.checks.expect_counters(profile, at_least_bytes_read=5000, name="histogram")
print("histogram: right with fewer and with more threads than bins, on top of earlier counts, with few global atomics.")

# %% nbgrader={"grade": true, "grade_id": "histogram_test_launches", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Other launches: one value, a block of one warp, a block that is no power of two.
kernel = lk.checks.graded_kernel(histogram)
counts = np.full(256, 2, np.uint32)
lk.checks.expect_clean(kernel, (3, 32, (np.full(50, 7, np.uint8), counts, 50)))
lk.checks.expect_close(counts, np.where(np.arange(256) == 7, 52, 2), rtol=0, name="50 equal values, three blocks of one warp")
### BEGIN HIDDEN TESTS
# Input: one value, few different values, or blocks that are no power of two
rng = np.random.default_rng(493)
for n, grid, block, high in [(1, 1, 32, 256), (100, 3, 64, 1), (999, 2, 256, 7), (4096, 8, 32, 256), (300, 2, 96, 256)]:
    values, counts = rng.integers(0, high, n, dtype=np.uint8), np.full(256, 3, np.uint32)
    lk.checks.expect_clean(kernel, (grid, block, (values, counts, n)))
    lk.checks.expect_close(counts, np.bincount(values, minlength=256) + 3, rtol=0, name=f"histogram, n={n}, values below {high}")
### END HIDDEN TESTS
print("histogram: right where all values are equal, with blocks of one warp.")

# %% [markdown]
# ## Part 7 · Four published mistakes
#
# Four kinds of mistake that turn up again and again in code that people publish. Each kernel is short, looks right, and passes its
# author's test.

# %% [markdown]
# ### Task 10 · Debug
# *8 points · 22 minutes · ●●●○*
#
# Run the launches below, read what `check` says, then write all four without their mistake. Each is marked by itself.

# %%
# %%cuda normalize_broken
// Each block divides its 64 elements by the largest of them. x has 64 * gridDim.x elements.
__global__ void normalize_broken(float* x)
{
    __shared__ float sdata[64];
    int tid = threadIdx.x;
    float v = x[blockDim.x * blockIdx.x + tid];
    sdata[tid] = v;
    for (int s = 32; s > 0; s >>= 1) {
        __syncthreads();
        if (tid < s) sdata[tid] = fmaxf(sdata[tid], sdata[tid + s]);
    }
    __syncthreads();
    float largest = sdata[0];
    sdata[tid] = v / largest;
    x[blockDim.x * blockIdx.x + tid] = sdata[tid];
}

# %%
# %%cuda clamp_broken
// x[i] = max(x[i], 0) for 0 <= i < n.
__global__ void clamp_broken(float* x, int n)
{
    int gid = blockDim.x * blockIdx.x + threadIdx.x;
    if (gid > n) return;
    x[gid] = fmaxf(x[gid], 0.0f);
}

# %%
# %%cuda blur_broken
// out[i] = (in[i - 1] + in[i] + in[i + 1]) / 3, with 0 beyond the ends. Blocks of 64 threads
// that cover n.
__global__ void blur_broken(const float* in, float* out, int n)
{
    __shared__ float sdata[66];
    int gid = blockDim.x * blockIdx.x + threadIdx.x;
    int lid = threadIdx.x + 1;
    sdata[lid] = gid < n ? in[gid] : 0.0f;
    __syncthreads();
    if (gid < n) out[gid] = (sdata[lid - 1] + sdata[lid] + sdata[lid + 1]) / 3.0f;
}

# %%
# %%cuda prefix_broken
// out[i] = in[b] + ... + in[i], where b is the first element of i's block of 64. Blocks of 64
// threads that cover n.
__global__ void prefix_broken(const float* in, float* out, int n)
{
    __shared__ float sdata[64];
    int tid = threadIdx.x;
    int gid = blockDim.x * blockIdx.x + tid;
    if (gid >= n) return;
    sdata[tid] = in[gid];
    __syncthreads();
    for (int s = 1; s < 64; s <<= 1) {
        float left = tid >= s ? sdata[tid - s] : 0.0f;
        __syncthreads();
        sdata[tid] += left;
        __syncthreads();
    }
    out[gid] = sdata[tid];
}

# %%
x = np.arange(1, 101, dtype=np.float32)
for kernel, grid, block, arguments in (
    (normalize_broken, 1, 64, (x[:64].copy(),)),
    (clamp_broken, 1, 128, (x.copy(), 100)),
    (blur_broken, 2, 64, (x, np.zeros(100, np.float32), 100)),
    (prefix_broken, 2, 64, (x, np.zeros(100, np.float32), 100)),
):
    findings = kernel.check[grid, block](*arguments)
    print(f"--- {kernel.name}[{grid}, {block}], finding 1 of {len(findings)}\n{findings[0]}\n")

# %%
lk.predict("debug")

# %% nbgrader={"grade": false, "grade_id": "debug", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda debug
// The four kernels, mended. They are called normalize, clamp, blur and prefix_sum, and have
// the parameters and the launches of the broken ones.
### BEGIN SOLUTION
__global__ void normalize(float* x)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    float v = x[blockIdx.x * 64 + t];
    s[t] = v;
    for (int d = 32; d > 0; d /= 2) {
        __syncthreads();
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
    }
    __syncthreads();
    x[blockIdx.x * 64 + t] = v / s[0];  // no need to write to what others still read
}

__global__ void clamp(float* x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = fmaxf(x[i], 0.0f);
}

__global__ void blur(const float* in, float* out, int n)
{
    __shared__ float s[66];
    int i = blockIdx.x * 64 + threadIdx.x;
    int t = threadIdx.x + 1;
    s[t] = i < n ? in[i] : 0.0f;
    if (t == 1) s[0] = i > 0 ? in[i - 1] : 0.0f;
    if (t == 64) s[65] = i + 1 < n ? in[i + 1] : 0.0f;
    __syncthreads();
    if (i < n) out[i] = (s[t - 1] + s[t] + s[t + 1]) / 3.0f;
}

__global__ void prefix_sum(const float* in, float* out, int n)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    int i = blockIdx.x * 64 + t;
    s[t] = i < n ? in[i] : 0.0f;  // everybody stays, for everybody is waited for
    __syncthreads();
    for (int d = 1; d < 64; d *= 2) {
        float add = t >= d ? s[t - d] : 0.0f;
        __syncthreads();
        s[t] += add;
        __syncthreads();
    }
    if (i < n) out[i] = s[t];
}
### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "debug_test_normalize", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
normalize = lk.checks.graded_kernel(debug, "normalize")
rng = np.random.default_rng(401)
x = rng.random(192, dtype=np.float32) + 0.5
expected = (x.reshape(3, 64) / x.reshape(3, 64).max(axis=1, keepdims=True)).ravel()
lk.checks.expect_clean(normalize, (3, 64, (x,)))
lk.checks.expect_close(x, expected, rtol=1e-6, name="normalize")
print("normalize: right, and nobody writes what others still read.")

# %% nbgrader={"grade": true, "grade_id": "debug_test_clamp", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
clamp = lk.checks.graded_kernel(debug, "clamp")
rng = np.random.default_rng(402)
for n in (100, 128, 1):
    x = rng.standard_normal(n, dtype=np.float32)
    expected = np.maximum(x, 0)
    lk.checks.expect_clean(clamp, (1, 128, (x, n)))
    lk.checks.expect_close(x, expected, rtol=0, name=f"clamp, n={n}")
print("clamp: right, and no thread passes the end.")

# %% nbgrader={"grade": true, "grade_id": "debug_test_blur", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
blur = lk.checks.graded_kernel(debug, "blur")
rng = np.random.default_rng(403)
for n in (100, 128, 64, 65, 1):
    x, out = rng.standard_normal(n, dtype=np.float32), np.full(n, np.nan, np.float32)
    lk.checks.expect_clean(blur, (-(-n // 64), 64, (x, out, n)))
    lk.checks.expect_close(out, np.convolve(x, np.ones(3) / 3, mode="full")[1:-1], rtol=1e-5, atol=1e-6, name=f"blur, n={n}")
print("blur: right, also at the seams between blocks.")

# %% nbgrader={"grade": true, "grade_id": "debug_test_prefix", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
prefix_sum = lk.checks.graded_kernel(debug, "prefix_sum")
rng = np.random.default_rng(404)
for n in (100, 128, 1):
    x, out = whole(rng, n), np.full(n, np.nan, np.float32)
    expected = np.concatenate([np.cumsum(x[b : b + 64]) for b in range(0, n, 64)])
    lk.checks.expect_clean(prefix_sum, (-(-n // 64), 64, (x, out, n)))
    lk.checks.expect_close(out, expected, rtol=0, name=f"prefix_sum, n={n}")
print("prefix_sum: right, and all threads come to every barrier.")

# %% [markdown]
# ## The last rung
#
# Not graded: read, run, compare. On an H100, the `matmul_registers` of our solution reaches 55 % of the speed of NVIDIA's library, cuBLAS
# ($n = 4096$, FP32, measured on 2026-11-27). What does it wait for?
#
# In each clock, an SM can make four multiply-adds of a warp and serve one wavefront of shared memory. A kernel with more than 0.25 wavefronts for
# each multiply-add therefore waits for shared memory. The source of task 5 has 0.5. On the H100 it is 0.375, because NVIDIA's compiler joins some
# loads.

# %% [markdown]
# The kernel below is given. It changes three things:
#
# - **128 outputs a thread.** For each $p$, a thread reads 8 + 16 floats from shared memory and makes 128 multiply-adds: 1.33 for each byte. In
#   task 5 it makes 0.5. The tile of 128 × 256 also gives 42.7 FLOP for each byte read from global memory.
# - **Four floats at once.** As in task 6, each load from shared memory is a `float4`. For this, the tile of $A$ is transposed on its way there.
# - **Copies that overlap with arithmetic.** There are two buffers. While the block multiplies one tile, the next one is on its way to the
#   other. `__pipeline_memcpy_async` starts a copy of 16 bytes from global to shared memory, and `__pipeline_wait_prior(0)` waits until all
#   copies of the thread have arrived. With two buffers, one barrier a step is enough.
#
# The kernel has no code for edges: `m`, `n` and `k` must be multiples of 128, 256 and 8.

# %%
# %%cuda matmul_pipelined
#include <cuda_pipeline.h>

constexpr int ROWS = 128, COLUMNS = 256, DEPTH = 8;  // a block's tile of C, its step along k

// Copies four floats by one instruction.
__device__ void copy4(float* to, const float* from)
{
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}

// C[m, n] = A[m, k] B[k, n], row-major; m, n and k are multiples of 128, 256 and 8.
// Blocks of 256 threads, each block a 128 x 256 tile of C, each thread 8 x 16 outputs of it.
// __launch_bounds__ tells the compiler how many threads share the registers of an SM.
__global__ void __launch_bounds__(256) matmul_pipelined(
    const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
    int m, int n, int k)
{
    __shared__ alignas(16) float a[2][DEPTH][ROWS + 4];  // [buffer][p][row]; + 4: no conflict
    __shared__ alignas(16) float b[2][DEPTH][COLUMNS];   // [buffer][p][column]
    A += blockIdx.y * ROWS * k;
    B += blockIdx.x * COLUMNS;
    C += blockIdx.y * ROWS * n + blockIdx.x * COLUMNS;
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;

    // Copies: in each step a thread moves four floats of A, by a register, and eight of B.
    int a_row = thread / 2, a_p = thread % 2 * 4;
    int b_p = thread / 64, b_column = thread % 64 * 4;
    alignas(16) float moving[4];
    auto start_copies = [&](int from, int buffer) {
        copy4(moving, &A[(size_t)a_row * k + from + a_p]);
        for (int p = 0; p < DEPTH; p += 4) {
            const float* source = &B[(size_t)(from + b_p + p) * n + b_column];
            __pipeline_memcpy_async(&b[buffer][b_p + p][b_column], source, 16);
        }
        __pipeline_commit();
    };
    auto finish_copies = [&](int buffer) {
        for (int i = 0; i < 4; ++i) a[buffer][a_p + i][a_row] = moving[i];
        __pipeline_wait_prior(0);
        __syncthreads();  // this tile is whole, and the other buffer is free
    };

    // 4 x 2 warps have 32 x 128 outputs each: 2 x 4 pieces of 16 x 32, in which each lane
    // has a square of 4 x 4. The first begins at (y, x). Of two sets of operands, one is
    // loaded while the other is multiplied.
    int y = warp / 2 * 32 + lane / 8 * 4, x = warp % 2 * 128 + lane % 8 * 4;
    alignas(16) float left[2][8], right[2][16], sum[8][16] = {};
    auto load_operands = [&](int buffer, int p, int set) {
        for (int i = 0; i < 2; ++i) copy4(&left[set][4 * i], &a[buffer][p][y + 16 * i]);
        for (int j = 0; j < 4; ++j) copy4(&right[set][4 * j], &b[buffer][p][x + 32 * j]);
    };

    int now = 0;
    start_copies(0, now);
    finish_copies(now);
    load_operands(now, 0, 0);
    for (int from = 0; from < k; from += DEPTH) {
        int next = from + DEPTH;
        if (next < k) start_copies(next, 1 - now);
#pragma unroll
        for (int p = 0; p < DEPTH; ++p) {
            if (p == DEPTH - 1 && next < k) {
                now = 1 - now;
                finish_copies(now);
            }
            // Outside the `if`, the compiler may put multiply-adds between the barrier and the
            // loads. The operands that are loaded last of all are not used.
            load_operands(now, (p + 1) % DEPTH, (p + 1) % 2);
            for (int i = 0; i < 8; ++i) {
                for (int j = 0; j < 16; ++j) sum[i][j] += left[p % 2][i] * right[p % 2][j];
            }
        }
    }
    for (int i = 0; i < 8; ++i) {
        float* row = &C[(y + i / 4 * 16 + i % 4) * n + x];
        for (int j = 0; j < 4; ++j) copy4(&row[32 * j], &sum[i][4 * j]);
    }
}

# %% [markdown]
# The next cell checks the kernel, and compares its loads from shared memory with those of task 5 for the same product.

# %%
m, n, k = 128, 256, 32
rng = np.random.default_rng(seed)
A, B, C = whole(rng, m, k), whole(rng, k, n), np.full((m, n), np.nan, np.float32)
launch = ((n // 256, m // 128), 256)
assert not matmul_pipelined.check[launch](A, B, C, m, n, k)
assert np.array_equal(C, A @ B)
with lk.picture("Loads from shared memory for each multiply-add of a warp."):
    for each, shape in ((matmul_pipelined, launch), (matmul_registers, ((n // 64, m // 64), (16, 16)))):
        seen = each.profile[shape](A, B, C, m, n, k)
        requests, wavefronts = (seen.total("shared", "load", what) * 32 / (m * n * k) for what in ("requests", "wavefronts"))
        print(f"{each.name}: {requests:.3f} requests and {wavefronts:.3f} wavefronts for each multiply-add")

# %% [markdown]
# ## On your GPU
#
# Not graded. Where there is a GPU, the next cell times four kernels of this lab at $n = 4096$ against the library. Elsewhere it says
# why it does nothing.

# %% jupyter={"source_hidden": true}
device = lk.detect()
if device.kind != "cuda" or device.virtual:
    print(f"Skipped: this needs a CUDA GPU, and here is: {device.label}. Nothing was measured.")
else:
    import torch

    size = 4096
    assert size % 256 == 0, f"{size} is no multiple of 256: matmul_pipelined needs whole tiles of 128 x 256"
    A, B, C = (torch.randn(size, size, device="cuda") for _ in range(3))
    expected = torch.matmul(A, B)
    library = lk.bench(torch.matmul, A, B, name="torch.matmul").median
    print(f"{'torch.matmul':17} {2 * size**3 / library / 1e12:5.1f} TFLOP/s")
    with lk.picture("Four rungs of the ladder, timed on this GPU."):
        for each, launch in (
            (matmul_lab03, ((size // 32, size // 8), (32, 8))),
            (matmul_tiled, ((size // 16, size // 16), (16, 16))),
            (matmul_registers, ((size // 64, size // 64), (16, 16))),
            (matmul_pipelined, ((size // 256, size // 128), 256)),
        ):
            C.fill_(torch.nan)
            seconds = lk.bench(each[launch], A, B, C, size, size, size, name=each.name).median
            right = "" if torch.allclose(C, expected, rtol=1e-3, atol=1e-2) else ", and a wrong result"
            print(f"{each.name:17} {2 * size**3 / seconds / 1e12:5.1f} TFLOP/s, {library / seconds:4.0%} of the library's speed{right}")

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
# One product, one number of multiply-adds, and five kernels that feed them. You built the third and the fourth. The hatched bar is the least
# that any kernel reads: each matrix once. FLOP/B counts the bytes read, without those written.

# %% jupyter={"source_hidden": true}
with lk.picture("What one product asks of global memory (logarithmic scale) and of shared memory."):
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    n, k = 256, 32 if smoke else 128
    A, B, C = (np.ones(shape, np.float32) for shape in ((n, k), (k, n), (n, n)))
    launches = {
        "lanes down a column (lab 03)": matmul_lab03.profile[(n, n // 32), (1, 32)],
        "lanes along a row (lab 03)": matmul_lab03.profile[(n // 32, n // 8), (32, 8)],
        "tiles of 16 (task 2)": matmul_tiled.profile[(n // 16, n // 16), (16, 16)],
        "tiles of 64, 16 outputs a thread (task 5)": matmul_registers.profile[(n // 64, n // 64), (16, 16)],
        "tiles of 128 x 256, 128 outputs a thread (given)": matmul_pipelined.profile[(n // 256, n // 128), 256],
    }
    rungs = {label: launch(A, B, C, n, n, k) for label, launch in launches.items()}
    asked = [seen.work.bytes_read for seen in rungs.values()] + [A.nbytes + B.nbytes]
    shared = [seen.total("shared", "load", "requests") for seen in rungs.values()] + [0]
    labels = [
        f"{label}<br>{size / 1e6:.3g} MB, {2 * n * n * k / size:.3g} FLOP/B; {loads:,} shared loads"
        for label, size, loads in zip([*rungs, "each matrix once"], asked, shared)
    ]
    figure = make_subplots(1, 2, shared_yaxes=True, subplot_titles=["bytes read, global", "load requests, shared"])
    for place, sizes in enumerate((asked, shared), start=1):
        bars = go.Bar(x=sizes, y=labels, orientation="h", marker_pattern_shape=["", "", "", "", "", "/"])
        figure.add_trace(bars, 1, place)
    figure.update_xaxes(type="log", row=1, col=1)
    figure.update_layout(height=430, showlegend=False, margin={"l": 10, "r": 10, "t": 30, "b": 30})
    figure.update_yaxes(autorange="reversed", ticks="outside", ticklen=8, tickcolor="rgba(0,0,0,0)")  # a gap before the bars
    lk.show(figure, summary="; ".join(labels).replace("<br>", ": "))

# %% [markdown]
# From the first rung to your last one, the bytes fell by a factor of more than two hundred, and by seven hundred to the given one. Not one
# multiply-add changed. Chapter 7 has the times of all rungs on an H100. Tensor cores, its next rung, change the multiply-adds as well. For an
# estimate of the time of a rung on an H100, launch it as `kernel.model("h100-sxm")[grid, block](...)` in a new cell. That is a model, not a measurement.
#
# ## What to take along
#
# - A tile of $T$ divides global traffic by $T$. Registers do to shared memory what shared memory does to global.
# - Two barriers a tile: one before anybody reads, one before anybody overwrites.
# - A column of a 32-wide shared array is one bank. One float of padding makes it 32.
# - A race that gives the right answer is a race. Only a checker sees it.
# - All threads of a block go to every barrier, also those with nothing to do.
#
# ## Next
#
# [Chapter 7, *Staying local: tiling*](../../course/chapters/07_tiling.md), follows the bytes from HBM to the register. Lab 05 writes the same kernels in Triton, where tiles are the
# language.
