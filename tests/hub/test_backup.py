"""Tests of backup and restore, on a state folder of JupyterHub's and nbgrader's own models that others write to."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from traitlets.config import Config

from mlsys_grading.hub.backup import back_up, restore
from mlsys_grading.hub.settings import BackupTable, ExchangeTable, HubSettings, HubTable, read_settings
from mlsys_labkit.errors import LabkitError
from tests.hub.guide import TESTED, run
from tests.hub.hub_process import Hub, needs_hub


@pytest.fixture(scope="module", autouse=True)
def _programs_of_this_environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # JupyterHub calls alembic
        yield


def hand_in(state: Path, student: str) -> Path:
    folder = state / f"exchange/mlsys/inbound/{student}+lab01+2026-01-01 00:00:00.000000 UTC+secret"
    folder.mkdir(parents=True)
    (folder / "lab01.ipynb").write_text(f"{student}'s answer", encoding="utf-8")
    folder.chmod(0o2711)
    return folder


@pytest.fixture
def state(tmp_path, a_hub):
    """Return the state folder of a Hub in which ada has handed in lab01."""
    return Path(shutil.copytree(a_hub, tmp_path / "hub"))


@pytest.fixture(scope="module")
def a_hub(tmp_path_factory):
    from jupyterhub import orm
    from nbgrader.api import Gradebook

    state = tmp_path_factory.mktemp("made") / "hub"
    (state / "course").mkdir(parents=True, mode=0o700)
    state.chmod(0o700)
    for name, mode in (("homes/ada", 0o700), ("tmp/ada", 0o700), ("logs", 0o700)):
        (state / name).mkdir(parents=True, mode=mode)
    (state / "homes/ada/mine.db").write_text("hers: no database of the Hub's", encoding="utf-8")
    (state / "tmp/ada/big").write_text("of no use", encoding="utf-8")
    for name in ("cookie_secret", "proxy_token"):
        (state / name).write_text("a" * 64, encoding="utf-8")
        (state / name).chmod(0o600)
    (state / "passwd").write_text("ada:x:1900000000:1900000000::/homes/ada:/bin/bash\n", encoding="utf-8")
    db = orm.new_session_factory(f"sqlite:///{state}/jupyterhub.sqlite")()
    db.add(orm.User(name="ada"))
    db.commit()
    db.close()
    with Gradebook(f"sqlite:///{state}/course/gradebook.db", "mlsys") as book:
        book.add_assignment("lab01")
        book.add_student("ada")
        book.add_submission("lab01", "ada")
    hand_in(state, "ada")
    return state


def settings_of(state: Path) -> HubSettings:
    """Return the settings, and write their file, of a Hub with that state folder."""
    file = state.parent / "hub.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("", encoding="utf-8")
    return HubSettings(file, hub=HubTable(state=str(state)))


ROWS = 2000  # which every transaction changes: all are of one number, or the copy is of no moment


@pytest.fixture
def busy(state: Path) -> Iterator[list[int]]:
    """Write to both databases until the test ends; the list counts the commits to each.

    Transactions are larger than the cache, so that what is not committed reaches the file, too.
    """
    stop, committed = threading.Event(), [0, 0]

    def write(which: int, name: str) -> None:
        book = sqlite3.connect(state / name, timeout=600)
        book.execute("PRAGMA cache_size = 2")
        book.execute("CREATE TABLE traffic (n INTEGER, filler BLOB)")
        book.executemany("INSERT INTO traffic VALUES (0, ?)", [(bytes(100),)] * ROWS)
        book.commit()
        while not stop.wait(0.05):
            n = committed[which]
            book.execute("UPDATE traffic SET n = n + 1")
            stop.wait(0.05)
            book.commit()
            committed[which] = n + 1
        book.close()

    threads = [
        threading.Thread(target=write, args=each) for each in enumerate(("jupyterhub.sqlite", "course/gradebook.db"))
    ]
    for thread in threads:
        thread.start()
    try:
        while not all(committed):
            assert all(thread.is_alive() for thread in threads)
            stop.wait(0.01)
        yield committed
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def last_moment(path: Path) -> int:
    """Return the number of the last transaction in a copy, which must hold no part of the next one."""
    book = sqlite3.connect(path)
    assert book.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    [(n, rows)] = book.execute("SELECT n, count(*) FROM traffic GROUP BY n").fetchall()
    book.close()
    assert rows == ROWS
    return int(n)


def test_a_hub_in_use_is_backed_up_and_restored_with_its_submission(state, busy, tmp_path):
    from jupyterhub import orm
    from nbgrader.api import Gradebook
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.exchange.default import ExchangeCollect

    elsewhere = tmp_path / "elsewhere/hub"
    before = min(busy)
    backup = back_up(settings_of(state), tmp_path / "backup")
    assert backup.stat().st_mode & 0o077 == 0
    restore(settings_of(elsewhere), backup)

    for name in ("jupyterhub.sqlite", "course/gradebook.db"):
        assert last_moment(elsewhere / name) >= before
    db = orm.new_session_factory(f"sqlite:///{elsewhere}/jupyterhub.sqlite")()
    assert orm.User.find(db, "ada") is not None
    db.close()
    with Gradebook(f"sqlite:///{elsewhere}/course/gradebook.db", "mlsys") as book:
        assert book.find_submission("lab01", "ada").student.id == "ada"
    for name in ("cookie_secret", "proxy_token", "passwd", "homes/ada/mine.db"):
        assert (elsewhere / name).read_bytes() == (state / name).read_bytes()
        assert (elsewhere / name).stat().st_mode == (state / name).stat().st_mode
    assert (elsewhere / "homes/ada").stat().st_mode & 0o777 == 0o700
    assert elsewhere.stat().st_mode & 0o777 == 0o700
    assert not (elsewhere / "tmp").exists()

    # nbgrader collects from the restored exchange what was handed in before.
    config = Config()
    config.CourseDirectory.root, config.CourseDirectory.course_id = str(elsewhere / "course"), "mlsys"
    config.CourseDirectory.assignment_id, config.Exchange.root = "lab01", str(elsewhere / "exchange")
    ExchangeCollect(coursedir=CourseDirectory(config=config), config=config).start()
    handed_in = elsewhere / "course/submitted/ada/lab01/lab01.ipynb"
    assert handed_in.read_text(encoding="utf-8") == "ada's answer"


def test_owners_of_submissions_survive(state, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    folder = next((state / "exchange/mlsys/inbound").iterdir())
    for path in (folder, *folder.iterdir()):
        os.chown(path, 1_900_000_000, 1_900_000_000)
    os.chown(state / "course", 1_900_000_001, 1_900_000_001)
    restore(settings_of(tmp_path / "restored"), back_up(settings_of(state), tmp_path / "backup"))
    restored = next((tmp_path / "restored/exchange/mlsys/inbound").iterdir())
    assert (restored.stat().st_uid, restored.stat().st_mode) == (1_900_000_000, folder.stat().st_mode)
    assert (restored / "lab01.ipynb").stat().st_uid == 1_900_000_000
    assert (tmp_path / "restored/course/gradebook.db").stat().st_uid == 1_900_000_001


def test_a_restore_moves_away_what_was_there(state, tmp_path):
    backup = back_up(settings_of(state), tmp_path / "backup")
    late = hand_in(state, "bob")
    old = restore(settings_of(state), backup)
    assert not late.exists()
    assert old is not None
    assert (old / late.relative_to(state)).exists()


def test_backup_of_a_broken_database_fails(state, tmp_path):
    path = state / "jupyterhub.sqlite"
    data = bytearray(path.read_bytes())
    data[4096:8192] = bytes(range(256)) * 16  # a page that is no page
    path.write_bytes(data)
    with pytest.raises(LabkitError, match=r"jupyterhub\.sqlite"):
        back_up(settings_of(state), tmp_path / "backup")
    assert list((tmp_path / "backup").iterdir()) == []


@pytest.mark.parametrize("name", ["jupyterhub.sqlite", "course/gradebook.db"])
def test_backup_of_a_missing_database_fails_and_makes_none(state, tmp_path, name):
    (state / "course/submitted/ada").mkdir(parents=True)
    (state / name).unlink()
    with pytest.raises(LabkitError, match="unable to open"):
        back_up(settings_of(state), tmp_path / "backup")
    assert not (state / name).exists()


def test_backup_before_the_first_lab_needs_no_gradebook(state, tmp_path):
    (state / "course/gradebook.db").unlink()
    backup = back_up(settings_of(state), tmp_path / "backup")
    restore(settings_of(tmp_path / "restored"), backup)
    assert (tmp_path / "restored/jupyterhub.sqlite").exists()


def test_the_oldest_backups_go_and_nothing_else(state, tmp_path):
    folder = tmp_path / "backup"
    names = [f"2026-01-{day:02}T031500Z" for day in range(1, 6)]
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "files.tar.gz").touch()
    (folder / "2026-01-01T000000Z").mkdir()  # incomplete: no backup of ours
    (folder / "letters").mkdir()
    settings = replace(settings_of(state), backup=BackupTable(keep=3))
    made = back_up(settings, folder)
    left = {"2026-01-01T000000Z", "letters", names[3], names[4], made.name}
    assert {path.name for path in folder.iterdir()} == left


def test_backups_of_one_second_are_all_kept(state, tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 86_400.0 * 365)
    made = [back_up(settings_of(state), tmp_path / "backup") for _ in range(3)]
    assert [path.name for path in made] == [f"1971-01-01T00000{n}Z" for n in range(3)]
    assert sorted((tmp_path / "backup").iterdir()) == made


def test_an_exchange_elsewhere_comes_back(state, tmp_path):
    exchange = tmp_path / "exchange"
    (exchange / "mlsys").mkdir(parents=True)
    (exchange / "mlsys/released").write_text("lab01", encoding="utf-8")
    settings = replace(settings_of(state), exchange=ExchangeTable(folder=str(exchange)))
    backup = back_up(settings, tmp_path / "backup")
    (exchange / "mlsys/released").write_text("lab02", encoding="utf-8")
    restore(settings, backup)
    assert (exchange / "mlsys/released").read_text(encoding="utf-8") == "lab01"
    assert [path.name for path in backup.iterdir() if path.name == "hub.toml"]


def test_a_damaged_backup_is_not_restored(state, tmp_path):
    backup = back_up(settings_of(state), tmp_path / "backup")
    (backup / "gradebook.db").write_bytes(b"no database" * 1000)
    before = sorted(state.rglob("*"))
    with pytest.raises(LabkitError, match=r"gradebook\.db"):
        restore(settings_of(state), backup)
    assert sorted(state.rglob("*")) == before


HAND_IN = """
import os, pathlib
folder = pathlib.Path(os.environ["MLSYS_HUB_EXCHANGE"], "mlsys/inbound/ada+lab01+2026-01-01 00:00:00.000000 UTC+secret")
folder.mkdir(mode=0o711)
folder.joinpath("lab01.ipynb").write_text("ada's answer")
pathlib.Path.home().joinpath("mine.txt").write_text("ada's notes")
print(os.getuid())
"""


# Two Hubs. That all of it comes back is shown above with the databases alone; here, that a Hub starts from it.
@pytest.mark.soak
@needs_hub
@pytest.mark.xdist_group("own-hub")
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0, reason="homes belong to other users")
def test_a_restored_hub_has_the_submission_and_the_people(tmp_path):
    from nbgrader.api import Gradebook

    with Hub(tmp_path / "one", students=("ada",)) as hub:
        ada = hub.log_in("ada")
        ada.start_server()
        uid = int(ada.run(HAND_IN))
        with Gradebook(f"sqlite:///{hub.state}/course/gradebook.db", "mlsys") as book:
            book.add_student("ada")
        backup = back_up(read_settings(hub.settings), tmp_path / "backup")
        hub.kill()
    shutil.rmtree(hub.state)
    restore(read_settings(hub.settings), backup)
    with Hub(tmp_path / "one", students=("ada",)) as again:
        ada = again.log_in("ada")
        ada.start_server()
        assert ada.get("api/contents/mine.txt").json()["content"] == "ada's notes"
        assert int(ada.run("import os; print(os.getuid())")) == uid
        [folder] = (again.state / "exchange/mlsys/inbound").iterdir()
        assert folder.stat().st_uid == uid
        assert (folder / "lab01.ipynb").read_text() == "ada's answer"
        again.kill()


def test_databases_are_copied_in_the_pods_too(state, busy, tmp_path):
    # IN_HUB and IN_COURSE are `kubectl exec …` there; here a shell that puts /tmp somewhere else.
    before = min(busy)
    here = tmp_path / "in_pod"
    here.write_text(
        f'#!/bin/sh\nfor last; do :; done\nset -- "$1" "$2" "$3" "$4" "{tmp_path}/$(basename "$last")"\nexec "$@"\n'
    )
    here.chmod(0o755)
    run(
        "copy-database",
        IN_HUB=here,
        IN_COURSE=here,
        HUB_DB=state / "jupyterhub.sqlite",
        COURSE_DB=state / "course/gradebook.db",
    )
    for name in ("jupyterhub.sqlite", "gradebook.db"):
        assert last_moment(tmp_path / name) >= before


def test_the_database_is_upgraded(state):
    from jupyterhub.dbutil import _temp_alembic_ini

    def revision() -> str:
        book = sqlite3.connect(state / "jupyterhub.sqlite")
        [(found,)] = book.execute("SELECT version_num FROM alembic_version").fetchall()
        book.close()
        return str(found)

    newest = revision()
    with _temp_alembic_ini(f"sqlite:///{state}/jupyterhub.sqlite") as settings:  # as an older JupyterHub left it
        subprocess.run(["alembic", "-c", settings, "downgrade", "-1"], check=True, capture_output=True, timeout=240)
    assert revision() != newest
    hub = shlex.join([sys.executable, "-m", "jupyterhub"])
    text = TESTED["upgrade-db"].replace(".venv/bin/jupyterhub", hub)
    assert hub in text
    told = {**os.environ, "STATE": str(state)}
    done = subprocess.run(["sh", "-eu", "-c", text], env=told, cwd=state, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert revision() == newest
