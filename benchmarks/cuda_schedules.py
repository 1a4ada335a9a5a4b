"""Benchmark of ``check`` over 100 orders of warps and lanes per compiler: correct kernels accused, planted bugs missed.

    python benchmarks/cuda_schedules.py [--seeds 100] [g++-12 g++-13 ...]

The kernels are those of tests/cuda: planted_races.py, race_free_kernels.py, and test_corpus.py's,
each of which is correct but for two that have a race. Compilers are commands (without any: CXX, or what is found).
Results go to results/cuda_schedules.json, an entry for each version of g++ and kind of processor, which replaces the
older one of the same and leaves the others, since not every compiler can be installed on one machine. The exit status
is 1 when a finding was false or missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from record import RESULTS, write_result

from mlsys_labkit._base.limits import usable_cores

ROOT = Path(__file__).parent.parent
NAME = "cuda_schedules"


@dataclass(frozen=True)
class Outcome:
    """Results of one compiler's kernels. The last lists name kernel and seed, and have to be empty."""

    gxx: str
    machine: str
    system: str
    cores: float
    date: str
    seeds: int
    correct_kernels: int
    planted_bugs: int
    launches: int
    seconds: float
    false_findings: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.false_findings and not self.missed


Trial = Callable[[int], bool]  # seed -> True if check reported what is expected


def trials() -> tuple[Mapping[str, Trial], Mapping[str, Trial]]:
    """Return the correct kernels and the planted bugs by name."""
    sys.path.insert(0, os.fspath(ROOT))
    from tests.cuda import planted_races, race_case, race_free_kernels, test_corpus as corpus

    def is_found(case: race_case.Case, seed: int) -> bool:
        try:
            race_case.expect_planted(case, seed)
        except AssertionError:
            return False
        return True

    def has_its_kinds(key: tuple[str, str], seed: int) -> bool:
        case = corpus.CASES[key]
        kernel = corpus.kernels(key[0])(key[1])
        check = kernel.check.seeded(seed) if seed else kernel.check
        return {finding.kind for finding in check[case.shape](*corpus.fresh(case))} == case.kinds

    correct = {name: lambda seed, case=case: case.find(seed) == [] for name, case in race_free_kernels.CORRECT.items()}
    planted = {name: lambda seed, case=case: is_found(case, seed) for name, case in planted_races.PLANTED.items()}
    for key, case in corpus.CASES.items():
        kind = planted if case.kinds else correct
        kind["corpus: " + "/".join(key)] = lambda seed, key=key: has_its_kinds(key, seed)
    return correct, planted


def measure(seeds: int) -> Outcome:
    """Run every trial under each seed with this process's compiler, and return the trials that came out wrong."""
    from mlsys_labkit.cuda.kernel.gcc.toolchain import find_toolchain

    toolchain = find_toolchain()
    correct, planted = trials()
    wrong: dict[str, list[str]] = {"correct": [], "planted": []}
    whole = [("correct", *each) for each in correct.items()] + [("planted", *each) for each in planted.items()]
    start = time.monotonic()
    for done, (kind, name, trial) in enumerate(whole, 1):
        wrong[kind] += [f"{name}, seed {seed}" for seed in range(seeds) if not trial(seed)]
        left = (time.monotonic() - start) / done * (len(whole) - done)
        bad = sum(map(len, wrong.values()))
        print(
            f"g++ {toolchain.version}: {done} of {len(whole)} kernels, {bad} wrong, about {left:.0f} s left",
            end="\n" if done == len(whole) else "\r",
            file=sys.stderr,
            flush=True,
        )
    return Outcome(
        gxx=toolchain.version,
        machine=toolchain.machine,
        system=platform.freedesktop_os_release()["PRETTY_NAME"],
        cores=usable_cores(),
        date=date.today().isoformat(),
        seeds=seeds,
        correct_kernels=len(correct),
        planted_bugs=len(planted),
        launches=len(whole) * seeds,
        seconds=round(time.monotonic() - start, 1),
        false_findings=tuple(wrong["correct"]),
        missed=tuple(wrong["planted"]),
    )


def measure_with(command: str, seeds: int) -> Outcome:
    """Run ``measure`` in a new process: a process keeps the compiler that it first found."""
    environment = {**os.environ, "CXX": command} if command else dict(os.environ)
    child = [sys.executable, __file__, "--seeds", str(seeds), "--child"]
    said = subprocess.run(child, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return Outcome(**json.loads(said.splitlines()[-1]))


def kept(outcomes: list[Outcome]) -> list[dict[str, object]]:
    """Return the file's entries, replaced by these where both exist, in order of processor and version."""
    path = RESULTS / f"{NAME}.json"
    known = json.loads(path.read_text())["result"]["compilers"] if path.exists() else []
    entries = {(each["machine"], each["gxx"]): each for each in [*known, *map(asdict, outcomes)]}
    return [
        entries[key] for key in sorted(entries, key=lambda key: (key[0] != "x86_64", [*map(int, key[1].split("."))]))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="check over many orders of warps and lanes, under each compiler.")
    parser.add_argument("compilers", nargs="*", default=[""], metavar="g++")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(asdict(measure(arguments.seeds))))
        return 0
    outcomes = [measure_with(command, arguments.seeds) for command in arguments.compilers]
    for each in outcomes:
        print(
            f"g++ {each.gxx} on {each.machine}: {each.launches:,} launches of {each.correct_kernels} correct kernels "
            f"and {each.planted_bugs} planted bugs in {each.seconds:g} s; "
            f"false {len(each.false_findings)}, missed {len(each.missed)}"
        )
        for place in (*each.false_findings, *each.missed):
            print(f"  {place}")
    write_result(NAME, {"compilers": kept(outcomes)})
    return 0 if all(each.clean for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
