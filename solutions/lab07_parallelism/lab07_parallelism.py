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
# One GPU would train Llama 3 8B for 46 years and cannot hold its 128 GB of weights, gradients and optimizer state. So training
# runs on many *ranks*: the same program is started p times, and each copy has its own memory and its own number. What one rank needs
# from another travels in a message. You begin with `send` and `recv`. At the end, eight ranks train a small language model with your
# functions, cut in three ways at once.
#
# **You will be able to**
#
# - write the collectives that every framework uses, and count their messages and bytes;
# - read the report of a deadlock, and correct it;
# - cut a model by its data, matrices, layers, experts and sequence, and say what each cut sends;
# - schedule a pipeline, shard what a training run keeps in memory, and plan a job for 64 GPUs on paper.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 235 minutes | ●●●○ | any laptop; GPUs only for the last, ungraded section | 100 in 12 tasks |
#
# The time includes reading. Take **two sittings**, with a summary between them: Tasks 1 to 7 (115 minutes), then Task 8 to the end (120 minutes).
# You need lab 01 (bytes, FLOPs, the shapes of a transformer).
# [Chapter 10, *Many GPUs: training*](../../course/chapters/10_training.md), derives the formulas.
#
# **Every task has four steps**: predict, write, check, look. `lk.hint("tree_broadcast")` in a new cell shows a hint for that task, and a
# stronger one each time you ask. Hints cost no marks. `lk.progress()` shows how far you are.
# Marks come from values, counted messages and counted bytes, never from a clock: all ranks share your few cores. Where the lab shows
# seconds, a *virtual clock* computed them from stated links. Checks, helpers and the code of pictures are folded: click the three dots in a cell.

# %% tags=["install"] jupyter={"source_hidden": true}
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab07_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
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


def expect_or_name(actual, expected, name, slips=(), **tolerance):
    """expect_close, but a value that a common slip produces is called by its name.

    slips: triples of what the value is, what to do next, and the value itself.
    """
    __tracebackhide__ = True
    try:
        lk.checks.expect_close(actual, expected, name=name, **tolerance)
    except AssertionError as error:
        for looks, step, value in slips:
            if is_close(actual, value, **tolerance):
                raise lk.checks.CheckError(f"{name}: {looks}\n  next      {step}") from None
        raise error from None


def require(holds, message):
    """Raise the error of a check, as expect_close does, unless the condition holds."""
    __tracebackhide__ = True
    if not holds:
        raise lk.checks.CheckError(message)


def is_close(actual, value, **tolerance):
    """Return True if expect_close passes."""
    try:
        lk.checks.expect_close(actual, value, **tolerance)
    except AssertionError:
        return False
    return True


def check_broadcast(run, tensors, root):
    """Every rank has the root's tensor, or the message says whose it has."""
    __tracebackhide__ = True
    p = len(tensors)
    ignored = root and all(is_close(value, tensors[0], rtol=0) for value in run.values)
    count = "count ranks from the root on: (rank - root) % p"
    order = "a rank receives before it sends: go through the distances 1, 2, 4, ... in this order, from the shortest"
    require(not ignored, f"{p} ranks, root {root}: all have rank 0's tensor, not the root's\n  next      {count}")
    for rank, value in enumerate(run.values):
        own = "it never received, or returned another tensor than the one that recv overwrote"
        slips = [(f"rank {rank} still has its own tensor", own, tensors[rank])]
        other = f"'s tensor, and the root is rank {root}"
        slips += [(f"this is rank {r}{other}", count if root else order, tensors[r]) for r in range(p)]
        expect_or_name(value, tensors[root], f"x on rank {rank} of {p}, root {root}", slips, rtol=0)
    lk.checks.expect_messages(run.trace, total_messages=p - 1, name=f"{p} ranks, root {root}")


def check_reduce_scatter(run, tensors, what, **tolerance):
    """Rank r has chunk r of the sum, or the message says what it has instead."""
    __tracebackhide__ = True
    p, total = len(tensors), sum(tensors)
    cut = [torch.tensor_split(tensor, p) for tensor in tensors]
    whole = torch.tensor_split(total, p)
    for rank, value in enumerate(run.values):
        turn = "off by one turn of the ring: what arrives in the last step must be added to chunk r, on rank r"
        slips = [(f"this is rank {rank}'s own chunk, and nothing was added to it", turn, cut[rank][rank])]
        keeps = f"of the sum, and rank {rank} keeps chunk {rank}"
        slips += [(f"this is chunk {c} {keeps}", turn, whole[c]) for c in range(p)]
        step = "count the steps, p - 1, and add what arrives instead of overwriting with it"
        for other in range(p):
            missing = whole[rank] - cut[other][rank]
            slips.append((f"rank {other}'s part is missing from the sum", step, missing))
            slips.append(("nothing was summed", step, cut[other][rank]))
        slips.append(("this is the mean over the ranks", "a reduce-scatter sums; do not divide", whole[rank] / p))
        slips.append(("this is the whole sum", "each rank returns its own chunk", total))
        expect_or_name(value, whole[rank], f"chunk on rank {rank} of {p}, {what}", slips, **tolerance)
    lk.checks.expect_messages(run.trace, name=f"{p} ranks, {what}")  # no collective of the library


def check_all_gather(run, whole, p, what, **tolerance):
    """Every rank has all chunks in their order, or the message says which are wrong."""
    __tracebackhide__ = True
    cut = torch.tensor_split(whole, p)
    for rank, value in enumerate(run.values):
        name = f"the whole on rank {rank} of {p}, {what}"
        step = "put what arrives to the place of its chunk; chunk 0 is first on every rank"
        arrived = torch.cat([cut[(rank - s) % p] for s in range(p)])
        rolled = torch.cat([cut[(rank + s) % p] for s in range(p)])
        slips = [("the chunks stand in the order in which they arrived", step, arrived)]
        slips.append((f"the chunks begin with rank {rank}'s own", step, rolled))
        if torch.is_tensor(value) and value.shape == whole.shape:
            pieces = zip(torch.tensor_split(value, p), cut, range(p))
            wrong = [c for mine, good, c in pieces if not is_close(mine, good)]
            looks = f"chunks {wrong} are wrong, and the others are right"
            last = (rank + 1) % p
            if wrong == [last]:
                looks = f"chunk {last} is missing, the one that arrives last"
            turn = "off by one turn of the ring: p - 1 steps, and in each pass on what has just arrived"
            slips.append((looks, turn, value if 0 < len(wrong) < p else whole))
        expect_or_name(value, whole, name, slips, **tolerance)
    lk.checks.expect_messages(run.trace, name=f"{p} ranks, {what}")  # no collective of the library


def check_all_to_all(run, parts, what):
    """received[s] on rank r is parts[s][r], or the message says what it is."""
    __tracebackhide__ = True
    p = len(parts)
    for rank, received in enumerate(run.values):
        require(len(received) == p, f"rank {rank} of {p}, {what}: {len(received)} tensors were returned, not {p}")
        for source in range(p):
            own = f"this is rank {rank}'s own part for rank {source}: nothing has arrived here"
            slips = [(own, "receive into a new tensor for each source", parts[rank][source])]
            step = "in round k send to rank + k and receive from rank - k"
            pairs = [(a, b) for a in range(p) for b in range(p)]
            wrong = "wrong neighbour: this is rank"
            slips += [(f"{wrong} {a}'s part for rank {b}", step, parts[a][b]) for a, b in pairs]
            name = f"received[{source}] on rank {rank} of {p}, {what}"
            good = parts[source][rank]
            if torch.is_tensor(received[source]) and received[source].shape == good.shape:
                slips.append(("this is no rank's part: nothing was received here", step, received[source]))
                if source == rank:
                    slips[-1] = "this is not the rank's own part", "copy parts[rank], without a message", received[rank]
            expect_or_name(received[source], good, name, slips, rtol=0, dtype=good.dtype)
    lk.checks.expect_messages(run.trace, name=f"{p} ranks, {what}")  # no collective of the library


def all_to_all_bytes(parts):
    """Bytes that each rank has to send: all but its part for itself."""
    every = range(len(parts))
    return [sum(parts[r][j].nbytes for j in every if j != r) for r in every]


def check_means(values, gradients, what):
    """Each rank has the mean of each gradient, in its shape, or the message says what it has."""
    __tracebackhide__ = True
    p = len(gradients)
    for rank, means in enumerate(values):
        count = len(gradients[0])
        require(len(means) == count, f"rank {rank} of {p}, {what}: {len(means)} tensors came back, not {count}")
        for place, mean in enumerate(means):
            name = f"mean of gradient {place} on rank {rank} of {p}, {what}"
            every = [own[place].double() for own in gradients]
            total = sum(every)
            slips = [("this is the sum over the ranks", "the scale is missing: divide by the number of ranks", total)]
            slips.append(("the sum was divided twice", "divide by the number of ranks once", total / p**2))
            wait = "is it waited for, and is the result of that very tensor returned?"
            slips.append(("this is the rank's own gradient", wait, every[rank]))
            slips.append(("this is the rank's own gradient over p: nothing was summed", wait, every[rank] / p))
            early = "wait() first: only then does the tensor hold the sum of all ranks, and only then divide it"
            for some in range(1, 2**p - 1):  # the ranks whose part was divided already
                mixed = sum(part / p if some >> r & 1 else part for r, part in enumerate(every))
                slips.append(("the parts of some ranks were divided by p before they were added up", early, mixed))
            order = "buckets are filled from the back; put each mean back to its place"
            for other in range(count):
                moved = sum(own[other].double() for own in gradients) / p
                slips.append((f"this is the mean of gradient {other}", order, moved))
            expect_or_name(mean, total / p, name, slips, rtol=1e-5, atol=1e-6)


def check_buckets(run, rank, bucket_bytes, expected):
    """The buckets of the example's five gradients, in the order in which a rank sends them, or what they are instead."""
    __tracebackhide__ = True
    name = f"bytes of the buckets of {bucket_bytes}, in the order in which they are sent"
    got = [call.bytes for call in run.trace.of(rank, "collective")]
    slips = {
        "filled from the front; the last layer's gradient is ready first": expected[::-1],
        "one all_reduce for each gradient; collect until a bucket has bucket_bytes": [20, 12, 4, 16, 24],
        "one bucket for all; bucket_bytes counts bytes, not elements": [76],
        "a bucket of exactly bucket_bytes is full, and was not started": [20, 32, 24],
        "started before it was full; a bucket may exceed bucket_bytes": [20, 16, 16, 24],
    }
    for looks, wrong in slips.items():
        require(got == expected or got not in (wrong, wrong[::-1]), f"{name}: {looks}")
    lk.checks.expect_equal(got, expected, name=name)


def mlp_case(width, hidden, tokens, seed):
    """Weights, tokens, and the output by numpy in float64."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(width, hidden), (hidden,), (hidden, width), (width,), (tokens, width)]
    *weights, x = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return weights, x, numpy_mlp(x, weights)


def numpy_mlp(x, weights, units=slice(None), bias=1.0, activate=True):
    """The MLP of some hidden units, with some number of output biases."""
    first, between, second, after = (weight.numpy() for weight in weights)
    z = (x.numpy() @ first + between)[:, units]
    half = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2))) if activate else 1.0
    return (z * half) @ second[units] + bias * after


def check_mlp(run, x, weights, p, what):
    """Every rank has the output of the whole MLP, or the message says what it has."""
    __tracebackhide__ = True
    hidden = weights[0].shape[1]
    first = np.cumsum([0, *chunk_sizes(hidden, p)])
    for rank, value in enumerate(run.values):
        slips = []
        for times, looks in ((p, f"the output bias counts {p} times"), (0, "the output bias is missing")):
            slips.append((looks, "add it once, after the all-reduce", numpy_mlp(x, weights, bias=times)))
        own = slice(first[rank], first[rank + 1])
        for times in (0, 1):
            partial = numpy_mlp(x, weights, own, bias=times)
            slips.append(("this is this rank's partial sum", "the all-reduce of the outputs is missing", partial))
        mean = (numpy_mlp(x, weights, bias=0) / p) + weights[3].numpy()
        slips.append(("the partial sums were averaged", "add them up; do not divide", mean))
        order = "product, bias, GeLU, product"
        slips.append(("GeLU is missing", order, numpy_mlp(x, weights, activate=False)))
        for times, looks in ((1, "the first bias is missing"), (0, "both biases are missing")):
            slips.append((looks, order, numpy_mlp(x, [weights[0], 0 * weights[1], *weights[2:]], bias=times)))
        expected = numpy_mlp(x, weights)
        expect_or_name(value, expected, f"y on rank {rank} of {p}, {what}", slips, rtol=1e-10, atol=1e-10)


def on_the_clock(schedules):
    """The trace of a list of steps per stage on the virtual clock: F takes 1 s, B 2 s, messages nothing."""
    return ranks.simulate(ranks.pipeline_programs(schedules, forward_seconds=1, backward_seconds=2))


def most_live(steps):
    """The largest number of micro-batches that are forward and not yet back."""
    live, most = 0, 0
    for step in steps:
        live += 1 if step[0] == "F" else -1
        most = max(most, live)
    return most


def check_schedules(schedules, m, what, all_live=False):
    """Every step once, F before B, few live micro-batches, and no more waiting than the bubble."""
    __tracebackhide__ = True
    p = len(schedules)
    for stage, steps in enumerate(schedules):
        name = f"{what}, stage {stage} of {p}, m={m}"
        require(isinstance(steps, list), f"{name}: return a list of steps such as 'F0', not {type(steps).__name__}")
        wanted = sorted(f"{kind}{i}" for kind in "BF" for i in range(m))
        extra = sorted({str(step) for step in steps} - set(wanted))
        require(not extra, f"{name}: {', '.join(extra)}: there are only micro-batches 0 to {m - 1}")
        lk.checks.expect_equal(sorted(steps), wanted, name=f"{name}: the steps, sorted")
        late = [i for i in range(m) if steps.index(f"B{i}") < steps.index(f"F{i}")]
        for i in late:
            require(False, f"{name}: B{i} stands before F{i}")
        most, limit = most_live(steps), m if all_live else min(m, p - stage)
        ahead = (
            "how many forward passes come before the first backward pass? as many as stages after this one, plus one"
        )
        require(most <= limit, f"{name}: {most} micro-batches are live, at most {limit} may be\n  next      {ahead}")
    seconds, best = on_the_clock(schedules).seconds, 3 * (m + p - 1)  # so that the bubble is (p - 1) / (m + p - 1)
    step = "too few forward passes before the first B leave later stages idle; lk.widgets.rank_timeline(on_the_clock(schedules))"
    late = f"{what}, p={p} m={m}: takes {seconds} s, {best} are enough\n  next      {step} shows who waits"
    require(seconds == best, late)


def adam_on_one(parameter, gradients, scale=1.0):
    """torch's own Adam on one rank, on the mean of the ranks' gradients[rank][step] times a scale: parameter and moments."""
    weight = parameter.clone().requires_grad_()
    adam = torch.optim.Adam([weight], lr=0.01)
    for every in zip(*gradients):
        weight.grad = torch.stack(every).mean(0) * scale
        adam.step()
    return weight.detach(), adam.state[weight]["exp_avg"], adam.state[weight]["exp_avg_sq"]


def check_adam(ended, parameter, gradients, what):
    """Each rank has the new parameter and the moments of its chunk, or the message says what it has."""
    __tracebackhide__ = True
    p, steps, chunk = len(gradients), len(gradients[0]), torch.tensor_split
    good, summed = adam_on_one(parameter, gradients), adam_on_one(parameter, gradients, p)
    own = [adam_on_one(parameter, [gradient]) for gradient in gradients]
    for rank, values in enumerate(ended):
        for name, value, tolerance, at in (
            ("m", values[1], 1e-7, 1),
            ("v", values[2], 1e-9, 2),
        ):  # of its chunk, and of no other
            scale = "the scale is missing: reduce_scatter sums, so divide by p"
            slips = [("computed from the sum of the gradients", scale, chunk(summed[at], p)[rank])]
            step = "use what reduce_scatter returns"
            slips.append(("computed from this rank's own gradient", step, chunk(own[rank][at], p)[rank]))
            slips.append(("these are the moments of the whole parameter", "keep those of the rank's chunk", good[at]))
            corrected = chunk(good[at] / (1 - (0.9, 0.999)[at - 1] ** steps), p)[rank]
            step = "return m and v as they are; divide by 1 - 0.9^t and 1 - 0.999^t in the update alone"
            slips.append(("the bias correction sits in the moment that is returned", step, corrected))
            full = f"{name} on rank {rank} of {p}, {what}"
            expect_or_name(value, chunk(good[at], p)[rank], full, slips, rtol=1e-4, atol=tolerance)
        start = "divide m by 1 - 0.9^t and v by 1 - 0.999^t, in the update"
        plain = parameter - 0.01 * good[1] / (good[2].sqrt() + 1e-8)
        slips = [("the update has no bias correction", start, plain)]
        slips.append(("the parameter did not change", "return what all_gather returns", parameter))
        squared = parameter - 0.01 * good[1] / (1 - 0.9**steps) / (good[2] / (1 - 0.999**steps) + 1e-8).sqrt()
        slips.append(("the 1e-8 is under the root", "add it to the root: sqrt(v / (1 - 0.999^t)) + 1e-8", squared))
        expect_or_name(values[0], good[0], f"parameter on rank {rank} of {p}, {what}", slips, rtol=1e-5, atol=1e-6)


def moe_case(p, k, tokens, width, seed, experts=None):
    """Arguments for each rank: x, choice, gate and the weight of its expert."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(width, width, generator=generator) for _ in range(p)]
    arguments = []
    for n in tokens:
        x = torch.randn(n, width, generator=generator)
        chosen = torch.rand(n, experts or p, generator=generator).argsort(1)[:, :k]
        arguments.append((x, chosen, torch.rand(n, k, generator=generator), weights[len(arguments)]))
    return arguments


def one_by_one(arguments, rank, gated=True, experts=True, sort=0, cyclic=False):
    """A rank's y in float64, one token and one expert at a time; the flags leave something out."""
    x, chosen, gate, _ = arguments[rank]
    n, k, rows = len(x), chosen.shape[1], []
    for i, e in enumerate(chosen.flatten().tolist()):
        token = x[i % n if cyclic else i // k].double().numpy()
        rows.append(np.maximum(token @ arguments[e][3].double().numpy(), 0) if experts else token)
    by_expert = torch.argsort(chosen.flatten(), stable=True).tolist()
    for _ in range(sort):
        rows = [rows[i] for i in by_expert]
    y = np.zeros(tuple(x.shape))
    for i, row in enumerate(rows):
        y[i // k] += row * (gate[i // k, i % k].item() if gated else 1.0)
    return y


def check_moe(run, arguments, what):
    """Each rank has its tokens' results in their order; and only the rows that must travel have travelled."""
    __tracebackhide__ = True
    p, k, width = len(arguments), arguments[0][1].shape[1], arguments[0][0].shape[1]
    arrived = [sum(int((one[1] == rank).sum()) for one in arguments) for rank in range(p)]
    for rank, (x, *_) in enumerate(arguments):
        place = "row i of what comes back belongs to the row that the argsort has at i"
        slips = [("the rows are still in the order of the experts", place, one_by_one(arguments, rank, sort=1))]
        slips.append(("the order was applied twice, not undone", place, one_by_one(arguments, rank, sort=2)))
        token = "row i of the flat choices belongs to token i // k"
        slips.append(("rows of other tokens were sent", token, one_by_one(arguments, rank, cyclic=True)))
        gates = one_by_one(arguments, rank, gated=False)
        slips.append(("the gates are missing", "multiply each row by its gate before the sum", gates))
        applied = one_by_one(arguments, rank, experts=False)
        slips.append(("no expert was applied", "call expert(rows, weight) on what arrives", applied))
        name = f"y on rank {rank} of {p}, {len(x)} tokens, k={k}{what}"
        expect_or_name(run.values[rank], one_by_one(arguments, rank), name, slips, rtol=1e-5, atol=1e-5)
    lk.checks.expect_messages(run.trace, collectives={"all_to_all": 3}, messages=0, name=f"p={p} k={k}{what}")
    for rank, (x, *_) in enumerate(arguments):
        sent = [call.bytes for call in run.trace.of(rank, "collective")][1:]
        row = f"bytes of rows there and rows back, by rank {rank} of {p}{what}"
        lk.checks.expect_equal(sent, [4 * width * k * len(x), 4 * width * arrived[rank]], name=row)


def attention_case(heads, lengths, d, seed, size):
    """q, k, v of the whole sequence in float64; the scores grow with size squared."""
    generator = torch.Generator().manual_seed(seed)
    scales = (size, size, 1)
    return [torch.randn(heads, sum(lengths), d, generator=generator, dtype=torch.float64) * scale for scale in scales]


def in_blocks(whole, lengths):
    return ranks.each([part.contiguous() for part in whole.split(lengths, dim=1)])


def plain_attention(q, k, v, keys=None, scale=None):
    """Attention in numpy, over some of the keys."""
    chosen = np.arange(k.shape[1]) if keys is None else np.asarray(keys)
    scores = q.numpy() @ k.numpy()[:, chosen].transpose(0, 2, 1) / (scale or math.sqrt(q.shape[-1]))
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ v.numpy()[:, chosen]


def not_rescaled(q, k, v, order, fade_sum, fade_output):
    """The blocks one after the other, but sum or output keep the scale of an older maximum."""
    maxima, parts = np.full((*q.shape[:2], 1), -np.inf), []
    for keys in order:
        scores = q.numpy() @ k.numpy()[:, keys].transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        maxima = np.maximum(maxima, scores.max(-1, keepdims=True))
        shares = np.exp(scores - maxima)
        parts.append((maxima, shares.sum(-1, keepdims=True), shares @ v.numpy()[:, keys]))
    total = sum(part * (np.exp(top - maxima) if fade_sum else 1) for top, part, _ in parts)
    return sum(part * (np.exp(top - maxima) if fade_output else 1) for top, _, part in parts) / total


def check_attention(run, whole, lengths, what):
    """Each rank has the attention of its queries over all keys, or the message says over which."""
    __tracebackhide__ = True
    p, ends = len(lengths), np.cumsum(lengths)
    places = [np.arange(end - length, end) for end, length in zip(ends, lengths)]
    every = np.arange(ends[-1])
    mean = sum(plain_attention(*whole, keys) for keys in places) / p
    for rank in range(p):
        name = f"output on rank {rank} of {p}, lengths {lengths}, {what}"
        value = run.values[rank]
        finite = not torch.is_tensor(value) or bool(torch.isfinite(value).all())
        step = "subtract the running maximum from the scores before exp; start it at -inf"
        require(finite, f"{name}: NaN or Inf: exp overflowed, or all shares are 0\n  next      {step}")
        slips = [("each block's softmax was averaged", "one maximum and one sum run over all blocks", mean)]
        step = "the first block is the rank's own, and p - 1 more arrive"
        slips.append(("this is attention over the rank's own block", step, plain_attention(*whole, places[rank])))
        for c in range(p) if p > 1 else ():
            left = plain_attention(*whole, np.setdiff1d(every, places[c]))
            turn = "off by one turn of the ring: compute with p blocks, send p - 1 times"
            slips.append((f"block {c} is missing from the softmax", turn, left))
            twice = np.concatenate([every, places[c]])
            slips.append((f"block {c} is in the softmax twice", turn, plain_attention(*whole, twice)))
        scale = "divide by the square root of d, the last dimension"
        slips.append(("the scores are not divided by the square root of d", scale, plain_attention(*whole, scale=1.0)))
        slips.append(("the scores are divided by d", scale, plain_attention(*whole, scale=whole[0].shape[-1])))
        step = "multiply both by exp(old maximum - new maximum) with every block, then add the block's own"
        order = [places[(rank - turn) % p] for turn in range(p)]
        for looks, both in (("the output", (True, False)), ("the sum", (False, True)), ("", (False, False))):
            looks = f"{looks} was not rescaled" if both[0] + both[1] else "neither sum nor output was rescaled"
            slips.append((looks, step, not_rescaled(*whole, order, *both)))
        slips = [(looks, step, wrong[:, places[rank]]) for looks, step, wrong in slips]
        expected = plain_attention(*whole)[:, places[rank]]
        expect_or_name(value, expected, name, slips, rtol=1e-8, atol=1e-9)


def check_attention_messages(run, whole, lengths):
    """p - 1 blocks of keys and values from each rank, to the right."""
    __tracebackhide__ = True
    p, (heads, _, d) = len(lengths), whole[0].shape
    lk.checks.expect_messages(
        run.trace,
        at_least_messages=p - 1,
        at_most_messages=2 * (p - 1),
        sent_bytes=[16 * heads * d * (sum(lengths) - lengths[(rank + 1) % p]) for rank in range(p)],
        edges=[(rank, (rank + 1) % p) for rank in range(p)],
        name=f"p={p} lengths={lengths}",
    )


from dataclasses import dataclass, replace


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
    memory: float = 80e9  # bytes that tensors may fill; an H100 has 80 GiB = 85.9e9, the driver and NCCL take the rest
    flops_per_second: float = 500e12
    nvlink: float = 450e9
    network: float = 50e9


llama = Job(
    parameters=70.6e9, layers=80, width=8192, sequence=8192, batch=128, gpus=64
)  # Llama 3 70B on 8 nodes of 8 H100


hand = Job(10e9, 40, 5000, 2000, 16, 16, 8, 40e9, 400e12, 400e9, 40e9)  # the example of the text


plan_layouts = {  # job, and its layouts that obey the rules, whether they fit or not
    "the example": (
        hand,
        [
            (16, 1, 1),
            (8, 1, 2),
            (4, 1, 4),
            (2, 1, 8),
            (8, 2, 1),
            (4, 2, 2),
            (2, 2, 4),
            (1, 2, 8),
            (4, 4, 1),
            (2, 4, 2),
            (1, 4, 4),
            (2, 8, 1),
            (1, 8, 2),
        ],
    ),
    "the example on nodes of 2": (
        replace(hand, node=2),
        [(16, 1, 1), (8, 1, 2), (4, 1, 4), (2, 1, 8), (8, 2, 1), (4, 2, 2), (2, 2, 4), (1, 2, 8)],
    ),
    "Llama 3 70B on 64 GPUs": (
        llama,
        [
            (64, 1, 1),
            (32, 1, 2),
            (16, 1, 4),
            (8, 1, 8),
            (4, 1, 16),
            (32, 2, 1),
            (16, 2, 2),
            (8, 2, 4),
            (4, 2, 8),
            (2, 2, 16),
            (16, 4, 1),
            (8, 4, 2),
            (4, 4, 4),
            (2, 4, 8),
            (1, 4, 16),
            (8, 8, 1),
            (4, 8, 2),
            (2, 8, 4),
            (1, 8, 8),
        ],
    ),
    "24 GPUs, 44 layers": (
        Job(20e9, 44, 6144, 4096, 24, 24, memory=40e9, network=10e9),
        [(24, 1, 1), (12, 1, 2), (6, 1, 4), (12, 2, 1), (6, 2, 2), (3, 2, 4), (6, 4, 1), (3, 4, 2), (3, 8, 1)],
    ),
}


def off_by(value, good, parts):
    """Name the part whose absence, or second presence, explains a wrong sum."""
    for what, amount in parts.items():
        for times, looks in ((1, f"{what}: missing"), (-1, f"{what}: twice as much as it is")):
            step = "is a division by tp or pp missing (both are 2)? compare line by line with the text"
            yield looks, step, good - times * amount


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


def expert(rows, weight):
    """Apply this rank's expert to its rows [any number, width]; weight [width, width]."""
    return torch.relu(rows @ weight)


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


# %% tags=["parameters"]
smoke = False  # True: fewer sizes and steps, for a quick run through
seed = 0


# %% [markdown]
# ## Part 1 · Ranks and messages
#
# `ranks.run(function, p, args=...)` runs a function on p ranks. The function is plain `torch.distributed`, the code that runs on a
# cluster, unchanged. `ranks.each` gives each rank its own argument. All ranks live in this notebook's process and take turns, so every
# run gives the same result, and every message is recorded. Run the next cell, then change the number of ranks.


# %%
def who():
    return dist.get_rank()


print(ranks.run(who, 4).values)  # what each rank returned

# %% [markdown]
# ### Task 1 · A first message
# *2 points · 4 minutes · ●○○○*
#
# Rank 0 has a tensor that rank 1 needs. `dist.get_rank()` says which rank executes the line. `dist.send(x, dst=1)` sends `x` to rank 1.
# `dist.recv(x, src=0)` waits for a message from rank 0 and overwrites `x` with it. All other ranks keep what they have.

# %%
lk.predict("first_message")


# %% nbgrader={"grade": false, "grade_id": "first_message", "locked": false, "schema_version": 3, "solution": true, "task": false}
def first_message(x):
    """Send rank 0's tensor to rank 1, which overwrites its own. Returns x on every rank."""
    ### BEGIN SOLUTION
    if dist.get_rank() == 0:
        dist.send(x, dst=1)
    elif dist.get_rank() == 1:
        dist.recv(x, src=0)
    return x
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "first_message_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
cases = [[torch.tensor([7.0, 8.0]) + 10 * rank for rank in range(p)] for p in (2, 4)]
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(7_352_096_148_013)
cases += [list(torch.randn(p, 1250, generator=generator)) for p in (2, 3)]
### END HIDDEN TESTS
for tensors in cases:
    p = len(tensors)
    run = lk.checks.run_ranks(first_message, p, ranks.each(tensors))
    for rank, value in enumerate(run.values):
        slips = [("rank 1 still has its own tensor", "return the tensor that recv has overwritten", tensors[rank])]
        slips.append(("this is a number, the rank of the sender", "recv overwrites x and returns who sent it", 0))
        away = "dst is the rank that a message goes to, src the rank that it comes from"
        slips.append(("this is rank 1's tensor: the message went the wrong way", away, tensors[1]))
        expect_or_name(value, tensors[0 if rank == 1 else rank], f"x on rank {rank} of {p}", slips, rtol=0)
    lk.checks.expect_messages(run.trace, total_messages=1, total_bytes=tensors[0].nbytes, name=f"{p} ranks")
print("One message of the tensor's size, from rank 0 to rank 1. The other ranks sent nothing.")

# %% [markdown]
# If every rank passes the tensor on to its right neighbour, all have rank 0's tensor at the end. That is a *broadcast* by a chain:


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
print(run.values, run.trace, sep="\n\n")

# %% [markdown]
# ### Task 2 · Broadcast by a tree
# *8 points · 14 minutes · ●●○○*
#
# In the chain of 1,000 ranks the last rank waits for 999 messages, one after the other. In a **tree**, every rank that has the tensor
# sends it on, so the number of ranks that have it doubles in every round. Eight ranks, root 0:
#
# ```
# round 0     0 -> 1
# round 1     0 -> 2    1 -> 3
# round 2     0 -> 4    1 -> 5    2 -> 6    3 -> 7
# ```
#
# If the root is another rank, count ranks from the root on: the *relative* rank is `(rank - root) % p`, and the root's is 0. In round
# k = 0, 1, 2, … each relative rank below $2^k$ sends to the relative rank that is $2^k$ larger, if there is one. After
# $\lceil \log_2 p \rceil$ rounds all ranks have the tensor. A rank finishes its message of one round before it starts that of the next.

# %%
lk.predict("tree_broadcast")


# %% nbgrader={"grade": false, "grade_id": "tree_broadcast", "locked": false, "schema_version": 3, "solution": true, "task": false}
def tree_broadcast(x, root):
    """Give every rank the root's tensor, by a binomial tree of dist.send and dist.recv.
    x: a tensor of the same shape and dtype on every rank, overwritten in place (on the root it
    stays). root: any rank. Returns x. Works for any number of ranks. Do not call the library's
    collectives: you write one here."""
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


# %% nbgrader={"grade": true, "grade_id": "tree_broadcast_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
cases = [[torch.full((3,), 10.0 + r) for r in range(4)]]
### BEGIN HIDDEN TESTS
cases.append(list(torch.randn(4, 1250, generator=torch.Generator().manual_seed(4_081_577_302_966))))
### END HIDDEN TESTS
for tensors in cases:
    run = lk.checks.run_ranks(tree_broadcast, 4, ranks.each(tensors), 0)
    check_broadcast(run, tensors, 0)
    lk.checks.expect_messages(run.trace, at_most_rounds=2, at_most_messages=2, name="4 ranks, root 0")
    after = lk.checks.run_ranks(tree_broadcast, 4, ranks.each(tensors), 0, arguments=True)
    for rank, (_, (x, _)) in enumerate(after.values):
        slips = [("x is as it was, and another tensor was returned", "receive into x itself", tensors[rank])]
        expect_or_name(x, tensors[0], f"x itself on rank {rank} of 4 after the call", slips, rtol=0)
print("4 ranks, root 0: every rank has the root's tensor after 2 rounds.")

# %% nbgrader={"grade": true, "grade_id": "tree_broadcast_test_root", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [(4, 2, 5), (5, 3, 5), (1, 0, 5)]  # another root, a number of ranks that is no power of two, one rank alone
generator = torch.Generator().manual_seed(701)
### BEGIN HIDDEN TESTS
generator.manual_seed(9_640_312_775_208)
cases += [(2, 1, 625), (3, 2, 625), (6, 1, 625), (7, 0, 625), (8, 5, 625)]
### END HIDDEN TESTS
for p, root, n in cases:
    tensors = [torch.randn(2, n, generator=generator) for _ in range(p)]
    run = lk.checks.run_ranks(tree_broadcast, p, ranks.each(tensors), root)
    check_broadcast(run, tensors, root)
print("Any root, and any number of ranks.")

# %% nbgrader={"grade": true, "grade_id": "tree_broadcast_test_rounds", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [(4, 0, 10), (6, 2, 10)]  # 2 rounds, 3 rounds
generator = torch.Generator().manual_seed(713)
### BEGIN HIDDEN TESTS
generator.manual_seed(2_915_843_067_351)
cases += [(1, 0, 10), (3, 2, 1250), (7, 0, 1250), (8, 5, 1250)]
### END HIDDEN TESTS
for p, root, n in cases:
    tensors = list(torch.randn(p, n, generator=generator))
    run = lk.checks.run_ranks(tree_broadcast, p, ranks.each(tensors), root)
    check_broadcast(run, tensors, root)
    rounds = math.ceil(math.log2(p))
    lk.checks.expect_messages(
        run.trace,
        total_messages=p - 1,
        total_bytes=(p - 1) * 4 * n,
        at_most_messages=rounds,
        at_most_rounds=rounds,
        name=f"{p} ranks, root {root}",
    )
print("p - 1 messages in ceil(log2 p) rounds. No rank sends more than once in a round.")

# %% [markdown]
# ### A deadlock, and its report
#
# In the next cell every rank sends to its right neighbour and then receives from its left neighbour. A `send` may wait until its message
# is received. Here no rank receives, because all of them are still sending. On a cluster, such a program often runs with small tensors,
# which the network buffers, and hangs with large ones without any message. The local backend knows which rank waits for which, and reports it.


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
# The correction is to *start* both calls and then to wait for both. `isend` and `irecv` return at once, each with a request. Until the
# request's `wait()` has returned, do not change or free the tensor that is sent, and do not read the tensor that is received.
# `batch_isend_irecv` hands both calls to the network together, as NCCL requires. Three helpers of this lab do it for the tasks that follow:
#
# - `exchange(outgoing, to, incoming, source)` sends `outgoing` to rank `to` and receives `incoming`, in place, from rank `source`;
# - `neighbours()` returns (my rank, p, the rank to the right, the rank to the left) on the ring;
# - `chunk_sizes(n, p)` returns the sizes of the p chunks that `torch.tensor_split` cuts: the first n % p have one element more.


# %%
def everyone_exchanges(x):
    rank, p, right, left = neighbours()
    incoming = torch.empty_like(x)
    exchange(x, right, incoming, left)
    return incoming.tolist()


print(ranks.run(everyone_exchanges, 3, backend="local", args=(tensors,)).values)

# %% [markdown]
# ## Part 2 · The ring
#
# In every training step, all ranks need the sum of all gradients: an **all-reduce**. The ring keeps every link busy. It cuts the tensor
# into p chunks. Each chunk travels around once and collects (a **reduce-scatter**). Then the finished chunks travel around once more, so that all
# ranks get them (an **all-gather**). In tasks 2 to 5 you write the collectives, so do not call those of the library. ([Chapter 10, collectives](../../course/chapters/10_training.md).)

# %% jupyter={"source_hidden": true}
lk.widgets.collective_animator("all_reduce", "ring", 4)

# %% [markdown]
# ### Task 3 · Ring reduce-scatter
# *10 points · 24 minutes · ●●●○*
#
# At the end, rank r holds chunk r of the sum, and nothing else. In each of p − 1 steps a rank sends one chunk to its right neighbour and
# adds what comes from the left to a chunk of its own. Three ranks, with chunks c0, c1 and c2:
#
# ```
#           rank 0                      rank 1                      rank 2
# step 1    sends c2, adds to its c1    sends c0, adds to its c2    sends c1, adds to its c0
# step 2    sends c1, adds to its c0    sends c2, adds to its c1    sends c0, adds to its c2
# end       its c0 is complete          its c1 is complete          its c2 is complete
# ```
#
# Follow c0: rank 1 sends its own c0 to rank 2. Rank 2 adds its c0 and sends the sum to rank 0. Rank 0 adds its c0, and the sum is complete.
# Find the rule for p ranks: which chunk does rank r send in step s, and to which does it add?

# %%
lk.predict("reduce_scatter")


# %% nbgrader={"grade": false, "grade_id": "reduce_scatter", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ring_reduce_scatter(x):
    """Sum over all ranks, each rank keeping its own chunk.
    x [n]: equally long on every rank; it stays as it was. The chunks are torch.tensor_split(x, p).
    Their sizes differ by one if p does not divide n. Returns this rank's chunk of the sum, in x's
    dtype. Sends to the right neighbour only, p - 1 messages from each rank."""
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


# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "reduce_scatter_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [[10.0**r * torch.arange(1.0, 7.0) for r in range(3)]]  # the digits of a sum say who is in it
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(5_127_760_493_882)
cases.append(list(torch.randint(-999, 1000, (3, 6000), generator=generator).float()))
### END HIDDEN TESTS
for tensors in cases:
    run = lk.checks.run_ranks(ring_reduce_scatter, 3, ranks.each(tensors))
    check_reduce_scatter(run, tensors, f"n={len(tensors[0])}", rtol=0)
print("3 ranks, 6 elements: rank r has chunk r of the sum.")

# %% nbgrader={"grade": true, "grade_id": "reduce_scatter_test_uneven", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
cases = [(3, 7, np.float32), (1, 4, np.float32), (4, 10, np.float64)]  # chunks of unequal size, one rank alone, float64
rng = np.random.default_rng(702)
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(8_033_219_654_107)
cases += [
    (2, 5, np.float32),
    (3, 10, np.float64),
    (4, 7, np.float32),
    (5, 10_003, np.float32),
    (8, 64, np.float32),
    (4, 4, np.float64),
    (3, 6001, np.float64),
]
### END HIDDEN TESTS
for p, n, dtype in cases:
    data = rng.integers(-99, 100, (p, n)).astype(dtype)  # whole numbers: their sum is exact in any order
    tensors = [torch.from_numpy(row) for row in data]
    run = lk.checks.run_ranks(ring_reduce_scatter, p, ranks.each(tensors))
    check_reduce_scatter(run, tensors, f"n={n}, {np.dtype(dtype).name}", rtol=0, dtype=np.dtype(dtype).name)
print("Chunks of unequal size, and both dtypes.")

# %% nbgrader={"grade": true, "grade_id": "reduce_scatter_test_argument", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
cases = [[torch.arange(5.0)] * 3]
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(6_204_918_531_740)
cases.append(list(torch.randint(-999, 1000, (3, 6000), generator=generator).float()))
### END HIDDEN TESTS
for tensors in cases:
    run = lk.checks.run_ranks(ring_reduce_scatter, 3, ranks.each(tensors), arguments=True)
    for rank, (value, (x,)) in enumerate(run.values):
        good = torch.tensor_split(sum(tensors), 3)[rank]
        lk.checks.expect_close(value, good, rtol=0, name=f"chunk on rank {rank}")
        name = f"x on rank {rank} after the call (tensor_split gives views of x)"
        lk.checks.expect_close(x, tensors[rank], rtol=0, name=name)
    lk.checks.expect_messages(run.trace, messages=2, name="3 ranks")
print("x is unchanged after the call.")

# %% nbgrader={"grade": true, "grade_id": "reduce_scatter_test_messages", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# each chunk but its own leaves a rank once: 4 (n - own) bytes, in p - 1 messages, all to the right
cases = [[torch.arange(float(n)) + r for r in range(p)] for p, n in [(3, 6), (4, 10), (5, 23)]]
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(3_470_861_925_566)
cases.append(list(torch.randint(-999, 1000, (4, 8003), generator=generator).float()))
### END HIDDEN TESTS
for tensors in cases:
    p, n = len(tensors), len(tensors[0])
    run = lk.checks.run_ranks(ring_reduce_scatter, p, ranks.each(tensors))
    lk.checks.expect_close(torch.cat(run.values), sum(tensors), rtol=0, name=f"the sum, p={p} n={n}")
    lk.checks.expect_messages(
        run.trace,
        messages=p - 1,
        sent_bytes=[4 * (n - size) for size in chunk_sizes(n, p)],
        edges=[(rank, (rank + 1) % p) for rank in range(p)],
        name=f"p={p} n={n}",
    )
print("p - 1 messages from each rank, to the right only, (p - 1)/p of the tensor in all.")

# %% [markdown]
# ### Task 4 · Ring all-gather, and the all-reduce
# *10 points · 14 minutes · ●●○○*
#
# Now every rank has its chunk of the sum, and all ranks need all chunks. Nothing is added any more. Chunks are only passed on:
#
# ```
#           rank 0                rank 1                rank 2
# step 1    sends c0, gets c2     sends c1, gets c0     sends c2, gets c1
# step 2    sends c2, gets c1     sends c0, gets c2     sends c1, gets c0
# ```
#
# The reduce-scatter followed by the all-gather is the all-reduce.

# %%
lk.predict("all_gather")


# %% nbgrader={"grade": false, "grade_id": "all_gather", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ring_all_gather(chunk, n):
    """Collect the chunks of all ranks.
    chunk: rank r's part of n elements of any dtype, cut as by torch.tensor_split
    (`chunk_sizes(n, p)` has the sizes). Returns the whole [n] on every rank, chunk 0 first, in the
    dtype of chunk. Sends to the right neighbour only, p - 1 messages from each rank."""
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


# %% nbgrader={"grade": true, "grade_id": "all_gather_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [
    (4, 8, torch.float32),
    (4, 10, torch.float32),
    (3, 7, torch.int64),
    (1, 3, torch.float64),
]  # equal chunks first
generator = torch.Generator().manual_seed(703)
### BEGIN HIDDEN TESTS
generator.manual_seed(1_758_390_246_419)
cases += [(2, 7, torch.float64), (3, 8, torch.float16), (5, 21, torch.int64), (8, 8, torch.float32)]
cases += [(3, 3751, torch.float32), (4, 5002, torch.float16)]
### END HIDDEN TESTS
for p, n, dtype in cases:
    whole = (torch.rand(n, generator=generator) * 1000).to(dtype)
    run = lk.checks.run_ranks(ring_all_gather, p, ranks.each(torch.tensor_split(whole, p)), n)
    check_all_gather(run, whole, p, f"n={n}", rtol=0, dtype=dtype)
print("Every rank has all chunks in order, of equal and of unequal size, in the dtype of the chunk.")

# %% nbgrader={"grade": true, "grade_id": "all_gather_test_messages", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
cases = [(p, torch.arange(float(n))) for p, n in [(4, 10), (3, 6), (5, 21)]]
### BEGIN HIDDEN TESTS
cases.append((4, torch.randn(5002, generator=torch.Generator().manual_seed(8_611_047_239_520))))
### END HIDDEN TESTS
for p, whole in cases:
    n = len(whole)
    run = lk.checks.run_ranks(ring_all_gather, p, ranks.each(torch.tensor_split(whole, p)), n)
    check_all_gather(run, whole, p, f"n={n}", rtol=0)
    lk.checks.expect_messages(
        run.trace,
        messages=p - 1,
        sent_bytes=[
            4 * (n - chunk_sizes(n, p)[(rank + 1) % p]) for rank in range(p)
        ],  # all but the right neighbour's own
        edges=[(rank, (rank + 1) % p) for rank in range(p)],
        name=f"p={p} n={n}",
    )
print("p - 1 messages from each rank, to the right only.")

# %% nbgrader={"grade": true, "grade_id": "all_gather_test_all_reduce", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# both halves together: 2 (p - 1) messages from each rank and, over all ranks, 2 (p - 1) times the tensor
cases = [[torch.arange(float(n)) * (r + 1) for r in range(p)] for p, n in [(2, 5), (3, 9), (4, 11), (7, 30)]]
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(4_396_725_081_154)
cases.append(list(torch.randint(-999, 1000, (3, 5000), generator=generator).float()))
### END HIDDEN TESTS
for tensors in cases:
    p, n = len(tensors), len(tensors[0])
    run = lk.checks.run_ranks(ring_all_reduce, p, ranks.each(tensors))
    for rank, value in enumerate(run.values):
        slips = [("this is the mean", "an all-reduce sums; the mean comes in task 6", sum(tensors) / p)]
        slips.append(("this is the rank's own tensor", "return the sum", tensors[rank]))
        expect_or_name(value, sum(tensors), f"the sum on rank {rank} of {p}, n={n}", slips, rtol=0)
    lk.checks.expect_messages(run.trace, messages=2 * (p - 1), total_bytes=2 * (p - 1) * 4 * n, name=f"p={p} n={n}")
print("An all-reduce: 2 (p - 1) messages from each rank, 2 (p - 1)/p of the tensor.")

# %% [markdown]
# Each rank sends and receives less than two tensors, for any number of ranks. But the *number* of messages, 2(p − 1), grows, and each costs
# its latency. So for small tensors there is something better than a ring. The virtual clock takes the messages that your code sent, and
# gives them links of 5 µs latency and 50 GB/s, the card of a 400 Gb/s network.

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Eight ranks: the tree's 6 rounds win while latency counts, the ring's bytes win for large tensors."
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
    figure.update_yaxes(type="log", title="µs on the virtual clock", dtick="D2")
    figure.update_layout(height=320)
    lk.show(figure, summary="Time on 8 ranks against size: the tree wins below, the ring above.")

# %% [markdown]
# ### Task 5 · All-to-all
# *8 points · 14 minutes · ●●○○*
#
# Every rank has a different part for every other rank. The result is a transpose over the network:
#
# ```
#           before                  after
# rank 0    A0  A1  A2              A0  B0  C0
# rank 1    B0  B1  B2              A1  B1  C1
# rank 2    C0  C1  C2              A2  B2  C2
# ```
#
# Mixtures of experts do this in every layer (task 10). In **pairwise exchange** there are p − 1 rounds. In round k each rank sends to the rank k
# to its right and receives from the rank k to its left. Each rank finishes both before the next round.

# %%
lk.predict("all_to_all")


# %% nbgrader={"grade": false, "grade_id": "all_to_all", "locked": false, "schema_version": 3, "solution": true, "task": false}
def all_to_all(parts, rows):
    """Send parts[j] to rank j, and return what every rank sent to this one.
    parts: p tensors [rows_j, ...] of one dtype and equal trailing shape. Their numbers of rows may
    differ and may be 0. rows: how many rows come from each rank, p numbers. Returns p tensors; the
    s-th is rank s's part for this rank. A rank's part for itself is copied into a new tensor,
    without a message.
    p - 1 rounds of one message each way, one after the other."""
    ### BEGIN SOLUTION
    rank, p, _, _ = neighbours()
    received = [parts[0].new_empty((count, *parts[0].shape[1:])) for count in rows]
    received[rank].copy_(parts[rank])
    for k in range(1, p):
        to, source = (rank + k) % p, (rank - k) % p
        exchange(parts[to].contiguous(), to, received[source], source)
    return received
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "all_to_all_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [[[torch.tensor([10.0 * r + j + 1, -j]) for j in range(p)] for r in range(p)] for p in (1, 3, 4)]
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(2_570_138_694_403)
cases.append([list(torch.randn(3, 1250, generator=generator)) for _ in range(3)])
### END HIDDEN TESTS
for parts in cases:
    p = len(parts)
    run = lk.checks.run_ranks(all_to_all, p, ranks.each(parts), [len(parts[0][0])] * p)
    check_all_to_all(run, parts, "equal parts")
print("1, 3 and 4 ranks with equal parts: the transpose.")

# %% nbgrader={"grade": true, "grade_id": "all_to_all_test_ragged", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [([[2, 0, 1], [3, 1, 0], [0, 2, 4]], 3)]  # rows from rank r to rank j: unequal, and some none; their width
generator = torch.Generator().manual_seed(704)
### BEGIN HIDDEN TESTS
generator.manual_seed(7_918_604_255_317)
rng = np.random.default_rng(704)
cases += [(rng.integers(0, 5, (p, p)).tolist(), 125) for p in (1, 2, 4, 5, 6)]
### END HIDDEN TESTS
for counts, width in cases:
    p = len(counts)
    parts = [[torch.randn(count, width, generator=generator, dtype=torch.float64) for count in row] for row in counts]
    rows = [[counts[source][rank] for source in range(p)] for rank in range(p)]
    run = lk.checks.run_ranks(all_to_all, p, ranks.each(parts), ranks.each(rows))
    check_all_to_all(run, parts, f"rows {counts}")
print("Unequal parts, also parts without rows, in float64.")

# %% nbgrader={"grade": true, "grade_id": "all_to_all_test_rounds", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
cases = [(3, 2), (4, 2), (6, 2)]  # ranks, width of a row
generator = torch.Generator().manual_seed(714)
### BEGIN HIDDEN TESTS
generator.manual_seed(5_842_291_730_068)
cases.append((5, 250))
### END HIDDEN TESTS
for p, width in cases:
    parts = [[torch.randn(r + j + 1, width, generator=generator) for j in range(p)] for r in range(p)]
    run = lk.checks.run_ranks(
        all_to_all, p, ranks.each(parts), ranks.each([[s + r + 1 for s in range(p)] for r in range(p)])
    )
    check_all_to_all(run, parts, "r + j + 1 rows")
    lk.checks.expect_messages(
        run.trace, messages=p - 1, sent_bytes=all_to_all_bytes(parts), at_most_rounds=p - 1, name=f"{p} ranks"
    )
print("p - 1 rounds, and no message from a rank to itself.")

# %% nbgrader={"grade": true, "grade_id": "all_to_all_test_copy", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false} tags=["claim"]
cases = [[[torch.tensor([10.0 * r + j]) for j in range(3)] for r in range(3)]]
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(9_035_716_482_291)
cases.append([list(torch.randn(3, 1250, generator=generator)) for _ in range(3)])
### END HIDDEN TESTS
for parts in cases:
    run = lk.checks.run_ranks(all_to_all, 3, ranks.each(parts), [len(parts[0][0])] * 3, arguments=True)
    for rank, (received, (given, _)) in enumerate(run.values):
        for source in range(3):
            name = f"received[{source}] on rank {rank} of 3"
            lk.checks.expect_close(received[source], parts[source][rank], rtol=0, name=name)
            for part in given:
                lk.checks.expect_copy(received[source], part, name=name)
print("What is returned has memory of its own: writing to it changes no part.")

# %% [markdown]
# ## Part 3 · Cutting the work
#
# ### Task 6 · Data parallel, in buckets
# *10 points · 21 minutes · ●●●○*
#
# The simplest cut: every rank has the whole model and its own share of the batch. After the backward pass the gradients are **averaged**, and all
# ranks take the same step. One all-reduce for each small gradient would pay hundreds of latencies, so gradients are packed into **buckets**. The
# backward pass finishes the *last* layer first. So buckets are filled from the back, and each is sent as soon as it is full. Five gradients, buckets of 16 bytes:
#
# ```
# gradients      g0 24 B    g1 16 B    g2 4 B    g3 12 B    g4 20 B
#
# collect g4     20 B, at least 16: start all_reduce of [g4]
# collect g3     12 B
# collect g2     12 + 4 = 16 B:     start all_reduce of [g3, g2]
# collect g1     16 B:              start all_reduce of [g1]
# collect g0     24 B:              start all_reduce of [g0]
# then           wait for each of the four, divide by p, cut apart, restore the shapes
# ```
#
# From here on, use the library's collectives. `dist.all_reduce(x, async_op=True)` starts one and returns a request; until its `wait()` has returned, do not touch `x`. ([Chapter 10, overlap](../../course/chapters/10_training.md).)

# %%
lk.predict("average_gradients")


# %% nbgrader={"grade": false, "grade_id": "average_gradients", "locked": false, "schema_version": 3, "solution": true, "task": false}
def average_gradients(gradients, bucket_bytes):
    """The mean of each gradient over all ranks.
    gradients: list of float32 tensors of any shapes, also without dimensions, in the order of the
    layers, the same shapes on every rank; they stay as they were. Buckets: go through the list from
    its end and collect; as soon as a bucket has bucket_bytes or more, start its dist.all_reduce with
    async_op=True and begin the next. What is left over at the end is the last bucket. Wait only
    after all are started. Returns the means, in the order and shapes of `gradients`."""
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


# %% nbgrader={"grade": true, "grade_id": "average_gradients_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
gradients = [
    [torch.arange(6.0).reshape(2, 3) + r, 10.0 * r + torch.arange(4.0), torch.tensor([-2.0 * r])] for r in range(3)
]
cases = [(gradients, 16), (gradients, 1000)]  # with 1000, all gradients are in one bucket that is never full
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(1_296_480_573_733)
cases.append(([[torch.randn(n, generator=generator) for n in (1000, 300, 700)] for _ in range(3)], 2000))
### END HIDDEN TESTS
for gradients, bucket_bytes in cases:
    run = lk.checks.run_ranks(average_gradients, 3, ranks.each(gradients), bucket_bytes, arguments=True)
    check_means([value for value, _ in run.values], gradients, f"buckets of {bucket_bytes} bytes")
    for rank, (_, (after, _)) in enumerate(run.values):
        for place, gradient in enumerate(gradients[rank]):
            lk.checks.expect_close(
                after[place], gradient, rtol=0, name=f"gradient {place} on rank {rank} after the call, unchanged"
            )
print("The means of three gradients over three ranks, in place and shape; the arguments are unchanged.")

# %% nbgrader={"grade": true, "grade_id": "average_gradients_test_shapes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
cases = [
    (2, 64),
    (1, 64),
]  # a tensor without dimensions among the others, a last bucket that is not full; one rank alone
generator = torch.Generator().manual_seed(705)
shapes = [(7, 5), (5,), (3, 7), (3,), (), (11, 2, 2)]
### BEGIN HIDDEN TESTS
generator.manual_seed(6_730_952_418_045)
shapes.append((40, 40))
cases += [(3, 1), (4, 100), (5, 10**6)]
### END HIDDEN TESTS
for p, bucket_bytes in cases:
    gradients = [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(p)]
    run = lk.checks.run_ranks(average_gradients, p, ranks.each(gradients), bucket_bytes)
    check_means(run.values, gradients, f"buckets of {bucket_bytes} bytes")
print("Shapes of 0, 1, 2 and 3 dimensions, and one rank alone.")

# %% nbgrader={"grade": true, "grade_id": "average_gradients_test_buckets", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
sizes = [6, 4, 1, 3, 5]  # elements: the example above
gradients = [[torch.ones(size) * (r + 1) * place for place, size in enumerate(sizes)] for r in range(3)]
cases = [(gradients, 16, [20, 16, 16, 24]), (gradients, 24, [32, 44]), (gradients, 10**6, [76])]
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(4_157_893_620_277)  # 100 times as large: so are the buckets
gradients = [[torch.randn(100 * size, generator=generator) for size in sizes] for _ in range(3)]
cases += [(gradients, 1600, [2000, 1600, 1600, 2400]), (gradients, 2400, [3200, 4400])]
### END HIDDEN TESTS
for gradients, bucket_bytes, expected in cases:
    run = lk.checks.run_ranks(average_gradients, 3, ranks.each(gradients), bucket_bytes)
    check_means(run.values, gradients, f"buckets of {bucket_bytes} bytes")
    check_buckets(run, 0, bucket_bytes, expected)
    lk.checks.expect_messages(
        run.trace, collectives={"all_reduce": len(expected)}, messages=0, name=f"buckets of {bucket_bytes}"
    )
print("Five gradients in four buckets, filled from the back.")

# %% nbgrader={"grade": true, "grade_id": "average_gradients_test_overlap", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
gradients = [[torch.ones(size) * (r + 1) for size in (6, 4, 1, 3, 5)] for r in range(3)]
cases = [(gradients, 16, [20, 16, 16, 24])]
### BEGIN HIDDEN TESTS
cases += [(gradients, 1, [20, 12, 4, 16, 24]), (gradients, 40, [52, 24])]
generator = torch.Generator().manual_seed(8_509_264_137_991)  # 100 times as large: so are the buckets
gradients = [[torch.randn(100 * size, generator=generator) for size in (6, 4, 1, 3, 5)] for _ in range(3)]
cases.append((gradients, 4000, [5200, 2400]))
### END HIDDEN TESTS
for gradients, bucket_bytes, expected in cases:
    run = lk.checks.run_ranks(average_gradients, 3, ranks.each(gradients), bucket_bytes)
    check_means(run.values, gradients, f"buckets of {bucket_bytes} bytes")
    check_buckets(run, 1, bucket_bytes, expected)
    kinds = [event.kind for event in run.trace.of(0) if event.kind in ("collective", "wait")]
    name = f"buckets of {bucket_bytes}: start all of them, then wait"
    lk.checks.expect_equal(kinds, ["collective"] * len(expected) + ["wait"] * len(expected), name=name)
print("All buckets are started before the first is waited for.")

# %% [markdown]
# Does it train? Four ranks with a quarter of the batch each must take the same steps as one rank with the whole batch.


# %% jupyter={"source_hidden": true}
with lk.picture(
    "Four ranks with a quarter of the data each end with the weights of one rank with all of it."
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
# ### Task 7 · Tensor parallel
# *8 points · 14 minutes · ●●●○*
#
# If one layer is too large, cut its matrices. A transformer's MLP is $y = \mathrm{GeLU}(x W_1 + b_1)\, W_2 + b_2$. Cut $W_1$ by **columns**:
# each rank computes its own hidden units completely, and can apply GeLU to them at once. Then cut $W_2$ by **rows** at the same places: each rank has a
# partial sum of the output, and **one all-reduce** adds them up.
#
# ```
#            columns of W1, b1         GeLU     rows of W2
# rank 0     x  ->  h0 h1 h2 h3    ->  GeLU  ->  partial sum  \
#                                                               all_reduce  ->  + b2  ->  y on both ranks
# rank 1     x  ->  h4 h5 h6 h7    ->  GeLU  ->  partial sum  /
# ```
#
# If $W_1$ were cut by rows, GeLU would need the sum first, and there would be two all-reduces. ([Chapter 10, tensor parallel](../../course/chapters/10_training.md).)

# %%
lk.predict("tensor_parallel")


# %% nbgrader={"grade": false, "grade_id": "tensor_parallel", "locked": false, "schema_version": 3, "solution": true, "task": false}
def shard_mlp(W1, b1, W2, b2, rank, p):
    """Rank `rank`'s part of an MLP cut for p ranks, the hidden units cut as by torch.tensor_split.
    W1 [width, hidden], b1 [hidden], W2 [hidden, width], b2 [width]. Returns (W1, b1, W2, b2) of
    this rank; b2 stays whole. Runs on one rank, without messages."""
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
    x [tokens, width] is the same on all of them, `shard` is this rank's part of the MLP. One
    all-reduce of y's size, and no other message. Equal to the MLP on one rank up to rounding. The
    GeLU is F.gelu."""
    ### BEGIN SOLUTION
    W1, b1, W2, b2 = shard
    y = F.gelu(x @ W1 + b1) @ W2
    dist.all_reduce(y)
    return y + b2
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "tensor_parallel_test_shards", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
weights, _, _ = mlp_case(4, 10, 3, seed=706)
for p in (2, 3):  # 10 hidden units on 2 ranks: 5 and 5; on 3 ranks: 4, 3 and 3
    for rank, size in enumerate(chunk_sizes(10, p)):
        shard = shard_mlp(*weights, rank, p)
        first = sum(chunk_sizes(10, p)[:rank])
        good = [*(torch.narrow(weights[at], dim, first, size) for at, dim in ((0, 1), (1, 0), (2, 0))), weights[3]]
        for name, part, expected, whole in zip(("W1", "b1", "W2", "b2"), shard, good, weights):
            axis = "W1 is cut by columns (dim 1), b1 and W2 by rows (dim 0) at the same places"
            slips = [
                (f"cut along dimension {dim}", axis, torch.tensor_split(whole, p, dim)[rank])
                for dim in range(whole.dim())
            ]
            slips.append(("this is the whole tensor", "each rank keeps its part; only b2 stays whole", whole))
            expect_or_name(part, expected, f"{name} of rank {rank} of {p}, 10 hidden units", slips, rtol=0)
print("W1 by columns, b1 and W2 by rows at the same places, b2 whole; also when p does not divide the hidden units.")

# %% nbgrader={"grade": true, "grade_id": "tensor_parallel_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [(4, 8, 3, 707)]
### BEGIN HIDDEN TESTS
cases.append((60, 20, 20, 3_684_179_025_538))
### END HIDDEN TESTS
for width, hidden, tokens, seed in cases:
    weights, x, _ = mlp_case(width, hidden, tokens, seed)
    run = lk.checks.run_ranks(mlp_forward, 2, x, ranks.each([shard_mlp(*weights, rank, 2) for rank in range(2)]))
    check_mlp(run, x, weights, 2, f"{hidden} hidden units")
    lk.checks.expect_messages(run.trace, collectives={"all_reduce": 1}, messages=0, name="one layer")
    name = "bytes of the all-reduce, the size of y"
    lk.checks.expect_equal([call.bytes for call in run.trace.of(0, "collective")], [8 * tokens * width], name=name)
print("2 ranks: the output of the whole MLP on both, with one all-reduce of its size.")

# %% nbgrader={"grade": true, "grade_id": "tensor_parallel_test_uneven", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [(3, 4, 10, 5, 3), (1, 3, 5, 2, 1)]  # hidden units that p does not divide, one rank alone
### BEGIN HIDDEN TESTS
cases += [(4, 6, 13, 1, 4), (5, 2, 5, 7, 5), (3, 60, 31, 20, 7_046_325_981_160)]
### END HIDDEN TESTS
for p, width, hidden, tokens, seed in cases:
    weights, x, _ = mlp_case(width, hidden, tokens, seed)
    run = lk.checks.run_ranks(mlp_forward, p, x, ranks.each([shard_mlp(*weights, rank, p) for rank in range(p)]))
    check_mlp(run, x, weights, p, f"{hidden} hidden units")
    lk.checks.expect_messages(run.trace, collectives={"all_reduce": 1}, messages=0, name=f"p={p} hidden={hidden}")
    lk.checks.expect_equal(
        [call.bytes for call in run.trace.of(0, "collective")], [8 * tokens * width], name="bytes of the all-reduce"
    )
print("Hidden units that p does not divide, and one rank alone.")

# %% [markdown]
# The backward pass is the mirror image: the gradient of x is a sum over the ranks, so it needs one all-reduce as well. With attention, each layer needs
# four all-reduces of the activations, and no rank can compute meanwhile. That is why tensor parallelism stays inside a node, where links are fastest.
#
# ## Between the sittings
#
# This is a good place for a long break. Before you go on another day, choose *Run > Run All Above Selected Cell* in this cell. What you have, and where it is needed again:
#
# - tasks 1, 2: send, receive, avoid a deadlock; broadcast in $\lceil \log_2 p \rceil$ rounds (the finish);
# - tasks 3, 4: reduce-scatter and all-gather in a ring, together an all-reduce, 2(p − 1)/p of the tensor for each rank (tasks 9, 12, the finish);
# - task 5: all-to-all, the transpose over the network (task 10);
# - task 6: data parallel, gradients averaged once per step, in buckets, from the back (the finish);
# - task 7: tensor parallel, columns, then rows, then one all-reduce, inside a node (task 12, the finish).
#
# The helpers `exchange`, `neighbours` and `chunk_sizes` are explained under *A deadlock, and its report*. What is left: the cut between layers (task 8),
# memory (9), experts (10), long sequences (11), and a plan that combines the cuts (12).

# %% jupyter={"source_hidden": true}
lk.progress()

# %% [markdown]
# ## Part 4 · Pipelines
#
# The third cut goes between layers: stage s has layers of its own, receives activations from stage s − 1 and sends its own to stage s + 1. Little is
# sent, and only to neighbours. The price is waiting, so the batch is cut into m **micro-batches**, which follow each other through the stages.
# The waiting that remains is the **bubble**.
#
# A schedule is a list of steps for each stage: `"F3"` is the forward pass of micro-batch 3, `"B3"` its backward pass. A
# stage executes its list in order, and waits if its input is not there yet: F needs the stage before, B the stage after.
# From F to B, a micro-batch's activations stay in memory: it is *live*. Three stages, four micro-batches; F takes one column, B two, `.` is the bubble:
#
# ```
# GPipe      stage 0   F0 F1 F2 F3 .  .  .  .  .  .  B0 -- B1 -- B2 -- B3 --      4 live on every stage
#            stage 1   .  F0 F1 F2 F3 .  .  .  B0 -- B1 -- B2 -- B3 -- .  .
#            stage 2   .  .  F0 F1 F2 F3 B0 -- B1 -- B2 -- B3 -- .  .  .  .
#
# 1F1B       stage 0   F0 F1 F2 .  .  .  .  B0 -- F3 B1 -- .  B2 -- .  B3 --      3 live
#            stage 1   .  F0 F1 .  .  B0 -- F2 B1 -- F3 B2 -- .  B3 -- .  .       2 live
#            stage 2   .  .  F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 -- .  .  .  .       1 live
# ```
#
# - **GPipe**: all forward passes, then all backward passes. All m micro-batches are live at once.
# - **1F1B**: first fill the pipeline with as many forward passes as there are stages after this one. Then one forward and one backward pass in turn. Then
#   the backward passes that are left. The bubble is the same, and on stage s at most p − s micro-batches are live.
#
# ### Task 8 · GPipe and 1F1B
# *10 points · 17 minutes · ●●●○*
#
# Write both lists. There may be fewer micro-batches than stages, and there may be one stage alone.

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


# %% nbgrader={"grade": true, "grade_id": "schedules_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [(4, 8), (3, 4), (1, 3), (5, 3)]
### BEGIN HIDDEN TESTS
cases += [(2, 1), (4, 4), (4, 16), (3, 7)]
### END HIDDEN TESTS
for p, m in cases:
    schedules = [gpipe(stage, p, m) for stage in range(p)]
    check_schedules(schedules, m, "GPipe", all_live=True)
    for stage, steps in enumerate(schedules):
        lk.checks.expect_equal(
            [step[0] for step in steps],
            ["F"] * m + ["B"] * m,
            name=f"GPipe, stage {stage} of {p}, m={m}: all F, then all B",
        )
print("GPipe: all forward passes, then all backward passes, and only the bubble is idle.")

# %% nbgrader={"grade": true, "grade_id": "schedules_test_1f1b", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
for p, m in [(3, 4), (4, 4), (4, 8), (4, 16)]:
    schedules = [one_f_one_b(stage, p, m) for stage in range(p)]
    check_schedules(schedules, m, "1F1B")
lk.checks.expect_equal(one_f_one_b(1, 2, 3), ["F0", "B0", "F1", "B1", "F2", "B2"], name="1F1B, the last stage of 2")
lk.checks.expect_equal(
    one_f_one_b(0, 3, 4), ["F0", "F1", "F2", "B0", "F3", "B1", "B2", "B3"], name="1F1B, stage 0 of 3"
)
print("1F1B: as long as GPipe, and at most p - s live micro-batches on stage s.")

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "schedules_test_few", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
for p, m in [(5, 2), (4, 1), (1, 3), (3, 5)]:  # fewer micro-batches than stages; one stage alone; an odd number
    schedules = [one_f_one_b(stage, p, m) for stage in range(p)]
    check_schedules(schedules, m, "1F1B")
print("1F1B: also with fewer micro-batches than stages, and with one stage alone.")

# %% jupyter={"source_hidden": true}
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
# Where does the bubble come from? A stage works for m forward and m backward passes: m slots of (F + B). Stage 0 waits while one micro-batch goes
# to the last stage and comes back, p − 1 slots. So the whole takes m + p − 1 slots, and the bubble is (p − 1)/(m + p − 1). More micro-batches shrink it,
# and only 1F1B has the memory for many. Move the sliders.

# %% jupyter={"source_hidden": true}
lk.widgets.pipeline_gantt(stages=4, micro_batches=8, schedule="1f1b")

# %% [markdown]
# A list of steps is a program, too. The next cell *trains* with your lists: each stage is a rank with a layer of its own.


# %% jupyter={"source_hidden": true}
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
# Mixed-precision training with Adam keeps for each parameter the weight and the gradient in 16 bits, and in 32 bits a copy of the weight and two
# moments. That is 2 + 2 + 12 = 16 bytes, before the first activation. Data parallelism holds all of it on every rank. **ZeRO** shards it over the
# N ranks: stage 1 shards the optimizer's 12 bytes, stage 2 also the gradient, stage 3 (FSDP) also the weight. ([Chapter 10, ZeRO](../../course/chapters/10_training.md).)
#
# ### Task 9 · ZeRO
# *10 points · 21 minutes · ●●●○*
#
# First the arithmetic, then stage 1 itself. An all-reduce is a reduce-scatter and an all-gather (task 4). Stage 1 puts the optimizer's step *between* the two,
# so that each rank updates its own chunk and keeps the moments of that chunk alone:
#
# ```
#                      gradient [n] of each rank
# reduce_scatter       chunk of the sum of all gradients      then / p
# Adam on the chunk    moments m, v of the chunk, and the chunk of the parameter
# all_gather           parameter [n] on every rank
# ```
#
# `reduce_scatter(x)` and `all_gather(chunk, n)`, helpers of this lab, call the library, and also take sizes that p does not divide. Like your own, they *sum*, and cut as `torch.tensor_split` does.
# Adam with gradient $g$ in step $t = 1, 2, …$ is $m \leftarrow 0.9\,m + 0.1\,g$, $\ v \leftarrow 0.999\,v + 0.001\,g^2$ and
#
# $$w \leftarrow w - \text{lr} \cdot \frac{m / (1 - 0.9^t)}{\sqrt{v / (1 - 0.999^t)} + 10^{-8}} .$$

# %%
lk.predict("zero")


# %% nbgrader={"grade": false, "grade_id": "zero", "locked": false, "schema_version": 3, "solution": true, "task": false}
def state_bytes(parameters, ranks, stage):
    """Bytes that a rank keeps of weights, gradients and optimizer at ZeRO stage 0, 1, 2 or 3.
    state_bytes(7.5e9, 64, 0) is 120e9."""
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
    arguments stay as they were."""
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
cases = {(7.5e9, 64): [120e9, 31.40625e9, 16.640625e9, 1.875e9]}  # the paper's table: 120, 31.4, 16.6 and 1.9 GB
cases[1e9, 1] = [16e9] * 4  # one rank alone keeps all of it
### BEGIN HIDDEN TESTS
for count, p in [(70e9, 7), (405e9, 1024)]:
    cases[count, p] = [count * (kept + shared / p) for kept, shared in [(16, 0), (4, 12), (2, 14), (0, 16)]]
### END HIDDEN TESTS
for (count, p), expected in cases.items():
    for stage, wanted in enumerate(expected):
        step = "each stage shards what the stage before it shards, and one thing more"
        alone = [("only this stage's own part is sharded", step, {2: 14 + 2 / p, 3: 14 + 2 / p}.get(stage, 0) * count)]
        name = f"{count:.1e} parameters on {p} ranks, stage {stage}"
        expect_or_name(state_bytes(count, p, stage), wanted, name, alone, rtol=1e-12)
print("The four numbers of the ZeRO paper's table.")


# %% nbgrader={"grade": true, "grade_id": "zero_test_step", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [(6, 1.0), (6, 1e-4)]  # the square of 1e-4 is 1e-8, so it shows where the 1e-8 is added
generator = torch.Generator().manual_seed(707)
### BEGIN HIDDEN TESTS
generator.manual_seed(2_381_650_947_719)
cases.append((2400, 1.0))
### END HIDDEN TESTS
for n, size in cases:
    parameter = torch.randn(n, generator=generator)
    gradients = [[size * torch.randn(n, generator=generator)] for _ in range(2)]
    now = ranks.each([every[0] for every in gradients])
    run = lk.checks.run_ranks(zero1_step, 2, parameter, now, torch.zeros(n // 2), torch.zeros(n // 2), 1)
    check_adam(run.values, parameter, gradients, f"the first step, gradients of about {size:g}")
    lk.checks.expect_messages(
        run.trace, collectives={"reduce_scatter": 1, "all_gather": 1}, messages=0, name=f"2 ranks, {n} parameters"
    )
print("2 ranks, one step: torch's own Adam, with the moments of one half on each rank.")

# %% nbgrader={"grade": true, "grade_id": "zero_test_steps", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [(3, 10, 4), (1, 5, 2)]  # chunks of unequal size, one rank alone
generator = torch.Generator().manual_seed(708)
### BEGIN HIDDEN TESTS
generator.manual_seed(5_574_203_816_902)
cases += [(4, 23, 3), (5, 12, 2), (3, 3001, 2)]
### END HIDDEN TESTS
for p, n, steps in cases:
    parameter, sizes = torch.randn(n, generator=generator), chunk_sizes(n, p)
    gradients = [[torch.randn(n, generator=generator) for _ in range(steps)] for _ in range(p)]
    weights, m, v = [parameter] * p, [torch.zeros(size) for size in sizes], [torch.zeros(size) for size in sizes]
    for step in range(steps):  # what a step returns is what the next one gets
        now = ranks.each([every[step] for every in gradients])
        run = lk.checks.run_ranks(zero1_step, p, ranks.each(weights), now, ranks.each(m), ranks.each(v), step + 1)
        weights, m, v = (list(one) for one in zip(*run.values))
        lk.checks.expect_messages(
            run.trace, collectives={"reduce_scatter": 1, "all_gather": 1}, messages=0, name=f"p={p} n={n}"
        )
    check_adam(list(zip(weights, m, v)), parameter, gradients, f"{n} parameters, after {steps} steps")
print("Several steps, and sizes that p does not divide.")

# %% nbgrader={"grade": true, "grade_id": "zero_test_arguments", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
before = [torch.arange(6.0), torch.ones(6), torch.full((3,), 0.5), torch.full((3,), 0.25)]
run = lk.checks.run_ranks(zero1_step, 2, *before, 3, 0.5, arguments=True)
for rank, (value, after) in enumerate(run.values):
    for name, one, good in zip(
        ("parameter", "gradient", "m", "v"),
        after,
        (torch.arange(6.0), torch.ones(6), torch.full((3,), 0.5), torch.full((3,), 0.25)),
    ):
        lk.checks.expect_close(one, good, rtol=0, name=f"{name} on rank {rank} after the call, unchanged")
    lk.checks.expect_close(value[1], torch.full((3,), 0.55), rtol=1e-6, name=f"m on rank {rank}")
    rate = torch.arange(6.0) - 0.5 * (0.55 / 0.271) / (math.sqrt(0.25075 / 0.002997001) + 1e-8)
    lk.checks.expect_close(value[0], rate, rtol=1e-5, atol=1e-6, name=f"parameter on rank {rank}, lr=0.5")
### BEGIN HIDDEN TESTS
parameter, *gradients = torch.randn(3, 2400, generator=torch.Generator().manual_seed(9_162_730_458_384))
moments = torch.zeros(1200), torch.zeros(1200)
run = lk.checks.run_ranks(zero1_step, 2, parameter, ranks.each(gradients), *moments, 1, arguments=True)
check_adam([value for value, _ in run.values], parameter, [[gradient] for gradient in gradients], "2400 parameters")
for rank, (_, after) in enumerate(run.values):
    for name, one, good in zip(("parameter", "gradient", "m", "v"), after, (parameter, gradients[rank], *moments)):
        lk.checks.expect_close(one, good, rtol=0, name=f"{name} on rank {rank} after the call, unchanged")
### END HIDDEN TESTS
print("The arguments are unchanged after the call, and lr is used.")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "What a rank keeps of 7.5 billion parameters; the last column is the ZeRO paper's."
):
    for stage in range(4):
        columns = [f"{state_bytes(7.5e9, p, stage) / 1e9:6.1f} GB" for p in (1, 8, 64)]
        print(f"stage {stage}, on 1, 8 and 64 ranks: {' '.join(columns)}")

# %% [markdown]
# Activations come on top. Here they are for a real model on a real GPU. Move the sliders, and look for what ZeRO does not change.

# %% jupyter={"source_hidden": true}
lk.widgets.memory_bars("llama-2-7b", data=64, zero=1)

# %% [markdown]
# ## Part 6 · Experts
#
# A **mixture of experts** has many MLPs in a layer and sends each token to a few of them ([chapter 10, experts](../../course/chapters/10_training.md)). Experts live on different ranks,
# so tokens travel: **dispatch** each to the ranks of its experts, compute, **combine** the results back at home. Both are all-to-alls with unequal counts, which are sent first.
#
# ### Task 10 · Dispatch and combine
# *8 points · 23 minutes · ●●●●*
#
# Expert e lives on rank e. Use `dist.all_to_all_single(output, input, output_splits, input_splits)`: the input's rows are grouped by destination,
# and `input_splits[j]` of them go to rank j. The output's rows arrive grouped by source. Without splits, all ranks get equal shares.
#
# Two ranks. Rank 0 has the tokens a, b and c with one expert each (k = 1), and rank 1 has none:
#
# ```
# on rank 0
# choice                      [[1], [0], [1]]      a goes to expert 1, b to 0, c to 1
# choice, flat                [1, 0, 1]            row i belongs to token i // k
# stable argsort of that      [1, 0, 2]            rows leave in the order  b | a c
# leaving                     [1, 2]               1 row to rank 0, 2 rows to rank 1
# arriving (all-to-all)       [1, 0]               1 row from rank 0, none from rank 1
# rows there, expert, back    [E0(b), E1(a), E1(c)]    in the order in which they left
# put back to rows 1, 0, 2    [E1(a), E0(b), E1(c)]    in the order of the tokens
# ```
#
# Then multiply each row by its gate and add the k rows of each token. A rank without tokens takes part in all three all-to-alls, because its expert
# has work. Its result has the shape [0, width]. (`reshape(0, k, -1)` fails: torch cannot compute a −1 from zero elements. Name the width.)

# %%
lk.predict("moe")


# %% nbgrader={"grade": false, "grade_id": "moe", "locked": false, "schema_version": 3, "solution": true, "task": false}
def moe(x, choice, gate, weight):
    """y[t] = Σ_j gate[t, j] · expert_choice[t, j](x[t]), with expert e on rank e.
    x [tokens, width]: this rank's tokens (each rank has its own number of them, perhaps none).
    choice int64 [tokens, k]: the k experts of each token. gate [tokens, k]: their shares. weight:
    of this rank's own expert, for `expert(rows, weight)`. Returns y [tokens, width] in the order of
    x. Three all-to-alls: counts, rows there, rows back."""
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


# %% nbgrader={"grade": true, "grade_id": "moe_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [moe_case(2, 1, [3, 2], 4, seed=1), moe_case(3, 1, [4, 4, 4], 4, seed=1)]
### BEGIN HIDDEN TESTS
cases.append(moe_case(2, 1, [24, 24], 64, seed=1_803_574_296_661))
### END HIDDEN TESTS
for arguments in cases:
    run = lk.checks.run_ranks(moe, len(arguments), *(ranks.each(list(one)) for one in zip(*arguments)))
    check_moe(run, arguments, "")
print("One expert per token: rows travel there and back, and end in the order of the tokens.")

# %% nbgrader={"grade": true, "grade_id": "moe_test_two", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = [moe_case(3, 2, [4, 1, 5], 4, seed=2), moe_case(1, 1, [4], 3, seed=6)]  # two experts per token; one rank alone
### BEGIN HIDDEN TESTS
cases += [moe_case(4, 2, [7, 3, 6, 5], 5, seed=3), moe_case(4, 3, [2, 5, 1, 8], 2, seed=7)]
cases.append(moe_case(3, 2, [16, 20, 18], 64, seed=6_917_048_352_125))
### END HIDDEN TESTS
for arguments in cases:
    run = lk.checks.run_ranks(moe, len(arguments), *(ranks.each(list(one)) for one in zip(*arguments)))
    check_moe(run, arguments, "")
print("Several experts per token, and unequal numbers of tokens.")

# %% nbgrader={"grade": true, "grade_id": "moe_test_empty", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
cases = {", a rank without tokens": moe_case(2, 1, [3, 0], 4, seed=8)}
cases[", experts that no token chooses"] = moe_case(3, 1, [2, 4, 3], 4, seed=9, experts=1)
### BEGIN HIDDEN TESTS
cases[", one rank of four without tokens"] = moe_case(4, 2, [6, 0, 9, 1], 3, seed=4)
cases[", three of five experts that no token chooses"] = moe_case(5, 1, [8, 8, 8, 8, 8], 2, seed=5, experts=2)
cases[", a rank of two without tokens"] = moe_case(2, 1, [40, 0], 64, seed=3_059_816_724_470)
### END HIDDEN TESTS
for what, arguments in cases.items():
    run = lk.checks.run_ranks(moe, len(arguments), *(ranks.each(list(one)) for one in zip(*arguments)))
    check_moe(run, arguments, what)
print("A rank without tokens, and experts that no token chooses.")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Even a random router loads experts unevenly, and the layer takes as long as the fullest expert."
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
# For a million tokens no rank can hold all keys and values. **Ring attention** cuts the *sequence*: each rank has a block of
# queries, keys and values. Its queries stay, and keys and values travel around the ring. The softmax needs its maximum and its sum over all keys, which arrive in blocks. So keep a
# *running* maximum, sum and output, and rescale sum and output whenever the maximum grows (the **online softmax**, which FlashAttention uses inside one GPU).
#
# ### Task 11 · Ring attention
# *8 points · 23 minutes · ●●●●*
#
# One query, with d = 1. Block A has the scores 5 and 5 and the values 10 and 20. Block B has the score 7 and the value 40:
#
# ```
#                      maximum    sum                            output, not yet divided
# start                -inf       0                              0
# after block A        5          1 + 1 = 2                      1·10 + 1·20 = 30
# after block B        7          2·exp(5 - 7) + 1 = 1.2707      30·exp(5 - 7) + 1·40 = 44.060
# end                                                            44.060 / 1.2707 = 34.675
# ```
#
# That is the softmax over all three: (10·e⁵ + 20·e⁵ + 40·e⁷) / (e⁵ + e⁵ + e⁷) = 34.675. And the blocks of four ranks, on the ring:
#
# ```
#                    rank 0     rank 1     rank 2     rank 3
# computes with      block 0    block 1    block 2    block 3       then all send to the right
# computes with      block 3    block 0    block 1    block 2       then all send to the right
# computes with      block 2    block 3    block 0    block 1       then all send to the right
# computes with      block 1    block 2    block 3    block 0       end: nothing is sent
# ```

# %%
lk.predict("ring_attention")


# %% nbgrader={"grade": false, "grade_id": "ring_attention", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ring_attention(q, k, v, lengths):
    """softmax(q Kᵀ / √d) V over the keys and values of all ranks, without a mask.
    q, k, v [heads, lengths[rank], d]: this rank's block of the sequence. lengths: of all ranks'
    blocks; they differ. Returns [heads, lengths[rank], d]. Keys and values go to the right
    neighbour, p - 1 times, in one message or two; no rank ever has more than two blocks of them."""
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


# %% nbgrader={"grade": true, "grade_id": "ring_attention_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
cases = [([3, 3], 4, 709), ([2, 2, 2, 2], 4, 709)]
### BEGIN HIDDEN TESTS
cases.append(([12, 12, 12], 32, 8_420_697_153_508))
### END HIDDEN TESTS
for lengths, d, seed in cases:
    whole = attention_case(2, lengths, d, seed, 1)
    run = lk.checks.run_ranks(ring_attention, len(lengths), *(in_blocks(one, lengths) for one in whole), lengths)
    check_attention(run, whole, lengths, "ordinary scores")
    check_attention_messages(run, whole, lengths)
print("Blocks of equal length: softmax over the keys of all ranks; each block is sent p - 1 times, to the right.")

# %% nbgrader={"grade": true, "grade_id": "ring_attention_test_lengths", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# the scores are large: exp overflows without the maximum
cases = [(2, [3, 3], 4, 710), (2, [4, 2, 3], 4, 710), (1, [5], 3, 710)]
q, k, v = attention_case(2, [2, 3], 4, 712, 60)
whole = q.abs(), -k.abs(), v  # all scores are far below 0: exp of each is 0 without the maximum
run = lk.checks.run_ranks(ring_attention, 2, *(in_blocks(one, [2, 3]) for one in whole), [2, 3])
check_attention(run, whole, [2, 3], "scores far below 0")
### BEGIN HIDDEN TESTS
cases += [(3, [1, 6, 2, 5], 8, 710), (1, [3, 3, 3, 3, 1], 2, 710), (2, [9, 14, 12], 32, 4_735_912_068_843)]
### END HIDDEN TESTS
for heads, lengths, d, seed in cases:
    whole = attention_case(heads, lengths, d, seed, 30)
    run = lk.checks.run_ranks(ring_attention, len(lengths), *(in_blocks(one, lengths) for one in whole), lengths)
    check_attention(run, whole, lengths, "large scores")
    check_attention_messages(run, whole, lengths)
print("Large scores, and blocks of unequal length.")

# %% nbgrader={"grade": true, "grade_id": "ring_attention_test_memory", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false} tags=["claim"]
# at most: q, k, v; two blocks of keys and values; the output and what it becomes; four matrices of one block's scores
lengths, heads, d = [24, 16, 32, 20, 28], 2, 16
generator = torch.Generator().manual_seed(711)
### BEGIN HIDDEN TESTS
generator.manual_seed(7_293_068_541_916)
### END HIDDEN TESTS
q, k, v = (torch.randn(heads, sum(lengths), d, generator=generator) * scale for scale in (30, 30, 1))
blocked = [in_blocks(one, lengths) for one in (q, k, v)]
run = lk.checks.run_ranks(ring_attention, 5, *blocked, lengths, memory=True, timeout_seconds=60)
lk.checks.expect_close(
    torch.cat(run.values, 1),
    F.scaled_dot_product_attention(q, k, v),
    rtol=1e-4,
    atol=1e-5,
    name="output of all 5 ranks",
)
for rank, memory in enumerate(run.memory):
    most = 4 * heads * (6 * lengths[rank] * d + 4 * max(lengths) * d + 4 * lengths[rank] * max(lengths))
    require(
        memory.peak_bytes <= most,
        f"rank {rank} holds {memory.peak_bytes:,} bytes at its peak, at most {most:,} are needed: which blocks, or whose scores, does it keep?",
    )
print("No rank ever has more than two blocks of keys and values.")

# %% [markdown]
# ## Part 8 · A plan for 64 GPUs
#
# How much is there to cut? Parameters, FLOPs and activations follow from a model's shape, roughly by two rules of thumb, and exactly by counting.

# %% jupyter={"source_hidden": true}
lk.widgets.transformer_sizer("llama-3-70b", batch=1, sequence=8192)

# %% [markdown]
# Real jobs combine the cuts: tp ranks share each layer, pp stages share the layers, and dp such pipelines share the batch, so dp · tp · pp is the number of GPUs. Arithmetic says which
# layout fits and which is fastest.
#
# The letters are those of the picture above: P parameters in N layers of width d; a batch of B sequences of L tokens. Micro-batches have one sequence, so each pipeline has m = B/dp of them.
# The job uses ZeRO-1, *recomputation* (a layer keeps only its input, and its backward pass computes the rest again) and *sequence
# parallelism* (what tensor parallelism leaves whole is cut along the sequence, too). The values are those of an example: P = 10·10⁹, N = 40, d = 5,000,
# L = 2,000, B = 16 on 16 GPUs, with dp = 4, tp = 2, pp = 2, so m = 4; a GPU reaches 400 TFLOP/s, NVLink and network carry 400 and 40 GB/s.
#
# **Bytes on the fullest GPU, stage 0**
#
# 1. Parameters of a GPU: P/(tp·pp) = 2.5·10⁹.
# 2. Bytes of each: 4 for weight and gradient, and the optimizer's 12, which dp ranks share (task 9): 4 + 12/dp = 7. With line 1: 17.5 GB.
# 3. The input of one layer for one micro-batch: L·d numbers of 2 bytes, divided by tp: 10 MB.
# 4. Such inputs kept: N/pp layers for min(m, pp) live micro-batches (task 8): 40. With line 3: 0.4 GB.
# 5. The one layer that is recomputed: 34 bytes for each of L·d numbers (Korthikanti et al., 2023), divided by tp: 0.17 GB. The sum is 18.07 GB.
#
# **Seconds of a step**
#
# 6. Arithmetic: 6 FLOPs per parameter and token, and 2 more for the repeated forward pass; B·L tokens, shared by all GPUs: 0.4 s.
# 7. All-reduces of a GPU: 2 in the forward pass of a layer (task 7: the MLP, and attention), 2 in the repeated one, 2 in the backward pass; N/pp layers, m micro-batches: 480.
# 8. Each has L·d numbers of 2 bytes, and a ring sends 2(tp − 1)/tp times that (task 4), over NVLink: 50 µs. With line 7: 0.024 s.
# 9. The bubble stretches lines 6 and 8 by (m + pp − 1)/m (task 8): 5/4 · 0.424 s = 0.53 s.
# 10. Gradients are reduce-scattered and weights all-gathered among dp ranks, once per step (task 9). Each sends (dp − 1)/dp of P/(tp·pp) numbers of 2 bytes, over the network: 0.1875 s. The sum is 0.7175 s.
#
# ### Task 12 · Plan
# *8 points · 21 minutes · ●●●○*
#
# Turn the lines into two functions. Then search all layouts. A `job` has P, N, d, L and B as `parameters`, `layers`, `width`, `sequence` and `batch`; `gpus`, and how many
# of them are in a `node`; bytes of `memory` in each GPU that tensors may fill; `flops_per_second` as reached in practice; and the bytes/s of `nvlink` and `network`.

# %%
lk.predict("plan")


# %% nbgrader={"grade": false, "grade_id": "plan", "locked": false, "schema_version": 3, "solution": true, "task": false}
def gpu_bytes(job, dp, tp, pp):
    """Bytes on the fullest GPU, by lines 1 to 5 above. dp divides job.batch."""
    ### BEGIN SOLUTION
    m = job.batch // dp
    state = job.parameters / (tp * pp) * (4 + 12 / dp)
    return state + job.sequence * job.width / tp * (2 * job.layers / pp * min(m, pp) + 34)
    ### END SOLUTION


def step_seconds(job, dp, tp, pp):
    """Seconds of a step, by lines 6 to 10 above."""
    ### BEGIN SOLUTION
    m = job.batch // dp
    compute = 8 * job.parameters * job.batch * job.sequence / (job.gpus * job.flops_per_second)
    reduces = 6 * job.layers * m / pp * 2 * (tp - 1) / tp * 2 * job.sequence * job.width / job.nvlink
    gradients = 2 * (dp - 1) / dp * 2 * job.parameters / (tp * pp) / job.network
    return (m + pp - 1) / m * (compute + reduces) + gradients
    ### END SOLUTION


def best_layout(job):
    """The (dp, tp, pp) with the shortest step that fits into job.memory, or None if none fits.
    dp · tp · pp = gpus; tp divides node (tensor parallelism stays inside one), pp divides layers,
    dp divides batch."""
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


# %% nbgrader={"grade": true, "grade_id": "plan_test_bytes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
parts = {"the state (lines 1, 2)": 17.5e9, "the inputs of layers (3, 4)": 0.4e9, "the recomputed layer (5)": 0.17e9}
slips = [*off_by(gpu_bytes(hand, 4, 2, 2), 18.07e9, parts)]
shared = "line 2: of 16 bytes, dp ranks share the optimizer's 12"
slips += [("all 16 bytes are shared", shared, 10.57e9), ("nothing is shared", shared, 40.57e9)]
slips.append(("only one micro-batch is live", "line 4: min(m, pp)", 17.87e9))
slips.append(("all m micro-batches are live", "line 4: min(m, pp)", 18.47e9))
expect_or_name(gpu_bytes(hand, 4, 2, 2), 18.07e9, "bytes of the example", slips, rtol=1e-9)
cases = [((16, 1, 1), 10e9 * 4.75 + 1e7 * 114), ((1, 2, 8), 10e9 + 5e6 * 114), ((8, 1, 2), 27.5e9 + 1e7 * 114)]
### BEGIN HIDDEN TESTS
cases += [
    ((2, 4, 2), 10e9 / 8 * 10 + 2.5e6 * 114),
    ((8, 2, 1), 10e9 / 2 * 5.5 + 5e6 * 114),
    ((2, 1, 8), 10e9 / 8 * 10 + 1e7 * 114),
]
### END HIDDEN TESTS
for layout, expected in cases:
    lk.checks.expect_close(
        gpu_bytes(hand, *layout), expected, rtol=1e-9, name=f"bytes of the example's job with (dp, tp, pp) = {layout}"
    )
few = replace(hand, batch=4)
cases = [((2, 1, 8), 12.5e9 + 1e7 * (10 * 2 + 34))]  # m = 2 micro-batches, 8 stages
### BEGIN HIDDEN TESTS
cases += [((1, 2, 8), 10e9 + 5e6 * (10 * 4 + 34))]
### END HIDDEN TESTS
for layout, expected in cases:
    whole = 5e6 * 2 / layout[1] * (40 + 34) + 10e9 / 8 / layout[1] * (4 + 12 / layout[0])
    slips = [("m is that of the whole batch", "m is B/dp, the micro-batches of one pipeline", whole)]
    full = expected + 5e6 * 2 / layout[1] * 10 * (8 - 4 // layout[0])  # 5 layers, 2 bytes
    slips.append(("pp micro-batches are live, and there are only m", "line 4: min(m, pp)", full))
    expect_or_name(
        gpu_bytes(few, *layout), expected, f"bytes of {layout}: fewer micro-batches than stages", slips, rtol=1e-9
    )
print("18.07 GB for the example; also with fewer micro-batches than stages.")

# %% nbgrader={"grade": true, "grade_id": "plan_test_seconds", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
parts = {"the bubble (line 9)": 0.106, "the all-reduces of layers (7, 8)": 0.03, "the gradients (10)": 0.1875}
slips = [*off_by(step_seconds(hand, 4, 2, 2), 0.7175, parts)]
slips.append(
    ("the bubble is that of the whole batch", "m is B/dp, the micro-batches of one pipeline", 17 / 16 * 0.424 + 0.1875)
)
slips.append(
    ("the bubble stretches the gradients too", "gradients are sent once per step, after the pipeline", 1.25 * 0.6115)
)
slips.append(("the gradients travel once", "they are reduce-scattered and the weights all-gathered", 0.62375))
slips.append(("4 all-reduces in a layer", "recomputation repeats those of the forward pass: 6", 0.7075))
slips.append(("6 FLOPs per parameter and token", "recomputation repeats the forward pass: 8", 1.25 * 0.324 + 0.1875))
expect_or_name(step_seconds(hand, 4, 2, 2), 0.7175, "seconds of the example", slips, rtol=1e-9)
cases = [
    ((16, 1, 1), 0.4 + 2 * 15 / 16 * 2 * 10e9 / 40e9),
    ((1, 4, 4), 19 / 16 * (0.4 + 10 * 16 * 6 * 1.5 * 2e7 / 400e9)),
]
### BEGIN HIDDEN TESTS
cases += [
    ((2, 8, 1), 0.4 + 40 * 8 * 6 * 1.75 * 2e7 / 400e9 + 2 * 0.5 * 2 * 10e9 / 8 / 40e9),
    ((8, 1, 2), 1.5 * 0.4 + 2 * 7 / 8 * 10e9 / 40e9),
]
### END HIDDEN TESTS
for layout, expected in cases:
    lk.checks.expect_close(
        step_seconds(hand, *layout),
        expected,
        rtol=1e-9,
        name=f"seconds of the example's job with (dp, tp, pp) = {layout}",
    )
print("0.7175 s for the example, and for other layouts of it.")

# %% nbgrader={"grade": true, "grade_id": "plan_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
cases = dict(plan_layouts)
### BEGIN HIDDEN TESTS
import itertools


def enumerated(job):
    for tp, pp in itertools.product(range(1, job.gpus + 1), repeat=2):
        dp = job.gpus // (tp * pp)
        if dp * tp * pp == job.gpus and job.node % tp == 0 and job.layers % pp == 0 and job.batch % dp == 0:
            yield dp, tp, pp


others = {"Llama 3 70B on GPUs of 40 GB": replace(llama, memory=40e9)}
others["56 GPUs, nodes of 4"] = Job(30e9, 56, 7168, 4096, 24, 56, node=4, memory=60e9)
others["a small model"] = Job(1e9, 24, 2048, 2048, 64, 16)
cases |= {what: (job, list(enumerated(job))) for what, job in others.items()}
### END HIDDEN TESTS
for what, (job, lawful) in cases.items():
    chosen = best_layout(job)
    require(chosen is not None, f"{what}: None was returned, and there are layouts that fit")
    dp, tp, pp = (int(size) for size in chosen)
    head = f"{what}: (dp, tp, pp) = {dp, tp, pp}"
    require(dp * tp * pp == job.gpus, f"{head} does not multiply to {job.gpus} GPUs")
    inside = "tensor parallelism stays inside a node"
    require(job.node % tp == 0, f"{head}: tp does not divide the node's {job.node} GPUs; {inside}")
    require(job.layers % pp == 0, f"{head}: pp does not divide {job.layers} layers")
    require(job.batch % dp == 0, f"{head}: dp does not divide {job.batch} sequences")
    held, seconds = gpu_bytes(job, dp, tp, pp), step_seconds(job, dp, tp, pp)
    most = job.memory
    require(held <= most, f"{head} needs {held / 1e9:.1f} GB by your gpu_bytes, and a GPU has {most / 1e9:.0f}")
    for other in lawful:
        faster = step_seconds(job, *other) < seconds * (1 - 1e-9) and gpu_bytes(job, *other) <= job.memory
        require(not faster, f"{head}: by your own two functions {other} is faster and fits")
print("The fastest layout that fits, for each job.")

# %% jupyter={"source_hidden": true} nbgrader={"grade": true, "grade_id": "plan_test_none", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
chosen = best_layout(Job(405e9, 126, 16384, 8192, 64, 8))
require(chosen is None, "405 billion parameters on 8 GPUs fit by no layout: return None")
print("None if no layout fits.")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "The two fastest do not fit; of those that do, the best takes a fifth less time than the slowest."
):
    lawful = [(64 // (tp * pp), tp, pp) for tp in (1, 2, 4, 8) for pp in (1, 2, 4, 8, 16) if tp * pp <= 64]
    for layout in sorted(lawful, key=lambda one: step_seconds(llama, *one)):
        held, seconds = gpu_bytes(llama, *layout), step_seconds(llama, *layout)
        print(
            f"dp {layout[0]:2d} · tp {layout[1]} · pp {layout[2]:2d}: {held / 1e9:7.1f} GB, {seconds:6.2f} s"
            + ("" if held <= llama.memory else "   does not fit")
            + ("   <- best" if layout == best_layout(llama) else "")
        )

# %% [markdown]
# How far is paper from practice? The kit's planner knows more: each matrix, each stage, what communication hides behind, and the memory of the
# fullest GPU. Its figures are compared with published runs.

# %% jupyter={"source_hidden": true}
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

# %% jupyter={"source_hidden": true}
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
# ## Part 9 · All three cuts at once
#
# Now eight ranks train a small language model, cut in three ways: 2 stages × 2 replicas × 2 shards. It predicts the next character of Python source code from the 16 characters before it.
# It has an embedding, four MLP blocks and an output matrix. Rank = 4 · stage + 2 · replica + shard:
#
# ```
#                     replica 0: half of the batch        replica 1: the other half
# stage 0             rank 0, rank 1                      rank 2, rank 3                  embedding, blocks 0 and 1
#                        |       |                           |       |
# stage 1             rank 4, rank 5                      rank 6, rank 7                  blocks 2 and 3, output
#
# left and right in a cell: tensor group (shards of one MLP)      down: pipeline      across: data group
# ```
#
# All the work on several ranks is done by your functions: `shard_mlp` and `mlp_forward` (task 7) inside each tensor group, `one_f_one_b` (task 8) down the pipeline, `average_gradients` (task 6)
# and `ring_all_reduce` (task 4, for the loss) across each data group, and `tree_broadcast` (task 2) to give both replicas the same weights. In the folded code, `within(group)` makes a group
# of ranks the whole world for a while, so your functions work in it unchanged.

# %% jupyter={"source_hidden": true}
from contextlib import contextmanager

STAGES, CONTEXT, WIDTH, HIDDEN, MICRO_BATCHES = 2, 16, 128, 256, 4


@contextmanager
def within(group):
    """Make `group` the default group of torch.distributed on this rank."""
    world = dist.distributed_c10d._world
    before, world.default_pg = world.default_pg, group
    try:
        yield
    finally:
        world.default_pg = before


def groups_of(rank):
    """The tensor group and the data group of a rank. Every rank makes all groups, in the same order."""
    tensor = [dist.new_group([first, first + 1]) for first in (0, 2, 4, 6)]
    data = [dist.new_group([first, first + 2]) for first in (0, 1, 4, 5)]
    return tensor[rank // 2], data[rank // 4 * 2 + rank % 2]


class ShardedMLP(torch.autograd.Function):
    """Your mlp_forward, with a backward pass: this rank's part again, and one all-reduce of the gradient of x."""

    @staticmethod
    def forward(ctx, x, W1, b1, W2, b2, group):
        ctx.save_for_backward(x, W1, b1, W2)
        ctx.group = group
        with within(group):
            return mlp_forward(x, (W1, b1, W2, b2))

    @staticmethod
    def backward(ctx, gradient):
        inputs = [one.detach().requires_grad_() for one in ctx.saved_tensors]
        with torch.enable_grad():
            hidden = F.gelu(torch.addmm(inputs[2], inputs[0], inputs[1]))
            part = torch.mm(hidden, inputs[3])
        gx, *others = torch.autograd.grad(part, inputs, gradient)
        dist.all_reduce(gx, group=ctx.group)
        return gx, *others, gradient.sum(0), None


def whole_mlp(x, W1, b1, W2, b2):
    return torch.addmm(b2, F.gelu(torch.addmm(b1, x, W1)), W2)


def blocks_forward(x, blocks, mlp, *more):
    """x plus an MLP of the normalized x, for each block."""
    for block in blocks:
        x = x + mlp(F.layer_norm(x, x.shape[1:]), *block, *more)
    return x


def new_weights(vocabulary):
    """Embedding, four blocks of (W1, b1, W2, b2), and the output matrix."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape, scale):
        return torch.randn(shape, generator=generator) * scale

    blocks = [
        (
            normal(WIDTH, HIDDEN, scale=WIDTH**-0.5),
            torch.zeros(HIDDEN),
            normal(HIDDEN, WIDTH, scale=HIDDEN**-0.5 / 4),
            torch.zeros(WIDTH),
        )
        for _ in range(4)
    ]
    embedding = normal(vocabulary, WIDTH // CONTEXT, scale=1.0)
    return embedding, blocks, normal(WIDTH, vocabulary, scale=WIDTH**-0.5)


def train_alone(weights, batches):
    """One rank, the whole model, the whole batch. Returns the loss of each step."""
    embedding, blocks, output = weights
    parameters = [embedding, *(one for block in blocks for one in block), output]
    for one in parameters:
        one.requires_grad_()
    adam, losses = torch.optim.Adam(parameters, lr=3e-3), []
    for tokens, following in batches:
        x = blocks_forward(embedding[tokens].flatten(1), blocks, whole_mlp)
        loss = F.cross_entropy(F.layer_norm(x, x.shape[1:]) @ output, following)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


def train_in_three_ways(weights, batches):
    """One of eight ranks. Returns the loss of each step (on ranks of the last stage)."""
    rank = dist.get_rank()
    stage, replica, shard = rank // 4, rank // 2 % 2, rank % 2
    tensor, data = groups_of(rank)
    embedding, blocks, output = weights
    half = slice(2 * stage, 2 * stage + 2)
    blocks = [
        [one.clone(memory_format=torch.contiguous_format) for one in shard_mlp(*block, shard, 2)]
        for block in blocks[half]
    ]  # yours
    outer = output if stage else embedding
    parameters = [one for block in blocks for one in block] + [outer]
    with within(data):
        for one in parameters:
            if replica:
                one.zero_()  # replica 1 has no weights yet
            tree_broadcast(one, 0)  # yours
    for one in parameters:
        one.requires_grad_()
    schedule = one_f_one_b(stage, STAGES, MICRO_BATCHES)  # yours
    adam, losses = torch.optim.Adam(parameters, lr=3e-3), []
    for batch in batches:
        tokens, following = (one.chunk(2)[replica].chunk(MICRO_BATCHES) for one in batch)
        adam.zero_grad()
        loss = one_step(schedule, stage, tokens, following, blocks, outer, tensor)
        with within(data):
            means = average_gradients([one.grad for one in parameters], 32_000)  # yours
            total = ring_all_reduce(torch.tensor([loss, 1.0]))  # yours
        for one, mean in zip(parameters, means, strict=True):
            one.grad = mean
        adam.step()
        losses.append(float(total[0] / total[1]))
    return losses if stage else None


def one_step(schedule, stage, tokens, following, blocks, outer, group):
    """Work through the schedule; gradients add up over the micro-batches. Returns the mean loss (last stage)."""
    rank, inputs, outputs, sending, loss = dist.get_rank(), {}, {}, [], 0.0
    for step in schedule:
        kind, i = step[0], int(step[1:])
        if kind == "F":
            if stage:
                inputs[i] = torch.empty(len(tokens[i]), WIDTH)
                dist.recv(inputs[i], rank - 4)
                inputs[i].requires_grad_()
            x = inputs[i] if stage else outer[tokens[i]].flatten(1)
            x = blocks_forward(x, blocks, ShardedMLP.apply, group)
            if stage:
                logits = F.layer_norm(x, x.shape[1:]) @ outer
                x = F.cross_entropy(logits, following[i]) / MICRO_BATCHES
                loss += x.item()
            else:
                sending.append(dist.isend(x.detach(), rank + 4))
            outputs[i] = x
        elif stage:
            outputs.pop(i).backward()
            sending.append(dist.isend(inputs.pop(i).grad, rank - 4))
        else:
            gradient = torch.empty(len(tokens[i]), WIDTH)
            dist.recv(gradient, rank + 4)
            outputs.pop(i).backward(gradient)
    for request in sending:
        request.wait()
    return loss


# %% jupyter={"source_hidden": true}
with lk.picture(
    "Eight ranks, three cuts, your functions: the loss of one rank with the whole model."
):
    text = lm.held_out()[:40_000]
    letters = sorted(set(text))
    codes = torch.tensor([letters.index(letter) for letter in text])
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(10 if smoke else 60):
        starts = torch.randint(len(codes) - CONTEXT, (64,), generator=generator)
        batches.append((codes[starts[:, None] + torch.arange(CONTEXT)], codes[starts + CONTEXT]))
    print("training on eight ranks: seconds, on a busy machine a minute\n", flush=True)
    run = ranks.run(
        train_in_three_ways, 8, backend="local", args=(new_weights(len(letters)), batches), timeout_seconds=300
    )
    together, alone = run.values[4], train_alone(new_weights(len(letters)), batches)
    print("step      one rank   eight ranks")
    for step in sorted({0, 1, 2, len(alone) // 2, len(alone) - 1}):
        print(f"{step:4d} {alone[step]:13.6f} {together[step]:13.6f}")
    apart = max(abs(one - other) for one, other in zip(alone, together))
    print(f"largest difference of the loss in {len(alone)} steps: {apart:.0e}\n")
    sent = {"tensor": [0, 0], "pipeline": [0, 0], "data": [0, 0]}
    for event in run.trace.events:
        if event.kind in ("send", "collective"):
            cut = {1: "tensor", 2: "data", 4: "pipeline"}[abs(event.peers[0] - event.rank)]
            sent[cut][0] += 1
            sent[cut][1] += event.bytes
    print("per step and rank          calls      bytes")
    for cut, (calls, moved) in sent.items():
        print(f"{cut:20s} {calls / 8 / len(batches):11.1f} {moved / 8 / len(batches):10,.0f}")
    figure = go.Figure()
    figure.add_scatter(y=alone, mode="lines", name="one rank, whole model")
    figure.add_scatter(y=together, mode="markers", name="eight ranks, your functions")
    figure.update_xaxes(title="step")
    figure.update_yaxes(title="loss, nats per character")
    figure.update_layout(height=320)
    lk.show(figure, summary="The loss of eight ranks lies on the line of one rank in every step.")

# %% [markdown]
# The markers lie on the line. Large models are trained by the same calls, hidden behind computation. In the table, tensor parallelism calls most often, in every layer and micro-batch; the pipeline sends only
# at the border of the stages; data parallelism sends each gradient once per step, whatever the batch.
#
# ## Real processes, real libraries
#
# So far all ranks lived in one process. The same functions run unchanged on real processes that communicate over *gloo*, torch's backend for CPUs:

# %% jupyter={"source_hidden": true}
with lk.picture("The same code on real processes, and the same messages."):
    tensors = ranks.each([torch.arange(10.0) * (r + 1) for r in range(4)])
    here = ranks.run(ring_all_reduce, 4, backend="local", args=(tensors,))
    there = ranks.run(ring_all_reduce, 4, backend="gloo", args=(tensors,))
    print("equal to the last bit:", all(map(torch.equal, here.values, there.values)))
    print(there.trace)

# %% [markdown]
# The libraries do what you have written: `DistributedDataParallel` is task 6, `parallelize_module` task 7,
# `Schedule1F1B` task 8, `fully_shard` (FSDP2) task 9 at stage 3. The next cell runs each of them on real processes and compares it with yours.


# %% jupyter={"source_hidden": true}
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


# %% jupyter={"source_hidden": true}
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
    print("starting four processes for each library: seconds, on a busy machine a minute\n", flush=True)
    for (what, (mine, *arguments)), (library, (function, *others)) in zip(yours.items(), theirs.items()):
        values = ranks.run(mine, 4, backend="local", args=arguments).values
        rivals = ranks.run(function, 4, backend="gloo", args=others).values
        print(f"{what:38s} yours and {library:10s} differ by {apart(values, rivals):.0e}")

# %% [markdown]
# ## On your GPUs
#
# Not graded. With two GPUs or more, the next cell shows the *bus bandwidth* of your ring and of NCCL's: the bytes that each link carried, 2(p − 1)/p of the tensor, over the time.


# %% jupyter={"source_hidden": true}
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
# Restart the kernel, run all cells, save, and look here: which tasks pass the checks that you see, and what is left. In
# JupyterLab, a right-click on the panel and *Create New View for Cell Output* keeps it beside the notebook while you work.

# %% jupyter={"source_hidden": true}
lk.progress()

# %% [markdown]
# ## What to remember, and what is next
#
# - A tree costs rounds, a ring costs bytes. A deadlock is a circle of ranks that wait for each other: start both calls, then wait for both.
# - Average gradients, in large buckets and early. Add every bias once. Adam keeps 16 bytes per parameter: shard what is not needed all the time.
# - Count messages, bytes and memory before you rent GPUs.
#
# The takeaways of [chapter 10](../../course/chapters/10_training.md) say what each cut sends, and [chapter 13](../../course/chapters/13_economics.md) gives the price of a plan.
# In lab 08 a trained model serves requests: [chapter 11](../../course/chapters/11_serving.md).
