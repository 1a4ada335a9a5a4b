"""The clocks that take samples: around batches of calls on a CPU, by events around each call on a GPU."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from mlsys_labkit.errors import LabkitError, require

Call = Callable[[], object]

# Long enough that reading the clock (some 50 ns) costs less than 0.1 %, and short against a scheduler's slice of a few
# milliseconds, so that on a busy machine most samples are not interrupted.
SAMPLE_SECONDS = 100e-6


class TimingError(LabkitError, ValueError):
    """The error for a measurement that cannot be taken."""


class Clock(Protocol):
    """The interface of a machine for ``bench`` and ``compare``. Tests inject one whose time is simulated."""

    device: str
    resolution_seconds: float
    sample_seconds: float  # a sample is made at least this long, by batching calls
    cache: str  # the state of a GPU's L2 before each call, "cold" or "warm"; "" on a CPU
    waits: bool  # the call was seen to wait for the GPU, so that its time includes the host's work

    def time(self, call: Call, calls: int) -> float:
        """Return the seconds per call of ``calls`` calls in a row."""

    def now(self) -> float:
        """Return seconds of wall time, for the budget."""

    def throttled(self) -> str:
        """Return why the machine has run slower than it could since the clock was made; "" if it did not."""

    def load(self) -> float | None:
        """Return the mean number of busy processes on the host in the last minute; None if unknown."""

    def launch_overhead_seconds(self) -> float | None:
        """Measure the time of a kernel that does nothing; return None where there are no kernels."""


class _HostClock:
    """The readings of the host that both clocks take."""

    cache = ""
    waits = False

    def now(self) -> float:
        return time.perf_counter()

    def load(self) -> float | None:
        try:
            return os.getloadavg()[0]
        except (AttributeError, OSError):  # Windows has none, and a sandbox may hide it
            return None


class CpuClock(_HostClock):
    """``perf_counter_ns`` around a batch. When torch has started CUDA, a batch ends when its kernels have.

    Whether a function leaves work on the GPU is not known, because libraries other than torch launch kernels, too. So
    every batch then ends with a wait, and batches are so long that it takes less than 1 % of them.
    """

    device = "cpu"

    def __init__(self, cpu_stat: Path = Path("/sys/fs/cgroup/cpu.stat")) -> None:
        self.resolution_seconds = max(time.get_clock_info("perf_counter").resolution, _tick())
        self.sample_seconds = max(SAMPLE_SECONDS, 50 * self.resolution_seconds)
        self._cpu_stat = cpu_stat
        self._throttled_before = self._throttled_periods()
        torch = sys.modules.get("torch")
        self._finish: Call = lambda: None
        if torch is not None and torch.cuda.is_initialized():
            self._finish = torch.cuda.synchronize
            self.sample_seconds = max(self.sample_seconds, 100 * self._wait_seconds())

    def time(self, call: Call, calls: int) -> float:
        self._finish()
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        self._finish()
        return (time.perf_counter_ns() - start) * 1e-9 / calls

    def _wait_seconds(self) -> float:
        """Return the time of a wait for a GPU that has nothing to do."""
        return sorted(self.time(int, 1) for _ in range(11))[5]

    def throttled(self) -> str:
        periods = self._throttled_periods() - self._throttled_before
        return f"the container's CPU quota stopped this process {periods} times" if periods > 1 else ""

    def launch_overhead_seconds(self) -> float | None:
        return None

    def _throttled_periods(self) -> int:
        try:
            lines = self._cpu_stat.read_text().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("nr_throttled")), 0)


class CudaClock(_HostClock):
    """CUDA events around each call, which the GPU reaches after the host has queued all of the call.

    A kernel that spins goes before the first event. Without it the GPU would reach that event at once and wait there
    for the host, whose launch takes 20 to 60 us in Python: longer than a small kernel.

    Args:
        cold: start each call with an L2 that holds nothing of its data, as the first use in a program would find it.
            Another buffer is read for this. Overwriting one leaves modified lines, which the call would write back.
        torch, nvml: the modules, given so that a test can stand in for a GPU.
    """

    device = "cuda"
    resolution_seconds = 0.5e-6  # CUDA Runtime API, cudaEventElapsedTime: about half a microsecond
    sample_seconds = 0.0  # one event pair per call: the flush must come before each

    def __init__(self, cold: bool = True, torch: Any = None, nvml: Any = None) -> None:
        self._torch = torch or require("torch", "torch")
        self._nvml = nvml
        self._flush: Any = None
        self._spin_cycles = SPIN_CYCLES[0]
        self.cache = "cold" if cold else "warm"
        properties = self._torch.cuda.get_device_properties(self._torch.cuda.current_device())
        if cold:
            # Twice the cache: reading as much as the cache holds may leave ways of it untouched.
            l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or 64 * 2**20
            self._flush = self._torch.zeros(2 * l2_bytes // 4, dtype=self._torch.int32, device="cuda")
        self._handle = self._nvml_handle(properties)
        self._reasons = self._clock_reasons()

    def time(self, call: Call, calls: int) -> float:
        seconds = sum(self._time_one(call) for _ in range(calls)) / calls
        self._reasons |= self._clock_reasons()
        return seconds

    def _time_one(self, call: Call) -> float:
        """Time one call; call again after a longer spin if the host was slower than the spin."""
        cuda = self._torch.cuda
        while True:
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            if self._flush is not None:
                self._flush.amax()
            if not self.waits:
                cuda._sleep(self._spin_cycles)
            start.record()
            with _queueing():
                call()
            end.record()
            late = start.query()  # the GPU was there before the host had queued the whole call
            cuda.synchronize()
            if not late or self.waits:
                return float(start.elapsed_time(end)) * 1e-3
            self._spin_cycles *= 4
            self.waits = self._spin_cycles > SPIN_CYCLES[1]

    def throttled(self) -> str:
        names = [text for bit, text in CLOCK_REASONS.items() if self._reasons & bit]
        return f"the GPU lowered its clock ({', '.join(names)})" if names else ""

    def launch_overhead_seconds(self) -> float | None:
        one = self._torch.empty(1, device="cuda")
        flush, self._flush = self._flush, None
        try:
            return sorted(self.time(one.zero_, 1) for _ in range(21))[10]
        finally:
            self._flush = flush

    def _nvml_handle(self, properties: Any) -> Any:
        if self._nvml is None:
            try:
                self._nvml = require("pynvml", "gpu")
            except ImportError:
                return None  # without NVML the clocks are unknown
        try:
            self._nvml.nvmlInit()
            # By UUID: torch numbers the visible devices, NVML all of them.
            return self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _clock_reasons(self) -> int:
        if self._handle is None:
            return 0
        ask = getattr(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        ask = ask or getattr(self._nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None)
        try:
            return int(ask(self._handle)) if ask is not None else 0
        except self._nvml.NVMLError:
            return 0


SPIN_CYCLES = (200_000, 51_200_000)  # the first and the longest: 0.1 ms to 26 ms at 2 GHz

# NVML API reference, "Clocks Event Reasons". The power cap (0x4) is left out: a busy GPU is meant to meet it.
CLOCK_REASONS = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}


def clock_for(device: str | None, args: tuple[object, ...], result: object, cold: bool) -> Clock:
    """Return the clock of the device that computes: a GPU if a tensor in the arguments or the result is on one."""
    if device not in (None, "cpu", "cuda"):
        raise TimingError(f"device is {device!r}, expected 'cpu' or 'cuda', or nothing to go by the tensors")
    if device == "cuda" and not require("torch", "torch").cuda.is_available():
        raise TimingError("device is 'cuda' and torch finds no CUDA GPU here; leave device out to time on the CPU")
    if device == "cuda" or (device is None and any(getattr(item, "is_cuda", False) for item in _flat((args, result)))):
        return CudaClock(cold=cold)
    return CpuClock()


_queues: ContextVar[bool] = ContextVar("_queues", default=False)


def is_queueing() -> bool:
    """Return True inside a call that CUDA events time: kernels are then to be queued and not waited for."""
    return _queues.get()


@contextmanager
def _queueing() -> Iterator[None]:
    token = _queues.set(True)
    try:
        yield
    finally:
        _queues.reset(token)


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Turn garbage collection off inside the block, as ``timeit`` does, because it would slow down single samples."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def torch_threads() -> int | None:
    """Return the number of threads that torch computes with; None if torch is not loaded."""
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch is not None and hasattr(torch, "get_num_threads") else None


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))
    else:
        yield value


def _tick() -> float:
    """Return the smallest step observed of the clock: on some systems far above its stated resolution."""
    steps = []
    for _ in range(5):
        start = now = time.perf_counter_ns()
        while now == start:
            now = time.perf_counter_ns()
        steps.append(now - start)
    return min(steps) * 1e-9
