"""Step ``sanitizer``: ``check`` beside compute-sanitizer on planted bugs, broken kernels and correct programs."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.cases import PROGRAMS, ROOT, Case, kit_on_gpu, tool

TOOLS = ("memcheck", "racecheck")
# Managed memory; libraries and helpers that nvcc alone does not link.
SKIPPED = {"unified_memory", "blas_and_pitch", "monte_carlo_pi", "convolution"}
# Beyond the tools, as CUDA's documentation of compute-sanitizer says: racecheck sees shared memory, initcheck global.
# From Volta on a barrier waits for the threads that have not exited, and synccheck is content with that.
BEYOND = {"global_race", "uninitialized_shared", "exited_before_barrier"}
PROVOKED = {"error_handling", "cooperative_groups"}  # programs that cause errors to handle them
# name: (lab, grid, block, elements of each array, numbers behind them)
BROKEN: dict[str, tuple[str, int, int, tuple[Any, ...], tuple[int, ...]]] = {
    "past_the_end": ("lab03", 1, 128, (100,), (100,)),
    "row_sums_broken": ("lab03", 1, 32, (8, 2), (2, 3, 4)),
    "differences_racy": ("lab04", 2, 128, (512, 512), (4,)),
    "normalize_broken": ("lab04", 1, 64, (64,), ()),
    "clamp_broken": ("lab04", 1, 128, (100,), (100,)),
    "blur_broken": ("lab04", 2, 64, (100, 100), (100,)),
    "prefix_broken": ("lab04", 2, 64, (100, 100), (100,)),
}


def cases() -> list[Case]:
    from tests.cuda.test_programs import BUGS

    correct = sorted(path.stem for path in PROGRAMS.glob("*.cu") if path.stem not in SKIPPED)
    return [
        *(Case(f"planted/{name}", partial(compare_planted, name, *bug), 150) for name, bug in BUGS.items()),
        *(Case(f"lab/{name}", partial(compare_lab_kernel, name), 200) for name in BROKEN),
        *(Case(f"correct/{name}", partial(sanitize_correct, name), 150) for name in correct),
    ]


def compare_planted(name: str, kind: str, text: str) -> dict[str, Any]:
    """Compare the findings of ``check`` on a program with a planted bug with those of compute-sanitizer."""
    from mlsys_labkit.cuda import run_program

    kit_on_gpu()
    path = PROGRAMS / "buggy" / f"{name}.cu"
    line = next(at for at, source in enumerate(path.read_text().splitlines(), 1) if text in source)
    theirs = _program(path)
    mine = [[each.kind, each.line] for each in run_program(path, check=True).findings][:6]
    caught = any(found["errors"] for found in theirs.values())
    return {"ok": None if kind in BEYOND else caught, "kind": kind, "line": line, "check": mine, **theirs}


def compare_lab_kernel(name: str) -> dict[str, Any]:
    """Compare the findings of ``check`` on a broken kernel of a lab with those of compute-sanitizer."""
    kit_on_gpu()
    kernel, (grid, block), arguments = broken(name, "simulator")
    mine = [[each.kind, each.line] for each in kernel.check[grid, block](*arguments)][:6]
    code = f"from benchmarks.gpu.steps.sanitizer import launch_broken; launch_broken({name!r})"
    theirs = {each: sanitized(each, [sys.executable, "-c", code]) for each in (*TOOLS, "synccheck")}
    caught = any(found["errors"] for found in theirs.values())
    return {"ok": None if mine and mine[0][0] in BEYOND else caught, "check": mine, **theirs}


def sanitize_correct(name: str) -> dict[str, Any]:
    """Run a correct program under compute-sanitizer, which has to find nothing."""
    kit_on_gpu()
    theirs = _program(PROGRAMS / f"{name}.cu")
    return {"ok": None if name in PROVOKED else all(found["errors"] == 0 for found in theirs.values()), **theirs}


def broken(name: str, backend: str) -> tuple[Any, tuple[int, int], tuple[Any, ...]]:
    """Return a broken kernel of a lab, its launch and its arguments."""
    import numpy as np

    from benchmarks.gpu.cells import lab_kernels

    lab, grid, block, arrays, numbers = BROKEN[name]
    rng = np.random.default_rng(0)  # distinct numbers: to racecheck, a write of the value that is there is no hazard
    arguments = (*(rng.standard_normal(size, dtype=np.float32) for size in arrays), *numbers)
    return lab_kernels(lab, backend, only=name)[name], (grid, block), arguments


def launch_broken(name: str) -> None:
    kernel, (grid, block), arguments = broken(name, "gpu")
    kernel[grid, block](*arguments)


def _program(path: Path) -> dict[str, dict[str, Any]]:
    """Build a program with nvcc for this GPU and run it under each tool."""
    nvcc = tool("nvcc")
    tool("compute-sanitizer")
    with TemporaryDirectory() as folder:
        target = Path(folder, path.stem)
        options = ["-O1", "-lineinfo", "-arch=native", f"-I{PROGRAMS}", "-o", str(target), str(path)]
        built = subprocess.run([nvcc, *options], capture_output=True, text=True)
        if built.returncode:
            raise RuntimeError(f"nvcc: {built.stderr.strip()[-300:]}")
        return {each: sanitized(each, [str(target)]) for each in TOOLS}


def sanitized(name: str, command: list[str], seconds: float = 60.0) -> dict[str, Any]:
    """Run a command under one tool of compute-sanitizer and return what it reported."""
    options = ["--padding", "512"] if name == "memcheck" else []
    words = [tool("compute-sanitizer"), "--tool", name, *options, "--print-limit", "5", *command]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=seconds, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return {"errors": None, "said": f"still running after {seconds:g} s"}
    return read_report(ran.stdout + ran.stderr)


def read_report(text: str) -> dict[str, Any]:
    """Return errors, kinds and lines of a report of compute-sanitizer; ``errors`` is None where it states no sum."""
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)
    kinds = re.findall(
        r"=+\s+(Invalid .{0,50}|Race reported .{0,60}|(?:Error|Warning): Race.{0,60}|Barrier error.{0,50})", text
    )
    lines = {int(line) for line in re.findall(r"\.cu:(\d+)", text)}
    found = {"errors": int(summary[1]) if summary else None, "kinds": sorted({*kinds})[:4], "lines": sorted(lines)[:8]}
    return found | ({} if summary else {"said": text.strip()[-300:]})
