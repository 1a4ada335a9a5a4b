"""Tests of what ``labkit run`` refuses: one line that says what to do, an exit code, and no partial files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mlsys_grading.report import write
from mlsys_labkit._frontends.cli import main
from mlsys_labkit.errors import LabkitError
from tests.grading.run_helpers import write_notebook


@pytest.fixture
def labs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_notebook(tmp_path / "labs", "lab01", "a = 1")
    return tmp_path / "labs"


def refuse(capsys, *arguments: object) -> str:
    """Run a refused command, and return the one line that it prints."""
    assert main(["run", *map(str, arguments), "--no-roofline"]) == 2
    output = capsys.readouterr()
    assert output.err.count("\n") == 1
    return output.err


def test_unknown_name_lists_what_there_is(labs, capsys):
    line = refuse(capsys, "lab07", "--notebooks", labs)
    assert "'lab07'" in line
    assert "lab01" in line
    assert not (labs.parent / "build").exists() or not any((labs.parent / "build").iterdir())


def test_missing_and_empty_folders(labs, capsys, tmp_path):
    assert "no such folder" in refuse(capsys, "--notebooks", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "folder.ipynb").mkdir()
    assert "no .ipynb files" in refuse(capsys, "--notebooks", tmp_path / "empty")


def test_two_notebooks_of_one_name(labs, capsys):
    write_notebook(labs / "deeper", "lab01", "a = 1")
    assert "rename one" in refuse(capsys, "--notebooks", labs)


def test_outside_a_checkout(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "checkout" in refuse(capsys)


def test_a_folder_that_is_no_report_is_never_replaced(labs, capsys, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("years")
    assert "is no report" in refuse(capsys, "--notebooks", labs, "--out", precious)
    assert (precious / "thesis.tex").read_text() == "years"


def test_a_file_in_the_way_of_the_report(labs, capsys, tmp_path):
    (tmp_path / "file").write_text("x")
    assert "--out" in refuse(capsys, "--notebooks", labs, "--out", tmp_path / "file" / "report")
    assert "--out" in refuse(capsys, "--notebooks", labs, "--out", tmp_path / "file")


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a place that even root cannot write: Linux's /sys")
def test_a_read_only_place_is_said_before_anything_runs(labs, capsys):
    line = refuse(capsys, "--notebooks", labs, "--out", "/sys/kernel/report")
    assert "cannot write the report" in line
    assert "--out" in line


@pytest.mark.parametrize(
    "arguments", [["--jobs", "0"], ["--jobs", "two"], ["--timeout-cell", "-1"], ["--timeout-notebook", "nan"]]
)
def test_invalid_arguments_are_refused(labs, arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["run", "--notebooks", str(labs), *arguments])
    assert caught.value.code == 2
    assert "expected a" in capsys.readouterr().err


def test_a_full_disk_while_the_report_is_written_leaves_the_old_one(labs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    with write.staging(out) as stage:
        (stage / write.DATA).write_text("{}")
        write.publish(stage, out)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(write, "fill", full)
    assert main(["run", "--notebooks", str(labs), "--out", str(out), "--no-roofline"]) == 2
    assert f"No space left on device: {out}\n" in capsys.readouterr().err
    assert (out / write.DATA).read_text() == "{}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labs", "out"]


def test_staging_cleans_up_and_publish_puts_the_old_report_back(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with write.staging(out) as stage:
        (stage / write.DATA).write_text("old")
        write.publish(stage, out)
    rename = Path.rename

    def fail_on_stage(self: Path, target: Path) -> Path:
        if self.name.startswith(".out-") and not self.name.endswith(".old"):
            raise OSError(errno.EIO, "torn")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_on_stage)
    with pytest.raises(OSError, match="torn"), write.staging(out) as stage:  # noqa: PT012
        (stage / write.DATA).write_text("new")
        write.publish(stage, out)
    assert (out / write.DATA).read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_new_report_replaces_all_of_the_old(tmp_path):
    out = tmp_path / "out"
    for name in ("first", "second"):
        with write.staging(out) as stage:
            (stage / write.DATA).write_text(name)
            (stage / name).write_text("")
            write.publish(stage, out)
    assert sorted(path.name for path in out.iterdir()) == ["notebooks", "report.json", "second"]


def test_staging_refuses_what_it_would_destroy(tmp_path):
    (tmp_path / "keep").write_text("x")
    with pytest.raises(LabkitError, match="is no report"), write.staging(tmp_path):
        pass
