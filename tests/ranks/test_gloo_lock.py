"""gloo and the interpreter's lock: gloo's threads need it to free a finished call, so a caller must release it."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from mlsys_labkit import ranks

pytestmark = pytest.mark.xdist_group("rank-processes")


def many_small_backwards(steps: int) -> float:
    from torch.nn.parallel import DistributedDataParallel

    layers = [torch.nn.Linear(4, 4) for _ in range(6)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1e-5)  # a call for each gradient
    for _ in range(steps):
        model(torch.ones(2, 4) * (1 + dist.get_rank())).sum().backward()
    return sum(float(parameter.grad.sum()) for parameter in model.parameters())


@pytest.mark.parametrize("steps", [12, pytest.param(40, marks=pytest.mark.soak)])
def test_many_backward_passes_of_a_dozen_calls_come_to_an_end(steps: int) -> None:
    run = ranks.run(many_small_backwards, 3, "gloo", args=(steps,), timeout_seconds=300, quiet=True)
    assert run.values[0] == pytest.approx(run.values[1]) == pytest.approx(run.values[2])
    assert sum(event.name == "all_reduce" for event in run.trace.of(0)) >= steps * 6


def groups_that_end_with_their_model(count: int) -> int:
    from torch.nn.parallel import DistributedDataParallel

    def train() -> None:
        model = DistributedDataParallel(torch.nn.Linear(4, 1))
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
        dist.destroy_process_group()  # the model goes last, and with it the group

    for _ in range(count):
        train()
        dist.init_process_group("gloo")
    return dist.get_world_size()


def test_groups_that_a_model_outlives_come_to_an_end() -> None:
    run = ranks.run(groups_that_end_with_their_model, 2, "gloo", args=(20,), timeout_seconds=60, quiet=True)
    assert run.values == [2, 2]
