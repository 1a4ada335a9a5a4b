"""Tests of root's steps into a person's namespaces when the person has put links in the way."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from mlsys_grading.hub.enter import Entry
from mlsys_grading.hub.entries import entering
from tests.hub.hub_process import needs_hub

PERSON = 1_900_000_000


@needs_hub
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to another user")
def test_root_follows_no_link_of_a_person(tmp_path: Path) -> None:
    """Put the Hub's state below /tmp: the person's own /tmp covers it, and root makes mount points in it."""
    private, elsewhere = tmp_path / "private", tmp_path / "elsewhere"
    private.mkdir()
    elsewhere.mkdir()
    with tempfile.TemporaryDirectory(dir="/tmp") as state:
        home = Path(state, "homes", "ada")
        home.mkdir(parents=True)
        link = private / Path(state).name
        link.symlink_to(elsewhere)
        for path in (private, link, home):
            os.chown(path, PERSON, PERSON, follow_symlinks=False)
        entry = Entry(PERSON, PERSON, "/", shown=(str(home),), placed=((str(private), "/tmp"),))
        refused = _enter(entry)
        assert f"{state} is a link" in refused.stderr
        assert list(elsewhere.iterdir()) == []
        link.unlink()
        assert _enter(entry).stdout == f"{home}\n"


def _enter(entry: Entry) -> subprocess.CompletedProcess[str]:
    words = entering("ls", "-d", *entry.shown)
    return subprocess.run(words, input=entry.to_json().decode(), capture_output=True, text=True, cwd="/")
