"""``trace`` and ``tracing``: interpretation of a Triton kernel without a GPU, with a record of every access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mlsys_labkit.triton_trace.count import counts
from mlsys_labkit.triton_trace.count.findings import findings
from mlsys_labkit.triton_trace.count.log import AccessLog
from mlsys_labkit.triton_trace.errors import TritonArgumentError
from mlsys_labkit.triton_trace.faults import note_faults
from mlsys_labkit.triton_trace.launch.client import LaunchOutcome, Order
from mlsys_labkit.triton_trace.launch.gpu import LaunchArguments, gpu_name, timed
from mlsys_labkit.triton_trace.launch.launcher import TritonLauncher, launching
from mlsys_labkit.triton_trace.report import LaunchTrace
from mlsys_labkit.triton_trace.rules import check_rules
from mlsys_labkit.triton_trace.source import KernelSource
from mlsys_labkit.work import Work

_SMALL_BYTES = 64 << 20  # half a minute or so of interpreting
Reduced = tuple[Any, tuple[Any, ...], dict[str, Any]]
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


class trace:
    """``trace(kernel)[grid](*arguments)`` runs a launch and returns its LaunchTrace; arrays are written as in any
    launch.

    Args:
        kernel: a ``@triton.jit`` function. Its source is checked first and may use ``tl`` and plain control flow only.
        order: of the programs: "ascending", "reversed", or a seed to shuffle by; a GPU guarantees no order.
        timeout_s: of the interpreted launch, in seconds.
        reduced: (grid, arguments, constants) of a smaller launch, for tensors on a GPU.

    With tensors on a GPU, counts and findings come from interpreting copies of the arguments, or ``reduced``, which is
    required above 64 MiB of arguments; the LaunchTrace names the one used. Then the launch runs compiled on the GPU and
    is timed, unless the interpreter found an access outside the arrays: the tensors then stay as they are.

    Raises RefusedSourceError before anything runs, TritonKernelError with line and program when the kernel fails,
    TritonWorkerError when it takes too long. An access outside the arrays is not performed and becomes a finding.
    Findings describe this launch: an offset of int8 or int16 that overflows only with larger arrays is none.

    Example:
        >>> import numpy as np, triton, triton.language as tl
        >>> @triton.jit
        ... def twice(x, out, n, BLOCK: tl.constexpr):
        ...     i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        ...     tl.store(out + i, 2 * tl.load(x + i), mask=i < n)
        >>> traced = trace(twice)[(2,)](np.ones(100, np.float32), np.zeros(100, np.float32), 100, BLOCK=64)
        >>> traced.arrays["x"].loaded_bytes, traced.arrays["out"].stored_bytes
        (400, 400)
        >>> print(traced.findings[0].message)
        program (1, 0, 0) reads x[100], and x has 100 elements (28 such accesses; give it a mask)

    Reference: Triton documentation, "Debugging Triton"; P. Tillet et al., "Triton", MAPL 2019.
    """

    def __init__(
        self, kernel: Any, *, order: Order = "ascending", timeout_s: float = 120.0, reduced: Reduced | None = None
    ) -> None:
        self._kernel = kernel
        self._options: dict[str, Any] = {
            "recorder": "count.counting:CountingRecorder",
            "order": order,
            "timeout_s": timeout_s,
        }
        self._launcher = TritonLauncher(kernel, **self._options)
        self._reduced = reduced

    def __getitem__(self, grid: Any) -> Callable[..., LaunchTrace]:
        def launch(*args: Any, **kwargs: Any) -> LaunchTrace:
            arguments = LaunchArguments(args, kwargs)
            if arguments.on_gpu:
                return self._beside_gpu(grid, arguments)
            traced = _trace(self._launcher.source, self._launcher.launch(grid, args, kwargs))
            names = [one.name for one in self._launcher.source.entry.parameters]
            note_faults(traced, {**dict(zip(names, args, strict=False)), **kwargs})
            return traced

        return launch

    def _beside_gpu(self, grid: Any, given: LaunchArguments) -> LaunchTrace:
        """Interpret copies of the arguments, then time the compiled launch.

        In this order, because an access outside the arrays ends the GPU's context, with every tensor of the process.
        """
        check_rules(self._launcher.source)
        if self._reduced is None and given.bytes > _SMALL_BYTES:
            raise TritonArgumentError(
                f"{given.bytes / 2**20:.0f} MiB of arguments are too many to interpret (at most "
                f"{_SMALL_BYTES >> 20} MiB); give trace(kernel, reduced=(grid, arguments, constants)) a smaller launch"
            )
        small_grid, args, kwargs = self._reduced or (grid, given.args, given.kwargs)
        given_small = LaunchArguments(tuple(args), dict(kwargs))
        traced = self._interpreted(small_grid, given_small)
        if traced.log.strays:
            return replace(traced, gpu=gpu_name(), reduced=self._reduced is not None)
        before, config = given_small.on_cpu(), self._config
        gpu, seconds = timed(self._kernel, grid, given)
        if self._config is not config:  # @triton.autotune has chosen another one meanwhile
            traced = self._interpreted(small_grid, before)
        work = traced.work if self._reduced else traced.work.with_seconds(seconds)
        return replace(traced, gpu=gpu, seconds=seconds, reduced=self._reduced is not None, work=work)

    @property
    def _config(self) -> Any:
        return getattr(self._kernel, "best_config", None)

    def _interpreted(self, grid: Any, arguments: LaunchArguments) -> LaunchTrace:
        copies = arguments.on_cpu()
        launcher = TritonLauncher(self._kernel, config=self._config, **self._options)
        return _trace(launcher.source, launcher.launch(grid, copies.args, copies.kwargs))


@contextmanager
def tracing() -> Iterator[list[LaunchTrace]]:
    """Collect the LaunchTrace of every ``kernel[grid](...)`` inside, in this thread: those of your own functions too.

    Raises what the launches raise.

    Example:
        >>> import numpy as np, triton, triton.language as tl
        >>> @triton.jit
        ... def fill(x, BLOCK: tl.constexpr):
        ...     tl.store(x + tl.arange(0, BLOCK), 1.0)
        >>> def ones(n):
        ...     x = np.empty(n, np.float32)
        ...     fill[(1,)](x, BLOCK=n)
        ...     return x
        >>> with tracing() as traces:
        ...     x = ones(32)
        >>> x.sum(), traces[0].arrays["x"].stored_bytes
        (np.float32(32.0), 128)

    Reference: Triton documentation, "Debugging Triton".
    """
    found: list[LaunchTrace] = []
    with launching(lambda kernel, grid, args, kwargs: found.append(trace(kernel)[grid](*args, **kwargs))):
        yield found


def _trace(source: KernelSource, outcome: LaunchOutcome) -> LaunchTrace:
    log = AccessLog.of(outcome)
    dots: Counter[str] = Counter()
    for _, m, n, k, dtype, times in log.dots:
        dots[_DTYPES.get(dtype, "float32")] += 2 * m * n * k * times
    flops = dots + Counter({_DTYPES[dtype]: operations for dtype, operations in log.operations.items()})
    lines = counts.accesses(log)
    read, written = (
        sum(one.bytes_requested for one in lines if one.kind in kinds)
        for kinds in (("load", "atomic"), ("store", "atomic"))
    )
    return LaunchTrace(
        kernel=log.kernel,
        source=source,
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
        dot_flops=sum(dots.values()),
        findings=findings(log, source),
        log=log,
        output=outcome.output,
    )
