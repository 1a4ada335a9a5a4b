"""Real torch.distributed code, run here on the local backend and then put on the clock: bytes and times of theory."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from mlsys_labkit import ranks, widgets
from mlsys_labkit.ranks.simulation.patterns import ALGORITHMS

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")


def ring(x: Any) -> Any:
    """Run a ring all-reduce as textbooks describe it: p - 1 steps that add, p - 1 that pass on."""
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = list(torch.tensor_split(x, p))
    for step in range(2 * (p - 1)):
        out, into, adds = (me - step - 1) % p, (me - step - 2) % p, step < p - 1
        came = torch.empty_like(chunks[into])
        sent, got = dist.isend(chunks[out], (me + 1) % p), dist.irecv(came, (me - 1) % p)
        got.wait()
        sent.wait()
        chunks[into] = chunks[into] + came if adds else came
    return torch.cat(chunks)


@pytest.mark.parametrize("p", [2, 3, 5, 8])
def test_a_ring_of_messages_sends_and_takes_what_theory_says(p: int) -> None:
    link = ranks.Link(latency_seconds=1, bytes_per_second=10)
    for n in (8 * p, 8 * p + 3):
        tensors = [torch.arange(float(n)) + rank for rank in range(p)]
        run = ranks.run(ring, p, backend="local", args=(ranks.each(tensors),))
        assert all(torch.equal(value, sum(tensors)) for value in run.values)
        theory = ranks.collective_traffic("all_reduce", "ring", p, n)
        assert tuple(map(run.trace.messages, range(p))) == theory.messages
        assert tuple(run.trace.sent_bytes(rank) // 4 for rank in range(p)) == theory.elements
        seconds = ranks.replay(run.trace, link).seconds
        if n % p == 0:
            assert seconds == ranks.collective_seconds("all_reduce", "ring", p, 4 * n, link)


def pipeline(m: int) -> None:
    """Run GPipe in blocking calls: all forward passes, then all backward passes."""
    me, last, x = dist.get_rank(), dist.get_world_size() - 1, torch.zeros(4)
    for way, name in ((1, "F"), (-1, "B")):
        for batch in range(m):
            if 0 <= me - way <= last:
                dist.recv(x, me - way)
            with ranks.task(f"{name}{batch}"):
                x += 1
            if 0 <= me + way <= last:
                dist.send(x, me + way)


@pytest.mark.parametrize("m", [4, 8, 16])
def test_a_pipeline_that_ran_here_has_the_bubble_of_the_formula(m: int) -> None:
    run = ranks.run(pipeline, 4, backend="local", args=(m,))
    clocked = ranks.replay(run.trace, compute_seconds=lambda event: 1 if event.name.startswith("F") else 2)
    assert ranks.bubble_fraction(clocked) == Fraction(3, m + 3)
    assert ranks.live_micro_batches(clocked) == (m,) * 4
    assert ranks.critical_path(clocked).of("compute") == clocked.seconds == 3 * (m + 3)
    assert "on the critical path" in widgets.rank_timeline(clocked).html()


def everything() -> None:
    x, parts = torch.ones(8), list(torch.empty(4, 8))
    dist.all_reduce(x)
    dist.broadcast(x, 1)
    dist.reduce(x, 0)
    dist.all_gather(parts, x)
    dist.reduce_scatter(torch.empty(8), parts)
    dist.all_to_all(list(torch.empty(4, 2)), list(x.split(2)))
    dist.barrier()
    work = dist.all_reduce(x, async_op=True)
    work.wait()


def test_collectives_of_the_library_take_the_formulas_time() -> None:
    trace = ranks.run(everything, 4, backend="local").trace
    link = ranks.Link(latency_seconds=1, bytes_per_second=8)
    sizes = {"all_reduce": 32, "broadcast": 32, "reduce": 32, "all_gather": 128, "reduce_scatter": 128}
    calls = [*sizes.items(), ("all_to_all", 32), ("barrier", 0), ("all_reduce", 32)]
    ways = {name: next(iter(algorithms)) for name, algorithms in ALGORITHMS.items()}
    expected = sum(ranks.collective_seconds(name, ways[name], 4, size, link) for name, size in calls)
    clocked = ranks.replay(trace, link)
    assert clocked.seconds == expected
    assert ranks.critical_path(clocked).of("collective") == expected
