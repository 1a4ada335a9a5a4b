"""The same program on threads that take turns and on real processes: the same bits and the same calls in order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from mlsys_labkit import ranks

pytestmark = pytest.mark.xdist_group("rank-processes")
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def ring_all_reduce(x: torch.Tensor) -> torch.Tensor:
    """Reduce-scatter and all-gather around a ring, chunks of unequal length."""
    rank, size = dist.get_rank(), dist.get_world_size()
    chunks = list(x.clone().tensor_split(size))
    for phase in (0, 1):
        for step in range(size - 1):
            there, here = (rank - step + phase) % size, (rank - step - 1 + phase) % size
            got = torch.empty_like(chunks[here])
            handle = dist.isend(chunks[there], (rank + 1) % size)
            dist.recv(got, (rank - 1) % size)
            assert handle is not None
            handle.wait()
            chunks[here] = got if phase else chunks[here] + got
    return torch.cat(chunks)


def tree_broadcast(x: torch.Tensor) -> torch.Tensor:
    """Broadcast from rank 0; each round doubles the number of ranks that have the data."""
    rank, size, x, reach = dist.get_rank(), dist.get_world_size(), x.clone(), 1
    while reach < size:
        if rank < reach and rank + reach < size:
            dist.send(x, rank + reach, tag=reach)
        elif reach <= rank < 2 * reach:
            dist.recv(x, rank - reach, tag=reach)
        reach *= 2
    return x


def direct_all_gather(x: torch.Tensor) -> torch.Tensor:
    """Send each rank's part to all other ranks at once."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [torch.empty_like(x) for _ in range(size)]
    parts[rank] = x
    others = [other for other in range(size) if other != rank]
    for handle in (
        dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, other) for other in others]
            + [dist.P2POp(dist.irecv, parts[other], other) for other in others]
        )
        if others
        else []
    ):
        handle.wait()
    return torch.cat(parts)


def pairwise_all_to_all(x: torch.Tensor) -> torch.Tensor:
    """Exchange parts in rounds, with another partner each; the lower rank sends first."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [part.clone() for part in x[: x.numel() // size * size].chunk(size)]
    out = list(parts)
    for other in range(size):
        if other == rank:
            continue
        got = torch.empty_like(parts[other])
        for now in (dist.send, dist.recv) if rank < other else (dist.recv, dist.send):
            now(parts[other] if now is dist.send else got, other)
        out[other] = got
    return torch.cat(out)


def torchs_all_reduce(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


def torchs_broadcast(x: torch.Tensor) -> torch.Tensor:
    dist.broadcast(x, 0)
    return x


def torchs_all_gather(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts)


def torchs_all_to_all(x: torch.Tensor) -> torch.Tensor:
    size = dist.get_world_size()
    x = x[: x.numel() // size * size].clone()
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    return out


PAIRS = [
    (ring_all_reduce, torchs_all_reduce),
    (tree_broadcast, torchs_broadcast),
    (direct_all_gather, torchs_all_gather),
    (pairwise_all_to_all, torchs_all_to_all),
]


def without_time(trace: ranks.RunTrace) -> list[ranks.Event]:
    return [replace(event, start_seconds=None, end_seconds=None) for event in trace]


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize(("by_messages", "by_torch"), PAIRS, ids=lambda fn: fn.__name__)
def test_algorithms_leave_the_same_bits_and_the_same_trace_on_both_backends(
    by_messages: Callable[..., Any], by_torch: Callable[..., Any], world_size: int
) -> None:
    generator = torch.Generator().manual_seed(world_size)
    floats = [torch.randn(17, generator=generator) for _ in range(world_size)]  # 17: no world size divides it
    integers = [torch.randint(-1000, 1000, (17,), generator=generator) for _ in range(world_size)]

    def run(fn: Callable[..., Any], inputs: list[torch.Tensor], backend: Any) -> ranks.Run:
        return ranks.run(fn, world_size, backend, args=(ranks.each(inputs),), quiet=True)

    local, gloo = (run(by_messages, floats, backend) for backend in ("local", "gloo"))
    for here, there in zip(local.values, gloo.values, strict=True):
        assert torch.equal(here.view(torch.int32), there.view(torch.int32))
    assert without_time(local.trace) == without_time(gloo.trace)
    assert local.trace.findings == gloo.trace.findings == ()
    for backend, ours in (("local", local), ("gloo", gloo)):
        for mine, torchs in zip(ours.values, run(by_torch, floats, backend).values, strict=True):
            assert torch.allclose(mine, torchs, rtol=1e-6, atol=1e-6)  # sums in another order
        exact, expected = run(by_messages, integers, backend).values, run(by_torch, integers, backend).values
        assert all(torch.equal(mine, torchs) for mine, torchs in zip(exact, expected, strict=True))
