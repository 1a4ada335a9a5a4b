"""Tests of people and their uids: stable, different, and not accounts of the machine."""

from __future__ import annotations

import multiprocessing
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mlsys_grading.hub import accounts
from mlsys_grading.hub.accounts import Accounts
from mlsys_grading.hub.enter import Entry, hand_out, unreachable
from mlsys_labkit.errors import LabkitError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


@as_root
def test_uid_is_stable(tmp_path: Path) -> None:
    people = [Accounts(tmp_path).person(name) for name in ("ada", "bob", "ada")]
    assert people[0] == people[2]
    assert people[0].uid != people[1].uid
    assert Accounts(tmp_path).people() == tuple(people[:2])


@as_root
def test_home_is_closed_to_others(tmp_path: Path) -> None:
    person = Accounts(tmp_path).person("ada")
    about = person.home.stat()
    assert (about.st_uid, stat.S_IMODE(about.st_mode)) == (person.uid, 0o700)


@as_root
def test_passwd_is_readable_by_glibc(tmp_path: Path) -> None:
    """Let glibc read the file, in a mount namespace of its own."""
    person = Accounts(tmp_path).person("ada")
    asked = f"import pwd; p = pwd.getpwuid({person.uid}); print(p.pw_name, p.pw_dir, pwd.getpwuid(0).pw_name)"
    script = f"mount --bind {tmp_path}/passwd /etc/passwd && exec {sys.executable} -c '{asked}'"
    made = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no mount namespace here: {made.stderr.strip()}")
    assert made.stdout.split() == ["ada", str(person.home), "root"]


@pytest.mark.parametrize("name", ["", "Ada", "../ada", "a:b", "a\nroot:x:0:0", ".ada", "a" * 33, "-ada"])
def test_malformed_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LabkitError, match="no name"):
        Accounts(tmp_path).person(name)


@as_root
def test_name_of_a_system_account_is_refused(tmp_path: Path) -> None:
    taken = next(each.pw_name for each in pwd.getpwall() if 0 <= each.pw_uid < 100)
    with pytest.raises(LabkitError, match="this machine's own"):
        Accounts(tmp_path).person(taken)


@as_root
def test_line_cut_short_by_a_crash_is_replaced(tmp_path: Path) -> None:
    ada = Accounts(tmp_path).person("ada")
    with open(tmp_path / "passwd", "a") as file:
        file.write("bob:x:19000")
    assert Accounts(tmp_path).people() == (ada,)
    bob = Accounts(tmp_path).person("bob")
    assert bob.uid != ada.uid
    assert Accounts(tmp_path).people() == (ada, bob)


def _come(state: Path, names: list[str]) -> list[int]:
    return [Accounts(state).person(name).uid for name in names]


@as_root
def test_concurrent_people_get_different_uids(tmp_path: Path) -> None:
    names = [f"student{number}" for number in range(20)]
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        found = pool.starmap(_come, [(tmp_path, names[start:] + names[:start]) for start in (0, 5, 10, 15)])
    uids = {person.name: person.uid for person in Accounts(tmp_path).people()}
    assert sorted(uids) == sorted(names)
    assert len(set(uids.values())) == len(names)
    for start, told in zip((0, 5, 10, 15), found, strict=True):
        assert told == [uids[name] for name in names[start:] + names[:start]]


@as_root
def test_exhausted_uids_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_uids", lambda: (5000, 5001))
    for name in ("ada", "bob"):
        Accounts(tmp_path).person(name)
    with pytest.raises(LabkitError, match="no uid is left"):
        Accounts(tmp_path).person("eve")


@as_root
def test_passwd_keeps_its_inode(tmp_path: Path) -> None:
    """Compare the inode: servers see the file through a mount, and would not see a new file of that name."""
    Accounts(tmp_path).person("ada")
    before = (tmp_path / "passwd").stat().st_ino
    Accounts(tmp_path).person("bob")
    assert (tmp_path / "passwd").stat().st_ino == before


def test_entry_survives_json() -> None:
    entry = Entry(1, 2, "/", hidden=("/a",), placed=(("/b", "/c"),))
    read = Entry.from_json(entry.to_json())
    assert (read.uid, list(read.hidden), [list(pair) for pair in read.placed]) == (1, ["/a"], [["/b", "/c"]])


def test_unreachable_finds_closed_folders(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    closed = tmp_path / "home"
    (closed / "python" / "bin").mkdir(parents=True)
    closed.chmod(0o750)
    assert str(closed) in unreachable([str(closed / "python" / "bin")]) or unreachable([str(tmp_path)])
    closed.chmod(0o711)
    assert str(closed) not in unreachable([str(closed / "python" / "bin")])


def test_hand_out_overwrites_nothing(tmp_path: Path) -> None:
    labs, where = tmp_path / "labs", tmp_path / "home" / "mlsys"
    for name in ("lab00", "lab01", "__pycache__"):
        (labs / name).mkdir(parents=True)
        (labs / name / f"{name}.ipynb").write_text("new")
    (where / "lab00").mkdir(parents=True)
    (where / "lab00" / "lab00.ipynb").write_text("mine")
    (where / ".lab01.part").mkdir()  # of a copy that was cut short
    (where / ".lab01.part" / "half").write_text("")
    hand_out(labs, where)
    assert (where / "lab00" / "lab00.ipynb").read_text() == "mine"
    assert [path.name for path in (where / "lab01").iterdir()] == ["lab01.ipynb"]
    assert sorted(path.name for path in where.iterdir()) == ["lab00", "lab01"]
