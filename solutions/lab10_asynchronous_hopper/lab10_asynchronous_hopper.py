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
# # Lab 10 · Copies that nobody waits for: asynchronous Hopper
#
# In lab 04 every thread carried its own floats into shared memory, and then all of them waited. On an H100 one thread asks a copy engine, the *tensor memory
# accelerator* (TMA), for a whole tile and goes on. The hardware counts the bytes that arrive, and the threads that need them wait for that count. This is how the fastest kernels of
# today feed tensor cores. It also brings mistakes of its own, which this lab lets you make, and find.
#
# **You will be able to**
#
# - say how many bytes have to be in flight to keep a memory busy;
# - start a bulk copy, and wait for it at a barrier that counts bytes;
# - keep stages, phases and parities apart in a ring of buffers of any depth;
# - give warps different roles: one loads, the others compute;
# - store by bulk copies, and add up over the blocks of a cluster;
# - read what `check` says of a copy that was waited for too late, or not at all.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 215 minutes | ●●●● | any Linux machine with a C++ compiler | 100 in 9 tasks |
#
# Needs lab 04. Reads along with [chapter 7, *Staying local: tiling*](../../course/chapters/07_tiling.md).
#
# Each task goes the same way: **predict** (not graded), **write**, **check**. Marks come from right answers, from findings of `check` and from counts,
# never from a clock. `lk.hint("reverse_tile")` in a new cell gives a nudge. Hints and wrong predictions cost no marks.
#
# The 215 minutes include reading. Take **two sittings**: tasks 1 to 5, then tasks 6 to 9. Between them is a summary.

# %% tags=["install"] jupyter={"source_hidden": true}
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% nbgrader={"grade": false, "grade_id": "lab10_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import numpy as np

import mlsys_labkit as lk


def whole(rng, *shape):
    """Return random whole numbers from -99 to 99 as float32. Their sums, if below 2**24, are exact in any order."""
    return rng.integers(-99, 100, shape).astype(np.float32)


def reversed_tiles(x):
    """Return x with the order turned round in each tile of 256."""
    return x.reshape(-1, 256)[:, ::-1].ravel()

# %% tags=["parameters"]
smoke = False  # True: a quick run through
seed = 0

# %% [markdown]
# Here is the kernel of lab 04's kind that the whole lab improves on. It turns tiles of 256 floats round. Run both cells: the profile shows what all
# warps do for all eight tiles.

# %%
# %%cuda reverse_lab04
__global__ void reverse_lab04(const float* x, float* y, int tiles)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        s[t] = x[256 * tile + t];
        __syncthreads();
        y[256 * tile + t] = s[255 - t];
        __syncthreads();
    }
}

# %%
x, y = np.arange(2048, dtype=np.float32), np.zeros(2048, np.float32)
print(reverse_lab04.profile[1, 256](x, y, 8))

# %% [markdown]
# While the loads of one tile are on their way, nothing else happens: the first barrier waits for them. Then everybody reads, and the memory is idle.
#
# ## Part 1 · Bytes in flight
#
# A queue obeys Little's law: what is inside equals what arrives per second times the seconds that each stays. A memory with bandwidth $B$ and latency
# $L$ delivers $B$ only while $B \cdot L$ bytes are in flight. For an H100 with 3.35 TB/s and about 600 ns that is 2 MB, over 132 SMs.

# %% [markdown]
# ### Task 1 · Bytes in flight
# *8 points · 12 minutes · ●○○○*
#
# A *stage* is one buffer that a copy fills. How many bytes must be in flight, how many for each SM, and how many stages of `stage_bytes` must an SM have under
# way at once?

# %%
lk.predict("in_flight")

# %% nbgrader={"grade": false, "grade_id": "in_flight", "locked": false, "schema_version": 3, "solution": true, "task": false}
def in_flight(bandwidth, latency_ns, sms, stage_bytes):
    """Bytes in flight that keep a memory of `bandwidth` bytes per second busy: (in all, per SM, stages per SM).

    All three are whole numbers, each rounded up from the exact value: use whole-number arithmetic, since a float may
    round up by one. latency_ns is a whole number of nanoseconds,
    bandwidth a whole number of bytes per second.

    >>> in_flight(3_350_000_000_000, 600, 132, 8192)
    (2010000, 15228, 2)
    """
    ### BEGIN SOLUTION
    rate = bandwidth * latency_ns  # in units of 1e-9 bytes
    nano = 10**9
    return -(-rate // nano), -(-rate // (nano * sms)), -(-rate // (nano * sms * stage_bytes))
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "in_flight_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(list(in_flight(3_350_000_000_000, 600, 132, 8192)), [2_010_000, 15_228, 2], name="an H100, stages of 8 KiB")
lk.checks.expect_equal(list(in_flight(1_000_000_000, 1000, 1, 100)), [1000, 1000, 10], name="1 GB/s, 1 µs, one SM: (in all, per SM, stages)")
lk.checks.expect_equal(list(in_flight(1_000_000_000, 1001, 1, 100)), [1001, 1001, 11], name="one byte more than ten stages")
print("in_flight: right, and rounded up.")

# %% nbgrader={"grade": true, "grade_id": "in_flight_test_sizes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(list(in_flight(2_000_000_000, 500, 3, 1)), [1000, 334, 334], name="a share that is no whole number")
### BEGIN HIDDEN TESTS
# Input: machines at random
from fractions import Fraction
from math import ceil

rng = np.random.default_rng(1010)
for _ in range(30):
    bandwidth, latency, sms, stage = (int(v) for v in rng.integers(1, [10**13, 2000, 200, 10**5]))
    exact = Fraction(bandwidth * latency, 10**9)
    expected = (ceil(exact), ceil(exact / sms), ceil(exact / sms / stage))
    lk.checks.expect_equal(list(in_flight(bandwidth, latency, sms, stage)), list(expected), name=f"{bandwidth} B/s, {latency} ns, {sms} SMs, {stage} B")
### END HIDDEN TESTS
print("in_flight: right for a share that is no whole number.")

# %% [markdown]
# 15 KB for each SM, always, also while it computes. Threads that wait for their own loads can hardly do that. A copy engine can.
#
# ## Part 2 · The first bulk copy
#
# One thread starts the copy and names a *barrier*. The barrier ends its *phase* when two counts are complete: the arrivals that `init` named, and the
# bytes that somebody told it to expect. The pieces, all from `<cuda/barrier>` and `<cuda/ptx>`:
#
# | you write | what happens |
# |---|---|
# | `init(&bar, 1)` | each phase of `bar` needs one arrival |
# | `cuda::ptx::fence_proxy_async(cuda::ptx::space_shared)` | what this thread wrote to shared memory, the barrier too, becomes visible to the copy engine |
# | `cuda::device::memcpy_async_tx(s, x, cuda::aligned_size_t<16>(bytes), bar)` | a copy starts; it tells `bar` each byte that has come |
# | `(void)cuda::device::barrier_arrive_tx(bar, 1, bytes)` | one arrival, and `bytes` more to expect |
# | `bar.wait_parity(p)` | returns when the last phase with parity `p` is over (part 3); for the first tile, `p` is 0 |
#
# The addresses and the size are multiples of 16 bytes. Phases are numbered from 0, so the first one has parity 0. The copy and the arrival may come in either
# order.
#
# **One thread** calls `init` and the fence. Then comes a `__syncthreads()`, before any other thread touches `bar`.
#
# The copy engine reaches memory by a path of its own, the *async proxy*. A *proxy fence* orders what was written before it ahead of what the copy engine does.
# Some published examples omit the fence after `init`, or write `cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster)`, which does it
# for barriers alone. `check` asks for one of the two.
#
# In the simulator a copy arrives late, on purpose: whoever does not wait sees what was there before.

# %% [markdown]
# ### Task 2 · One tile, one copy
# *12 points · 20 minutes · ●●○○*
#
# Each block copies its tile with one bulk copy, waits for it, and writes it back turned round. No thread stores into `s` itself.

# %%
lk.predict("reverse_tile")

# %% nbgrader={"grade": false, "grade_id": "reverse_tile", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda reverse_tile
#include <cuda/barrier>
#include <cuda/ptx>
using barrier = cuda::barrier<cuda::thread_scope_block>;

// y[256 b + t] = x[256 b + 255 - t] for block b and thread t. Blocks of 256 threads.
__global__ void reverse_tile(const float* x, float* y)
{
    __shared__ alignas(128) float s[256];
    __shared__ barrier bar;
    ### BEGIN SOLUTION
    int t = threadIdx.x;
    if (t == 0) {
        init(&bar, 1);
        cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    }
    __syncthreads();
    if (t == 0) {
        cuda::device::memcpy_async_tx(s, x + 256 * blockIdx.x, cuda::aligned_size_t<16>(sizeof s), bar);
        (void)cuda::device::barrier_arrive_tx(bar, 1, sizeof s);
    }
    bar.wait_parity(0);
    y[256 * blockIdx.x + t] = s[255 - t];
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "reverse_tile_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(reverse_tile)
rng = np.random.default_rng(1020)
for blocks in (1, 3):
    x, y = whole(rng, 256 * blocks), np.full(256 * blocks, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (blocks, 256, (x, y)), name="reverse_tile")
    lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name=f"y, {blocks} tiles")
print("reverse_tile: right, and every thread waits for what it reads.")

# %% nbgrader={"grade": true, "grade_id": "reverse_tile_test_copies", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(reverse_tile)
x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
profile = kernel.profile[4, 256](x, y)
lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name="y, while it was profiled")
assert profile.bulk_copies >= 4, f"{profile.bulk_copies} bulk copies for 4 tiles: the copy engine fills s, not the threads"
lk.checks.expect_counters(profile, global_load_sectors=128, global_store_sectors=128, name="reverse_tile")
assert profile.total("shared", "store", "lanes") <= 8, "threads store into shared memory: the copy alone fills s"
print("reverse_tile: four copies fill four tiles, and no thread carries a float.")

# %% [markdown]
# ## Part 3 · Phases and parity
#
# A barrier is used again and again: phase 0, 1, 2, ... A wait does not name the phase, only its last bit. `wait_parity(p)` returns at once if the phase
# under way has the *other* parity, because then the last phase with parity `p` is over. That is enough as long as nobody falls behind by two.
#
# With $S$ stages, tile $i$ lies in stage $i \bmod S$, and it is the tile number $r = \lfloor i / S \rfloor$ of this stage. Two barriers belong to each stage:
# `full` ends phase $r$ when tile $i$ has arrived, `empty` ends phase $r$ when all have read it. Before tile $i$ is loaded, the stage has to be empty again:
# phase $r - 1$ of `empty` has to be over. For the first tiles there is no phase $-1$. Its parity is 1, and a new barrier lets a wait for parity 1
# pass at once.

# %% [markdown]
# ### Task 3 · The ring
# *10 points · 15 minutes · ●●○○*
#
# Which stage has tile $i$, and which parities do the two waits name?

# %%
lk.predict("ring")

# %% nbgrader={"grade": false, "grade_id": "ring", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ring(i, stages):
    """Where tile i of a ring lies, and the parities of its waits: (stage, parity of full, parity of empty).

    A consumer waits for full with the first parity before it reads the tile, the producer for empty with the second
    one before it loads it.

    >>> ring(0, 4), ring(5, 4)
    ((0, 0, 1), (1, 1, 0))
    """
    ### BEGIN SOLUTION
    parity = i // stages % 2
    return i % stages, parity, 1 - parity
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "ring_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
stages, full, empty = zip(*(ring(i, 3) for i in range(7)), strict=True)
lk.checks.expect_equal(list(stages), [0, 1, 2, 0, 1, 2, 0], name="the stages of tiles 0 to 6 in 3 stages")
lk.checks.expect_equal(list(full), [0, 0, 0, 1, 1, 1, 0], name="the parities of full of tiles 0 to 6 in 3 stages")
lk.checks.expect_equal(list(empty), [1, 1, 1, 0, 0, 0, 1], name="the parities of empty of tiles 0 to 6 in 3 stages")
lk.checks.expect_equal([tuple(ring(i, 1)) for i in range(3)], [(0, 0, 1), (0, 1, 0), (0, 0, 1)], name="one stage: the parity turns each time")
print("ring: right for three stages and for one.")

# %% nbgrader={"grade": true, "grade_id": "ring_test_far", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(tuple(ring(8, 2)), (0, 0, 1), name="tile 8 in 2 stages")
### BEGIN HIDDEN TESTS
# Input: tiles far along, in rings of any depth
for stages in range(1, 9):
    for i in range(0, 100, 7):
        phase = len(range(i % stages, i, stages))  # tiles before it in this stage
        lk.checks.expect_equal(tuple(ring(i, stages)), (i - phase * stages, phase & 1, (phase & 1) ^ 1), name=f"tile {i} in {stages} stages")
### END HIDDEN TESTS
print("ring: right for two stages.")

# %% [markdown]
# ## Part 4 · Copies ahead of the work
#
# Now a block works through many tiles. It starts the copy of a later tile *before* it waits for this one, so that bytes are always in flight. A stage may be
# filled again only after everybody has read it: here a `__syncthreads()` after the reads says so.

# %% [markdown]
# ### Task 4 · Two stages
# *12 points · 25 minutes · ●●●○*
#
# One block, all `tiles` tiles, two stages. Start with the copies of tiles 0 and 1. After tile $i$ has been read by all, start the copy of tile $i + 2$
# into its place. One barrier object per stage is enough; one `__syncthreads()` per tile, and one after `init`.

# %%
lk.predict("reverse_two")

# %% nbgrader={"grade": false, "grade_id": "reverse_two", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda reverse_two
#include <cuda/barrier>
#include <cuda/ptx>
using barrier = cuda::barrier<cuda::thread_scope_block>;

// Turns round each of `tiles` tiles of 256 floats. One block of 256 threads.
__global__ void reverse_two(const float* x, float* y, int tiles)
{
    __shared__ alignas(128) float s[2][256];
    __shared__ barrier full[2];
    ### BEGIN SOLUTION
    int t = threadIdx.x;
    if (t == 0) {
        init(&full[0], 1);
        init(&full[1], 1);
        cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
        for (int i = 0; i < 2 && i < tiles; i++) {
            cuda::device::memcpy_async_tx(s[i], x + 256 * i, cuda::aligned_size_t<16>(sizeof s[i]), full[i]);
            (void)cuda::device::barrier_arrive_tx(full[i], 1, sizeof s[i]);
        }
    }
    __syncthreads();
    for (int i = 0; i < tiles; i++) {
        int stage = i % 2;
        full[stage].wait_parity(i / 2 % 2);
        y[256 * i + t] = s[stage][255 - t];
        __syncthreads();  // all have read the stage
        if (t == 0 && i + 2 < tiles) {
            cuda::device::memcpy_async_tx(s[stage], x + 256 * (i + 2), cuda::aligned_size_t<16>(sizeof s[stage]), full[stage]);
            (void)cuda::device::barrier_arrive_tx(full[stage], 1, sizeof s[stage]);
        }
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "reverse_two_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(reverse_two)
rng = np.random.default_rng(1040)
for tiles in (2, 7):
    x, y = whole(rng, 256 * tiles), np.full(256 * tiles, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (1, 256, (x, y, tiles)), name=f"reverse_two, {tiles} tiles")
    lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name=f"y, {tiles} tiles")
print("reverse_two: right for two and for seven tiles, and no copy comes too early.")

# %% nbgrader={"grade": true, "grade_id": "reverse_two_test_few", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(reverse_two)
rng = np.random.default_rng(1041)
for tiles in (1,):
    x, y = whole(rng, 256 * tiles), np.full(256 * tiles, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (1, 256, (x, y, tiles)), name=f"reverse_two, {tiles} tiles")
    lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name=f"y, {tiles} tiles")
### BEGIN HIDDEN TESTS
# Input: 3, 4 or 12 tiles
rng = np.random.default_rng(1042)
for tiles in (3, 4, 12):
    x, y = whole(rng, 256 * tiles), np.full(256 * tiles, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (1, 256, (x, y, tiles)), name=f"reverse_two, {tiles} tiles")
    lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name=f"y, {tiles} tiles")
### END HIDDEN TESTS
print("reverse_two: right for a single tile.")

# %% nbgrader={"grade": true, "grade_id": "reverse_two_test_flight", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(reverse_two)
x, y = np.arange(2048, dtype=np.float32), np.zeros(2048, np.float32)
profile = kernel.profile[1, 256](x, y, 8)
lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name="y, while it was profiled")
assert profile.bulk_copies >= 8, f"{profile.bulk_copies} bulk copies for 8 tiles"
lk.checks.expect_counters(profile, global_load_sectors=256, at_most_barriers=10, name="reverse_two")
flying = profile.bulk_bytes_in_flight
assert flying == 2048, f"at most {flying} bytes are in flight, and two tiles are 2048: which copy starts before which wait?"
print("reverse_two: two tiles are in flight, each copied once.")

# %% [markdown]
# ### Task 5 · Any depth, any grid
# *14 points · 25 minutes · ●●●○*
#
# `S` stages, and a *persistent* grid: the launch has as many blocks as fit on the machine, and block $b$ takes tiles $b$, $b + \text{gridDim}$, ... The ring
# goes on from tile to tile: stage and parity follow from how many tiles this block has had, not from the tile's number. The first line of the cell,
# `%%cuda reverse_ring reverse_ring<4>`, compiles the template for `S = 4`.

# %%
lk.predict("reverse_ring")

# %% nbgrader={"grade": false, "grade_id": "reverse_ring", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda reverse_ring reverse_ring<4>
#include <cuda/barrier>
#include <cuda/ptx>
using barrier = cuda::barrier<cuda::thread_scope_block>;

// Turns round each of `tiles` tiles of 256 floats with S stages. Any grid, blocks of 256 threads.
template <int S>
__global__ void reverse_ring(const float* x, float* y, int tiles)
{
    __shared__ alignas(128) float s[S][256];
    __shared__ barrier full[S];
    ### BEGIN SOLUTION
    int t = threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < S; i++) init(&full[i], 1);
        cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    }
    __syncthreads();
    auto load = [&](int k) {  // the block's tile number k
        int tile = blockIdx.x + k * gridDim.x;
        if (t != 0 || tile >= tiles) return;
        cuda::device::memcpy_async_tx(s[k % S], x + 256 * tile, cuda::aligned_size_t<16>(sizeof s[0]), full[k % S]);
        (void)cuda::device::barrier_arrive_tx(full[k % S], 1, sizeof s[0]);
    };
    for (int k = 0; k < S; k++) load(k);
    for (int k = 0; int(blockIdx.x + k * gridDim.x) < tiles; k++) {
        full[k % S].wait_parity(k / S % 2);
        y[256 * (blockIdx.x + k * gridDim.x) + t] = s[k % S][255 - t];
        __syncthreads();
        load(k + S);
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "reverse_ring_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(reverse_ring)
rng = np.random.default_rng(1050)
for grid, tiles in [(1, 11), (3, 14)]:
    x, y = whole(rng, 256 * tiles), np.full(256 * tiles, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, 256, (x, y, tiles)), name=f"reverse_ring, {grid} blocks, {tiles} tiles")
    lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name=f"y, {grid} blocks, {tiles} tiles")
print("reverse_ring: right for one block and for three.")

# %% nbgrader={"grade": true, "grade_id": "reverse_ring_test_few", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(reverse_ring)
rng = np.random.default_rng(1051)
for grid, tiles in [(1, 2), (4, 3)]:
    x, y = whole(rng, 256 * tiles), np.full(256 * tiles, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, 256, (x, y, tiles)), name=f"reverse_ring, {grid} blocks, {tiles} tiles")
    lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name=f"y, {grid} blocks, {tiles} tiles")
### BEGIN HIDDEN TESTS
# Input: as many tiles as stages, one more, or one
rng = np.random.default_rng(1052)
for grid, tiles in [(1, 4), (1, 5), (1, 1), (2, 17)]:
    x, y = whole(rng, 256 * tiles), np.full(256 * tiles, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, 256, (x, y, tiles)), name=f"reverse_ring, {grid} blocks, {tiles} tiles")
    lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name=f"y, {grid} blocks, {tiles} tiles")
### END HIDDEN TESTS
print("reverse_ring: right for fewer tiles than stages, and for fewer than blocks.")

# %% nbgrader={"grade": true, "grade_id": "reverse_ring_test_flight", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(reverse_ring)
x, y = np.arange(12 * 256, dtype=np.float32), np.zeros(12 * 256, np.float32)
profile = kernel.profile[1, 256](x, y, 12)
lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name="y, while it was profiled")
assert profile.bulk_copies >= 12, f"{profile.bulk_copies} bulk copies for 12 tiles"
lk.checks.expect_counters(profile, global_load_sectors=384, at_most_barriers=14, name="reverse_ring")
flying = profile.bulk_bytes_in_flight
assert flying == 4096, f"at most {flying} bytes are in flight, and four stages are 4096"
print("reverse_ring: four tiles are in flight.")

# %% [markdown]
# **Half-time.** You have a ring of any depth. Its weak place is the `__syncthreads()`: all warps meet once per tile, and the copy of the next one starts only then.
# The second half splits the block in two.
#
# ## Part 5 · One warp loads, the others compute
#
# A *producer* warp does nothing but start copies. The *consumer* warps do nothing but use them. They meet only at `full` and `empty`: the producer runs
# ahead until no stage is empty. This is *warp specialisation*. On an H100 the producer can also hand registers over to the consumers (`setmaxnreg`).
#
# Each consumer arrives at `empty` after it has read: `(void)empty[stage].arrive()`. `init` has to name how many do.

# %% [markdown]
# ### Task 6 · Producer and consumers
# *14 points · 30 minutes · ●●●●*
#
# Blocks of 288 threads: warp 0 is the producer (one lane starts the copies), the 256 threads behind it are the consumers. Three stages, a persistent grid. One
# `__syncthreads()` after `init`, and none in the loops.

# %%
lk.predict("specialised")

# %% nbgrader={"grade": false, "grade_id": "specialised", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda specialised
#include <cuda/barrier>
#include <cuda/ptx>
using barrier = cuda::barrier<cuda::thread_scope_block>;

// Turns round each of `tiles` tiles of 256 floats. Any grid, blocks of 32 + 256 threads.
__global__ void specialised(const float* x, float* y, int tiles)
{
    constexpr int S = 3;
    __shared__ alignas(128) float s[S][256];
    __shared__ barrier full[S], empty[S];
    ### BEGIN SOLUTION
    if (threadIdx.x == 0) {
        for (int i = 0; i < S; i++) {
            init(&full[i], 1);
            init(&empty[i], 256);
        }
        cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 0, tile = blockIdx.x; tile < tiles; k++, tile += gridDim.x) {
            int stage = k % S;
            empty[stage].wait_parity(1 - k / S % 2);
            cuda::device::memcpy_async_tx(s[stage], x + 256 * tile, cuda::aligned_size_t<16>(sizeof s[0]), full[stage]);
            (void)cuda::device::barrier_arrive_tx(full[stage], 1, sizeof s[0]);
        }
    } else if (threadIdx.x >= 32) {
        int t = threadIdx.x - 32;
        for (int k = 0, tile = blockIdx.x; tile < tiles; k++, tile += gridDim.x) {
            int stage = k % S;
            full[stage].wait_parity(k / S % 2);
            y[256 * tile + t] = s[stage][255 - t];
            (void)empty[stage].arrive();
        }
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "specialised_test", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(specialised)
rng = np.random.default_rng(1060)
for grid, tiles in [(1, 10), (3, 14)]:
    x, y = whole(rng, 256 * tiles), np.full(256 * tiles, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, 288, (x, y, tiles)), name=f"specialised, {grid} blocks, {tiles} tiles")
    lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name=f"y, {grid} blocks, {tiles} tiles")
print("specialised: right, and no stage is filled before all have read it.")

# %% nbgrader={"grade": true, "grade_id": "specialised_test_few", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(specialised)
rng = np.random.default_rng(1061)
for grid, tiles in [(1, 1), (4, 3)]:
    x, y = whole(rng, 256 * tiles), np.full(256 * tiles, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, 288, (x, y, tiles)), name=f"specialised, {grid} blocks, {tiles} tiles")
    lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name=f"y, {grid} blocks, {tiles} tiles")
### BEGIN HIDDEN TESTS
# Input: as many tiles as stages, one more, or many
rng = np.random.default_rng(1062)
for grid, tiles in [(1, 3), (1, 4), (2, 21)]:
    x, y = whole(rng, 256 * tiles), np.full(256 * tiles, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (grid, 288, (x, y, tiles)), name=f"specialised, {grid} blocks, {tiles} tiles")
    lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name=f"y, {grid} blocks, {tiles} tiles")
### END HIDDEN TESTS
print("specialised: right for fewer tiles than stages, and for fewer than blocks.")

# %% nbgrader={"grade": true, "grade_id": "specialised_test_barriers", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(specialised)
x, y = np.arange(12 * 256, dtype=np.float32), np.zeros(12 * 256, np.float32)
profile = kernel.profile[1, 288](x, y, 12)
lk.checks.expect_close(y, reversed_tiles(x), rtol=0, name="y, while it was profiled")
assert profile.bulk_copies >= 12, f"{profile.bulk_copies} bulk copies for 12 tiles"
lk.checks.expect_counters(profile, global_load_sectors=384, at_most_barriers=1, name="specialised")
flying = profile.bulk_bytes_in_flight
assert flying == 3072, f"at most {flying} bytes are in flight, and three stages are 3072: does the producer run ahead?"
print("specialised: one barrier of the block, and three tiles in flight.")

# %% [markdown]
# ## Part 6 · The way back
#
# A bulk copy from shared to global memory has no barrier. The thread that starts it gathers its copies in *groups*: `cp_async_bulk_commit_group()` closes a
# group, and `cp_async_bulk_wait_group_read(n)` waits until at most the last `n` groups still *read* shared memory. Only then may the stage be written again. Before the copy starts,
# what the threads wrote has to become visible to the copy engine. The usual way: every thread that wrote calls the proxy fence, and then all meet.

# %% [markdown]
# ### Task 7 · In and out by copies
# *12 points · 25 minutes · ●●●○*
#
# Multiply each tile by `factor`, in place in shared memory. Bulk copies bring it in and take it out: no thread touches global memory. One block, two stages.
# The copy out is `cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, to, from, bytes)`, the wait
# `cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>())`.

# %%
lk.predict("scale_copies")

# %% nbgrader={"grade": false, "grade_id": "scale_copies", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda scale_copies
#include <cuda/barrier>
#include <cuda/ptx>
using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace ptx = cuda::ptx;

// x[i] *= factor in each of `tiles` tiles of 256 floats. One block of 256 threads.
__global__ void scale_copies(float* x, float factor, int tiles)
{
    __shared__ alignas(128) float s[2][256];
    __shared__ barrier full[2];
    ### BEGIN SOLUTION
    int t = threadIdx.x;
    if (t == 0) {
        init(&full[0], 1);
        init(&full[1], 1);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    auto load = [&](int i) {
        if (t != 0 || i >= tiles) return;
        cuda::device::memcpy_async_tx(s[i % 2], x + 256 * i, cuda::aligned_size_t<16>(sizeof s[0]), full[i % 2]);
        (void)cuda::device::barrier_arrive_tx(full[i % 2], 1, sizeof s[0]);
    };
    load(0);
    load(1);
    for (int i = 0; i < tiles; i++) {
        full[i % 2].wait_parity(i / 2 % 2);
        s[i % 2][t] *= factor;
        ptx::fence_proxy_async(ptx::space_shared);  // each writer, for what it wrote
        __syncthreads();
        if (t == 0) {
            ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, x + 256 * i, s[i % 2], sizeof s[0]);
            ptx::cp_async_bulk_commit_group();
            ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
        }
        load(i + 2);
    }
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "scale_copies_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(scale_copies)
rng = np.random.default_rng(1070)
for tiles in (2, 7):
    x = whole(rng, 256 * tiles)
    expected = 3 * x
    lk.checks.expect_clean(kernel, (1, 256, (x, 3.0, tiles)), name=f"scale_copies, {tiles} tiles")
    lk.checks.expect_close(x, expected, rtol=0, name=f"x, {tiles} tiles")
print("scale_copies: right, and no stage is written while a copy reads it.")

# %% nbgrader={"grade": true, "grade_id": "scale_copies_test_few", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(scale_copies)
rng = np.random.default_rng(1071)
for tiles in (1,):
    x = whole(rng, 256 * tiles)
    expected = 3 * x
    lk.checks.expect_clean(kernel, (1, 256, (x, 3.0, tiles)), name=f"scale_copies, {tiles} tiles")
    lk.checks.expect_close(x, expected, rtol=0, name=f"x, {tiles} tiles")
### BEGIN HIDDEN TESTS
# Input: 3, 4 or 9 tiles
rng = np.random.default_rng(1072)
for tiles in (3, 4, 9):
    x = whole(rng, 256 * tiles)
    expected = 3 * x
    lk.checks.expect_clean(kernel, (1, 256, (x, 3.0, tiles)), name=f"scale_copies, {tiles} tiles")
    lk.checks.expect_close(x, expected, rtol=0, name=f"x, {tiles} tiles")
### END HIDDEN TESTS
print("scale_copies: right for a single tile.")

# %% nbgrader={"grade": true, "grade_id": "scale_copies_test_copies", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(scale_copies)
x = np.arange(2048, dtype=np.float32)
expected = 2 * x
profile = kernel.profile[1, 256](x, 2.0, 8)
lk.checks.expect_close(x, expected, rtol=0, name="x, while it was profiled")
assert profile.bulk_copies >= 16, f"{profile.bulk_copies} bulk copies for 8 tiles in and 8 out"
lk.checks.expect_counters(profile, global_load_requests=16, global_store_requests=16, name="scale_copies")
print("scale_copies: eight copies in and eight out, and nothing besides.")

# %% [markdown]
# ## Part 7 · Blocks that see each other
#
# A *cluster* is a group of blocks that run at the same time on neighbouring SMs. A thread may read and write the shared memory of the other blocks, and no byte of that
# goes through global memory. `cg::this_cluster()` gives the group: `block_rank()`, `sync()`, and `map_shared_rank(&variable, rank)`, the address of the
# same variable in block `rank`. A kernel declares the size of its clusters: `__cluster_dims__(4, 1, 1)`.
#
# Two rules. Before the first `sync()` another block may not have begun. And a block must not end while others still use its memory.

# %% [markdown]
# ### Task 8 · A sum over a cluster
# *10 points · 18 minutes · ●●●○*
#
# Four blocks form a cluster. Each adds up its 256 floats in `own`. Then their sums are added up, and one thread of the cluster stores the result: no atomics on global memory.

# %%
lk.predict("cluster_sum")

# %% nbgrader={"grade": false, "grade_id": "cluster_sum", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda cluster_sum
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// sums[c] = the sum of the 1024 floats of cluster c. Blocks of 256 threads; the grid is a
// multiple of 4.
__global__ void __cluster_dims__(4, 1, 1) cluster_sum(const float* x, float* sums)
{
    __shared__ float own;
    cg::cluster_group cluster = cg::this_cluster();
    ### BEGIN SOLUTION
    if (threadIdx.x == 0) own = 0;
    __syncthreads();
    atomicAdd(&own, x[256 * blockIdx.x + threadIdx.x]);
    cluster.sync();  // all blocks have their sums
    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        float sum = 0;
        for (int rank = 0; rank < 4; rank++) sum += *cluster.map_shared_rank(&own, rank);
        sums[blockIdx.x / 4] = sum;
    }
    cluster.sync();  // and keep them until they have been read
    ### END SOLUTION
}

# %% nbgrader={"grade": true, "grade_id": "cluster_sum_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(cluster_sum)
rng = np.random.default_rng(1080)
for clusters in (1, 3):
    x, sums = whole(rng, 1024 * clusters), np.full(clusters, np.nan, np.float32)
    lk.checks.expect_clean(kernel, (4 * clusters, 256, (x, sums)), name=f"cluster_sum, {clusters} clusters")
    lk.checks.expect_close(sums, x.reshape(clusters, 1024).sum(1), rtol=0, name=f"sums, {clusters} clusters")
print("cluster_sum: right, and no block reads too early or ends too soon.")

# %% nbgrader={"grade": true, "grade_id": "cluster_sum_test_traffic", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
kernel = lk.checks.graded_kernel(cluster_sum)
x, sums = whole(np.random.default_rng(1081), 2048), np.zeros(2, np.float32)
profile = kernel.profile[8, 256](x, sums)
lk.checks.expect_close(sums, x.reshape(2, 1024).sum(1), rtol=0, name="sums, while it was profiled")
lk.checks.expect_counters(profile, global_load_sectors=256, global_atomic_requests=0, at_most_global_store_requests=2, name="cluster_sum")
print("cluster_sum: each float is read once, and each cluster stores once.")

# %% [markdown]
# ## Part 8 · What goes wrong
#
# Asynchronous bugs rarely show. The result is right today, on this machine, at this clock rate. `check` does not depend on when a copy arrives: it asks whether anything *orders* what you wrote.

# %% [markdown]
# ### Task 9 · Debug
# *8 points · 15 minutes · ●●●○*
#
# Run the two launches, read what `check` says, and write both kernels without their mistake. Each is marked by itself.

# %%
# %%cuda sums_broken
#include <cuda/barrier>
#include <cuda/ptx>
using barrier = cuda::barrier<cuda::thread_scope_block>;

// sums[i] = the sum of tile i of 64 floats: thread 0 copies, threads 32 to 63 add up two
// floats each. Blocks of 64 threads.
__global__ void sums_broken(const float* x, float* sums, int tiles)
{
    __shared__ alignas(128) float tile[2][64];
    __shared__ barrier came[2], done[2];
    int tid = threadIdx.x;
    if (tid == 0) {
        for (int q = 0; q < 2; q++) {
            init(came + q, 1);
            init(done + q, 32);
        }
        cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
    }
    __syncthreads();
    if (tid == 0) {
        for (int p = 0; p < tiles; p++) {
            int q = p & 1;
            done[q].wait_parity((p >> 1 & 1) ^ 1);
            cuda::device::memcpy_async_tx(tile[q], x + 64 * p, cuda::aligned_size_t<16>(256), came[q]);
            (void)cuda::device::barrier_arrive_tx(came[q], 1, 256);
        }
    } else if (tid >= 32) {
        int lane = tid - 32;
        for (int p = 0; p < tiles; p++) {
            int q = p & 1;
            came[q].wait_parity(p >> 1 & 1);
            (void)done[q].arrive();
            float v = tile[q][lane] + tile[q][lane + 32];
            for (int step = 16; step; step >>= 1) v += __shfl_down_sync(~0u, v, step);
            if (lane == 0) sums[p] = v;
        }
    }
}

# %%
# %%cuda join_broken
#include <cuda/barrier>
#include <cuda/ptx>
using barrier = cuda::barrier<cuda::thread_scope_block>;

// y[i] = a[i] + b[i] for the block's 128 elements: both come by copies, and both copies end
// with one phase. Blocks of 128 threads.
__global__ void join_broken(const float* a, const float* b, float* y)
{
    __shared__ alignas(128) float from_a[128], from_b[128];
    __shared__ barrier ready;
    int tid = threadIdx.x, first = blockDim.x * blockIdx.x;
    if (tid == 0) {
        init(&ready, blockDim.x);
        cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
    }
    __syncthreads();
    if (tid == 0) {
        cuda::device::memcpy_async_tx(from_a, a + first, cuda::aligned_size_t<16>(sizeof from_a), ready);
        cuda::device::memcpy_async_tx(from_b, b + first, cuda::aligned_size_t<16>(sizeof from_b), ready);
        (void)cuda::device::barrier_arrive_tx(ready, 1, sizeof from_a);
    } else {
        (void)ready.arrive();
    }
    ready.wait_parity(0);
    y[first + tid] = from_a[tid] + from_b[tid];
}

# %%
x = np.arange(512, dtype=np.float32)
for kernel, block, arguments in (
    (sums_broken, 64, (x, np.zeros(8, np.float32), 8)),
    (join_broken, 128, (x[:128], x[:128], np.zeros(128, np.float32))),
):
    findings = kernel.check[1, block](*arguments)
    print(f"--- {kernel.name}, finding 1 of {len(findings)}\n{findings[0]}\n")

# %%
lk.predict("debug_async")

# %% nbgrader={"grade": false, "grade_id": "debug_async", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%cuda debug_async
#include <cuda/barrier>
#include <cuda/ptx>
using barrier = cuda::barrier<cuda::thread_scope_block>;

// The two kernels, mended. They are called sums and join, and have the parameters and the
// launches of the broken ones.
### BEGIN SOLUTION
__global__ void sums(const float* x, float* out, int tiles)
{
    __shared__ alignas(128) float s[2][64];
    __shared__ barrier full[2], empty[2];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) { init(&full[i], 1); init(&empty[i], 32); }
        cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < tiles; i++) {
            empty[i % 2].wait_parity(1 - i / 2 % 2);
            cuda::device::memcpy_async_tx(s[i % 2], x + 64 * i, cuda::aligned_size_t<16>(256), full[i % 2]);
            (void)cuda::device::barrier_arrive_tx(full[i % 2], 1, 256);
        }
    } else if (threadIdx.x >= 32) {
        int t = threadIdx.x - 32;
        for (int i = 0; i < tiles; i++) {
            full[i % 2].wait_parity(i / 2 % 2);
            float sum = s[i % 2][t] + s[i % 2][t + 32];
            (void)empty[i % 2].arrive();  // after the reads
            for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
            if (t == 0) out[i] = sum;
        }
    }
}

__global__ void join(const float* a, const float* b, float* y)
{
    __shared__ alignas(128) float sa[128], sb[128];
    __shared__ barrier bar;
    if (threadIdx.x == 0) {
        init(&bar, 128);
        cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(sa, a + 128 * blockIdx.x, cuda::aligned_size_t<16>(512), bar);
        cuda::device::memcpy_async_tx(sb, b + 128 * blockIdx.x, cuda::aligned_size_t<16>(512), bar);
        (void)cuda::device::barrier_arrive_tx(bar, 1, 1024);  // the bytes of both
    } else {
        (void)bar.arrive();
    }
    bar.wait_parity(0);
    y[128 * blockIdx.x + threadIdx.x] = sa[threadIdx.x] + sb[threadIdx.x];
}
### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "debug_async_test_sums", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
sums = lk.checks.graded_kernel(debug_async, "sums")
rng = np.random.default_rng(1090)
for tiles in (9, 1, 2):
    x, out = whole(rng, 64 * tiles), np.full(tiles, np.nan, np.float32)
    lk.checks.expect_clean(sums, (1, 64, (x, out, tiles)), name=f"sums, {tiles} tiles")
    lk.checks.expect_close(out, x.reshape(tiles, 64).sum(1), rtol=0, name=f"sums, {tiles} tiles")
print("sums: right, and a stage is given back after it has been read.")

# %% nbgrader={"grade": true, "grade_id": "debug_async_test_join", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
join = lk.checks.graded_kernel(debug_async, "join")
rng = np.random.default_rng(1091)
for blocks in (1, 3):
    a, b, y = whole(rng, 128 * blocks), whole(rng, 128 * blocks), np.full(128 * blocks, np.nan, np.float32)
    lk.checks.expect_clean(join, (blocks, 128, (a, b, y)), name="join")
    lk.checks.expect_close(y, a + b, rtol=0, name=f"join, {blocks} blocks")
print("join: right, and the phase ends with the last byte of both copies.")

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel, run all cells, save, and look here: which tasks pass the checks you see, and what is left.

# %%
lk.progress()

# %% [markdown]
# ## What to take along
#
# - To keep a memory busy, bandwidth times latency bytes have to be in flight, always.
# - A barrier's phase ends with the last arrival and the last expected byte. A wait names the parity of the phase.
# - `full` says that a tile has come, `empty` that all have read it. Both are needed, and both in every round.
# - Writes of threads and reads of the copy engine need a proxy fence between them. Stores by copies are waited for in groups.
# - Blocks of a cluster share memory only between the first `sync()` and the last.
#
# ## Next
#
# [Chapter 7, *Staying local: tiling*](../../course/chapters/07_tiling.md), shows where these copies lead: tensor cores that read their operands from shared memory.
