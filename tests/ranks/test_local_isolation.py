"""Ranks of the local backend, each as if alone in its process."""

from __future__ import annotations

import gc
import random
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from mlsys_labkit import ranks
from tests.ranks.run_helpers import local

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")  # torch 2.13 has new names for old ones


def test_ranks_get_copies_of_arguments_and_their_item_of_each() -> None:
    shared, own = torch.zeros(2), [torch.zeros(1), torch.zeros(1)]

    def change(x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
        x += dist.get_rank() + 1
        y += 1
        dist.barrier()
        return x[0].item(), y.item()

    assert local(change, 2, shared, ranks.each(own)).values == [(1, 1), (2, 1)]
    assert not shared.any()
    assert not own[0].any()


def test_random_state_is_per_rank_and_starts_from_the_notebooks() -> None:
    def draw() -> list[float]:
        drawn = [torch.rand(1).item(), np.random.rand(), random.random()]  # noqa: NPY002
        dist.barrier()
        torch.manual_seed(dist.get_rank())
        dist.barrier()  # rank 1 seeds in between
        return [*drawn, torch.rand(1).item(), np.random.rand(), random.random()]  # noqa: NPY002

    torch.manual_seed(5)
    state = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # noqa: NPY002
    first, second = local(draw, 2).values
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # noqa: NPY002
    assert torch.equal(state[0], after[0])
    assert state[1:] == after[1:]
    assert first[:3] == second[:3]
    assert first[4:] == second[4:]
    assert first[0] == torch.rand(1).item()
    for rank, value in enumerate((first, second)):
        assert value[3] == torch.rand(1, generator=torch.Generator().manual_seed(rank)).item()


def test_a_run_is_the_same_every_time() -> None:
    def chat() -> list[int]:
        x = torch.zeros(1)
        if dist.get_rank() == 0:
            return [dist.recv(x) for _ in range(6)]
        for _ in range(2):
            dist.send(x, 0)
        return []

    runs = [local(chat, 4) for _ in range(5)]
    assert len({tuple(run.values[0]) for run in runs}) == 1
    assert len({run.trace for run in runs}) == 1


def test_output_of_each_rank_is_kept_apart(capsys: pytest.CaptureFixture[str]) -> None:
    def say() -> None:
        print("one of", dist.get_rank())
        dist.barrier()
        print("two of", dist.get_rank(), file=sys.stderr)

    assert local(say, 2).outputs == ["one of 0\ntwo of 0\n", "one of 1\ntwo of 1\n"]
    assert capsys.readouterr() == ("", "")
    ranks.run(say, 2, "local")
    shown = capsys.readouterr().out
    assert "one of 0" in shown
    assert "two of 1" in shown


def test_the_notebooks_own_group_is_untouched(tmp_path: Path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        group, hook, stdout = dist.group.WORLD, sys.excepthook, sys.stdout
        assert local(lambda: (dist.get_world_size(), dist.new_group([0, 1]) is not None), 3).values[2][0] == 3
        with pytest.raises(ranks.DeadlockError):
            local(lambda: dist.recv(torch.zeros(1), 1 - dist.get_rank()), 2)
        assert dist.group.WORLD is group
        assert (dist.get_world_size(), dist.get_backend()) == (1, "gloo")
        assert (sys.excepthook, sys.stdout) == (hook, stdout)
        x = torch.ones(1)
        dist.all_reduce(x)

        def by_name() -> None:  # in the C++ registry, which is for all threads again
            for one in (group, dist.new_group([0])):
                functional = torch.ops._c10d_functional
                reduced.append(functional.wait_tensor(functional.all_reduce(x, "sum", one.group_name)))

        reduced: list[torch.Tensor] = []
        thread = threading.Thread(target=by_name)
        thread.start()
        thread.join()
        assert len(reduced) == 2
    finally:
        dist.destroy_process_group()


def test_many_runs_leave_nothing() -> None:
    def work(fails: bool) -> float:
        x = torch.ones(100_000)
        dist.all_reduce(x)
        if fails and dist.get_rank() == 1:
            raise ValueError
        dist.barrier()
        return x.sum().item()

    def living() -> int:
        gc.collect()
        return sum(1 for thing in gc.get_objects() if type(thing) is torch.Tensor)

    local(work, 3, False)
    threads, tensors = threading.active_count(), living()
    for number in range(20):  # one thread or tensor of one run would show
        if number % 2:
            with pytest.raises(ranks.RankError):
                local(work, 3, True)
        else:
            local(work, 3, False)
    assert threading.active_count() == threads
    assert living() <= tensors
