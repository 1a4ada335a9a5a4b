"""Comparison of ``kernel.model`` with published times: eight matrix products, from naive to warp-tiled, on four GPUs.

    python benchmarks/cuda_model.py

Each step of kernels/sgemm_ladder.cu is profiled in the simulator at n = 128 and n = 256. What a block does grows with n
along a straight line, so that its counters for n = 4096, the published size, follow exactly. Prints published and
estimated times with their ratio, and the errors. Then it fits ``overlap``, the model's only constant, on each set of
three GPUs and prints the error on the fourth. Writes results/cuda_model.json, with which tests compare the figures in
mlsys_labkit/cuda/time_model/gpus.toml. Needs NVIDIA's compiler (mlsys-labkit[cuda]). The exit status is the number of
bars that do not hold: the order of the eight steps on the GPU of the original, and a median error of at most 25 %.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from record import write_result

from mlsys_labkit import cuda
from mlsys_labkit._base.text_table import text_table
from mlsys_labkit.cuda.counters import Counters, LineCount
from mlsys_labkit.cuda.nvidia import ptxas
from mlsys_labkit.cuda.time_model.estimate import CountedLaunch, estimate
from mlsys_labkit.cuda.time_model.gpus import fitted_overlap, modelled, published_errors
from mlsys_labkit.cuda.time_model.machine_code import executed, from_counters
from mlsys_labkit.cuda.time_model.time_estimate import TimeEstimate

HERE = Path(__file__).parent
SMALL, LARGE, SIZE = 128, 256, 4096
STEPS = {  # side of a block's tile of the result, threads of a block
    "naive": (32, (32, 32)),
    "coalesced": (32, 1024),
    "shared tiles": (32, 1024),
    "column of outputs": (64, 512),
    "square of outputs": (128, 256),
    "wide loads": (128, 256),
    "tuned depth": (128, 256),
    "warp tiles": (128, 128),
}
OVERLAPS = [round(1.5 + 0.05 * step, 2) for step in range(31)]


@dataclass(frozen=True)
class Ladder:
    """Published GFLOP/s of the steps on one GPU."""

    gpu: str
    title: str
    url: str
    date: str
    note: str
    steps: list[float]

    @property
    def seconds(self) -> list[float]:
        return [2 * SIZE**3 / (1e9 * rate) for rate in self.steps]


@dataclass(frozen=True)
class Step:
    """One step: its kernel, and its counters and distinct bytes for one block at the published size."""

    name: str
    kernel: cuda.Kernel
    counters: Counters
    block_bytes: float

    def launch(self, architecture: str, compiler: bool = True) -> CountedLaunch:
        """Return the launch for the model; without the ``compiler``, as on a machine that does not have NVIDIA's."""
        if compiler:
            compiled = self.kernel._compiled(architecture, ("--generate-line-info",))
            instructions = executed(ptxas.disassemble(compiled.cubin, compiled.symbol, lines=True), self.counters)
        registers = self.kernel.resources(architecture).registers if compiler else 0
        return CountedLaunch(
            counters=self.counters,
            block_bytes=self.block_bytes,
            array_bytes=3 * 4 * SIZE**2,
            registers=registers,
            shared_bytes=self.kernel._backend.static_shared_bytes(self.kernel._index),
            executed=instructions if compiler else from_counters(self.counters),
            compiled=compiler,
        )


def ladders() -> list[Ladder]:
    """Return the published ladders, the original first."""
    table = tomllib.loads((HERE / "ladders.toml").read_text(encoding="utf-8"))
    return [Ladder(**each) for each in table["ladders"]]


def profiled(number: int, name: str) -> Step:
    """Compile and profile step ``number``, from 1, and extrapolate one block's counters to the published size."""
    tile, threads = STEPS[name]
    source = (HERE / "kernels" / "sgemm_ladder.cu").read_text(encoding="utf-8")
    kernel = cuda.compile(source, defines={"STEP": number}, backend="simulator")
    small, large = (one_block(kernel, n, tile, threads) for n in (SMALL, LARGE))
    counters = extrapolated(small, large, (SIZE // tile, SIZE // tile, 1))
    touched = [each.bytes_read + each.bytes_written for each in (small, large)]
    return Step(name, kernel, counters, along(*touched))


def one_block(kernel: cuda.Kernel, n: int, tile: int, threads: Any) -> Counters:
    """Profile one block of a product of n x n matrices and check the block's result."""
    rng = np.random.default_rng(n)
    left, right = (rng.integers(-3, 4, (n, n)).astype(np.float32) for _ in range(2))
    out = np.full((n, n), np.nan, np.float32)
    counters = kernel.profile.sampled(1)[(n // tile, n // tile), threads](left, right, out, n)
    written = np.isfinite(out)
    assert written.sum() == tile * tile
    assert np.array_equal(out[written], (left @ right)[written])
    return counters


def along(small: float, large: float, sizes: tuple[int, int] = (SMALL, LARGE)) -> float:
    """Return the value at n = SIZE of a straight line through those at the two ``sizes``."""
    return small + (large - small) / (sizes[1] - sizes[0]) * (SIZE - sizes[0])


def extrapolated(
    small: Counters, large: Counters, grid: tuple[int, ...], sizes: tuple[int, int] = (SMALL, LARGE)
) -> Counters:
    """Return one block's counters at the published size, as a sample of a launch of ``grid``."""

    def line(one: LineCount, other: LineCount) -> LineCount:
        names = ("requests", "lanes", "sectors", "wavefronts", "ideal_sectors", "ideal_wavefronts")
        return replace(other, **{name: round(along(getattr(one, name), getattr(other, name), sizes)) for name in names})

    def number(name: str) -> int:
        return round(along(getattr(small, name), getattr(large, name), sizes))

    before = {(each.line, each.space, each.op): each for each in small.lines}
    lines = [line(before[each.line, each.space, each.op], each) for each in large.lines if each.requests]
    instructions = {
        kind: round(along(small.instructions[kind], total, sizes)) for kind, total in large.instructions.items()
    }
    names = ("barriers", "warp_barriers", "steps", "active_lanes", "flops", "bytes_read", "bytes_written")
    return replace(
        large,
        grid=grid,
        lines=tuple(lines),
        blocks_run=1,
        blocks_total=math.prod(grid),
        instructions=instructions,
        **{name: number(name) for name in names},
    )


def errors(estimates: Sequence[TimeEstimate], published: Sequence[float]) -> list[float]:
    """Return relative errors: 0.1 is 10 % slower or faster than published."""
    return [abs(one.seconds / seconds - 1) for one, seconds in zip(estimates, published, strict=True)]


def pairs_in_order(estimated: Sequence[float], published: Sequence[float]) -> int:
    """Return how many pairs of steps are in the published order: 28 of 28 if all eight steps are."""
    pairs = itertools.combinations(range(len(published)), 2)
    return sum((estimated[a] < estimated[b]) == (published[a] < published[b]) for a, b in pairs)


def fitted(sets: Sequence[tuple[Callable[[float], list[TimeEstimate]], list[float]]]) -> float:
    """Return the overlap with the least sum of squared logarithms of estimated over published time."""

    def misfit(overlap: float) -> float:
        return sum(
            math.log(one.seconds / seconds) ** 2
            for estimates, published in sets
            for one, seconds in zip(estimates(overlap), published, strict=True)
        )

    return min(OVERLAPS, key=misfit)


def errors_of(ratios: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the figures of PublishedErrors, rounded outwards, from estimated over published times of each GPU."""
    each = [ratio for own in ratios for ratio in own]
    found = [abs(ratio - 1) for ratio in each]
    return {
        "kernels": len(each),
        "gpus": len(ratios),
        "median_error": math.ceil(100 * statistics.median(found)) / 100,
        "largest_error": math.ceil(100 * max(found)) / 100,
        "lowest_ratio": math.floor(100 * min(each)) / 100,
        "highest_ratio": math.ceil(100 * max(each)) / 100,
    }


def main() -> int:
    steps = [profiled(number, name) for number, name in enumerate(STEPS, 1)]
    published = ladders()
    missed = 0
    results: dict[str, Any] = {}
    tried: dict[str, Callable[[float], list[TimeEstimate]]] = {}
    without: dict[str, list[float]] = {}
    for ladder in published:
        machine = modelled(ladder.gpu)
        launches = [step.launch(machine.arch) for step in steps]
        tried[ladder.gpu] = lambda overlap, launches=launches, machine=machine: [
            estimate(launch, machine, overlap=overlap) for launch in launches
        ]
        estimates = tried[ladder.gpu](fitted_overlap())
        found = errors(estimates, ladder.seconds)
        in_order = pairs_in_order([one.seconds for one in estimates], ladder.seconds)
        print(f"\n{machine.spec.name}: {ladder.title} ({ladder.note})")
        rows = [("step", "published ms", "model ms", "model / published", "decided by")]
        for step, one, seconds in zip(steps, estimates, ladder.seconds, strict=True):
            ratio = one.seconds / seconds
            rows.append((step.name, f"{1e3 * seconds:.2f}", f"{1e3 * one.seconds:.2f}", f"{ratio:.2f}", one.bound))
        print(*text_table(rows, right=[1, 2, 3]), sep="\n")
        print(f"median error {statistics.median(found):.1%}, largest {max(found):.1%}; {in_order} of 28 pairs in order")
        results[ladder.gpu] = asdict(ladder) | {
            "model_ms": [1e3 * one.seconds for one in estimates],
            "bounds": [one.bound for one in estimates],
            "ratios": [one.seconds / seconds for one, seconds in zip(estimates, ladder.seconds, strict=True)],
            "median_error": statistics.median(found),
            "largest_error": max(found),
            "pairs_in_order": in_order,
        }
        rough = [estimate(step.launch(machine.arch, compiler=False), machine) for step in steps]
        without[ladder.gpu] = [one.seconds / seconds for one, seconds in zip(rough, ladder.seconds, strict=True)]
    original = published[0]
    checked = [each for each in results if each != original.gpu]
    chosen = fitted([(tried[original.gpu], original.seconds)])
    print(f"\noverlap fitted to the {original.gpu} alone: {chosen}; the model uses {fitted_overlap()}")
    held_out = {}
    for left_out in published:
        others = [(tried[each.gpu], each.seconds) for each in published if each is not left_out]
        overlap = fitted(others)
        found = errors(tried[left_out.gpu](overlap), left_out.seconds)
        held_out[left_out.gpu] = {
            "overlap": overlap,
            "median_error": statistics.median(found),
            "largest_error": max(found),
        }
        print(f"fitted without {left_out.gpu}: overlap {overlap}, median error {statistics.median(found):.1%} there")
    summary = {
        "compiled": errors_of([results[gpu]["ratios"] for gpu in checked]),
        "counted": errors_of([without[gpu] for gpu in checked]),
    }
    for name, found in summary.items():
        print(f"{name}: {found}; the model says {published_errors(name == 'compiled')}")
    missed += results[original.gpu]["pairs_in_order"] != math.comb(len(steps), 2)
    missed += summary["compiled"]["median_error"] > 0.25
    write_result("cuda_model", {"ladders": results, "overlap": chosen, "held_out": held_out, "errors": summary})
    return missed


if __name__ == "__main__":
    sys.exit(main())
