"""Releases that would reveal a hidden line, and the repository that they are committed to."""

from __future__ import annotations

import gzip
import json
import py_compile
from pathlib import Path

import pytest

from mlsys_labkit import __version__
from tests.grading.course import LAB, Course
from tests.grading.release_helpers import LEAK, NEXT_LEAK, files, git, release

pytestmark = pytest.mark.usefixtures("settled_git")


def leak_line(course: Course) -> None:
    (course.root / "mlsys_labkit" / "helper.py").write_text(f"def helper(x):\n    {LEAK}")


def leak_hidden_test(course: Course) -> None:
    (course.root / "mlsys_labkit" / "helper.py").write_text(NEXT_LEAK)


def leak_wrong_answer(course: Course) -> None:
    (course.root / "pyproject.toml").write_text("# return np.full(len(x), x[0] * factor)\n")


def leak_in_data(course: Course) -> None:
    (course.source.parent / "data" / "more.json.gz").write_bytes(gzip.compress(json.dumps([LEAK]).encode()))


def leak_in_notebook(course: Course) -> None:
    (course.root / "mlsys_labkit" / "demo.ipynb").write_text(json.dumps({"cells": [{"source": [LEAK]}]}))


def leak_compiled(course: Course) -> None:
    source = course.root / "mlsys_labkit" / "helper.py"
    source.write_text(LEAK)
    py_compile.compile(str(source), str(source.with_suffix(".pyc")), doraise=True)
    source.unlink()


@pytest.mark.parametrize(
    "leak", [leak_line, leak_hidden_test, leak_wrong_answer, leak_in_data, leak_in_notebook, leak_compiled]
)
def test_release_with_a_hidden_line_is_refused(
    course: Course, out: Path, capsys: pytest.CaptureFixture[str], leak: object
) -> None:
    assert release(course, out) == 0
    before = files(out)
    leak(course)  # type: ignore[operator]
    assert release(course, out) == 1
    said = capsys.readouterr().err
    assert " holds solutions/" in said or "is compiled Python" in said
    assert "nothing was released" in said
    assert files(out) == before
    assert release(course, out, "--check") == 1


def test_existing_files_of_the_folder_are_searched(
    course: Course, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release(course, repository, "--commit") == 0
    (repository / "notes.md").write_text(LEAK)
    for arguments in ([], ["--check"]):
        assert release(course, repository, *arguments) == 1
        assert f"notes.md holds solutions/{LAB}" in capsys.readouterr().err
    git(repository, "add", "notes.md")
    git(repository, "commit", "--quiet", "--message", "Notes")
    git(repository, "rm", "--quiet", "notes.md")
    git(repository, "commit", "--quiet", "--message", "No notes")
    assert release(course, repository) == 1
    assert "git blob" in capsys.readouterr().err


# Git


def test_commit_takes_the_release_and_nothing_else(
    course: Course, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (course.root / "LICENSE").write_text("free")
    assert release(course, repository) == 0
    assert git(repository, "ls-files") == ""  # nothing is committed unasked
    (repository / "staged.md").write_text("staged by somebody")
    git(repository, "add", "staged.md")
    assert release(course, repository, "--commit") == 0
    assert f"git -C {repository} push" in capsys.readouterr().out
    assert set(git(repository, "ls-tree", "-r", "--name-only", "HEAD").split()) == set(files(repository)) - {
        "staged.md"
    }
    assert git(repository, "log", "--format=%s%n%an") == f"Release {__version__} of 2023-11-14 22:13 UTC\nAda\n"
    assert git(repository, "status", "--porcelain") == "A  staged.md\n"
    assert release(course, repository, "--commit") == 0  # nothing new: no second commit
    assert git(repository, "rev-list", "--count", "HEAD") == "1\n"
    (course.root / "LICENSE").unlink()
    assert release(course, repository) == 0  # removed without a commit ...
    assert release(course, repository, "--commit") == 0  # ... and committed later
    assert "LICENSE" not in git(repository, "ls-tree", "-r", "--name-only", "HEAD").split()
    assert git(repository, "status", "--porcelain") == "A  staged.md\n"
    assert git(repository, "ls-files", "-s", "README.md").startswith("100644")


def test_commit_needs_a_repository_of_its_own(
    course: Course, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "init", "--quiet")
    out.mkdir()
    assert release(course, out, "--commit") == 2
    assert "is no git repository of its own" in capsys.readouterr().err
    assert files(out) == {}


def test_a_repository_that_cannot_be_searched_gets_no_release(
    course: Course, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out.mkdir()
    (out / ".git").write_text("gitdir: /nowhere\n")
    assert release(course, out) == 2
    assert "is a repository that git cannot read" in capsys.readouterr().err
    assert files(out) == {}


def test_worktree_of_the_checkout_is_refused_for_its_history(
    course: Course, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(course.root, "init", "--quiet", "--initial-branch=main")
    git(course.root, "add", "--all")
    git(course.root, "commit", "--quiet", "--message", "Everything")
    git(course.root, "worktree", "add", "--quiet", "--detach", "--no-checkout", str(out))
    assert release(course, out) == 1
    assert "git blob" in capsys.readouterr().err
    assert files(out) == {}


def test_refused_commit_is_one_line(course: Course, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not on a Friday >&2\nexit 1\n")
    hook.chmod(0o755)
    assert release(course, repository, "--commit") == 2
    assert "git did not commit them (not on a Friday)" in capsys.readouterr().err
