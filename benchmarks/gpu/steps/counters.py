"""Step ``counters``: the simulator's counters beside the hardware's, the same launches under Nsight Compute."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from benchmarks.gpu.cases import Case, NotMeasured, first_line, kit_on_gpu, tool
from benchmarks.gpu.launches import kernel_of, launches
from benchmarks.gpu.ncu import measure, number

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
# The bar: requests and sectors of these. Wavefronts are judged beside it, the others are only shown.
COUNTED = re.compile(r"(global|shared)_\w+_(requests|sectors)")
WAVEFRONTS = re.compile(r"shared_\w+_wavefronts")
TOLERANCE = 0.02
LEAST_KERNELS, LEAST_WITHIN = 40, 0.9  # kernels that must be measured, and the share of them within the tolerance
_BULK = "copies in are UBLKCP, which pass the load and store units by; barriers begin by SYNCS.EXCH, the model's stores"
# Differences that the machine code for sm_90 explains: written before the first run on a GPU.
EXPLAINED = {
    "alternate_slow": (("global_load",), "ptxas joins the loads of both branches: 16 where the source has 32"),
    "matmul_tiled": (
        ("shared_load",),
        "four of a tile's loads are one LDS.128: 4 LDS.128 and 16 LDS where the source has 32",
    ),
    **dict.fromkeys(
        (
            "matmul_registers",
            "matrix/tiled_matmul",
            "matrix/submatrix_matmul",
            "matrix/sgemm_1d<32, 32, 8, 4>",
            "matrix/sgemm_2d_vectorized<32, 32, 8, 4, 4>",
            "neural/attention_row<16>",
        ),
        (("shared_load",), "neighbouring loads are one LDS.128"),
    ),
    "matmul_pipelined": (
        ("global_load", "shared_"),
        "copies are LDGSTS, which the load and store units count apart; before a group stand three @!PT LDS",
    ),
    "irregular/odd_even_sort_block": (("shared_",), "two neighbours are one LDS.64 and one STS.64"),
    "irregular/spmv_csr_scalar": (
        ("global_load",),
        "the loop is unrolled, 89 LDG where the source has 5 loads: lanes with longer rows are in other copies of it",
    ),
    "flash_wmma": (
        ("global_load", "shared_"),
        "copies are LDGSTS, which the load and store units count apart; fragments are loaded by LDSM",
    ),
    "cluster_sum": (
        ("global_load", "shared_"),
        "the atomic add is a loop of LDS and ATOMS.CAST.SPIN; the memory of other blocks is read by LD",
    ),
    "scale_copies": (("global_", "shared_store"), f"{_BULK}; so do those out, and no thread stores to global memory"),
    **dict.fromkeys(
        ("reverse_tile", "reverse_two", "reverse_ring", "specialised", "sums", "join"),
        (("global_load", "shared_store"), _BULK),
    ),
}


def cases() -> list[Case]:
    compared_cases = [Case(name, partial(compare_counters, name), 200) for name in launches()]
    return [*compared_cases, Case("total", total, 200)]


@cache
def compare_counters(name: str) -> dict[str, Any]:
    """Compare one launch; a difference that the machine code explains is no miss."""
    kit_on_gpu()
    tool("ncu")
    launch = launches()[name]
    row = measure(launch.group, tuple(METRICS.values())).row(name)
    profile = kernel_of(name, "simulator").profile[launch.shape](*launch.make())
    mine = {key: getattr(profile, key) for key in METRICS if hasattr(profile, key)}
    mine["lanes_per_instruction"] = 32 * profile.simt_efficiency
    found = compared(name, mine, {key: number(row.get(metric, "")) for key, metric in METRICS.items()})
    return found if found["verdict"] in ("equal", "within 2 %") else explained_by_code(found, sass(name))


def compared(name: str, mine: Mapping[str, float], theirs: Mapping[str, float | None]) -> dict[str, Any]:
    """Return the figures that differ, as [simulator, GPU], with the explanation if there is one.

    ``verdict`` is ``equal``, ``within 2 %``, ``explained``, ``missed``, or ``no figures`` where ncu had none.
    """
    both = {key: [mine[key], figure] for key, figure in theirs.items() if key in mine and figure is not None}
    counted = {key: pair for key, pair in both.items() if COUNTED.fullmatch(key)}
    differ = {key: pair for key, pair in counted.items() if pair[0] != pair[1]}
    far = [key for key, pair in differ.items() if not near(*pair)]
    starts, words = EXPLAINED.get(name, ((), ""))
    missed = [key for key in far if not key.startswith(starts or ("\0",))]
    verdict = "missed" if missed else "explained" if far else "within 2 %" if differ else "equal"
    waves = {key: pair for key, pair in both.items() if WAVEFRONTS.fullmatch(key) and pair[0] != pair[1]}
    return {
        "ok": bool(counted) and not missed,
        "verdict": verdict if counted else "no figures",
        "differ": differ,
        "missed": missed,
        "explanation": words if verdict == "explained" else "",
        "wavefronts": {"ok": all(near(*pair) for pair in waves.values()), "differ": waves},
        "simulator_and_gpu": both,
        "gpu_alone": {key: value for key, value in theirs.items() if key not in mine and value is not None},
    }


def explained_by_code(found: Mapping[str, Any], code: Mapping[str, Any]) -> dict[str, Any]:
    """Add the machine code, and its explanation where every miss comes of predicates.

    A warp whose lanes are all off executes ``@P0 LDS``, which ncu may count, and asks shared memory for nothing: then
    there are more instructions than the model has requests, and as many wavefronts.
    """
    both, missed = found["simulator_and_gpu"], found["missed"]

    def executed_only(key: str) -> bool:
        opcode = {"shared_load_requests": "@LDS", "shared_store_requests": "@STS"}.get(key)
        if opcode is None or not any(each.startswith(opcode) for each in code):
            return False
        mine, theirs = both[key]
        waves = both.get(key.replace("requests", "wavefronts"))
        return theirs > mine and waves is not None and near(*waves)

    if not missed or not all(executed_only(key) for key in missed):
        return {**found, "sass": code}
    words = "ncu counts instructions whose predicate holds in no lane: the wavefronts agree"
    return {**found, "ok": True, "verdict": "explained", "explanation": words, "sass": code}


def near(mine: float, theirs: float) -> bool:
    return abs(mine - theirs) <= TOLERANCE * abs(theirs)


def total() -> dict[str, Any]:
    """Sum up the verdicts of all launches. The bar: 40 measured, nine of ten within 2 %, every miss explained."""
    kit_on_gpu()
    tool("ncu")
    verdicts: dict[str, list[str]] = {}
    for name in launches():
        try:
            verdict = str(compare_counters(name)["verdict"])
        except NotMeasured:
            raise
        except Exception as error:  # its own case tells all of it
            verdict = f"not measured: {first_line(error)}"
        verdicts.setdefault(verdict, []).append(name)
    return summed(verdicts)


def summed(verdicts: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the numbers of kernels by verdict, the names of those that are not near, and whether the bar is met."""
    count = {verdict: len(names) for verdict, names in verdicts.items()}
    exact, explained, missed = (count.get(verdict, 0) for verdict in ("equal", "explained", "missed"))
    within = exact + count.get("within 2 %", 0)
    measured = within + explained + missed
    return {
        "ok": measured >= LEAST_KERNELS and within >= LEAST_WITHIN * measured and not missed,
        "measured": measured,
        "exact": exact,
        "within_2_percent": within,
        "share_within": within / measured if measured else 0.0,
        "explained": explained,
        "missed": missed,
        "others": {verdict: names for verdict, names in verdicts.items() if verdict not in ("equal", "within 2 %")},
    }


# --- Machine code ----------------------------------------------------------------------------------------------------

_OPCODE = re.compile(
    r"^\s*/\*[0-9a-f]+\*/\s+(?:\{\s*)?(@!?\w+\s+)?"
    r"((?:LD|ST|LDG|STG|LDS|STS|LDL|STL|LDSM|STSM|LDGSTS|ATOM|ATOMG|ATOMS|RED|REDG|UBLKCP|SYNCS)(?:\.\w+)*)\b",
    re.MULTILINE,
)
_WIDTHS = {"U8", "S8", "U16", "S16", "64", "128"}


def sass(name: str) -> dict[str, Any]:
    """Return how often each memory instruction stands in the kernel's machine code: ``{"LDS.128": 4}``."""
    try:
        from mlsys_labkit.cuda.nvidia.ptxas import disassemble

        kernel = kernel_of(name, "gpu")
        compiled = kernel._backend._kernel(kernel._index)
        return dict(opcodes(disassemble(compiled.cubin, compiled.symbol)))
    except Exception as error:
        return {"error": first_line(error)}


def opcodes(listing: str) -> Counter[str]:
    """Count the memory instructions of a listing, each with its width: ``LDG.E.128.CONSTANT`` is ``LDG.128``.

    ``@LDS`` has a predicate: a warp executes it, and ncu counts it, also where the predicate holds in no lane.
    """
    found: Counter[str] = Counter()
    for predicate, opcode in _OPCODE.findall(listing):
        first, *rest = opcode.split(".")
        found["@" * bool(predicate) + ".".join([first, *(part for part in rest if part in _WIDTHS)])] += 1
    return found
