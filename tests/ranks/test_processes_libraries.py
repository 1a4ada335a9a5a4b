"""Real libraries on real ranks, through the recorded group: one process's results, and every byte in the trace."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from torch import nn

from mlsys_labkit import ranks

pytestmark = pytest.mark.xdist_group("rank-processes")
cloudpickle.register_pickle_by_value(sys.modules[__name__])

WORLD = 4
BATCH = 8
FLOAT = 4  # bytes


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def parameter_bytes(model: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in model.parameters())


def samples() -> torch.Tensor:
    return torch.linspace(-1, 1, BATCH * 8).sin().reshape(BATCH, 8)


def run(fn: Callable[..., Any], world_size: int = WORLD) -> ranks.Run:
    return ranks.run(fn, world_size, "gloo", quiet=True)


def one_process_gradients() -> list[torch.Tensor]:
    """Return the gradients of the mean over the whole batch, computed in one process."""
    model = network()
    (model(samples()).pow(2).sum() / BATCH).backward()
    return [parameter.grad for parameter in model.parameters()]  # type: ignore[misc]


def close(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(ours) == len(theirs) and all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs, strict=True))


def share() -> torch.Tensor:
    return samples().chunk(dist.get_world_size())[dist.get_rank()]


def test_data_parallel_gradients_are_those_of_one_process_and_cost_the_parameters_bytes() -> None:
    def train() -> list[Any]:
        model = nn.parallel.DistributedDataParallel(network())
        (model(share()).pow(2).sum() / (BATCH // WORLD)).backward()
        return [parameter.grad for parameter in model.parameters()]

    done = run(train)
    for gradients in done.values:
        assert close(gradients, one_process_gradients())
    for rank in range(WORLD):
        reduced = [event for event in done.trace.of(rank, "collective") if event.name == "all_reduce"]
        assert sum(event.bytes for event in reduced) == parameter_bytes(network())


def test_fully_sharded_gradients_are_those_of_one_process_and_each_parameter_is_gathered_twice() -> None:
    def train() -> tuple[list[Any], int]:
        from torch.distributed.fsdp import fully_shard

        from mlsys_labkit.ranks.recording import recorder

        model = network()
        for layer in (model[0], model[2]):
            fully_shard(layer)
        fully_shard(model)
        (model(share()).pow(2).sum() / (BATCH // WORLD)).backward()
        calls = len(recorder.current().calls)
        return [parameter.grad.full_tensor() for parameter in model.parameters()], calls

    done = run(train)
    for gradients, _ in done.values:
        assert close(gradients, one_process_gradients())
    _, calls = done.values[0]
    moved: Counter[str] = Counter()
    for event in done.trace.of(0)[:calls]:  # what comes after is the test's own full_tensor
        moved[event.name] += event.bytes
    size = parameter_bytes(network())
    assert moved == {"all_gather": 2 * size, "reduce_scatter": size}  # for forward, for backward, and the gradients


def test_tensor_parallel_output_is_that_of_one_process_and_costs_one_all_reduce_of_it() -> None:
    def forward() -> torch.Tensor:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        model = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        output: torch.Tensor = model(samples())
        return output.detach()

    done = run(forward)
    expected = network()(samples()).detach()
    for output in done.values:
        assert type(output) is torch.Tensor
        assert torch.allclose(output, expected, atol=1e-6)
    assert [event.bytes for event in done.trace.of(1, "collective") if event.name == "all_reduce"] == [expected.nbytes]


@pytest.mark.parametrize("schedule", ["ScheduleGPipe", "Schedule1F1B"])
def test_pipeline_gradients_are_those_of_one_process_and_activations_travel_between_neighbours(schedule: str) -> None:
    microbatches = 4

    def layers() -> list[nn.Module]:
        torch.manual_seed(0)
        return [nn.Linear(8, 8) for _ in range(WORLD)]

    def train() -> list[Any]:
        from torch.distributed import pipelining

        rank = dist.get_rank()
        mine = layers()[rank]
        stage = pipelining.PipelineStage(mine, rank, WORLD, torch.device("cpu"))
        steps = getattr(pipelining, schedule)(stage, microbatches, loss_fn=nn.functional.mse_loss)
        if rank == 0:
            steps.step(samples())
        elif rank == WORLD - 1:
            steps.step(target=samples().cos())
        else:
            steps.step()
        return [parameter.grad for parameter in mine.parameters()]

    done = run(train)
    whole = nn.Sequential(*layers())
    nn.functional.mse_loss(whole(samples()), samples().cos()).backward()
    for rank, gradients in enumerate(done.values):
        assert close(gradients, [parameter.grad for parameter in whole[rank].parameters()])  # type: ignore[misc]
    activation = BATCH // microbatches * 8 * FLOAT
    for rank in range(WORLD):  # before the first micro-batch the stages exchange their shapes
        towards = Counter(event.peers[0] for event in done.trace.of(rank, "send") if event.shape == (2, 8))
        assert towards == {other: microbatches for other in (rank - 1, rank + 1) if 0 <= other < WORLD}
        assert {event.bytes for event in done.trace.of(rank, "send") if event.shape == (2, 8)} == {activation}


def test_objects_are_gathered_and_their_pickles_bytes_are_in_the_trace() -> None:
    def gather() -> list[Any]:
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, {"rank": dist.get_rank(), "text": "x" * 100})
        return found

    done = run(gather)
    assert done.values == [[{"rank": rank, "text": "x" * 100} for rank in range(WORLD)]] * WORLD
    sizes, objects = done.trace.of(2, "collective")
    assert (sizes.name, sizes.bytes, sizes.dtype) == ("all_gather", 8 * WORLD, "int64")
    assert objects.bytes >= WORLD * 100


def test_batch_isend_irecv_records_a_ring() -> None:
    def exchange() -> torch.Tensor:
        rank, size = dist.get_rank(), dist.get_world_size()
        there, here = torch.full((3,), float(rank)), torch.empty(3)
        for handle in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, there, (rank + 1) % size), dist.P2POp(dist.irecv, here, (rank - 1) % size)]
        ):
            handle.wait()
        return here

    done = run(exchange)
    assert [int(value[0]) for value in done.values] == [3, 0, 1, 2]
    assert done.trace.edges == tuple(ranks.Edge(rank, (rank + 1) % WORLD, 1, 12) for rank in range(WORLD))[:WORLD]
    assert done.trace.findings == ()


def test_groups_of_a_part_of_the_ranks_are_recorded_with_global_ranks() -> None:
    def reduce() -> float:
        groups = [dist.new_group([0, 2]), dist.new_group([3, 1])]
        x = torch.tensor(10.0 ** dist.get_rank())
        dist.all_reduce(x, group=groups[dist.get_rank() % 2])
        return x.item()

    done = run(reduce)
    assert done.values == [101, 1010, 101, 1010]
    events = [done.trace.of(rank, "collective")[0] for rank in range(WORLD)]
    assert [(event.rank, sorted(event.group), event.peers) for event in events] == [
        (0, [0, 2], (2,)),
        (1, [1, 3], (3,)),
        (2, [0, 2], (0,)),
        (3, [1, 3], (1,)),
    ]
    assert len({event.key for event in events}) == 2
