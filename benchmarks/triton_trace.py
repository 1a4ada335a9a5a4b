"""Benchmark of tracing Triton kernels: processor time against Triton's own interpreter, on six kernels.

    python benchmarks/triton_trace.py [--runs 3]

Both run the same launch on the same arrays: Triton's interpreter in a process with TRITON_INTERPRET=1, which counts and
checks nothing; ours by ``trace``, in the notebook's process and its worker together, with every count and finding.
"run" is a launch without a trace. Each is the best of several, because others on the machine only ever add. The bar is
3 times. Prints a table and writes results/triton_trace.json; the exit status is the number of kernels above the bar.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from record import write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.triton import kernels

BAR = 3.0
Launch = tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, int]]  # kernel, grid, arguments, constants


def launches() -> dict[str, Launch]:
    torch.manual_seed(0)
    n = 500_000
    rows, columns = 1000, 1000
    m = 509
    x, y = torch.rand(n), torch.rand(n)
    matrix, other = torch.rand(rows, columns), torch.rand(columns)
    a, b, c = torch.rand(m, m), torch.rand(m, m), torch.empty(m, m)
    tiles = math.ceil(m / 64) ** 2
    tile = {"BM": 64, "BN": 64, "BK": 32}
    return {
        "vector add": (kernels.add, (math.ceil(n / 1024),), (x, y, torch.empty(n), n), {"BLOCK": 1024}),
        "masked softmax": (
            kernels.softmax,
            (rows,),
            (matrix, torch.empty(rows, columns), columns, columns, columns),
            {"BLOCK": 1024},
        ),
        "ragged matmul": (kernels.matmul, (tiles,), (a, b, c, m, m, m), tile),
        "grouped matmul": (kernels.grouped_matmul, (tiles,), (a, b, c, m, m, m), {"GROUP": 4, **tile}),
        "bias + GELU": (
            kernels.bias_gelu,
            (math.ceil(rows / 32), math.ceil(columns / 64)),
            (matrix, other, torch.empty(rows, columns), rows, columns),
            {"BM": 32, "BN": 64},
        ),
        "histogram": (
            kernels.histogram,
            (math.ceil(n / 1024),),
            (torch.randint(0, 256, (n,), dtype=torch.int32), torch.zeros(256, dtype=torch.int32), n),
            {"BLOCK": 1024},
        ),
    }


def best(launch: Callable[[], object], clock: Callable[[], float], runs: int) -> float:
    """Return the least of ``runs`` after a warm-up run."""
    times = []
    for _ in range(runs + 1):
        start = clock()
        launch()
        times.append(clock() - start)
    return min(times[1:])


def bare(runs: int) -> dict[str, float]:
    return {
        name: best(lambda launch=launch: launch[0][launch[1]](*launch[2], **launch[3]), time.process_time, runs)
        for name, launch in launches().items()
    }


def traced(runs: int) -> dict[str, tuple[float, float]]:
    """Return the processor seconds of a launch, and of a traced launch."""
    from mlsys_labkit.triton_trace import trace
    from mlsys_labkit.triton_trace.launch.client import TritonWorker

    def clock() -> float:
        process = TritonWorker.current()._process
        if process is None:
            return time.process_time()
        return time.process_time() + time.clock_gettime((~process.pid << 3) | 2)  # Linux: that process's own clock

    measured = {}
    for name, (kernel, grid, arguments, constants) in launches().items():
        run = best(lambda k=kernel, g=grid, a=arguments, c=constants: k[g](*a, **c), clock, runs)
        look = best(lambda k=kernel, g=grid, a=arguments, c=constants: trace(k)[g](*a, **c), clock, runs)
        measured[name] = run, look
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.bare:
        print(json.dumps(bare(options.runs)))
        return 0
    command = [sys.executable, __file__, "--bare", "--runs", str(options.runs)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    theirs = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    ours = traced(options.runs)
    rows = []
    print(f"{'kernel':<16}{'interpreter':>14}{'run':>12}{'trace':>12}{'trace / interpreter':>22}")
    for name, seconds in theirs.items():
        run, look = ours[name]
        rows.append({"kernel": name, "interpreter_s": seconds, "run_s": run, "trace_s": look, "ratio": look / seconds})
        print(f"{name:<16}{1e3 * seconds:>11.0f} ms{1e3 * run:>9.0f} ms{1e3 * look:>9.0f} ms{look / seconds:>21.2f}x")
    import triton

    write_result("triton_trace", {"triton": triton.__version__, "bar": BAR, "processor_time": rows})
    return sum(row["ratio"] > BAR for row in rows)


if __name__ == "__main__":
    sys.exit(main())
