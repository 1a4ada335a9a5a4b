"""The planner beside published runs: the error of its step time, source by source, and the tables of its README.md.

    python benchmarks/planner.py             # prints the tables; writes results/planner.json
    python benchmarks/planner.py --runs      # every run, with its error
    python benchmarks/planner.py --fit       # the error of the fitted runs around the constants

Bar: every run within 20 %, or the assumption that fails is named. Nothing is timed: figures are equal everywhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from statistics import mean, median

from record import write_result

from mlsys_labkit.planner import PublishedRun, published_runs

BAR = 0.2


def within(errors: Sequence[float]) -> str:
    return f"{sum(abs(error) <= BAR for error in errors)} of {len(errors)}"


def signed(error: float) -> str:
    return f"{100 * error:+.0f} %"


def tables(errors: Sequence[tuple[PublishedRun, float]]) -> Iterable[str]:
    yield "| published runs | runs | within 20 % | median error | least, largest |"
    yield "|---|---|---|---|---|"
    for group in dict.fromkeys(run.group for run, _ in errors):
        found = [error for run, error in errors if run.group == group]
        middle = median(abs(error) for error in found)
        ends = f"{signed(min(found))}, {signed(max(found))}"
        yield f"| {group} | {len(found)} | {within(found)} | {100 * middle:.0f} % | {ends} |"
    yield ""
    for name, chosen in (
        ("all", lambda run: True),
        ("fitted", lambda run: run.fitted),
        ("held out", lambda run: not run.fitted),
        ("of 2025 and 2026", lambda run: run.year >= 2025),
    ):
        found = [error for run, error in errors if chosen(run)]
        yield f"{name}: {within(found)} within 20 %, median error {100 * median(abs(e) for e in found):.1f} %"
    yield ""
    yield "| more than 20 % off | error | what fails |"
    yield "|---|---|---|"
    for run, error in errors:
        if abs(error) > BAR:
            yield f"| {run.group}: {run.name} | {signed(error)} | {run.miss or 'NOT NAMED'} |"


def fit(runs: Sequence[PublishedRun]) -> None:
    """Print the mean error of the fitted runs for values around the constants of ``Assumptions``."""
    fitted = [run for run in runs if run.fitted]
    for sustained, bandwidth, interference in product((0.88, 0.9, 0.92, 0.94), (0.6, 0.7, 0.8), (0.3, 0.4, 0.5, 0.6)):
        constants = {
            "sustained_fraction": sustained,
            "bandwidth_fraction": bandwidth,
            "interference": interference,
        }
        error = mean(abs(replace(run, assumptions=replace(run.assumptions, **constants)).error) for run in fitted)
        print(f"{sustained} of the ceiling, {bandwidth} of the bandwidth, {interference} interference: {error:.1%}")
    for launch in (10e-6, 15e-6, 20e-6, 25e-6, 30e-6):
        some = [run for run in fitted if run.model.experts > 1]
        changed = [replace(run, assumptions=replace(run.assumptions, launch_seconds=launch)) for run in some]
        error = mean(abs(run.error) for run in changed)
        print(f"{1e6 * launch:.0f} us a launch, {len(some)} runs with experts: {error:.1%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", action="store_true", help="every run, and no result file")
    parser.add_argument("--fit", action="store_true", help="the error around the fitted constants, and no result file")
    asked = parser.parse_args()
    runs = published_runs()
    if asked.fit:
        fit(runs)
        return 0
    errors = [(run, run.error) for run in runs]
    if asked.runs:
        for run, error in errors:
            part = "fitted" if run.fitted else "held out"
            print(
                f"{run.group}: {run.name}: {run.value} {run.unit}, planned {run.estimate():.5g}, {error:+.1%}, {part}"
            )
        return 0
    print("\n".join(tables(errors)))
    unnamed = [run.name for run, error in errors if abs(error) > BAR and not run.miss]
    found = {f"{run.group}: {run.name}": round(error, 4) for run, error in errors}
    write_result("planner", {"runs": len(runs), "unnamed_misses": unnamed, "error": found})
    return 1 if unnamed else 0


if __name__ == "__main__":
    sys.exit(main())
