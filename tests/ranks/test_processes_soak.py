"""Many runs one after the other leave nothing behind: process, socket, open file, shared memory, temporary file."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
import torch
import torch.distributed as dist

from mlsys_labkit import ranks
from mlsys_labkit.ranks.processes.pool import RankPool

pytestmark = pytest.mark.xdist_group("rank-processes")
cloudpickle.register_pickle_by_value(sys.modules[__name__])

WORLD = 4
FOLDERS = [Path(folder) for folder in ("/dev/shm", "/tmp") if os.path.isdir(folder)]


def everything(number: int) -> tuple[int, list[float]]:
    """Call each collective of torch.distributed once, send messages of each kind, and use a sub-group."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x, told = torch.full((size,), float(rank + number)), []

    def parts() -> list[torch.Tensor]:
        return [torch.empty(size) for _ in range(size)]

    dist.barrier()
    dist.all_reduce(x, dist.ReduceOp.MAX)
    dist.broadcast(x, 1)
    dist.reduce(x, 2)
    dist.all_gather(gathered := parts(), x)
    dist.gather(x, parts() if rank == 0 else None, 0)
    dist.scatter(x, parts() if rank == 0 else None, 0)
    dist.reduce_scatter(torch.empty(1), list(x.chunk(size)))
    dist.all_to_all_single(torch.empty(size), x)
    dist.broadcast_object_list([number], 0)
    dist.all_gather_object([None] * size, number)
    got = torch.empty(size)
    for handle in (dist.isend(x, (rank + 1) % size), dist.irecv(got, (rank - 1) % size)):
        assert handle is not None
        handle.wait()
    pair = dist.new_group([0, 1]), dist.new_group([2, 3])
    dist.all_reduce(y := torch.tensor(float(rank)), group=pair[rank // 2])
    told += [float(gathered[0].numel()), y.item()]
    return os.getpid(), told


def soak(runs: int) -> None:
    RankPool.current().close()
    others = set(psutil.Process().children(recursive=True))  # a browser of another test
    ranks.run(everything, WORLD, "gloo", args=(0,), quiet=True)
    pool = RankPool.current()
    pids: set[int] = set()
    before = _held(pool)
    for number in range(runs):
        done = ranks.run(everything, WORLD, "gloo", args=(number,), quiet=True)
        pids |= {pid for pid, _ in done.values}
        assert [told for _, told in done.values] == [[WORLD, 1.0], [WORLD, 1.0], [WORLD, 5.0], [WORLD, 5.0]]
    assert len(pids) == runs * WORLD
    after = _held(pool)
    assert after.pop("files") < before.pop("files") + runs  # a leak is one a run; this process does other things, too
    assert after == before
    folder = pool._host.meeting.folder  # type: ignore[union-attr]
    pool.close()
    assert set(psutil.Process().children(recursive=True)) <= others
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not folder.exists()
    assert not [entry for place in FOLDERS for entry in place.iterdir() if _made_by(entry.name, pids)]


def _held(pool: RankPool) -> dict[str, Any]:
    """Measure what the pool holds while its ranks wait for the next run."""
    pool.ranks(WORLD, "gloo")
    own = psutil.Process()
    family = own.children(recursive=True)
    assert pool._host
    return {
        "processes": len(family),
        "listening": sum(one.status == "LISTEN" for process in family for one in process.net_connections("tcp")),
        "files": own.num_fds(),
        "threads": threading.active_count(),
        "folder": len(list(pool._host.meeting.folder.iterdir())),
    }


def _made_by(name: str, pids: set[int]) -> bool:
    """Return whether the name contains the pid: torch uses torch_<pid>_<random>_<count>, others another place."""
    return any(part.isdigit() and int(part) in pids for part in name.replace("-", "_").split("_"))


def test_three_runs_leave_nothing_behind() -> None:
    soak(3)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_two_hundred_runs_leave_nothing_behind() -> None:
    soak(200)
