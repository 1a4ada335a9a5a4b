"""Launches under Nsight Compute: its command, the rows of its CSV, and which launch each row belongs to.

One run measures a group of launches. Each is tried on its own, so that one that fails costs its own row.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.cases import ROOT, first_line, tool
from benchmarks.gpu.launches import Launch, kernel_of, of_group

SECONDS = 100.0  # of one run
LAUNCH_SECONDS = 60.0  # ncu launches a kernel several times
_SCOPES = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\b(?:\w+::)+")


@dataclass(frozen=True)
class Measured:
    """The outcome of one run: a row for each launch that was measured, the reason for each that was not."""

    rows: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    said: str = ""

    def row(self, name: str) -> Mapping[str, str]:
        """Return the row of a launch. Raises RuntimeError with the reason why there is none."""
        if name in self.rows:
            return self.rows[name]
        raise RuntimeError(self.failures.get(name) or f"ncu has no row for this launch: {self.said}")


def launch_all(group: str, report: str) -> None:
    """Launch each of a group once, in order: what runs under Nsight Compute.

    The end of each is a line of the file ``report`` before the next begins: its name, and its error or "".
    """
    with Path(report).open("a") as file:
        for launch in of_group(group):
            error = ""
            try:
                kernel_of(launch.name, "gpu").within(LAUNCH_SECONDS)[launch.shape](*launch.make())
            except Exception as raised:
                error = first_line(raised)
            print(json.dumps([launch.name, error]), file=file, flush=True)
    _leave_gpu()


def _leave_gpu() -> None:
    """Let the process on the GPU end by itself: ncu may lose the last rows of one that is killed."""
    from mlsys_labkit.cuda.nvidia.device import the_gpu

    with contextlib.suppress(Exception):
        process = the_gpu()._process  # type: ignore[union-attr]
        process._connection.close()  # type: ignore[union-attr]
        process._process.wait(20)  # type: ignore[union-attr]


@cache
def measure(group: str, metrics: tuple[str, ...]) -> Measured:
    """Run a group under Nsight Compute, once in this process. The GPU's clocks are left as they are."""
    wanted = of_group(group)
    _compile_ahead(wanted)
    with TemporaryDirectory() as folder:
        log, report = Path(folder, "ncu.csv"), Path(folder, "report")
        code = f"from benchmarks.gpu.ncu import launch_all; launch_all({group!r}, {str(report)!r})"
        # Names without anchors, because what ncu calls a function depends on its linkage: the kit's own kernels have
        # none of these names, and rows are matched afterwards.
        names = "|".join(sorted({launch.function for launch in wanted}))
        command = [
            tool("ncu"), "--clock-control", "none", "--target-processes", "all", "--page", "raw", "--csv",
            "--kernel-name", f"regex:{names}", "--metrics", ",".join(metrics), "--log-file", str(log),
            sys.executable, "-c", code,
        ]  # fmt: skip
        said = _run(command)
        text = log.read_text(errors="replace") if log.exists() else ""
        ends = _ends(report.read_text() if report.exists() else "")
    found = rows(text)
    told = [line for line in text.splitlines() if not found or line.startswith(("==ERROR==", "==WARNING=="))]
    said = " ".join([*told, said])
    said = " ".join(said.split())[-400:]
    failures = {name: error for name, error in ends.items() if error}
    failures |= {launch.name: f"never launched: {said}" for launch in wanted if launch.name not in ends}
    launched = [launch for launch in wanted if launch.name not in failures]
    return Measured(matched(launched, found), failures, said)


def _compile_ahead(wanted: Sequence[Launch]) -> None:
    """Fill the caches on disk with all processors: nothing is compiled under ncu. Errors come up again there."""

    def compile_one(launch: Launch) -> None:
        with contextlib.suppress(Exception):
            kernel_of(launch.name, "gpu")

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        list(pool.map(compile_one, wanted))


def _run(command: list[str]) -> str:
    """Run a command in a group of processes of its own, which ends with it; return the end of what it said."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, start_new_session=True
    )
    try:
        return process.communicate(timeout=SECONDS)[0][-400:]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=10)
        return f"ncu still ran after {SECONDS:g} s and was ended"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _ends(report: str) -> dict[str, str]:
    """Return the error of each launch that ended, or ""; the last line may be cut short."""
    found = {}
    for line in report.splitlines():
        with contextlib.suppress(ValueError):
            name, error = json.loads(line)
            found[name] = error
    return found


# --- ncu's CSV -------------------------------------------------------------------------------------------------------


def rows(text: str) -> list[dict[str, str]]:
    """Return the kernels of ncu's raw page in CSV: names, units, then a line for each kernel."""
    lines = [*csv.reader(line for line in text.splitlines() if line.startswith('"'))]
    return [dict(zip(lines[0], one, strict=False)) for one in lines[2:] if "Kernel Name" in lines[0]]


def function_name(demangled: str) -> str:
    """Return ``scale_vec`` for ``void scale_vec<float, (int)4>(T1 *, T1, int)``."""
    plain = _SCOPES.sub("", demangled).removeprefix("static ").removeprefix("void ").strip()
    return re.split(r"[<(\s]", plain, maxsplit=1)[0]


def matched(wanted: Sequence[Launch], found: Sequence[Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Return the row of each launch: the longest common sequence of both by kernel and grid."""
    best: list[list[int]] = [[0] * (len(found) + 1) for _ in range(len(wanted) + 1)]
    for i in reversed(range(len(wanted))):
        for j in reversed(range(len(found))):
            both = best[i + 1][j + 1] + 1 if _is_of(found[j], wanted[i]) else 0
            best[i][j] = max(both, best[i + 1][j], best[i][j + 1])
    pairs, i, j = {}, 0, 0
    while i < len(wanted) and j < len(found):
        if _is_of(found[j], wanted[i]) and best[i][j] == best[i + 1][j + 1] + 1:
            pairs[wanted[i].name] = found[j]
            i, j = i + 1, j + 1
        elif best[i + 1][j] >= best[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _is_of(row: Mapping[str, str], launch: Launch) -> bool:
    """Compare names, and grids where the row has one such as ``(4, 1, 1)``."""
    grid = tuple(int(number) for number in re.findall(r"\d+", row.get("Grid Size", "")))
    return function_name(row.get("Kernel Name", "")) == launch.function and (len(grid) != 3 or grid == launch.grid)


def number(text: Any) -> float | None:
    """Return a figure of ncu, such as ``1,024``; None where it has none."""
    try:
        return float(str(text).replace(",", ""))
    except ValueError:
        return None
