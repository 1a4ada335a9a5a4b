"""Results of one step as a JSON file that is whole after every case, and is read again to go on from."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

IDENTITY = ("gpu", "driver", "python", "torch", "triton")


class StepResults:
    """The file ``OUT/STEP.json``: the machine, and the outcome of each case that has run.

    Args:
        before: folders with earlier results. Their cases count if the machine and its versions are the same.
    """

    def __init__(self, step: str, out: Path, machine: dict[str, Any], before: Sequence[Path] = ()) -> None:
        self.path = out / f"{step}.json"
        self._lock = threading.Lock()
        self._record: dict[str, Any] = {"step": step, "machine": machine, "finished": False, "cases": {}}
        for folder in (*before, out):
            earlier = _earlier(folder / self.path.name, machine)
            self._record["cases"] |= earlier.get("cases", {})
            self._record["finished"] |= bool(earlier.get("finished"))

    @property
    def cases(self) -> dict[str, dict[str, Any]]:
        """Outcomes by name of the case."""
        return dict(self._record["cases"])

    @property
    def finished(self) -> bool:
        """True after an earlier call in which each case of the step had an outcome."""
        return bool(self._record["finished"])

    def forget(self, names: Sequence[str]) -> None:
        """Remove outcomes, so that these cases run again."""
        for name in names:
            self._record["cases"].pop(name, None)

    def add(self, case: str, outcome: dict[str, Any]) -> None:
        """Keep the outcome of a case, on disk before this returns."""
        with self._lock:
            self._record["cases"][case] = outcome
            self._write()

    def finish(self, all_cases: Sequence[str]) -> None:
        """Mark the step as finished if each of its cases has an outcome."""
        with self._lock:
            self._record["finished"] = all(name in self._record["cases"] for name in all_cases)
            self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self._record, indent=1) + "\n")
        part.replace(self.path)


def _earlier(path: Path, machine: dict[str, Any]) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text())
        same = all(record["machine"].get(key) == machine.get(key) for key in IDENTITY)
        return record if same and isinstance(record["cases"], dict) else {}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return {}  # no earlier call, or a file that another program wrote
