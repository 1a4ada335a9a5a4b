"""Secrets of the grader: a sandbox must not see its variables, its environment and its course."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.sandbox import root
from mlsys_grading.sandbox.confine import Sandbox, refusal
from mlsys_grading.sandbox.root import readable_paths
from tests.grading.test_fork_server import ask, everything
from tests.grading.test_grade import course, grade, hand_in
from tests.grading.test_sandbox import inside

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
    pytest.mark.usefixtures("sandbox_allowed"),
]


@pytest.fixture
def secret_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    monkeypatch.setenv("CANVAS_TOKEN", "s3cr3t-of-the-grader")
    monkeypatch.setenv("LABKIT_PASSWORD", "s3cr3t-of-the-grader")
    with ForkServer(["tests.grading.fork_server_work"]) as server:
        yield server


def test_graders_variables_are_not_readable(secret_server: ForkServer) -> None:
    forked, link = ask(secret_server, "read_memory")
    with forked:
        told = everything(link)
    assert b"PYTHONHASHSEED=0" in told  # of the server's own variables, so these were looked at
    assert b"s3cr3t" not in told


def test_sandbox_shows_environment_and_kit_but_not_the_course_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment beside the course, and a kit installed for development from a checkout with a course in it."""
    files = (
        ".venv/lib/torch.py",
        ".venv/share/nbgrader/exchange/other.ipynb",
        ".venv/etc/jupyter/token",
        "kit/course.toml",
        "kit/mlsys_labkit/__init__.py",
        "kit/solutions/lab.py",
        "kit/mycourse/source/lab.ipynb",
        "kit/.env",
        "course/gradebook.db",
        "course/submitted/other/lab/lab.ipynb",
        "home/.ssh/id",
        ".venv-of-another/x.py",
    )
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(root.sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setattr(root.mlsys_labkit, "__file__", str(tmp_path / "kit/mlsys_labkit/__init__.py"))
    private = (f"{tmp_path}/.venv/share/nbgrader", f"{tmp_path}/.venv/etc/jupyter")
    monkeypatch.setattr(root, "_PRIVATE", private)  # what an interpreter in that environment would have there

    def seen() -> list[str]:
        return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())

    assert inside(seen, Sandbox(readable=readable_paths())) == [".venv/lib/torch.py", "kit/mlsys_labkit/__init__.py"]
    assert root.shown_with(tmp_path / "course") == ""
    assert root.shown_with(tmp_path / ".venv/course") == f"{tmp_path}/.venv"


def test_private_folders_of_the_system_are_empty() -> None:
    assert "/usr/local/share/nbgrader" in root._PRIVATE  # nbgrader's default exchange
    there = [path for path in root._PRIVATE if os.path.isdir(path)]
    assert there
    assert inside(lambda: [os.listdir(path) for path in there]) == [[] for _ in there]


def test_an_environment_in_the_home_folder_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root.sys, "prefix", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "every submission could read" in refusal()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert str(tmp_path) in refusal()
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert refusal() == ""


def test_a_course_that_every_submission_could_read_is_not_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = course(tmp_path / "environment/course")
    hand_in(folder, "ada")
    monkeypatch.setattr(root.sys, "prefix", str(tmp_path / "environment"))
    assert grade(folder) == 2
    assert "move the course elsewhere" in capsys.readouterr().err
    assert not (folder / "gradebook.db").exists()
