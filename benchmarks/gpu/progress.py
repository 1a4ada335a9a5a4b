"""Lines that the campaign prints: one for each case, with its figures and the time that is left."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu.plan import Step

WIDTH = 220
_NOT_FIGURES = frozenset({"ok", "seconds", "at", "more", "not_measured", "error"})


class Progress:
    """Progress of one step.

    Args:
        later: the steps behind it, whose limits bound the time that the campaign still needs.
    """

    def __init__(self, step: Step, later: Sequence[Step]) -> None:
        self._step = step
        self._later_seconds = sum(each.seconds for each in later)
        self._lock = threading.Lock()
        self._all = self._done = self._run = 0
        self._began = time.monotonic()

    def begin(self, seconds: float) -> None:
        """Print the step, and the longest time that it and the later steps take."""
        later = f", later steps at most {minutes(self._later_seconds)}" if self._later_seconds else ""
        print(f"== {self._step.name}: {self._step.answers} (at most {minutes(seconds)}{later})", flush=True)

    def skip(self, cases: int) -> None:
        """Print that earlier calls have finished the step."""
        print(f"== {self._step.name}: finished before, {cases} cases", flush=True)

    def count(self, cases: int, done_before: int) -> None:
        """Set the number of cases, and print how many earlier calls have run."""
        self._all, self._done, self._began = cases, done_before, time.monotonic()
        if done_before:
            print(f"   {done_before} of {cases} cases were run before", flush=True)

    def case(self, name: str, outcome: Mapping[str, Any]) -> None:
        """Print one outcome, and the time that the step still needs at the pace so far."""
        with self._lock:
            self._done += 1
            self._run += 1
            pace = (time.monotonic() - self._began) / self._run
            left = minutes(pace * (self._all - self._done)) if self._all > self._done else "0 s"
            head = f"{self._done:4d}/{self._all} {mark(outcome)} {self._step.name}/{name}"
            print(f"{head}  {outcome.get('seconds', 0):.1f} s, eta {left}  {described(outcome)}"[:WIDTH], flush=True)

    def end(self, outcomes: Sequence[Mapping[str, Any]]) -> None:
        """Print the counts of the step."""
        bad = sum(outcome["ok"] is False for outcome in outcomes)
        missing = sum("not_measured" in outcome for outcome in outcomes)
        print(
            f"   {self._step.name}: {len(outcomes)} of {self._all} cases, {bad} bad, {missing} not measured", flush=True
        )


def mark(outcome: Mapping[str, Any]) -> str:
    """Return "ok", "BAD", "---" for a case that was not measured, or blanks for one without a bar."""
    if "not_measured" in outcome:
        return "---"
    return {True: "ok ", False: "BAD"}.get(outcome["ok"], "   ")


def described(outcome: Mapping[str, Any]) -> str:
    """Return what a case found, on one line."""
    if "not_measured" in outcome:
        return f"not measured: {outcome['not_measured']}"
    figures = {key: value for key, value in outcome.items() if key not in _NOT_FIGURES}
    error = [outcome["error"]] if "error" in outcome else []
    return " ".join(", ".join([*error, *(f"{key} {_short(value)}" for key, value in figures.items())]).split())


def minutes(seconds: float) -> str:
    """Return a duration in words: seconds up to 90, then minutes."""
    return f"{seconds:.0f} s" if seconds <= 90 else f"{math.ceil(seconds / 60)} min"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:100]
