"""torch's own parallel libraries on the local backend against one process, and local traces against gloo's."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from mlsys_labkit import ranks

cloudpickle.register_pickle_by_value(sys.modules[__name__])
GLOO_EXCHANGES_LISTS = torch.__version__ >= "2.13"  # torch 2.11: "Backend gloo does not support alltoall"
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")  # torch 2.13 has new names for old ones


def model(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))


def train(net: torch.nn.Module, batches: torch.Tensor, steps: int = 3) -> list[float]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss = net(batches).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def batch(p: int) -> torch.Tensor:
    return torch.randn(p, 4, 6, generator=torch.Generator().manual_seed(1))


def by_ddp() -> list[float]:
    net = torch.nn.parallel.DistributedDataParallel(model(dist.get_rank()), bucket_cap_mb=1)  # type: ignore[no-untyped-call]
    return train(net, batch(dist.get_world_size())[dist.get_rank()])


def by_fsdp() -> list[float]:
    from torch.distributed.fsdp import fully_shard

    net = model()
    for layer in (net[0], net[2], net):
        fully_shard(layer)
    return train(net, batch(dist.get_world_size())[dist.get_rank()])


def by_tensor_parallel() -> list[float]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    net = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(net, batch(dist.get_world_size()).flatten(0, 1))


@pytest.mark.parametrize(
    ("how", "calls"),
    [
        # 3 steps: DDP averages one bucket a step; FSDP2 gathers each of 2 layers for forward and again for backward,
        # and scatters 2 gradients; a pair of column and row layers needs one all_reduce forward, none backward here.
        (by_ddp, {"all_reduce": 3}),
        (by_fsdp, {"all_gather": 3 * 4, "reduce_scatter": 3 * 2}),
        (by_tensor_parallel, {"all_reduce": 3}),
    ],
)
def test_recorded_groups_train_ddp_fsdp_and_tensor_parallel(
    how: Callable[[], list[float]], calls: dict[str, int]
) -> None:
    run = ranks.run(how, 2, "local", quiet=True)
    expected = train(model(), batch(2).flatten(0, 1))
    whole = torch.tensor(run.values).mean(0)  # of equal shares of the batch
    assert torch.allclose(whole, torch.tensor(expected), atol=1e-6)
    counted = run.trace.collectives(0)
    assert {name: counted[name] for name in calls} == calls
    assert run.trace.findings == ()


@pytest.mark.parametrize("schedule", ["ScheduleGPipe", "Schedule1F1B"])
def test_torchs_pipelines_pass_their_activations(schedule: str) -> None:
    def work() -> list[torch.Tensor] | None:
        from torch.distributed import pipelining

        r, p, net = dist.get_rank(), dist.get_world_size(), model()
        part = torch.nn.Sequential(*list(net)[:2]) if r == 0 else net[2]
        stage = pipelining.PipelineStage(part, r, p, torch.device("cpu"))
        runner = getattr(pipelining, schedule)(stage, 4, loss_fn=torch.nn.functional.mse_loss)
        x = batch(2).flatten(0, 1)
        runner.step(x) if r == 0 else runner.step(target=torch.zeros(8, 4))
        return [parameter.grad for parameter in part.parameters()]

    run = ranks.run(work, 2, "local", quiet=True)
    net = model()
    net(batch(2).flatten(0, 1)).square().mean().backward()
    grads = [grad for value in run.values for grad in value]
    assert all(torch.allclose(a, b.grad, atol=1e-6) for a, b in zip(grads, net.parameters(), strict=True))
    sent = [e.bytes for e in run.trace.of(0, "send") if e.dtype == "float32"]
    assert sent[-4:] == [2 * 8 * 4] * 4, "4 micro-batches of 2 rows of 8 floats"
    assert sum(sent[:-4]) <= 4, "torch 2.11 sends a number first, with the shapes"


def test_recorded_groups_form_a_two_dimensional_mesh() -> None:
    def work() -> bool:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        a, b = torch.arange(16.0).view(4, 4), torch.arange(16.0).view(4, 4).T.contiguous()
        left = distribute_tensor(a, mesh, [Shard(0), Shard(1)])
        right = distribute_tensor(b, mesh, [Replicate(), Shard(0)])
        return torch.equal((left @ right).full_tensor(), a @ b)

    assert ranks.run(work, 4, "local", quiet=True).values == [True] * 4


def everything(lists: bool = True) -> list[Any]:
    r, p = dist.get_rank(), dist.get_world_size()
    x = torch.arange(6.0) + r
    dist.all_reduce(x)
    dist.all_reduce(copy.deepcopy(x), dist.ReduceOp.MAX, async_op=True).wait()
    dist.broadcast(x, 1)
    dist.reduce(x.clone(), 0)
    dist.barrier()
    parts = [torch.zeros(6) for _ in range(p)]
    dist.all_gather(parts, x)
    dist.all_gather_into_tensor(torch.zeros(12), x)
    dist.reduce_scatter(x, parts)
    dist.reduce_scatter_tensor(scattered := torch.zeros(3), x)
    if lists:
        dist.all_to_all(parts, [x, x])
    dist.all_to_all_single(torch.zeros(6), x, [2, 4] if r == 0 else [4, 2], [2, 4] if r == 0 else [4, 2])
    dist.gather(x, parts if r == 0 else None)
    dist.scatter(x, parts if r == 0 else None)
    dist.all_gather_object([None] * p, "text")
    group = dist.new_group([1])
    if r == 1:
        dist.all_reduce(x, group=group)
    functional.wait_tensor(functional.all_gather_tensor(x, 0, dist.group.WORLD))
    if r == 0:
        dist.send(x, 1, tag=3)
        request = dist.isend(x, 1)
    else:
        dist.recv(x, 0, tag=3)
        request = dist.irecv(x)
    request.wait()
    requests = (
        [dist.isend(x, 1, tag=tag) for tag in (7, 8)] if r == 0 else [dist.irecv(x, 0, tag=tag) for tag in (8, 7)]
    )
    for request in requests:
        request.wait()
    return [x, *parts, scattered]


@pytest.mark.xdist_group("rank-processes")
def test_local_and_gloo_leave_the_same_trace() -> None:
    here, there = (
        ranks.run(everything, 2, backend, args=(GLOO_EXCHANGES_LISTS,), quiet=True)  # type: ignore[arg-type]
        for backend in ("local", "gloo")
    )
    for ours, theirs in zip(here.values, there.values, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))

    def facts(event: ranks.Event) -> tuple[object, ...]:
        return (
            event.rank,
            event.kind,
            event.name,
            event.bytes,
            event.peers,
            event.group,
            event.tag,
            event.operation,
            event.dtype,
            event.shape,
            event.key,
            event.asynchronous,
            event.line,
            event.source,
        )

    assert [facts(e) for e in here.trace] == [facts(e) for e in there.trace]
    assert there.trace.findings == ()
    assert all(e.seconds is not None and e.seconds >= 0 for e in there.trace)


def old_methods() -> list[list[float]]:
    """Make the calls that older code makes on a group itself, without options."""
    group, x = dist.group.WORLD, torch.arange(4.0) + 10 * dist.get_rank()
    outs = [torch.zeros(size) for size in (8, 2, 4, 8, 2)]
    group._allgather_base(outs[0], x).wait()
    group._reduce_scatter_base(outs[1], x).wait()
    group.alltoall_base(outs[2], x, [], []).wait()
    group.allgather_into_tensor_coalesced([outs[3]], [x]).wait()
    group.reduce_scatter_tensor_coalesced([outs[4]], [x]).wait()
    group.broadcast(x, 1).wait()
    group.allreduce(x, dist.ReduceOp.MAX).wait()
    return [out.tolist() for out in (*outs, x)]


@pytest.mark.parametrize("backend", ["local", pytest.param("gloo", marks=pytest.mark.xdist_group("rank-processes"))])
def test_methods_under_their_old_names_are_recorded_once(backend: Any) -> None:
    run = ranks.run(old_methods, 2, backend, quiet=True)
    everyone = [0, 1, 2, 3, 10, 11, 12, 13]
    assert run.values[1] == [everyone, [14, 16], [2, 3, 12, 13], everyone, [14, 16], [10, 11, 12, 13]]
    names = ["all_gather", "reduce_scatter", "all_to_all", "all_gather", "reduce_scatter", "broadcast", "all_reduce"]
    assert [event.name for event in run.trace.of(0, "collective")] == names


def test_bytes_are_what_nccl_tests_counts() -> None:
    """x has 6 floats and there are 2 ranks: n = 24 bytes, and 48 where all parts count."""
    trace = ranks.run(everything, 2, "local", quiet=True).trace
    counted = [(e.name, e.bytes) for e in trace.of(0, "collective")][:13]
    assert counted == [
        ("all_reduce", 24),
        ("all_reduce", 24),
        ("broadcast", 24),
        ("reduce", 24),
        ("barrier", 0),
        ("all_gather", 48),
        ("all_gather", 48),
        ("reduce_scatter", 48),
        ("reduce_scatter", 24),
        ("all_to_all", 48),
        ("all_to_all", 24),
        ("gather", 48),
        ("scatter", 48),
    ]
