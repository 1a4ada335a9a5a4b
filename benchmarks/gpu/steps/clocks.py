"""Step ``clocks``: verdicts of ``bench`` and ``compare`` on a GPU, the host's share, and the flush of the cache."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gpu.ahead import seconds_ahead
from benchmarks.gpu.cases import Case, torch_on_gpu

VERDICTS = {"same": 0.95, "slower": 0.95}  # share of right verdicts that passes
SIZES = {"empty": 1, "4 MiB": 1 << 20, "64 MiB": 1 << 24, "1 GiB": 1 << 28}


def cases() -> list[Case]:
    host = [Case(f"host's share/{name}", partial(measure_host, count)) for name, count in SIZES.items()]
    flush = [Case(f"flush/{size} MB", partial(compare_flushes, size)) for size in (16, 33, 67, 134, 1024)]
    return [
        *host,
        *flush,
        Case("CPU beside CUDA", time_cpu_beside_cuda),
        *(Case(f"compare/{name}", partial(judge_pair, name), 90) for name in PAIRS),
    ]


def measure_host(count: int) -> dict[str, Any]:
    """Time a fill as ``bench`` does, and with the host ahead of the GPU: the difference is the host's."""
    from mlsys_labkit.timing.clock import CudaClock

    torch = torch_on_gpu()
    x, clock = torch.empty(count, device="cuda"), CudaClock(cold=False)
    bench = sorted(clock.time(x.zero_, 1) for _ in range(31))[15]
    ahead = seconds_ahead(torch, x.zero_, 31)
    return {"bench_us": 1e6 * bench, "ahead_us": 1e6 * ahead, "excess_us": 1e6 * (bench - ahead)}


def compare_flushes(megabytes: int) -> dict[str, Any]:
    """Time a sum behind a flush that writes, which leaves lines to write back, behind one that reads, and warm."""
    torch = torch_on_gpu()
    x = torch.randn(megabytes * 250_000, device="cuda")
    noise = torch.randn(
        torch.cuda.get_device_properties(0).L2_cache_size // 2, device="cuda"
    )  # twice the cache's bytes
    sink = torch.empty((), device="cuda")
    wrote = seconds_ahead(torch, x.sum, 21, before=noise.zero_)
    noise.normal_()
    read = seconds_ahead(torch, x.sum, 21, before=lambda: sink.copy_(noise.sum()))
    return {"written_us": 1e6 * wrote, "read_us": 1e6 * read, "warm_us": 1e6 * seconds_ahead(torch, x.sum, 21)}


def time_cpu_beside_cuda() -> dict[str, Any]:
    """Time a loop on the CPU while CUDA is up, against the same samples without a wait for the GPU."""
    from mlsys_labkit.timing.clock import CpuClock

    def loop() -> int:
        return sum(range(20))

    torch_on_gpu().zeros(1, device="cuda")
    waits, plain = CpuClock(), CpuClock()
    plain._finish = lambda: None
    calls = round(waits.sample_seconds / waits.time(loop, 1000))
    pairs = [(waits.time(loop, calls), plain.time(loop, calls)) for _ in range(501)]
    beside, without = (sorted(times)[250] for times in zip(*pairs, strict=True))
    return {
        "ok": abs(beside / without - 1) < 0.05,
        "with_wait_ns": 1e9 * beside,
        "without_wait_ns": 1e9 * without,
        "sample_us": 1e6 * waits.sample_seconds,
    }


def _memory(torch: Any, more: float) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x, y = (torch.randn(round(size * (1 << 24)), device="cuda") for size in (1.0, more))
    return (lambda: x.mul_(1.0)), (lambda: y.mul_(1.0))


def _matmul(torch: Any, more: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    a, b, c = (torch.randn(2048, columns, device="cuda").half() for columns in (2048, 2048, 2048 + more))
    return (lambda: a @ b), (lambda: a @ c)


# name: (the two calls, the right verdict; "" where the tiles of the library decide)
PAIRS: dict[str, tuple[Callable[[Any], tuple[Callable[[], Any], Callable[[], Any]]], str]] = {
    "memory, same": (lambda torch: _memory(torch, 1.0), "same"),
    "memory, 10 % more": (lambda torch: _memory(torch, 1.1), "slower"),
    "matmul, same": (lambda torch: _matmul(torch, 0), "same"),
    "matmul, 9 % more columns": (lambda torch: _matmul(torch, 192), ""),
}


def judge_pair(name: str, seconds: float = 12.0) -> dict[str, Any]:
    """Compare a pair again and again, and count the verdicts."""
    import mlsys_labkit as lk

    torch = torch_on_gpu()
    make, truth = PAIRS[name]
    one, other = make(torch)
    until, verdicts, seeds = time.monotonic() + seconds, Counter[str](), random.Random(0)
    while time.monotonic() < until:
        verdicts[lk.compare(one, other, seconds=0.5, device="cuda", seed=seeds.randrange(1 << 30)).verdict] += 1
    right = verdicts[truth] / verdicts.total()
    return {"ok": right >= VERDICTS[truth] if truth else None, "verdicts": dict(verdicts)}
