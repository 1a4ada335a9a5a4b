"""Fixtures of the graders' tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.grade import work
from mlsys_grading.grade.modules import ALWAYS
from mlsys_grading.sandbox.confine import refusal
from tests.grading.course import FIXTURE, Course
from tests.grading.nbgrader_cli import NbgraderCourse
from tests.grading.release_helpers import git


@pytest.fixture(scope="session", autouse=True)
def fork_server() -> Iterator[Callable[[Sequence[str]], ForkServer]]:
    """Return a function that starts a server with given modules, and with what every lab imports.

    It is a clone of one server for all tests and all runs of ``labkit grade`` in this process, because the imports take
    four seconds of processor time. Another environment has its own server, and so has a new interpreter.
    """
    originals: dict[object, ForkServer] = {}
    with (
        ThreadPoolExecutor(1) as starter,  # a server ends with the thread that started it
        ExitStack() as stack,
        pytest.MonkeyPatch.context() as patch,
    ):

        def server(modules: Sequence[str]) -> ForkServer:
            variables = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
            key = (frozenset(variables.items()), os.getcwd())
            if key not in originals or not originals[key].is_alive:
                originals[key] = stack.enter_context(starter.submit(ForkServer, ALWAYS).result())
            return originals[key].clone(modules)

        patch.setattr(work, "ForkServer", server)
        yield server


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """Return a fresh copy of the tiny checkout."""
    return Course(Path(shutil.copytree(FIXTURE, tmp_path / "course")))


@pytest.fixture
def nbgrader(tmp_path: Path) -> NbgraderCourse:
    """Return an empty nbgrader course."""
    return NbgraderCourse(tmp_path / "nbgrader")


@pytest.fixture(scope="session")
def sandbox_allowed() -> None:
    """Skip the tests that use it where this machine allows no sandbox."""
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")


@pytest.fixture
def settled_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a date and a committer: git on a bare machine has none."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ada@example.edu")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return the folder that a release is written to."""
    return tmp_path / "students"


@pytest.fixture
def repository(out: Path) -> Path:
    """Return the same folder as a git repository without commits."""
    out.mkdir()
    git(out, "init", "--quiet", "--initial-branch=main")
    return out
