"""The labs of a new Hub can be handed in at once: its first start releases them."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

from mlsys_grading.hub.command import _make_sources
from mlsys_grading.hub.course import Course
from mlsys_grading.hub.enter import hand_out
from tests.hub.hub_process import ROOT, Hub, needs_hub

LAB = "lab00_your_machine"
LINKED = "](https://ada.example.edu/chapters/"


@needs_hub
@pytest.mark.xdist_group("own-hub")
@pytest.mark.timeout(900)
def test_a_student_hands_in_on_the_first_day(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("first")
    shutil.copytree(ROOT / "solutions" / LAB, folder / "solutions" / LAB)
    _make_sources(folder)
    (folder / "grading").mkdir()
    (folder / "grading/release.toml").write_text('[release]\nchapters = "https://ada.example.edu/chapters"\n')
    submit = """
import subprocess
done = subprocess.run(["nbgrader", "submit", "LAB", "--course", "mlsys"], capture_output=True, text=True)
print(done.returncode, done.stderr[-2000:])
listed = subprocess.run(["nbgrader", "list", "--course", "mlsys"], capture_output=True, text=True)
print(listed.stdout, listed.stderr)
"""
    with Hub(folder) as hub:
        ada = hub.log_in("ada")
        ada.start_server()
        told = ada.run(submit.replace("LAB", LAB))
        assert told.startswith("0 "), told
        assert f"mlsys {LAB}" in told
        (handed,) = (hub.state / "exchange/mlsys/inbound").glob(f"ada+{LAB}+*")
        assert (handed / f"{LAB}.ipynb").is_file()
        outbound = (hub.state / f"exchange/mlsys/outbound/{LAB}/{LAB}.ipynb").read_text()
        assert "BEGIN HIDDEN TESTS" not in outbound
        mine = ada.get(f"api/contents/mlsys/{LAB}/{LAB}.ipynb?format=text&type=file").json()["content"]
        source = (hub.state / f"course/source/{LAB}/{LAB}.ipynb").read_text()
        for text in (outbound, mine, source):
            assert LINKED in text
            assert "course/chapters" not in text


@pytest.mark.parametrize(
    ("address", "read"),
    [
        ("", "See Chapter 7."),
        ("https://ada.example.edu/", "See [Chapter 7](https://ada.example.edu/07_tiling.html#a)."),
    ],
)
def test_copies_link_to_chapters_where_they_are_served(tmp_path: Path, address: str, read: str) -> None:
    lab, owner = tmp_path / "labs/lab00", tmp_path.stat()
    lab.mkdir(parents=True)
    text = "See [Chapter 7](../../course/chapters/07_tiling.md#a)."
    notebook = {"cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": [text]}], "metadata": {}}
    (lab / "lab00.ipynb").write_text(json.dumps(notebook))
    (lab / "data.md").write_text(text)
    course = Course("ml", tmp_path / "course", tmp_path / "exchange", ("grace",))
    course.prepare(owner.st_uid, owner.st_gid, lab.parent, lab.parent, address)
    (tmp_path / "home").mkdir()
    hand_out(lab.parent, tmp_path / "home", address)
    for folder in ("course/source", "course/release", "exchange/ml/outbound", "home"):
        (cell,) = json.loads((tmp_path / folder / "lab00/lab00.ipynb").read_text())["cells"]
        assert cell["source"] == [read], folder
        assert (tmp_path / folder / "lab00/data.md").read_text() == text
    assert json.loads((lab / "lab00.ipynb").read_text()) == notebook


def test_what_an_instructor_has_released_stays(tmp_path: Path) -> None:
    sources, labs = tmp_path / "sources", tmp_path / "labs"
    for top, text in ((sources, "hidden"), (labs, "plain")):
        for name in ("lab00", "lab01"):
            (top / name).mkdir(parents=True)
            (top / name / f"{name}.ipynb").write_text(text)
            (top / name / f"{name}.ipynb").chmod(0o600)
    owner = tmp_path.stat()
    course = Course("ml", tmp_path / "course", tmp_path / "exchange", ("grace",))
    there = tmp_path / "exchange/ml/outbound/lab01"
    there.mkdir(parents=True)
    (there / "lab01.ipynb").write_text("changed")
    course.prepare(owner.st_uid, owner.st_gid, sources, labs)
    course.prepare(owner.st_uid, owner.st_gid, sources, labs)
    assert (there / "lab01.ipynb").read_text() == "changed"
    made = tmp_path / "exchange/ml/outbound/lab00"
    assert (made / "lab00.ipynb").read_text() == "plain"
    assert stat.S_IMODE((made / "lab00.ipynb").stat().st_mode) == 0o644
    assert stat.S_IMODE(made.stat().st_mode) == 0o755
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "course").stat().st_mode) == 0o700, "the sources are readable below a closed folder"
    bare = Course("ml", tmp_path / "course", tmp_path / "bare", ("grace",))
    bare.prepare(owner.st_uid, owner.st_gid, sources)
    assert not (tmp_path / "bare/ml/outbound/lab00").exists()


@pytest.mark.parametrize(
    "name", ["course/source", "course/submitted", "course/release", "exchange/ml", *(f"exchange/ml/{name}" for name in
             ("inbound", "outbound", "feedback"))]
)  # fmt: skip
def test_prepare_follows_no_link_of_the_course(tmp_path: Path, name: str) -> None:
    """Put a link where the course's user may: a Hub that runs as root would give the folder behind it to them."""
    sources, owner = tmp_path / "sources", tmp_path.stat()
    (sources / "lab00").mkdir(parents=True)
    (sources / "lab00/lab00.ipynb").write_text("plain")
    course = Course("ml", tmp_path / "course", tmp_path / "exchange", ("grace",))
    course.prepare(owner.st_uid, owner.st_gid, sources, sources)
    behind = tmp_path / "behind"
    behind.mkdir(mode=0o750)
    shutil.rmtree(tmp_path / name)
    (tmp_path / name).symlink_to(behind)
    with pytest.raises(OSError, match=name):
        course.prepare(owner.st_uid, owner.st_gid, sources, sources)
    assert list(behind.iterdir()) == []
    assert stat.S_IMODE(behind.stat().st_mode) == 0o750
