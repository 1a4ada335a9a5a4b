"""``Profile``: the counters of a launch as ``kernel.profile`` returns them, printed as a table."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit.cuda.counters import Counters
from mlsys_labkit.cuda.report import html_report, text_report


@dataclass(frozen=True)
class Profile(Counters):
    """Counters of one launch, by a source-level model of an NVIDIA GPU: nothing in it was measured on one.

    Lanes of a warp run in lockstep, one basic block at a time. Every access of the source counts, as the compiler for
    the CPU left it: a GPU compiler may merge neighbouring ones. No cache is modelled: loads by ``__ldg`` or of a
    ``const __restrict__`` pointer are loads from global memory, which take the same path on a GPU.

    Attributes:
        kernel, source, grid, block, shared_bytes: what was launched.
        lines: the counts, by line. samples: a few requests of each line.
        barriers: block-wide barriers, summed over blocks. warp_barriers: those of warps.
        bulk_copies: bulk copies (TMA) that were started. bulk_bytes_in_flight: the most bytes that were being copied
            into one block's shared memory and that no thread had waited for.
        steps, active_lanes: basic blocks that warps executed, and lanes that were active in them.
        blocks_run, blocks_total: fewer were run than the grid has when the profile was sampled. Nothing is scaled up.
        flops: floating-point operations: an FMA is two, a math function one.
        instructions: FLOPs by kind ("float16", "float32", "float64", "math function", "tensor") and lanes' accesses to
            memory ("global load", "shared store", ...).
        bytes_read, bytes_written: distinct bytes of global memory.
        seconds: the simulator took; it says nothing about a GPU.
        gpu, gpu_seconds: the GPU that ran the same launch as a whole, and its time by events, without the host's work;
            empty and None where it was not measured. It is one launch, whose arrays may be in the L2 cache, because
            they were copied just before; ``lk.bench`` times many with a cold cache.

    In Nsight Compute: requests and sectors are ``l1tex__t_requests_pipe_lsu_mem_global_op_ld`` and
    ``l1tex__t_sectors_pipe_lsu_mem_global_op_ld`` (``local`` for local memory, ``st`` for stores), wavefronts of shared
    memory ``l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld``. A load of a constant at an index that is known when
    compiling is part of an arithmetic instruction there and counts here.

    Reference: NVIDIA, "Nsight Compute Documentation", Kernel Profiling Guide, for requests, sectors and wavefronts.
    """

    def __str__(self) -> str:
        return text_report(self)

    def _repr_html_(self) -> str:
        return html_report(self)
