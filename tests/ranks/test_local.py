"""The local backend: collectives, messages, groups, and what a run records."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings, strategies as st

from mlsys_labkit import ranks
from tests.ranks.run_helpers import local

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")  # torch 2.13 has new names for old ones


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_collectives_mean_what_their_definitions_say(p: int) -> None:
    """Integers, so that every order of adding gives the same; 2 rows a rank, so that rows and ranks differ."""

    def everything() -> dict[str, Any]:
        r = dist.get_rank()
        mine = torch.arange(2 * p).view(p, 2) + 100 * r
        got: dict[str, Any] = {}
        got["sum"] = mine.clone()
        dist.all_reduce(got["sum"])
        got["max"] = mine.clone()
        dist.all_reduce(got["max"], dist.ReduceOp.MAX)
        got["product"] = torch.tensor([r + 1])
        dist.all_reduce(got["product"], dist.ReduceOp.PRODUCT)
        got["bor"] = torch.tensor([1 << r])
        dist.all_reduce(got["bor"], dist.ReduceOp.BOR)
        got["avg"] = torch.tensor([float(r)])
        dist.all_reduce(got["avg"], dist.ReduceOp.AVG)
        got["broadcast"] = mine.clone()
        dist.broadcast(got["broadcast"], p - 1)
        got["reduce"] = mine.clone()
        dist.reduce(got["reduce"], p - 1)
        got["all_gather"] = [torch.empty_like(mine) for _ in range(p)]
        dist.all_gather(got["all_gather"], mine)
        got["gather"] = [torch.empty_like(mine) for _ in range(p)] if r == p - 1 else None
        dist.gather(mine, got["gather"], dst=p - 1)
        got["scatter"] = torch.empty(2, dtype=torch.int64)
        dist.scatter(got["scatter"], list(mine) if r == p - 1 else None, src=p - 1)
        got["reduce_scatter"] = torch.empty(2, dtype=torch.int64)
        dist.reduce_scatter(got["reduce_scatter"], list(mine))
        got["all_to_all"] = [torch.empty(2, dtype=torch.int64) for _ in range(p)]
        dist.all_to_all(got["all_to_all"], list(mine))
        got["single"] = torch.empty(p * 2, dtype=torch.int64)
        dist.all_to_all_single(got["single"].view(p, 2), mine)
        # rank r keeps r+1 elements of its own for each rank, so rank d gets 1 + 2 + ... of them
        got["uneven"] = torch.empty(p * (p + 1) // 2, dtype=torch.int64)
        given_ = torch.arange(p * (r + 1)) + 1000 * r
        dist.all_to_all_single(got["uneven"], given_, [s + 1 for s in range(p)], [r + 1] * p)
        return got

    values = local(everything, p).values
    inputs = [torch.arange(2 * p).view(p, 2) + 100 * r for r in range(p)]
    whole = torch.stack(inputs)
    for r, got in enumerate(values):
        assert torch.equal(got["sum"], whole.sum(0))
        assert torch.equal(got["max"], whole.amax(0))
        assert got["product"].item() == torch.arange(1, p + 1).prod().item()
        assert got["bor"].item() == 2**p - 1
        assert got["avg"].item() == (p - 1) / 2
        assert torch.equal(got["broadcast"], inputs[-1])
        assert torch.equal(got["reduce"], whole.sum(0) if r == p - 1 else inputs[r])
        assert torch.equal(torch.stack(got["all_gather"]), whole)
        assert got["gather"] is None if r < p - 1 else torch.equal(torch.stack(got["gather"]), whole)
        assert torch.equal(got["scatter"], inputs[-1][r])
        assert torch.equal(got["reduce_scatter"], whole.sum(0)[r])
        assert torch.equal(torch.stack(got["all_to_all"]), whole[:, r])
        assert torch.equal(got["single"].view(p, 2), whole[:, r])
        uneven = [torch.arange(p * (s + 1))[r * (s + 1) : (r + 1) * (s + 1)] + 1000 * s for s in range(p)]
        assert torch.equal(got["uneven"], torch.cat(uneven))


def test_tensor_collectives_under_their_old_and_new_names() -> None:
    def gathered_and_scattered() -> list[torch.Tensor]:
        mine = torch.arange(4.0) + 10 * dist.get_rank()
        out = [torch.empty(8), torch.empty(2, 4), torch.empty(2)]
        dist.all_gather_into_tensor(out[0], mine)
        dist.all_gather_into_tensor(out[1], mine)
        dist.reduce_scatter_tensor(out[2], mine)
        return out

    for r, (flat, stacked, part) in enumerate(local(gathered_and_scattered, 2).values):
        assert flat.tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
        assert torch.equal(stacked.view(-1), flat)
        assert part.tolist() == [[10, 12], [14, 16]][r]


@given(st.integers(2, 5), st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_a_sum_is_rounded_in_the_order_of_ranks(p: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    xs = [torch.randn(17, generator=generator).to(torch.bfloat16) * 10.0**r for r in range(p)]

    def total(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return x

    expected = xs[0].clone()
    for x in xs[1:]:
        expected = (expected.double() + x.double()).to(torch.bfloat16)  # one rounding each
    for value in local(total, p, ranks.each(xs)).values:
        assert torch.equal(value, expected)


def test_table_of_a_trace_has_the_bytes_of_collectives() -> None:
    def twice() -> None:
        for n in (3, 5):
            dist.all_reduce(torch.zeros(n))

    assert str(local(twice, 2).trace).splitlines()[-1].endswith("all_reduce x2 (32 bytes)")


def test_objects_are_sent_and_broadcast() -> None:
    def talk() -> tuple[Any, ...]:
        r = dist.get_rank()
        everyone: list[Any] = [None] * 3
        dist.all_gather_object(everyone, {"rank": r})
        word = ["from 1"] if r == 1 else [None]
        dist.broadcast_object_list(word, 1)
        mine: list[Any] = [None]
        dist.scatter_object_list(mine, ["a", "b", "c"] if r == 0 else None, 0)
        if r == 0:
            dist.send_object_list([1, 2], 2)
        if r == 2:
            dist.recv_object_list(got := [None, None], 0)
            assert got == [1, 2]
        return everyone, word, mine

    for r, value in enumerate(local(talk, 3).values):
        assert value == ([{"rank": s} for s in range(3)], ["from 1"], [["a"], ["b"], ["c"]][r])


def test_groups_are_apart_and_number_ranks_their_own_way() -> None:
    def grouped() -> tuple[Any, ...]:
        r = dist.get_rank()
        odd_even = [dist.new_group([0, 2]), dist.new_group([1, 3], backend="gloo")]  # local, whatever backend is named
        x = torch.tensor([float(r)])
        dist.all_reduce(x, group=odd_even[r % 2])
        y = torch.tensor([float(r)])
        if r == 1:
            dist.send(y, group=odd_even[1], group_dst=1)
        elif r == 3:
            dist.recv(y, 1, group=odd_even[1])
        z = torch.tensor([float(r)])
        dist.broadcast(z, 2 + r % 2, group=odd_even[r % 2])
        return x.item(), y.item(), z.item()

    run = local(grouped, 4)
    assert run.values == [(2, 0, 2), (4, 1, 3), (2, 2, 2), (4, 1, 3)]
    message = run.trace.of(3, "recv")[0]
    assert (message.peers, message.group) == ((1,), (1, 3)), "global ranks"
    assert not run.trace.findings


def test_receive_from_any_rank_returns_the_sender() -> None:
    def collect() -> list[tuple[int, float]] | None:
        x = torch.zeros(1)
        if dist.get_rank():
            dist.send(torch.tensor([10.0 * dist.get_rank()]), 0)
            return None
        return [(dist.recv(x), x.item()) for _ in range(3)]

    run = local(collect, 4)
    assert sorted(run.values[0]) == [(1, 10.0), (2, 20.0), (3, 30.0)]
    assert {event.key for event in run.trace.of(0)} == {run.trace.of(r, "send")[0].key for r in (1, 2, 3)}


def test_messages_match_by_tag_and_within_a_tag_in_order() -> None:
    def talk() -> list[float]:
        if dist.get_rank() == 0:
            for request in [dist.isend(torch.tensor([float(n)]), 1, tag=n % 2) for n in range(4)]:
                request.wait()
            return []
        got = []
        for tag in (1, 0, 0, 1):
            dist.recv(x := torch.zeros(1), 0, tag=tag)
            got.append(x.item())
        return got

    assert local(talk, 2).values[1] == [1, 0, 2, 3]


# ---- what it records


@pytest.mark.parametrize("p", range(2, 9))
@pytest.mark.parametrize("size", [1, 7, 64])
def test_ring_all_reduce_sends_its_theoretical_bytes(p: int, size: int) -> None:
    """2(p-1) messages a rank; of p chunks, all but one are sent in each half: 2(p-1)/p of the tensor, exactly so where
    p divides it, and 2(n - own chunks) where it does not."""

    def ring(x: torch.Tensor) -> torch.Tensor:
        r = dist.get_rank()
        chunks = list(x.tensor_split(p))
        for half in (0, 1):
            for step in range(p - 1):
                out, into = chunks[(r + half - step) % p], chunks[(r + half - step - 1) % p]
                request = dist.isend(out, (r + 1) % p)
                dist.recv(got := torch.empty_like(into), (r - 1) % p)
                request.wait()
                into.copy_(got if half else into + got)
        return x

    xs = [torch.arange(size) * (r + 1) for r in range(p)]
    run = local(ring, p, ranks.each(xs))
    assert all(torch.equal(value, sum(xs)) for value in run.values)  # type: ignore[arg-type]
    lengths = [len(chunk) for chunk in xs[0].tensor_split(p)]
    for r in range(p):
        assert run.trace.messages(r) == 2 * (p - 1)
        assert run.trace.sent_bytes(r) == 8 * (2 * size - lengths[(r + 1) % p] - lengths[(r + 2) % p])
        if size % p == 0:
            assert run.trace.sent_bytes(r) * p == 2 * (p - 1) * 8 * size
    assert [(edge.source, edge.destination) for edge in run.trace.edges] == sorted((r, (r + 1) % p) for r in range(p))
    assert run.trace.work(0).messages == 2 * (p - 1)


def test_snapshots_tasks_and_memory() -> None:
    def work(x: torch.Tensor) -> None:
        for name, seconds in (("F0", 0.5), ("B0", None)):
            with ranks.task(name, seconds=seconds):
                x += 1
            ranks.snapshot("x", x)
        y = torch.ones(1000 * (1 + dist.get_rank()))
        dist.all_reduce(torch.ones(500))  # buffers that stand for the network belong to no rank's memory
        del y

    run = local(work, 2, ranks.each([torch.zeros(2), torch.ones(2)]), memory=True)
    assert [[x.tolist() for x in kept] for kept in run.snapshots["x"]] == [[[1, 1], [2, 2]], [[2, 2], [3, 3]]]
    assert [(e.name, e.seconds) for e in run.trace.of(1, "compute")] == [("F0", 0.5), ("B0", None)]
    assert [trace.peak_bytes for trace in run.memory] == [8 + 4 * 1500, 8 + 4 * 2500]
    assert local(work, 1, torch.zeros(1)).memory == []
    with pytest.raises(ranks.RankError, match="keeps tensors; this is a float"):
        local(lambda: ranks.snapshot("loss", 1.0), 1)  # type: ignore[arg-type]


def test_memory_of_a_rank_leaves_out_other_ranks_optimizers() -> None:
    """torch's optimizer hooks are the process's, and the ranks share it."""

    def train() -> None:
        model = torch.nn.Linear(10, 10 * (1 + dist.get_rank()), bias=False)
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
        model(torch.ones(1, 10)).sum().backward()
        dist.barrier()
        optimizer.step()
        dist.barrier()

    memory = local(train, 2, memory=True).memory
    assert [trace.peak_by_category["parameters"] for trace in memory] == [400, 800]
