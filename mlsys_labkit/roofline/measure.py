"""Ceilings measured on this machine: STREAM over working sets that fit each memory level, a matrix product per dtype.

On a CPU every core works on arrays of its own, without a barrier: on a shared machine the time of threads that wait for
each other depends on other users (a 4-thread product on 4 busy cores reached 3 % of what four independent ones did).
Memory is numpy's ``add``, which moves what the triad moves; products are torch's, or numpy's without torch. On a GPU
both are torch's, timed by CUDA events. Bytes are counted as STREAM does: two reads and a write an element, no
write-allocate. A pass over L1 is shorter than Python's dispatch overhead, so L1 is not measured. Every ceiling is the
median of ``timing.bench`` with its 95 % interval.

Reference: McCalpin, "Memory bandwidth and machine balance" (STREAM), 1995; Lo et al., "Roofline model toolkit", 2014.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import numpy as np

from mlsys_labkit._base import limits
from mlsys_labkit.device import Device
from mlsys_labkit.errors import LabkitError, require
from mlsys_labkit.roofline import store
from mlsys_labkit.roofline.roof import Ceiling
from mlsys_labkit.timing import bench
from mlsys_labkit.timing.clock import clock_for

Call = Callable[[], object]
DISTINCT = 1.15  # a cache level is one only when it is this much faster than the level behind it
PART_BYTES = 12  # a float32 element of the triad: two reads, one write


@dataclass(frozen=True)
class Probe:
    """One kernel to time: ``amount`` bytes or FLOPs in a call."""

    call: Call
    amount: float
    source: str


class DeviceKernels(Protocol):
    """The kernels of one kind of device."""

    device: str
    version: str

    def ready(self) -> contextlib.AbstractContextManager[object]:
        """Set threads, precision and memory as the kernels need them, inside the block; restore them afterwards."""

    def working_sets(self) -> dict[str, int]:
        """Return memory level -> bytes of a working set that stays in it, slowest level first."""

    def dtypes(self) -> tuple[str, ...]:
        """Return the precisions with a matrix product."""

    def triad(self, size: int) -> Probe:
        """Return a probe on three arrays of ``size`` bytes in all."""

    def matmul(self, dtype: str, n: int) -> Probe:
        """Return a probe that multiplies n x n matrices."""


def measured_ceilings(device: Device, seconds: float, *, refresh: bool = False) -> tuple[Ceiling, ...]:
    """Return the ceilings of ``device`` from the cache, or measure them in about ``seconds`` and cache them."""
    kernels: DeviceKernels = CudaKernels() if device.kind == "cuda" else CpuKernels(device.cores)
    key = f"{device.name}, {device.cores:g} cores, {kernels.version}"
    if not refresh and (kept := store.load(key, seconds)):
        return kept
    with kernels.ready():
        ceilings = measure(kernels, seconds)
    store.save(key, seconds, ceilings)
    return ceilings


def measure(kernels: DeviceKernels, seconds: float) -> tuple[Ceiling, ...]:
    """Time every kernel for an equal share of ``seconds``."""
    sizes, dtypes = kernels.working_sets(), kernels.dtypes()
    share = seconds / (len(sizes) + len(dtypes))
    memory = [_ceiling("memory", level, kernels.triad(size), share, kernels.device) for level, size in sizes.items()]
    compute = [_ceiling("compute", dtype, _sized(kernels, dtype, share), share, kernels.device) for dtype in dtypes]
    return (*distinct(memory), *compute)


def distinct(memory: Iterable[Ceiling]) -> Iterator[Ceiling]:
    """Yield levels from slow to fast, without those that are no faster than the level before.

    The data of such a level did not stay in it.
    """
    behind = 0.0
    for ceiling in memory:
        if ceiling.value > DISTINCT * behind:
            behind = ceiling.value
            yield ceiling


def _ceiling(kind: Literal["compute", "memory"], name: str, probe: Probe, seconds: float, device: str) -> Ceiling:
    # Half of the share: bench probes for a batch size, and takes ten samples however long they are.
    timing = bench(probe.call, seconds=seconds / 2, name=probe.source, cold=False, device=device)
    return Ceiling(
        kind,
        name,
        probe.amount / timing.median,
        dtype=name if kind == "compute" else None,
        level=name if kind == "memory" else None,
        origin="measured",
        ci_low=probe.amount / timing.ci_high,
        ci_high=probe.amount / timing.ci_low,
        source=f"{probe.source}, median of {timing.n}, {timing.verdict}",
    )


def _sized(kernels: DeviceKernels, dtype: str, seconds: float) -> Probe:
    """Double n until a product is much longer than its start-up, while twenty of them still fit in ``seconds``."""
    clock = clock_for(kernels.device, (), None, cold=False)
    n = 256
    while True:
        probe = kernels.matmul(dtype, n)
        probe.call()
        if 8 * min(clock.time(probe.call, 1) for _ in range(2)) > seconds / 10 or n >= 8192:
            return probe
        n *= 2


class CpuKernels:
    """numpy and torch on the cores that this process may use."""

    device = "cpu"

    def __init__(self, cores: float) -> None:
        self.threads = max(1, math.floor(cores))
        self._torch = require("torch", "torch") if _installed("torch") else None
        self._controller = importlib.import_module("threadpoolctl") if _installed("threadpoolctl") else None
        self.version = f"torch {self._torch.__version__}" if self._torch else f"numpy {np.__version__}"
        self._pool: ThreadPoolExecutor | None = None

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        before = self._torch.get_num_threads() if self._torch else 1
        with ThreadPoolExecutor(self.threads) as self._pool, self._blas_limit():
            if self._torch:
                self._torch.set_num_threads(1)
            try:
                yield
            finally:
                if self._torch:
                    self._torch.set_num_threads(before)

    def working_sets(self) -> dict[str, int]:
        caches = limits.cache_bytes()
        last = max(caches.values(), default=2**25)
        room = limits.memory_free_bytes() or 2**31
        sets = {"dram": min(max(4 * last, 2**27), room // 4)}
        if "l3" in caches:
            sets["l3"] = caches["l3"] // 2  # shared by the cores
        if "l2" in caches:
            sets["l2"] = caches["l2"] * self.threads // 2  # one a core
        return sets

    def dtypes(self) -> tuple[str, ...]:
        return ("float32", "float64", "bfloat16") if self._torch else ("float32", "float64")

    def triad(self, size: int) -> Probe:
        length = size // (PART_BYTES * self.threads)
        rounds = max(1, 2**22 // (PART_BYTES * length))  # some 0.1 ms per thread, well above the hand-over to the pool
        parts = self._each(lambda: tuple(np.ones(length, np.float32) for _ in range(3)))

        def work(part: Any) -> None:
            a, b, out = part
            for _ in range(rounds):
                np.add(a, b, out=out)

        amount = float(PART_BYTES * length * rounds * self.threads)
        return Probe(self._over(work, parts), amount, f"numpy add, {_mib(size)} on {self.threads} threads")

    def matmul(self, dtype: str, n: int) -> Probe:
        flops, what, torch = 2.0 * n**3, f"n = {n}", self._torch

        def operands() -> Any:
            if torch is None:
                a, b = np.random.default_rng(0).standard_normal((2, n, n)).astype(dtype)
                return a, b, np.empty_like(a)
            a, b = (torch.randn(n, n).to(getattr(torch, dtype)) for _ in range(2))
            return a, b, torch.empty_like(a)

        def work(part: Any) -> None:
            a, b, out = part
            (torch.mm if torch else np.matmul)(a, b, out=out)

        if torch is None and self._controller is None:  # BLAS's own threads cannot be turned off here
            part = operands()
            return Probe(lambda: work(part), flops, f"numpy matmul, {what} on BLAS's threads")
        call = self._over(work, self._each(operands))
        return Probe(
            call, flops * self.threads, f"{'torch' if torch else 'numpy'} mm, {what} on {self.threads} threads"
        )

    def _blas_limit(self) -> contextlib.AbstractContextManager[object]:
        """Limit numpy's BLAS to one thread, if threadpoolctl (which comes with scikit-learn) is installed."""
        limit = self._controller.threadpool_limits(1) if self._controller else contextlib.nullcontext()
        return cast(contextlib.AbstractContextManager[object], limit)

    def _each(self, make: Callable[[], Any]) -> list[Any]:
        """Make operands for each thread on threads of the pool, because Linux puts pages near their first writer."""
        assert self._pool is not None
        return [task.result() for task in [self._pool.submit(make) for _ in range(self.threads)]]

    def _over(self, work: Callable[[Any], None], parts: list[Any]) -> Call:
        assert self._pool is not None
        spread = self._pool.map
        return lambda: list(spread(work, parts))


class CudaKernels:
    """torch on the current NVIDIA GPU."""

    device = "cuda"
    graphed_calls = 50

    def __init__(self, torch: Any = None) -> None:
        self._torch = torch or require("torch", "gpu")
        if not self._torch.cuda.is_available():
            raise LabkitError("torch cannot use this GPU; install a CUDA build of torch, or take Roofline.from_spec()")
        self._properties = self._torch.cuda.get_device_properties(self._torch.cuda.current_device())
        self.version = f"torch {self._torch.__version__}"

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        before = self._torch.get_float32_matmul_precision()
        try:
            yield
        finally:
            self._torch.set_float32_matmul_precision(before)
            self._torch.cuda.empty_cache()

    def working_sets(self) -> dict[str, int]:
        l2 = int(getattr(self._properties, "L2_cache_size", 0))
        free, _ = self._torch.cuda.mem_get_info()
        sets = {"dram": min(max(8 * l2, 3 * 2**28), free // 2)}
        return {**sets, "l2": l2 // 2} if l2 else sets

    def dtypes(self) -> tuple[str, ...]:
        """Return the precisions that this GPU computes in.

        float8 and int8 have no public torch.mm; GPUs before Ampere emulate bfloat16 and have no TF32.
        """
        if self._properties.major < 8:
            return ("float32", "float16", "float64")
        return ("float32", "tf32", "bfloat16", "float16", "float64")

    def triad(self, size: int) -> Probe:
        torch = self._torch
        a, b, out = (torch.ones(size // PART_BYTES, device="cuda") for _ in range(3))

        def call() -> None:
            torch.add(a, b, alpha=0.5, out=out)

        amount = float(PART_BYTES * a.numel())
        if size >= 2**28:
            return Probe(call, amount, f"torch triad, {_mib(size)}")
        # A kernel on data in L2 is as short as its launch: replay many as one CUDA graph.
        return Probe(self._graph(call), amount * self.graphed_calls, f"torch triad, {_mib(size)}, CUDA graph")

    def matmul(self, dtype: str, n: int) -> Probe:
        torch = self._torch
        kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
        # float32 means float32 here, whatever the session allows: TF32 is a dtype of its own.
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        # Random operands: constant ones flip fewer bits, draw less power and let the GPU clock higher.
        a, b = (torch.randn(n, n, device="cuda").to(kind) for _ in range(2))
        out = torch.empty_like(a)
        return Probe(lambda: torch.mm(a, b, out=out), 2.0 * n**3, f"torch mm, n = {n}")

    def _graph(self, call: Call) -> Call:
        torch = self._torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call()  # a capture must not meet anything that allocates or compiles on first use
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(self.graphed_calls):
                call()
        replay: Call = graph.replay
        return replay


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _mib(size: int) -> str:
    return f"{size / 2**20:.3g} MiB"
