"""``trace`` and ``tracing``: run a Triton kernel without a GPU and see every access that it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mlsys_labkit.triton_trace import counts
from mlsys_labkit.triton_trace.client import Order
from mlsys_labkit.triton_trace.counts import Access, ArrayTraffic
from mlsys_labkit.triton_trace.finding import Finding
from mlsys_labkit.triton_trace.findings import findings
from mlsys_labkit.triton_trace.launch import Launched, Launcher, recording
from mlsys_labkit.triton_trace.log import Log
from mlsys_labkit.triton_trace.recorder import Program
from mlsys_labkit.triton_trace.source import KernelSource
from mlsys_labkit.work import Work

__all__ = ["Trace", "trace", "tracing"]

_RECORDER = "counting:CountingRecorder"
_DTYPES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8e4nv": "float8",
    "fp8e5": "float8",
    "int8": "int8",
    "uint8": "uint8",
}


@dataclass(frozen=True)
class Trace:
    """What one launch did, counted over all its programs. No GPU ran unless ``seconds`` says so.

    Attributes:
        kernel, grid, programs: what was launched. source: its text.
        work: FLOPs, and the bytes that the programs ask for: masked-off lanes excluded, nothing kept between accesses.
        accesses: one for each source line, array and kind. arrays: parameter name -> what was asked of it.
        dot_flops: of ``tl.dot``, two a multiply-add, whole blocks with what pads them.
        findings: what is wrong or slow; see finding.Finding.
        output: what the kernel printed.
        seconds: a launch took on ``gpu``, by events; None where no GPU ran it.
        log: every access.
    """

    kernel: str
    source: KernelSource = field(repr=False)
    grid: Program
    programs: int
    work: Work
    accesses: tuple[Access, ...] = field(repr=False)
    arrays: Mapping[str, ArrayTraffic] = field(repr=False)
    dot_flops: int
    findings: tuple[Finding, ...]
    log: Log = field(repr=False, compare=False)
    output: str = field(default="", repr=False)
    gpu: str = ""
    seconds: float | None = None


class trace:
    """``trace(kernel)[grid](*arguments)`` runs a launch and returns its Trace; arrays are written as in any launch.

    Args:
        kernel: a ``@triton.jit`` function. Its source is checked first and may use ``tl`` and plain control flow only.
        order: of the programs: "ascending", "reversed", or a seed to shuffle by; a GPU promises none.
        timeout_s: of the launch, in seconds.

    Raises RefusedSourceError before anything runs, KernelError with line and program when the kernel fails, WorkerError
    when it takes too long. An access outside the arrays is not performed and becomes a finding.
    """

    def __init__(self, kernel: Any, *, order: Order = "ascending", timeout_s: float = 120.0) -> None:
        self._launcher = Launcher(kernel, recorder=_RECORDER, order=order, timeout_s=timeout_s)

    def __getitem__(self, grid: Any) -> Callable[..., Trace]:
        return lambda *args, **kwargs: _trace(self._launcher.launch(grid, args, kwargs))


@contextmanager
def tracing() -> Iterator[list[Trace]]:
    """Collect the Trace of every ``kernel[grid](...)`` inside, in order: those of your own functions too."""
    found: list[Trace] = []
    with recording(_RECORDER, {}, lambda launched: found.append(_trace(launched))):
        yield found


def _trace(launched: Launched) -> Trace:
    log = Log.of(launched.outcome)
    flops: Counter[str] = Counter()
    for _, m, n, k, dtype, times in log.dots:
        flops[_DTYPES.get(dtype, "float32")] += 2 * m * n * k * times
    lines = counts.accesses(log)
    read, written = (
        sum(one.bytes_requested for one in lines if one.kind in kinds)
        for kinds in (("load", "atomic"), ("store", "atomic"))
    )
    return Trace(
        kernel=log.kernel,
        source=launched.source,
        grid=log.grid,
        programs=log.programs,
        work=Work(
            flops=sum(flops.values()),
            bytes_read=read,
            bytes_written=written,
            dtype=max(flops, key=lambda name: flops[name], default="float32"),
            name=log.kernel,
            how=dict.fromkeys(("flops", "bytes_read", "bytes_written"), "counted"),
        ),
        accesses=lines,
        arrays=counts.arrays(log),
        dot_flops=sum(flops.values()),
        findings=findings(log, launched.source),
        log=log,
        output=launched.outcome.output,
    )
