"""``compare``: which of two functions is faster, measured so that the load of a busy machine does not decide.

The machine's speed varies by much more than the differences of interest, and in the same way for both functions.
Therefore A and B are timed side by side, in pairs of samples a fraction of a millisecond long, in random order within
each pair; the machine's state cancels in the ratio of a pair. The ratios (as logarithms) are grouped into contiguous
blocks, each block gives the mean of its middle half, and the signed-rank test over the blocks gives the interval.

Equivalence margin, 5 % by default: a ratio of 1.05 lies halfway (geometrically) between equal and the 10 % that is
worth a student's attention, so that "same" and "slower" need the same precision. Smaller effects can be real but are
not caused by the code: alignment, address bits, the order of two closures in memory.

    slower / faster   the whole interval lies beyond the margin
    same              the whole interval lies within the margin
    undecided         the budget ended first; so does a true ratio at the margin itself

The interval is computed several times while pairs are timed. Each look uses a confidence of 1 - 0.05 / LOOKS
(Bonferroni), so that the 95 % hold for the interval that is reported.

References: Hoefler and Belli, SC'15, rule 8; Chen and Revels, "Robust benchmarking in noisy environments",
arXiv:1608.04295; Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15(6), 1987 (equivalence by two one-sided tests).
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from mlsys_labkit.timing.bench import calls_per_sample, check_arguments, function_name
from mlsys_labkit.timing.clock import Call, Clock, TimingError, clock_for, quiet_collector
from mlsys_labkit.timing.record import Comparison
from mlsys_labkit.timing.statistics import Values, symmetric_centre, warmup_end

MARGIN = 0.05
LOOKS = 8
LEAST_PAIRS = 12  # 9 reach the confidence of one look; three more leave room for an outlier
_FIRST_LOOK = 0.15  # of the budget: long enough for the speed of the machine to vary


def compare(
    a: Callable[..., Any],
    b: Callable[..., Any],
    *args: Any,
    seconds: float = 1.0,
    margin: float = MARGIN,
    names: tuple[str, str] | None = None,
    cold: bool = True,
    device: str | None = None,
    seed: int = 0,
) -> Comparison:
    """Judge whether ``b(*args)`` is "faster" than ``a(*args)``, "slower", the "same", or "undecided".

    Args:
        a: the baseline. b: the candidate, which the verdict is about. Both do the same work on every call.
        seconds: time budget, s; it ends earlier when the answer is clear, and later when 12 pairs take longer.
        margin: differences up to this fraction count as the same.
        names: what to call a and b in the answer, in this order; by default their own names if those differ.
        cold, device: as for ``bench``.
        seed: of the order within pairs.

    Raises:
        TimingError: ``a`` or ``b`` is not callable, or ``seconds`` or ``margin`` is not positive.

    Example:
        >>> numbers = list(range(3000))
        >>> found = compare(lambda: sum(numbers[:1000]), lambda: sum(numbers), seconds=0.2)  # the second adds 3000
        >>> found.verdict in ("slower", "undecided")  # undecided on a machine that is too busy
        True

    Reference: Hoefler and Belli, "Scientific benchmarking of parallel computing systems", SC'15.
    """
    check_arguments(seconds, a=a, b=b)
    if not 0 < margin < 1:
        raise TimingError(f"margin is {margin}, expected a fraction such as 0.05")
    calls: tuple[Call, Call] = (functools.partial(a, *args), functools.partial(b, *args))
    results = [call() for call in calls]  # the first call of each: compilation and first touch are not compared
    clock = clock_for(device, args, results, cold)
    results.clear()
    default = (function_name(a), function_name(b))
    if default[0] == default[1] or "function" in default:
        default = ("a", "b")
    return measure_pairs(calls, clock, seconds, margin, names or default, random.Random(seed))


def measure_pairs(
    functions: tuple[Call, Call],
    clock: Clock,
    seconds: float,
    margin: float,
    names: tuple[str, str],
    order: random.Random,
) -> Comparison:
    """Time pairs until the ratio is clear: ``compare`` with the machine given as arguments."""
    limit, confidence = math.log1p(margin), 1 - 0.05 / LOOKS
    times: tuple[list[float], list[float]] = ([], [])
    with quiet_collector():
        calls = _calls(functions, clock)
        start = clock.now()
        looks = iter(_look_times(seconds))
        look = next(looks)
        while True:
            first = order.randrange(2)
            for which in (first, 1 - first):
                times[which].append(clock.time(functions[which], calls[which]))
            if len(times[0]) < LEAST_PAIRS or clock.now() - start < look:
                continue
            ratios = _log_ratios(times)
            interval = symmetric_centre(ratios, confidence)
            verdict = _verdict(interval.low, interval.high, limit)
            # A slow function may have run past several looks: the confidence was spent for each of them.
            look = next((later for later in looks if later > clock.now() - start), math.inf)
            if verdict != "undecided" or clock.now() - start >= seconds:
                break
    ratio, advice = interval.value, ""
    if verdict == "undecided":
        near = min(abs(abs(ratio) - limit), abs(ratio)) < (interval.high - interval.low) / 2
        advice = "Give it more seconds" + (", or a margin further from the ratio" if near else ", or a quieter machine")
    return Comparison(
        ratio=math.exp(ratio),
        ci_low=math.exp(interval.low),
        ci_high=math.exp(interval.high),
        verdict=verdict,
        margin=margin,
        pairs=len(ratios),
        a_seconds=float(np.median(times[0])),
        b_seconds=float(np.median(times[1])),
        a_name=names[0],
        b_name=names[1],
        advice=advice,
        device=clock.device,
        load=clock.load(),
        cache=clock.cache,
    )


def _calls(functions: tuple[Call, Call], clock: Clock) -> tuple[int, int]:
    """Return the calls per sample of each: the same for both unless their times differ by a factor of 4 or more."""
    a, b = (calls_per_sample(function, clock) for function in functions)
    return (max(a, b),) * 2 if max(a, b) < 4 * min(a, b) else (a, b)


def _look_times(seconds: float) -> list[float]:
    """Return ``LOOKS`` times in geometric progression, the last at the end of the budget."""
    return [seconds * _FIRST_LOOK ** (1 - index / (LOOKS - 1)) for index in range(LOOKS)]


def _log_ratios(times: tuple[list[float], list[float]]) -> Values:
    """Return log(b / a) of each pair after both are warm."""
    a, b = np.asarray(times[0]), np.asarray(times[1])
    tiny = np.finfo(np.float64).tiny  # a clock that did not tick gives an extreme ratio, which rank tests tolerate
    ratios: Values = np.log(np.maximum(b, tiny)) - np.log(np.maximum(a, tiny))
    warm = max(warmup_end(a), warmup_end(b))
    return ratios[min(warm, max(0, len(ratios) - LEAST_PAIRS)) :]


def _verdict(low: float, high: float, limit: float) -> str:
    if low > limit:
        return "slower"
    if high < -limit:
        return "faster"
    return "same" if -limit <= low and high <= limit else "undecided"
