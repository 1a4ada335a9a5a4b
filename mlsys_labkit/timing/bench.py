"""``bench``: the run time of one function, with an interval and a verdict."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from mlsys_labkit.timing.clock import Call, Clock, CpuClock, TimingError, clock_for, quiet_collector, torch_threads
from mlsys_labkit.timing.record import Timing, duration
from mlsys_labkit.timing.statistics import Interval, Values, median_interval, trend, warmup_end

LEAST_SAMPLES = 10
TARGETS = {"cpu": 0.05, "cuda": 0.02}  # half-width of the interval over the median at which sampling stops
_MOST_CALLS = 1 << 22
_NOISY_SPREAD = 0.25  # interquartile range over median from which a median alone misleads


def bench(
    fn: Callable[..., Any],
    *args: Any,
    seconds: float = 1.0,
    name: str = "",
    target: float | None = None,
    cold: bool = True,
    device: str | None = None,
) -> Timing:
    """Time ``fn(*args)`` until the median is known to 5 % (2 % on a GPU) or ``seconds`` are spent.

    The first call is timed apart. Short functions are called in batches, so that a sample is well above the timer's
    resolution. Leading samples that differ from the rest are dropped as warm-up. Never fewer than 10 samples are taken,
    however long that is, and sampling goes on for at least a fifth of the budget, so that a short fast phase does not
    decide the result.

    Args:
        fn: called again and again with the same arguments; it should do the same work each time.
        seconds: time budget, s.
        target: half-width of the 95 % interval over the median at which to stop.
        cold: on a GPU, evict the call's data from the L2 cache before each call. With False, the call finds there what
            the call before it left.
        device: "cpu" or "cuda"; by default where the tensors among the arguments or in the result live.

    Raises:
        TimingError: ``fn`` is not callable, or ``seconds`` or ``target`` is not positive.

    Example:
        >>> timing = bench(sum, range(1000), seconds=0.05)
        >>> timing.n >= 10 and timing.ci_low <= timing.median <= timing.ci_high
        True

    Reference: Hoefler and Belli, "Scientific benchmarking of parallel computing systems", SC'15.
    """
    check_arguments(seconds, fn=fn)
    if target is not None and not target > 0:
        raise TimingError(f"target is {target}, expected a positive fraction such as 0.05")
    call: Call = functools.partial(fn, *args)
    results: list[object] = []
    first_call = CpuClock().time(lambda: results.append(call()), 1)
    clock = clock_for(device, args, results, cold)
    results.clear()
    return measure(call, clock, first_call, seconds, target, name or function_name(fn))


def measure(call: Call, clock: Clock, first_call: float, seconds: float, target: float | None, name: str) -> Timing:
    """Sample ``call`` by ``clock`` and evaluate the samples: ``bench`` with the machine given as arguments."""
    target = target or TARGETS[clock.device]
    with quiet_collector():
        calls = calls_per_sample(call, clock)
        samples = _collect(call, clock, calls, seconds, target)
    dropped = warmup_end(samples)
    if len(samples) - dropped < LEAST_SAMPLES:
        dropped = max(0, len(samples) - LEAST_SAMPLES)
    kept = samples[dropped:]
    interval = _interval(kept)
    overhead = clock.launch_overhead_seconds()
    verdict, advice = _judge(kept, interval, clock, calls, target, overhead)
    load, cores = clock.load(), os.cpu_count() or 1
    if clock.device == "cpu" and load is not None and load > cores:
        # Under a constant load samples agree although all are too slow: each waits for the same time slices.
        crowd = f"Load {load:.1f} on {cores} cores: others take part in this time; close them, or trust compare alone"
        advice = f"{advice}. {crowd}" if advice else crowd
    if clock.waits:
        waits = "The call waits for the GPU itself, so that its time includes the host's launches"
        advice = f"{advice}. {waits}" if advice else waits
    return Timing(
        name=name,
        samples=tuple(kept.tolist()),
        ci_low=interval.low,
        ci_high=interval.high,
        first_call_seconds=first_call,
        verdict=verdict,
        advice=advice,
        warmup_dropped=dropped,
        calls_per_sample=calls,
        device=clock.device,
        threads=torch_threads(),
        load=load,
        launch_overhead_seconds=overhead,
        cache=clock.cache,
    )


def calls_per_sample(call: Call, clock: Clock) -> int:
    """Return how many calls make a sample last ``clock.sample_seconds``; found by doubling."""
    calls = 1
    while calls < _MOST_CALLS:
        spent = clock.time(call, calls) * calls
        if spent >= clock.sample_seconds:
            break
        calls *= 2 if spent <= 0 else max(2, min(16, round(clock.sample_seconds / spent)))
    return calls


def check_arguments(seconds: float, **functions: object) -> None:
    """Raise a TimingError that names what cannot be timed."""
    for name, function in functions.items():
        if not callable(function):
            kind = type(function).__name__
            raise TimingError(f"{name} is of type {kind}, expected a function; pass {name} itself, or lambda: ...")
    if not seconds > 0:
        raise TimingError(f"seconds is {seconds}, expected a positive time budget such as 1.0")


def function_name(fn: Callable[..., Any]) -> str:
    name: str = getattr(fn, "__name__", type(fn).__name__)
    return "function" if name == "<lambda>" else name


def _collect(call: Call, clock: Clock, calls: int, seconds: float, target: float) -> Values:
    samples: list[float] = []
    start, next_look = clock.now(), LEAST_SAMPLES
    while True:
        samples.append(clock.time(call, calls))
        spent = clock.now() - start
        if len(samples) < LEAST_SAMPLES:
            continue
        if spent >= seconds:
            break
        if len(samples) >= next_look and spent >= seconds / 5:
            next_look = len(samples) + max(1, len(samples) // 4)
            values = np.asarray(samples)
            kept = values[warmup_end(values) :]
            if len(kept) >= LEAST_SAMPLES and _half_width(kept, median_interval(kept)) <= target:
                break
    return np.asarray(samples)


def _interval(kept: Values) -> Interval:
    """Return the interval, widened to contain the plain median, which can differ from the median of blocks."""
    low, high = median_interval(kept)
    median = float(np.median(kept))
    return Interval(max(0.0, min(low, median)), max(high, median))


def _half_width(kept: Values, interval: Interval) -> float:
    median = float(np.median(kept))
    return (interval.high - interval.low) / 2 / median if median > 0 else float("inf")


def _judge(
    kept: Values, interval: Interval, clock: Clock, calls: int, target: float, overhead: float | None
) -> tuple[str, str]:
    median = float(np.median(kept))
    if median * calls < 50 * clock.resolution_seconds and clock.device == "cpu":
        return "too_short", "A sample is not well above the timer's resolution: do more work in one call"
    if overhead is not None and median < 2 * overhead:
        return "too_short", f"An empty kernel takes {duration(overhead)} here: time more work, or a graph of many calls"
    reason, shape = clock.throttled(), trend(kept)
    if reason:
        return "throttled", f"During the run {reason}: wait, or ask for fewer threads, and time again"
    if shape == "stepped":
        return "throttled", "From some point on every call was slower: the clock fell or another program started"
    if shape == "drifting":
        return "drifting", "The time kept changing during the run: give it more seconds, and check that calls are alike"
    spread = float(np.subtract(*np.percentile(kept, [75, 25])))
    if _half_width(kept, interval) > target:
        return "noisy", f"The median is not known to {100 * target:.3g} %: give it more seconds, or a quieter machine"
    if spread > _NOISY_SPREAD * median:
        return "noisy", "The middle half of the samples spreads by over a quarter: one number hides it, plot .samples"
    return "stable", ""
