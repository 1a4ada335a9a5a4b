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
# # Lab 07 · Parallelism
#
# Llama 3 8B was trained on 15 trillion tokens (Grattafiori et al., 2024). At 6 FLOPs a parameter and token and 500 TFLOP/s, one GPU would need 46 years, if only the
# training's 128 GB fitted into it. So a job is many *ranks*: the same program, started p times, each with its own memory and its own
# number. Everything they share, they send. This lab builds what makes that fast, from two calls, `send` and `recv`, up to the plan of
# a training run on 64 GPUs.
#
# **You will be able to**
#
# - write the collectives that every framework stands on, and count their messages and bytes;
# - read a deadlock's diagnosis, and mend it;
# - cut a model by its data, its matrices, its layers, its experts and its sequence, and say what each cut sends;
# - schedule a pipeline and compute its bubble;
# - say what a training run keeps in memory, and shard it;
# - plan a job for 64 GPUs on paper.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 170 minutes | ●●●○ | any laptop; GPUs only for the last, ungraded section | 100 in 11 tasks |
#
# Needs lab 01 (bytes, FLOPs, a transformer's shapes). Reads along with chapter 10, *Many GPUs: training*.
#
# Each task goes the same way: **predict**, **write**, **check**, then **look**. Marks come from values, counted messages and counted
# bytes, never from a clock: all ranks share your few cores here, and their time says nothing about a cluster. Where this lab shows
# seconds, they come from a *virtual clock* with stated links. Stuck? `lk.hint("tree_broadcast")` in a new cell gives a nudge, and a
# stronger one each time you ask.
# `lk.progress()` in a new cell shows how far you are.

# %% tags=["install"]
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% nbgrader={"grade": false, "grade_id": "lab07_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import math

import numpy as np
import plotly.graph_objects as go
import torch
import torch.distributed as dist
import torch.nn.functional as F

from torch._subclasses.fake_tensor import FakeTensorMode

import mlsys_labkit as lk
from mlsys_labkit import lm, ranks
from mlsys_labkit.ranks import planner

torch.set_num_threads(1)

# %% tags=["parameters"]
smoke = False  # True: fewer sizes, for a quick run through
seed = 0

# %% [markdown]
# ## Part 1 · Ranks and messages
#
# `ranks.run(function, p, args=...)` runs a function on p ranks. What you write in it is plain `torch.distributed`, the code that runs
# on a cluster, unchanged. `ranks.each` gives each rank its own argument. All ranks live in this notebook's process and take turns, so
# every run is the same as the last, and every message is written down.


# %%
def pass_on(x):
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        dist.recv(x, src=rank - 1)  # wait for the left neighbour, and overwrite x
    if rank < p - 1:
        dist.send(x, dst=rank + 1)
    return x.tolist()


tensors = ranks.each([torch.full((3,), float(r)) for r in range(4)])
run = ranks.run(pass_on, 4, backend="local", args=(tensors,))
print(run.values)
print()
print(run.trace)

# %% [markdown]
# Three messages, one after the other: at the end everybody has rank 0's tensor. That is a *broadcast*, by a chain. With 1,000 ranks
# the last one waits for 999 messages. A **tree** does better: whoever has the tensor helps to spread it, so that the number of those who
# have it doubles with every round.

# %% [markdown]
# ### Task 1 · Broadcast by a tree
# *8 points · 12 minutes · ●●○○*
#
# Count ranks from the root on: the *relative* rank is `(rank - root) % p`, and the root's is 0. In round k = 0, 1, 2, … each relative
# rank below $2^k$ sends to the one $2^k$ further on, if there is one. After $\lceil \log_2 p \rceil$ rounds all have it.

# %%
lk.predict("tree_broadcast")


# %% nbgrader={"grade": false, "grade_id": "tree_broadcast", "locked": false, "schema_version": 3, "solution": true, "task": false}
def tree_broadcast(x, root):
    """Give every rank the root's tensor, by a binomial tree of dist.send and dist.recv.

    x: a tensor of the same shape and dtype on every rank, overwritten in place (on the root it
    stays). root: any rank. Returns x. Works for any number of ranks. No collective of the library:
    those you write here.
    """
    ### BEGIN SOLUTION
    p, rank = dist.get_world_size(), dist.get_rank()
    relative, reach = (rank - root) % p, 1
    while reach < p:
        if relative < reach:
            if relative + reach < p:
                dist.send(x, (rank + reach) % p)
        elif relative < 2 * reach:
            dist.recv(x, (rank - reach) % p)
        reach *= 2
    return x
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "tree_broadcast_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
run = lk.checks.run_ranks(tree_broadcast, 4, ranks.each([torch.full((3,), float(r)) for r in range(4)]), 0)
for rank, value in enumerate(run.values):
    lk.checks.expect_close(value, torch.zeros(3), rtol=0, name=f"x on rank {rank} of 4")
lk.checks.expect_messages(run.trace, total_messages=3, at_most_messages=2, at_most_rounds=2, name="4 ranks, root 0")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(701)
for p, root in [(1, 0), (2, 1), (3, 2), (5, 3), (6, 1), (7, 0), (8, 5)]:  # powers of two and others, the root anywhere
    tensors = [torch.randn(2, 5, generator=generator) for _ in range(p)]
    run = lk.checks.run_ranks(tree_broadcast, p, ranks.each(tensors), root)
    for rank, value in enumerate(run.values):
        lk.checks.expect_close(value, tensors[root], rtol=0, name=f"x on rank {rank} of {p}, root {root}")
    rounds = math.ceil(math.log2(p))
    lk.checks.expect_messages(
        run.trace, total_messages=p - 1, total_bytes=(p - 1) * 40, at_most_messages=rounds, at_most_rounds=rounds, name=f"{p} ranks, root {root}"
    )
### END HIDDEN TESTS

# %% [markdown]
# ### A deadlock, and what it says
#
# In the next cell every rank sends to its right neighbour and then receives from its left one. A `send` may wait until its message is
# received, and nobody receives, for all are busy sending. On a cluster such a program often runs with small tensors, which the network
# buffers, and hangs with large ones, at night, without a word. Here it does not hang: the ranks that wait are known, and so is for whom.


# %%
def everyone_sends_first(x):
    rank, p = dist.get_rank(), dist.get_world_size()
    incoming = torch.empty_like(x)
    dist.send(x, (rank + 1) % p)
    dist.recv(incoming, (rank - 1) % p)
    return incoming.tolist()


tensors = ranks.each([torch.tensor([float(r)]) for r in range(3)])
try:
    ranks.run(everyone_sends_first, 3, backend="local", args=(tensors,))
except ranks.DeadlockError as error:
    print(error)

# %% [markdown]
# The cure is to *start* both and then wait for both. `isend` and `irecv` return at once, each with a request. Until the request's `wait()` has
# returned, what is sent must be neither changed nor thrown away, and in what is received there is nothing. `batch_isend_irecv` hands both to the
# network together, which NCCL wants. Use `exchange` in the tasks to come.


# %% nbgrader={"grade": false, "grade_id": "exchange", "locked": true, "schema_version": 3, "solution": false, "task": false}
def exchange(outgoing, to, incoming, source):
    """Send `outgoing` to one rank while receiving `incoming`, in place, from another one."""
    __tracebackhide__ = True  # so that errors name the line that called
    both = [dist.P2POp(dist.isend, outgoing, to), dist.P2POp(dist.irecv, incoming, source)]
    for request in dist.batch_isend_irecv(both):
        request.wait()


def neighbours():
    """(my rank, number of ranks, rank to the right, rank to the left) on the ring."""
    rank, p = dist.get_rank(), dist.get_world_size()
    return rank, p, (rank + 1) % p, (rank - 1) % p


def chunk_sizes(n, p):
    """The sizes of p chunks of n elements, as torch.tensor_split cuts: the first n % p have one more."""
    return [n // p + (c < n % p) for c in range(p)]


# %%
def everyone_exchanges(x):
    rank, p, right, left = neighbours()
    incoming = torch.empty_like(x)
    exchange(x, right, incoming, left)
    return incoming.tolist()


run = ranks.run(everyone_exchanges, 3, backend="local", args=(tensors,))
print(run.values)

# %% [markdown]
# ## Part 2 · The ring
#
# Training sums gradients over all ranks, every step: an **all-reduce**. If everyone sent everything to rank 0 and got the sum back, rank 0
# would receive and send (p − 1) times the whole, while the others' links stood idle. The ring keeps every link busy and nobody waiting: cut the tensor
# into p chunks, and let each travel once around, collecting (a **reduce-scatter**); then once more around, handing out (an **all-gather**).

# %%
lk.widgets.collective_animator("all_reduce", "ring", 4)

# %% [markdown]
# ### Task 2 · Ring reduce-scatter
# *10 points · 20 minutes · ●●●○*
#
# At the end, rank r holds chunk r of the sum, and nothing else. In p − 1 steps every rank sends a chunk to its right and adds what comes
# from the left to a chunk of its own. Which one in which step? Think backwards from the end, or follow one chunk around.

# %%
lk.predict("reduce_scatter")


# %% nbgrader={"grade": false, "grade_id": "reduce_scatter", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ring_reduce_scatter(x):
    """Sum over all ranks, each rank keeping its own chunk.

    x [n]: on every rank, as long everywhere; it stays as it was. The chunks are
    torch.tensor_split(x, p), whose sizes differ by one where p does not divide n. Returns this
    rank's chunk of the sum. Sends to the right neighbour only, p - 1 messages a rank.
    """
    ### BEGIN SOLUTION
    rank, p, right, left = neighbours()
    chunks = [chunk.clone() for chunk in torch.tensor_split(x, p)]
    for step in range(1, p):
        out, into = (rank - step) % p, (rank - step - 1) % p
        incoming = torch.empty_like(chunks[into])
        exchange(chunks[out], right, incoming, left)
        chunks[into] += incoming
    return chunks[rank]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "reduce_scatter_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
tensors = [torch.arange(6.0) + 10 * r for r in range(3)]
run = lk.checks.run_ranks(ring_reduce_scatter, 3, ranks.each(tensors))
for rank, value in enumerate(run.values):
    lk.checks.expect_close(value, sum(tensors)[2 * rank : 2 * rank + 2], rtol=0, name=f"chunk on rank {rank} of 3")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(702)
for p, n in [(1, 4), (2, 5), (3, 10), (4, 7), (5, 23), (8, 64), (4, 4)]:  # p divides n, and does not
    data = rng.integers(-99, 100, (p, n)).astype(np.float32)  # whole numbers: their sum is exact in any order
    run = lk.checks.run_ranks(ring_reduce_scatter, p, ranks.each([torch.from_numpy(row) for row in data]))
    for rank, expected in enumerate(np.array_split(data.sum(axis=0), p)):
        lk.checks.expect_close(run.values[rank], expected, rtol=0, name=f"chunk on rank {rank} of {p}, n={n}")
data = rng.standard_normal((4, 9))  # and a sum that is not
run = lk.checks.run_ranks(ring_reduce_scatter, 4, ranks.each([torch.from_numpy(row) for row in data]))
lk.checks.expect_close(torch.cat(run.values), data.sum(axis=0), rtol=1e-12, atol=1e-14, name="float64, n=9")
run = lk.checks.run_ranks(ring_reduce_scatter, 3, torch.arange(5.0), arguments=True)
for rank, (_, (x,)) in enumerate(run.values):
    lk.checks.expect_close(x, torch.arange(5.0), rtol=0, name=f"x on rank {rank}, after the call")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "reduce_scatter_test_messages", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# each chunk but its own leaves a rank once: 4 (n - own) bytes, in p - 1 messages, all to the right
for p, n in [(3, 6), (4, 10), (5, 23)]:
    tensors = [torch.arange(float(n)) + r for r in range(p)]
    run = lk.checks.run_ranks(ring_reduce_scatter, p, ranks.each(tensors))
    lk.checks.expect_close(torch.cat(run.values), sum(tensors), rtol=0, name=f"the sum, p={p} n={n}")
    lk.checks.expect_messages(
        run.trace,
        messages=p - 1,
        sent_bytes=[4 * (n - size) for size in chunk_sizes(n, p)],
        edges=[(rank, (rank + 1) % p) for rank in range(p)],
        name=f"p={p} n={n}",
    )

# %% [markdown]
# ### Task 3 · Ring all-gather, and the all-reduce
# *10 points · 12 minutes · ●●○○*
#
# The other half: every rank has its chunk of the sum, and all want all of them. Now nothing is added, only passed on. Both halves, one after the
# other, are the all-reduce.

# %%
lk.predict("all_gather")


# %% nbgrader={"grade": false, "grade_id": "all_gather", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ring_all_gather(chunk, n):
    """Collect the chunks of all ranks.

    chunk: rank r's part of n elements, cut as by torch.tensor_split (`chunk_sizes(n, p)` has the
    sizes). Returns the whole [n] on every rank, chunk 0 first. Sends to the right neighbour only,
    p - 1 messages a rank.
    """
    ### BEGIN SOLUTION
    rank, p, right, left = neighbours()
    whole = chunk.new_empty(n)
    chunks = torch.tensor_split(whole, p)
    chunks[rank].copy_(chunk)
    for step in range(p - 1):
        exchange(chunks[(rank - step) % p], right, chunks[(rank - step - 1) % p], left)
    return whole
    ### END SOLUTION


def ring_all_reduce(x):
    """The sum of x [n] over all ranks, on all ranks, by both halves. x stays as it was."""
    ### BEGIN SOLUTION
    return ring_all_gather(ring_reduce_scatter(x), len(x))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "all_gather_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
parts = torch.tensor_split(torch.arange(10.0), 4)  # 3, 3, 2 and 2
run = lk.checks.run_ranks(ring_all_gather, 4, ranks.each(parts), 10)
for rank, value in enumerate(run.values):
    lk.checks.expect_close(value, torch.arange(10.0), rtol=0, name=f"the whole on rank {rank} of 4")
lk.checks.expect_messages(run.trace, messages=3, sent_bytes=[4 * (10 - size) for size in (3, 2, 2, 3)], edges=[(0, 1), (1, 2), (2, 3), (3, 0)], name="4 ranks")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(703)
for p, n, dtype in [(1, 3, torch.float32), (2, 7, torch.float64), (3, 8, torch.float16), (5, 21, torch.int64), (8, 8, torch.float32)]:
    whole = (torch.rand(n, generator=generator) * 1000).to(dtype)
    run = lk.checks.run_ranks(ring_all_gather, p, ranks.each(torch.tensor_split(whole, p)), n)
    for rank, value in enumerate(run.values):
        lk.checks.expect_equal(value, whole, name=f"the whole on rank {rank} of {p}, n={n}")
    sizes = chunk_sizes(n, p)
    lk.checks.expect_messages(
        run.trace,
        messages=p - 1,
        sent_bytes=[(n - sizes[(rank + 1) % p]) * whole.element_size() for rank in range(p)],  # all but what the right one had
        edges=[(rank, (rank + 1) % p) for rank in range(p)],
        name=f"p={p} n={n}",
    )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "all_gather_test_all_reduce", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# both halves together: 2 (p - 1) messages a rank and, over all ranks, 2 (p - 1) times the tensor
for p, n in [(2, 5), (3, 9), (4, 11), (7, 30)]:
    tensors = [torch.arange(float(n)) * (r + 1) for r in range(p)]
    run = lk.checks.run_ranks(ring_all_reduce, p, ranks.each(tensors))
    for rank, value in enumerate(run.values):
        lk.checks.expect_close(value, sum(tensors), rtol=0, name=f"the sum on rank {rank} of {p}, n={n}")
    lk.checks.expect_messages(run.trace, messages=2 * (p - 1), total_bytes=2 * (p - 1) * 4 * n, name=f"p={p} n={n}")

# %% [markdown]
# 2(p − 1)/p of the tensor out of each rank, and as much in: less than two tensors, however many ranks. As long as only ranks add, no
# algorithm needs less (switches that add, such as NVLink SHARP, do). What grows is the *number* of messages, 2(p − 1), and each costs its
# latency: for small tensors there is better than a ring. The virtual clock takes the messages your code has sent, and gives them links: 5 µs
# latency and 50 GB/s, a 400 Gb/s network's card.

# %%
with lk.picture(
    "Eight ranks: the tree's 6 rounds beat the ring's 14 while latency counts, the ring's bytes win after."
):
    link = ranks.Link(latency_seconds=5e-6, bytes_per_second=50e9)

    def tree_all_reduce(x):  # reduce to rank 0 by the mirrored tree, then broadcast
        rank, p = dist.get_rank(), dist.get_world_size()
        reach = 1 << (p - 1).bit_length() >> 1
        total = x.clone()
        while reach:
            if rank < reach and rank + reach < p:
                incoming = torch.empty_like(x)
                dist.recv(incoming, rank + reach)
                total += incoming
            elif reach <= rank < 2 * reach:
                dist.send(total, rank - reach)
            reach //= 2
        return tree_broadcast(total, 0)

    sizes = [2**k for k in range(4, 23, 3 if smoke else 2)]
    figure = go.Figure()
    for name, function in {"ring": ring_all_reduce, "tree": tree_all_reduce}.items():
        seconds = []
        for n in sizes:
            halves = torch.zeros(n, dtype=torch.float16)
            run = ranks.run(function, 8, backend="local", args=(halves,))
            seconds.append(ranks.replay(run.trace, link).seconds)
        microseconds = [1e6 * one for one in seconds]
        figure.add_scatter(x=[2 * n for n in sizes], y=microseconds, mode="lines+markers", name=name)
    figure.update_xaxes(type="log", title="bytes")
    figure.update_yaxes(type="log", title="µs on the virtual clock")
    figure.update_layout(height=320)
    lk.show(figure, summary="Time on 8 ranks against size: the tree wins below, the ring above.")

# %% [markdown]
# ### Task 4 · All-to-all
# *8 points · 12 minutes · ●●○○*
#
# Every rank has something else for every other one: a transpose, over the network. Mixtures of experts do it in every layer. In **pairwise exchange** there are
# p − 1 rounds, and in round k each rank sends to the one k to its right and receives from the one k to its left. So in every round, every
# link carries one message each way.

# %%
lk.predict("all_to_all")


# %% nbgrader={"grade": false, "grade_id": "all_to_all", "locked": false, "schema_version": 3, "solution": true, "task": false}
def all_to_all(parts, rows):
    """Send parts[j] to rank j, and return what everybody had for me.

    parts: p tensors [rows_j, ...] of one dtype and equal trailing shape; numbers of rows may differ
    and may be 0. rows: how many rows come from each rank, p numbers. Returns p tensors, the s-th
    being rank s's part for this rank; one's own part is a copy and no message. p - 1 rounds of one
    message each way.
    """
    ### BEGIN SOLUTION
    rank, p, _, _ = neighbours()
    received = [parts[0].new_empty((count, *parts[0].shape[1:])) for count in rows]
    received[rank].copy_(parts[rank])
    for k in range(1, p):
        to, source = (rank + k) % p, (rank - k) % p
        exchange(parts[to].contiguous(), to, received[source], source)
    return received
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "all_to_all_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
parts = [[torch.full((2,), 10.0 * r + j) for j in range(3)] for r in range(3)]
run = lk.checks.run_ranks(all_to_all, 3, ranks.each(parts), [2, 2, 2])
for rank, received in enumerate(run.values):
    for source in range(3):
        lk.checks.expect_close(received[source], torch.full((2,), 10.0 * source + rank), rtol=0, name=f"on rank {rank}, from {source}")
lk.checks.expect_messages(run.trace, messages=2, sent_bytes=16, at_most_rounds=2, name="3 ranks")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(704)
for p in (1, 2, 4, 5, 6):
    counts = rng.integers(0, 5, (p, p))  # rows from rank r to rank j: ragged, some of them none
    counts[np.arange(p), (np.arange(p) + 1) % p] += 1
    parts = [[torch.from_numpy(rng.standard_normal((counts[r, j], 3))) for j in range(p)] for r in range(p)]
    run = lk.checks.run_ranks(all_to_all, p, ranks.each(parts), ranks.each([counts[:, r].tolist() for r in range(p)]))
    for rank, received in enumerate(run.values):
        for source in range(p):
            lk.checks.expect_equal(received[source], parts[source][rank], name=f"on rank {rank} of {p}, from {source}")
    lk.checks.expect_messages(
        run.trace,
        at_most_messages=p - 1,
        at_most_rounds=p - 1,
        sent_bytes=[int(24 * (counts[r].sum() - counts[r, r])) for r in range(p)],
        edges=[(a, b) for a in range(p) for b in range(p) if a != b],
        name=f"{p} ranks",
    )
### END HIDDEN TESTS

# %% [markdown]
# ## Part 3 · Cutting the work
#
# ### Task 5 · Data parallel, in buckets
# *10 points · 15 minutes · ●●●○*
#
# The simplest cut: every rank has the whole model and its own share of the batch. After the backward pass the gradients are **averaged**, and everyone
# takes the same step. A large model has hundreds of small gradients; one all-reduce for each would pay hundreds of latencies. So
# they are packed into **buckets**. The backward pass finishes the *last* layer first, so buckets are filled from the back, and each is
# sent off as soon as it is full, while the layers before it still compute. From here on, use the library's collectives.

# %%
lk.predict("average_gradients")


# %% nbgrader={"grade": false, "grade_id": "average_gradients", "locked": false, "schema_version": 3, "solution": true, "task": false}
def average_gradients(gradients, bucket_bytes):
    """The mean of each gradient over all ranks.

    gradients: list of float32 tensors of any shapes, in the order of the layers, the same shapes on
    every rank; they stay as they were. Buckets: go through the list from its end and collect; as
    soon as a bucket has bucket_bytes or more, start its dist.all_reduce with async_op=True and
    begin the next. What is left over at the end is the last bucket. Wait only after all are
    started. Returns the means, in the order and shapes of `gradients`.
    """
    ### BEGIN SOLUTION
    under_way, bucket, size = [], [], 0
    for place in reversed(range(len(gradients))):
        bucket.append(place)
        size += gradients[place].nbytes
        if size >= bucket_bytes or place == 0:
            flat = torch.cat([gradients[i].flatten() for i in bucket])
            under_way.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
            bucket, size = [], 0
    means = [None] * len(gradients)
    for bucket, flat, request in under_way:
        request.wait()
        flat /= dist.get_world_size()
        for i, piece in zip(bucket, flat.split([gradients[i].numel() for i in bucket])):
            means[i] = piece.view_as(gradients[i])
    return means
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "average_gradients_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
gradients = [[torch.arange(6.0).reshape(2, 3) + r, 10.0 * r + torch.arange(4.0), torch.tensor([-2.0 * r])] for r in range(2)]
run = lk.checks.run_ranks(average_gradients, 2, ranks.each(gradients), 16)
for rank, means in enumerate(run.values):
    for mean, expected in zip(means, [torch.arange(6.0).reshape(2, 3) + 0.5, torch.arange(5.0, 9.0), torch.tensor([-1.0])], strict=True):
        lk.checks.expect_close(mean, expected, rtol=1e-6, name=f"mean on rank {rank}")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(705)
shapes = [(7, 5), (5,), (3, 7), (3,), (), (11, 2, 2)]
for p, bucket_bytes in [(1, 64), (3, 1), (4, 100), (5, 10**6)]:
    gradients = [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(p)]
    run = lk.checks.run_ranks(average_gradients, p, ranks.each(gradients), bucket_bytes)
    for rank, means in enumerate(run.values):
        for place, mean in enumerate(means):
            expected = np.mean([gradients[r][place].double().numpy() for r in range(p)], axis=0)
            lk.checks.expect_close(mean, expected, rtol=1e-5, atol=1e-6, name=f"mean {place} on rank {rank} of {p}")
            lk.checks.expect_equal(list(mean.shape), list(shapes[place]), name=f"shape of mean {place}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "average_gradients_test_buckets", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
sizes = [6, 4, 1, 3, 5]  # elements; from the back, in buckets of 16 bytes: 5 | 3 + 1 | 4 | 6
gradients = [[torch.ones(size) * (r + 1) for size in sizes] for r in range(3)]
run = lk.checks.run_ranks(average_gradients, 3, ranks.each(gradients), 16)
lk.checks.expect_close(torch.cat(run.values[2]), torch.full((19,), 2.0), rtol=1e-6, name="means on rank 2")
lk.checks.expect_messages(run.trace, collectives={"all_reduce": 4}, name="five gradients in four buckets")
calls = run.trace.of(0, "collective")
lk.checks.expect_equal([call.bytes for call in calls], [20, 16, 16, 24], name="bytes of the buckets, in the order in which they are sent")
kinds = [event.kind for event in run.trace.of(0) if event.kind in ("collective", "wait")]
lk.checks.expect_equal(kinds, ["collective"] * 4 + ["wait"] * 4, name="calls: all are started before the first is waited for")
### BEGIN HIDDEN TESTS
for bucket_bytes, expected in [(1, [20, 12, 4, 16, 24]), (24, [32, 44]), (10**6, [76])]:
    run = lk.checks.run_ranks(average_gradients, 3, ranks.each(gradients), bucket_bytes)
    got = [call.bytes for call in run.trace.of(1, "collective")]
    lk.checks.expect_equal(got, expected, name=f"bytes of the buckets of {bucket_bytes}")
### END HIDDEN TESTS

# %% [markdown]
# Does it train? Four ranks with a quarter of the batch each must take the steps that one rank takes with the whole of it.


# %% nbgrader={"grade": false, "grade_id": "train", "locked": true, "schema_version": 3, "solution": false, "task": false}
def small_model():
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16),
        torch.nn.Tanh(),
        torch.nn.Linear(16, 16),
        torch.nn.Tanh(),
        torch.nn.Linear(16, 1),
    )


def train(x, y, steps, bucket_bytes):
    """Gradient descent on x [n, 6], y [n, 1]. Returns the loss of each step and the weights, flat."""
    model, losses = small_model(), []
    for _ in range(steps):
        loss = F.mse_loss(model(x), y)
        gradients = list(torch.autograd.grad(loss, list(model.parameters())))
        if dist.is_initialized() and dist.get_world_size() > 1:
            gradients = average_gradients(gradients, bucket_bytes)
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
        losses.append(loss.item())
    return losses, torch.cat([p.detach().flatten() for p in model.parameters()])


# %%
with lk.picture(
    "Four ranks with a quarter of the data each end where one rank with all of it does."
):
    torch.manual_seed(seed)
    samples = torch.randn(64, 6)
    targets = torch.sin(samples.sum(1, keepdim=True))
    alone, weights = train(samples, targets, 40, 512)
    quarters = ranks.each(samples.chunk(4)), ranks.each(targets.chunk(4))
    run = ranks.run(train, 4, backend="local", args=(*quarters, 40, 512))
    worst = max(float((other - weights).abs().max()) for _, other in run.values)
    mean = np.mean([losses[-1] for losses, _ in run.values])
    print(f"loss {alone[0]:.3f} -> {alone[-1]:.3f} on one rank; the mean of four ranks' {mean:.3f}")
    print(f"largest difference of any weight after 40 steps: {worst:.1e}")
    print(run.trace)

# %% [markdown]
# ### Task 6 · Tensor parallel
# *8 points · 12 minutes · ●●●○*
#
# When one layer is too large, cut its matrices. A transformer's MLP is $y = \mathrm{GeLU}(x W_1 + b_1)\, W_2 + b_2$. Cut $W_1$ by **columns**:
# rank r computes its own hidden units, whole, and may apply GeLU to them at once. Then cut $W_2$ by **rows**, to match: each rank has a partial sum of the
# output, and **one all-reduce** adds them up. (The other way around, GeLU would need the sums first: two all-reduces.)

# %%
lk.predict("tensor_parallel")


# %% nbgrader={"grade": false, "grade_id": "tensor_parallel", "locked": false, "schema_version": 3, "solution": true, "task": false}
def shard_mlp(W1, b1, W2, b2, rank, p):
    """Rank `rank`'s part of an MLP cut for p ranks, the hidden units cut as by torch.tensor_split.

    W1 [width, hidden], b1 [hidden], W2 [hidden, width], b2 [width]. Returns (W1, b1, W2, b2) of
    this rank; b2 stays whole. Runs on one rank, without messages.
    """
    ### BEGIN SOLUTION
    return (
        torch.tensor_split(W1, p, dim=1)[rank],
        torch.tensor_split(b1, p)[rank],
        torch.tensor_split(W2, p, dim=0)[rank],
        b2,
    )
    ### END SOLUTION


def mlp_forward(x, shard):
    """The MLP's output y [tokens, width], on every rank.

    x [tokens, width] is the same on all of them, `shard` is this rank's part of the MLP.

    One all-reduce of y's size, and no other message. Rounding aside, as on one rank. The GeLU is
    F.gelu.
    """
    ### BEGIN SOLUTION
    W1, b1, W2, b2 = shard
    y = F.gelu(x @ W1 + b1) @ W2
    dist.all_reduce(y)
    return y + b2
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "tensor_parallel_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def mlp_case(width, hidden, tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(width, hidden), (hidden,), (hidden, width), (width,), (tokens, width)]
    *weights, x = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    W1, b1, W2, b2 = (weight.numpy() for weight in weights)
    z = x.numpy() @ W1 + b1
    gelu = z * 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    return weights, x, gelu @ W2 + b2


weights, x, expected = mlp_case(4, 8, 3, seed=706)
shards = [shard_mlp(*weights, rank, 2) for rank in range(2)]
lk.checks.expect_equal([list(part.shape) for part in shards[1]], [[4, 4], [4], [4, 4], [4]], name="shapes on rank 1 of 2")
run = lk.checks.run_ranks(mlp_forward, 2, x, ranks.each(shards))
for rank, value in enumerate(run.values):
    lk.checks.expect_close(value, expected, rtol=1e-10, atol=1e-10, name=f"y on rank {rank} of 2")
lk.checks.expect_messages(run.trace, collectives={"all_reduce": 1}, messages=0, name="one layer")
### BEGIN HIDDEN TESTS
for p, width, hidden, tokens in [(1, 3, 5, 2), (3, 4, 10, 5), (4, 6, 13, 1), (5, 2, 5, 7)]:  # hidden units that p does not divide
    weights, x, expected = mlp_case(width, hidden, tokens, seed=p)
    shards = [shard_mlp(*weights, rank, p) for rank in range(p)]
    for rank, size in enumerate(chunk_sizes(hidden, p)):
        lk.checks.expect_equal([list(part.shape) for part in shards[rank]], [[width, size], [size], [size, width], [width]], name=f"shapes on rank {rank} of {p}")
    run = lk.checks.run_ranks(mlp_forward, p, x, ranks.each(shards))
    for rank, value in enumerate(run.values):
        lk.checks.expect_close(value, expected, rtol=1e-10, atol=1e-10, name=f"y on rank {rank} of {p}, hidden={hidden}")
    lk.checks.expect_messages(run.trace, collectives={"all_reduce": 1}, messages=0, name=f"p={p} hidden={hidden}")
    lk.checks.expect_equal([call.bytes for call in run.trace.of(0, "collective")], [8 * tokens * width], name="bytes of the all-reduce")
### END HIDDEN TESTS

# %% [markdown]
# In the backward pass the same happens mirrored: the gradient of x is a sum over the ranks, so it takes one all-reduce, too. Two for the MLP and two for
# attention (cut by heads): four all-reduces of the activations a layer, and nobody can compute meanwhile. That is why tensor parallelism
# stays inside a node, where links are fastest.

# %% [markdown]
# ## Part 4 · Pipelines
#
# The third cut goes between layers: stage s has layers of its own, gets activations from stage s − 1 and hands on its own. Little is
# sent, and only to neighbours. The catch is waiting: stage 1 has nothing to do before stage 0 is through. So the batch is cut into
# m **micro-batches**, which follow each other through the stages, and what waiting remains is the **bubble**.
#
# A schedule is a list of steps for each stage: `"F3"` is the forward pass of micro-batch 3, `"B3"` its backward pass. A
# stage works through its list in order, and waits where what it needs is not there yet: F from the stage before, B from the stage after.
# From F to B, a micro-batch's activations stay in memory: it is *live*.
#
# - **GPipe**: all forward passes, then all backward passes. All m micro-batches are live at once.
# - **1F1B**: a few forward passes to fill the pipeline, as many as there are stages after this one; then one forward and one backward in turn; then
#   the backward passes that are left. The same bubble, and on stage s never more than p − s micro-batches are live.

# %% [markdown]
# ### Task 7 · GPipe and 1F1B
# *12 points · 18 minutes · ●●●○*

# %%
lk.predict("schedules")


# %% nbgrader={"grade": false, "grade_id": "schedules", "locked": false, "schema_version": 3, "solution": true, "task": false}
def gpipe(stage, stages, micro_batches):
    """One stage's steps, ["F0", "F1", ..., "B0", "B1", ...]: each micro-batch once forward, once back."""
    ### BEGIN SOLUTION
    return [f"{kind}{i}" for kind in "FB" for i in range(micro_batches)]
    ### END SOLUTION


def one_f_one_b(stage, stages, micro_batches):
    """The same for 1F1B. Stage 0 is the first; there may be fewer micro-batches than stages.

    >>> one_f_one_b(1, 2, 3)
    ['F0', 'B0', 'F1', 'B1', 'F2', 'B2']
    """
    ### BEGIN SOLUTION
    ahead = min(micro_batches, stages - 1 - stage)
    steps = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches - ahead):
        steps += [f"F{ahead + i}", f"B{i}"]
    return steps + [f"B{i}" for i in range(micro_batches - ahead, micro_batches)]
    ### END SOLUTION


# %% nbgrader={"grade": false, "grade_id": "schedules_clock", "locked": true, "schema_version": 3, "solution": false, "task": false}
def on_the_clock(schedules):
    """The trace of a list of steps a stage on the virtual clock: F takes 1 s, B 2 s, messages nothing."""
    return ranks.simulate(ranks.pipeline_programs(schedules, forward_seconds=1, backward_seconds=2))


def most_live(steps):
    """The largest number of micro-batches that are forward and not yet back."""
    live, most = 0, 0
    for step in steps:
        live += 1 if step[0] == "F" else -1
        most = max(most, live)
    return most


# %% nbgrader={"grade": true, "grade_id": "schedules_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
schedules = [gpipe(stage, 4, 8) for stage in range(4)]
for stage, steps in enumerate(schedules):
    lk.checks.expect_equal(sorted(steps), [f"{kind}{i}" for kind in "BF" for i in range(8)], name=f"steps of stage {stage}, sorted")
    lk.checks.expect_equal(most_live(steps), 8, name=f"live micro-batches on stage {stage}")
seconds = on_the_clock(schedules).seconds
assert seconds == (8 + 4 - 1) * 3, f"4 stages, 8 micro-batches: the schedule takes {seconds} s, 33 are enough"
### BEGIN HIDDEN TESTS
for p, m in [(1, 3), (2, 1), (4, 4), (4, 16), (5, 3), (3, 7)]:
    schedules = [gpipe(stage, p, m) for stage in range(p)]
    for stage, steps in enumerate(schedules):
        lk.checks.expect_equal([step[0] for step in steps], ["F"] * m + ["B"] * m, name=f"stage {stage} of {p}, m={m}")
        lk.checks.expect_equal(sorted(int(step[1:]) for step in steps), sorted(2 * list(range(m))), name=f"micro-batches of stage {stage} of {p}, m={m}")
    seconds = on_the_clock(schedules).seconds
    assert seconds == (m + p - 1) * 3, f"p={p} m={m}: the schedule takes {seconds} s, {(m + p - 1) * 3} are enough"
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "schedules_test_1f1b", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(one_f_one_b(1, 2, 3), ["F0", "B0", "F1", "B1", "F2", "B2"], name="the last stage of 2")
for p, m in [(4, 4), (4, 8), (4, 16), (3, 5), (5, 2), (1, 3)]:  # also fewer micro-batches than stages, and one stage alone
    schedules = [one_f_one_b(stage, p, m) for stage in range(p)]
    for stage, steps in enumerate(schedules):
        lk.checks.expect_equal(sorted(steps), sorted(f"{kind}{i}" for kind in "BF" for i in range(m)), name=f"steps of stage {stage} of {p}, m={m}, sorted")
        most = most_live(steps)
        assert most <= min(m, p - stage), f"stage {stage} of {p}, m={m}: {most} micro-batches are live, at most {min(m, p - stage)} may be"
    seconds, best = on_the_clock(schedules).seconds, 3 * (m + p - 1)  # so that the bubble is (p - 1) / (m + p - 1)
    assert seconds == best, f"p={p} m={m}: the schedule takes {seconds} s, {best} are enough; lk.widgets.rank_timeline(on_the_clock(schedules)) shows who waits"

# %%
with lk.picture(
    "The same length, the same bubble; but count the micro-batches that are live at once on stage 0."
):
    traces = {}
    for name, f in {"GPipe": gpipe, "1F1B": one_f_one_b}.items():
        schedules = [f(stage, 4, 8) for stage in range(4)]
        traces[name] = on_the_clock(schedules)
        seconds, bubble = traces[name].seconds, ranks.bubble_fraction(traces[name])
        live = [most_live(steps) for steps in schedules]
        print(f"{name:6s} {seconds} s, bubble {bubble}, live on stages 0 to 3: {live}")
    display(lk.widgets.rank_timeline(traces["1F1B"]))

# %% [markdown]
# The bubble is (p − 1)/(m + p − 1): more micro-batches shrink it, and only 1F1B can afford them. Move the sliders.

# %%
lk.widgets.pipeline_gantt(stages=4, micro_batches=8, schedule="1f1b")

# %% [markdown]
# A list of steps is a program, too. The next cell *trains* by your lists: each stage is a rank with a layer of its own, activations go to the right and gradients to the left.


# %% nbgrader={"grade": false, "grade_id": "pipeline", "locked": true, "schema_version": 3, "solution": false, "task": false}
def stage_weight(stage):
    return torch.linspace(-1, 1, 16).reshape(4, 4).roll(stage, 1).requires_grad_()


def run_pipeline(steps, micro_batches):
    """One rank of y = tanh(... tanh(x W_0) ...) with loss Σ y². Returns the gradient of its own weight."""
    stage, p, _, _ = neighbours()
    weight, inputs, outputs, sending = stage_weight(stage), {}, {}, []
    for step in steps:
        kind, i = step[0], int(step[1:])
        if kind == "F":
            x = micro_batches[i].clone()
            if stage > 0:
                dist.recv(x, stage - 1)
            inputs[i] = x.requires_grad_()
            outputs[i] = torch.tanh(inputs[i] @ weight)
            if stage < p - 1:
                sending.append(dist.isend(outputs[i].detach(), stage + 1))
        else:
            if stage < p - 1:
                gradient = torch.empty_like(outputs[i])
                dist.recv(gradient, stage + 1)
                outputs.pop(i).backward(gradient)
            else:
                outputs.pop(i).square().sum().backward()
            if stage > 0:
                sending.append(dist.isend(inputs.pop(i).grad, stage - 1))
    for request in sending:
        request.wait()
    return weight.grad


# %%
with lk.picture("Four stages, your schedule, real gradients: those of one process."):
    generator = torch.Generator().manual_seed(seed)
    micro_batches = [torch.randn(3, 4, generator=generator) for i in range(6)]
    weights = [stage_weight(stage) for stage in range(4)]
    y = torch.cat(micro_batches)
    for weight in weights:
        y = torch.tanh(y @ weight)
    y.square().sum().backward()
    for name, f in {"GPipe": gpipe, "1F1B": one_f_one_b}.items():
        schedules = ranks.each([f(stage, 4, 6) for stage in range(4)])
        run = ranks.run(run_pipeline, 4, backend="local", args=(schedules, micro_batches))
        differences = [(mine - weight.grad).abs().max() for mine, weight in zip(run.values, weights)]
        worst = max(map(float, differences))
        print(f"{name:6s} gradients differ from one process by at most {worst:.1e}")
    print(run.trace)

# %% [markdown]
# ## Part 5 · Memory
#
# Mixed-precision training with Adam keeps for each parameter: the weight and the gradient in 16 bits, and in 32 bits a copy of the weight and two
# moments. That is 2 + 2 + 12 = 16 bytes, before the first activation. Data parallelism holds all of it on every rank. **ZeRO** shards it over the
# N ranks instead: stage 1 the optimizer's 12 bytes, stage 2 the gradient as well, stage 3 (FSDP) the weight, too.

# %% [markdown]
# ### Task 8 · ZeRO
# *10 points · 18 minutes · ●●●○*
#
# First the arithmetic, then stage 1 itself. An all-reduce is a reduce-scatter and an all-gather; so do the optimizer's step *between* the two, each rank on its own chunk: it then
# needs only that chunk's moments. `reduce_scatter` and `all_gather` below are the library's, for sizes that p does not divide.
#
# Adam with gradient $g$ in step $t = 1, 2, …$ is $m \leftarrow 0.9\,m + 0.1\,g$, $\ v \leftarrow 0.999\,v + 0.001\,g^2$ and
#
# $$w \leftarrow w - \text{lr} \cdot \frac{m / (1 - 0.9^t)}{\sqrt{v / (1 - 0.999^t)} + 10^{-8}} .$$

# %%
lk.predict("zero")


# %% nbgrader={"grade": false, "grade_id": "zero_collectives", "locked": true, "schema_version": 3, "solution": false, "task": false}
def reduce_scatter(x):
    """This rank's chunk, cut as by torch.tensor_split, of the sum of x [n] over all ranks."""
    rank, p, _, _ = neighbours()
    width = -(-len(x) // p)  # the library wants equal chunks
    mine = x.new_empty(width)
    padded = [F.pad(chunk, (0, width - len(chunk))) for chunk in torch.tensor_split(x, p)]
    dist.reduce_scatter(mine, padded)
    return mine[: chunk_sizes(len(x), p)[rank]]


def all_gather(chunk, n):
    """The whole [n] of all ranks' chunks."""
    _, p, _, _ = neighbours()
    width = -(-n // p)
    padded = [chunk.new_empty(width) for _ in range(p)]
    dist.all_gather(padded, F.pad(chunk, (0, width - len(chunk))))
    return torch.cat([row[:size] for row, size in zip(padded, chunk_sizes(n, p))])


# %% nbgrader={"grade": false, "grade_id": "zero", "locked": false, "schema_version": 3, "solution": true, "task": false}
def state_bytes(parameters, ranks, stage):
    """Bytes that a rank keeps of weights, gradients and optimizer at ZeRO stage 0, 1, 2 or 3.

    >>> state_bytes(7.5e9, 64, 0) / 1e9
    120.0
    """
    ### BEGIN SOLUTION
    weight = 2 * parameters / (ranks if stage >= 3 else 1)
    gradient = 2 * parameters / (ranks if stage >= 2 else 1)
    optimizer = 12 * parameters / (ranks if stage >= 1 else 1)
    return weight + gradient + optimizer
    ### END SOLUTION


def zero1_step(parameter, gradient, m, v, step, lr=0.01):
    """One step of Adam on the mean of all ranks' gradients, its state sharded over the ranks.

    parameter [n]: the same on every rank. gradient [n]: this rank's own. m, v: the moments of this
    rank's chunk alone, as torch.tensor_split cuts. step: 1, 2, ... Returns the new parameter [n], m
    and v of this rank's chunk. One reduce_scatter and one all_gather, no other message; the
    arguments stay as they were.
    """
    ### BEGIN SOLUTION
    rank, p, _, _ = neighbours()
    g = reduce_scatter(gradient) / p
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g**2
    update = m / (1 - 0.9**step) / (torch.sqrt(v / (1 - 0.999**step)) + 1e-8)
    mine = torch.tensor_split(parameter, p)[rank] - lr * update
    return all_gather(mine, len(parameter)), m, v
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "zero_test_bytes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
for stage, expected in enumerate([120e9, 31.40625e9, 16.640625e9, 1.875e9]):  # the paper's table: 120, 31.4, 16.6 and 1.9 GB
    lk.checks.expect_close(state_bytes(7.5e9, 64, stage), expected, rtol=1e-12, name=f"7.5 billion parameters on 64 ranks, stage {stage}")
### BEGIN HIDDEN TESTS
for count, p in [(1e9, 1), (70e9, 7), (405e9, 1024)]:
    for stage, (kept, shared) in enumerate([(16, 0), (4, 12), (2, 14), (0, 16)]):
        lk.checks.expect_close(state_bytes(count, p, stage), count * (kept + shared / p), rtol=1e-12, name=f"{count:.0e} parameters on {p} ranks, stage {stage}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "zero_test_step", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
def adam_on_one(parameter, gradients):
    """torch's own Adam on one rank, with the mean of the ranks' gradients[rank][step]: the parameter and its moments."""
    weight = parameter.clone().requires_grad_()
    adam = torch.optim.Adam([weight], lr=0.01)
    for every in zip(*gradients):
        weight.grad = torch.stack(every).mean(0)
        adam.step()
    return weight.detach(), adam.state[weight]["exp_avg"], adam.state[weight]["exp_avg_sq"]


cases = [(2, 6, 1), (3, 10, 4)]
### BEGIN HIDDEN TESTS
cases += [(1, 5, 2), (4, 23, 3), (5, 12, 2)]  # p divides n, and does not
### END HIDDEN TESTS
generator = torch.Generator().manual_seed(708)
for p, n, steps in cases:
    parameter, sizes = torch.randn(n, generator=generator), chunk_sizes(n, p)
    gradients = [[torch.randn(n, generator=generator) for _ in range(steps)] for _ in range(p)]
    expected = adam_on_one(parameter, gradients)
    weights, m, v = [parameter] * p, [torch.zeros(size) for size in sizes], [torch.zeros(size) for size in sizes]
    for step in range(steps):  # what a step returns is what the next one gets
        now = ranks.each([every[step] for every in gradients])
        run = lk.checks.run_ranks(zero1_step, p, ranks.each(weights), now, ranks.each(m), ranks.each(v), step + 1)
        weights, m, v = (list(one) for one in zip(*run.values))
        lk.checks.expect_messages(run.trace, collectives={"reduce_scatter": 1, "all_gather": 1}, messages=0, name=f"p={p} n={n}")
    for rank in range(p):
        lk.checks.expect_close(weights[rank], expected[0], rtol=1e-5, atol=1e-6, name=f"parameter on rank {rank} of {p} after {steps} steps, n={n}")
        for name, moment, whole in (("m", m, expected[1]), ("v", v, expected[2])):  # of its chunk, and of no other
            lk.checks.expect_close(moment[rank], torch.tensor_split(whole, p)[rank], rtol=1e-4, atol=1e-7, name=f"{name} on rank {rank} of {p}, n={n}")

# %%
with lk.picture(
    "What a rank keeps of 7.5 billion parameters; the last column is the ZeRO paper's."
):
    for stage in range(4):
        columns = [f"{state_bytes(7.5e9, p, stage) / 1e9:6.1f} GB" for p in (1, 8, 64)]
        print(f"stage {stage}, on 1, 8 and 64 ranks: {' '.join(columns)}")

# %% [markdown]
# Activations come on top. Here they are for a real model on a real GPU; move the sliders, and watch what ZeRO does not touch.

# %%
lk.widgets.memory_bars("llama-2-7b", data=64, zero=1)

# %% [markdown]
# ## Part 6 · Experts
#
# A **mixture of experts** has many MLPs in a layer and sends each token to a few of them: parameters of all, computation of a few. Experts live on different ranks,
# so tokens travel: **dispatch** to where their experts are, compute, **combine** back at home. Both are all-to-alls with ragged counts that nobody knows before the router
# has spoken, so the counts go first.

# %% [markdown]
# ### Task 9 · Dispatch and combine
# *8 points · 18 minutes · ●●●●*
#
# Expert e lives on rank e. Use `dist.all_to_all_single(output, input, output_splits, input_splits)`: the input's rows are grouped by destination,
# `input_splits[j]` of them go to rank j, and the output's come grouped by source. Without splits, equal shares.

# %%
lk.predict("moe")


# %% nbgrader={"grade": false, "grade_id": "moe_expert", "locked": true, "schema_version": 3, "solution": false, "task": false}
def expert(rows, weight):
    """Apply this rank's expert to its rows [any number, width]; weight [width, width]."""
    return torch.relu(rows @ weight)


# %% nbgrader={"grade": false, "grade_id": "moe", "locked": false, "schema_version": 3, "solution": true, "task": false}
def moe(x, choice, gate, weight):
    """y[t] = Σ_j gate[t, j] · expert_choice[t, j](x[t]), the experts being spread over the ranks.

    x [tokens, width]: this rank's tokens (each rank has its own number of them, perhaps none).
    choice int64 [tokens, k]: the k experts of each token. gate [tokens, k]: their shares. weight:
    of this rank's own expert, for `expert(rows, weight)`. Returns y [tokens, width] in the order of
    x. Three all-to-alls: counts, rows there, rows back.
    """
    ### BEGIN SOLUTION
    p, k = dist.get_world_size(), choice.shape[1]
    order = torch.argsort(choice.flatten(), stable=True)
    leaving = torch.bincount(choice.flatten(), minlength=p)
    arriving = torch.empty_like(leaving)
    dist.all_to_all_single(arriving, leaving)
    there, here = arriving.tolist(), leaving.tolist()
    rows = x.new_empty(sum(there), x.shape[1])
    dist.all_to_all_single(rows, x[order // k], there, here)
    back = x.new_empty(len(order), x.shape[1])
    dist.all_to_all_single(back, expert(rows, weight), here, there)
    slots = torch.empty_like(back)
    slots[order] = back
    return (slots.view(-1, k, x.shape[1]) * gate[..., None]).sum(1)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "moe_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def moe_case(p, k, tokens, width, seed, experts=None):
    """Arguments for each rank, and what must come out: one token at a time, in float64."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(width, width, generator=generator) for _ in range(p)]
    arguments, expected = [], []
    for n in tokens:
        x = torch.randn(n, width, generator=generator)
        choice = torch.rand(n, experts or p, generator=generator).argsort(1)[:, :k]
        gate = torch.rand(n, k, generator=generator)
        arguments.append((x, choice, gate, weights[len(arguments)]))
        y = np.zeros((n, width))
        for t in range(n):
            for j in range(k):
                y[t] += gate[t, j].item() * np.maximum(x[t].double().numpy() @ weights[choice[t, j]].double().numpy(), 0)
        expected.append(y)
    return arguments, expected


cases = [moe_case(2, 1, [3, 2], 4, seed=1), moe_case(3, 2, [4, 1, 5], 4, seed=2)]
### BEGIN HIDDEN TESTS
cases += [
    moe_case(4, 2, [7, 3, 6, 5], 5, seed=3),
    moe_case(4, 2, [6, 0, 9, 1], 3, seed=4),  # a rank without tokens
    moe_case(5, 1, [8, 8, 8, 8, 8], 2, seed=5, experts=2),  # experts that nobody wants
    moe_case(1, 1, [4], 3, seed=6),
]
### END HIDDEN TESTS
for arguments, expected in cases:
    p, k, width = len(arguments), arguments[0][1].shape[1], arguments[0][0].shape[1]
    run = lk.checks.run_ranks(moe, p, *(ranks.each(list(one)) for one in zip(*arguments)))
    arrived = [sum(int((choice == rank).sum()) for _, choice, _, _ in arguments) for rank in range(p)]
    for rank, (x, *_) in enumerate(arguments):
        lk.checks.expect_close(run.values[rank], expected[rank], rtol=1e-5, atol=1e-5, name=f"y on rank {rank} of {p}, {len(x)} tokens, k={k}")
        sent = [call.bytes for call in run.trace.of(rank, "collective")]
        lk.checks.expect_equal(sent, [8 * p, 4 * width * k * len(x), 4 * width * arrived[rank]], name=f"bytes of counts, rows there, rows back, by rank {rank} of {p}")
    lk.checks.expect_messages(run.trace, collectives={"all_to_all": 3}, messages=0, name=f"p={p} k={k}")

# %%
with lk.picture(
    "Even a router without favourites loads experts unevenly, and the fullest sets the time."
):
    generator = torch.Generator().manual_seed(seed)
    tokens = [torch.randn(64, 8, generator=generator) for _ in range(8)]
    choices = [torch.rand(64, 8, generator=generator).argsort(1)[:, :2] for _ in range(8)]
    gates, weights = torch.full((64, 2), 0.5), [torch.eye(8)] * 8
    each = (ranks.each(tokens), ranks.each(choices), gates, ranks.each(weights))
    run = ranks.run(moe, 8, backend="local", args=each)
    rows = [run.trace.of(rank, "collective")[2].bytes // 32 for rank in range(8)]
    longer = max(rows) / np.mean(rows)
    print(f"rows of each expert: {rows}, mean {np.mean(rows):.0f}: the layer takes {longer:.2f} times as long")

# %% [markdown]
# ## Part 7 · Long sequences
#
# Attention of n tokens needs n² scores. For a million tokens no rank can hold them, nor even all keys and values. **Ring attention** cuts the *sequence*: each rank has a block of
# queries, keys and values. Its queries stay; keys and values travel around the ring. The softmax needs its maximum and its sum over all keys, which come in blocks; so keep a
# *running* maximum, sum and output, and rescale them whenever the maximum grows (the **online softmax**, which FlashAttention uses inside one GPU).
# On a cluster the next block travels while this one is computed with; here one after the other will do.

# %% [markdown]
# ### Task 10 · Ring attention
# *8 points · 18 minutes · ●●●●*

# %%
lk.predict("ring_attention")


# %% nbgrader={"grade": false, "grade_id": "ring_attention", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ring_attention(q, k, v, lengths):
    """softmax(q Kᵀ / √d) V over the keys and values of all ranks, without a mask.

    q, k, v [heads, lengths[rank], d]: this rank's block of the sequence. lengths: of all ranks'
    blocks; they differ. Returns [heads, lengths[rank], d]. Keys and values go to the right
    neighbour, p - 1 times, in one message or two; no rank ever has more than two blocks of them.
    """
    ### BEGIN SOLUTION
    rank, p, right, left = neighbours()
    top = q.new_full((*q.shape[:2], 1), -math.inf)
    total, output = torch.zeros_like(top), torch.zeros_like(q)
    block = torch.stack([k, v])
    for step in range(p):
        scores = q @ block[0].mT / math.sqrt(q.shape[-1])
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        shares, faded = torch.exp(scores - higher), torch.exp(top - higher)
        total = total * faded + shares.sum(-1, keepdim=True)
        output = output * faded + shares @ block[1]
        top = higher
        if step < p - 1:
            incoming = block.new_empty((2, len(q), lengths[(rank - step - 1) % p], q.shape[-1]))
            exchange(block, right, incoming, left)
            block = incoming
    return output / total
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "ring_attention_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
cases = [(2, 1, 4, [3, 3]), (3, 2, 4, [4, 2, 3])]
### BEGIN HIDDEN TESTS
cases += [(1, 2, 3, [5]), (4, 3, 8, [1, 6, 2, 5]), (5, 1, 2, [3, 3, 3, 3, 1])]
### END HIDDEN TESTS
generator = torch.Generator().manual_seed(710)
for p, heads, d, lengths in cases:
    q, k, v = (torch.randn(heads, sum(lengths), d, generator=generator, dtype=torch.float64) * scale for scale in (30, 30, 1))
    scores = (q @ k.mT / math.sqrt(d)).numpy()  # large on purpose: exp overflows unless the maximum is taken off
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.split(shares / shares.sum(-1, keepdims=True) @ v.numpy(), np.cumsum(lengths)[:-1], axis=1)
    blocks = (ranks.each([part.contiguous() for part in one.split(lengths, dim=1)]) for one in (q, k, v))
    run = lk.checks.run_ranks(ring_attention, p, *blocks, lengths)
    for rank in range(p):
        lk.checks.expect_close(run.values[rank], expected[rank], rtol=1e-8, atol=1e-9, name=f"output on rank {rank} of {p}, lengths {lengths}")
    lk.checks.expect_messages(
        run.trace,
        at_least_messages=p - 1,
        at_most_messages=2 * (p - 1),
        sent_bytes=[2 * 8 * heads * d * (sum(lengths) - lengths[(rank + 1) % p]) for rank in range(p)],
        edges=[(rank, (rank + 1) % p) for rank in range(p)],
        name=f"p={p} lengths={lengths}",
    )

# %% nbgrader={"grade": true, "grade_id": "ring_attention_test_memory", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false} tags=["claim"]
# at most: q, k, v; two blocks of keys and values; the output and what it becomes; four matrices of one block's scores
lengths, heads, d = [24, 16, 32, 20, 28, 24, 16, 32], 2, 16
generator = torch.Generator().manual_seed(711)
q, k, v = (torch.randn(heads, sum(lengths), d, generator=generator) * scale for scale in (30, 30, 1))
blocks = (ranks.each([part.contiguous() for part in one.split(lengths, dim=1)]) for one in (q, k, v))
run = lk.checks.run_ranks(ring_attention, 8, *blocks, lengths, memory=True)
lk.checks.expect_close(torch.cat(run.values, 1), F.scaled_dot_product_attention(q, k, v), rtol=1e-4, atol=1e-5, name="output of all 8 ranks")
for rank, memory in enumerate(run.memory):
    most = 4 * heads * (6 * lengths[rank] * d + 4 * max(lengths) * d + 4 * lengths[rank] * max(lengths))
    assert memory.peak_bytes <= most, f"rank {rank} holds {memory.peak_bytes:,} bytes at its peak, at most {most:,} are needed: which blocks, or whose scores, does it keep?"

# %% [markdown]
# ## Part 8 · A plan for 64 GPUs
#
# How much is there to cut? Parameters, FLOPs and activations follow from a model's shape, roughly by two rules of thumb, and exactly by counting.
# Here are both, and what the rules leave out.

# %%
lk.widgets.transformer_sizer("llama-3-70b", batch=1, sequence=8192)

# %% [markdown]
# Real jobs combine the cuts: tp ranks share each layer, pp stages share the layers, and dp such pipelines share the batch; dp · tp · pp is the number of GPUs. Before anyone rents
# them, arithmetic says which layout fits, and which is fastest. For N parameters in L layers of width d, batches of B sequences of s tokens, in micro-batches of one sequence
# (m = B/dp of them), with ZeRO-1, *recomputation* (a layer keeps its input alone, and computes the rest again when its backward pass comes) and *sequence
# parallelism* (what tensor parallelism leaves whole is cut along the sequence):
#
# $$\text{bytes a GPU} = \frac{N}{tp \cdot pp}\left(4 + \frac{12}{dp}\right) + \frac{s\,d}{tp}\left(\frac{2 L}{pp}\min(m, pp) + 34\right)$$
#
# (state as in task 8, the inputs of each layer of each live micro-batch, and 34 bytes a number inside the one layer that is being recomputed). And the step takes
#
# $$\underbrace{\frac{m + pp - 1}{m}}_{\text{bubble}} \left( \underbrace{\frac{8 N B s}{\text{GPUs} \cdot \text{FLOP/s}}}_{\text{compute}} + \underbrace{\frac{6 L m}{pp} \cdot
#   \frac{2 (tp - 1)}{tp} \cdot \frac{2 s d}{\text{NVLink}}}_{\text{six all-reduces a layer and micro-batch}} \right)
#   + \underbrace{\frac{2 (dp - 1)}{dp} \cdot \frac{2 N}{tp \cdot pp} \cdot \frac{1}{\text{network}}}_{\text{gradients and weights, once}}$$
#
# 8 and not 6 FLOPs a parameter and token, for the forward pass is done twice; two all-reduces each for forward, recomputed forward and backward.

# %% [markdown]
# ### Task 11 · Plan
# *8 points · 15 minutes · ●●○○*

# %%
lk.predict("plan")


# %% nbgrader={"grade": false, "grade_id": "plan_job", "locked": true, "schema_version": 3, "solution": false, "task": false}
from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """A model to train, and the machine for it: FLOP/s as reached in practice, bytes/s each way."""

    parameters: float
    layers: int
    width: int
    sequence: int
    batch: int
    gpus: int
    node: int = 8
    memory: float = 80e9
    flops_per_second: float = 500e12
    nvlink: float = 450e9
    network: float = 50e9


llama = Job(
    parameters=70.6e9, layers=80, width=8192, sequence=8192, batch=128, gpus=64
)  # Llama 3 70B on 8 nodes of 8 H100


# %% nbgrader={"grade": false, "grade_id": "plan", "locked": false, "schema_version": 3, "solution": true, "task": false}
def gpu_bytes(job, dp, tp, pp):
    """Bytes on the GPU that has most, by the formula above."""
    ### BEGIN SOLUTION
    m = job.batch // dp
    state = job.parameters / (tp * pp) * (4 + 12 / dp)
    return state + job.sequence * job.width / tp * (2 * job.layers / pp * min(m, pp) + 34)
    ### END SOLUTION


def step_seconds(job, dp, tp, pp):
    """Seconds of a step, by the formula above."""
    ### BEGIN SOLUTION
    m = job.batch // dp
    compute = 8 * job.parameters * job.batch * job.sequence / (job.gpus * job.flops_per_second)
    reduces = (
        6 * job.layers * m / pp * 2 * (tp - 1) / tp * 2 * job.sequence * job.width / job.nvlink
    )
    gradients = 2 * (dp - 1) / dp * 2 * job.parameters / (tp * pp) / job.network
    return (m + pp - 1) / m * (compute + reduces) + gradients
    ### END SOLUTION


def best_layout(job):
    """The (dp, tp, pp) with the shortest step that fits into memory, or None if none fits.

    dp · tp · pp = gpus; tp divides node (tensor parallelism stays inside one), pp divides layers,
    dp divides batch.
    """
    ### BEGIN SOLUTION
    fitting = [
        (dp, tp, pp)
        for tp in range(1, job.node + 1)
        for pp in range(1, job.layers + 1)
        for dp in [job.gpus // (tp * pp)]
        if dp * tp * pp == job.gpus and job.node % tp == job.layers % pp == job.batch % dp == 0
        if gpu_bytes(job, dp, tp, pp) <= job.memory
    ]
    return min(fitting, key=lambda layout: step_seconds(job, *layout), default=None)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "plan_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
# worked by hand: 10 billion parameters, 40 layers of width 5,000, 16 sequences of 2,000 tokens on 16 GPUs; dp 4, tp 2, pp 2, so m = 4
hand = Job(parameters=10e9, layers=40, width=5000, sequence=2000, batch=16, gpus=16, memory=40e9, flops_per_second=400e12, nvlink=400e9, network=40e9)
lk.checks.expect_close(gpu_bytes(hand, 4, 2, 2), 10e9 / 4 * 7 + 5e6 * (40 * 2 + 34), rtol=1e-9, name="bytes: 17.5 GB of state and 0.57 GB of activations")
lk.checks.expect_close(step_seconds(hand, 4, 2, 2), 5 / 4 * (0.4 + 0.024) + 0.1875, rtol=1e-9, name="seconds of a step")
### BEGIN HIDDEN TESTS
import itertools


def best_by_hand(job):
    found = []
    for tp, pp in itertools.product(range(1, job.gpus + 1), repeat=2):
        dp = job.gpus // (tp * pp)
        if dp * tp * pp == job.gpus and job.node % tp == 0 and job.layers % pp == 0 and job.batch % dp == 0:
            m, d, s, L, N = job.batch / dp, job.width, job.sequence, job.layers, job.parameters
            held = 4 * N / tp / pp + 12 * N / job.gpus + (2 * L * min(m, pp) / pp + 34) * s * d / tp
            work = 8 * N * job.batch * s / job.gpus / job.flops_per_second + 24 * L * m * (tp - 1) * s * d / (pp * tp * job.nvlink)
            step = (1 + (pp - 1) / m) * work + 4 * (1 - 1 / dp) * N / (tp * pp * job.network)
            found.append((held, step, (dp, tp, pp)))
    return found


jobs = {
    "Llama 3 70B on 64 GPUs": llama,
    "on GPUs of 40 GB": Job(70.6e9, 80, 8192, 8192, 128, 64, memory=40e9),
    "a batch of 24, a node of 4, 7 stages": Job(30e9, 56, 7168, 4096, 24, 56, node=4, memory=60e9),
    "a model that fits anywhere": Job(1e9, 24, 2048, 2048, 64, 16),
}
for what, job in jobs.items():
    table = best_by_hand(job)
    for held, step, layout in table[:: max(1, len(table) // 3)]:
        lk.checks.expect_close(gpu_bytes(job, *layout), held, rtol=1e-9, name=f"{what}: bytes of {layout}")
        lk.checks.expect_close(step_seconds(job, *layout), step, rtol=1e-9, name=f"{what}: seconds of {layout}")
    fastest = min(step for held, step, _ in table if held <= job.memory)
    chosen = best_layout(job)
    assert chosen is not None, f"{what}: there is a layout that fits, in {fastest:.2f} s"
    chosen = tuple(int(size) for size in chosen)
    held, step = next(((held, step) for held, step, layout in table if layout == chosen), (None, None))
    assert held is not None, f"{what}: (dp, tp, pp) = {chosen} does not multiply to {job.gpus} GPUs, or does not divide node, layers and batch"
    assert held <= job.memory, f"{what}: {chosen} needs {held / 1e9:.1f} GB, a GPU has {job.memory / 1e9:.0f}"
    lk.checks.expect_close(step, fastest, rtol=1e-9, name=f"{what}: seconds of the layout chosen, {chosen}")
assert best_layout(Job(405e9, 126, 16384, 8192, 64, 8)) is None, "405 billion parameters on 8 GPUs fit by no layout"
### END HIDDEN TESTS

# %%
with lk.picture(
    "The two fastest do not fit; of those that do, the best takes a fifth less time than the slowest."
):
    layouts = [
        (64 // (tp * pp), tp, pp)
        for tp in (1, 2, 4, 8)
        for pp in (1, 2, 4, 8, 16)
        if tp * pp <= 64 and 80 % pp == 0
    ]
    for layout in sorted(layouts, key=lambda one: step_seconds(llama, *one)):
        held, seconds = gpu_bytes(llama, *layout), step_seconds(llama, *layout)
        print(
            f"dp {layout[0]:2d} · tp {layout[1]} · pp {layout[2]:2d}: {held / 1e9:7.1f} GB, {seconds:6.2f} s"
            + ("" if held <= llama.memory else "   does not fit")
            + ("   <- best" if layout == best_layout(llama) else "")
        )

# %% [markdown]
# How far is paper from practice? The kit's planner knows more: each matrix, each stage, what communication hides behind, and the memory of the
# fullest GPU. Its figures are held to published runs.

# %%
with lk.picture("The planner's figures for your layout, beside yours."):
    dp, tp, pp = best_layout(llama)
    batch = {"global_batch": llama.batch, "sequence": llama.sequence}
    layout = planner.Layout(dp, tp, pp, zero=1, recompute="full", **batch)
    model, cluster = planner.Transformer.named("llama-3-70b"), planner.Cluster.named("dgx-h100", 64)
    held, seconds = gpu_bytes(llama, dp, tp, pp), step_seconds(llama, dp, tp, pp)
    print(f"yours: {held / 1e9:.1f} GB and {seconds:.1f} s\n")
    print(planner.plan(model, cluster, layout))

# %% [markdown]
# And the parameters? *Fake tensors* have shapes and dtypes and no memory, so a real module of any size fits on this machine: the whole model, and one
# GPU's part of its first stage.

# %%
with lk.picture("The module itself, without its memory: the numbers that the plan began with."):
    dp, tp, pp = best_layout(llama)
    sizes = {"width": 8192, "head_width": 128}
    cut = {"vocabulary": 128256, "heads": 64, "kv_heads": 8, "hidden": 28672}  # by tensor parallelism
    part = {name: size // tp for name, size in cut.items()}
    with FakeTensorMode():
        model = lm.LanguageModel(lm.Config(**sizes, **cut, layers=80, tied=False))
        mine = lm.LanguageModel(lm.Config(**sizes, **part, layers=80 // pp, tied=True))  # one table of tokens
    whole, own = (sum(one.numel() for one in module.parameters()) for module in (model, mine))
    state, planned = own * (4 + 12 / dp), llama.parameters / (tp * pp) * (4 + 12 / dp)
    print(f"parameters: {whole / 1e9:.2f} billion, planned with {llama.parameters / 1e9:.2f}")
    print(f"state of a GPU: {state / 1e9:.2f} GB, planned with {planned / 1e9:.2f}")

# %% [markdown]
# ## Real processes, real libraries
#
# So far all ranks lived in one process. The same functions, unchanged, on real processes that talk over *gloo*, torch's backend for CPUs:

# %%
with lk.picture("The same code on real processes, and the same messages."):
    tensors = ranks.each([torch.arange(10.0) * (r + 1) for r in range(4)])
    here = ranks.run(ring_all_reduce, 4, backend="local", args=(tensors,))
    there = ranks.run(ring_all_reduce, 4, backend="gloo", args=(tensors,))
    print("equal to the last bit:", all(map(torch.equal, here.values, there.values)))
    print(there.trace)

# %% [markdown]
# And what you have written is what the libraries do: `DistributedDataParallel` is task 5, `parallelize_module` task 6,
# `Schedule1F1B` task 7, `fully_shard` (FSDP2) task 8 at stage 3. Each of them on real processes, beside what yours has computed:


# %%
def with_ddp(x, y, steps):
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(small_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()  # the hooks of the backward pass send the buckets
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def with_dtensor(x, W1, b1, W2, b2):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import parallel

    first, second = torch.nn.Linear(*W1.shape), torch.nn.Linear(*W2.shape)
    model = torch.nn.Sequential(first, torch.nn.GELU(), second).double()
    model.load_state_dict({"0.weight": W1.T, "0.bias": b1, "2.weight": W2.T, "2.bias": b2})
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    cuts = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    parallel.parallelize_module(model, mesh, cuts)
    return model(x).detach().clone()  # its all-reduce is asynchronous; the clone waits for it


class Layer(torch.nn.Module):
    def __init__(self, stage):
        super().__init__()
        self.weight = torch.nn.Parameter(stage_weight(stage).detach())

    def forward(self, x):
        return torch.tanh(x @ self.weight)


def with_pipelining(x, micro_batches):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, p, _, _ = neighbours()
    layer = Layer(rank)
    stage = PipelineStage(layer, rank, p, torch.device("cpu"))

    def loss(y, target):
        return y.square().sum()

    schedule = Schedule1F1B(stage, micro_batches, loss_fn=loss, scale_grads=False)
    schedule.step(*([x] if rank == 0 else []), **({"target": x} if rank == p - 1 else {}))
    return layer.weight.grad


def zero1_steps(parameter, gradients):
    """A step for each of this rank's gradients [n]. Returns the parameter and the moments of its chunk."""
    rank, p, _, _ = neighbours()
    m, v = torch.zeros(2, chunk_sizes(len(parameter), p)[rank])
    for step, gradient in enumerate(gradients, start=1):
        parameter, m, v = zero1_step(parameter, gradient, m, v, step)
    return parameter, m, v


def with_fsdp(parameter, gradients):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Linear(1, len(parameter), bias=False)
    model.weight.data.copy_(parameter[:, None])
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for gradient in gradients:
        adam.zero_grad()
        (model(torch.ones(1, 1)) * gradient).sum().backward()  # so that the gradient is `gradient`
        adam.step()
    return model.weight.full_tensor().detach().flatten()


def apart(ours, theirs):
    """The largest difference on any rank, of the first tensor where there are several values."""

    def tensor(value):
        return value if torch.is_tensor(value) else next(filter(torch.is_tensor, value))

    return max(float((tensor(a) - tensor(b)).abs().max()) for a, b in zip(ours, theirs))


# %%
with lk.picture("The libraries' results and yours differ by rounding alone."):
    generator = torch.Generator().manual_seed(seed)
    quarters = ranks.each(samples.chunk(4)), ranks.each(targets.chunk(4))
    shapes = [(4, 12), (12,), (12, 4), (4,), (5, 4)]
    *mlp, tokens = [torch.randn(shape, generator=generator).double() for shape in shapes]
    weight = torch.randn(20, generator=generator)
    gradients = ranks.each([torch.randn(5, 20, generator=generator) for _ in range(4)])
    shards = ranks.each([shard_mlp(*mlp, rank, 4) for rank in range(4)])
    schedules = ranks.each([one_f_one_b(stage, 4, 6) for stage in range(4)])
    yours = {
        "data parallel, weights after 10 steps": (train, *quarters, 10, 512),
        "tensor parallel, output of the MLP": (mlp_forward, tokens, shards),
        "1F1B, gradient of each stage": (run_pipeline, schedules, micro_batches),
        "sharded Adam, weights after 5 steps": (zero1_steps, weight, gradients),
    }
    theirs = {
        "DDP": (with_ddp, *quarters, 10),
        "DTensor": (with_dtensor, tokens, *mlp),
        "pipelining": (with_pipelining, torch.cat(micro_batches), 6),
        "FSDP2": (with_fsdp, weight, gradients),
    }
    for (what, (mine, *arguments)), (library, (function, *others)) in zip(yours.items(), theirs.items()):
        values = ranks.run(mine, 4, backend="local", args=arguments).values
        rivals = ranks.run(function, 4, backend="gloo", args=others).values
        print(f"{what:38s} yours and {library:10s} differ by {apart(values, rivals):.0e}")

# %% [markdown]
# ## On your GPUs
#
# Not graded. With two GPUs or more, the next cell runs your ring and NCCL's all-reduce on them and shows the *bus bandwidth*: the bytes that each link carried, 2(p − 1)/p of
# the tensor, over the time. Elsewhere it says why it does nothing.


# %%
def bus_bandwidth(n):
    import time

    p, x, rates = dist.get_world_size(), torch.ones(n, device="cuda"), {}
    calls = {"your ring": lambda: ring_all_reduce(x), "NCCL": lambda: dist.all_reduce(x.clone())}
    for name, call in calls.items():
        seconds = []
        for _ in range(6):  # the first warms up
            dist.barrier()
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        rates[name] = 2 * (p - 1) / p * x.nbytes / sorted(seconds[1:])[2] / 1e9
    return rates


gpus = torch.cuda.device_count()
if gpus < 2:
    here = "one" if gpus else "none"
    print(f"Skipped: this needs two GPUs, and here is {here}. Nothing was measured.")
else:
    for n in (2**16, 2**20, 2**26):
        rates = ranks.run(bus_bandwidth, gpus, backend="nccl", args=(n,)).values[0]
        for name, rate in rates.items():
            print(f"{4 * n:12,d} bytes, {name:9s}: {rate:8.1f} GB/s, {gpus} x {torch.cuda.get_device_name()}")

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
# - A tree costs rounds, a ring costs bytes: latency decides for small tensors, bandwidth for large ones. Where only ranks add, nothing beats the ring's 2(p − 1)/p.
# - A deadlock is a circle of ranks that wait for each other. Start, receive, then wait.
# - Average, do not sum; send large buckets and send them early; and every bias once.
# - Data parallelism sends gradients once a step, tensor parallelism activations four times a layer, a pipeline activations once a stage, experts every row there and back.
# - The bubble is (p − 1)/(m + p − 1). 1F1B does not shrink it; it lets you afford the m that does.
# - Adam keeps 16 bytes a parameter. Shard what is not needed all the time.
# - Count messages, bytes and memory before you rent GPUs.
#
# ## Next
#
# Chapter 10, *Many GPUs: training*, has the derivations and the history. Then a trained model has to earn its keep: lab 08 serves it, page by page.
