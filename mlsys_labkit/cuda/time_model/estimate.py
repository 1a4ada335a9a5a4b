"""The time of a launch on a GPU, part by part, from counters, occupancy and latency."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlsys_labkit.cuda.counters import SECTOR_BYTES, Counters
from mlsys_labkit.cuda.errors import CudaLaunchError
from mlsys_labkit.cuda.nvidia.occupancy import WARP_THREADS, Occupancy, occupancy
from mlsys_labkit.cuda.time_model.gpus import ModelledGpu, fitted_overlap, published_errors
from mlsys_labkit.cuda.time_model.machine_code import Executed
from mlsys_labkit.cuda.time_model.requests import request_cycles
from mlsys_labkit.cuda.time_model.time_estimate import WITHIN_SM, TimeEstimate


@dataclass(frozen=True)
class CountedLaunch:
    """One launch as the model sees it.

    Attributes:
        counters: of the launch, all blocks or a sample.
        block_bytes: distinct bytes that one block reads and writes in global memory.
        array_bytes: of all arguments together.
        registers: per thread; 0 when they are not known. shared_bytes: per block, static and dynamic.
        executed: instructions of the blocks that were counted. compiled: they and the registers are from machine code.
        assumptions: what was assumed when this was put together.
    """

    counters: Counters
    block_bytes: float
    array_bytes: float
    registers: int
    shared_bytes: int
    executed: Executed
    compiled: bool = True
    assumptions: tuple[str, ...] = ()


def estimate(launch: CountedLaunch, gpu: ModelledGpu, *, overlap: float | None = None) -> TimeEstimate:
    """Estimate the time of a launch: a roofline over L2 and DRAM, and inside the SMs the parts that overlap in part.

    Inside an SM the seconds of arithmetic, load-store unit and latency overlap in part: their powers add up, and the
    exponent (``overlap``) is the only fitted constant. With 2, they would add up as the sides of a right angle do.

    Raises CudaLaunchError when a block does not fit on an SM of this GPU.

    References: Williams, Waterman, Patterson, "Roofline" (CACM 2009); Little, "A Proof for the Queuing Formula
    L = lambda W" (1961); Volkov, "Understanding Latency Hiding on GPUs" (2016).
    """
    counters, power = launch.counters, overlap or fitted_overlap()
    resident = _resident(launch, gpu)
    blocks = counters.blocks_total or math.prod(counters.grid)
    scale = blocks / (counters.blocks_run or blocks)
    busiest = math.ceil(blocks / gpu.spec.sms) / blocks  # the share of the work that the busiest SM does
    per_sm = scale * busiest / gpu.spec.clock_hz
    arithmetic = {name: cycles * per_sm for name, cycles in _arithmetic(launch, gpu).items()}
    l2_bytes = _l2_bytes(launch, blocks)
    dram_bytes = _dram_bytes(launch, l2_bytes, min(blocks, resident.blocks_per_sm * gpu.spec.sms), gpu)
    rounds = math.ceil(blocks / (resident.blocks_per_sm * gpu.spec.sms))
    parts = {
        "arithmetic": max(arithmetic.values(), default=0.0) + _tensor_seconds(launch, gpu) * scale,
        "load-store unit": _load_store_cycles(launch, gpu) * per_sm,
        "latency": rounds * _chain(launch, gpu, l2_bytes, dram_bytes) / gpu.spec.clock_hz,
        "L2 cache": l2_bytes / gpu.l2_bandwidth,
        "DRAM": dram_bytes / gpu.dram_bandwidth,
    }
    inside = sum(parts[name] ** power for name in WITHIN_SM) ** (1 / power)
    return TimeEstimate(
        kernel=counters.kernel,
        gpu=gpu.spec.key,
        gpu_name=gpu.spec.name,
        seconds=max(inside, parts["L2 cache"], parts["DRAM"]),
        parts=parts,
        arithmetic=arithmetic,
        bound=max(parts, key=lambda name: parts[name]),
        occupancy=resident,
        waves=blocks / (resident.blocks_per_sm * gpu.spec.sms),
        tail=busiest * gpu.spec.sms,
        l2_bytes=l2_bytes,
        dram_bytes=dram_bytes,
        assumptions=launch.assumptions,
        errors=published_errors(launch.compiled),
    )


def _resident(launch: CountedLaunch, gpu: ModelledGpu) -> Occupancy:
    threads = math.prod(launch.counters.block)
    resident = occupancy(gpu.arch, threads, launch.registers, launch.shared_bytes)
    if not resident.blocks_per_sm:
        raise CudaLaunchError(f"no time to estimate on {gpu.spec.name}: {resident}")
    return resident


def _arithmetic(launch: CountedLaunch, gpu: ModelledGpu) -> dict[str, float]:
    """Return cycles of each pipe on one SM, for the work of all blocks that were counted."""
    lanes = {
        "float32": gpu.float32_lanes,
        "float64": gpu.float64_lanes,
        "math function": gpu.math_function_lanes,
        "integer": gpu.integer_lanes,
    }
    cycles = {name: number * WARP_THREADS / lanes[name] for name, number in launch.executed.pipes.items() if number}
    return {"issue slots": launch.executed.slots / gpu.issue_per_clock, **cycles}


def _tensor_seconds(launch: CountedLaunch, gpu: ModelledGpu) -> float:
    flops = launch.counters.instructions.get("tensor", 0)
    return flops / gpu.spec.peak("float16") if flops else 0.0


def _load_store_cycles(launch: CountedLaunch, gpu: ModelledGpu) -> float:
    executed = launch.executed
    return sum(
        number * request_cycles(access, launch.counters, executed.widths.get(access, 0.0), gpu)
        for access, number in executed.requests.items()
        if access[0] in ("global", "shared")
    )


def _l2_bytes(launch: CountedLaunch, blocks: int) -> float:
    """Return bytes between the L1 caches and L2: what a block touches crosses once, and stays in L1 for its reuse."""
    counters = launch.counters
    asked = SECTOR_BYTES * counters.total("global", None, "sectors") / (counters.blocks_run or blocks)
    return min(launch.block_bytes, asked) * blocks


def _dram_bytes(launch: CountedLaunch, l2_bytes: float, resident: int, gpu: ModelledGpu) -> float:
    """Return bytes to DRAM: each byte once if all fit in L2; else the reuse of blocks that run at the same time.

    If n blocks run at the same time and share data, as tiles of a matrix product do, each byte is assumed to serve the
    square root of n of them.
    """
    counters = launch.counters
    distinct = float(counters.bytes_read + counters.bytes_written)
    if counters.sampled:
        distinct = min(launch.array_bytes or l2_bytes, l2_bytes)
    distinct = min(distinct, l2_bytes)
    if not distinct or distinct <= (gpu.spec.l2_bytes or 0):
        return distinct
    return max(distinct, l2_bytes / min(l2_bytes / distinct, math.sqrt(resident)))


def _chain(launch: CountedLaunch, gpu: ModelledGpu, l2_bytes: float, dram_bytes: float) -> float:
    """Return the cycles that a warp takes alone: its instructions, and the waits for memory and barriers.

    By Little's law, an SM is never faster than its resident warps divided by this time.
    """
    counters, executed = launch.counters, launch.executed
    blocks = counters.blocks_run or math.prod(counters.grid)
    warps = blocks * -(-math.prod(counters.block) // WARP_THREADS)
    asked = SECTOR_BYTES * counters.total("global", None, "sectors") / blocks
    from_l2 = 1.0 if counters.barriers else min(1.0, launch.block_bytes / asked) if asked else 0.0
    from_dram = from_l2 * dram_bytes / l2_bytes if l2_bytes else 0.0
    memory = gpu.l1_latency + from_l2 * (gpu.l2_latency - gpu.l1_latency)
    memory += from_dram * (gpu.dram_latency - gpu.l2_latency)
    waits = executed.waits.get("global", 0) * memory + executed.waits.get("shared", 0) * gpu.shared_latency
    return (executed.slots + waits) / warps + counters.barriers / blocks * gpu.barrier
