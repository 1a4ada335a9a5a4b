"""Benchmark of the CUDA simulator beside numba, on four kernels in one run: its CUDA simulator, and loops over prange.

    python benchmarks/beside_numba.py [--numba PYTHON]

    saxpy      one thread per element
    naive      matrix product, one thread per element
    tiled      matrix product through 16 x 16 tiles of shared memory, two barriers per step
    sums       sums of blocks of 128 threads through shared memory, 8 barriers

The small sizes are those that numba's simulator ends in seconds: it has a Python thread per CUDA thread. The large ones
leave it out. ``prange`` is numba's compiler on all cores, without blocks, threads or barriers: what the loops cost when
nothing is simulated. The ratios compare processor time, over all threads, which others on the machine disturb least.
The best of the calls by the wall clock is in the result, too. The kit does not need numba: this command installs it
into a throwaway environment; ``--numba`` names a Python that has it (pip install numba). Prints a table and writes
results/beside_numba.json with the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from dataclasses import asdict, dataclass

import numpy as np
from cuda_simulator import KERNELS, Spent, numba_python, source, spent
from record import write_result

from mlsys_labkit import cuda
from mlsys_labkit._base.limits import usable_cores

TILE, BLOCK = 16, 128
SMALL = {"saxpy": 1 << 13, "naive": 32, "tiled": 32, "sums": 1 << 11}
LARGE = {"saxpy": 1 << 22, "naive": 512, "tiled": 512, "sums": 1 << 20}
CALLS = {**dict.fromkeys(SMALL.values(), 2000), **dict.fromkeys(LARGE.values(), 10)}  # a clock tick is 10 ms


@dataclass(frozen=True)
class Row:
    """One kernel at one size; numba's simulator has no time at the large sizes."""

    kernel: str
    n: int
    ours: Spent
    prange: Spent
    cudasim: Spent | None

    def __str__(self) -> str:
        simulated = f"{self.cudasim.processor / self.ours.processor:>14,.0f}" if self.cudasim else " " * 14
        ratio = self.ours.processor / self.prange.processor
        return f"{self.kernel:<8}{self.n:>10,}{self.ours.processor * 1e3:>12.3f} ms{simulated}{ratio:>14.2f}"


def ours(name: str, n: int) -> Spent:
    """Return the seconds of a kernel on the kit's simulator, after its result was compared with numpy's."""
    rng = np.random.default_rng(0)
    if name in ("naive", "tiled"):
        a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
        expected, out = a @ b, cuda.zeros((n, n))
        arguments = (cuda.to_device(a), cuda.to_device(b), out, n)
        shape = (n // TILE, n // TILE), (TILE, TILE)
        kernel = "matmul" if name == "naive" else f"matmul<{TILE}>"
        launch = cuda.compile(source(f"{name}_matmul.cu"), kernel, backend="simulator")[shape]
    elif name == "saxpy":
        x, y = (rng.standard_normal(n, dtype=np.float32) for _ in range(2))
        expected, out = np.float32(2) * x + y, cuda.to_device(y)
        arguments = (2.0, cuda.to_device(x), out, n)
        launch = cuda.compile(source("saxpy.cu"), "saxpy", backend="simulator")[-(-n // BLOCK), BLOCK]
    else:
        x = rng.standard_normal(n, dtype=np.float32)
        expected, out = x.reshape(-1, BLOCK).sum(1), cuda.zeros(n // BLOCK)
        arguments = (cuda.to_device(x), out)
        launch = cuda.compile(source("block_sums.cu"), "block_sums", backend="simulator")[n // BLOCK, BLOCK, 4 * BLOCK]
    launch(*arguments)
    np.testing.assert_allclose(out.numpy(), expected, rtol=2e-3, atol=2e-3)
    return spent(lambda: launch(*arguments), CALLS[n])


def theirs(python: str, sizes: dict[str, int], *, simulated: bool) -> dict[str, Spent]:
    """Return the seconds of each kernel in numba, on its simulator or as loops."""
    rows = json.dumps([[name, n, 1 if simulated else CALLS[n]] for name, n in sizes.items()])
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": str(int(simulated))}
    command = [python, str(KERNELS / "numba_kernels.py"), rows]
    said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return {name: Spent(**one) for name, one in zip(sizes, json.loads(said), strict=True)}


def main() -> int:
    parser = argparse.ArgumentParser(description="The CUDA simulator beside numba.")
    parser.add_argument("--numba", help="a Python that has numba, instead of a throwaway environment")
    given = parser.parse_args().numba
    print(f"{usable_cores():g} cores")
    with numba_python(given) as python:
        if python is None:
            print("nothing was measured; pip install numba into an environment, and name its Python with --numba")
            return 1
        rows = []
        print(f"{'kernel':<8}{'n':>10}{'ours':>15}{'cudasim/ours':>14}{'ours/prange':>14}   (processor time)")
        for sizes in (SMALL, LARGE):
            simulated = theirs(python, sizes, simulated=True) if sizes is SMALL else {}
            loops = theirs(python, sizes, simulated=False)
            for name, n in sizes.items():
                rows.append(Row(name, n, ours(name, n), loops[name], simulated.get(name)))
                print(rows[-1], flush=True)
    write_result("beside_numba", {"rows": [asdict(row) for row in rows]})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
