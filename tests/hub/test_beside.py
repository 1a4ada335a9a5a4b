"""Tests of two Hubs on one machine, and of commands that name the wrong one of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mlsys_grading.hub.backup import back_up, restore
from mlsys_grading.hub.running import at_work, other_hubs
from mlsys_grading.hub.settings import read_settings
from mlsys_labkit.errors import LabkitError
from tests.hub.hub_process import PATIENCE_SECONDS, Hub, Person, labkit, needs_hub

pytestmark = [
    needs_hub,
    pytest.mark.xdist_group("hub"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's Hub is in a namespace of its own"),
]


def stop(settings: Path) -> subprocess.CompletedProcess[str]:
    """Run ``labkit hub --stop`` with these settings."""
    return subprocess.run(
        labkit("hub", "--stop", str(settings)), capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )


def test_restore_is_refused_while_the_hub_runs(hub: Hub, ada: Person, tmp_path: Path) -> None:
    settings = read_settings(hub.settings)
    backup = back_up(settings, tmp_path / "backup")
    assert hub.process is not None
    before = sorted(path.name for path in hub.state.parent.iterdir())
    with pytest.raises(LabkitError) as refusal:
        restore(settings, backup)
    line = str(refusal.value)
    assert f"a Hub (process {hub.process.pid})" in line
    assert f"labkit hub --stop {hub.settings}" in line
    assert sorted(path.name for path in hub.state.parent.iterdir()) == before
    assert ada.get("api/status").status_code == 200


def test_stop_in_the_wrong_folder_says_what_runs_where(hub: Hub, ada: Person, tmp_path: Path) -> None:
    assert hub.process is not None
    other = tmp_path / "hub.toml"
    other.write_text(f'[hub]\nstate = "{tmp_path}/state"\n')
    done = stop(other)
    assert done.returncode == 1, done.stderr
    assert f"ended 0 Hub, 0 servers, 0 proxy of the state folder {tmp_path}/state" in done.stdout
    [line] = [line for line in done.stdout.splitlines() if f"process {hub.process.pid})" in line]
    assert str(hub.state) in line
    assert f"labkit hub --stop {hub.settings}" in line
    assert ada.get("api/status").status_code == 200


def test_staging_hub_and_its_end_leave_the_first_alone(hub: Hub, ada: Person, tmp_path: Path) -> None:
    assert hub.process is not None
    ours = at_work(hub.state)
    with Hub(tmp_path / "staging", students=("ada",)) as staging:
        again = staging.log_in("ada")
        again.start_server()
        again.request("PUT", "api/contents/staging.txt", json={"type": "file", "format": "text", "content": "there"})
        assert ada.get("api/contents/staging.txt").status_code == 404
        assert at_work(hub.state) == ours
        assert any(str(staging.state) in line for line in other_hubs(hub.state))
        assert any(str(hub.state) in line for line in other_hubs(staging.state))
        done = stop(staging.settings)
        assert done.returncode == 0, done.stderr
        assert "ended 1 Hub, 1 servers, 1 proxy" in done.stdout
        assert at_work(staging.state) == ""
        assert staging.servers() == []
    assert at_work(hub.state) == ours
    assert ada.get("api/status").status_code == 200
    assert ada.is_logged_in
