"""Cost of many ranks: starting, keeping warm, recording and reading their output; and the speed of gloo here.

    python benchmarks/ranks.py             # writes results/ranks.json
    python benchmarks/ranks.py --quick     # fewer rounds; writes nothing

Bars: four real ranks start in under 5 s, and the next run's in under 50 ms. The ratio of a recorded call to a plain one
is measured in one run, in alternating blocks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import psutil
import torch
import torch.distributed as dist
from record import write_result

from mlsys_labkit import ranks
from mlsys_labkit.ranks.processes.pool import RankPool

WORLD = 4
FIRST_START_BAR_SECONDS = 5.0
WARM_START_BAR_SECONDS = 0.050
_WARM_UP_SECONDS = 1.0  # between runs, as a reader of the output leaves


def gloo(fn: Callable[..., Any], world_size: int = WORLD, *args: Any) -> list[Any]:
    return ranks.run(fn, world_size, "gloo", args=args, timeout_seconds=300, quiet=True).values


def nothing() -> None:
    pass


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def starts(rounds: int) -> dict[str, float]:
    """Time the start of ranks that join a group: after importing torch, forked from that process, and waiting."""
    pool = RankPool.current()
    first, forked, warm, runs = [], [], [], []
    for _ in range(rounds):
        pool.close()
        first.append(seconds(lambda: pool.ranks(WORLD, "gloo")))
        pool.end_ranks()
        forked.append(seconds(lambda: pool.ranks(WORLD, "gloo")))
        for _ in range(5):
            gloo(nothing)
            time.sleep(_WARM_UP_SECONDS)
            warm.append(seconds(lambda: pool.ranks(WORLD, "gloo")))
            runs.append(seconds(lambda: gloo(nothing)))
            time.sleep(_WARM_UP_SECONDS)
    return {
        "first_start_seconds": median(first),
        "fork_and_join_seconds": median(forked),
        "warm_start_seconds": median(warm),
        "empty_run_seconds": median(runs),
        "empty_run_slowest_seconds": max(runs),
    }


def record_cost(blocks: int, calls: int) -> tuple[float, float]:
    """Return the seconds of one all_reduce of 8 bytes: on the recorded group, and on the plain gloo group inside it."""
    x, recorded, plain = torch.zeros(2), [], []
    group: Any = dist.group.WORLD
    for _ in range(blocks):
        for inside, into in ((group, recorded), (group._plain, plain)):
            dist.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(x, group=inside)
            into.append((time.perf_counter() - start) / calls)
    return median(recorded), median(plain)


def all_reduce_seconds(size_bytes: int, repeats: int) -> float:
    x, times = torch.zeros(size_bytes // 4), []
    for _ in range(repeats):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(x)
        times.append(time.perf_counter() - start)
    return median(times)


def ring_of_messages(rounds: int) -> None:
    rank, size, x = dist.get_rank(), dist.get_world_size(), torch.zeros(2)
    for _ in range(rounds):
        for now in (dist.send, dist.recv) if rank == 0 else (dist.recv, dist.send):
            now(x, (rank + (1 if now is dist.send else -1)) % size)


def own_memory(train: bool) -> int:
    """Return the bytes that this rank shares with no other process."""
    dist.all_reduce(torch.zeros(2))
    if train:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
        model(torch.zeros(1, 8)).sum().backward()
    return int(psutil.Process().memory_full_info().uss)


def waits_in_a_circle() -> None:
    dist.recv(torch.zeros(1), (dist.get_rank() + 1) % dist.get_world_size())


def deadlock_seconds(backend: Any) -> float:
    def run() -> None:
        try:
            ranks.run(waits_in_a_circle, WORLD, backend, quiet=True)
        except ranks.DeadlockError:
            return
        raise AssertionError("no deadlock was found")

    return seconds(run)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no result file")
    quick = parser.parse_args().quick
    result: dict[str, Any] = {"world_size": WORLD, **starts(1 if quick else 3)}
    blocks, calls = (3, 100) if quick else (15, 300)
    recorded, plain = (max(times) for times in zip(*gloo(record_cost, WORLD, blocks, calls), strict=True))
    result |= {
        "recorded_all_reduce_seconds": recorded,
        "plain_all_reduce_seconds": plain,
        "recorded_over_plain": recorded / plain,
    }
    for world_size in (2, WORLD):
        size = 16 << 20
        slowest = max(gloo(all_reduce_seconds, world_size, size, 5 if quick else 30))
        bandwidth = 2 * (world_size - 1) / world_size * size / slowest
        result[f"all_reduce_16_mib_on_{world_size}_bus_bytes_per_second"] = bandwidth
    rounds = 200 if quick else 2000
    ranks.run(ring_of_messages, WORLD, "local", args=(10,), quiet=True)
    local = seconds(lambda: ranks.run(ring_of_messages, WORLD, "local", args=(rounds,), quiet=True))
    result["local_seconds_a_message"] = local / (rounds * WORLD)
    result["rank_own_bytes"] = max(gloo(own_memory, WORLD, False))
    gloo(own_memory, WORLD, True)
    time.sleep(_WARM_UP_SECONDS)
    result["rank_own_bytes_ddp"] = max(gloo(own_memory, WORLD, True))
    for backend in ("gloo", "local"):
        result[f"deadlock_diagnosed_seconds_{backend}"] = median(deadlock_seconds(backend) for _ in range(3))
    RankPool.current().close()
    for name, value in result.items():
        print(f"{name:<50}{value:14.6g}")
    if not quick:
        write_result("ranks", result)
    first, warm = result["first_start_seconds"], result["warm_start_seconds"]
    return 0 if first < FIRST_START_BAR_SECONDS and warm < WARM_START_BAR_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
