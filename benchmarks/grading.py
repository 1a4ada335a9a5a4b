"""``labkit grade`` against ``nbgrader autograde``: a class's notebook of 24 cells on torch, the same students, one run.

    python benchmarks/grading.py                       # two rounds of each, alternating; writes results/grading.json
    python benchmarks/grading.py --submissions 1200    # a whole course: also whether the rate stays flat
    python benchmarks/grading.py --quick               # one small round; writes nothing

Ours is the command as an instructor types it: sandbox, two processes a submission, gradebook, graded notebooks and
feedback pages. Theirs executes and writes gradebook and notebooks; it runs as one process, and as four on students and
databases of their own. All may use four cores. A command's **rate** is taken between the times at which it wrote the
graded notebooks, without its start-up; the rest of its time is its **start-up**. The bars compare the time for a class
of this size, start-ups included: ours as it was, theirs from their start-up and their rate.

**Beside the student's own code**: with one job, the time from one graded submission to the next, minus the time that
the very same cells take in a plain loop of ``exec`` in one warm process, which has run them once before. That is the
least anybody could spend: no notebook shell, no second process, nothing written.

Bars: 30 times the submissions a minute of nbgrader, 10 times those of four of its processes, 250 ms beside the
student's own code; the grader's own memory under 500 MB, nothing left behind, and marks equal to nbgrader's.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
import torch
from grading_course import LAB, answers_of, notebook, write_course
from nbgrader.api import Gradebook
from record import write_result

from mlsys_grading.processes import high_water_bytes, thread_variables

CORES = 4
RATIO_BAR, RATIO_OF_FOUR_BAR = 30.0, 10.0
BESIDE_BAR_MS = 250.0
MEMORY_BAR_BYTES = 500e6
BIN = Path(sys.executable).parent
Marks = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Pace:
    """The run of one command over some submissions: seconds until each was written, and in total."""

    written: tuple[float, ...]
    seconds: float

    @property
    def rate(self) -> float:
        """Submissions per second, after the first ones."""
        skipped = min(2 * CORES, len(self.written) // 3)  # those that waited for the first server
        times = self.written[skipped:]
        return (len(times) - 1) / (times[-1] - times[0])

    @property
    def start_up_seconds(self) -> float:
        return self.seconds - len(self.written) / self.rate


def run(command: Sequence[str], course: Path, environment: dict[str, str], peaks: list[int] | None = None) -> Pace:
    """Run a command in a course folder to its end; ``peaks`` gets the largest resident set of the command itself."""
    started_at, started = time.time(), time.perf_counter()
    process = subprocess.Popen(command, cwd=course, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said: list[bytes] = []
    reader = threading.Thread(target=lambda: said.append(process.stderr.read()))  # type: ignore[union-attr]
    reader.start()
    peak = 0
    while process.poll() is None:
        peak = max(peak, high_water_bytes(process.pid))
        time.sleep(0.05)
    seconds = time.perf_counter() - started
    reader.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{said[0].decode()[-2000:]}")
    if peaks is not None:
        peaks.append(peak)
    notebooks = course.glob(f"autograded/*/{LAB}/{LAB}.ipynb")
    return Pace(tuple(sorted(path.stat().st_mtime - started_at for path in notebooks)), seconds)


def labkit(course: Path, jobs: int, peaks: list[int] | None = None) -> Pace:
    place = course / "temporary"
    place.mkdir()
    command = [str(BIN / "labkit"), "grade", LAB, "--jobs", str(jobs)]
    return run(command, course, {**os.environ, "TMPDIR": str(place)}, peaks)


def nbgrader(course: Path, *arguments: str, threads: int | None = None) -> Pace:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"  # it starts alembic by name
    more = thread_variables(threads) if threads else {}
    return run([str(BIN / "nbgrader"), *arguments], course, {**os.environ, "PATH": path, "HOME": str(course), **more})


def at_once(work: Sequence[Callable[[], Pace]]) -> tuple[list[Pace], float]:
    """Run commands side by side; returns also the seconds until the last one has ended."""
    done: list[Pace] = []
    threads = [threading.Thread(target=lambda each=each: done.append(each())) for each in work]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done, time.perf_counter() - started


def marks(course: Path) -> Marks:
    """Return student -> test -> marks, as nbgrader reads the gradebook."""
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        return {
            each.student.id: {grade.name: grade.auto_score for found in each.notebooks for grade in found.grades}
            for each in book.assignment_submissions(LAB)
        }


def own_code_ms(students: Sequence[int]) -> list[float]:
    """Measure the cells of each submission by themselves."""
    torch.set_num_threads(1)
    times = []
    for student in students:
        cells = [cell["source"] for cell in notebook(answers_of(student))["cells"]]
        for _ in range(2):
            space: dict[str, Any] = {}
            started = time.perf_counter()
            for cell in cells:
                try:
                    exec(compile(cell, "cell", "exec"), space)
                except Exception:  # a wrong answer fails its test
                    continue
            taken = (time.perf_counter() - started) * 1e3
        times.append(taken)
    return times


def beside(folder: Path, count: int) -> dict[str, float]:
    """Return the milliseconds per submission at one job, with and without those of its own code."""
    course = folder / "beside"
    write_course(course, range(count))
    written = labkit(course, jobs=1).written[1:]  # the first waited for the start
    walls = [(later - before) * 1e3 for before, later in pairwise(written)]
    own = own_code_ms(range(2, count))  # graded by the students' names
    rest = [wall - code for wall, code in zip(walls, own, strict=True)]
    return {
        "wall_ms": median(walls),
        "own_code_ms": median(own),
        "beside_own_code_ms": median(rest),
        "beside_own_code_ms_90th": quantiles(rest, n=10)[8],
    }


def left_over(courses: Sequence[Path]) -> dict[str, int]:
    """List what our commands left: processes (this one inherits all orphans), temporary files, mounted namespaces."""
    time.sleep(1.0)
    alive = [each for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE]
    files = [path for course in courses for path in (course / "temporary").rglob("*")]
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - nsfs " in line]
    return {"processes": len(alive), "files": len(files), "namespaces": len(mounts)}


def compare(folder: Path, rounds: int, submissions: int, peers: int) -> dict[str, Any]:
    """Time the three programs in turn, because a machine's speed drifts; each figure is the median of the rounds."""
    blank = folder / "blank"
    write_course(blank, ())
    nbgrader(blank, "generate_assignment", LAB)
    found: dict[str, list[float]] = {}
    peaks: list[int] = []
    ours: list[Path] = []
    different = 0
    for number in range(rounds):
        course, alone = folder / f"ours{number}", folder / f"alone{number}"
        write_course(course, range(submissions))
        pace = labkit(course, CORES, peaks)
        ours.append(course)
        serial = nbgrader(_copied(blank, alone, range(peers)), "autograde", LAB)
        parts = [range(at * peers, (at + 1) * peers) for at in range(CORES)]
        four = [_copied(blank, folder / f"four{number}-{at}", part) for at, part in enumerate(parts)]
        # One thread each: with torch's own choice, four processes would take twice as long.
        paces, _ = at_once([lambda each=each: nbgrader(each, "autograde", LAB, threads=1) for each in four])
        theirs_alone = serial.start_up_seconds + submissions / serial.rate
        rate_of_four = sum(each.rate for each in paces)
        start_of_four = median([each.start_up_seconds for each in paces])
        theirs_in_four = start_of_four + submissions / rate_of_four
        third = len(pace.written) // 3
        first, last = pace.written[min(2 * CORES, third // 2) : third], pace.written[-third:]
        for name, value in {
            "labkit_per_minute": 60 * pace.rate,
            "labkit_start_up_seconds": pace.start_up_seconds,
            "labkit_seconds": pace.seconds,
            "labkit_last_third_by_first": ((len(last) - 1) / (last[-1] - last[0]))
            / ((len(first) - 1) / (first[-1] - first[0])),
            "nbgrader_per_minute": 60 * serial.rate,
            "nbgrader_start_up_seconds": serial.start_up_seconds,
            "nbgrader_class_seconds": theirs_alone,
            "four_nbgraders_per_minute": 60 * rate_of_four,
            "four_nbgraders_start_up_seconds": start_of_four,
            "four_nbgraders_class_seconds": theirs_in_four,
            "times_nbgrader": theirs_alone / pace.seconds,
            "times_four_nbgraders": theirs_in_four / pace.seconds,
            "times_nbgrader_without_start_ups": pace.rate / serial.rate,
            "times_four_nbgraders_without_start_ups": pace.rate / rate_of_four,
        }.items():
            found.setdefault(name, []).append(value)
        given = marks(course)
        assert len(given) == submissions
        their_marks = marks(alone) | {student: each for other in four for student, each in marks(other).items()}
        for student, each in their_marks.items():
            if given[student] != each:
                print(f"{student}: ours {given[student]}, nbgrader's {each}", file=sys.stderr)
                different += 1
    return {
        **{name: median(values) for name, values in found.items()},
        "students_with_other_marks": different,
        "grader_peak_bytes": max(peaks),
        **{f"left_over_{name}": count for name, count in left_over(ours).items()},
    }


def _copied(blank: Path, course: Path, students: Sequence[int]) -> Path:
    shutil.copytree(blank, course, ignore=lambda folder, names: {"submitted", "source"} & set(names))
    write_course(course, students)
    return course


def bars(result: dict[str, Any]) -> list[tuple[str, bool]]:
    times, of_four = result["times_nbgrader"], result["times_four_nbgraders"]
    spent, peak = result["beside_own_code_ms"], result["grader_peak_bytes"]
    left = {name: count for name, count in result.items() if name.startswith("left_over_") and count}
    return [
        (f"{times:.1f}x nbgrader (bar: {RATIO_BAR:g}x)", times >= RATIO_BAR),
        (f"{of_four:.1f}x four nbgrader processes (bar: {RATIO_OF_FOUR_BAR:g}x)", of_four >= RATIO_OF_FOUR_BAR),
        (f"{spent:.0f} ms beside the student's own code (bar: {BESIDE_BAR_MS:g} ms)", spent <= BESIDE_BAR_MS),
        (f"{peak / 1e6:.0f} MB in the grader (bar: {MEMORY_BAR_BYTES / 1e6:g} MB)", peak < MEMORY_BAR_BYTES),
        (f"left behind: {left or 'nothing'}", not left),
        (
            f"students whose marks differ: {result['students_with_other_marks']}",
            not result["students_with_other_marks"],
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=240, help="of ours, a round")
    parser.add_argument("--peers", type=int, default=4, help="submissions that one nbgrader process grades a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one round of 40 and 3 submissions, and no result file")
    arguments = parser.parse_args()
    if arguments.submissions < 12:
        parser.error("--submissions takes at least 12: the rates are those of the first and the last third")
    rounds, submissions, peers = arguments.rounds, arguments.submissions, arguments.peers
    if peers < 2:
        parser.error(f"--peers {peers}: at least 2, because the time of the first holds nbgrader's start")
    if arguments.quick:
        rounds, submissions, peers = 1, 40, 3
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: what a command leaves behind comes to us
    with tempfile.TemporaryDirectory(prefix="grading-") as name:
        folder = Path(name)
        result: dict[str, Any] = {"cells": 24, "submissions": submissions, "rounds": rounds, "peers": peers}
        result |= compare(folder, rounds, submissions, peers) | beside(folder, 20 if arguments.quick else 60)
    for key, value in result.items():
        print(f"{key:<44}{value if isinstance(value, int) else round(value, 2)!s:>14}")
    held = bars(result)
    for line, holds in held:
        print(f"{'holds' if holds else 'MISSED':<8}{line}")
    if not arguments.quick:
        write_result("grading", result)
    return int(not all(holds for _, holds in held))


if __name__ == "__main__":
    sys.exit(main())
