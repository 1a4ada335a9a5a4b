"""Comparison of ``kernel.model`` with measured times: the matrix products of labs 03 and 04 on an H100.

    python benchmarks/lab_ladder.py

Each kernel is profiled in the simulator at n = 256 and n = 512, and its counters are extrapolated to n = 4096 as in
cuda_model.py. Prints estimated and measured times with their ratio (a kernel without a measured time has an estimate
only) and writes results/lab_ladder.json. Needs NVIDIA's compiler (mlsys-labkit[cuda]). The exit status is 1 if the
model does not put the measured kernels in their order.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from cuda_model import SIZE, Step, along, extrapolated, pairs_in_order  # noqa: E402
from record import write_result  # noqa: E402

from benchmarks.gpu.cells import lab_kernels  # noqa: E402
from benchmarks.gpu.steps.speed import LADDER  # noqa: E402
from mlsys_labkit._base.text_table import text_table  # noqa: E402
from mlsys_labkit.cuda.counters import Counters  # noqa: E402
from mlsys_labkit.cuda.time_model.estimate import estimate  # noqa: E402
from mlsys_labkit.cuda.time_model.gpus import modelled  # noqa: E402

SIZES = 256, 512  # matmul_pipelined has tiles of 256 columns


def profiled(name: str) -> Step:
    """Compile and profile one kernel, and extrapolate one block's counters to the measured size."""
    lab, shape = LADDER[name]
    kernel = lab_kernels(lab, "simulator", name)[name]
    small, large = (one_block(kernel, n, shape(n)) for n in SIZES)
    counters = extrapolated(small, large, (*shape(SIZE)[0], 1), SIZES)
    touched = [each.bytes_read + each.bytes_written for each in (small, large)]
    return Step(name, kernel, counters, along(*touched, SIZES))


def one_block(kernel: Any, n: int, shape: tuple[Any, Any]) -> Counters:
    """Profile one block of a product of n x n matrices and check the block's result."""
    rng = np.random.default_rng(n)
    left, right = (rng.integers(-3, 4, (n, n)).astype(np.float32) for _ in range(2))
    out = np.full((n, n), np.nan, np.float32)
    counters = kernel.profile.sampled(1)[shape](left, right, out, n, n, n)
    written = np.isfinite(out)
    assert written.any()
    assert np.array_equal(out[written], (left @ right)[written])
    return counters


def main() -> int:
    table = tomllib.loads((HERE / "ladders.toml").read_text(encoding="utf-8"))["labs"]
    machine = modelled(table["gpu"])
    found = {name: estimate(profiled(name).launch(machine.arch), machine) for name in LADDER}
    measured = {name: 2 * SIZE**3 / (1e9 * rate) for name, rate in table["measured"].items()}
    ratios = {name: found[name].seconds / seconds for name, seconds in measured.items()}
    rows = [("kernel", "measured ms", "model ms", "model / measured", "decided by")]
    for name, one in found.items():
        seconds, ratio = (f"{1e3 * measured[name]:.2f}", f"{ratios[name]:.2f}") if name in measured else ("", "")
        rows.append((name, seconds, f"{1e3 * one.seconds:.2f}", ratio, one.bound))
    print(f"{machine.spec.name}: {table['source']} ({table['note']})", *text_table(rows, right=[1, 2, 3]), sep="\n")
    pairs = len(measured) * (len(measured) - 1) // 2
    in_order = pairs_in_order([found[name].seconds for name in measured], list(measured.values()))
    print(f"{in_order} of {pairs} pairs in order")
    result = {name: {"model_ms": 1e3 * one.seconds, "bound": one.bound} for name, one in found.items()}
    write_result("lab_ladder", table | {"model": result, "ratios": ratios, "pairs_in_order": in_order})
    return int(in_order != pairs)


if __name__ == "__main__":
    sys.exit(main())
