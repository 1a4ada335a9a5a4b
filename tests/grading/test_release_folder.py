"""The folder of a release: what is written, kept and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsys_labkit._base.released import read_release
from tests.grading.course import LAB, Course
from tests.grading.release_helpers import NOTEBOOK, files, release

pytestmark = pytest.mark.usefixtures("settled_git")


def test_check_says_what_differs_and_writes_nothing(
    course: Course, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release(course, out, "--check") == 1
    assert not out.exists()
    release(course, out)
    assert release(course, out, "--check") == 0
    (out / "README.md").write_text("mine\n")
    (out / f"labs/{LAB}/data/numbers.txt").unlink()
    course.edit(course.source, "# ## Scale", "# ## Scale, corrected")
    before = files(out)
    capsys.readouterr()
    assert release(course, out, "--check") == 1
    said = capsys.readouterr().err
    assert f"{out}/README.md: edited" in said
    for name in (NOTEBOOK, f"labs/{LAB}/data/numbers.txt", "labs/release.toml"):
        assert f"{out}/{name}: stale or missing" in said
    assert files(out) == before


def test_a_new_release_writes_what_changed_and_keeps_the_rest(course: Course, out: Path) -> None:
    (course.root / "LICENSE").write_text("free")
    (course.root / "constraints.txt").write_text("numpy==2\n")
    release(course, out)
    (out / "notes").mkdir()
    (out / "notes" / "mine.md").write_text("of the staff")
    (out / f"labs/{LAB}/mine.ipynb").write_text("of a student")
    (out / "constraints.txt").write_text("numpy==1\n")
    times = {name: (out / name).stat().st_mtime_ns for name in files(out)}
    course.edit(course.source, "# ## Scale", "# ## Scale, corrected")
    (course.root / "LICENSE").unlink()
    (course.root / "constraints.txt").unlink()
    assert release(course, out) == 0
    got = files(out)
    assert b"Scale, corrected" in got[NOTEBOOK]
    assert "LICENSE" not in got  # as the first release wrote it, so it may go
    assert got["constraints.txt"] == b"numpy==1\n"  # edited, so it stays
    assert got["notes/mine.md"] == b"of the staff"
    assert got[f"labs/{LAB}/mine.ipynb"] == b"of a student"
    written = {name for name in got if (out / name).stat().st_mtime_ns != times[name]}
    assert written == {".released", NOTEBOOK, "labs/release.toml"}


def test_the_date_is_that_of_the_last_change(course: Course, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release(course, out)
    first = read_release(out / "labs/release.toml").date
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")
    before = files(out)
    assert release(course, out) == 0
    assert release(course, out, "--check") == 0
    assert files(out) == before
    course.edit(course.source, "# ## Scale", "# ## Scale, corrected")
    release(course, out)
    assert read_release(out / "labs/release.toml").date > first


def test_edited_files_are_overwritten_only_by_force(
    course: Course, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release(course, out)
    (out / "README.md").write_text("mine\n")
    before = files(out)
    capsys.readouterr()
    assert release(course, out) == 1
    assert f"{out}/README.md: no release wrote it as it is now" in capsys.readouterr().err
    assert files(out) == before
    assert release(course, out, "--force") == 0
    assert b"# Labs on" in files(out)["README.md"]


def test_unsuitable_folders_are_refused(course: Course, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unknown, file, link = tmp_path / "unknown", tmp_path / "file", tmp_path / "link"
    unknown.mkdir()
    (unknown / "thesis.txt").write_text("the only copy")
    file.write_text("a file")
    link.symlink_to(course.root)
    cases = {
        course.root: "within the checkout", course.root / "build" / "x": "within the checkout",
        tmp_path: "within the checkout", link: "within the checkout", file: "is a file; name a folder",
        unknown: "holds thesis.txt and no earlier release",
    }  # fmt: skip
    for folder, words in cases.items():
        before = files(tmp_path)
        assert release(course, folder) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
        assert files(tmp_path) == before
    assert release(course, unknown, "--force") == 0
    assert (unknown / "thesis.txt").read_text() == "the only copy"


def test_links_do_not_lead_out(course: Course, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release(course, out)
    (out / "labs").rename(tmp_path / "elsewhere")
    (out / "labs").symlink_to(tmp_path / "elsewhere")
    course.edit(course.source, "# ## Scale", "# ## Scale, corrected")
    before = files(tmp_path / "elsewhere")
    assert release(course, out) == 2
    assert "labs is a link" in capsys.readouterr().err
    assert files(tmp_path / "elsewhere") == before


@pytest.mark.parametrize("line", ["no list", "0" * 64 + "  /etc/passwd", "0" * 64 + "  ../../thesis.txt"])
def test_damaged_manifest_is_refused(course: Course, out: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    release(course, out)
    with (out / ".released").open("a") as file:
        file.write(line + "\n")
    assert release(course, out) == 2
    assert f"{out}/.released:8: not what labkit release writes" in capsys.readouterr().err


def test_broken_labs_are_not_released(course: Course, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    course.edit(course.source, '"points": 40', '"points": 39')
    assert release(course, out) == 1
    assert "points: they sum to 99" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[release", "no TOML"),
        ("[release]\nrepo = 'a/b'", "there is no setting 'repo'; [release] has repository, branch, hub"),
        ("repository = 'a/b'", "there is no setting 'repository'"),
        ("release = 1", "there is no setting 'release'"),
        ("[release]\nrepository = 'https://github.com/a/b'", 'write "owner/name"'),
        ("[release]\nrepository = 7", "repository is 7"),
        ("[release]\nhub = 'hub.example.edu'", "write an address such as"),
        ("[release]\nhub = 'https://hub.example.edu'", "hub needs a repository"),
        ("[release]\nbranch = ''", "branch is empty"),
        ("[release]\nbranch = 'a b'", "branch is 'a b'"),
        ("[release]\nquestions = 'ask Ada'", "write an address of a forum"),
        ("[release]\nlabs = 'lab90'", "labs is 'lab90'; write names"),
        ("[release]\nlabs = ['lab77']", "there is no lab 'lab77'"),
    ],
)
def test_invalid_settings_are_refused(
    course: Course, out: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path = course.root / "mine.toml"
    path.write_text(text)
    assert release(course, out, "--settings", str(path)) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not out.exists()
