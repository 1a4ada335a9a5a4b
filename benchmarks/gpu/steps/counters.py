"""Step ``counters``: the simulator's counters beside the hardware's, the same launches under Nsight Compute."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.cases import ROOT, Case, kit_on_gpu, tool

METRICS = {
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "local_load_requests": "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    "local_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "local_store_requests": "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
    "local_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    "shared_load_requests": "smsp__inst_executed_op_shared_ld.sum",
    "shared_store_requests": "smsp__inst_executed_op_shared_st.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "lanes_per_instruction": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "dram_bytes_read": "dram__bytes_read.sum",
    "registers": "launch__registers_per_thread",
}
COUNTED = ("global_", "shared_")  # the model counts these exactly; the others are shown beside each other
# Differences that the machine code for sm_90 explains: written before the first run on a GPU.
EXPLAINED = {
    "alternate_slow": (("global_load",), "ptxas joins the loads of both branches: 16 where the source has 32"),
    "matmul_tiled": (
        ("shared_load",),
        "four of a tile's loads are one LDS.128: 4 LDS.128 and 16 LDS where the source has 32",
    ),
    "matmul_registers": (("shared_load",), "neighbouring loads are one LDS.128"),
}


def cases() -> list[Case]:
    return [Case(name, partial(compare_counters, name), 200) for name in launches()]


def launches() -> dict[str, tuple[str, str, Any, Any]]:
    """Return the launches of the labs' own traffic tests by name: lab, kernel, grid and block."""
    return {
        "vector_add": ("lab03", "vector_add", 4, 256),
        "saxpy": ("lab03", "saxpy", 2, 128),
        "matmul_naive": ("lab03", "matmul_naive", (64, 2), (1, 32)),
        "matmul_coalesced": ("lab03", "matmul_coalesced", (2, 8), 256),
        "matmul_coalesced, 256": ("lab03", "matmul_coalesced", (8, 32), 256),
        "alternate_slow": ("lab03", "alternate_slow", 2, 256),
        "alternate": ("lab03", "alternate", 2, 256),
        "stencil": ("lab03", "stencil", (4, 4), (32, 8)),
        "matmul_tiled": ("lab04", "matmul_tiled", (4, 4), (16, 16)),
        "matmul_registers": ("lab04", "matmul_registers", (4, 4), (16, 16)),
        "transpose_tiled": ("lab04", "transpose_tiled", (2, 2), (32, 8)),
        "block_sum": ("lab04", "block_sum", 4, 256),
        "shuffle_sum": ("lab04", "shuffle_sum", 4, 256),
        "differences": ("lab04", "differences", 2, 128),
    }


def arguments(name: str) -> tuple[Any, ...]:
    """Return the arguments of a launch."""
    import numpy as np

    rng = np.random.default_rng(0)

    def f(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32)

    def square(n: int) -> tuple[Any, ...]:
        return f(n, n), f(n, n), f(n, n), n, n, n

    return {
        "vector_add": lambda: (f(1024), f(1024), f(1024), 1024),
        "saxpy": lambda: (4096, 2.0, f(4096), f(4096)),
        "matmul_coalesced, 256": lambda: square(256),
        "matmul_registers": lambda: square(256),
        "alternate_slow": lambda: (f(512) ** 2, f(512), 512),
        "alternate": lambda: (f(512) ** 2, f(512), 512),
        "stencil": lambda: (f(32, 128), f(32, 128), 32, 128),
        "transpose_tiled": lambda: (f(64, 64), f(64, 64), 64, 64),
        "block_sum": lambda: (f(2048), f(4), 2048),
        "shuffle_sum": lambda: (f(2048), f(4), 2048),
        "differences": lambda: (f(1024), f(1024), 8),
    }.get(name, lambda: square(64))()


@cache
def kernels(lab: str, backend: str) -> dict[str, Any]:
    from benchmarks.gpu.cells import lab_kernels

    return lab_kernels(lab, backend)


def launch_all() -> None:
    """Launch each once, in order: what runs under Nsight Compute."""
    for name, (lab, kernel, grid, block) in launches().items():
        kernels(lab, "gpu")[kernel][grid, block](*arguments(name))


@cache
def measured() -> tuple[Mapping[str, str], ...]:
    """Return Nsight Compute's figures of all launches, in order. The GPU's clocks are left as they are."""
    with TemporaryDirectory() as folder:
        log = Path(folder, "ncu.csv")
        command = [
            tool("ncu"), "--clock-control", "none", "--target-processes", "all", "--page", "raw", "--csv",
            "--kernel-name", "regex:^(?!probe).*", "--metrics", ",".join(METRICS.values()), "--log-file", str(log),
            sys.executable, "-c", "from benchmarks.gpu.steps.counters import launch_all; launch_all()",
        ]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        text = log.read_text(errors="replace") if log.exists() else ""
    found = rows(text)
    if len(found) != len(launches()):
        said = (text if not found else "") + ran.stdout[-300:] + ran.stderr[-300:]
        raise RuntimeError(f"ncu saw {len(found)} of {len(launches())} launches: {' '.join(said.split())[-400:]}")
    return tuple(found)


def rows(text: str) -> list[dict[str, str]]:
    """Return the kernels of ncu's raw page in CSV: names, units, then a line for each kernel."""
    lines = [*csv.reader(line for line in text.splitlines() if line.startswith('"'))]
    return [dict(zip(lines[0], one, strict=False)) for one in lines[2:]]


def compare_counters(name: str) -> dict[str, Any]:
    """Compare one launch; a difference that the machine code explains is no miss."""
    kit_on_gpu()
    tool("ncu")
    row = measured()[[*launches()].index(name)]
    lab, kernel, grid, block = launches()[name]
    profile = kernels(lab, "simulator")[kernel].profile[grid, block](*arguments(name))
    mine = {key: getattr(profile, key) for key in METRICS if hasattr(profile, key)}
    mine["lanes_per_instruction"] = 32 * profile.simt_efficiency
    return compared(name, mine, {key: number(row.get(metric, "")) for key, metric in METRICS.items()})


def compared(name: str, mine: Mapping[str, float], theirs: Mapping[str, float | None]) -> dict[str, Any]:
    """Return the figures that differ, as [simulator, GPU], with the explanation if there is one."""
    both = {key: [mine[key], theirs[key]] for key in mine if theirs.get(key) is not None}
    differ = [key for key, (a, b) in both.items() if key.startswith(COUNTED) and a != b]
    names, words = EXPLAINED.get(name, ((), ""))
    missed = [key for key in differ if not key.startswith(names or ("\0",))]
    counted = any(key.startswith(COUNTED) for key in both)
    alone = {key: value for key, value in theirs.items() if key not in mine and value is not None}
    found = {"differ": {key: both[key] for key in differ}, "explanation": words if differ and not missed else ""}
    return {"ok": counted and not missed, **found, "simulator_and_gpu": both, "gpu_alone": alone}


def number(text: str) -> float | None:
    """Return a figure of ncu, such as ``1,024``; None where it has none."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
