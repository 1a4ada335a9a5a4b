"""Error rates of timers: the same function against itself, and against one that does 10 % more.

    python benchmarks/timer.py [--quick]

100 comparisons of a busy loop with itself (the right answer is "same") and 100 with 1.10x the iterations ("slower"),
in random order, for several timers in the same run and on the same machine:

    compare       this kit: interleaved pairs, interval, four verdicts
    torch Timer   torch.utils.benchmark: blocked_autorange of one, then of the other; medians compared
    timeit min    timeit.repeat of one, then of the other; minima compared

A rival's ratio beyond 5 % is read as "faster" or "slower", within as "same", the same margin that compare uses. Prints
a table and writes results/timer.json with the machine and its load.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
import timeit
from collections import Counter
from collections.abc import Callable
from statistics import median

from record import write_result

from mlsys_labkit.timing import compare
from mlsys_labkit.timing.compare import MARGIN

Function = Callable[[], object]
BUDGET_SECONDS = 1.0  # of compare; the rivals get what compare took on average, split between the two functions


def busy(iterations: int) -> Function:
    """Build a loop whose work is proportional to ``iterations``, with no memory traffic and no threads."""

    def loop() -> int:
        total = 0
        for i in range(iterations):
            total += i
        return total

    return loop


def by_compare(a: Function, b: Function, seed: int) -> str:
    return compare(a, b, seconds=BUDGET_SECONDS, seed=seed).verdict


def by_torch(a: Function, b: Function, seconds: float) -> str:
    from torch.utils.benchmark import Timer

    times = [Timer("f()", globals={"f": f}).blocked_autorange(min_run_time=seconds / 2).median for f in (a, b)]
    return by_margin(times[1] / times[0])


def by_timeit(a: Function, b: Function, seconds: float) -> str:
    times = []
    for f in (a, b):
        once = max(1e-9, min(timeit.repeat(f, number=1, repeat=3)))
        number = max(1, round(seconds / 2 / 5 / once))
        times.append(min(timeit.repeat(f, number=number, repeat=5)) / number)
    return by_margin(times[1] / times[0])


def by_margin(ratio: float) -> str:
    limit = math.log1p(MARGIN)
    return "same" if abs(math.log(ratio)) <= limit else "slower" if ratio > 1 else "faster"


def main() -> int:
    parser = argparse.ArgumentParser(description="How often a timer misleads.")
    parser.add_argument(
        "--quick", action="store_true", help="10 comparisons of each kind instead of 100; writes nothing"
    )
    arguments = parser.parse_args()
    runs, iterations = (10 if arguments.quick else 100), 1000
    verdicts: dict[tuple[str, str], Counter[str]] = {}
    seconds: dict[str, list[float]] = {}
    cases = [("same", 1.0)] * runs + [("slower", 1.1)] * runs
    random.Random(0).shuffle(cases)
    loads = [os.getloadavg()[0]]
    for seed, (truth, factor) in enumerate(cases):
        a, b = busy(iterations), busy(round(iterations * factor))
        share = median(seconds.get("compare", [0.2]))
        timers = {
            "compare": lambda a=a, b=b, seed=seed: by_compare(a, b, seed),
            "torch Timer": lambda a=a, b=b, share=share: by_torch(a, b, share),
            "timeit min": lambda a=a, b=b, share=share: by_timeit(a, b, share),
        }
        for name, timer in timers.items():
            start = time.perf_counter()
            verdicts.setdefault((name, truth), Counter())[timer()] += 1
            seconds.setdefault(name, []).append(time.perf_counter() - start)
        loads.append(os.getloadavg()[0])
    result = report(verdicts, seconds, runs, (min(loads), max(loads)))
    if not arguments.quick:
        write_result("timer", result)
    right = [result["timers"]["compare"][truth].get(truth, 0) for truth in ("same", "slower")]
    return 0 if min(right) >= 0.95 * runs else 1


def report(
    verdicts: dict[tuple[str, str], Counter[str]],
    seconds: dict[str, list[float]],
    runs: int,
    loads: tuple[float, float],
) -> dict:
    """Print the table; return the data for the JSON file."""
    columns = ("same", "slower", "faster", "undecided")
    print(f"{runs} comparisons of each kind, margin {MARGIN:.0%}, load {loads[0]:.1f} to {loads[1]:.1f}\n")
    print(f"{'timer':<12} {'truth':<8} {'right':>6} {'wrong':>6} {'undecided':>10} {'s a comparison':>15}")
    timers: dict[str, dict] = {}
    for (name, truth), counts in sorted(verdicts.items()):
        right, unsure = counts[truth], counts["undecided"]
        each = median(seconds[name])
        print(f"{name:<12} {truth:<8} {right:>6} {runs - right - unsure:>6} {unsure:>10} {each:>15.2f}")
        entry = timers.setdefault(name, {"seconds_median": round(each, 3), "seconds_max": round(max(seconds[name]), 3)})
        entry[truth] = {column: counts[column] for column in columns}
    return {"runs_of_each": runs, "margin": MARGIN, "load_min": loads[0], "load_max": loads[1], "timers": timers}


if __name__ == "__main__":
    raise SystemExit(main())
