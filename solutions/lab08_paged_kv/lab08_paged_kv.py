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
# # Lab 08 · Paged KV
#
# A model that serves many people at once spends its memory on their past: the keys and values of every token that they have
# written and read. How that memory is dealt out decides how many can be served, and that decides what a token costs. The answer that
# won is half a century old: pages, a page table, reference counts and copy-on-write, as in any operating system. In this lab you build all of it,
# and at the end your own engine serves a real language model.
#
# **You will be able to**
#
# - say why generating text needs a cache, what it costs in bytes, and which roof holds prefill and decode back;
# - deal out memory in blocks without waste or leaks, share it between sequences, and copy only on a write;
# - find the blocks of a prompt that somebody else has computed already;
# - attend over scattered blocks without ever collecting them, in torch and in Triton, and prove what the kernel reads;
# - schedule requests that come and go, under a memory budget, so that nobody starves and nobody loses a word;
# - measure a server as its users feel it, and draw several tokens from one pass without changing what is drawn.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 180 minutes | ●●●○ | any Linux machine; a GPU only for the last, ungraded section | 100 in 12 tasks |
#
# Needs lab 01 (bytes and FLOPs), lab 05 (Triton) for one task. Reads along with chapter 11, *Serving an LLM*.
#
# Each task goes the same way: **predict**, **write**, **check**, then **look**. Marks come from right answers, counted bytes and
# rules that must hold at every step, never from a clock. Tasks build on each other, so keep their order. Stuck? `lk.hint("pool")` in a new
# cell gives a nudge, and a stronger one each time you ask.
# `lk.progress()` in a new cell shows how far you are.

# %% tags=["install"]
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% nbgrader={"grade": false, "grade_id": "lab08_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import collections
import contextlib
import copy
import hashlib
import io
import itertools
import logging
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
import torch
import triton
import triton.language as tl

import mlsys_labkit as lk
import mlsys_labkit.triton_trace  # from here on kernels also run on a machine without a GPU
from mlsys_labkit import lm
from mlsys_labkit.lm.model import rotary_angles, rotate

GREY = "#8a8f98"  # readable on light and on dark

# %% tags=["parameters"]
smoke = False  # True: shorter traces, for a quick run through
seed = 0

# %% [markdown]
# ## Part 1 · Why there is a cache
#
# `lm.load()` gives a small, real language model: a decoder with rotary positions and grouped-query attention, trained on the text of Python's
# standard library. It writes one token at a time, and every token looks back at all tokens before it. Here is what that costs
# if the model starts over for each token, and what it costs if it keeps the keys and values it has made.

# %% nbgrader={"grade": false, "grade_id": "lab08_model", "locked": true, "schema_version": 3, "solution": false, "task": false}
torch.set_grad_enabled(False)  # nothing is trained here
torch.set_num_threads(1)  # the model is so small that threads would spend their time waiting for each other
model, tokenizer = lm.load()
text = tokenizer.encode(lm.held_out())  # text that the model has never seen


def layer_input(layer, tokens):
    """Queries [H, n, h], keys and values [K, n, h] that layer number `layer` of the model makes of `tokens`."""
    caught = []
    attention = model.model.layers[layer].self_attn
    hook = attention.register_forward_pre_hook(lambda module, arguments: caught.append(arguments))
    model(torch.tensor([tokens]))
    hook.remove()
    x, angles, _ = caught[0]
    queries, keys, values = (
        projection(x)[0].unflatten(-1, (-1, model.config.head_width)).transpose(0, 1)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    return rotate(queries, *angles), rotate(keys, *angles), values


# %%
prompt = tokenizer.encode("\ndef read(self, size=-1):\n")
again = lk.count_work(lambda: [model(torch.tensor([text[:n]])) for n in range(1, 65)])


def with_cache():
    cache = lm.KVCache(model.config, capacity=64)
    return torch.cat([model(torch.tensor([[token]]), cache) for token in text[:64]], dim=1)


once = lk.count_work(with_cache)
difference = float((with_cache() - model(torch.tensor([text[:64]]))).abs().max())
print(f"64 tokens, starting over each time: {again.flops / 1e9:.2f} GFLOP; with a cache: {once.flops / 1e9:.2f} GFLOP")
print(f"largest difference of the logits: {difference:.1g}")

# %% [markdown]
# Same logits, a thirtieth of the work, and the gap grows with the length. What the cache needs is attention of a few *new* positions over
# *all* positions. That is the first thing to write.
#
# ### Task 1 · Attention over a past
# *8 points · 12 minutes · ●●○○*
#
# One function serves all three uses: a prompt (all positions are new), one decode step (a single one is), and a chunk of a prompt.
# Heads are grouped: `H / K` query heads in a row share one key-value head, so query head `i` looks at key-value head `i // (H / K)`.

# %%
lk.predict("attend")


# %% nbgrader={"grade": false, "grade_id": "attend", "locked": false, "schema_version": 3, "solution": true, "task": false}
def attend(queries, keys, values):
    """Causal grouped-query attention of the last `new` of `total` positions.

    queries [H, new, h]; keys and values [K, total, h], K divides H, new <= total. New position j is
    position total − new + j of the sequence and sees the positions up to and including itself. Scores are
    scaled by 1 / √h. Returns [H, new, h].

    >>> v = torch.tensor([[[2.0], [4.0]]])  # equal scores: the mean of what is seen
    >>> attend(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1), v).flatten()
    tensor([2., 3.])
    """
    ### BEGIN SOLUTION
    heads, new, width = queries.shape
    kv_heads, total, _ = keys.shape
    grouped = queries.view(kv_heads, heads // kv_heads, new, width)
    scores = grouped @ keys.unsqueeze(1).transpose(-1, -2) / width**0.5
    seen = torch.ones(new, total, dtype=torch.bool, device=queries.device).tril(total - new)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return (weights @ values.unsqueeze(1)).reshape(heads, new, width)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "attend_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
v = torch.tensor([[[2.0], [4.0]]])
lk.checks.expect_close(attend(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1), v).flatten(), torch.tensor([2.0, 3.0]), name="two equal scores")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(801)
for heads, kv_heads, new, total, width, what in [
    (4, 4, 5, 5, 8, "a prompt"),
    (6, 2, 1, 9, 4, "one decode step, three heads a group"),
    (8, 1, 3, 11, 16, "a chunk, all heads share one"),
    (4, 2, 7, 7, 3, "a prompt, an odd width"),
    (2, 2, 1, 1, 4, "the first token"),
]:
    q, k, v = (rng.standard_normal(shape) for shape in [(heads, new, width), (kv_heads, total, width), (kv_heads, total, width)])
    expected = np.zeros((heads, new, width))
    for i in range(heads):  # one query at a time, in float64
        for j in range(new):
            end = total - new + j + 1
            scores = k[i // (heads // kv_heads), :end] @ q[i, j] / np.sqrt(width)
            weights = np.exp(scores - scores.max())
            expected[i, j] = weights @ v[i // (heads // kv_heads), :end] / weights.sum()
    got = attend(*(torch.tensor(x, dtype=torch.float32) for x in (q, k, v)))
    lk.checks.expect_close(got, expected, rtol=1e-4, atol=1e-5, name=what)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "attend_test_cache", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# the model's own queries, keys and values, on real text: a prompt, a chunk, then token by token is as good as all at once
queries, keys, values = layer_input(0, text[:40])
expected = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
parts = [attend(queries[:, a:b], keys[:, :b], values[:, :b]) for a, b in [(0, 17), (17, 30), *((n, n + 1) for n in range(30, 40))]]
lk.checks.expect_close(torch.cat(parts, dim=1), expected, rtol=1e-4, atol=1e-5, name="17 tokens, 13 tokens, then one at a time")

# %% [markdown]
# ### Task 2 · Two phases, two roofs
# *8 points · 12 minutes · ●●○○*
#
# Reading a prompt (**prefill**) pushes all its tokens through the weights in one go. Writing (**decode**) pushes one token a sequence. Both read
# the weights once. Count one pass over a batch of `sequences` that have `past` tokens in the cache each and get `new` more:
#
# - every token meets every weight of every matrix: 2 FLOPs each;
# - every new token's query meets the keys of all positions that it may see, and the weights of attention meet as many values: 2 FLOPs
#   an element each, in every layer and head;
# - bytes: the weights once; the cache of the past is read, the cache of what is new is written. Activations are small: leave them out.

# %% nbgrader={"grade": false, "grade_id": "step_work_weights", "locked": true, "schema_version": 3, "solution": false, "task": false}
llama = lm.Config(  # Llama 3 8B
    vocabulary=128_256, width=4096, layers=32, heads=32, kv_heads=8, head_width=128, hidden=14_336, context=8192, tied=False
)


def matrix_weights(config):
    """Weights in all matrices that a token is multiplied by: attention, MLP and the output layer."""
    attention = 2 * config.width * config.head_width * (config.heads + config.kv_heads)
    return config.layers * (attention + 3 * config.width * config.hidden) + config.vocabulary * config.width


# %%
lk.predict("step_work")


# %% nbgrader={"grade": false, "grade_id": "step_work", "locked": false, "schema_version": 3, "solution": true, "task": false}
def step_work(config, sequences, past, new, itemsize=2):
    """Return the cost of one pass: an lk.Work with flops, bytes_read, bytes_written and dtype="bfloat16".

    config: an lm.Config (layers, heads, kv_heads, head_width, ...); `matrix_weights(config)` counts its
    matrices. itemsize: bytes of a number, weights and cache alike. Within a pass the new tokens are causal:
    the first of them sees past + 1 positions.

    >>> tiny = lm.Config(vocabulary=10, width=4, layers=1, heads=2, kv_heads=1, head_width=2, hidden=8)
    >>> matrix_weights(tiny)
    184
    >>> work = step_work(tiny, sequences=1, past=3, new=1)
    >>> int(work.flops), int(work.bytes_read), int(work.bytes_written)  # 2·184 + 4·2·2·4, 2·184 + 3·8, 8
    (432, 392, 8)
    """
    ### BEGIN SOLUTION
    weights = matrix_weights(config)
    pairs = new * past + new * (new + 1) // 2
    per_token = config.cache_bytes_per_token(itemsize)
    return lk.Work(
        flops=sequences * (2 * weights * new + 4 * config.layers * config.heads * config.head_width * pairs),
        bytes_read=itemsize * weights + sequences * past * per_token,
        bytes_written=sequences * new * per_token,
        dtype="bfloat16",
    )
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "step_work_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
tiny = lm.Config(vocabulary=10, width=4, layers=1, heads=2, kv_heads=1, head_width=2, hidden=8)
lk.checks.expect_work(step_work(tiny, sequences=1, past=3, new=1), flops=432, bytes_read=392, bytes_written=8, name="one token")
lk.checks.expect_work(step_work(tiny, sequences=2, past=3, new=2), flops=1760, bytes_read=416, bytes_written=32, name="2 x two tokens")
### BEGIN HIDDEN TESTS
met = sum(module.weight.numel() for module in model.modules() if isinstance(module, torch.nn.Linear))  # the real model's matrices
for past, sequences in [(0, 1), (12, 1), (30, 3)]:
    cache = lm.KVCache(model.config, batch=sequences, capacity=past or 1)  # as many bytes as the real cache has
    work = step_work(model.config, sequences, past, 1, itemsize=4)
    attention = 4 * 8 * (past + 1) * (32 + 32)  # layers, heads, positions; multiply-adds with a key and with a value
    lk.checks.expect_work(
        work, flops=2 * sequences * (met + attention), bytes_read=4 * met + (cache.bytes if past else 0), name=f"{sequences} x one token after {past}"
    )
for sequences, past, new, itemsize in [(1, 0, 1, 2), (5, 0, 100, 2), (3, 17, 6, 1), (2, 1000, 1, 4)]:
    pairs = sum(past + j + 1 for j in range(new))
    w = 32 * (4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336) + 128256 * 4096  # query and output, key and value, MLP
    kv = 2 * 32 * 8 * 128 * itemsize
    lk.checks.expect_work(
        step_work(llama, sequences, past, new, itemsize),
        flops=sequences * (2 * w * new + 2 * 2 * 32 * 32 * 128 * pairs),
        bytes_read=w * itemsize + sequences * past * kv,
        bytes_written=sequences * new * kv,
        name=f"{sequences} sequences, {past} past, {new} new",
    )
### END HIDDEN TESTS

# %%
roof = lk.Roofline.from_spec("h100-sxm")


def seconds(work):
    """Return the seconds of the pass by the H100's datasheet: those of its slower side, arithmetic or memory.

    A model, nothing measured.
    """
    return max(work.flops / roof.compute("bfloat16").value, (work.bytes_read + work.bytes_written) / roof.memory().value)


with lk.picture("Prefill stands under the flat roof. Decode climbs as the batch grows, until the caches' own bytes hold it back."):
    shown = [("prefill, 2,048 tokens", 1, 0, 2048)] + [(f"decode, batch {b}", b, 2048, 1) for b in (1, 16, 256)]
    works = []
    for name, sequences, past, new in shown:
        work = step_work(llama, sequences, past, new)
        works.append(lk.Work(work.flops, work.bytes_read, work.bytes_written, dtype="bfloat16", name=name))
        print(
            f"{name:22s} {works[-1].intensity:8.1f} FLOP/B, {1e3 * seconds(work):6.2f} ms, "
            f"{sequences * new / seconds(work):9,.0f} tokens a second"
        )
    print(f"\nthe ridge is at {roof.ridge('bfloat16'):.0f} FLOP/B")
    lk.show(roof.plotly(works), summary="Roofline of an H100 with prefill in the compute-bound part and three decode batches in the memory-bound part.")

# %% [markdown]
# Read the last column. A batch of 256 writes many times more tokens a second than a batch of 1, since all share one reading of the weights.
# Whoever fits more sequences into memory sells more tokens. So: who wastes memory?
#
# ## Part 2 · Blocks
#
# A cache like `lm.KVCache` is one piece of memory for each sequence, as long as it might ever get, because a tensor cannot grow where it is. An
# answer of 30 tokens then reserves as much as one of 500. Paging cuts memory into **blocks** of a few tokens each and deals them out one
# at a time, when the last one is full.

# %% nbgrader={"grade": false, "grade_id": "waste_trace", "locked": true, "schema_version": 3, "solution": false, "task": false}
BLOCK = 16  # tokens a block, as most engines have it
rng = np.random.default_rng(8)
asked, answered = (np.clip(np.rint(rng.lognormal(np.log(m), 0.8, 60)), 4, 255).astype(int) for m in (90, 70))
lengths = (asked + answered).tolist()  # tokens of sixty requests when they end
print(f"{len(lengths)} requests of {min(lengths)} to {max(lengths)} tokens, {sum(lengths) / len(lengths):.0f} in the mean")

# %% [markdown]
# ### Task 3 · What is wasted
# *6 points · 8 minutes · ●○○○*
#
# A contiguous cache is a paged one whose block is as long as the model's context, so one formula says it all.

# %%
lk.predict("waste")


# %% nbgrader={"grade": false, "grade_id": "waste", "locked": false, "schema_version": 3, "solution": true, "task": false}
def blocks_for(tokens, block):
    """Return how many blocks of `block` tokens hold `tokens` tokens (whole numbers, tokens from 0 up).

    >>> blocks_for(17, 16)
    2
    """
    ### BEGIN SOLUTION
    return (tokens + block - 1) // block
    ### END SOLUTION


def waste(lengths, block):
    """The share, 0 to 1, of all slots reserved for sequences of these lengths that hold no token.

    Without a reserved slot it is 0.

    >>> waste([17, 15], 16)          # 3 blocks, 48 slots, 32 tokens
    0.3333333333333333
    """
    ### BEGIN SOLUTION
    reserved = sum(blocks_for(length, block) for length in lengths) * block
    return 1 - sum(lengths) / reserved if reserved else 0.0
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "waste_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal([blocks_for(n, 16) for n in (0, 1, 16, 17)], [0, 1, 1, 2], name="blocks for 0, 1, 16 and 17 tokens")
lk.checks.expect_close(waste([17, 15], 16), 1 / 3, rtol=1e-9, name="waste of 17 and 15 tokens")
### BEGIN HIDDEN TESTS
for block in (1, 7, 16, 512):
    for n in range(70):
        got = blocks_for(n, block)
        assert got * block >= n, f"{got} blocks of {block} cannot hold {n} tokens"
        assert (got - 1) * block < n or got == 0, f"{got} blocks of {block} for {n} tokens: one fewer would do"
lk.checks.expect_equal(blocks_for(10**17 + 1, 10), 10**16 + 1, name="blocks for 10^17 + 1 tokens, in whole numbers")
for many, block in [([5], 5), ([1, 2, 3], 4), ([512, 1], 512), (lengths, 16), (lengths, 512)]:
    slots = sum(next(b for b in itertools.count() if b * block >= n) for n in many) * block
    lk.checks.expect_close(waste(many, block), (slots - sum(many)) / slots, rtol=1e-9, name=f"waste of {len(many)} lengths in blocks of {block}")
lk.checks.expect_equal((float(waste([], 16)), float(waste([0, 0], 16)), float(waste([9, 4], 1))), (0.0, 0.0, 0.0), name="nothing to waste")
### END HIDDEN TESTS

# %%
with lk.picture("Small blocks waste next to nothing. Half a block a sequence is lost on average, and a contiguous cache is one very long block."):
    sizes = [2**n for n in range(10)]
    lost = [100 * waste(lengths, size) for size in sizes]
    slots = 16_384
    for size in (512, 128, 16):
        fits = slots / (sum(blocks_for(length, size) for length in lengths) * size / len(lengths))
        print(f"blocks of {size:3d}: {100 * waste(lengths, size):4.1f} % wasted; {slots:,} slots hold {fits:.0f} such requests at once")
    figure = go.Figure(go.Scatter(x=sizes, y=lost, mode="lines+markers"))
    figure.add_hline(y=4, line={"dash": "dot", "color": GREY}, annotation_text="4 %")
    figure.update_layout(height=300, xaxis_type="log", xaxis_title="tokens a block", yaxis_title="wasted, %")
    figure.update_xaxes(tickvals=sizes, ticktext=[str(size) for size in sizes])
    lk.show(figure, summary="Wasted share of memory against block size: below four per cent at 16, above half at 512.")

# %% [markdown]
# Why not blocks of one token, then? Each block is an entry in a table that a kernel has to look up, and reading sixteen neighbours in a row is
# what memory is good at. Sixteen is where both are cheap.
#
# ### Task 4 · The pool
# *9 points · 15 minutes · ●●○○*
#
# Somebody has to know which blocks are free. And since blocks will be shared, it must know how often each is held: a **reference count**.
# A block is free again when its count reaches zero. Mistakes here are the worst kind: a block that is dropped once too often is given to two
# sequences, and both write fluent nonsense. So refuse everything that makes no sense.
#
# Give out the block that has been free *longest*. What a free block holds stays readable until somebody overwrites it, and Task 7 will show
# what that is good for. (The names of the methods are those of the kit's own engine, and at the end of the lab it will run on your pool.)

# %% nbgrader={"grade": false, "grade_id": "pool_error", "locked": true, "schema_version": 3, "solution": false, "task": false}
class OutOfBlocks(Exception):
    """The pool has no free block left."""


# %%
lk.predict("pool")


# %% nbgrader={"grade": false, "grade_id": "pool", "locked": false, "schema_version": 3, "solution": true, "task": false}
class BlockPool:
    """Blocks 0 … size − 1, and how often each is held. At first all are free, and they are given out in the
    order 0, 1, 2, …

    >>> pool = BlockPool(2)
    >>> a = pool.take(); pool.share(a); pool.drop(a)
    >>> pool.holders(a), pool.free, pool.size
    (1, 1, 2)
    """

    def __init__(self, size):
        self.size = size
        ### BEGIN SOLUTION
        self._count = [0] * size
        self._idle = collections.deque(range(size))
        ### END SOLUTION

    @property
    def free(self):
        """Count the blocks that are free."""
        ### BEGIN SOLUTION
        return len(self._idle)
        ### END SOLUTION

    def holders(self, block):
        """Return how often `block` is held; 0 for a free one.

        ValueError when the pool has no block of that number (−1, say).
        """
        ### BEGIN SOLUTION
        if not 0 <= block < self.size:
            raise ValueError(f"there is no block {block} in a pool of {self.size}")
        return self._count[block]
        ### END SOLUTION

    def take(self):
        """The number of the block that has been free longest; it is held once from now on.

        OutOfBlocks when none is free.
        """
        ### BEGIN SOLUTION
        if not self._idle:
            raise OutOfBlocks(f"all {self.size} blocks are held")
        block = self._idle.popleft()
        self._count[block] = 1
        return block
        ### END SOLUTION

    def share(self, block):
        """`block` is held once more. ValueError when nobody holds it, or there is no such block."""
        ### BEGIN SOLUTION
        if self.holders(block) == 0:
            raise ValueError(f"block {block} is free; only a block that is held can be shared")
        self._count[block] += 1
        ### END SOLUTION

    def drop(self, block):
        """`block` is held once less, and free when nobody holds it any more.

        ValueError when nobody did, or there is no such block.
        """
        ### BEGIN SOLUTION
        if self.holders(block) == 0:
            raise ValueError(f"block {block} is free: nobody is left to drop it")
        self._count[block] -= 1
        if self._count[block] == 0:
            self._idle.append(block)
        ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "pool_test", "locked": true, "points": 9, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(3)
lk.checks.expect_equal([pool.take(), pool.take()], [0, 1], name="the first two blocks")
pool.share(0)
pool.drop(0)
lk.checks.expect_equal([pool.holders(b) for b in range(3)], [1, 1, 0], name="holders of the blocks 0, 1 and 2")
lk.checks.expect_equal(pool.free, 1, name="free blocks")
pool.drop(0)
lk.checks.expect_raises(ValueError, pool.drop, 0)  # twice is once too often
lk.checks.expect_equal([pool.take(), pool.take()], [2, 0], name="the next two blocks: 2 has been free longer than 0")
lk.checks.expect_raises(OutOfBlocks, pool.take)
### BEGIN HIDDEN TESTS
for what in ("holders", "share", "drop"):
    for block in (-1, 3, 100):
        lk.checks.expect_raises(ValueError, getattr(pool, what), block)
pool.drop(2)
lk.checks.expect_raises(ValueError, pool.share, 2)
lk.checks.expect_equal(pool.free, 1, name="free blocks after refused calls")
rng = np.random.default_rng(804)
for blocks in (1, 3, 8):
    pool, idle, held = BlockPool(blocks), collections.deque(range(blocks)), {}  # two lists that know what is right
    for n in range(300):
        what = rng.choice(["take", "share", "drop"], p=[0.4, 0.2, 0.4])
        when = f"after {n} random calls on a pool of {blocks}"
        if what == "take" and idle:
            lk.checks.expect_equal(pool.take(), idle[0], name=f"the block given {when}")
            held[idle.popleft()] = 1
        elif what == "take":
            lk.checks.expect_raises(OutOfBlocks, pool.take)
        elif held:
            block = int(rng.choice(sorted(held)))
            held[block] += 1 if what == "share" else -1
            pool.share(block) if what == "share" else pool.drop(block)
            if not held[block]:
                idle.append(block)
                del held[block]
        counts = [pool.holders(b) for b in range(blocks)]
        lk.checks.expect_equal(counts, [held.get(b, 0) for b in range(blocks)], name=f"holders {when}")
        lk.checks.expect_equal(pool.free, len(idle), name=f"free blocks {when}")
    for block, count in held.items():
        for _ in range(count):
            pool.drop(block)
    lk.checks.expect_equal(pool.free, blocks, name="free blocks when all is given back")
### END HIDDEN TESTS

# %% [markdown]
# ### Task 5 · The block table
# *9 points · 15 minutes · ●●○○*
#
# A sequence sees positions 0, 1, 2, …; memory has blocks, anywhere. The **block table** translates: position $p$ is at offset $p \bmod 16$
# of the table's block number $\lfloor p / 16 \rfloor$. It is an operating system's page table, with an attention kernel in the place of the CPU.

# %%
lk.predict("table")


# %% nbgrader={"grade": false, "grade_id": "table", "locked": false, "schema_version": 3, "solution": true, "task": false}
class BlockTable:
    """The blocks of one sequence. Attributes: pool, block (tokens a block), blocks (a list of block
    numbers), length (tokens).

    >>> table = BlockTable(BlockPool(4), block=2)
    >>> [table.append() for _ in range(3)]
    [(0, 0), (0, 1), (1, 0)]
    >>> table.slot(1), table.blocks, table.length
    ((0, 1), [0, 1], 3)
    """

    def __init__(self, pool, block):
        self.pool, self.block = pool, block
        self.blocks, self.length = [], 0

    def slot(self, position):
        """(block, offset) of the token at `position`.

        IndexError for a position that the sequence does not have (−1, say).
        """
        ### BEGIN SOLUTION
        if not 0 <= position < self.length:
            raise IndexError(f"position {position} of a sequence of {self.length} tokens")
        return self.blocks[position // self.block], position % self.block
        ### END SOLUTION

    def append(self):
        """Make room for one more token and return its slot; a new block is taken only when the last is full.

        When the pool has none, OutOfBlocks comes through and the table is what it was.
        """
        ### BEGIN SOLUTION
        if self.length == len(self.blocks) * self.block:
            self.blocks += [self.pool.take()]
        self.length += 1
        return self.slot(self.length - 1)
        ### END SOLUTION

    def release(self):
        """Give back all blocks; the table is empty afterwards, and releasing an empty one does nothing."""
        ### BEGIN SOLUTION
        for block in self.blocks:
            self.pool.drop(block)
        self.blocks, self.length = [], 0
        ### END SOLUTION


def gather(cache, blocks, length):
    """Collect a sequence from its blocks, as `attend` takes it: [all blocks, block, K, h] -> [K, length, h].

    blocks: the table's list of block numbers; the last one may be filled in part.
    """
    ### BEGIN SOLUTION
    return cache[blocks].flatten(0, 1)[:length].transpose(0, 1)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "table_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(4)
a, b = BlockTable(pool, block=2), BlockTable(pool, block=2)
lk.checks.expect_equal([a.append(), b.append(), a.append(), a.append()], [(0, 0), (1, 0), (0, 1), (2, 0)], name="slots of two sequences that take turns")
lk.checks.expect_equal(a.slot(2), (2, 0), name="slot of position 2")
lk.checks.expect_equal((a.blocks, a.length), ([0, 2], 3), name="blocks and length")
lk.checks.expect_equal(pool.free, 1, name="free blocks")
lk.checks.expect_raises(IndexError, a.slot, 3)
### BEGIN HIDDEN TESTS
lk.checks.expect_raises(IndexError, a.slot, -1)
lk.checks.expect_equal([b.append(), b.append()], [(1, 1), (3, 0)], name="the other one's next slots")
a.append()
for _ in range(2):  # a refused call must leave nothing behind
    lk.checks.expect_raises(OutOfBlocks, a.append)
    lk.checks.expect_equal((a.length, a.blocks, pool.free), (4, [0, 2], 0), name="length, blocks, free blocks after a refused append")
b.release()
lk.checks.expect_equal((b.length, b.blocks, pool.free), (0, [], 2), name="length, blocks, free blocks after release")
b.release()
lk.checks.expect_equal([a.append(), b.append(), a.append()], [(1, 0), (3, 0), (1, 1)], name="slots from blocks that were given back")
a.release()
b.release()
lk.checks.expect_equal(pool.free, 4, name="free blocks at the end")
rng = np.random.default_rng(805)
for block in (1, 3, 16):
    pool = BlockPool(40)
    tables, slots = [BlockTable(pool, block) for _ in range(4)], [[] for _ in range(4)]
    for _ in range(40):
        n = int(rng.integers(4))
        slots[n].append(tables[n].append())
    for table, given in zip(tables, slots):
        lk.checks.expect_equal([table.slot(p) for p in range(len(given))], given, name=f"slot(p) and what append returned, blocks of {block}")
        lk.checks.expect_equal([offset for _, offset in given], [p % block for p in range(len(given))], name=f"offsets, blocks of {block}")
    everything = sum(slots, [])
    lk.checks.expect_equal(len(set(everything)), len(everything), name="different slots, where no token may share one")
    needed = sum(-(-len(given) // block) for given in slots)
    lk.checks.expect_equal(40 - pool.free, needed, name=f"blocks taken, blocks of {block}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "table_test_gather", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cache = torch.arange(5 * 2 * 1 * 1.0).reshape(5, 2, 1, 1)  # five blocks of two tokens, numbered through
lk.checks.expect_close(gather(cache, [4, 0, 3], 5).flatten(), torch.tensor([8.0, 9.0, 0.0, 1.0, 6.0]), rtol=0, name="five tokens in blocks 4, 0 and 3")
### BEGIN HIDDEN TESTS
_, keys, _ = layer_input(1, text[100:137])  # real keys [K, 37, h], written through a table and collected again
pool = BlockPool(7)
table, others, cache = BlockTable(pool, 8), BlockTable(pool, 8), torch.full((7, 8, *keys[:, 0].shape), float("nan"))
for p in range(keys.shape[1]):
    block, offset = table.append()
    cache[block, offset] = keys[:, p]
    if p in (9, 20):
        _ = [others.append() for _ in range(8)]  # so that the blocks are no neighbours
got = gather(cache, list(table.blocks), int(table.length))
lk.checks.expect_close(got, keys, rtol=0, name="the keys of 37 tokens, there and back")
### END HIDDEN TESTS

# %%
with lk.picture("Three sequences grow in turns. Each sees its tokens in a row; memory sees them wherever there was room."):
    pool = BlockPool(12)
    tables = {name: BlockTable(pool, 4) for name in "abc"}
    grid = [["" for _ in range(4)] for _ in range(12)]
    owner = [[None] * 4 for _ in range(12)]
    for turn in range(33):
        name = "abc"[turn % 3] if turn < 24 else "abb"[turn % 3]
        block, offset = tables[name].append()
        grid[block][offset], owner[block][offset] = name, "abc".index(name)
    figure = go.Figure(
        go.Heatmap(z=owner, text=grid, texttemplate="%{text}", showscale=False, xgap=2, ygap=2, colorscale=["#2a7fbf", "#cc5a00", "#0b8f70"])
    )
    figure.update_layout(height=340, yaxis={"autorange": "reversed", "title": "block", "dtick": 1}, xaxis={"title": "offset", "dtick": 1})
    for name, table in tables.items():
        print(f"{name}: {table.length} tokens in blocks {table.blocks}")
    lk.show(figure, summary="Twelve blocks of four slots, each coloured by the sequence that holds it; the three sequences' blocks lie mixed.")

# %% [markdown]
# ## Part 3 · Sharing
#
# Ask for three answers to one prompt, and the prompt's keys and values are the same three times. With a block table nothing needs to be
# copied: a **fork** gets the same list of blocks, and every count goes up by one. Trouble begins when one of them writes on. Full blocks never
# change, so they stay shared for good. The last, half-full block is the one that both want to continue, each with its own word: whoever
# writes first to a block that another holds too gets a **copy** of it. This is `fork()` of a Unix process, page by page.

# %% [markdown]
# ### Task 6 · Fork, and copy on write
# *9 points · 12 minutes · ●●●○*

# %%
lk.predict("fork")


# %% nbgrader={"grade": false, "grade_id": "fork", "locked": false, "schema_version": 3, "solution": true, "task": false}
def fork(table):
    """A second BlockTable for the same tokens, in the same blocks, each held once more.

    Appending to one does not change the other.
    """
    ### BEGIN SOLUTION
    child = BlockTable(table.pool, table.block)
    child.blocks, child.length = list(table.blocks), table.length
    for block in child.blocks:
        table.pool.share(block)
    return child
    ### END SOLUTION


def append_own(table, caches):
    """As table.append(), but a block that somebody else holds too is copied first, into a new one.

    caches: tensors [all blocks, block, ...], keys and values of every layer; all of them are copied, in
    place. The copy takes the shared block's place in this table, and the shared block is held once less.
    When the pool has no block for the copy, OutOfBlocks comes through and nothing has changed.
    """
    ### BEGIN SOLUTION
    if table.length < len(table.blocks) * table.block and table.pool.holders(table.blocks[-1]) > 1:
        copy, shared = table.pool.take(), table.blocks[-1]
        for cache in caches:
            cache[copy] = cache[shared]
        table.pool.drop(shared)
        table.blocks[-1] = copy
    return table.append()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "fork_test", "locked": true, "points": 9, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(4)
parent, cache = BlockTable(pool, 2), torch.zeros(4, 2)
for number in (10.0, 11.0, 12.0):
    cache[parent.append()] = number
child = fork(parent)
lk.checks.expect_equal((child.blocks, child.length), ([0, 1], 3), name="the fork's blocks and length")
lk.checks.expect_equal([pool.holders(0), pool.holders(1)], [2, 2], name="holders of the blocks 0 and 1")
lk.checks.expect_equal(append_own(child, [cache]), (2, 1), name="the slot of the fork's new token, in a block of its own")
lk.checks.expect_equal(child.blocks, [0, 2], name="the fork's blocks after the copy")
lk.checks.expect_equal(parent.blocks, [0, 1], name="the parent's blocks after the copy")
lk.checks.expect_close(cache[2, 0], 12.0, rtol=0, name="the token that was copied")
### BEGIN HIDDEN TESTS
lk.checks.expect_equal([pool.holders(b) for b in range(4)], [2, 1, 1, 0], name="holders after the copy")
lk.checks.expect_equal(append_own(parent, [cache]), (1, 1), name="the parent's slot: it alone holds block 1 now, so nothing is copied")
lk.checks.expect_equal((parent.length, child.length, pool.free), (4, 4, 1), name="lengths and free blocks")
lk.checks.expect_equal(append_own(child, [cache]), (3, 0), name="a full block is never copied")
for table in (parent, child):
    table.release()
lk.checks.expect_equal((pool.free, [pool.holders(b) for b in range(4)]), (4, [0] * 4), name="free blocks and holders when both are gone")

pool = BlockPool(2)  # no room for a copy: everything stays
parent, keys, values = BlockTable(pool, 4), torch.zeros(2, 4, 3), torch.zeros(2, 4, 3)
for _ in range(5):
    parent.append()
child = fork(parent)
for _ in range(2):
    lk.checks.expect_raises(OutOfBlocks, append_own, child, [keys, values])
    state = (child.length, child.blocks, parent.length, parent.blocks, [pool.holders(b) for b in range(2)])
    lk.checks.expect_equal(state, (5, [0, 1], 5, [0, 1], [2, 2]), name="everything after a refused copy")
empty = fork(BlockTable(pool, 4))
lk.checks.expect_equal((empty.blocks, empty.length), ([], 0), name="the fork of an empty table")

rng = np.random.default_rng(806)
for block in (1, 3, 4):  # a family of sequences that write on in random order: each must read its own text
    pool = BlockPool(200)
    keys, values = torch.full((200, block), -1.0), torch.full((200, block, 2), -1.0)
    family, said = [BlockTable(pool, block)], [[]]
    for n in range(150):
        who = int(rng.integers(len(family)))
        if n % 20 == 10:
            family.append(fork(family[who]))
            said.append(list(said[who]))
        elif n % 40 == 30 and len(family) > 2:
            family.pop(who).release()
            said.pop(who)
        else:
            at = append_own(family[who], [keys, values])
            keys[at], values[at] = float(n), torch.tensor([float(n), -float(n)])
            said[who].append(float(n))
    for table, words in zip(family, said):
        slots = [table.slot(p) for p in range(len(words))]
        lk.checks.expect_equal([float(keys[s]) for s in slots], words, name=f"what a sequence reads in the first cache, blocks of {block}")
        lk.checks.expect_equal([float(values[s][1]) for s in slots], [-w for w in words], name=f"what it reads in the second cache, blocks of {block}")
    held = collections.Counter(b for table in family for b in list(table.blocks))
    lk.checks.expect_equal([pool.holders(b) for b in range(200)], [held[b] for b in range(200)], name="holders, and tables that have the block")
    for table in family:
        table.release()
    lk.checks.expect_equal(pool.free, 200, name="free blocks when all are gone")
### END HIDDEN TESTS

# %%
with lk.picture("Eight answers to one prompt of 200 tokens: the prompt is there once, and each answer pays for its own words."):
    pool = BlockPool(400)
    cache = torch.zeros(400, BLOCK)
    first = BlockTable(pool, BLOCK)
    for _ in range(200):
        first.append()
    answers = [first] + [fork(first) for _ in range(7)]
    for answer in answers:
        for _ in range(40):
            append_own(answer, [cache])
    shared, alone = 400 - pool.free, 8 * -(-240 // BLOCK)
    print(f"shared: {shared} blocks; each on its own: {alone} blocks; saved {100 * (1 - shared / alone):.0f} %")

# %% [markdown]
# ### Task 7 · Have we met?
# *8 points · 12 minutes · ●●○○*
#
# A thousand users, one system prompt. Nobody forks anything, and yet the first blocks hold the same tokens. To find them, give each
# full block a **key** that depends on its tokens *and on everything before it*: keys and values carry positions and, from the second layer on,
# the whole past, so the same sixteen tokens after another beginning are another block. A chain does it: a block's key is made from the previous key
# and its own tokens.
#
# Two rules. Only full blocks have keys, for a half-full one still changes. And the last token of a prompt is always computed, even if
# everything is known: the model owes us its logits.

# %%
lk.predict("prefix")


# %% nbgrader={"grade": false, "grade_id": "prefix", "locked": false, "schema_version": 3, "solution": true, "task": false}
def block_keys(tokens, block):
    """A key for each full block of `tokens`: a list of numbers, strings or bytes, fit for a dict.

    Two keys are equal exactly if the blocks and everything before them hold the same tokens.

    >>> one, two = block_keys([1, 2, 3, 4, 5], 2), block_keys([9, 2, 3, 4], 2)
    >>> len(one), len(two), one[1] == two[1], one == block_keys([1, 2, 3, 4], 2)
    (2, 2, False, True)
    """
    ### BEGIN SOLUTION
    keys, key = [], b""
    for end in range(block, len(tokens) + 1, block):
        key = hashlib.sha256(key + np.asarray(tokens[end - block : end], dtype=np.int64).tobytes()).digest()
        keys.append(key)
    return keys
    ### END SOLUTION


def reusable(tokens, block, known):
    """The blocks that a prompt need not compute: its first ones, up to the first whose key is not known.

    known: dict from keys to block numbers, which are returned as a list. At least the prompt's last token is left to compute.
    """
    ### BEGIN SOLUTION
    found = []
    for key in block_keys(tokens[:-1], block):
        if key not in known:
            break
        found.append(known[key])
    return found
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "prefix_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
one, two = block_keys([1, 2, 3, 4, 5], 2), block_keys([9, 2, 3, 4], 2)
lk.checks.expect_equal([len(one), len(two)], [2, 2], name="how many keys five and four tokens have in blocks of two")
lk.checks.expect_equal(one[1] == two[1], False, name="[3, 4] after [1, 2] and after [9, 2] have the same key")
known = dict(zip(one, [30, 31]))
lk.checks.expect_equal(reusable([1, 2, 3, 4, 9], 2, known), [30, 31], name="blocks of a prompt that begins alike")
lk.checks.expect_equal(reusable([1, 2, 3, 4], 2, known), [30], name="blocks of a prompt that is known to its last token")
### BEGIN HIDDEN TESTS
lk.checks.expect_equal((block_keys([1, 2], 3), reusable([1, 2], 3, known), reusable([7], 1, known)), ([], [], []), name="less than a block")
lk.checks.expect_equal(block_keys([1, 2, 3, 4], 2) == one, True, name="the same beginning has the same keys")
for left, right in [([1, 2, 3, 4], [3, 4, 1, 2]), ([12, 3], [1, 23]), ([1, 2], [2, 1]), ([0, 0], [0, 0, 0, 0]), ([256, 0], [0, 256]), ([1, 1, 2, 2], [2, 2, 1, 1])]:
    a, b = block_keys(left, 2), block_keys(right, 2)
    lk.checks.expect_equal(a[-1] == b[-1], False, name=f"the last keys of {left} and {right} are equal")
rng = np.random.default_rng(807)
for block in (1, 2, 4):
    known, where, free = {}, {}, itertools.count()
    for n in range(60):  # prompts over two tokens, so that many begin alike
        tokens = rng.integers(0, 2, int(rng.integers(1, 14))).tolist()
        expected = []
        for end in range(block, len(tokens), block):  # `end` tokens are known; the last token never counts
            if tuple(tokens[:end]) not in where:
                break
            expected.append(where[tuple(tokens[:end])])
        lk.checks.expect_equal(reusable(tokens, block, known), expected, name=f"blocks of {tokens} after {n} prompts, blocks of {block}")
        for index, key in enumerate(block_keys(tokens, block)):
            if rng.random() < 0.7 and tuple(tokens[: (index + 1) * block]) not in where:  # some are gone again: a chain may have holes
                known[key] = where[tuple(tokens[: (index + 1) * block])] = next(free)
### END HIDDEN TESTS

# %%
with lk.picture("The longer the shared system prompt, the less of a new prompt is left to compute."):
    system, known, computed = text[:150], {}, []
    for n in range(20):
        question = system + text[300 + 40 * n : 300 + 40 * n + 10 + 3 * n]
        found = reusable(question, BLOCK, known)
        computed.append((len(question), len(question) - BLOCK * len(found)))
        known |= {key: 100 * n + i for i, key in enumerate(block_keys(question, BLOCK)) if key not in known}
    print(f"20 prompts, {sum(n for n, _ in computed)} tokens; computed: {sum(c for _, c in computed)}")
    print(f"the first: {computed[0][1]} of {computed[0][0]}; the second: {computed[1][1]} of {computed[1][0]}")

# %% [markdown]
# ## Part 4 · Attention over blocks
#
# `gather` before every attention would undo it all: a copy of the whole cache, for each token. Attention has to walk over the blocks where
# they lie. A softmax seems to need all scores at once, but it does not. Keep three things for each query: the largest score so far $m$, the
# sum of weights $\ell$, and the weighted sum of values $a$. When a block brings scores $s$ and values $v$,
#
# $$m' = \max(m, \max s), \qquad \ell' = e^{m - m'} \ell + \textstyle\sum e^{s - m'}, \qquad a' = e^{m - m'} a + \textstyle\sum e^{s - m'} v,$$
#
# and at the end the answer is $a / \ell$. What was summed under an old maximum is scaled down to the new one. This **online softmax** is the
# heart of FlashAttention, too.
#
# ### Task 8 · Paged attention
# *10 points · 20 minutes · ●●●○*
#
# One query a sequence (decode), sequences of all lengths in one batch. Slots beyond a sequence's length hold *anything*, even NaN: memory
# is not cleared. Mind that $0 \cdot \text{NaN}$ is NaN. And hold no more than a few blocks a sequence at a time; a test looks at the peak.

# %%
lk.predict("paged")


# %% nbgrader={"grade": false, "grade_id": "paged", "locked": false, "schema_version": 3, "solution": true, "task": false}
def paged_attention(q, keys, values, tables, lengths):
    """Attention of one query a sequence over its blocks, one block after another.

    q [B, H, h]; keys, values [all blocks, block, K, h]; tables: int64 [B, most blocks], rows padded with
    −1; lengths: int64 [B], each from 1 up. Query head i looks at key-value head i // (H / K).
    Returns [B, H, h].
    """
    ### BEGIN SOLUTION
    sequences, heads, width = q.shape
    block, kv_heads = keys.shape[1:3]
    grouped = q.view(sequences, kv_heads, heads // kv_heads, width) / width**0.5
    largest = torch.full_like(grouped[..., 0], float("-inf"))
    total, mixed = torch.zeros_like(largest), torch.zeros_like(grouped)
    for j in range(tables.shape[1]):
        here = torch.nonzero(lengths > j * block).flatten()  # the sequences that reach into their block number j
        filled = j * block + torch.arange(block, device=q.device) < lengths[here, None]
        key, value = keys[tables[here, j]], values[tables[here, j]]
        score = torch.einsum("bkgh,bskh->bkgs", grouped[here], key).masked_fill(~filled[:, None, None], float("-inf"))
        now = torch.maximum(largest[here], score.amax(-1))
        shrink, weight = (largest[here] - now).exp(), (score - now[..., None]).exp()
        value = value.masked_fill(~filled[:, :, None, None], 0.0)  # 0 · NaN would be NaN
        total[here] = total[here] * shrink + weight.sum(-1)
        mixed[here] = mixed[here] * shrink[..., None] + torch.einsum("bkgs,bskh->bkgh", weight, value)
        largest[here] = now
    return (mixed / total[..., None]).view(sequences, heads, width)
    ### END SOLUTION


# %% nbgrader={"grade": false, "grade_id": "paged_batch", "locked": true, "schema_version": 3, "solution": false, "task": false}
def scattered(lengths, heads, kv_heads, width, block, seed, dtype=torch.float32, device="cpu"):
    """A random decode batch: q, keys, values, tables, lengths.

    Blocks lie in random order, and every slot that no token has is NaN.
    """
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-length // block) for length in lengths]
    order = torch.randperm(sum(needed) + 3, generator=generator).tolist()
    keys, values = (torch.full((len(order), block, kv_heads, width), float("nan")) for _ in range(2))
    tables = torch.full((len(lengths), max(needed)), -1)
    for row, length in enumerate(lengths):
        for j in range(needed[row]):
            tables[row, j] = order.pop()
            filled = min(block, length - j * block)
            for cache in (keys, values):
                cache[tables[row, j], :filled] = torch.randn(filled, kv_heads, width, generator=generator)
    q = 2 * torch.randn(len(lengths), heads, width, generator=generator)
    batch = [x.to(device, dtype) for x in (q, keys, values)]
    return *batch, tables.to(device), torch.tensor(lengths, device=device)


# %% nbgrader={"grade": true, "grade_id": "paged_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
q, keys, values, tables, lengths_ = scattered([5, 1, 8], heads=4, kv_heads=2, width=8, block=4, seed=0)
got = paged_attention(q, keys, values, tables, lengths_)
for row, length in enumerate(lengths_.tolist()):
    k, v = (cache[tables[row, : -(-length // 4)]].flatten(0, 1)[:length].transpose(0, 1) for cache in (keys, values))
    want = torch.nn.functional.scaled_dot_product_attention(q[row, :, None], k, v, enable_gqa=True)[:, 0]
    lk.checks.expect_close(got[row], want, rtol=1e-4, atol=1e-5, name=f"sequence {row} of {length} tokens, in blocks of 4")
### BEGIN HIDDEN TESTS
for lengths_, heads, kv_heads, width, block in [
    ([1], 1, 1, 4, 16),
    ([16, 17, 15, 33], 8, 4, 32, 16),  # around the edge of a block
    ([7, 50, 3], 6, 1, 5, 3),  # all heads share one; nothing is a power of two
    ([2, 9, 4, 4], 3, 3, 8, 1),
]:
    batch = scattered(lengths_, heads, kv_heads, width, block, seed=sum(lengths_))
    q, keys, values, tables, _ = (x.double().numpy() for x in batch)
    want = np.zeros(q.shape)
    for row, length in enumerate(lengths_):
        for i in range(heads):
            slots = [(int(tables[row, p // block]), p % block, i // (heads // kv_heads)) for p in range(length)]
            scores = np.array([keys[s] @ q[row, i] for s in slots]) / np.sqrt(width)
            weights = np.exp(scores - scores.max())
            want[row, i] = sum(w * values[s] for w, s in zip(weights, slots)) / weights.sum()
    got = paged_attention(*(x.clone() for x in batch))
    lk.checks.expect_close(got, want, rtol=1e-4, atol=1e-5, name=f"lengths {lengths_}, {heads} heads over {kv_heads}, blocks of {block}")
big = [x.clone() for x in scattered([40, 21], 2, 2, 8, 8, seed=3)]
big[0] *= 60.0  # scores in the hundreds: without a running maximum the exponentials overflow
k, v = (gathered[big[3][0]].flatten(0, 1).transpose(0, 1).double() for gathered in big[1:3])
want = torch.nn.functional.scaled_dot_product_attention(big[0][0, :, None].double(), k, v)[:, 0]
lk.checks.expect_close(paged_attention(*big)[0], want, rtol=1e-3, atol=1e-4, name="scores in the hundreds")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "paged_test_peak", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# the keys of the longer sequence are 41 MB and its values as much again; those of one block of both sequences are 4 MB
batch = scattered([40_000, 100], heads=4, kv_heads=2, width=128, block=1024, seed=1)
got = lk.checks.expect_peak(paged_attention, *batch, at_most_bytes=10_000_000, name="paged_attention")
lk.checks.expect_equal(list(got.shape), [2, 4, 128], name="shape of the result")
lk.checks.expect_equal(bool(got.isfinite().all()), True, name="the result is finite")
### BEGIN HIDDEN TESTS
k, v = (cache[batch[3][0]].flatten(0, 1)[:40_000].transpose(0, 1) for cache in batch[1:3])
want = torch.nn.functional.scaled_dot_product_attention(batch[0][0, :, None], k, v, enable_gqa=True)[:, 0]
lk.checks.expect_close(got[0], want, rtol=1e-4, atol=1e-5, name="the sequence of 40,000 tokens")
### END HIDDEN TESTS

# %% [markdown]
# ### Task 9 · The kernel
# *10 points · 20 minutes · ●●●●*
#
# Now the same walk in Triton. One program takes one sequence and *one key-value head, with all query heads that share it*: then every key
# and value is loaded exactly once. That is what grouped heads are for. A program that took a query head each would load them `H / K` times.
# Decode is memory bound, so the bytes are the time, and bytes are what is graded: exactly those of the tokens that are there.
#
# `tl.sum(a[:, None, :] * b[None, :, :], axis=2)` is a small matrix product that accepts any size.

# %%
lk.predict("paged_kernel")


# %% nbgrader={"grade": false, "grade_id": "paged_kernel", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def paged_decode(
    q, keys, values, tables, lengths, out, scale, most_blocks,
    H: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):
    """Launched on a grid of (B, K) programs: program (b, k) makes out[b, i] for the H / K query heads i of
    key-value head k.

    q, out [B, H, WIDTH]; keys, values [all blocks, BLOCK, K, WIDTH]; tables [B, most_blocks]; lengths [B];
    all contiguous, out in fp32. Scores are multiplied by `scale`. H / K, WIDTH and BLOCK are powers of two.
    Accumulate in fp32. Load only slots that hold a token.
    """
    ### BEGIN SOLUTION
    row, shared = tl.program_id(0), tl.program_id(1)
    heads = shared * (H // K) + tl.arange(0, H // K)
    lanes = tl.arange(0, WIDTH)
    offsets = tl.arange(0, BLOCK)
    at = (row * H + heads)[:, None] * WIDTH + lanes[None, :]
    query = tl.load(q + at).to(tl.float32) * scale
    length = tl.load(lengths + row)
    largest = tl.full([H // K], float("-inf"), dtype=tl.float32)
    total = tl.zeros([H // K], dtype=tl.float32)
    mixed = tl.zeros([H // K, WIDTH], dtype=tl.float32)
    for j in range(tl.cdiv(length, BLOCK)):
        block = tl.load(tables + row * most_blocks + j).to(tl.int64)  # a pool may have more than 2^31 numbers
        filled = j * BLOCK + offsets < length
        slots = ((block * BLOCK + offsets) * K + shared)[:, None] * WIDTH + lanes[None, :]
        key = tl.load(keys + slots, mask=filled[:, None], other=0.0).to(tl.float32)
        value = tl.load(values + slots, mask=filled[:, None], other=0.0).to(tl.float32)
        score = tl.sum(query[:, None, :] * key[None, :, :], axis=2)
        score = tl.where(filled[None, :], score, float("-inf"))
        now = tl.maximum(largest, tl.max(score, axis=1))
        shrink = tl.exp(largest - now)
        weight = tl.exp(score - now[:, None])
        total = total * shrink + tl.sum(weight, axis=1)
        mixed = mixed * shrink[:, None] + tl.sum(weight[:, :, None] * value[None, :, :], axis=1)
        largest = now
    tl.store(out + at, mixed / total[:, None])
    ### END SOLUTION


# %% nbgrader={"grade": false, "grade_id": "paged_kernel_launch", "locked": true, "schema_version": 3, "solution": false, "task": false}
def traced_decode(lengths, heads, kv_heads, width, block, seed, dtype=torch.float16):
    """Run the kernel under the tracer on a scattered batch.

    Returns its output, what it should be (float64), and the trace.
    """
    q, keys, values, tables, lengths_ = scattered(lengths, heads, kv_heads, width, block, seed, dtype)
    out = torch.full(q.shape, float("nan"))
    trace = lk.triton_trace.trace(paged_decode)[(len(lengths), kv_heads)](
        q, keys, values, tables, lengths_, out, width**-0.5, tables.shape[1], H=heads, K=kv_heads, WIDTH=width, BLOCK=block
    )
    right = []
    for row, length in enumerate(lengths):
        k, v = (cache[tables[row, : -(-length // block)]].flatten(0, 1)[:length].transpose(0, 1).double() for cache in (keys, values))
        right.append(torch.nn.functional.scaled_dot_product_attention(q[row, :, None].double(), k, v, enable_gqa=True)[:, 0])
    return out, torch.stack(right), trace


# %% nbgrader={"grade": true, "grade_id": "paged_kernel_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
out, right, trace = traced_decode([5, 1, 8], heads=4, kv_heads=2, width=16, block=4, seed=0)
lk.checks.expect_close(out, right, rtol=1e-3, atol=1e-3, name="out")
lk.checks.expect_no_findings(trace)
### BEGIN HIDDEN TESTS
for lengths_, heads, kv_heads, width, block in [([16, 17, 33], 8, 4, 32, 16), ([1], 1, 1, 16, 16), ([3, 30], 8, 1, 16, 8), ([9, 2], 2, 2, 8, 1)]:
    out, right, trace = traced_decode(lengths_, heads, kv_heads, width, block, seed=sum(lengths_))
    lk.checks.expect_close(out, right, rtol=1e-3, atol=1e-3, name=f"lengths {lengths_}, {heads} heads over {kv_heads}, blocks of {block}")
    lk.checks.expect_no_findings(trace)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "paged_kernel_test_bytes", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
lengths_ = [21, 4, 40]
out, right, trace = traced_decode(lengths_, heads=8, kv_heads=2, width=16, block=8, seed=1)
lk.checks.expect_close(out, right, rtol=1e-3, atol=1e-3, name="out")
lk.checks.expect_no_findings(trace)
for array in ("keys", "values"):  # each token's, once, and nothing else: 2 heads of 16 numbers of 2 bytes
    lk.checks.expect_traffic(trace, array, loaded_bytes=sum(lengths_) * 2 * 16 * 2)
### BEGIN HIDDEN TESTS
lk.checks.expect_traffic(trace, "out", stored_bytes=3 * 8 * 16 * 4, loaded_bytes=0)
lk.checks.expect_traffic(trace, "tables", at_most_loaded_elements=2 * 2 * (3 + 1 + 5))  # for keys and for values, in both programs of a row
### END HIDDEN TESTS

# %%
with lk.picture("Each byte of the cache is worth as many FLOPs as heads share it: grouped heads are decode attention's only way up the roof."):
    placed = []
    for kv_heads in (8, 2, 1):
        _, _, trace = traced_decode([64, 40], heads=8, kv_heads=kv_heads, width=32, block=16, seed=2)
        work = lk.Work(4.0 * 8 * 32 * 104, trace.work.bytes_read, trace.work.bytes_written, dtype="bfloat16", name=f"8 heads over {kv_heads}")
        print(f"{work.name}: {work.bytes_read:9,.0f} bytes read, {work.intensity:.1f} FLOP/B")
        placed.append(work)
    lk.show(roof.plotly(placed), summary="Roofline with three decode kernels, all memory bound; fewer key-value heads stand further right.")

# %% [markdown]
# ## Part 5 · Who goes next
#
# A batch that starts together ends with its longest answer, and everybody else's place stays empty meanwhile. **Continuous batching** decides
# anew before every pass: whoever is done leaves, whoever waits comes in, as long as there are blocks.
#
# But nobody knows how long an answer will be. So admit while the prompt fits, and when running sequences need a block and there is none,
# **preempt**: the *youngest* gives back all its blocks and waits at the front of the queue. It keeps its words. When it comes back, prompt and words
# so far go through the model in one prefill, and the next word comes out as if nothing had happened.
#
# ### Task 10 · The scheduler
# *12 points · 30 minutes · ●●●●*
#
# `step()` plans one pass, in two parts:
#
# 1. **Everybody who runs**, oldest first, gets a slot for its newest token, which goes through the model now. If there is no block for it,
#    preempt the youngest who runs, again and again if need be. That can be the very one who asks.
# 2. **Whoever waits**, in order of arrival, comes in as long as the pool has blocks for *all* its tokens. The first who does not fit ends it:
#    nobody overtakes. After a preemption nobody comes in at this step, or it would take the blocks that the next token needs.
#
# Oldest first, youngest out: so the oldest always gets on, and nobody waits forever.

# %% nbgrader={"grade": false, "grade_id": "scheduler_records", "locked": true, "schema_version": 3, "solution": false, "task": false}
class Entry(NamedTuple):
    """One sequence's part in a pass."""

    name: str
    tokens: list  # that go through the model now: one word, or all of them after a start or a preemption
    past: int  # tokens that its blocks hold already
    blocks: list  # its block table, with room for past + len(tokens)


@dataclass
class Job:
    """The scheduler's record of a request."""

    name: str
    prompt: list
    new_tokens: int  # how many are wanted
    table: object  # its BlockTable, empty while it waits
    produced: list = field(default_factory=list)

    @property
    def tokens(self):
        """Everything the model has to know to go on."""
        return self.prompt + self.produced


# %%
lk.predict("scheduler")


# %% nbgrader={"grade": false, "grade_id": "scheduler", "locked": false, "schema_version": 3, "solution": true, "task": false}
class Scheduler:
    """Continuous batching under a budget of blocks.

    Attributes: pool, block, waiting and running (Jobs, oldest first).
    """

    def __init__(self, blocks, block):
        self.pool, self.block = BlockPool(blocks), block
        self.blocks = blocks
        self.waiting, self.running = collections.deque(), []

    def submit(self, name, prompt, new_tokens):
        """A request joins the end of the queue; ValueError if all blocks together could not hold it.

        The last token that it produces never enters the cache, so it needs room for len(prompt) +
        new_tokens − 1.
        """
        ### BEGIN SOLUTION
        needed = blocks_for(len(prompt) + new_tokens - 1, self.block)
        if needed > self.blocks:
            raise ValueError(f"{name} needs {needed} blocks and there are {self.blocks}")
        self.waiting.append(Job(name, list(prompt), new_tokens, BlockTable(self.pool, self.block)))
        ### END SOLUTION

    def step(self):
        """Plan one pass: a list of Entry, oldest first, for everybody who runs now; empty when there is nothing to do."""
        ### BEGIN SOLUTION
        plan, preempted = [], False
        for job in list(self.running):
            while job in self.running:
                try:
                    job.table.append()
                except OutOfBlocks:
                    youngest = self.running.pop()
                    youngest.table.release()
                    self.waiting.appendleft(youngest)
                    preempted = True
                else:
                    plan.append(Entry(job.name, job.tokens[-1:], job.table.length - 1, list(job.table.blocks)))
                    break
        while self.waiting and not preempted:
            job = self.waiting[0]
            if blocks_for(len(job.tokens), self.block) > self.pool.free:
                break
            self.running.append(self.waiting.popleft())
            for _ in job.tokens:
                job.table.append()
            plan.append(Entry(job.name, job.tokens, 0, list(job.table.blocks)))
        return plan
        ### END SOLUTION

    def accept(self, name, token):
        """The model's next token for a request that runs.

        With its last one it leaves and gives back its blocks.
        """
        ### BEGIN SOLUTION
        job = next(job for job in self.running if job.name == name)
        job.produced.append(token)
        if len(job.produced) == job.new_tokens:
            self.running.remove(job)
            job.table.release()
        ### END SOLUTION


# %% [markdown]
# The next cell serves requests with your scheduler and holds it to its promises at every step. Instead of a model it has a memory of plain
# numbers, one token a slot, exactly where your tables say. The "model" reads its context back from there; if two sequences
# shared a block, or a word got lost, it would read something else, and the cell says so.

# %% nbgrader={"grade": false, "grade_id": "scheduler_drive", "locked": true, "schema_version": 3, "solution": false, "task": false}
def next_word(context):
    """A stub of a model: a number that depends on every token of the context and on their order."""
    return int.from_bytes(hashlib.sha256(str(list(context)).encode()).digest()[:2], "little")


class Slots:
    """Memory of blocks x block tokens, written and read through block tables; `run` is a pass of the stub over a plan."""

    def __init__(self, blocks, block):
        self.block, self.slots = block, np.full((blocks, block), -1)

    def run(self, plan):
        for _, tokens, past, blocks in plan:
            for position, token in enumerate(tokens, start=past):
                self.slots[blocks[position // self.block], position % self.block] = token
        return {
            name: next_word(int(self.slots[blocks[p // self.block], p % self.block]) for p in range(past + len(tokens)))
            for name, tokens, past, blocks in plan
        }


def serve(scheduler, requests, blocks, block, run):
    """Submit (name, arrival step, prompt, new tokens), sorted by arrival, and step until all are served.

    run(plan) -> {name: next token}. Returns what each was given, and the plan of every step. Fails at the
    first broken promise.
    """
    tokens, left = {name: list(prompt) for name, _, prompt, _ in requests}, {name: new for name, _, _, new in requests}
    order, coming, plans, before = [], collections.deque(requests), [], {}
    while coming or any(left[name] for name in order):
        step = len(plans)
        while coming and coming[0][1] <= step:
            name, _, prompt, new = coming.popleft()
            scheduler.submit(name, list(prompt), new)
            order.append(name)
        plan = [Entry(*entry) for entry in scheduler.step()]
        plans.append(plan)
        names, unfinished = [entry.name for entry in plan], [name for name in order if left[name]]
        assert names == unfinished[: len(names)], f"step {step}: {names} run, but in order of arrival these wait: {unfinished}"
        assert names or not unfinished, f"step {step}: nobody runs, and {unfinished[0]}, the oldest, waits"
        given = [b for entry in plan for b in entry.blocks]
        double = [b for b, count in collections.Counter(given).items() if count > 1]
        assert not double, f"step {step}: block {double[0]} is in the tables of {[e.name for e in plan if double[0] in e.blocks]}"
        assert all(0 <= b < blocks for b in given), f"step {step}: blocks {sorted(set(given))} of a pool of {blocks}"
        free = scheduler.pool.free
        assert free == blocks - len(given), f"step {step}: {len(given)} of {blocks} blocks are in tables, and {free} are free"
        for name, new, past, table in plan:
            text, cached = tokens[name], before.get(name, 0)
            assert past == cached, f"step {step}: {name} has {cached} tokens in its blocks, the plan says {past}"
            assert list(new) == text[past:], f"step {step}: {name} must compute {text[past:]} after {past} tokens, got {list(new)}"
            assert len(table) == -(-len(text) // block), f"step {step}: {len(text)} tokens of {name} in {len(table)} blocks of {block}"
        out = [name for name in before if left[name] and name not in names]
        if out:  # the longest-waiting of those who had to go must really not have fitted
            needed = sum(-(-len(tokens[name]) // block) for name in unfinished[: len(names) + 1])
            assert needed > blocks, f"step {step}: {out[0]} was preempted although {needed} of {blocks} blocks would do"
            assert not [n for n in names if n not in before], f"step {step}: somebody came in while {out} had to go"
        elif len(names) < len(unfinished):
            waits = unfinished[len(names)]
            needed = -(-len(tokens[waits]) // block)
            assert needed > free, f"step {step}: {waits} waits although it needs {needed} blocks and {free} are free"
        said = run(plan) if plan else {}  # empty while nobody has come
        before = {entry.name: len(tokens[entry.name]) for entry in plan}
        for name in names:
            tokens[name].append(said[name])
            scheduler.accept(name, said[name])
            left[name] -= 1
            if not left[name]:
                del before[name]
    assert scheduler.pool.free == blocks, f"all are served, and {blocks - scheduler.pool.free} blocks have leaked"
    return {name: tokens[name][len(prompt) :] for name, _, prompt, _ in requests}, plans


# %% nbgrader={"grade": true, "grade_id": "scheduler_test", "locked": true, "points": 9, "schema_version": 3, "solution": false, "task": false}
# six blocks of two tokens: both fit at first, then b has to go, and comes back with its words
requests = [("a", 0, [1, 2, 3], 5), ("b", 0, [4, 5], 7), ("c", 3, [6], 2)]
said, plans = serve(Scheduler(6, 2), requests, 6, 2, Slots(6, 2).run)
lk.checks.expect_equal([entry.name for entry in plans[0]], ["a", "b"], name="who runs in step 0")
for name, _, prompt_, new in requests:
    context = list(prompt_)
    for _ in range(new):
        context.append(next_word(context))
    lk.checks.expect_equal(said[name], context[len(prompt_) :], name=f"the words of {name}")
lk.checks.expect_raises(ValueError, Scheduler(6, 2).submit, "too long", [1] * 12, 2)
### BEGIN HIDDEN TESTS
Scheduler(6, 2).submit("just right", [1] * 12, 1)
lk.checks.expect_equal(len(Scheduler(3, 2).step()), 0, name="entries of a plan when nothing is asked")
rng = np.random.default_rng(810)
for blocks, block, many in [(1, 4, 3), (5, 1, 8), (8, 2, 12), (12, 4, 15), (40, 3, 20)]:
    arrivals = np.sort(rng.integers(0, 30, many)).tolist()
    requests = []
    for n, at in enumerate(arrivals):
        room = blocks * block
        prompt_ = rng.integers(0, 50, int(rng.integers(1, room // 2 + 2))).tolist()
        requests.append((f"r{n}", at, prompt_, int(rng.integers(1, max(2, room - len(prompt_) + 2)))))
    said, plans = serve(Scheduler(blocks, block), requests, blocks, block, Slots(blocks, block).run)
    for name, _, prompt_, new in requests:
        context = list(prompt_)
        for _ in range(new):
            context.append(next_word(context))
        lk.checks.expect_equal(said[name], context[len(prompt_) :], name=f"the words of {name}, {many} requests on {blocks} blocks of {block}")
    # the oldest gets a token at every step, so this many steps always do
    assert len(plans) <= 30 + sum(new for *_, new in requests), f"{len(plans)} steps: the oldest request stood still"
### END HIDDEN TESTS

# %%
with lk.picture("Each row is a block of memory, each colour a request. A colour that breaks off and comes back was preempted."):
    rng = np.random.default_rng(seed)
    requests = [(f"r{n}", 3 * n, rng.integers(0, 99, int(rng.integers(4, 30))).tolist(), int(rng.integers(10, 40))) for n in range(10)]
    said, plans = serve(Scheduler(16, 4), requests, 16, 4, Slots(16, 4).run)
    owner = np.full((16, len(plans)), np.nan)
    for step, plan in enumerate(plans):
        for entry in plan:
            owner[entry.blocks, step] = int(entry.name[1:])
    prefills = sum(1 for plan in plans for entry in plan if entry.past == 0)
    print(f"{len(plans)} steps, {len(requests)} requests, {prefills - len(requests)} preemptions, {100 * np.isfinite(owner).mean():.0f} % of block-steps in use")
    palette = ["#2a7fbf", "#cc5a00", "#0b8f70", "#a9609c", "#8a7000", "#7a6fd0", "#c0504d", "#4f9da6", "#9a8c5a", "#d08770"]
    colors = [[at, color] for n, color in enumerate(palette) for at in (n / 10, (n + 1) / 10)]
    figure = go.Figure(go.Heatmap(z=owner, zmin=-0.5, zmax=9.5, colorscale=colors, ygap=1, colorbar={"title": "request", "dtick": 1}))
    figure.update_layout(height=340, xaxis_title="step", yaxis_title="block")
    lk.show(figure, summary="A map of sixteen blocks over time, coloured by the request that holds each; several requests are preempted and return.")

# %% [markdown]
# ### Your engine, a real model
#
# Everything is there now: pool, tables, attention over blocks, a scheduler. The next cell is the language model's own forward pass with its
# cache taken out and your functions put in. All tokens of a pass, of prompts and of single words alike, go through the weights as *one*
# long batch; only attention knows who is who.


# %% nbgrader={"grade": false, "grade_id": "scheduler_engine", "locked": true, "schema_version": 3, "solution": false, "task": false}
class PagedModel:
    """The language model over blocks: its keys and values lie where block tables say, and your functions attend over them."""

    def __init__(self, model, blocks, block):
        c = model.config
        self.model, self.block = model, block
        self.keys, self.values = (torch.full((c.layers, blocks, block, c.kv_heads, c.head_width), float("nan")) for _ in range(2))

    def run(self, plan):
        """The likeliest next token of every entry."""
        at = [range(past, past + len(tokens)) for _, tokens, past, _ in plan]
        block = torch.tensor([entry.blocks[p // self.block] for entry, places in zip(plan, at) for p in places])
        offset = torch.tensor([p % self.block for places in at for p in places])
        angles = rotary_angles(self.model.config, torch.tensor([p for places in at for p in places]))
        ends = np.cumsum([len(places) for places in at]).tolist()
        x = self.model.model.embed_tokens(torch.tensor([token for entry in plan for token in entry.tokens]))
        for number, layer in enumerate(self.model.model.layers):
            y, attention = layer.input_layernorm(x), layer.self_attn
            q, k, v = (each(y).unflatten(-1, (-1, self.model.config.head_width)).transpose(0, 1) for each in (attention.q_proj, attention.k_proj, attention.v_proj))
            q, k = rotate(q, *angles), rotate(k, *angles)  # [heads, tokens, h]
            self.keys[number][block, offset], self.values[number][block, offset] = k.transpose(0, 1), v.transpose(0, 1)
            mixed = self._attend(plan, ends, q, self.keys[number], self.values[number])
            x = x + attention.o_proj(mixed.transpose(0, 1).flatten(1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits = self.model.lm_head(self.model.model.norm(x[[end - 1 for end in ends]]))
        return dict(zip([entry.name for entry in plan], logits.argmax(-1).tolist()))

    def _attend(self, plan, ends, q, keys, values):
        mixed = torch.empty_like(q)
        words = [n for n, entry in enumerate(plan) if len(entry.tokens) == 1]
        if words:
            widest = max(len(plan[n].blocks) for n in words)
            tables = torch.tensor([list(plan[n].blocks) + [-1] * (widest - len(plan[n].blocks)) for n in words])
            lengths = torch.tensor([plan[n].past + 1 for n in words])
            last = [ends[n] - 1 for n in words]
            mixed[:, last] = paged_attention(q[:, last].transpose(0, 1), keys, values, tables, lengths).transpose(0, 1)
        for n, (_, tokens, past, blocks) in enumerate(plan):
            if len(tokens) > 1:
                new, total = slice(ends[n] - len(tokens), ends[n]), past + len(tokens)
                mixed[:, new] = attend(q[:, new], gather(keys, list(blocks), total), gather(values, list(blocks), total))
        return mixed


prompts = ["\ndef read(self, size=-1):\n", "import os\nimport sys\n", "class Error(Exception):\n"]
prompts += ["    for line in lines:\n        if", "try:\n    ", "    return self."]
questions = [(f"q{n}", 2 * n, tokenizer.encode(prompt), 12 + 4 * n) for n, prompt in enumerate(prompts)]

# %% nbgrader={"grade": true, "grade_id": "scheduler_test_model", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# fourteen blocks of four tokens, so that some have to go and come back; each must write what the model writes for it alone
said, plans = serve(Scheduler(14, 4), questions, 14, 4, PagedModel(model, 14, 4).run)
for name, _, prompt_, new in questions:
    lk.checks.expect_equal(said[name], list(lm.generate(model, prompt_, new)), name=f"the words of {name}")

# %%
with lk.picture("Your blocks, your attention, your scheduler, and word for word the text that the model writes by itself."):
    said, plans = serve(Scheduler(14, 4), questions, 14, 4, PagedModel(model, 14, 4).run)
    prefills = sum(1 for plan in plans for entry in plan if entry.past == 0)
    alone = sum(new for *_, new in questions)
    print(f"{alone} words in {len(plans)} passes in place of {alone}, with {prefills - len(questions)} preemptions\n")
    for name, _, prompt_, _ in questions[:3]:
        print(f"--- {name}\n{tokenizer.decode(prompt_ + said[name])}\n")

# %% [markdown]
# ## Part 6 · What users feel
#
# Tokens a second are the operator's number. A user feels two others: how long until the first word comes, **TTFT** (time to first token), and how
# fast the rest follows, **TPOT** (time per output token). A service promises limits for both, and **goodput** counts only the
# requests for which both were kept.
#
# ### Task 11 · TTFT, TPOT, goodput
# *5 points · 8 minutes · ●○○○*

# %%
lk.predict("latency")


# %% nbgrader={"grade": false, "grade_id": "latency", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ttft_tpot(arrival, times):
    """(TTFT, TPOT) in seconds of a request that arrived at `arrival` and whose tokens came at `times`
    (ascending, at least one).

    TPOT is the mean gap between one token and the next; 0.0 when there is only one token.

    >>> ttft_tpot(1.0, [3.0, 3.5, 4.0])
    (2.0, 0.5)
    """
    ### BEGIN SOLUTION
    gaps = len(times) - 1
    return times[0] - arrival, (times[-1] - times[0]) / gaps if gaps else 0.0
    ### END SOLUTION


def goodput(arrivals, token_seconds, most_ttft, most_tpot):
    """Requests a second that kept both limits, from the first arrival to the last token of all.

    arrivals: {name: seconds}; token_seconds: {name: [seconds, ...]}. A limit that is just met is kept.
    """
    ### BEGIN SOLUTION
    kept = 0
    for name, times in token_seconds.items():
        ttft, tpot = ttft_tpot(arrivals[name], times)
        kept += ttft <= most_ttft and tpot <= most_tpot
    return kept / (max(times[-1] for times in token_seconds.values()) - min(arrivals.values()))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "latency_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
ttft, tpot = ttft_tpot(1.0, [3.0, 3.5, 4.0])
lk.checks.expect_close(ttft, 2.0, rtol=1e-9, name="TTFT of a request that came at 1 s, and its tokens at 3, 3.5 and 4 s")
lk.checks.expect_close(tpot, 0.5, rtol=1e-9, name="its TPOT")
arrivals = {"a": 1.0, "b": 2.0}
came = {"a": [3.0, 3.5, 4.0], "b": [2.25, 5.0]}
lk.checks.expect_close(goodput(arrivals, came, most_ttft=2.0, most_tpot=0.5), 1 / 4, rtol=1e-9, name="goodput: a keeps both limits, b is too slow")
### BEGIN HIDDEN TESTS
lk.checks.expect_close(ttft_tpot(0.5, [0.75]), (0.25, 0.0), rtol=1e-9, name="TTFT and TPOT of one token")
lk.checks.expect_close(ttft_tpot(0.0, [1.0, 1.0, 1.0, 7.0]), (1.0, 2.0), rtol=1e-9, name="TTFT and TPOT of uneven gaps")
rng = np.random.default_rng(811)
for most_ttft, most_tpot in [(0.5, 0.1), (0.05, 9.0), (9.0, 0.02), (9.0, 9.0)]:
    arrivals = {f"r{n}": float(at) for n, at in enumerate(10 + rng.random(30))}
    came = {name: (at + np.cumsum(rng.random(int(rng.integers(1, 9))) * 0.3)).tolist() for name, at in arrivals.items()}
    good = 0
    for name, at in arrivals.items():
        gaps = np.diff(came[name])
        good += bool(came[name][0] - at <= most_ttft and (gaps.size == 0 or gaps.mean() <= most_tpot))
    span = max(max(times) for times in came.values()) - min(arrivals.values())
    lk.checks.expect_close(float(goodput(arrivals, came, most_ttft, most_tpot)), good / span, rtol=1e-9, atol=1e-12, name=f"goodput with TTFT up to {most_ttft} and TPOT up to {most_tpot}")
### END HIDDEN TESTS

# %% [markdown]
# Now three designs under load, with the same 2.1 GB of cache (16,384 tokens) for Llama 3 8B on an H100: places of 512 tokens in
# batches that start and end together; the same places under your scheduler; your scheduler with blocks of 16. The time of a pass is
# that of your Task 2 on the datasheet's roofline. It is a model and nothing is measured, but all three are judged by it. Promised are a
# TTFT of at most 1 s and a TPOT of at most 20 ms.


# %%
def simulate(requests, arrivals, block, continuous=True, slots=16_384):
    """Token times {name: [seconds]} of `requests` [(name, prompt length, new tokens)], sorted by arrival, on the virtual H100."""
    now, times, left = 0.0, {name: [] for name, *_ in requests}, {name: new for name, _, new in requests}
    scheduler, coming = Scheduler(slots // block, block), collections.deque(requests)
    while any(left.values()):
        # static: nobody comes in before all have left
        while coming and arrivals[coming[0][0]] <= now and (continuous or not scheduler.running and len(scheduler.waiting) < slots // block):
            name, prompt_tokens, new = coming.popleft()
            scheduler.submit(name, [0] * prompt_tokens, new)
        plan = scheduler.step()
        if not plan:
            now = arrivals[coming[0][0]]
            continue
        works = [step_work(llama, 1, entry.past, len(entry.tokens)) for entry in plan]
        twice = (len(works) - 1) * 2 * matrix_weights(llama)  # the pass reads the weights once for all
        read, written = sum(work.bytes_read for work in works) - twice, sum(work.bytes_written for work in works)
        now += seconds(lk.Work(sum(work.flops for work in works), read, written, dtype="bfloat16"))
        for entry in plan:
            times[entry.name].append(now)
            left[entry.name] -= 1
            scheduler.accept(entry.name, 0)
    return times


with lk.picture("A batch that starts together lets everybody wait. Continuous batching fills empty places, and paging makes more of them."):
    many = 100 if smoke else 240
    order = np.random.default_rng(seed + 1).integers(0, len(lengths), many)
    requests = [(f"r{n}", int(asked[i]), int(answered[i])) for n, i in enumerate(order)]
    gaps = np.random.default_rng(seed + 2).exponential(1.0, many)
    rates = [20, 60] if smoke else [5, 10, 20, 40, 60, 80, 100]
    designs = {"static batches, places of 512": (512, False), "continuous, places of 512": (512, True), "continuous, blocks of 16": (16, True)}
    figure = go.Figure()
    for name, (block, continuous) in designs.items():
        points = []
        for rate in rates:
            arrivals = dict(zip([name for name, *_ in requests], (np.cumsum(gaps) / rate).tolist()))
            points.append(goodput(arrivals, simulate(requests, arrivals, block, continuous), most_ttft=1.0, most_tpot=0.02))
        print(f"{name:30s} " + "  ".join(f"{rate}/s: {good:4.1f}" for rate, good in zip(rates, points)))
        figure.add_scatter(x=rates, y=points, mode="lines+markers", name=name)
    figure.update_layout(height=320, xaxis_title="requests that arrive in a second", yaxis_title="goodput, requests a second")
    lk.show(figure, summary="Goodput against the arrival rate for three designs: static batches fall off first, blocks of sixteen last.")

# %% [markdown]
# ## Part 7 · Several tokens from one pass
#
# Decode at a small batch leaves the arithmetic idle: a pass over five tokens reads the same weights as a pass over one. **Speculative decoding** uses
# it. A cheap *draft* model proposes $k$ tokens; the target model looks at all of them in one pass and knows, at each place, its own
# distribution $p$. Which may be kept? If the draft drew token $x$ from $q$,
#
# - keep it with probability $\min(1, p(x) / q(x))$, and go on to the next;
# - at the first that is not kept, draw from what the draft had too little of, $\max(p - q, 0)$, normalised, and stop;
# - if all are kept, draw one more from the target's last distribution: it is there anyway.
#
# The wonder is that the text has *exactly* the distribution of the target, whatever the draft. A bad draft costs time, never quality.
#
# ### Task 12 · Accept or correct
# *6 points · 15 minutes · ●●●○*
#
# So that chance can be tested, it comes as an argument: `uniforms[i]` decides on token $i$ (keep it if `uniforms[i]` is *below* the
# probability), and `uniforms[k]` draws the last token with `pick`.

# %% nbgrader={"grade": false, "grade_id": "speculate_pick", "locked": true, "schema_version": 3, "solution": false, "task": false}
def pick(probabilities, uniform):
    """The token that a uniform number from [0, 1) draws: token t for the t-th stretch of [0, 1), as long as its probability."""
    return int(min(np.searchsorted(np.cumsum(probabilities), uniform, side="right"), np.flatnonzero(probabilities)[-1]))


# %%
lk.predict("speculate")


# %% nbgrader={"grade": false, "grade_id": "speculate", "locked": false, "schema_version": 3, "solution": true, "task": false}
def speculate(drafted, draft, target, uniforms):
    """Return the tokens that one pass of the target makes of k drafted ones: a list of 1 to k + 1.

    drafted: k tokens, drafted[i] drawn from draft[i]; draft [k, V] and target [k + 1, V]: distributions at
    each place, as float64 arrays; uniforms: k + 1 numbers from [0, 1).

    >>> p, q = np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    >>> speculate([0], q, p, [0.4, 0.9]), speculate([0], q, p, [0.6, 0.9])
    ([0, 1], [1])
    """
    ### BEGIN SOLUTION
    kept = []
    for token, q, p, uniform in zip(drafted, draft, target, uniforms):
        if uniform >= min(1.0, p[token] / q[token]):
            missing = np.maximum(p - q, 0.0)
            return [*kept, pick(missing / missing.sum(), uniforms[-1])]
        kept.append(token)
    return [*kept, pick(target[-1], uniforms[-1])]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "speculate_test", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
p, q = np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[1.0, 0.0]])
lk.checks.expect_equal((speculate([0], q, p, [0.4, 0.9]), speculate([0], q, p, [0.6, 0.9])), ([0, 1], [1]), name="one token kept, and one corrected")
### BEGIN HIDDEN TESTS
# exactly: every drafted token with its probability q, every outcome on a fine grid of uniforms; the first token must come out as p
p = np.array([[0.1, 0.45, 0.05, 0.4], [0.25, 0.25, 0.25, 0.25]])
q = np.array([[0.4, 0.3, 0.2, 0.1]])
grid, first, after = (np.arange(40) + 0.5) / 40, np.zeros(4), np.zeros(4)
for token in range(4):
    for u, w in itertools.product(grid, grid):
        got = speculate([token], q, p, [u, w])
        first[got[0]] += q[0, token] / 1600
        if len(got) == 2:
            after[got[1]] += q[0, token] / 1600
lk.checks.expect_close(first, p[0], atol=0.02, name="distribution of the first token (exact up to the grid)")
lk.checks.expect_close(after, 0.6 * p[1], atol=0.02, name="distribution of the second: the draft is kept with probability Σ min(p, q) = 0.6")
# a chi-square test over two places of a longer draft, with a fixed seed
rng = np.random.default_rng(812)
draft, target = rng.dirichlet(np.ones(5), 3), rng.dirichlet(np.ones(5), 4)
seen, places = np.zeros((2, 5)), np.zeros(2)
for _ in range(4000):
    drafted = [int(rng.choice(5, p=row)) for row in draft]
    got = speculate(drafted, draft, target, rng.random(4).tolist())
    assert 1 <= len(got) <= 4, f"one pass gives 1 to k + 1 = 4 tokens, got {len(got)}"
    for place, token in enumerate(got[:2]):
        seen[place, token] += 1
        places[place] += 1
for place in range(2):
    wanted = places[place] * target[place]
    statistic = float(((seen[place] - wanted) ** 2 / wanted).sum())
    # 4 degrees of freedom: beyond 23.5 in one of ten thousand draws (NIST, table of the chi-square distribution: 18.5 in a thousand)
    assert statistic < 23.5, f"token {place + 1} is not drawn from the target: chi-square {statistic:.1f} with 4 degrees of freedom"
alpha = np.minimum(draft, target[:3]).sum(1)  # a place is kept with this probability, and the second exists if the first was kept
assert abs(places[1] / 4000 - alpha[0]) < 0.03, f"the first token was kept {places[1] / 4000:.3f} of the time, expected {alpha[0]:.3f}"
same = rng.dirichlet(np.ones(6), 3)
lk.checks.expect_equal(speculate([1, 4], same[:2], same, [0.999, 0.999, 0.0])[:2], [1, 4], name="a perfect draft is always kept")
### END HIDDEN TESTS

# %% [markdown]
# How often does a real draft agree? Two drafts for our model: itself without its last layer, and itself with its weights rounded to four bits in groups of
# 32 (lab 06), which reads little more than a quarter of the bytes. The probability to keep a token is $\alpha = \sum_x \min(p(x), q(x))$, here averaged over
# unseen text. If that were the same at every place, a pass with $k$ drafted tokens would yield $(1 - \alpha^{k+1}) / (1 - \alpha)$ tokens in
# the mean.

# %%
def agreement(draft, tokens):
    """Mean over positions of Σ min(p, q), the probability that the model keeps the draft's token."""
    p, q = (each(tokens).float().softmax(-1) for each in (model, draft))
    return float(torch.minimum(p, q).sum(-1).mean())


shorter, rounded = copy.deepcopy(model), copy.deepcopy(model)
del shorter.model.layers[-1]
for module in rounded.model.layers.modules():
    if isinstance(module, torch.nn.Linear):
        groups = module.weight.data.unflatten(-1, (-1, 32))
        step_ = groups.abs().amax(-1, keepdim=True) / 7
        module.weight.data = (torch.round(groups / step_) * step_).flatten(-2)
unseen = torch.tensor(text[:2048]).view(8, 256)
ks = list(range(1, 9))
figure = go.Figure()
for name, draft in {"three of four layers": shorter, "four-bit weights": rounded}.items():
    alpha = agreement(draft, unseen)
    tokens_a_pass = [(1 - alpha ** (k + 1)) / (1 - alpha) for k in ks]
    print(f"{name:22s} keeps {100 * alpha:.0f} % of the drafted tokens; four drafted make {tokens_a_pass[3]:.2f} tokens a pass")
    figure.add_scatter(x=ks, y=tokens_a_pass, mode="lines+markers", name=name)
figure.add_scatter(x=ks, y=[k + 1 for k in ks], mode="lines", name="a perfect draft", line={"dash": "dot", "color": GREY})
figure.update_layout(height=320, xaxis_title="drafted tokens", yaxis_title="tokens a pass", yaxis_range=[0, 8])
lk.show(figure, summary="Expected tokens for each pass of the target against the number of drafted tokens, for two drafts.")

# %% [markdown]
# ## The kit's engine, on your pool
#
# `lk.serving.Engine` is an engine of the kind that you have just built, with the parts that a lab has no room for: prompts in chunks, prefix
# reuse, swapping, several answers to one prompt, speculation. It asks of a block pool what Task 4 did, so yours will do. A step takes a virtual
# millisecond here, and requests arrive as they did at your scheduler.

# %%
def requests_for_engine():
    """The six questions, as the kit's engine takes them."""
    return [lk.serving.Request(name, tuple(prompt_), new, arrival_seconds=step / 1000) for name, step, prompt_, new in questions]


def kit_engine(pool):
    """An engine of the kit's on `pool`, with blocks of four tokens; a step takes a virtual millisecond."""
    limits = lk.serving.Limits(reuse_prefixes=False)  # to find blocks again, a pool would have to remember their keys
    return lk.serving.Engine(model, pool=pool, block_size=4, limits=limits, cost=lk.serving.StepCost(1e-3, 0.0))


with lk.picture("The same words in as many passes as yours. Go through the steps: who holds which block, who had to go, who came back."):
    recording = kit_engine(BlockPool(14)).run(requests_for_engine())
    same = sum(list(recording.tokens[name]) == list(lm.generate(model, prompt_, new)) for name, _, prompt_, new in questions)
    evicted = sum(len(step.preempted) for step in recording.steps)
    print(f"{same} of {len(questions)} answers word for word; {len(recording.steps)} passes, {evicted} preemptions")
    display(lk.widgets.block_table(recording))

# %%
with lk.picture("The same run as its users saw it: a wait, the prompt, the words. Move the limits and see who was served in time."):
    recording = kit_engine(BlockPool(14)).run(requests_for_engine())
    for request in recording.requests:
        ttft, tpot = ttft_tpot(request.arrival_seconds, recording.token_seconds[request.id])
        print(f"{request.id}: TTFT {1e3 * ttft:4.1f} ms, TPOT {1e3 * tpot:.2f} ms (virtual)")
    display(lk.widgets.request_timeline(recording))

# %% [markdown]
# With room for everybody nobody is preempted, and with a draft the passes get fewer still. The words stay the same.

# %%
drafts = {"no draft": None, "three of four layers": shorter, "four-bit weights": rounded}
words = {}
for name, small in drafts.items():
    draft = small and lk.serving.ModelDraft(small, guesses=4, cost=lk.serving.StepCost(1e-4, 0.0))
    roomy = lk.serving.Engine(model, blocks=64, draft=draft, cost=lk.serving.StepCost(1e-3, 0.0)).run(requests_for_engine())
    words[name] = {each: list(tokens) for each, tokens in roomy.tokens.items()}
    print(f"{name:22s} {len(roomy.steps)} passes{', the same words' * (draft is not None and words[name] == words['no draft'])}")

# %% [markdown]
# And a library that has never heard of blocks: `transformers` reads the same weights, where it is installed.

# %%
try:
    logging.disable(logging.WARNING)  # it speaks of what it loads and of GPU code that is not for this machine
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging as loading

        loading.disable_progress_bar()
        lm.save(model, tokenizer, Path(folder), torch.float32)
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        written = {
            name: theirs.generate(torch.tensor([prompt_]), max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0)
            for name, _, prompt_, new in questions
        }
    agree = sum(written[name][0, len(prompt_) :].tolist() == words["no draft"][name] for name, _, prompt_, _ in questions)
    print(f"transformers' generate writes the same words in {agree} of {len(questions)} answers")
except ImportError:
    print("transformers is not installed, so there is nothing to compare: pip install transformers shows it.")
finally:
    logging.disable(logging.NOTSET)

# %% [markdown]
# ## On your GPU
#
# Not graded. Where there is a GPU, the next cell runs your kernel compiled, checks it against torch, and times it over a batch of long
# sequences; the figure to look at is the bandwidth. Elsewhere it says why it does nothing.

# %%
device = lk.detect()
if device.kind != "cuda" or device.virtual:
    print(f"Skipped: this needs a CUDA GPU, and here is: {device.label}. Nothing was measured.")
else:
    with lk.picture("Bytes over time: how near to the memory's speed thirty lines of Python get."):
        many = [1024] * 64  # 268 MB of keys and values, more than any cache on the chip
        q, keys, values, tables, lengths_ = scattered(many, 32, 8, 128, BLOCK, seed, torch.float16, "cuda")
        out = torch.empty(q.shape, device="cuda")
        sizes = {"H": 32, "K": 8, "WIDTH": 128, "BLOCK": BLOCK}

        def launch():
            paged_decode[(len(many), 8)](q, keys, values, tables, lengths_, out, 128**-0.5, tables.shape[1], **sizes)

        launch()
        k, v = (cache[tables[0]].flatten(0, 1).transpose(0, 1).double() for cache in (keys, values))
        right = torch.nn.functional.scaled_dot_product_attention(q[0, :, None].double(), k, v, enable_gqa=True)[:, 0]
        print(f"largest difference to torch in float64: {float((out[0] - right).abs().max()):.1g}")
        result = lk.bench(launch, name="paged decode, yours", device="cuda")
        print(result)
        print(f"{(keys.nbytes + values.nbytes) / result.median / 1e9:,.0f} GB/s of keys and values")

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
# - A cache turns quadratic work into linear work and pays in memory. From then on memory is what a server sells.
# - Prefill is arithmetic, decode is memory traffic; the batch decides how many share the reading of the weights.
# - Blocks of sixteen waste a few per cent; reference counts let them be shared; a copy is made only when somebody writes.
# - A key for a block must know everything before it.
# - Online softmax lets attention walk over memory in any order and hold almost nothing.
# - A scheduler is judged by what it promises at every step: no block twice, nobody starves, no word lost.
# - Users feel TTFT and TPOT. Count the requests that were served well, not the tokens that were made.
# - Speculation trades idle arithmetic for latency, and the text's distribution stays the target's, exactly.
#
# ## Next
#
# Chapter 11, *Serving an LLM*, has the systems around this engine: several machines, separate prefill and decode, prefix trees.
#
# The originals are short and good: paged attention, Kwon et al., [arXiv:2309.06180](https://arxiv.org/abs/2309.06180); continuous batching, Yu et
# al., *Orca*, OSDI 2022; grouped heads, Ainslie et al., [arXiv:2305.13245](https://arxiv.org/abs/2305.13245); online softmax, Milakov and
# Gimelshein, [arXiv:1805.02867](https://arxiv.org/abs/1805.02867); speculative decoding, Leviathan et al.,
# [arXiv:2211.17192](https://arxiv.org/abs/2211.17192); goodput, Zhong et al., *DistServe*, OSDI 2024.
