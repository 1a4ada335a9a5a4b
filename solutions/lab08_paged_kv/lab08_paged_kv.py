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
# A language model keeps the keys and values of every token that it has read or written: the **key-value cache**. How a server allocates
# this memory decides how many users it can serve, and that decides what a token costs. The method comes from operating systems: pages,
# a page table, reference counts and copy-on-write. You build all of it, and at the end your own server writes with a real language model.
#
# **You will be able to**
#
# - say what a cache costs in bytes, and which roof limits prefill and decode;
# - allocate memory in blocks without leaks, share blocks between sequences, copy a block only when somebody writes to it, and find known ones;
# - attend over scattered blocks without collecting them, in torch and in Triton, and prove which bytes the kernel reads;
# - schedule requests under a memory budget, so that every request ends and no token is lost;
# - measure a server as its users see it, and draw several tokens from one pass without changing their distribution.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 275 minutes | ●●●○ | any Linux machine; a GPU only for the last, ungraded section | 100 in 12 tasks |
#
# The time includes reading. Take two sittings, with a summary between them: up to Task 8 (140 minutes), then Task 9 to the end (135 minutes).
# Needs lab 01 (bytes and FLOPs), and lab 05 (Triton) for Task 9. Reads along with
# [chapter 11, *Serving an LLM*](../../course/chapters/11_serving.md); the model itself is in [chapter 2](../../course/chapters/02_transformers.md).
#
# Each task goes the same way: **predict** (not graded), **write**, **check**, then **look**. Marks come from right answers, counted
# bytes and rules that must hold at every step, never from a clock. Tasks use the results of earlier tasks, so keep their order.
# `lk.hint("pool")` in a new cell gives a hint, and a stronger one each time you ask. Hints cost no marks.
# `lk.progress()` shows how far you are. Checks, helpers and the code of pictures are folded: click the three dots in a cell to read it.

# %% jupyter={"source_hidden": true} tags=["install"]
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab08_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import collections
import contextlib
import copy
import hashlib
import io
import itertools
import logging
import tempfile
import textwrap
import time
import traceback
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
# standard library. It writes one token at a time. Run the next two cells, then change the prompt and run the second one again.

# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab08_model", "locked": true, "schema_version": 3, "solution": false, "task": false}
torch.set_grad_enabled(False)  # nothing is trained here
torch.set_num_threads(1)  # the model is so small that threads would spend their time waiting for each other
print("loading the model: seconds, on a busy machine up to a minute", flush=True)
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


def is_close(got, expected, rtol=1e-4, atol=1e-5):
    """Return True if `expect_close` accepts `got`."""
    try:
        lk.checks.expect_close(got, expected, rtol=rtol, atol=atol)
    except lk.checks.CheckError:
        return False
    return True


def expect_right(got, expected, slips, name, rtol=1e-4, atol=1e-5):
    """Check that `got` is close to `expected`. If it is the result of a known slip, the error names the slip.

    slips: {what went wrong: the result that this gives}, or a function that returns it.
    """
    __tracebackhide__ = True
    if is_close(got, expected, rtol, atol):
        return
    for slip, wrong in (slips() if callable(slips) else slips).items():
        if is_close(got, wrong, rtol, atol):
            raise lk.checks.CheckError(f"{name}: {slip}")
    lk.checks.expect_close(got, expected, rtol=rtol, atol=atol, name=name)


def expect_number(got, expected, slips, name):
    """Check that `got` equals `expected`, a whole number, up to rounding. slips: {a wrong number: what went wrong}."""
    __tracebackhide__ = True
    if got == expected:
        return
    why = slips.get(got, "")
    raise lk.checks.CheckError(f"{name}: expected {expected:,}, got {got:,}{': ' * bool(why)}{why}")


def expect_tokens(got, expected, slips, name):
    """Check that `got` holds the tokens `expected`. slips: {other tokens, as a tuple: what went wrong}."""
    __tracebackhide__ = True
    got = tuple(int(token) for token in got)
    if got != tuple(expected):
        why = slips.get(got, "")
        raise lk.checks.CheckError(f"{name}: expected {list(expected)}, got {list(got)}{': ' * bool(why)}{why}")


def expect_blocks(got, expected, name):
    """Check that `got` is the list `expected` of block numbers. They are labels: one more or less means nothing."""
    __tracebackhide__ = True
    if type(got) is list and all(type(block) is int for block in got) and got != expected:
        raise lk.checks.CheckError(f"{name}: expected the blocks {expected}, got {got}")
    lk.checks.expect_equal(got, expected, name=name)


def expect_unequal(got, other, name):
    """Check that two keys differ."""
    __tracebackhide__ = True
    if got == other:
        raise lk.checks.CheckError(f"{name}: the keys are equal, and they must differ")


def torch_attention(q, k, v, seen=None, scale=None):
    """Torch's own attention of q [H, new, h] over k and v [K, total, h]; seen: the mask [new, total]."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True, scale=scale)


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


def gathered(caches, table, length, block):
    """Keys and values [K, length, h] of one sequence of a scattered batch, in double precision."""
    return [cache[table[: -(-length // block)]].flatten(0, 1)[:length].transpose(0, 1).double() for cache in caches]


def online(query, k, v, block, rescale_sum=True, rescale_values=True, divide=True):
    """Attention of query [H, 1, h] over k and v [K, n, h], block by block, with a step left out."""
    k, v = (x.repeat_interleave(len(query) // len(x), 0) for x in (k, v))
    scores, largest, total, mixed = (query @ k.transpose(1, 2))[:, 0] / query.shape[2] ** 0.5, torch.tensor(float("-inf")), 0.0, 0.0
    for start in range(0, k.shape[1], block):
        score = scores[:, start : start + block]
        now = torch.maximum(largest, score.amax(1))
        shrink, weight, largest = (largest - now).exp(), (score - now[:, None]).exp(), now
        total = total * (shrink if rescale_sum else 1.0) + weight.sum(1)
        mixed = mixed * (shrink[:, None] if rescale_values else 1.0) + (weight[:, None] @ v[:, start : start + block])[:, 0]
    return mixed / total[:, None] if divide else mixed


def decode_rows(q, keys, values, tables, lengths):
    """What decode attention must give, [B, H, h] in double precision, and a function that returns what known slips give."""
    block, groups, q = keys.shape[1], q.shape[1] // keys.shape[2], q.double()  # a copy: the function under test may change q
    rows = [(q[row, :, None], length, table) for row, (length, table) in enumerate(zip(lengths.tolist(), tables))]
    right = torch.stack([torch_attention(query, *gathered((keys, values), table, length, block))[:, 0] for query, length, table in rows])

    def known_slips():
        slips, scale = collections.defaultdict(list), "must be rescaled by exp(old maximum - new maximum) when a block brings a larger score"
        for query, length, table in rows:
            k, v = gathered((keys, values), table, length, block)
            slips["scores must be scaled by 1 / sqrt(h)"].append(torch_attention(query, k, v, scale=1.0)[:, 0])
            slips["scores are scaled by 1 / sqrt(h) twice"].append(torch_attention(query, k, v, scale=1.0 / q.shape[2])[:, 0])
            turns = torch_attention(query, k.repeat(groups, 1, 1), v.repeat(groups, 1, 1))[:, 0]
            slips["query head i must use key-value head i // (H / K); yours uses i % K"].append(turns)
            padded = [torch.nn.functional.pad(x, (0, 0, 0, -length % block)) for x in (k, v)]
            slips["empty slots count as scores of 0: give them a score of -inf before the softmax"].append(torch_attention(query, *padded)[:, 0])
            full = max(1, length // block) * block
            slips["the last block of a sequence is left out where it is not full"].append(torch_attention(query, k[:, :full], v[:, :full])[:, 0])
            slips["the last token is left out"].append(torch_attention(query, k[:, : max(1, length - 1)], v[:, : max(1, length - 1)])[:, 0])
            slips[f"the weighted sum of values {scale}"].append(online(query, k, v, block, rescale_values=False))
            slips[f"the sum of weights {scale}"].append(online(query, k, v, block, rescale_sum=False))
            slips[f"both sums, of weights and of values, {scale}"].append(online(query, k, v, block, False, False))
            slips["at the end, divide the weighted sum of values by the sum of weights"].append(online(query, k, v, block, divide=False))
        return {slip: torch.stack(wrong) for slip, wrong in slips.items()}

    return right, known_slips


def expect_attention(got, right, slips, lengths, block, name, rtol=1e-4, atol=1e-5):
    """Check decode attention as `expect_right` does, and say so if only sequences of several blocks are wrong."""
    __tracebackhide__ = True
    fine = [is_close(row, want, rtol, atol) for row, want in zip(got, right)] if got.shape == right.shape else []
    short = [length <= block for length in lengths]
    if any(fine) and not all(fine) and fine == short and not any(is_close(got, wrong, rtol, atol) for wrong in slips().values()):
        raise lk.checks.CheckError(
            f"{name}: sequences of one block are right, and those of several blocks are wrong. When a block brings a larger score, "
            "both the sum of weights and the weighted sum of values must be rescaled by exp(old maximum - new maximum)"
        )
    expect_right(got, right, slips, name, rtol, atol)


def traced_decode(lengths, heads, kv_heads, width, block, seed, dtype=torch.float16, louder=1.0, below=False):
    """Run the kernel under the tracer on a scattered batch, with queries that are `louder` times as large.

    below: make all scores negative.
    Returns its output, what it should be (float64), what known slips give, and the trace.
    """
    batch = scattered(lengths, heads, kv_heads, width, block, seed, dtype)
    q, tables = batch[0].mul_(louder), batch[3]
    if below:
        q.abs_()
        batch[1].abs_().neg_()
    out = torch.full(q.shape, float("nan"))
    trace = lk.triton_trace.trace(paged_decode)[(len(lengths), kv_heads)](
        *batch, out, width**-0.5, tables.shape[1], H=heads, K=kv_heads, WIDTH=width, BLOCK=block
    )
    return out, *decode_rows(*batch), trace


def expect_decode(out, right, slips, trace, lengths, kv_heads, width, block):
    """Check a traced launch: how often it reads the tables, its findings, its loads where there is NaN, and its result."""
    __tracebackhide__ = True
    name, needed = f"lengths {lengths}, blocks of {block}", kv_heads * sum(-(-length // block) for length in lengths)
    asked, numbers = trace.arrays["tables"].loaded_elements, sum(lengths) * kv_heads * width
    errors = [finding.message for finding in trace.findings if finding.severity == "error"]
    stray = any(" tables[" in message for message in errors) or (errors and needed < asked != 2 * needed)
    times = trace.arrays["keys"].loaded_elements / numbers
    if asked > 2 * needed and times >= 2:
        raise lk.checks.CheckError(f"{name}: keys are loaded {times:g} times. A program has to load each key once, for all query heads that share it")
    if asked > 2 * needed or stray:
        raise lk.checks.CheckError(
            f"{name}: the programs read entries of tables that they do not need. Sequence b has ceil(length / BLOCK) blocks, and "
            "they begin at tables + b * most_blocks. Does the loop take a turn too many?"
        )
    if any(" keys[-" in message or " values[-" in message for message in errors):
        raise lk.checks.CheckError(
            f"{name}: a program uses -1, the padding of a table, as a block. The blocks of sequence b begin at tables + b * most_blocks, "
            "and there are ceil(length / BLOCK) of them"
        )
    lk.checks.expect_no_findings(trace)
    if times < 1:
        raise lk.checks.CheckError(
            f"{name}: {trace.arrays['keys'].loaded_elements} numbers of keys are loaded, and the sequences have {numbers}. "
            "Does the loop leave out the last block where it is not full?"
        )
    if bool(out.isnan().any()):
        for array in ("keys", "values"):  # names the line that loads without a mask
            lk.checks.expect_traffic(trace, array, at_most_loaded_bytes=numbers * 2)
        raise lk.checks.CheckError(
            f"{name}: out has NaN. Either some of its numbers were never stored (it is filled with NaN before), "
            "or slots without a token were read: the axes of keys and values are [all blocks, BLOCK, K, WIDTH], is each stride right? "
            "Or a masked load gave something other than 0 (write other=0.0), or -inf - (-inf) was computed"
        )
    expect_attention(out, right, slips, lengths, block, name, rtol=1e-3, atol=1e-3)


class OutOfBlocks(Exception):
    """The pool has no free block left."""


def pick(probabilities, uniform):
    """The token that a uniform number from [0, 1) draws: token t for the t-th stretch of [0, 1), as long as its probability."""
    return int(min(np.searchsorted(np.cumsum(probabilities), uniform, side="right"), np.flatnonzero(probabilities)[-1]))


llama = lm.Config(  # Llama 3 8B
    vocabulary=128_256, width=4096, layers=32, heads=32, kv_heads=8, head_width=128, hidden=14_336, context=8192, tied=False
)


def matrix_weights(config):
    """Weights in all matrices that a token is multiplied by: attention, MLP and the output layer."""
    attention = 2 * config.width * config.head_width * (config.heads + config.kv_heads)
    return config.layers * (attention + 3 * config.width * config.hidden) + config.vocabulary * config.width


class Film:
    """Pictures of block tables, one per call of `take`; `show` draws them with `lk.widgets.block_table`."""

    def __init__(self, blocks, block):
        self.blocks, self.block, self.steps = blocks, block, []

    def take(self, tables):
        """Add a picture of tables: {name: BlockTable}."""
        n = len(self.steps)
        blocks = {name: tuple(int(b) for b in table.blocks) for name, table in tables.items()}
        held = {name: int(table.length) for name, table in tables.items()}
        self.steps.append(lk.serving.EngineStep(n, 0.0, 0.0, block_tables=blocks, held_tokens=held))  # no clock runs here

    def show(self):
        display(lk.widgets.block_table(lk.serving.Recording((), tuple(self.steps), {}, {}, {}, self.block, self.blocks)))


class Entry(NamedTuple):
    """One sequence's part in a pass."""

    name: str
    tokens: list  # that go through the model now: the newest one, or all of them after a start or a preemption
    past: int  # tokens that its blocks hold already
    blocks: list  # its block table in this pass, with room for past + len(tokens)


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
        """The prompt and the tokens produced so far."""
        return self.prompt + self.produced


def next_token(context):
    """A stub of a model: a number that depends on every token of the context and on their order."""
    return int.from_bytes(hashlib.sha256(str(list(context)).encode()).digest()[:2], "little")


def continued(prompt, new):
    """The tokens that the stub writes after `prompt`."""
    context = list(prompt)
    for _ in range(new):
        context.append(next_token(context))
    return context[len(prompt) :]


class Slots:
    """Memory of blocks x block tokens, written and read through block tables; `run` is a pass of the stub over a plan."""

    def __init__(self, blocks, block):
        self.block, self.slots = block, np.full((blocks, block), -1)

    def run(self, plan):
        for _, tokens, past, blocks in plan:
            for position, token in enumerate(tokens, start=past):
                self.slots[blocks[position // self.block], position % self.block] = token
        return {
            name: next_token(int(self.slots[blocks[p // self.block], p % self.block]) for p in range(past + len(tokens)))
            for name, tokens, past, blocks in plan
        }


class Log:
    """What has happened in a run, and the error that shows the end of it."""

    def __init__(self):
        self.lines, self.step = [], 0

    def broken(self, text):
        """Return an error: what went wrong in this step, and the last lines."""
        before = "\n".join(["", "what happened before:", *(f"  {line}" for line in self.lines[-8:])]) if self.lines else ""
        return lk.checks.CheckError(f"step {self.step}: {text}{before}")

    def call(self, what, method, *arguments):
        """Call a method of the scheduler; if it raises, raise an error that shows the last lines."""
        __tracebackhide__ = True
        try:
            return method(*arguments)
        except NotImplementedError:
            raise
        except Exception as error:
            own = [frame for frame in traceback.extract_tb(error.__traceback__) if "ipykernel" in frame.filename and frame.line]
            where = f"\n  at  {own[-1].line}" if own else ""
            raise self.broken(f"{what} raised {type(error).__name__}: {error}{where}") from error

    def planned(self, plan, out, free, waiting):
        parts = [f"{name} computes {len(tokens)} after {past} in {blocks}" for name, tokens, past, blocks in plan]
        gone = f"; preempted: {', '.join(out)}" * bool(out)
        waits = f"; waiting: {', '.join(waiting)}" * bool(waiting)
        self.lines.append(f"step {self.step}: {'; '.join(parts) or 'nobody runs'}{gone}{waits}; {free} free")


def serve(scheduler, requests, blocks, block, run):
    """Submit (name, arrival step, prompt, new tokens), sorted by arrival, and step until all are served.

    run(plan) -> {name: next token}. Returns what each request was given, and the plan of every step. Raises an error at the
    first broken rule.
    """
    __tracebackhide__ = True
    tokens, left = {name: list(prompt) for name, _, prompt, _ in requests}, {name: new for name, _, _, new in requests}
    order, coming, plans, before, log = [], collections.deque(requests), [], {}, Log()
    while coming or any(left[name] for name in order):
        log.step = step = len(plans)
        while coming and coming[0][1] <= step:
            name, _, prompt, new = coming.popleft()
            log.call(f"submit of {name}, {len(prompt)} tokens and {new} new, the last of which never enters the cache,", scheduler.submit, name, list(prompt), new)
            order.append(name)
            log.lines.append(f"step {step}: {name} arrives with {len(prompt)} tokens and wants {new}")
        # a snapshot: a plan with a job's own lists would change while the job goes on
        plan = [Entry(name, list(new), past, [int(b) for b in table]) for name, new, past, table in log.call("step()", scheduler.step)]
        plans.append(plan)
        names, unfinished = [entry.name for entry in plan], [name for name in order if left[name]]
        out, free = [name for name in before if left[name] and name not in names], scheduler.pool.free
        problem = _broken_rule(plan, names, unfinished, out, free, tokens, before, blocks, block)
        log.planned(plan, out, free, [name for name in unfinished if name not in names and name not in out])
        if problem:
            raise log.broken(problem)
        said = run(plan) if plan else {}  # empty while nobody has come
        before = {entry.name: len(tokens[entry.name]) for entry in plan}
        for name in names:
            tokens[name].append(said[name])
            log.call(f"accept of a token for {name}", scheduler.accept, name, said[name])
            left[name] -= 1
            if not left[name]:
                del before[name]
                log.lines.append(f"step {step}: {name} has its last token and leaves")
    if scheduler.pool.free != blocks:
        raise log.broken(f"all requests are served, and {blocks - scheduler.pool.free} blocks were not given back")
    return {name: tokens[name][len(prompt) :] for name, _, prompt, _ in requests}, plans


def _broken_rule(plan, names, unfinished, out, free, tokens, before, blocks, block):
    """The first rule that a plan breaks, as a sentence; "" if it keeps all."""
    if names != unfinished[: len(names)]:
        return f"{names} run, but in order of arrival these have to: {unfinished[: len(names)]}"
    if unfinished and not names:
        return f"nobody runs, and {unfinished[0]}, the oldest, waits"
    given = [b for entry in plan for b in entry.blocks]
    double = [b for b, count in collections.Counter(given).items() if count > 1]
    if double:
        return f"block {double[0]} is in the tables of {[e.name for e in plan if double[0] in e.blocks]}"
    if not all(0 <= b < blocks for b in given):
        return f"the plan has the blocks {sorted(set(given))}, and the pool has 0 to {blocks - 1}"
    if free != blocks - len(given):
        return f"{len(given)} of {blocks} blocks are in tables, and the pool says that {free} are free"
    for name, new, past, table in plan:
        sequence, cached = tokens[name], before.get(name, 0)
        if past != cached:
            return f"{name} has {cached} tokens in its blocks, and the plan says past = {past}"
        if new != sequence[past:]:
            return f"{name} has to compute {sequence[past:]} after {past} tokens, and the plan has {new}"
        if len(table) != -(-len(sequence) // block):
            return f"{len(sequence)} tokens of {name} are in {len(table)} blocks of {block}"
    if out:
        needed = sum(-(-len(tokens[name]) // block) for name in unfinished[: len(names) + 1])
        if needed <= blocks:
            return f"{out[0]} was preempted, and {needed} of {blocks} blocks would have been enough"
        if [name for name in names if name not in before]:
            return f"{[name for name in names if name not in before]} came in although {out} had to go in this step"
    elif len(names) < len(unfinished):
        waits = unfinished[len(names)]
        needed = -(-len(tokens[waits]) // block)
        if needed <= free:
            return f"{waits} waits, and there is room for it: blocks needed {needed}, free {free}"
    return ""


# %%
prompt = tokenizer.encode('def close(self):\n        """')
print(tokenizer.decode([*prompt, *lm.generate(model, prompt, 24)]))

# %% [markdown]
# The next cell counts what that costs if the model starts again for each token, and if it keeps the keys and values that it has computed.

# %% jupyter={"source_hidden": true}
again = lk.count_work(lambda: [model(torch.tensor([text[:n]])) for n in range(1, 65)])


def with_cache():
    cache = lm.KVCache(model.config, capacity=64)
    return torch.cat([model(torch.tensor([[token]]), cache) for token in text[:64]], dim=1)


once = lk.count_work(with_cache)
difference = float((with_cache() - model(torch.tensor([text[:64]]))).abs().max())
print(f"64 tokens, starting again each time: {again.flops / 1e9:.2f} GFLOP; with a cache: {once.flops / 1e9:.2f} GFLOP")
print(f"largest difference of the logits: {difference:.1g}")

# %% [markdown]
# The logits are the same, and the work is a thirtieth. With a cache, attention compares a few *new* positions with *all* positions.
# That is the first function to write.
#
# ### Task 1 · Attention over a past
# *8 points · 17 minutes · ●●○○*
#
# One function serves three uses: a prompt (all positions are new), one decode step (one position is new), and a chunk of a prompt.
# Heads are grouped: `H / K` neighbouring query heads share one key-value head, so query head `i` uses key-value head `i // (H / K)`.

# %%
lk.predict("attend")


# %% nbgrader={"grade": false, "grade_id": "attend", "locked": false, "schema_version": 3, "solution": true, "task": false}
def attend(queries, keys, values):
    """Causal grouped-query attention of the last `new` of `total` positions.
    queries [H, new, h]; keys and values [K, total, h], K divides H, new <= total. New position j is
    position total − new + j of the sequence and sees the positions up to and including itself. Scores are
    scaled by 1 / √h. Returns [H, new, h]; the arguments stay as they were.
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


# %% nbgrader={"grade": true, "grade_id": "attend_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
q, k, v = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in [(4, 2, 4), (2, 5, 4), (2, 5, 4)])
seen, grouped = torch.ones(2, 5, dtype=torch.bool), "query head i must use key-value head i // (H / K); yours uses i % K"
scores = q @ k.repeat_interleave(2, 0).transpose(1, 2) / 2  # [4, 2, 5]
shut = scores.masked_fill(~seen.tril(3), float("-inf"))
slips = {
    grouped: torch_attention(q, k.repeat(2, 1, 1), v.repeat(2, 1, 1), seen.tril(3)),
    f"{grouped}, and nothing is masked": torch_attention(q, k.repeat(2, 1, 1), v.repeat(2, 1, 1)),
    "the mask is missing: a new position sees positions after itself": torch_attention(q, k, v),
    "the mask's diagonal starts at position 0; it must start at the end of the past, total - new": torch_attention(q, k, v, seen.tril()),
    "a new position must also see itself": torch_attention(q, k, v, seen.tril(2)),
    "scores must be scaled by 1 / sqrt(h)": torch_attention(q, k, v, seen.tril(3), scale=1.0),
    "scores must be scaled by 1 / sqrt(h) once, and h is the width of one head": torch_attention(q, k, v, seen.tril(3), scale=0.25),
    "a score that is masked must be -inf before the softmax, not 0": (scores * seen.tril(3)).softmax(-1) @ v.repeat_interleave(2, 0),
    "the softmax goes over the positions that a query sees, the last axis of the scores": shut.softmax(-2) @ v.repeat_interleave(2, 0),
}
expected, before = torch_attention(q, k, v, seen.tril(3)), [x.clone() for x in (q, k, v)]
expect_right(attend(q, k, v), expected, slips, "a chunk of 2 after 3 tokens, 4 heads over 2")
for name, x, same in zip(("queries", "keys", "values"), (q, k, v), before):
    if not torch.equal(x, same):
        raise lk.checks.CheckError(f"attend has changed its argument {name}: scale and mask in new tensors, not in place")
v = torch.tensor([[[2.0], [4.0]]])
lk.checks.expect_close(attend(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1), v).flatten(), torch.tensor([2.0, 3.0]), name="two equal scores")
positions = torch.arange(104.0).reshape(1, 104, 1)  # equal scores: the mean of the positions that are seen
got = attend(torch.zeros(1, 4, 1), torch.zeros(1, 104, 1), positions).flatten()
lk.checks.expect_close(2 * got + 1, torch.arange(101.0, 105.0), name="positions seen by a chunk of 4 after 100 tokens")
print("Right: the mask, the head groups and the scale, for prompts and chunks.")

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "attend_test_shapes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
q, k, v = (torch.randn(shape, generator=torch.Generator().manual_seed(2)) for shape in [(6, 1, 5), (2, 7, 5), (2, 7, 5)])
expected = torch_attention(q, k, v)
lk.checks.expect_close(attend(q, k, v), expected, rtol=1e-4, atol=1e-5, name="one decode step, 6 heads over 2, width 5")
print("Right: one decode step with three heads in a group and an odd width.")
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
# the model's own queries, keys and values, on real text: a prompt, a chunk, then token by token must equal all at once
queries, keys, values = layer_input(0, text[:40])
expected = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
parts = [attend(queries[:, a:b], keys[:, :b], values[:, :b]) for a, b in [(0, 17), (17, 30), *((n, n + 1) for n in range(30, 40))]]
lk.checks.expect_close(torch.cat(parts, dim=1), expected, rtol=1e-4, atol=1e-5, name="17 tokens, 13 tokens, then one at a time")
print("Right: on the real model, 17 tokens, then 13, then one at a time give what 40 at once give.")

# %% [markdown]
# ### Task 2 · Two phases, two roofs
# *8 points · 17 minutes · ●●○○*
#
# Reading a prompt (**prefill**) sends all its tokens through the weights in one pass. Writing (**decode**) sends one token per sequence. Both read
# the weights once. Count one pass over a batch of `sequences` that have `past` tokens each in the cache and get `new` more:
#
# - each new token is multiplied by every weight of every matrix: 2 FLOPs per weight;
# - attention works on pairs of a new token and a position that it may see. Per pair, layer and query head, the score is a dot product of `head_width`
#   numbers, and adding the weighted value is `head_width` multiply-adds. That is 2 FLOPs per number for each of the two;
# - bytes: the weights are read once; the cache of the past is read; the cache of the new tokens is written. Activations are small: leave them out.

# %%
lk.predict("step_work")


# %% nbgrader={"grade": false, "grade_id": "step_work", "locked": false, "schema_version": 3, "solution": true, "task": false}
def step_work(config, sequences, past, new, itemsize=2):
    """Return the cost of one pass: an lk.Work with flops, bytes_read and bytes_written.
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
    )
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "step_work_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
tiny = lm.Config(vocabulary=10, width=4, layers=1, heads=2, kv_heads=1, head_width=2, hidden=8)
work = step_work(tiny, sequences=2, past=3, new=2)
lk.checks.expect_work(work, name="2 sequences, 3 past, 2 new")  # an lk.Work
flops = {
    1024: "each of the new tokens is multiplied by every weight",
    1696: "a new token must also see itself",
    1792: "the first new token must not see the second",
    1616: "attention has 2 FLOPs per number for the score and 2 for the value, in every query head",
    880: "count the FLOPs of every sequence",
}
read = {
    784: "the whole batch reads the weights once",
    464: "the cache has kv_heads heads, not heads",
    448: "the cache of the new tokens is written, not read",
    392: "count keys and values, of the past of every sequence",
}
expect_number(int(work.flops), 1760, flops, "FLOPs of 2 sequences, 3 past, 2 new")
expect_number(int(work.bytes_read), 416, read, "bytes read of 2 sequences, 3 past, 2 new")
written = {64: "the cache has kv_heads heads, not heads", 16: "count keys and values, of every sequence", 80: "the past is in the cache already"}
expect_number(int(work.bytes_written), 32, written, "bytes written of 2 sequences, 3 past, 2 new")
lk.checks.expect_work(step_work(tiny, sequences=1, past=3, new=1), flops=432, bytes_read=392, bytes_written=8, name="one token")
print("Right: FLOPs and bytes of two passes of a tiny model.")

# %% nbgrader={"grade": true, "grade_id": "step_work_test_real", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
for itemsize in (1, 4):  # bytes of a number, of weights and cache
    work = step_work(tiny, 1, 3, 1, itemsize)
    lk.checks.expect_work(work, flops=432, bytes_read=196 * itemsize, bytes_written=4 * itemsize, name=f"one token, itemsize {itemsize}")
lk.checks.expect_work(step_work(tiny, 1, 0, 1), flops=384, bytes_read=368, bytes_written=8, name="the first token of all")
# three layers, and heads that are wider than width / heads: 616 weights, 4 pairs, a cache of 48 bytes per token
wide = step_work(lm.Config(vocabulary=10, width=4, layers=3, heads=2, kv_heads=1, head_width=4, hidden=8), 1, 3, 1)
layers, width = "attention and the cache are in every layer", "use head_width, which need not be width / heads"
expect_number(int(wide.flops), 1616, {1360: layers, 1424: width}, "FLOPs of one token in three layers")
expect_number(int(wide.bytes_read), 1376, {1280: layers, 1304: width}, "bytes read of one token in three layers")
expect_number(int(wide.bytes_written), 48, {16: layers, 24: width}, "bytes written of one token in three layers")
print("Right: numbers of one and four bytes, a pass without a past, and three layers.")
### BEGIN HIDDEN TESTS
met = sum(module.weight.numel() for module in model.modules() if isinstance(module, torch.nn.Linear))  # the real model's matrices
for past, sequences in [(0, 1), (12, 1), (30, 3)]:
    cache = lm.KVCache(model.config, batch=sequences, capacity=past or 1)  # as many bytes as the real cache has
    work = step_work(model.config, sequences, past, 1, itemsize=4)
    attention = 4 * 8 * (past + 1) * (32 + 32)  # layers, heads, positions; multiply-adds with a key and with a value
    lk.checks.expect_work(
        work, flops=2 * sequences * (met + attention), bytes_read=4 * met + (cache.bytes if past else 0), name=f"{sequences} x one token after {past}"
    )
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "step_work_test_llama", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
work = step_work(llama, sequences=16, past=2048, new=1)
lk.checks.expect_work(work, flops=257_337_327_616, bytes_read=19_304_284_160, bytes_written=2_097_152, name="Llama 3 8B, 16 x one token after 2,048")
print("Right: a decode step of Llama 3 8B.")
### BEGIN HIDDEN TESTS
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

# %% jupyter={"source_hidden": true}
roof = lk.Roofline.from_spec("h100-sxm")


def seconds(work):
    """Return the seconds of the pass by the H100's datasheet: those of its slower side, arithmetic or memory.

    A model, nothing measured.
    """
    return max(work.flops / roof.compute("bfloat16").value, (work.bytes_read + work.bytes_written) / roof.memory().value)


def on_roof(works):
    """Draw works under the two roofs that matter here: arithmetic in bfloat16 and the memory."""
    figure = roof.plotly(works, dtypes=["bfloat16"])
    figure.data = [line for line in figure.data if not line.name.startswith("shared")]
    flat = figure.data[1]
    flat.x = [roof.ridge("bfloat16"), flat.x[1]]  # it began at the ridge of the faster memory that is left out
    return figure


with lk.picture("Prefill stands under the flat roof. Decode climbs as the batch grows, until the caches' own bytes hold it back."):
    shown = [("prefill, 2,048 tokens", 1, 0, 2048)] + [(f"decode, batch {b}", b, 2048, 1) for b in (1, 16, 256)]
    works = []
    for name, sequences, past, new in shown:
        work = step_work(llama, sequences, past, new)
        works.append(lk.Work(work.flops, work.bytes_read, work.bytes_written, dtype="bfloat16", name=name))
        print(
            f"{name:22s} {works[-1].intensity:8.1f} FLOP/B, {1e3 * seconds(work):6.2f} ms, "
            f"{sequences * new / seconds(work):9,.0f} tokens/s"
        )
    print(f"\nthe ridge is at {roof.ridge('bfloat16'):.0f} FLOP/B")
    figure = on_roof(works)
    figure.update_traces(textposition="bottom center", selector={"name": works[0].name})
    lk.show(figure, summary="Roofline of an H100 with prefill in the compute-bound part and three decode batches in the memory-bound part.")

# %% [markdown]
# Read the last column. Prefill has the largest number, because 2,048 tokens share one reading of the weights. A decode batch of 256 writes many
# times more tokens per second than one of 1 for the same reason. So a server that fits more sequences into its memory writes more tokens per
# second. The next question is how much memory is wasted.
#
# ## Part 2 · Blocks
#
# A cache such as `lm.KVCache` is one piece of memory, as long as the sequence might ever get: an answer of 30 tokens reserves as much as one of
# 500. Paging cuts memory into **blocks** of a few tokens each. A sequence gets one block at a time, when its last block is full.

# %% nbgrader={"grade": false, "grade_id": "waste_trace", "locked": true, "schema_version": 3, "solution": false, "task": false}
BLOCK = 16  # tokens per block, as most engines have it
rng = np.random.default_rng(8)
asked, answered = (np.clip(np.rint(rng.lognormal(np.log(m), 0.8, 60)), 4, 255).astype(int) for m in (90, 70))
lengths = (asked + answered).tolist()  # tokens of sixty requests when they end
print(f"{len(lengths)} requests of {min(lengths)} to {max(lengths)} tokens, {sum(lengths) / len(lengths):.0f} in the mean")

# %% [markdown]
# ### Task 3 · What is wasted
# *6 points · 8 minutes · ●○○○*
#
# A contiguous cache is a paged cache whose block is as long as the model's context. So one formula describes both.

# %%
lk.predict("waste")


# %% nbgrader={"grade": false, "grade_id": "waste", "locked": false, "schema_version": 3, "solution": true, "task": false}
def blocks_for(tokens, block):
    """Return how many blocks hold `tokens` tokens (a whole number from 0 up): blocks_for(17, 16) is 2."""
    ### BEGIN SOLUTION
    return (tokens + block - 1) // block
    ### END SOLUTION


def waste(lengths, block):
    """The share, 0 to 1, of all slots reserved for sequences of these lengths that hold no token.
    Without a reserved slot it is 0. waste([17, 15], 16) is 1/3: 3 blocks, 48 slots, 32 tokens."""
    ### BEGIN SOLUTION
    reserved = sum(blocks_for(length, block) for length in lengths) * block
    return 1 - sum(lengths) / reserved if reserved else 0.0
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "waste_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
for n, needed, why in [(0, 0, "no token needs no block"), (1, 1, ""), (16, 1, "a full block needs no other one after it"), (17, 2, "")]:
    part = "a block that is not full is a block, too"
    expect_number(blocks_for(n, 16), needed, {needed + 1: why, needed - 1: part}, f"blocks of 16 for {n} tokens")
lk.checks.expect_equal([blocks_for(n, 16) for n in (0, 1, 16, 17)], [0, 1, 1, 2], name="blocks for 0, 1, 16 and 17 tokens")
print("Right: empty, full and ragged last blocks.")
### BEGIN HIDDEN TESTS
for block in (1, 7, 16, 512):
    for n in range(70):
        got = blocks_for(n, block)
        assert got * block >= n, f"{got} blocks of {block} cannot hold {n} tokens"
        assert (got - 1) * block < n or got == 0, f"{got} blocks of {block} for {n} tokens: one fewer would do"
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "waste_test_large", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(blocks_for(10**17 + 1, 10), 10**16 + 1, name="blocks of 10 for 10^17 + 1 tokens: floats have only 53 bits")
print("Right: exact for large whole numbers.")
### BEGIN HIDDEN TESTS
lk.checks.expect_equal(blocks_for(2**60 + 1, 2), 2**59 + 1, name="blocks of 2 for 2^60 + 1 tokens")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "waste_test_share", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
slips = {
    "this is the mean of each sequence's share; the share of all slots is wanted": 15 / 32,
    "this is the share of slots that hold a token": 33 / 48,
    "this divides by the tokens; the share of all reserved slots is wanted": 15 / 33,
    "a block that is not full has empty slots, too": 1 / 3,
}
expect_right(waste([1, 32], 16), 15 / 48, slips, "waste of 1 and 32 tokens in blocks of 16")
lk.checks.expect_close(waste([17, 15], 16), 1 / 3, rtol=1e-9, name="waste of 17 and 15 tokens")
print("Right: the share of all reserved slots.")
### BEGIN HIDDEN TESTS
for many, block in [([5], 5), ([1, 2, 3], 4), ([512, 1], 512), (lengths, 16), (lengths, 512)]:
    slots = sum(next(b for b in itertools.count() if b * block >= n) for n in many) * block
    lk.checks.expect_close(waste(many, block), (slots - sum(many)) / slots, rtol=1e-9, name=f"waste of {len(many)} lengths in blocks of {block}")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "waste_test_nothing", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(float(waste([], 16)), 0.0, name="waste of an empty list: no slot is reserved")
lk.checks.expect_equal(float(waste([0, 0], 16)), 0.0, name="waste of two empty sequences: no slot is reserved")
lk.checks.expect_equal(float(waste([9, 4], 1)), 0.0, name="waste in blocks of one token")
print("Right: without a reserved slot, and without an empty one, the waste is 0.")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Small blocks waste next to nothing. Half a block per sequence is lost on average, and a contiguous cache is one very long block."
):
    sizes = [2**n for n in range(10)]
    lost = [100 * waste(lengths, size) for size in sizes]
    slots = 16_384
    for size in (512, 128, 16):
        fits = slots / (sum(blocks_for(length, size) for length in lengths) * size / len(lengths))
        print(f"blocks of {size:3d}: {100 * waste(lengths, size):4.1f} % wasted; {slots:,} slots hold {fits:.0f} such requests at once")
    figure = go.Figure(go.Scatter(x=sizes, y=lost, mode="lines+markers"))
    figure.add_hline(y=4, line={"dash": "dot", "color": GREY}, annotation_text="4 %")
    figure.update_layout(height=300, xaxis_type="log", xaxis_title="tokens per block", yaxis_title="wasted, %")
    figure.update_xaxes(tickvals=sizes, ticktext=[str(size) for size in sizes])
    lk.show(figure, summary="Wasted share of memory against block size: below four per cent at 16, above half at 512.")

# %% [markdown]
# Why not blocks of one token, then? The kernel has to look up each block in a table, and memory is read fastest in long runs. At sixteen
# tokens per block, both the waste and the lookups are small.
#
# ### Task 4 · The pool
# *9 points · 17 minutes · ●●○○*
#
# The **pool** knows which blocks are free. Because blocks will be shared, it also counts how many tables hold each block: a **reference count**.
# A block is free again when its count reaches zero. If a block is dropped once too often, the pool gives it to two sequences, and both
# write fluent nonsense. No error appears anywhere. So the pool must refuse every call that makes no sense. The exception `OutOfBlocks` is
# defined above. Give out the block that has been free *longest*: a free block keeps its contents until somebody overwrites it, and Task 7
# will use that. (The kit's own engine uses the same names, so it can run on your pool at the end of the lab.)

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
        """Return how often `block` is held, 0 for a free one. ValueError if there is no such block (−1, say)."""
        ### BEGIN SOLUTION
        if not 0 <= block < self.size:
            raise ValueError(f"there is no block {block} in a pool of {self.size}")
        return self._count[block]
        ### END SOLUTION

    def take(self):
        """The block that has been free longest, held once from now on. OutOfBlocks when none is free."""
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
        """`block` is held once less, and free after the last time. ValueError as for `share`."""
        ### BEGIN SOLUTION
        if self.holders(block) == 0:
            raise ValueError(f"block {block} is free: nobody is left to drop it")
        self._count[block] -= 1
        if self._count[block] == 0:
            self._idle.append(block)
        ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "pool_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(3)
order = "give out the block that has been free longest"
expect_tokens([pool.take(), pool.take()], [0, 1], {(2, 1): f"{order}, and at first that is the order 0, 1, 2"}, "the first two blocks")
pool.share(0)
pool.share(0)
lk.checks.expect_equal(pool.holders(0), 3, name="holders of a block that was taken once and shared twice")
pool.drop(0)
lk.checks.expect_equal(pool.holders(0), 2, name="holders after one of three dropped the block")
pool.drop(0)
lk.checks.expect_equal([pool.holders(b) for b in range(3)], [1, 1, 0], name="holders of the blocks 0, 1 and 2")
lk.checks.expect_equal((pool.free, pool.size), (1, 3), name="free blocks and size")
pool.drop(0)
expect_number(pool.take(), 2, {0: "block 2 has been free longer than block 0, which was given back just now"}, "the next block")
lk.checks.expect_equal(pool.take(), 0, name="the last free block")
lk.checks.expect_equal(pool.holders(0), 1, name="holders of a block that was given back and taken again")
print("Right: counts, and the order in which blocks are given out.")

# %% nbgrader={"grade": true, "grade_id": "pool_test_refused", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(2)
taken = [pool.take(), pool.take()]
lk.checks.expect_raises(OutOfBlocks, pool.take)
pool.drop(0)
lk.checks.expect_raises(ValueError, pool.drop, 0)  # nobody holds it
lk.checks.expect_raises(ValueError, pool.share, 0)  # only a block that is held can be shared
lk.checks.expect_equal(([pool.holders(b) for b in range(2)], pool.free), ([0, 1], 1), name="holders and free blocks after refused calls")
print("Right: an empty pool gives nothing, and a free block is neither dropped nor shared.")

# %% nbgrader={"grade": true, "grade_id": "pool_test_numbers", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(3)
taken = [pool.take() for _ in range(3)]
for what in ("holders", "share", "drop"):
    for block in (-1, 3):  # a Python list accepts -1
        lk.checks.expect_raises(ValueError, getattr(pool, what), block)
lk.checks.expect_equal(([pool.holders(b) for b in range(3)], pool.free), ([1, 1, 1], 0), name="holders and free blocks after refused numbers")
print("Right: -1 and 3 are no blocks of a pool of 3.")
### BEGIN HIDDEN TESTS
for what in ("holders", "share", "drop"):
    for block in (-3, 100):
        lk.checks.expect_raises(ValueError, getattr(pool, what), block)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "pool_test_random", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(4)
for _ in range(3):  # all blocks go round several times
    mine = [pool.take() for _ in range(4)]
    why = "give out the block that has been free longest, not the one that was given back last"
    expect_tokens(mine, [0, 1, 2, 3], {(3, 2, 1, 0): why}, "four blocks, given back in this order before")
    for block in mine:
        pool.drop(block)
lk.checks.expect_equal(pool.free, 4, name="free blocks when all are given back")
print("Right: blocks go round without a leak.")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(804)
for blocks in (1, 3, 8):
    pool, idle, held = BlockPool(blocks), collections.deque(range(blocks)), {}  # two lists that know what is right
    for n in range(300):
        what = rng.choice(["take", "share", "drop"], p=[0.4, 0.2, 0.4])
        when = f"after {n} random calls on a pool of {blocks}"
        if what == "take" and idle:
            lk.checks.expect_equal(pool.take(), idle[0], name=f"the block given {when}")
            held[idle.popleft()] = 1
        elif held and what != "take":
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
# *9 points · 17 minutes · ●●○○*
#
# The blocks of a sequence lie anywhere in memory. The **block table** translates: position $p = 0, 1, 2, …$ is at offset $p \bmod B$
# of the table's entry number $\lfloor p / B \rfloor$, with $B$ tokens per block. An example: blocks of 4 tokens, `blocks = [12, 5, 3]`, `length = 10`.
#
# ```text
# position     0   1   2   3  |  4   5   6   7  |  8   9   .   .
# entry              0        |        1        |        2
# block             12        |        5        |        3
# offset       0   1   2   3  |  0   1   2   3  |  0   1   2   3
# ```
#
# - `slot(6)`: 6 // 4 = 1, entry 1 is block 5, 6 % 4 = 2. The result is `(5, 2)`.
# - `append()`: the last block has two free slots, so no block is taken. The result is `(3, 2)`, and `length` is 11.
# - Two more calls: the first fills block 3 at `(3, 3)`; for the second one all blocks are full, so `append` takes a block from the pool first.
# - `slot(13)` is an `IndexError` now: the 13 tokens have the positions 0 to 12.

# %%
lk.predict("table")


# %% nbgrader={"grade": false, "grade_id": "table", "locked": false, "schema_version": 3, "solution": true, "task": false}
class BlockTable:
    """The blocks of one sequence. Attributes: pool, block (tokens per block), blocks (a list of block
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
        IndexError for a position without a token (−1, or `length` and beyond)."""
        ### BEGIN SOLUTION
        if not 0 <= position < self.length:
            raise IndexError(f"position {position} of a sequence of {self.length} tokens")
        return self.blocks[position // self.block], position % self.block
        ### END SOLUTION

    def append(self):
        """Make room for one more token and return its slot; a new block is taken only when the last is full.
        When the pool has none, OutOfBlocks comes through and the table is what it was."""
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
    blocks: the table's list of block numbers; the last one may be filled in part."""
    ### BEGIN SOLUTION
    return cache[blocks].flatten(0, 1)[:length].transpose(0, 1)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "table_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(4)
a, b = BlockTable(pool, block=2), BlockTable(pool, block=2)
lk.checks.expect_equal([a.append(), b.append(), a.append(), a.append()], [(0, 0), (1, 0), (0, 1), (2, 0)], name="slots of two sequences that take turns")
lk.checks.expect_equal([a.slot(p) for p in range(3)], [(0, 0), (0, 1), (2, 0)], name="slots of the positions 0, 1 and 2")
lk.checks.expect_equal((a.blocks, a.length), ([0, 2], 3), name="blocks and length")
lk.checks.expect_equal(pool.free, 1, name="free blocks: one is taken only when the last is full")
print("Right: two sequences grow in turns, and each finds its tokens.")

# %% nbgrader={"grade": true, "grade_id": "table_test_positions", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
table = BlockTable(BlockPool(2), block=4)
lk.checks.expect_raises(IndexError, table.slot, 0)  # it has no token yet
slots = [table.append() for _ in range(3)]
for position in (-1, 3, 4):  # 3 is a slot of its block, and no token is there
    lk.checks.expect_raises(IndexError, table.slot, position)
print("Right: positions without a token are refused, -1 too.")

# %% nbgrader={"grade": true, "grade_id": "table_test_full", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(1)
table = BlockTable(pool, block=2)
slots = [table.append(), table.append()]
for _ in range(2):
    lk.checks.expect_raises(OutOfBlocks, table.append)
    if int(table.length) != 2 or [int(b) for b in table.blocks] != [0]:
        raise lk.checks.CheckError(
            f"append: the pool had no block, and still the table has changed: it has {int(table.length)} tokens in {list(table.blocks)}, not 2 in [0]. "
            "A refused append must leave the table as it was: take the block first, and raise length only then"
        )
    lk.checks.expect_equal((table.length, table.blocks, pool.free), (2, [0], 0), name="length, blocks, free blocks after a refused append")
print("Right: a refused append leaves nothing behind.")

# %% nbgrader={"grade": true, "grade_id": "table_test_release", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(3)
table = BlockTable(pool, block=2)
for _ in range(2):
    slots = [table.append() for _ in range(5)]
    table.release()
    lk.checks.expect_equal((table.length, table.blocks, pool.free), (0, [], 3), name="length, blocks, free blocks after release")
    table.release()  # an empty table: nothing happens
lk.checks.expect_equal((table.length, table.blocks, pool.free), (0, [], 3), name="length, blocks, free blocks after releasing an empty table")
print("Right: everything is given back, once.")

# %% nbgrader={"grade": true, "grade_id": "table_test_random", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
table = BlockTable(BlockPool(5), block=1)
lk.checks.expect_equal([table.append() for _ in range(5)], [(b, 0) for b in range(5)], name="slots in blocks of one token")
print("Right: blocks of one token.")
### BEGIN HIDDEN TESTS
pool = BlockPool(4)
a, b = BlockTable(pool, block=2), BlockTable(pool, block=2)
slots = [a.append(), b.append(), a.append(), a.append()]
lk.checks.expect_equal([b.append(), b.append()], [(1, 1), (3, 0)], name="the other one's next slots")
a.append()
b.release()
again = [a.append(), b.append(), a.append()]
lk.checks.expect_equal([offset for _, offset in again], [0, 0, 1], name="offsets in blocks that were given back")
given = [int(block) for block, _ in again]  # release may give back blocks 1 and 3 in any order
lk.checks.expect_equal((sorted(given[:2]), given[2] == given[0]), ([1, 3], True), name="blocks that were given back, and the second slot in the first")
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

# %% nbgrader={"grade": true, "grade_id": "table_test_gather", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
cache = torch.arange(5 * 2 * 2 * 3.0).reshape(5, 2, 2, 3)  # five blocks of two tokens, two heads of width 3
got = gather(cache, [4, 0, 3], 5)
lk.checks.expect_equal(len(got.shape), 3, name="axes of the result: heads, tokens, width")
if got.shape[1] == 2 and got.shape[0] in (5, 6):
    raise lk.checks.CheckError("gather: the axes are tokens, heads, width, and [K, length, h] is wanted: swap the first two")
tokens = {6: "leave out the empty slots of the last block", 2: "the blocks do not lie in a row: use every number of the table"}
expect_number(int(got.shape[1]), 5, tokens, "tokens of a sequence of length 5")
slots = [(4, 0), (4, 1), (0, 0), (0, 1), (3, 0)]
expected = torch.stack([cache[slot] for slot in slots], dim=1)
slips = {
    "blocks must come in the table's order, not in the order of memory": cache[[0, 3, 4]].flatten(0, 1)[:5].transpose(0, 1),
    "the blocks do not lie in a row: use every number of the table": cache[[4, 0, 1]].flatten(0, 1)[:5].transpose(0, 1),
    "heads and tokens are mixed: swap their axes, do not reshape": cache[[4, 0, 3]].flatten(0, 1)[:5].reshape(2, 5, 3),
    "all tokens of a block come before those of the next block": cache[[4, 0, 3]].transpose(0, 2).flatten(1, 2)[:, :5],
}
expect_right(got, expected, slips, "five tokens in blocks 4, 0 and 3")
print("Right: the tokens in the order of the sequence, without the empty slots of the last block.")
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

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Three sequences grow in turns. Move through the steps: each table lists its blocks in order, and the pool has them wherever there was room."
):
    pool, film = BlockPool(12), Film(12, 4)
    tables = {name: BlockTable(pool, 4) for name in "abc"}
    for turn in range(33):
        tables["abc"[turn % 3] if turn < 24 else "abb"[turn % 3]].append()
        film.take(tables)
    for name, table in tables.items():
        print(f"{name}: {table.length} tokens in blocks {table.blocks}")
    film.show()

# %% [markdown]
# ## Part 3 · Sharing
#
# Three answers to one prompt have the same keys and values for the prompt. With a block table nothing has to be copied: a **fork** gets the same
# list of blocks, and the count of each block goes up by one. Full blocks never change, so they stay shared. But both sequences would write
# their next token into the same slot of a last block that is not full. So a sequence that is about to write into a block with more than one
# holder first gets its own **copy** of that block.
#
# ### Task 6 · Fork, and copy on write
# *9 points · 17 minutes · ●●●○*
#
# An example: blocks of 4 tokens; a parent has 6 tokens in the blocks `[0, 1]`, and block 2 is free.
#
# | call | parent | child | holders of 0, 1, 2 | what happens |
# |---|---|---|---|---|
# | | `[0, 1]`, 6 tokens | | 1, 1, 0 | |
# | `child = fork(parent)` | `[0, 1]`, 6 | `[0, 1]`, 6 | 2, 2, 0 | nothing is copied |
# | `append_own(child, caches)` | `[0, 1]`, 6 | `[0, 2]`, 7 | 2, 1, 1 | block 1 has two holders: its contents go to block 2, and the child gives up block 1 |
# | `append_own(parent, caches)` | `[0, 1]`, 7 | `[0, 2]`, 7 | 2, 1, 1 | the parent alone holds block 1 now, so it writes there |

# %%
lk.predict("fork")


# %% nbgrader={"grade": false, "grade_id": "fork", "locked": false, "schema_version": 3, "solution": true, "task": false}
def fork(table):
    """A second BlockTable for the same tokens, in the same blocks, each held once more.
    Appending to one does not change the other."""
    ### BEGIN SOLUTION
    child = BlockTable(table.pool, table.block)
    child.blocks, child.length = list(table.blocks), table.length
    for block in child.blocks:
        table.pool.share(block)
    return child
    ### END SOLUTION


def append_own(table, caches):
    """As table.append(), but if the new token would go into a block with more than one holder, copy that block first.
    caches: tensors [all blocks, block, ...], keys and values of every layer; the block is copied in all of
    them, in place. The copy takes the shared block's place in this table, and the shared block is held once
    less. When the pool has no block for the copy, OutOfBlocks comes through and nothing has changed."""
    ### BEGIN SOLUTION
    if table.length < len(table.blocks) * table.block and table.pool.holders(table.blocks[-1]) > 1:
        copy, shared = table.pool.take(), table.blocks[-1]
        for cache in caches:
            cache[copy] = cache[shared]
        table.pool.drop(shared)
        table.blocks[-1] = copy
    return table.append()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "fork_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(4)
parent = BlockTable(pool, 2)
slots = [parent.append() for _ in range(4)]
child = fork(parent)
lk.checks.expect_equal((child.blocks, child.length), ([0, 1], 4), name="the fork's blocks and length")
for block in (0, 1):
    expect_number(pool.holders(block), 2, {1: "fork has to share every block: two tables hold it now"}, f"holders of block {block} after the fork")
lk.checks.expect_equal(pool.free, 2, name="free blocks after the fork: nothing is copied yet")
slot = child.append()
if list(parent.blocks) == list(child.blocks):
    raise lk.checks.CheckError("fork: both tables have one and the same list. Give the fork a copy: list(table.blocks)")
lk.checks.expect_equal((parent.blocks, parent.length), ([0, 1], 4), name="the parent's blocks and length after the fork has grown")
lk.checks.expect_equal((child.blocks, child.length), ([0, 1, 2], 5), name="the fork's blocks and length after it has grown")
parent.release()
lk.checks.expect_equal([pool.holders(b) for b in range(3)], [1, 1, 1], name="holders when the parent is gone")
print("Right: the fork shares all blocks, has a list of its own, and outlives its parent.")

# %% nbgrader={"grade": true, "grade_id": "fork_test_copy", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(4)
parent, keys, values = BlockTable(pool, 4), torch.zeros(4, 4), torch.zeros(4, 4, 2)
for number in range(10, 16):
    at = parent.append()
    keys[at], values[at] = float(number), torch.tensor([float(number), -float(number)])
child = fork(parent)
slot = append_own(child, [keys, values])
if tuple(slot) == (1, 2):
    raise lk.checks.CheckError("append_own: the last block has two holders and was not copied. Both sequences now write into the slot (1, 2)")
lk.checks.expect_equal(tuple(slot), (2, 2), name="the slot of the fork's new token, in a block of its own")
lk.checks.expect_equal((child.blocks, parent.blocks), ([0, 2], [0, 1]), name="the fork's blocks, and the parent's, after the copy")
lk.checks.expect_equal([pool.holders(b) for b in range(4)], [2, 1, 1, 0], name="holders after the copy: the shared block is held once less")
expect_right(keys[2, :2], torch.tensor([14.0, 15.0]), {"the contents of the shared block were not copied": torch.zeros(2)}, "the first of two caches after the copy")
expect_right(values[2, :2, 1], torch.tensor([-14.0, -15.0]), {"the contents of the shared block were not copied": torch.zeros(2)}, "the second of two caches after the copy")
lk.checks.expect_equal(append_own(parent, [keys, values]), (1, 2), name="the parent's slot: it alone holds block 1 now, so nothing is copied")
print("Right: the first to write gets a copy, in every cache; the other keeps the block.")

# %% nbgrader={"grade": true, "grade_id": "fork_test_full", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(4)
empty = fork(BlockTable(pool, 2))
lk.checks.expect_equal((empty.blocks, empty.length), ([], 0), name="the fork of an empty table")
parent, keys = BlockTable(pool, 2), torch.zeros(4, 2)
slots = [parent.append() for _ in range(2)]
child = fork(parent)
slot = append_own(child, [keys])
if tuple(slot) == (2, 0):
    raise lk.checks.CheckError("append_own: a full block was copied. It never changes, so it stays shared, and the new token goes into a new block")
lk.checks.expect_equal((tuple(slot), 4 - pool.free), ((1, 0), 2), name="slot, and blocks in use: a full block is never copied, and the new token gets a new block")
lk.checks.expect_equal((child.blocks, [pool.holders(b) for b in range(4)]), ([0, 1], [2, 1, 0, 0]), name="the fork's blocks, and holders")
print("Right: a full block stays shared, and an empty table can be forked.")

# %% nbgrader={"grade": true, "grade_id": "fork_test_no_room", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
pool = BlockPool(2)  # no room for a copy: everything stays
parent, keys, values = BlockTable(pool, 4), torch.zeros(2, 4, 3), torch.zeros(2, 4, 3)
slots = [parent.append() for _ in range(5)]
child = fork(parent)
for _ in range(2):
    lk.checks.expect_raises(OutOfBlocks, append_own, child, [keys, values])
    if [int(b) for b in child.blocks] != [0, 1] or child.length != 5 or [pool.holders(b) for b in range(2)] != [2, 2]:
        raise lk.checks.CheckError(
            f"append_own: there was no block for the copy, and still something has changed: the fork has {int(child.length)} tokens in {list(child.blocks)}, "
            f"and the holders are {[pool.holders(b) for b in range(2)]}. Take the block for the copy first, and change the rest only then"
        )
    state = (child.length, child.blocks, parent.length, parent.blocks, [pool.holders(b) for b in range(2)])
    lk.checks.expect_equal(state, (5, [0, 1], 5, [0, 1], [2, 2]), name="lengths, blocks and holders after a refused copy")
print("Right: without a block for the copy, nothing changes.")

# %% nbgrader={"grade": true, "grade_id": "fork_test_family", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
pool, keys = BlockPool(8), torch.zeros(8, 2)
family = [BlockTable(pool, 2)]
keys[append_own(family[0], [keys])] = 7.0
family += [fork(family[0]), fork(family[0])]
for n, table in enumerate(family):  # three holders: two copies, then the last one writes in place
    keys[append_own(table, [keys])] = float(n)
lk.checks.expect_equal([[float(keys[t.slot(p)]) for p in range(2)] for t in family], [[7.0, 0.0], [7.0, 1.0], [7.0, 2.0]], name="what three sequences read")
lk.checks.expect_equal(8 - pool.free, 3, name="blocks in use")
for table in family:
    table.release()
lk.checks.expect_equal(pool.free, 8, name="free blocks when all are gone")
print("Right: three sequences with one past each read their own text.")
### BEGIN HIDDEN TESTS
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
    for table, written in zip(family, said):
        slots = [table.slot(p) for p in range(len(written))]
        lk.checks.expect_equal([float(keys[s]) for s in slots], written, name=f"what a sequence reads in the first cache, blocks of {block}")
        lk.checks.expect_equal([float(values[s][1]) for s in slots], [-w for w in written], name=f"what it reads in the second cache, blocks of {block}")
    held = collections.Counter(b for table in family for b in list(table.blocks))
    lk.checks.expect_equal([pool.holders(b) for b in range(200)], [held[b] for b in range(200)], name="holders, and tables that have the block")
    for table in family:
        table.release()
    lk.checks.expect_equal(pool.free, 200, name="free blocks when all are gone")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Eight answers to one prompt of 200 tokens. The prompt is in memory once, and each answer pays for its own tokens."
):
    pool, film = BlockPool(400), Film(400, BLOCK)
    cache = torch.zeros(400, BLOCK)
    first = BlockTable(pool, BLOCK)
    for _ in range(200):
        first.append()
    film.take({"a0": first})
    answers = [first] + [fork(first) for _ in range(7)]
    film.take({f"a{n}": answer for n, answer in enumerate(answers)})
    for _ in range(40):
        for answer in answers:
            append_own(answer, [cache])
        film.take({f"a{n}": answer for n, answer in enumerate(answers)})
    shared, alone = 400 - pool.free, 8 * -(-240 // BLOCK)
    print(f"shared: {shared} blocks; each on its own: {alone} blocks; saved {100 * (1 - shared / alone):.0f} %")
    film.show()

# %% [markdown]
# ### Task 7 · Find known prefixes
# *8 points · 13 minutes · ●●○○*
#
# A thousand users share one system prompt. Nobody calls `fork`, and still their first blocks hold the same tokens. To find such blocks, give each
# full block a **key** that depends on its tokens *and on all tokens before it*, because from the second layer on, keys and values depend on
# everything that came before. A chain gives such keys: the key of a block is made from the key of the block before it and from its own tokens.
#
# Equal keys must mean equal tokens, or a request reads the cache of another text. The tuple of all tokens so far is an exact key, but a long one. A
# hash is short ([chapter 11, shared beginnings](../../course/chapters/11_serving.md)). A weighted sum is no key: with the weights 1 and 7, `[7, 0]` and `[0, 1]` have the same.
#
# There are two rules. Only full blocks have keys, because other blocks still change. And the last token of a prompt is always computed, even if
# everything is known, because the model has to return its logits.

# %%
lk.predict("prefix")


# %% nbgrader={"grade": false, "grade_id": "prefix", "locked": false, "schema_version": 3, "solution": true, "task": false}
def block_keys(tokens, block):
    """A key for each full block of `tokens`: a list of numbers, strings, bytes or tuples, fit for a dict.
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
    known: dict from keys to block numbers, which are returned as a list. At least the prompt's last token is left to compute."""
    ### BEGIN SOLUTION
    found = []
    for key in block_keys(tokens[:-1], block):
        if key not in known:
            break
        found.append(known[key])
    return found
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "prefix_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
one, two = block_keys([1, 2, 3, 4, 5], 2), block_keys([9, 2, 3, 4], 2)
lk.checks.expect_equal([len(one), len(two)], [2, 2], name="how many keys five and four tokens have in blocks of two: only full blocks have one")
expect_unequal(one[1], two[1], "[3, 4] after [1, 2] and after [9, 2]")
lk.checks.expect_equal(list(block_keys([1, 2, 3, 4], 2)) == list(one), True, name="the same beginning has the same keys")
left, right = [list(range(16)), list(range(16, 32))], [[0, 1, 2, 99, *range(4, 16)], list(range(16, 32))]
expect_unequal(block_keys(sum(left, []), 16)[1], block_keys(sum(right, []), 16)[1], "tokens 16 to 31 of two prompts that differ in token 3")
three = [block_keys([first, 2, 3, 4, 5, 6], 2)[2] for first in (1, 9)]
expect_unequal(*three, "[5, 6] after [1, 2, 3, 4] and after [9, 2, 3, 4], where the block before is the same but not the one before that")
print("Right: a key for each full block, and it depends on everything before.")

# %% nbgrader={"grade": true, "grade_id": "prefix_test_keys", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
for left, right in [([12, 3], [1, 23]), ([1, 2], [2, 1]), ([1, 2, 3, 4], [3, 4, 1, 2])]:
    expect_unequal(block_keys(left, 2)[-1], block_keys(right, 2)[-1], f"the last blocks of {left} and {right}")
for block in (1, 2):  # a sum with the weights 1 and `weight`, of tokens or of keys, is the same for two of these
    early, late = block_keys([1, 0], block)[-1], block_keys([0, 1], block)[-1]
    for weight in [*range(2, 64), 97, 101, 127, 128, 131, 137, 256, 257, 1000, 1009, 50_257, 65_599]:
        expect_unequal(block_keys([weight, 0], block)[-1], late, f"the last blocks of {[weight, 0]} and [0, 1], blocks of {block}")
        expect_unequal(block_keys([0, weight], block)[-1], early, f"the last blocks of {[0, weight]} and [1, 0], blocks of {block}")
lk.checks.expect_equal((len(block_keys([1, 2], 3)), len(block_keys([], 3))), (0, 0), name="keys of less than a block")
print("Right: other tokens, or another order, give another key.")
### BEGIN HIDDEN TESTS
for left, right in [([0, 0], [0, 0, 0, 0]), ([256, 0], [0, 256]), ([1, 1, 2, 2], [2, 2, 1, 1]), ([21, 4], [2, 14])]:
    expect_unequal(block_keys(left, 2)[-1], block_keys(right, 2)[-1], f"the last blocks of {left} and {right}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "prefix_test_reusable", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
known = dict(zip(block_keys([1, 2, 3, 4, 5, 6], 2), [30, 31, 32]))
expect_blocks(reusable([1, 2, 3, 4, 9], 2, known), [30, 31], "blocks of a prompt that begins alike")
expect_blocks(reusable([1, 2, 3, 4], 2, known), [30], "blocks of a prompt that is known to its last token, which must be computed")
zero = dict(zip(block_keys([1, 2, 3, 4], 2), [0, 7]))
if len(reusable([1, 2, 3, 4, 9], 2, zero)) == 0:
    raise lk.checks.CheckError("reusable: block 0 was not found. Its number is 0, which counts as false: test whether the key is in `known`")
expect_blocks(reusable([1, 2, 3, 4, 9], 2, zero), [0, 7], "blocks of a prompt that begins in block 0")
first = block_keys([1, 2, 3, 4, 5, 6], 2)[1]
holes = {key: number for key, number in known.items() if key != first}
expect_blocks(reusable([1, 2, 3, 4, 5, 6, 7], 2, holes), [30], "blocks of a prompt whose second block is not known, but its third is")
lk.checks.expect_equal((reusable([7], 1, known), reusable([9, 9, 9], 2, known)), ([], []), name="blocks of one token, and of a new prompt")
print("Right: known blocks up to the first that is missing, and the last token stays to compute.")

# %% nbgrader={"grade": true, "grade_id": "prefix_test_random", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
keys = list(block_keys([5, 5, 5], 1))
for one, other in itertools.combinations(range(3), 2):
    expect_unequal(keys[one], keys[other], f"blocks {one} and {other} of [5, 5, 5], in blocks of one, where block {other} comes after other tokens")
known = dict(zip(keys, [7, 8, 9]))
expect_blocks(reusable([5, 5, 5, 5], 1, known), [7, 8, 9], "a prompt that repeats one token, in blocks of one")
print("Right: repeated tokens in blocks of one.")
### BEGIN HIDDEN TESTS
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
        expect_blocks(reusable(tokens, block, known), expected, f"blocks of {tokens} after {n} prompts, blocks of {block}")
        for index, key in enumerate(block_keys(tokens, block)):
            if rng.random() < 0.7 and tuple(tokens[: (index + 1) * block]) not in where:  # some are gone again: a chain may have holes
                known[key] = where[tuple(tokens[: (index + 1) * block])] = next(free)
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Twenty prompts begin with the same 150 tokens. The first computes all of them, and the others find 144, which are nine full blocks."
):
    system, known, computed, found_tokens = text[:150], {}, [], []
    for n in range(20):
        question = system + text[300 + 40 * n : 300 + 40 * n + 10 + 3 * n]
        found = reusable(question, BLOCK, known)
        found_tokens.append(BLOCK * len(found))
        computed.append(len(question) - found_tokens[-1])
        known |= {key: 100 * n + i for i, key in enumerate(block_keys(question, BLOCK)) if key not in known}
    print(f"20 prompts, {sum(computed) + sum(found_tokens):,} tokens; computed: {sum(computed):,}; found: {sum(found_tokens):,}")
    figure = go.Figure([go.Bar(y=computed, name="computed"), go.Bar(y=found_tokens, name="found in known blocks")])
    figure.update_layout(height=300, barmode="stack", xaxis_title="prompt, in order of arrival", yaxis_title="tokens")
    lk.show(figure, summary="Tokens of twenty prompts: the first computes all of its tokens, every later one finds 144 of them in known blocks.")

# %% [markdown]
# ## Part 4 · Attention over blocks
#
# With `gather` before every attention, each new token would copy the whole cache. Attention has to read the blocks where
# they are. A softmax seems to need all scores at once, but three running numbers per query are enough (**online softmax**): the largest score so far $m$, the
# sum of weights $\ell$, and the weighted sum of values $a$. When a block brings scores $s$ and values $v$,
#
# $$m' = \max(m, \max s), \qquad \ell' = e^{m - m'} \ell + \textstyle\sum e^{s - m'}, \qquad a' = e^{m - m'} a + \textstyle\sum e^{s - m'} v,$$
#
# and at the end the answer is $a / \ell$. The factor $e^{m - m'}$ scales what was summed under the old maximum to the new one.
#
# ### Task 8 · Paged attention
# *10 points · 34 minutes · ●●●○*
#
# One query per sequence (decode), sequences of all lengths in one batch. Slots beyond a sequence's length hold *anything*, even NaN, because memory
# is not cleared, and $0 \cdot \text{NaN}$ is NaN.
#
# At any time, hold copies of at most **two blocks per sequence**. A test measures the peak with two sequences. A block of keys takes 1.05 MB there and a
# block of values as much, so two blocks of each for two sequences are 2 · 2 · 2.1 = 8.4 MB. The limit is 10 MB, so 1.6 MB are left for everything else.

# %%
lk.predict("paged")


# %% nbgrader={"grade": false, "grade_id": "paged", "locked": false, "schema_version": 3, "solution": true, "task": false}
def paged_attention(q, keys, values, tables, lengths):
    """Attention of one query per sequence over its blocks, one block after another.
    q [B, H, h]; keys, values [all blocks, block, K, h]; tables: int64 [B, most blocks], rows padded with
    −1; lengths: int64 [B], each from 1 up. Query head i looks at key-value head i // (H / K).
    Returns [B, H, h]."""
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


# %% nbgrader={"grade": true, "grade_id": "paged_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
batch = scattered([5, 1, 8], heads=4, kv_heads=2, width=8, block=4, seed=0)
right, slips = decode_rows(*batch)
got = paged_attention(*(x.clone() for x in batch))
if bool(got.isnan().any()):
    rows = got.isnan().flatten(1).any(1).nonzero().flatten().tolist()
    lengths_ = [[5, 1, 8][row] for row in rows]
    raise lk.checks.CheckError(
        f"paged_attention: NaN for the sequences of {lengths_} tokens, in blocks of 4. Empty slots hold NaN: their scores must become -inf, and "
        "their values 0. A sequence that has no token in a block must skip it, because -inf - (-inf) is NaN"
    )
expect_attention(got, right, slips, [5, 1, 8], 4, "sequences of 5, 1 and 8 tokens, in blocks of 4")
print("Right: a ragged last block, a single token and full blocks in one batch.")

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "paged_test_shapes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
batch = scattered([4, 7, 2], heads=6, kv_heads=2, width=5, block=3, seed=4)
expect_attention(paged_attention(*(x.clone() for x in batch)), *decode_rows(*batch), [4, 7, 2], 3, "6 heads over 2, width 5, blocks of 3")
print("Right: three heads in a group, and sizes that are no powers of two.")
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
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "paged_test_large", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
batch = scattered([40, 21], 2, 2, 8, 8, seed=3)
batch[0].mul_(60.0)  # scores in the hundreds: their exponentials are infinite in float32
right, slips = decode_rows(*batch)
got = paged_attention(*(x.clone() for x in batch))
if not bool(got.isfinite().all()):
    raise lk.checks.CheckError("scores in the hundreds: the result is not finite. Subtract the largest score so far before every exponential")
expect_right(got, right, slips, "scores in the hundreds", rtol=1e-3, atol=1e-4)
q, keys, values, tables, lengths_ = scattered([40, 21], 2, 2, 8, 8, seed=3)
batch = [60.0 * q.abs(), -keys.abs(), values, tables, lengths_]  # all scores are far below 0: the exponential of each is 0
right, slips = decode_rows(*batch)
got = paged_attention(*(x.clone() for x in batch))
if not bool(got.isfinite().all()):
    raise lk.checks.CheckError("scores far below 0: the result is not finite. The largest score so far starts at -inf: at 0, every weight becomes 0")
expect_right(got, right, slips, "scores far below 0", rtol=1e-3, atol=1e-4)
print("Right: large scores do not overflow, and scores far below 0 do not vanish.")

# %% nbgrader={"grade": true, "grade_id": "paged_test_peak", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# the keys of the longer sequence are 12 MB and its values as much again; the keys and values of one block are 2 MB
batch = scattered([12_000, 100], heads=4, kv_heads=2, width=128, block=1024, seed=1)
right, _ = decode_rows(*batch)
got = lk.checks.expect_peak(paged_attention, *batch, at_most_bytes=10_000_000, name="paged_attention")
lk.checks.expect_equal(list(got.shape), [2, 4, 128], name="shape of the result")
lk.checks.expect_close(got, right, rtol=1e-4, atol=1e-5, name="sequences of 12,000 and 100 tokens")
print("Right: 12,000 tokens with less than 10 MB of new memory.")

# %% [markdown]
# ## Half-time
#
# This is a good place for a break. To go on later, put the cursor here and choose *Run → Run All Above Selected Cell*. The second half uses:
#
# - `attend` (causal attention of new positions over a past) and `step_work` (FLOPs and bytes of a pass);
# - `blocks_for`, `BlockPool` (free blocks, and how many tables hold each), `BlockTable` (position to block and offset) and `gather`;
# - `fork`, `append_own` (a copy of a shared block before the first write), `block_keys` and `reusable` (known blocks of a prompt);
# - `paged_attention` (decode over scattered blocks, with a running maximum $m$, sum $\ell$ and weighted sum $a$).
#
# Still to come: the same attention as a Triton kernel, the scheduler, latency, speculation, and the server that joins all of it.
#
# ### Task 9 · The kernel
# *10 points · 42 minutes · ●●●●*
#
# Now the loop of Task 8 in Triton. One program takes one sequence and *one key-value head, with all query heads that share it*. Then every key
# and value is loaded exactly once. Decode is memory bound, so bytes are what is graded:
#
# - from `keys` and `values`, load exactly the slots that hold a token, each once;
# - from `tables`, load at most two numbers (one for the keys and one for the values) per program and block of its sequence, and no padding;
# - store each number of `out` once, and load none.
#
# `tl.sum(a[:, None, :] * b[None, :, :], axis=2)` is a small matrix product that accepts any size. Triton's language is in
# [chapter 8, *Compilers*](../../course/chapters/08_compilers.md).

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
    Accumulate in fp32. Load only slots that hold a token."""
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


# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "paged_kernel_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
expect_decode(*traced_decode([5, 1, 8], heads=4, kv_heads=2, width=16, block=4, seed=0), [5, 1, 8], 2, 16, 4)
print("Right: attention of three sequences, without an access out of bounds and without a race.")

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "paged_kernel_test_shapes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
expect_decode(*traced_decode([9, 2], heads=2, kv_heads=2, width=8, block=1, seed=5), [9, 2], 2, 8, 1)
print("Right: blocks of one token, and a key-value head for each query head.")
### BEGIN HIDDEN TESTS
for lengths_, heads, kv_heads, width, block in [([16, 17, 33], 8, 4, 32, 16), ([1], 1, 1, 16, 16), ([3, 30], 8, 1, 16, 8)]:
    out, right, slips, trace = traced_decode(lengths_, heads, kv_heads, width, block, seed=sum(lengths_))
    lk.checks.expect_close(out, right, rtol=1e-3, atol=1e-3, name=f"lengths {lengths_}, {heads} heads over {kv_heads}, blocks of {block}")
    lk.checks.expect_no_findings(trace)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "paged_kernel_test_bytes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
lengths_ = [21, 4, 40]
out, right, slips, trace = traced_decode(lengths_, heads=8, kv_heads=2, width=16, block=8, seed=1)
expect_decode(out, right, slips, trace, lengths_, 2, 16, 8)
for array in ("keys", "values"):  # each token's, once, and nothing else: 2 heads of 16 numbers of 2 bytes
    lk.checks.expect_traffic(trace, array, loaded_bytes=sum(lengths_) * 2 * 16 * 2)
print("Right: each key and value is loaded once, and nothing else.")
### BEGIN HIDDEN TESTS
lengths_ = [6, 33]
out, right, slips, trace = traced_decode(lengths_, heads=4, kv_heads=1, width=32, block=16, seed=6)
lk.checks.expect_close(out, right, rtol=1e-3, atol=1e-3, name="out")
for array in ("keys", "values"):
    lk.checks.expect_traffic(trace, array, loaded_bytes=sum(lengths_) * 32 * 2)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "paged_kernel_test_out", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
out, right, slips, _ = traced_decode([9, 2], heads=4, kv_heads=2, width=8, block=4, seed=3, louder=100.0)  # scores in the hundreds
if not bool(out.isfinite().all()):
    raise lk.checks.CheckError(
        "scores in the hundreds: the result is not finite. Before every exponential, subtract the largest score so far, of each query head by itself"
    )
expect_attention(out, right, slips, [9, 2], 4, "scores in the hundreds", rtol=1e-3, atol=1e-3)
out, right, slips, _ = traced_decode([9, 2], heads=4, kv_heads=2, width=8, block=4, seed=3, louder=100.0, below=True)
if not bool(out.isfinite().all()):
    raise lk.checks.CheckError("scores far below 0: the result is not finite. The largest score so far starts at -inf: at 0, every weight becomes 0")
expect_attention(out, right, slips, [9, 2], 4, "scores far below 0", rtol=1e-3, atol=1e-3)
out, right, slips, trace = traced_decode([4, 40, 3, 2], heads=8, kv_heads=2, width=16, block=8, seed=1)
lk.checks.expect_close(out, right, rtol=1e-3, atol=1e-3, name="out")
lk.checks.expect_traffic(trace, "out", stored_bytes=4 * 8 * 16 * 4, loaded_bytes=0)
most, columns = 2 * 2 * (1 + 5 + 1 + 1), 2 * 4 * 5  # both programs of a row may read for keys and for values
if trace.arrays["tables"].loaded_elements in (columns, 2 * columns):
    raise lk.checks.CheckError("the padding of tables is read: a sequence has ceil(length / BLOCK) blocks, and only the longest has most_blocks")
lk.checks.expect_traffic(trace, "tables", at_most_loaded_elements=most)
print("Right: large scores do not overflow, scores far below 0 do not vanish, each result is stored once, and no padding of the tables is read.")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Each byte of the cache is worth as many FLOPs as heads share it: grouped heads are decode attention's only way up the roof."
):
    placed = []
    for kv_heads in (8, 2, 1):
        _, _, _, trace = traced_decode([64, 40], heads=8, kv_heads=kv_heads, width=32, block=16, seed=2)
        work = lk.Work(4.0 * 8 * 32 * 104, trace.work.bytes_read, trace.work.bytes_written, dtype="bfloat16", name=f"8 heads over {kv_heads}")
        print(f"{work.name}: {work.bytes_read:9,.0f} bytes read, {work.intensity:.1f} FLOP/B")
        placed.append(work)
    lk.show(on_roof(placed), summary="Roofline with three decode kernels, all memory bound; fewer key-value heads stand further right.")

# %% [markdown]
# ## Part 5 · Who goes next
#
# **Continuous batching** decides anew before every pass: finished requests leave, and waiting requests come in, as long as there are blocks.
# Nobody knows how long an answer will be. So admit a request as soon as its prompt fits. When a running sequence needs a block and there is none,
# **preempt** the *youngest*: it gives back all its blocks and waits at the front of the queue. It keeps its tokens. When it comes back, its prompt
# and the tokens that it has produced go through the model in one prefill, and the next token is what it would have been.
#
# ### Task 10 · The scheduler
# *12 points · 51 minutes · ●●●●*
#
# `step()` plans one pass, in two parts:
#
# 1. **Running requests**, oldest first: each gets a slot for its newest token, which goes through the model in this pass. If there is no block for
#    the slot, preempt the youngest running request, and repeat until there is one. The youngest can be the request that needs the block: then it is preempted
#    itself and has no part in this pass.
# 2. **Waiting requests**, in order of arrival: each comes in if the pool has blocks for *all* its tokens. The first that does not fit ends this part,
#    because nobody may overtake. (So in a step with a preemption nobody comes in.)
#
# The lab has two records. A `Job(name, prompt, new_tokens, table)` is a request: `new_tokens` are wanted, `table` is its BlockTable (empty while
# it waits), `job.produced` is the list of its tokens so far (at first empty), and `job.tokens` is the prompt and what was produced.
# An `Entry(name, tokens, past, blocks)` is one sequence's part in a pass: the `tokens` that go through the model now (the newest one, or all of them
# after a start or a preemption), how many `past` tokens its blocks hold already, and its block table with room for both.
#
# `accept` adds the model's token to `produced`, and that token has no slot yet. So at the start of `step()` the table of a running request holds
# `len(job.tokens) - 1` tokens, and part 1 appends the slot for the newest. The oldest request is never preempted for another one, so every request ends.
#
# An example: 3 blocks of 2 tokens; `a` has a prompt of 3 tokens and wants 3, `b` has a prompt of 2 and wants 3. $a_1$ is the first token that `a` produces.
#
# | step | plan: tokens, past, blocks | free after planning | what happens |
# |---|---|---|---|
# | 0 | `a`: prompt, 0, `[0, 1]`; `b`: prompt, 0, `[2]` | 0 | both fit; the model gives $a_1$ and $b_1$ |
# | 1 | `a`: $a_1$, 3, `[0, 1]` | 1 | `a` has a free slot. `b` needs a block, there is none, and the youngest is `b` itself: it gives back block 2 and waits |
# | 2 | `a`: $a_2$, 4, `[0, 1, 2]` | 0 | `b` has 3 tokens now and needs 2 blocks, so it waits. The model gives $a_3$: `a` leaves and gives back its blocks |
# | 3 | `b`: prompt and $b_1$, 0, `[0, 1]` | 1 | `b` comes back: one prefill of its 3 tokens. The model gives $b_2$ |
# | 4 | `b`: $b_2$, 3, `[0, 1]` | 1 | the model gives $b_3$, and `b` leaves. $a_3$ and $b_3$ were never in the cache |

# %%
lk.predict("scheduler")


# %% nbgrader={"grade": false, "grade_id": "scheduler", "locked": false, "schema_version": 3, "solution": true, "task": false}
class Scheduler:
    """Continuous batching under a budget of blocks.
    Attributes: pool, block, waiting and running (Jobs, oldest first)."""

    def __init__(self, blocks, block):
        self.pool, self.block = BlockPool(blocks), block
        self.blocks = blocks  # all of them, free or not: `submit` refuses what could never fit
        self.waiting, self.running = collections.deque(), []

    def submit(self, name, prompt, new_tokens):
        """A request joins the end of the queue; ValueError if all blocks together could not hold it.
        The last token that it produces never enters the cache, so it needs room for len(prompt) +
        new_tokens − 1 tokens."""
        ### BEGIN SOLUTION
        needed = blocks_for(len(prompt) + new_tokens - 1, self.block)
        if needed > self.blocks:
            raise ValueError(f"{name} needs {needed} blocks and there are {self.blocks}")
        self.waiting.append(Job(name, list(prompt), new_tokens, BlockTable(self.pool, self.block)))
        ### END SOLUTION

    def step(self):
        """Plan one pass: a list of Entry, oldest first, for everybody who runs now; empty when there is nothing to do."""
        ### BEGIN SOLUTION
        plan = []
        for job in list(self.running):
            while job in self.running:
                try:
                    job.table.append()
                except OutOfBlocks:
                    youngest = self.running.pop()
                    youngest.table.release()
                    self.waiting.appendleft(youngest)
                else:
                    plan.append(Entry(job.name, job.tokens[-1:], job.table.length - 1, list(job.table.blocks)))
                    break
        while self.waiting:
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
        With its last one it leaves and gives back its blocks."""
        ### BEGIN SOLUTION
        job = next(job for job in self.running if job.name == name)
        job.produced.append(token)
        if len(job.produced) == job.new_tokens:
            self.running.remove(job)
            job.table.release()
        ### END SOLUTION


# %% [markdown]
# The next cell serves requests with your scheduler and checks its rules at every step. Instead of a model it has a memory with one token per
# slot, where your tables say. If two sequences share a block, or a token is lost, it reads something else, and the error shows the last steps.

# %% nbgrader={"grade": true, "grade_id": "scheduler_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# the example above: b needs a block, is the youngest, and comes back with its tokens
requests = [("a", 0, [1, 2, 3], 3), ("b", 0, [4, 5], 3)]
said, plans = serve(Scheduler(3, 2), requests, 3, 2, Slots(3, 2).run)
parts = [[(entry.name, len(entry.tokens), entry.past) for entry in plan] for plan in plans]
lk.checks.expect_equal(parts, [[("a", 3, 0), ("b", 2, 0)], [("a", 1, 3)], [("a", 1, 4)], [("b", 3, 0)], [("b", 1, 3)]], name="name, tokens and past of each step")
# six blocks of two tokens, and a request that arrives later
requests = [("a", 0, [1, 2, 3], 5), ("b", 0, [4, 5], 7), ("c", 3, [6], 2)]
said, plans = serve(Scheduler(6, 2), requests, 6, 2, Slots(6, 2).run)
for name, _, prompt_, new in requests:
    lk.checks.expect_equal(said[name], continued(prompt_, new), name=f"the tokens of {name}")
print("Right: preempted requests come back with all their tokens.")

# %% nbgrader={"grade": true, "grade_id": "scheduler_test_order", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
requests = [("a", 0, [1] * 5, 3), ("b", 1, [2] * 6, 2), ("c", 1, [3], 2), ("d", 2, [4], 1)]  # c and d would fit while b waits
said, plans = serve(Scheduler(4, 2), requests, 4, 2, Slots(4, 2).run)
lk.checks.expect_equal([entry.name for entry in plans[1]], ["a"], name="who runs in step 1, while b, the next, does not fit")
requests = [("a", 0, [1, 2], 5), ("b", 0, [3, 4], 5), ("c", 0, [5, 6], 5), ("d", 1, [7], 3)]  # two have to go, and d has to wait for both
said, plans = serve(Scheduler(3, 2), requests, 3, 2, Slots(3, 2).run)
for name, _, prompt_, new in requests:
    lk.checks.expect_equal(said[name], continued(prompt_, new), name=f"the tokens of {name}")
print("Right: nobody overtakes, and preempted requests come before later arrivals.")

# %% nbgrader={"grade": true, "grade_id": "scheduler_test_room", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(len(Scheduler(3, 2).step()), 0, name="entries of a plan when nothing is asked")
lk.checks.expect_raises(ValueError, Scheduler(6, 2).submit, "too long", [1] * 12, 2)
said, _ = serve(Scheduler(6, 2), [("just right", 0, [1] * 12, 1)], 6, 2, Slots(6, 2).run)  # the last token never enters the cache
lk.checks.expect_equal(len(said["just right"]), 1, name="tokens of a request that fills all blocks")
print("Right: a request that fills all blocks is served, and a longer one is refused.")

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "scheduler_test_random", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
requests = [("a", 0, [1], 4), ("b", 2, [2] * 4, 1), ("c", 9, [3, 3], 2)]  # nobody is there in some steps
said, plans = serve(Scheduler(4, 1), requests, 4, 1, Slots(4, 1).run)
lk.checks.expect_equal(said["b"], continued([2] * 4, 1), name="the tokens of b")
print("Right: blocks of one token, and steps without a request.")
### BEGIN HIDDEN TESTS
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
        lk.checks.expect_equal(said[name], continued(prompt_, new), name=f"the tokens of {name}, {many} requests on {blocks} blocks of {block}")
    # the oldest gets a token at every step, so this many steps always do
    assert len(plans) <= 30 + sum(new for *_, new in requests), f"{len(plans)} steps: the oldest request made no progress"
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Each row is a block of memory, each colour a request. A colour that breaks off and comes back was preempted."
):
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
# The next cell is the language model's own forward pass with your functions for a cache. All tokens of a pass, of prompts and of decode steps, go
# through the weights as *one* long batch. Only attention treats each sequence separately.


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "scheduler_engine", "locked": true, "schema_version": 3, "solution": false, "task": false}
class PagedModel:
    """The language model over blocks: its keys and values lie where block tables say, and your functions attend over them."""

    def __init__(self, model, blocks, block):
        c = model.config
        self.model, self.block, self.decode = model, block, paged_attention
        self.keys, self.values = (torch.full((c.layers, blocks, block, c.kv_heads, c.head_width), float("nan")) for _ in range(2))

    def run(self, plan):
        """The likeliest next token of every entry."""
        return {entry.name: int(logits[-1].argmax()) for entry, logits in zip(plan, self.logits(plan))}

    def logits(self, plan):
        """The logits [new tokens, vocabulary] of every entry."""
        at = [range(past, past + len(tokens)) for _, tokens, past, _ in plan]
        block = torch.tensor([entry.blocks[p // self.block] for entry, places in zip(plan, at) for p in places])
        offset = torch.tensor([p % self.block for places in at for p in places])
        angles = rotary_angles(self.model.config, torch.tensor([p for places in at for p in places]))
        x = self.model.model.embed_tokens(torch.tensor([token for entry in plan for token in entry.tokens]))
        for number, layer in enumerate(self.model.model.layers):
            y, attention = layer.input_layernorm(x), layer.self_attn
            q, k, v = (each(y).unflatten(-1, (-1, self.model.config.head_width)).transpose(0, 1) for each in (attention.q_proj, attention.k_proj, attention.v_proj))
            q, k = rotate(q, *angles), rotate(k, *angles)  # [heads, tokens, h]
            self.keys[number][block, offset], self.values[number][block, offset] = k.transpose(0, 1), v.transpose(0, 1)
            mixed = self._attend(plan, q, self.keys[number], self.values[number])
            x = x + attention.o_proj(mixed.transpose(0, 1).flatten(1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.model.lm_head(self.model.model.norm(x)).split([len(places) for places in at])

    def _attend(self, plan, q, keys, values):
        """A prompt attends by `attend`. Each token of a decode step, or of a few guessed ones, is a row of `paged_attention`."""
        mixed, rows, tables, lengths, end = torch.empty_like(q), [], [], [], 0
        for _, tokens, past, blocks in plan:
            start, end = end, end + len(tokens)
            if len(tokens) == 1 or (past and len(tokens) <= 8):
                rows += range(start, end)
                tables += [list(blocks)] * len(tokens)
                lengths += range(past + 1, past + len(tokens) + 1)
            else:
                total = past + len(tokens)
                mixed[:, start:end] = attend(q[:, start:end], gather(keys, list(blocks), total), gather(values, list(blocks), total))
        if rows:
            widest = max(map(len, tables))
            padded = torch.tensor([table + [-1] * (widest - len(table)) for table in tables])
            decoded = self.decode(q[:, rows].transpose(0, 1).contiguous(), keys, values, padded, torch.tensor(lengths))
            mixed[:, rows] = decoded.transpose(0, 1)
        return mixed


prompts = ["    def __hash__(self):\n        ", 'def close(self):\n        """', 'def get(self, key, default=None):\n        """']
prompts += ['def basename(path):\n    """', 'class Reader:\n    """', 'def read(self, size=-1):\n        """']
questions = [(f"q{n}", 2 * n, tokenizer.encode(prompt), 12 + 4 * n) for n, prompt in enumerate(prompts)]

# %% nbgrader={"grade": true, "grade_id": "scheduler_test_model", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# fourteen blocks of four tokens, so that some have to go and come back; each must write what the model writes for it alone
said, plans = serve(Scheduler(14, 4), questions, 14, 4, PagedModel(model, 14, 4).run)
for name, _, prompt_, new in questions:
    lk.checks.expect_equal(said[name], list(lm.generate(model, prompt_, new)), name=f"the tokens of {name}")
print("Right: six answers, token for token as the model writes them alone.")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Your blocks, your attention, your scheduler, and token for token the text that the model writes by itself."
):
    said, plans = serve(Scheduler(14, 4), questions, 14, 4, PagedModel(model, 14, 4).run)
    prefills = sum(1 for plan in plans for entry in plan if entry.past == 0)
    alone = sum(new for *_, new in questions)
    print(f"{alone} tokens in {len(plans)} passes in place of {alone}, with {prefills - len(questions)} preemptions\n")
    for name, _, prompt_, _ in questions:
        print(f"--- {name}\n{tokenizer.decode(prompt_ + said[name])}\n")

# %% [markdown]
# ## Part 6 · What users feel
#
# A user sees the time until the first token, **TTFT** (time to first token), and the time between the following ones, **TPOT** (time per
# output token). A service promises limits for both, and **goodput** counts only the requests for which both were kept.
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
    ttft_tpot(1.0, [3.0, 3.5, 4.0]) is (2.0, 0.5)."""
    ### BEGIN SOLUTION
    gaps = len(times) - 1
    return times[0] - arrival, (times[-1] - times[0]) / gaps if gaps else 0.0
    ### END SOLUTION


def goodput(arrivals, token_seconds, most_ttft, most_tpot):
    """Requests per second that kept both limits, from the first arrival to the last token of all.
    arrivals: {name: seconds}; token_seconds: {name: [seconds, ...]}. A limit that is just met is kept."""
    ### BEGIN SOLUTION
    kept = 0
    for name, times in token_seconds.items():
        ttft, tpot = ttft_tpot(arrivals[name], times)
        kept += ttft <= most_ttft and tpot <= most_tpot
    return kept / (max(times[-1] for times in token_seconds.values()) - min(arrivals.values()))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "latency_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
ttft, tpot = ttft_tpot(1.0, [3.0, 3.5, 4.0])
lk.checks.expect_close(ttft, 2.0, rtol=1e-9, name="TTFT of a request that came at 1 s, and its tokens at 3, 3.5 and 4 s")
slips = {"n tokens have n - 1 gaps": 1 / 3, "the wait for the first token belongs to TTFT": 1.0}
expect_right(tpot, 0.5, slips, "its TPOT", rtol=1e-9, atol=0)
expect_right(ttft_tpot(0.0, [2.0, 2.1, 2.2, 3.0, 4.0])[1], 0.5, {"n tokens have n - 1 gaps": 0.4}, "TPOT of five tokens from 2 s to 4 s", rtol=1e-9, atol=0)
arrivals = {"b": 2.5, "a": 1.0}
came = {"b": [2.75, 5.0], "a": [3.0, 3.5, 4.0]}
order = "the dicts are in any order: take the smallest arrival and the largest token time"
slips = {
    order: 1 / 1.5,
    f"{order}, the arrival, too": 1 / 2.5,
    "a request counts only if it keeps both limits": 2 / 4,
    "the time goes from the first arrival to the last token of all requests, good and bad": 1 / 3,
    "the time starts with the first arrival, not at 0": 1 / 5,
    "judge every request by itself, not their mean": 0.0,
}
expect_right(goodput(arrivals, came, most_ttft=2.5, most_tpot=0.6), 1 / 4, slips, "goodput: a keeps both limits, b is too slow", rtol=1e-9, atol=0)
print("Right: TTFT, TPOT and goodput of two requests.")

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "latency_test_edges", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_close(ttft_tpot(0.5, [0.75]), (0.25, 0.0), rtol=1e-9, name="TTFT and TPOT of one token: there is no gap")
got = goodput({"a": 0.0, "b": 0.0}, {"a": [2.0, 2.5], "b": [4.0]}, most_ttft=2.0, most_tpot=0.5)
expect_right(float(got), 1 / 4, {"a limit that is just met is kept": 0.0}, "a request that just meets both limits, and one that is late", rtol=1e-9, atol=0)
print("Right: one token, and limits that are just met.")

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "latency_test_random", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_close(ttft_tpot(0.0, [1.0, 1.0, 1.0, 7.0]), (1.0, 2.0), rtol=1e-9, name="TTFT and TPOT of uneven gaps")
print("Right: uneven gaps.")
### BEGIN HIDDEN TESTS
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
# Now compare three designs under load. Each has the same 2.1 GB of cache (16,384 tokens) for Llama 3 8B on an H100: places of 512 tokens in
# batches that start and end together; the same places under your scheduler; your scheduler with blocks of 16. The time of a pass is not
# measured: it is that of your Task 2 on the datasheet's roofline. The limits are a TTFT of at most 1 s and a TPOT of at most 20 ms.


# %% jupyter={"source_hidden": true}
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
    gaps /= gaps.mean()  # so that exactly `rate` requests arrive per second
    print("simulating three designs at each rate: seconds, on a busy machine half a minute", flush=True)
    rates = [20, 60] if smoke else [5, 10, 20, 40, 60, 80, 100]
    designs = {"static batches, places of 512": (512, False), "continuous, places of 512": (512, True), "continuous, blocks of 16": (16, True)}
    figure = go.Figure()
    print(f"{'goodput at requests/s:':30s}" + "".join(f"{rate:6d}" for rate in rates))
    for name, (block, continuous) in designs.items():
        points = []
        for rate in rates:
            arrivals = dict(zip([name for name, *_ in requests], (np.cumsum(gaps) / rate).tolist()))
            points.append(goodput(arrivals, simulate(requests, arrivals, block, continuous), most_ttft=1.0, most_tpot=0.02))
        print(f"{name:30s}" + "".join(f"{good:6.1f}" for good in points))
        figure.add_scatter(x=rates, y=points, mode="lines+markers", name=name)
    figure.update_layout(height=320, xaxis_title="requests that arrive per second", yaxis_title="goodput, requests per second")
    lk.show(figure, summary="Goodput against the arrival rate for three designs: static batches fall off first, blocks of sixteen last.")

# %% [markdown]
# ## Part 7 · Several tokens from one pass
#
# A pass over five tokens reads the same weights as a pass over one. **Speculative decoding** uses that. A cheap *draft* model proposes $k$ tokens.
# The target model processes all of them in one pass and so has its own distribution $p$ at each place. If the draft drew token $x$ from $q$,
#
# - keep it with probability $\min(1, p(x) / q(x))$, and go on to the next;
# - at the first that is not kept, draw from what the draft gave too little probability, $\max(p - q, 0)$, normalised, and stop;
# - if all are kept, draw one more from the target's last distribution, which the pass has computed anyway.
#
# The text then has *exactly* the distribution of the target, whatever the draft is. A bad draft costs time and never quality.
#
# An example with three tokens, $q = (0.5, 0.5, 0)$ and $p = (0.25, 0.5, 0.25)$. Token 0 is drawn half of the time and kept half of these times:
# $0.5 \cdot 0.5 = 0.25 = p(0)$. Token 1 is always kept: $0.5 = p(1)$. In the remaining quarter of all cases
# $\max(p - q, 0) = (0, 0, 0.25)$, normalised $(0, 0, 1)$, gives token 2: $0.25 = p(2)$.
#
# ### Task 12 · Accept or correct
# *6 points · 17 minutes · ●●●○*
#
# So that chance can be tested, it comes as an argument: `uniforms[i]` decides on token $i$ (keep it if `uniforms[i]` is *below* the
# probability), and `uniforms[k]` draws the last token, in both endings, with `pick(probabilities, uniform)`. This helper returns the token whose
# stretch of [0, 1) holds the number: token t has the t-th stretch, as long as its probability.

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


# %% nbgrader={"grade": true, "grade_id": "speculate_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
p, q = np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[1.0, 0.0]])
kept = {(0,): "if all drafted tokens are kept, draw one more from the target's last row", (1,): "p below q is no reason to reject: keep the token if its uniform is below p / q"}
expect_tokens(speculate([0], q, p, [0.4, 0.9]), [0, 1], kept, "token 0 with p = 0.5, q = 1 and uniform 0.4")
stop = "after the first token that is not kept, draw one from max(p - q, 0) and stop"
lost = {(0, 1): "a token is kept if its uniform is below min(1, p / q); one that is not kept is not returned", (1, 1): stop, (): stop, (0,): stop}
expect_tokens(speculate([0], q, p, [0.6, 0.9]), [1], lost, "token 0 with p = 0.5, q = 1 and uniform 0.6")
p, q = np.array([[0.25, 0.75], [1.0, 0.0]]), np.array([[0.5, 0.5]])  # token 0 is kept with probability 0.25 / 0.5
last = "after all drafted tokens, draw from the target's last row, target[k]"
ratio = {(1,): "it is kept with probability p / q", (0, 0): "it is kept with probability p / q", (0, 1): last}
expect_tokens(speculate([0], q, p, [0.49, 0.9]), [0, 0], ratio, "token 0 with p = 0.25, q = 0.5 and uniform 0.49")
expect_tokens(speculate([0], q, p, [0.51, 0.9]), [1], ratio, "token 0 with p = 0.25, q = 0.5 and uniform 0.51")
expect_tokens(speculate([1], q, p, [0.99, 0.0]), [1, 0], {}, "token 1 with p above q, which is always kept")
p, q = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.5, 0.5]])  # p / q is 0, and no uniform number is below
expect_tokens(speculate([0], q, p, [0.0, 0.5]), [1], {(0, 0): "keep a token only if its uniform is below p / q, not equal"}, "token 0 with p = 0 and uniform 0")
print("Right: a token is kept with probability min(1, p / q).")

# %% nbgrader={"grade": true, "grade_id": "speculate_test_remainder", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
p = np.array([[0.1, 0.45, 0.05, 0.4], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.0, 1.0]])
q = np.array([[0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]])
slips = {
    (0,): "max(p - q, 0) is wanted where you have |p - q|",
    (3,): "max(p - q, 0) has to be normalised before pick",
    (1, 0, 3): "after the first token that is not kept, stop",
    (1, 0): "after the first token that is not kept, stop",
}
before = p.copy()
expect_tokens(speculate([0, 0], q, p, [0.9, 0.1, 0.2]), [1], slips, "a first token that is not kept, last uniform 0.2")  # p / q is 0.25
if not np.array_equal(p, before):
    raise lk.checks.CheckError("speculate has changed its argument target: compute max(p - q, 0) in a new array")
slips = {(3,): "in both endings the last token is drawn with the last uniform, uniforms[k]"}
expect_tokens(speculate([0, 0], q, p, [0.9, 0.99, 0.1]), [1], slips, "a first token that is not kept, last uniform 0.1")
slips = {(1,): "draw from max(p - q, 0), normalised, not from p"}  # max(p - q, 0) = [0, 0.15, 0, 0.3]: token 1 up to 1/3, then token 3
expect_tokens(speculate([0, 0], q, p, [0.9, 0.1, 0.5]), [3], slips, "a first token that is not kept, last uniform 0.5")
lk.checks.expect_equal([int(token) for token in speculate([1, 2], q, p, [0.9, 0.9, 0.5])], [1, 2, 3], name="two tokens kept, and one more from the target's last row")
print("Right: the corrected token comes from max(p - q, 0), normalised.")

# %% nbgrader={"grade": true, "grade_id": "speculate_test_exact", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# exactly: every drafted token with its probability q, every outcome on a grid of uniforms; the first token must come out as p
p, q = np.array([[0.25, 0.5, 0.25], [0.2, 0.3, 0.5]]), np.array([[0.5, 0.5, 0.0]])
grid, first = (np.arange(10) + 0.5) / 10, np.zeros(3)
for token, u, w in itertools.product(range(2), grid, grid):
    first[speculate([token], q, p, [u, w])[0]] += q[0, token] / 100
lk.checks.expect_close(first, p[0], atol=0.03, name="distribution of the first token in the example above")
print("Right: the first token has the target's distribution.")
### BEGIN HIDDEN TESTS
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
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "speculate_test_draws", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
same = np.random.default_rng(3).dirichlet(np.ones(6), 3)
lk.checks.expect_equal([int(token) for token in speculate([1, 4], same[:2], same, [0.999, 0.999, 0.0])], [1, 4, 0], name="a perfect draft is always kept, and one more token is drawn")
print("Right: a perfect draft is always kept.")
### BEGIN HIDDEN TESTS
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
### END HIDDEN TESTS

# %% [markdown]
# How often does a real draft agree? Here are two drafts for our model: the model without its last layer, and the model with its weights rounded to four bits in
# groups of 32 (lab 06). The probability to keep a token is $\alpha = \sum_x \min(p(x), q(x))$, here averaged over unseen text. If that were the same at every
# place, a pass with $k$ drafted tokens would yield $(1 - \alpha^{k+1}) / (1 - \alpha)$ tokens in the mean.

# %% jupyter={"source_hidden": true}
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
    print(f"{name:22s} keeps {100 * alpha:.0f} % of the drafted tokens; four drafted make {tokens_a_pass[3]:.2f} tokens per pass")
    figure.add_scatter(x=ks, y=tokens_a_pass, mode="lines+markers", name=name)
figure.add_scatter(x=ks, y=[k + 1 for k in ks], mode="lines", name="a perfect draft", line={"dash": "dot", "color": GREY})
figure.update_layout(height=320, xaxis_title="drafted tokens", yaxis_title="tokens per pass", yaxis_range=[0, 9.5])
lk.show(figure, summary="Expected tokens for each pass of the target against the number of drafted tokens, for two drafts.")

# %% [markdown]
# ## The kit's engine, on your pool
#
# `lk.serving.Engine` is an engine like yours, with more: prompts in chunks, swapping, stop strings. It calls the same methods of a block pool that you wrote in
# Task 4, so it runs on your pool. A step takes a virtual millisecond here, and requests arrive as they did at your scheduler.

# %% jupyter={"source_hidden": true}
def requests_for_engine():
    """The six questions, as the kit's engine takes them."""
    return [lk.serving.Request(name, tuple(prompt_), new, arrival_seconds=step / 1000) for name, step, prompt_, new in questions]


def kit_engine(pool):
    """An engine of the kit's on `pool`, with blocks of four tokens; a step takes a virtual millisecond."""
    limits = lk.serving.Limits(reuse_prefixes=False)  # to find blocks again, the kit's engine needs a pool that remembers their keys
    return lk.serving.Engine(model, pool=pool, block_size=4, limits=limits, cost=lk.serving.StepCost(1e-3, 0.0))


with lk.picture("The same tokens as your scheduler's. Move through the steps: who holds which block, who was preempted, who came back."):
    recording = kit_engine(BlockPool(14)).run(requests_for_engine())
    same = sum(list(recording.tokens[name]) == list(lm.generate(model, prompt_, new)) for name, _, prompt_, new in questions)
    evicted = sum(len(step.preempted) for step in recording.steps)
    print(f"{same} of {len(questions)} answers token for token; {len(recording.steps)} passes, {evicted} preemptions")
    display(lk.widgets.block_table(recording))

# %% jupyter={"source_hidden": true}
with lk.picture(
    "The same run as its users saw it: a wait, the prompt, the tokens. Move the limits and see who was served in time."
):
    recording = kit_engine(BlockPool(14)).run(requests_for_engine())
    for request in recording.requests:
        ttft, tpot = ttft_tpot(request.arrival_seconds, recording.token_seconds[request.id])
        print(f"{request.id}: TTFT {1e3 * ttft:4.1f} ms, TPOT {1e3 * tpot:.3f} ms (virtual)")
    display(lk.widgets.request_timeline(recording))

# %% [markdown]
# The next cell compares with `transformers`, which has no blocks and reads the same weights, if that library is there.

# %% jupyter={"source_hidden": true}
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
    agree = sum(written[name][0, len(prompt_) :].tolist() == list(lm.generate(model, prompt_, new)) for name, _, prompt_, new in questions)
    print(f"transformers' generate writes the same tokens in {agree} of {len(questions)} answers")
except ImportError:
    print("Nothing was compared, and nothing is missing for the lab: transformers is optional, and `pip install transformers` adds it.")
finally:
    logging.disable(logging.NOTSET)

# %% [markdown]
# ## Your server
#
# The last engine joins everything that you wrote. Six requests ask for the next line of one class, so they share their beginning:
#
# - `reusable` and `block_keys` find the blocks of that beginning, which only the first request computes;
# - each request wants two answers: the prompt is computed once, and the second answer is a `fork` of the first;
# - `append_own` copies the half-full last block when the first of the two writes into it;
# - in every pass a draft (the model with four-bit weights) proposes three tokens per answer, and `speculate` keeps or corrects them;
# - `attend` computes prompts. Decode runs your Triton kernel where there is a GPU. Elsewhere the kernel is interpreted, which is slow, so it computes only
#   the first answer's tokens, in the first layer of the first decode pass, and `paged_attention` computes the rest.
#
# The first answer of each request takes the likeliest token, the second one draws at a temperature of 0.5.

# %% jupyter={"source_hidden": true}
def kernel_attention(q, keys, values, tables, lengths):
    """`paged_attention` by the kernel of Task 9: compiled where there is a GPU, else interpreted."""
    on = "cuda" if torch.cuda.is_available() else "cpu"
    q, keys, values, tables, lengths = (x.to(on).contiguous() for x in (q, keys, values, tables, lengths))
    out = torch.empty(q.shape, device=on)
    sizes = {"H": q.shape[1], "K": keys.shape[2], "WIDTH": q.shape[2], "BLOCK": keys.shape[1]}
    paged_decode[(len(q), keys.shape[2])](q, keys, values, tables, lengths, out, q.shape[2] ** -0.5, tables.shape[1], **sizes)
    return out.cpu()


def cut(table, length):
    """Forget the tokens from `length` on, and give back the blocks that only they used."""
    while len(table.blocks) > blocks_for(length, table.block):
        table.pool.drop(table.blocks.pop())
    table.length = length


def distributions(logits, temperature):
    """Distributions [tokens, vocabulary] in float64; at temperature 0 the likeliest token has probability 1."""
    if not temperature:
        return np.eye(logits.shape[-1])[logits.argmax(-1).numpy()]
    return (logits.double() / temperature).softmax(-1).numpy()


@dataclass
class Answer:
    """One answer in the making; all tokens but the newest are in the cache."""

    name: str
    prompt: list
    table: object
    temperature: float
    chance: object  # its random numbers
    produced: list = field(default_factory=list)
    done: bool = False

    @property
    def held(self):
        """Tokens in the cache."""
        return len(self.prompt) + len(self.produced) - 1


class Server:
    """Serve prompts from your parts: pool, tables, forks, prefix keys, attention and speculation."""

    def __init__(self, model, draft, blocks=128, guesses=3, longest=32, stop='"""'):
        self.pool, self.guesses, self.longest, self.stop = BlockPool(blocks), guesses, longest, stop
        self.target, self.draft = PagedModel(model, blocks, BLOCK), PagedModel(draft, blocks, BLOCK)
        self.caches = [cache for each in (self.target, self.draft) for pair in (each.keys, each.values) for cache in pair]
        self.answers, self.known, self.passes, self.drafted, self.kept, self.found = [], {}, 0, 0, 0, 0
        self.interpreted = False

    def ask(self, name, prompt, temperatures):
        """Compute a prompt, but for its known blocks, and begin one answer for each temperature."""
        table = BlockTable(self.pool, BLOCK)
        for block in reusable(prompt, BLOCK, self.known):
            self.pool.share(block)
            table.blocks.append(block)
        past = table.length = len(table.blocks) * BLOCK
        self.found += past
        for _ in prompt[past:]:
            append_own(table, self.caches)
        entry = Entry(name, prompt[past:], past, list(table.blocks))
        logits = self.target.logits([entry])[0][-1:]
        self.draft.logits([entry])  # the draft keeps its keys and values under the same block numbers
        for key, block in zip(block_keys(prompt, BLOCK), table.blocks):
            if key not in self.known:
                self.pool.share(block)  # the index of keys holds the block, too, so it stays
                self.known[key] = block
        for n, temperature in enumerate(temperatures):
            answer = Answer(f"{name} {n + 1}", prompt, fork(table), temperature, np.random.default_rng(seed + n))
            self._extend(answer, [pick(distributions(logits, temperature)[0], answer.chance.random())])
            self.answers.append(answer)
        table.release()

    def step(self):
        """One pass of the target over all answers that are not done: each gets 1 to guesses + 1 tokens."""
        rows = [answer for answer in self.answers if not answer.done]
        for answer in rows:
            for _ in range(self.guesses + 1):
                append_own(answer.table, self.caches)
        drafted, shares = [[] for _ in rows], [[] for _ in rows]
        for n in range(self.guesses + 1):  # the last round only writes the keys and values of the last guess
            newest = [([answer.produced[-1]] + guessed)[n] for answer, guessed in zip(rows, drafted)]
            plan = [Entry(a.name, [token], a.held + n, list(a.table.blocks)) for a, token in zip(rows, newest)]
            logits = self.draft.logits(plan)
            for answer, guessed, share, row in zip(rows, drafted, shares, logits if n < self.guesses else []):
                share.append(distributions(row, answer.temperature)[0])
                guessed.append(pick(share[-1], answer.chance.random()))
        plan = [Entry(a.name, [a.produced[-1], *guessed], a.held, list(a.table.blocks)) for a, guessed in zip(rows, drafted)]
        self.target.decode = self._decode
        for answer, guessed, share, logits in zip(rows, drafted, shares, self.target.logits(plan)):
            target = distributions(logits, answer.temperature)
            tokens = speculate(guessed, np.array(share), target, answer.chance.random(self.guesses + 1).tolist())
            self.drafted, self.kept = self.drafted + self.guesses, self.kept + len(tokens) - 1
            self._extend(answer, [int(token) for token in tokens])
        self.passes += 1

    def _decode(self, q, keys, values, tables, lengths):
        if torch.cuda.is_available():
            return kernel_attention(q, keys, values, tables, lengths)
        out = paged_attention(q, keys, values, tables, lengths)
        if not self.interpreted:  # the tokens of the first answer, in the first layer of the first pass
            own, self.interpreted = self.guesses + 1, True
            out[:own] = kernel_attention(q[:own], keys, values, tables[:own], lengths[:own])
        return out

    def _extend(self, answer, tokens):
        """Add tokens up to the end of the answer; forget the cache behind them, and all of it at the end."""
        for token in tokens:
            answer.produced.append(token)
            if self.stop in tokenizer.decode(answer.produced) or len(answer.produced) == self.longest:
                answer.done = True
                answer.table.release()
                return
        cut(answer.table, answer.held)

    def text(self):
        """All answers so far."""
        lines = ["asks   temperature, answer"]
        for answer in self.answers:
            written = " ".join(tokenizer.decode(answer.produced).split(self.stop)[0].split())
            method = tokenizer.decode(answer.prompt).rsplit("def ", 1)[1].split("(")[0]
            line = f"{method:6s} {answer.temperature:3.1f}  {written}{'' if answer.done else ' …'}"
            lines += textwrap.wrap(line, 96, subsequent_indent=12 * " ")
        return "\n".join(lines)


# %% jupyter={"source_hidden": true}
methods = ["close(self)", "read(self, size=-1)", "flush(self)", "open(self, mode)", "next(self)", "copy(self)"]
setting = 'class File:\n    """A file object, with methods to read and write bytes."""\n\n    def __init__(self, name, mode):\n'
setting += "        self.name = name\n        self.mode = mode\n\n"

with lk.picture("Twelve answers from your own server: pool, prefix reuse, fork, copy-on-write, attention, kernel and speculation."):
    server, started = Server(model, rounded), time.perf_counter()
    screen = display({"text/plain": ""}, raw=True, display_id=True)
    for n, method in enumerate(methods):
        server.ask(f"q{n}", tokenizer.encode(f'{setting}    def {method}:\n        """'), [0.0, 0.5])
    while not all(answer.done for answer in server.answers):
        server.step()
        if screen:  # the text grows as the tokens come
            screen.update({"text/plain": server.text()}, raw=True)
    elapsed = time.perf_counter() - started
    written = sum(len(answer.produced) for answer in server.answers)
    alone = [list(lm.generate(model, answer.prompt, len(answer.produced))) for answer in server.answers]
    same = sum(own == answer.produced for own, answer in zip(alone, server.answers) if not answer.temperature)
    print(f"{written} tokens in {server.passes} decode passes; {100 * server.kept / server.drafted:.0f} % of the drafted tokens were kept")
    print(f"{server.found} of {sum(len(a.prompt) for a in server.answers[::2])} prompt tokens were found in known blocks")
    print(f"{same} of {len(methods)} first answers are token for token what the model writes alone")
    print(f"blocks held when all is done: {server.pool.size - server.pool.free}, those of {len(server.known)} keys")
    print(f"{written / elapsed:.0f} tokens/s on this machine, for information")

# %% [markdown]
# ## From here to a server on the network
#
# The kit's engine has an HTTP endpoint with OpenAI's protocol. Open a terminal (*File → New → Terminal*) and start it with `labkit serve`. It prints
# its address. [Chapter 11, *The software*](../../course/chapters/11_serving.md), has a `curl` command that asks it for a stream of tokens.
#
# ## On your GPU
#
# Not graded. Where there is a GPU, the next cell runs your kernel compiled, checks it against torch, and measures its bandwidth.

# %% jupyter={"source_hidden": true}
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
# ## What to take along, and what is next
#
# - Memory limits how many users a server has. Blocks of sixteen waste a few per cent, and reference counts let sequences share them.
# - Online softmax lets attention read memory block by block and hold almost nothing.
# - A scheduler is judged by rules that hold at every step: no block twice, every request makes progress, no token is lost.
# - Users see TTFT and TPOT. Speculation uses idle arithmetic to reduce latency, and the text's distribution stays exactly the target's.
#
# [Chapter 11, *Serving an LLM*](../../course/chapters/11_serving.md), has the systems around this engine (several machines, separate prefill and decode, prefix
# trees), and its references are the original papers. Others: grouped heads, Ainslie et al., [arXiv:2305.13245](https://arxiv.org/abs/2305.13245); online
# softmax, Milakov and Gimelshein, [arXiv:1805.02867](https://arxiv.org/abs/1805.02867).
