"""Limit of a person's files: a full home keeps the person from writing, says so in JupyterLab, and deletes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlsys_grading.hub.disk import disk_usage
from tests.hub.hub_process import Hub, needs_hub, until

MIB = 1 << 20


def test_files_are_counted_by_their_blocks_and_once(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "data").write_bytes(os.urandom(3 * MIB))
    os.link(tmp_path / "a" / "b" / "data", tmp_path / "again")
    (tmp_path / "loop").symlink_to(tmp_path)
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    os.sync()
    (all_of_it,) = disk_usage([tmp_path])
    assert 3 * MIB <= all_of_it < 4 * MIB
    assert sum(disk_usage([tmp_path / "a", tmp_path / "again", tmp_path / "gone"])) < 4 * MIB
    assert disk_usage([]) == []


@needs_hub
@pytest.mark.xdist_group("own-hub")
@pytest.mark.timeout(900)
def test_a_full_home_keeps_its_person_from_writing_and_nobody_else(tmp_path_factory: pytest.TempPathFactory) -> None:
    config = "import mlsys_grading.hub.quota as quota\nquota.LOOK_SECONDS = 0.2\n"
    more = "[quota]\nhome_gib = 0.02\n"  # 20 MiB
    with Hub(tmp_path_factory.mktemp("quota"), more=more, config=config) as hub:
        ada, bob = hub.log_in("ada"), hub.log_in("bob")
        for person in (ada, bob):
            person.start_server()
        kernel = ada.request("POST", "api/kernels", json={"name": "python3"}).json()["id"]
        ada.run_in(kernel, "kept = 6 * 7\nopen('note', 'w').write('first')")
        ada.run_in(kernel, "import os\nopen('big', 'wb').write(os.urandom(40 << 20))")
        note = {"type": "file", "format": "text", "content": "second"}

        def saved() -> int:
            return int(ada.request("PUT", "api/contents/note", json=note).status_code)

        until("a save is refused", lambda: saved() == 507)
        refused = ada.request("PUT", "api/contents/note", json=note)
        assert "Your files occupy more than" in refused.json()["message"]
        assert ada.run_in(kernel, "print(kept)").strip() == "42"
        tried = """
import os, pathlib
try:
    pathlib.Path("more").write_bytes(bytes(9000))
except OSError as error:
    print(error.strerror)
os.remove("more")
"""
        until("the kernel may not write", lambda: ada.run_in(kernel, tried).strip() == "File too large")
        assert ada.run(tried).strip() == "File too large", "nor does a new kernel write"
        assert bob.run("open('note', 'w').write('bob'); print('written')").strip() == "written"

        ada.run_in(kernel, "os.remove('big')")
        until("a save is accepted", lambda: saved() == 200)
        assert ada.run_in(kernel, "print(open('note').read(), kept)").split() == ["second", "42"]
