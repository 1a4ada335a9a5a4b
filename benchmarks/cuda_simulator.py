"""Benchmark of the CUDA simulator: each result is a ratio or a time, compared with a peer measured in the same run.

    python benchmarks/cuda_simulator.py [--only tiled naive ...] [--numba PYTHON]

    tiled      tiled matmul, 64 cubed, against the CUDA simulator of numba
    naive      naive matmul, 512 cubed, against the same loops in C++ with OpenMP, by the same g++
    threads    a vector add of 4 M threads, against the loop in C++ with OpenMP and -O3, by the same g++
    barriers   sums of 8,192 blocks of 256 threads with 9 barriers, against loops over threads between the barriers
    profile    counting against running, for the naive and a warp-tiled matmul, 256 cubed
    compile    the first kernel of a fresh cache, the next one, an unchanged one
    check      races and bounds of a vector add, 1 M and 16 M elements
    launch     an empty kernel on device arrays
    processes  two processes that compile one kernel into one empty cache at once

The bars that compare two kernels compare processor time, which others on the machine disturb least; the wall's is the
best of several runs and stands beside it. A launch is the median of thousands. numba is installed into a throwaway
environment for this run; ``--numba`` names a Python that has it. Prints a table and writes results/cuda_simulator.json
with the machine. The exit status is the number of bars that do not hold. That the counters equal theory, and that no
finding is false or missing, is for tests/cuda to show. No GPU is measured here.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from record import write_result

from mlsys_labkit import cuda
from mlsys_labkit._base.limits import usable_cores

HERE = Path(__file__).parent
KERNELS = HERE / "kernels"
REPEATS = 7


@dataclass(frozen=True)
class Bar:
    """One bar: the result, the most (or least) it may be, and the figures that it was computed from."""

    name: str
    value: float
    bound: float
    unit: str
    figures: dict[str, float]
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        figures = ", ".join(f"{name} {value:.4g}" for name, value in self.figures.items())
        verdict = "ok" if self.holds else "NOT MET"
        return f"{self.name:<44}{self.value:>10.4g}  {sign} {self.bound:<6g} {self.unit:<10} {verdict:<8} {figures}"


@dataclass(frozen=True)
class Spent:
    """Seconds per call: the best by the wall clock, and the mean of processor time."""

    wall: float
    processor: float


def spent(call: Callable[[], object], repeats: int = REPEATS, clock: Callable[[], float] | None = None) -> Spent:
    """Return the processor seconds of ``call`` by ``clock``, or by the worker's, after one call that is not timed."""
    clock = clock or worker_processor_seconds
    call()
    times, before = [], clock()
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return Spent(min(times), (clock() - before) / repeats)


def source(name: str) -> str:
    return (KERNELS / name).read_text(encoding="utf-8")


def matrices(n: int) -> tuple[cuda.DeviceArray, cuda.DeviceArray, cuda.DeviceArray]:
    rng = np.random.default_rng(0)
    a, b = (cuda.to_device(rng.standard_normal((n, n), dtype=np.float32)) for _ in range(2))
    return a, b, cuda.zeros((n, n))


def right(a: cuda.DeviceArray, b: cuda.DeviceArray, c: cuda.DeviceArray) -> None:
    np.testing.assert_allclose(c.numpy(), a.numpy() @ b.numpy(), rtol=2e-3, atol=2e-3)


# --- The bars -----------------------------------------------------------------------------------------------------


def tiled(numba: str | None) -> list[Bar]:
    n, tile = 64, 16
    kernel = cuda.compile(source("tiled_matmul.cu"), f"matmul<{tile}>", backend="simulator")
    a, b, c = matrices(n)
    launch = kernel[(n // tile, n // tile), (tile, tile)]
    ours = spent(lambda: launch(a, b, c, n), repeats=100).wall
    right(a, b, c)
    with numba_python(numba) as python:
        if python is None:
            return []
        environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
        command = [python, str(KERNELS / "numba_kernels.py"), json.dumps([["tiled", n, 1]])]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    theirs = float(json.loads(said)[0]["wall"])
    figures = {"ours ms": ours * 1e3, "numba s": theirs}
    return [Bar("tiled 64 cubed, numba's simulator / ours", theirs / ours, 1000, "x", figures, at_least=True)]


def naive(_: str | None) -> list[Bar]:
    n = 512
    kernel = cuda.compile(source("naive_matmul.cu"), "matmul", backend="simulator")
    a, b, c = matrices(n)
    launch = kernel[(n // 16, n // 16), (16, 16)]
    host_a, host_b, host_c = a.numpy(), b.numpy(), np.zeros((n, n), np.float32)
    with loops("naive_loops.cpp", "-O2") as library:
        ours = spent(lambda: launch(a, b, c, n))
        plain = spent(lambda: library.matmul(*map(pointer, (host_a, host_b, host_c)), n), clock=time.process_time)
    right(a, b, c)
    np.testing.assert_allclose(host_c, c.numpy(), rtol=2e-3, atol=2e-3)
    return [against_loops("naive 512 cubed, ours / C++ with OpenMP", ours, plain, 3)]


def threads(_: str | None) -> list[Bar]:
    n = 1 << 22
    kernel = cuda.compile(source("vector_add.cu"), "add", backend="simulator")
    x, y = (np.random.default_rng(0).standard_normal(n, dtype=np.float32) for _ in range(2))
    z, device = np.zeros_like(x), [cuda.to_device(array) for array in (x, y, np.zeros_like(x))]
    launch = kernel[n // 256, 256]
    with loops("add_loops.cpp", "-O3") as library:
        ours = spent(lambda: launch(*device, n), repeats=30)
        plain = spent(lambda: library.add(*map(pointer, (x, y, z)), n), repeats=300, clock=time.process_time)
    np.testing.assert_array_equal(device[2].numpy(), z)
    return [against_loops("vector add, 4 M threads, ours / C++ -O3", ours, plain, 12)]


def barriers(_: str | None) -> list[Bar]:
    blocks, block = 8192, 256
    kernel = cuda.compile(source("block_sums.cu"), "block_sums", backend="simulator")
    x = np.random.default_rng(0).standard_normal(blocks * block, dtype=np.float32)
    sums, device_x, device_sums = np.zeros(blocks, np.float32), cuda.to_device(x), cuda.zeros(blocks)
    launch = kernel[blocks, block, 4 * block]
    with loops("block_sum_loops.cpp", "-O3") as library:
        ours = spent(lambda: launch(device_x, device_sums))
        plain = spent(
            lambda: library.block_sums(pointer(x), pointer(sums), blocks, block),
            repeats=300,
            clock=time.process_time,
        )
    np.testing.assert_array_equal(device_sums.numpy(), sums)
    return [against_loops("block sums, 9 barriers, ours / C++ -O3", ours, plain, 400)]


def profile(_: str | None) -> list[Bar]:
    n, bars = 256, []
    shapes = {
        ("naive_matmul.cu", "matmul"): ((n // 16, n // 16), (16, 16)),
        ("warp_tiled_matmul.cu", "matmul"): ((n // 64, n // 64), 128),
    }
    for (file, name), (grid, block) in shapes.items():
        kernel = cuda.compile(source(file), name, backend="simulator")
        a, b, c = matrices(n)
        run, count = kernel[grid, block], kernel.profile[grid, block]
        fast = spent(lambda run=run, a=a, b=b, c=c: run(a, b, c, n), repeats=100)
        right(a, b, c)
        counted = spent(lambda count=count, a=a, b=b, c=c: count(a, b, c, n))
        figures = {"run ms": fast.wall * 1e3, "profile ms": counted.wall * 1e3, "on the wall": counted.wall / fast.wall}
        ratio = counted.processor / fast.processor
        bars.append(Bar(f"profile / run, {file.removesuffix('.cu')} 256", ratio, 60, "x", figures))
    return bars


def compile_times(_: str | None) -> list[Bar]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LABKIT_CUDA_CACHE": folder}
        command = [sys.executable, str(KERNELS / "compile_times.py")]
        before = os.times()
        fresh = json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
        after = os.times()
        again = json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    first = {"with its first launch s": fresh["first_launch"], "processor s of it all": processor}
    kept = {"in another process ms": again["first"] * 1e3}
    return [
        Bar("first compile, fresh cache", fresh["first"], 4, "s", first),
        Bar("next compile", fresh["next"], 0.4, "s", {"with its first launch s": fresh["next_launch"]}),
        Bar("unchanged source", fresh["unchanged"] * 1e3, 10, "ms", kept),
    ]


def check(_: str | None) -> list[Bar]:
    kernel = cuda.compile(source("vector_add.cu"), "add", backend="simulator")
    times: dict[int, Spent] = {}
    peaks: dict[int, int] = {}
    for elements in (1 << 20, 1 << 24):
        x, y, z = (cuda.to_device(np.ones(elements, np.float32)) for _ in range(3))
        launch = kernel.check[elements // 256, 256]
        repeats = 3 * 2**24 // elements  # as many elements for both, so that the clock's ticks weigh the same
        times[elements] = spent(partial(_checked, launch, (x, y, z, elements)), repeats)
        peaks[elements] = worker_peak_bytes()
        for array in (x, y, z):
            array.free()
    small, large = times[1 << 20], times[1 << 24]
    each = {"1 M ns": small.processor / 2**20 * 1e9, "16 M ns": large.processor / 2**24 * 1e9}
    figures = {"1 M s": small.wall, "processor s": large.processor, "worker's peak GiB": peaks[1 << 24] / 2**30}
    return [
        Bar("check of a vector add, 16 M elements", large.wall, 4, "s", figures),
        Bar("check an element, 16 M / 1 M", each["16 M ns"] / each["1 M ns"], 1.5, "x", each),
    ]


def _checked(launch: Callable[..., list[object]], arguments: tuple[object, ...]) -> None:
    found = launch(*arguments)
    assert not found, found


def launch(_: str | None) -> list[Bar]:
    kernel = cuda.compile(source("empty.cu"), "empty", backend="simulator")
    x = cuda.zeros(1)
    empty = kernel[1, 32]
    times = []
    for _repeat in range(2000):
        start = time.perf_counter()
        empty(x)
        times.append(time.perf_counter() - start)
    percentiles = np.percentile(times[200:], [50, 90, 99]) * 1e3
    figures = {"90th percentile ms": float(percentiles[1]), "99th percentile ms": float(percentiles[2])}
    return [Bar("empty launch on a device array", float(percentiles[0]), 0.2, "ms", figures)]


def processes(_: str | None) -> list[Bar]:
    rounds, failed, took = 3, 0, []
    for _round in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "LABKIT_CUDA_CACHE": folder}
            start = time.perf_counter()
            command = [sys.executable, str(KERNELS / "compile_times.py")]
            both = [
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(2)
            ]
            failed += sum(1 for process in both if process.communicate() and process.returncode)
            took.append(time.perf_counter() - start)
    figures = {"rounds": rounds, "s a round": statistics.median(took)}
    return [Bar("two processes, one kernel, one empty cache", failed, 0, "failures", figures)]


BARS = {
    "tiled": tiled,
    "naive": naive,
    "threads": threads,
    "barriers": barriers,
    "profile": profile,
    "compile": compile_times,
    "check": check,
    "launch": launch,
    "processes": processes,
}


# --- What they need -----------------------------------------------------------------------------------------------


class numba_python:
    """Return a Python with numba: the given one, or a throwaway environment; without either, print why, return None."""

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._folder = tempfile.TemporaryDirectory()

    def __enter__(self) -> str | None:
        if self._given:
            return self._given
        folder = Path(self._folder.name)
        python = str(folder / "bin" / "python")
        print("installing numba into a throwaway environment ...", flush=True)
        venv.create(folder, with_pip=True)
        quiet = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "numba"]
        done = subprocess.run([python, *quiet], capture_output=True, text=True)
        if done.returncode:
            print(f"skipped: numba does not install: {done.stderr.strip().splitlines()[-1]}")
            return None
        return python

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


@contextlib.contextmanager
def loops(file: str, optimised: str) -> Iterator[ctypes.CDLL]:
    """Compile C++ of ``kernels/`` with OpenMP for this machine, and load it."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "loops.so"
        flags = [optimised, "-fopenmp", "-march=native", "-shared", "-fPIC"]
        subprocess.run(["g++", *flags, str(KERNELS / file), "-o", str(library)], check=True)
        yield ctypes.CDLL(str(library))


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def against_loops(name: str, ours: Spent, plain: Spent, bound: float) -> Bar:
    figures = {"ours ms": ours.wall * 1e3, "C++ ms": plain.wall * 1e3, "on the wall": ours.wall / plain.wall}
    return Bar(name, ours.processor / plain.processor, bound, "x", figures)


def worker_files(name: str) -> list[str]:
    """Read a file of /proc of each child of this process; the simulator's worker is the only child that stays."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [Path(f"/proc/{child}/{name}").read_text() for child in children]


def worker_peak_bytes() -> int:
    """Return the largest resident set that the simulator's process has had, in bytes."""
    lines = [line for text in worker_files("status") for line in text.splitlines() if line.startswith("VmHWM")]
    return max(1024 * int(line.split()[1]) for line in lines)


def worker_processor_seconds() -> float:
    """Return the user and system time of the simulator's process (proc(5), fields 14 and 15 of stat)."""
    ticks = [int(field) for text in worker_files("stat") for field in text.rpartition(")")[2].split()[11:13]]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description="The CUDA simulator against its bars.")
    parser.add_argument("--only", nargs="+", choices=list(BARS), help="these alone; writes nothing")
    parser.add_argument("--numba", help="a Python that has numba, instead of a throwaway environment")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{usable_cores():g} cores, load {load:.1f} before the run\n")
    bars = []
    for name in arguments.only or BARS:
        for bar in BARS[name](arguments.numba):
            bars.append(bar)
            print(bar, flush=True)
    if not arguments.only:
        rows = [{**asdict(bar), "holds": bar.holds} for bar in bars]
        write_result("cuda_simulator", {"load_before": round(load, 2), "bars": rows})
    return sum(not bar.holds for bar in bars)


if __name__ == "__main__":
    raise SystemExit(main())
