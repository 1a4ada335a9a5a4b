"""Tests of hub.toml: the shipped file has the defaults, and each mistake is one line that names file and key."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from mlsys_grading.hub.settings import HubSettings, read_settings
from mlsys_labkit.errors import LabkitError

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "binder" / "hub" / "hub.toml"

pytest.importorskip("jupyterhub")

BROKEN = {
    "[hub]\nport = 0": ("hub.port", "0"),
    "[hub]\nport = 65536": ("hub.port", "65536"),
    "[hub]\nport = true": ("hub.port", "True"),
    '[hub]\nport = "8000"': ("hub.port", "'8000'"),
    "[hub]\nport = 8081": ("hub.port", "8081"),
    '[hub]\nstate = ""': ("hub.state", "''"),
    "[hub]\nprot = 8000": ("hub.prot", "8000"),
    "hub = 1": ("hub", "1"),
    "[hubs]\nport = 1": ("hubs", "port"),
    '[login]\nkind = "dummy"': ("login.kind", "'dummy'"),
    '[login]\nkind = "oauth"': ("login.provider", "''"),
    '[login]\nkind = "shared-password"': ("login.password_file", "''"),
    '[course]\nid = "../.."': ("course.id", "'../..'"),
    '[course]\nid = ".hidden"': ("course.id", "'.hidden'"),
    '[course]\ninstructors = "ada"': ("course.instructors", "'ada'"),
    "[course]\ninstructors = []": ("course.instructors", "[]"),
    '[course]\nstudents = ["Ada"]': ("course.students", "'Ada'"),
    '[course]\nstudents = ["ada:0"]': ("course.students", "'ada:0'"),
    '[course]\nstudents = ["instructor"]': ("course.students", "'instructor'"),
    "[idle]\nminutes = -1": ("idle.minutes", "-1"),
    "[idle]\nminutes = nan": ("idle.minutes", "nan"),
    "[idle]\nminutes = inf": ("idle.minutes", "inf"),
    '[profile]\nslug = "cpu"': ("profile", "slug"),
    '[[profile]]\nslug = "cpu"': ("profile[0].title", "None"),
    '[[profile]]\ntitle = "CPU"': ("profile[0].slug", "None"),
    '[[profile]]\nslug = "a"\ntitle = "A"\ngpus = 2': ("profile[0].gpus", "2"),
    '[[profile]]\nslug = "a"\ntitle = "A"\ngpus = 1': ("profile[0].device", "''"),
    '[[profile]]\nslug = "a"\ntitle = "A"\ngpus = 1\ndevice = "mig-8"': ("profile[0].device", "'mig-8'"),
    '[[profile]]\nslug = "a"\ntitle = "A"\n[[profile]]\nslug = "a"\ntitle = "B"': ("profile.slug", "'a'"),
    '[[profile]]\nslug = "a"\ntitle = "A"\nspawner = "docker"': ("profile[0].spawner", "'docker'"),
}


def test_shipped_file_has_the_defaults() -> None:
    told = read_settings(SHIPPED)
    default = HubSettings(SHIPPED)
    assert (told.hub, told.login, told.course, told.exchange, told.idle) == (
        default.hub,
        default.login,
        default.course,
        default.exchange,
        default.idle,
    )
    assert told.base == ROOT
    assert told.labs == ROOT / "labs"
    assert told.exchange_folder == told.state / "exchange"


def test_shipped_file_explains_every_key() -> None:
    """Look for each key in the shipped file, in a setting or in an example in a comment."""
    lines = SHIPPED.read_text().splitlines()
    examples = [
        line.removeprefix("# ") for line in lines if line.startswith("# ") and ("= " in line or "[" in line[:5])
    ]
    text = "\n".join(line for line in lines if not line.startswith("#"))
    named = {line.split("=")[0].strip() for line in [*lines, *examples] if "=" in line}
    from mlsys_grading.hub import settings as module

    for kind in (*module._TABLES.values(), module.ServerProfile):
        for key in (each.name for each in fields(kind)):
            assert any(key == name.removeprefix("# ") or f"[login.{key}]" in SHIPPED.read_text() for name in named), key
    tomllib.loads(text)


@pytest.mark.parametrize("text", BROKEN)
def test_a_mistake_is_one_line(tmp_path: Path, text: str) -> None:
    key, came = BROKEN[text]
    path = tmp_path / "hub.toml"
    path.write_text(text)
    with pytest.raises(LabkitError) as raised:
        read_settings(path)
    told = str(raised.value)
    assert "\n" not in told
    assert told.startswith(f"{path}: {key} is ")
    assert came in told
    assert "expected" in told


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("native"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        "hub",
        "login",
        "course",
        "exchange",
        "idle",
        "profile",
        "port",
        "state",
        "kind",
        "oauth",
        "id",
        "students",
        "slug",
    ]
) | st.text(max_size=4)


@given(st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES, max_size=3), max_size=4))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_table_gives_settings_or_one_line(plain: dict[str, Any]) -> None:
    from mlsys_grading.hub import settings as module

    path = Path("/srv/hub.toml")
    told = ""
    try:
        assert isinstance(module._settings(plain, path), HubSettings)
    except module._WrongError as error:
        told = str(error)
    assert told.isprintable()


@given(st.binary(max_size=60))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_settings_or_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hub.toml"
    path.write_bytes(content)
    told = ""
    try:
        read_settings(path)
    except LabkitError as error:
        told = str(error)
    assert "\n" not in told


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabkitError, match="No such file"):
        read_settings(tmp_path / "hub.toml")


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-m", "jupyterhub", "-f", str(SHIPPED.parent / "jupyterhub_config.py")],
        [str(Path(sys.executable).parent / "labkit"), "hub"],
    ],
    ids=["jupyterhub -f", "labkit hub"],
)
def test_both_commands_report_one_line(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "hub.toml"
    path.write_text("[hub]\nport = 'eight thousand'\n")
    words = [*command, str(path)] if command[-1] == "hub" else command
    environment = os.environ | {"MLSYS_HUB_SETTINGS": str(path)}
    refused = subprocess.run(words, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert refused.returncode != 0
    (line,) = refused.stderr.splitlines()
    assert "hub.port is 'eight thousand'; expected a whole number" in line
