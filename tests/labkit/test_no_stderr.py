"""Modules of the kit that may write to stderr: a notebook shows it on red, and nbgrader gives such a test no points."""

from __future__ import annotations

import re

from tests.conftest import ROOT

WRITES = re.compile(r"sys\.(?:__)?stderr|tqdm|StreamHandler|basicConfig|log_to_stderr")
ALLOWED = {
    "_frontends/cli.py": "a terminal",
    "cuda/program/run.py": "what the student's own program writes there",
    "datasets/make_words.py": "a terminal",
    "ranks/local/copying.py": "not written to: a rank's copies name the stream itself",
    "ranks/local/places.py": "not written to: each rank has its own redirection",
    "ranks/local/run.py": "what the student's own ranks write there",
    "ranks/processes/host.py": "flushed before a fork",
    "ranks/processes/worker.py": "the stream of a process of its own",
}


def test_only_terminals_and_the_students_own_programs_write_to_stderr() -> None:
    kit = ROOT / "mlsys_labkit"
    found = {
        path.relative_to(kit).as_posix()
        for path in kit.rglob("*.py")
        if any(WRITES.search(line.partition("#")[0]) for line in path.read_text("utf-8").splitlines())
    }
    found.discard("ranks/local/output.py")  # names the stream in a docstring
    assert found == set(ALLOWED)
