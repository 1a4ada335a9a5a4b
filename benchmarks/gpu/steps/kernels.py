"""Step ``kernels``: the corpus of the tests on the GPU against numpy, and whole programs through nvcc."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from benchmarks.gpu.cases import PROGRAMS, Case, NotMeasured, first_line, kit_on_gpu, tool

MANAGED = {"unified_memory"}  # managed memory is left alone on a GPU that others share


def cases() -> list[Case]:
    from tests.cuda.test_corpus import CASES

    kernels = [Case(f"{file}/{name}", partial(run_kernel, file, name), 90) for file, name in CASES]
    names = sorted(path.stem for path in PROGRAMS.glob("*.cu") if path.stem not in MANAGED)
    programs = [Case(f"program/{name}", partial(run_whole_program, name), 120) for name in names]
    return [*kernels, *programs, Case("endless kernel", run_endless, 30, alone=True)]


def run_kernel(file: str, name: str) -> dict[str, Any]:
    """Run one kernel of the corpus. Raises AssertionError where a result differs from its oracle."""
    from mlsys_labkit import cuda
    from tests.cuda import test_corpus as corpus

    kit_on_gpu()
    case = corpus.CASES[file, name]
    began = time.monotonic()
    kernel = cuda.compile(corpus.CORPUS / f"{file}.cu", name, backend="gpu")
    compiled = time.monotonic() - began
    arguments = corpus.fresh(case)
    kernel[case.shape](*arguments)
    corpus.compare(case, arguments)
    return {"ok": True, "compile_seconds": compiled, "known_races": sorted(case.kinds)}


def run_whole_program(name: str) -> dict[str, Any]:
    """Build a program with nvcc and run it; its last line says PASS."""
    from mlsys_labkit.cuda import run_program
    from mlsys_labkit.cuda.errors import CudaError

    tool("nvcc")
    kit_on_gpu()
    try:
        result = run_program(PROGRAMS / f"{name}.cu", backend="gpu", timeout=60)
    except CudaError as error:
        if "there is no NVIDIA GPU" in str(error):  # a stand-in that a program of its own does not see
            raise NotMeasured("nvcc's programs see no GPU") from None
        raise
    last = result.stdout.rstrip().rpartition("\n")[2]
    ok = (result.returncode, last) == (0, "PASS")
    found = {"returncode": result.returncode, "last": last, "stderr": result.stderr[-300:]}
    return {"ok": ok, **found} | ({} if ok else {"stdout": result.stdout[-3000:].splitlines()})


def run_endless() -> dict[str, Any]:
    """Launch a kernel that never ends with a limit of 2 s. The worker is ended where the limit is not kept."""
    import numpy as np

    from mlsys_labkit import cuda

    kit_on_gpu()
    endless = cuda.compile("__global__ void k(volatile int* x) { while (x[0] == 0) {} }", backend="gpu")
    said = "the launch returned"
    try:
        endless.within(2.0)[1, 1](np.zeros(1, np.int32))
    except Exception as error:
        said = first_line(error)
    return {"ok": said != "the launch returned" and "CUDA_ERROR" not in said, "said": said}
