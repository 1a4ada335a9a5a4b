"""Cycles of the load-store unit that requests take, from the addresses of sampled requests."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from mlsys_labkit.cuda.counters import Counters, RequestSample
from mlsys_labkit.cuda.time_model.gpus import ModelledGpu
from mlsys_labkit.cuda.time_model.machine_code import Access

_BANKS = 32
_WORD_BYTES = 4
_LINE_BYTES = 128
_WIDEST = 16


def request_cycles(access: Access, counters: Counters, width: float, gpu: ModelledGpu) -> float:
    """Return the cycles that one request of an access takes in the load-store unit of an SM, on average.

    Args:
        access: space, operation and source line.
        counters: of the launch, with sampled requests.
        width: mean bytes per lane in the machine code: more than in the source if accesses were merged; 0: as there.

    A request takes a pass for each word that its busiest bank holds, of shared memory and of the L1 cache alike, and
    at least as long as the unit takes to address 32 lanes. A request to global memory also looks up each line.

    Reference: RRZE-HPC, gpu-benches, gpu-strides (2023), for banks and line look-ups of the L1 cache.
    """
    alike = [each for each in counters.samples if (each.space, each.op) == access[:2]]
    own = [each for each in alike if each.line == access[2]] or alike  # inlining may have moved the line
    if not own:
        return _addressing(gpu)
    cycles = []
    for each in own:
        narrow = max(_WORD_BYTES, min(each.bytes_per_lane, _WIDEST))
        wide = (width - narrow) / (_WIDEST - narrow) if width > narrow else 0.0  # this part of them moves 16 bytes
        cycles.append((1 - wide) * _cycles(each, narrow, gpu) + (wide and wide * _cycles(each, _WIDEST, gpu)))
    return fmean(cycles)


def passes(lanes: Sequence[int | None], width: int) -> int:
    """Return passes over 32 banks of 4 bytes that a request takes; lanes of the same word share a pass.

    Requests of 16 bytes per lane are served in halves of 16 lanes, so that 32 different ones take four passes and 32
    equal ones take two.

    Example:
        >>> passes([128 * lane for lane in range(32)], 4), passes([16 * lane for lane in range(32)], 16)
        (32, 4)
    """
    groups = [lanes[:16], lanes[16:]] if width == _WIDEST else [lanes]
    return sum(_busiest_bank(group, width) for group in groups)


def _busiest_bank(lanes: Sequence[int | None], width: int) -> int:
    words = {
        word
        for lane in lanes
        if lane is not None
        for word in range(lane // width * width // _WORD_BYTES, (lane // width * width + width - 1) // _WORD_BYTES + 1)
    }
    banks = [0] * _BANKS
    for word in words:
        banks[word % _BANKS] += 1
    return max(banks)


def _cycles(request: RequestSample, width: int, gpu: ModelledGpu) -> float:
    looked_up = 0.0
    if request.space == "global":
        lines = {lane // _LINE_BYTES for lane in request.lanes if lane is not None}
        looked_up = gpu.tag_base + gpu.tag_each * len(lines)
    return max(passes(request.lanes, width), looked_up, _addressing(gpu))


def _addressing(gpu: ModelledGpu) -> float:
    return _BANKS / gpu.load_store_lanes
