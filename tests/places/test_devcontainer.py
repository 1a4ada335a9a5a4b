"""Tests of Codespaces and VS Code: settings by the published rules, and the script of a new container."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest

# Of the dev container specification's schema (devContainer.base.schema.json), the properties used here; closed.
SIZE = {"type": "string", "pattern": r"^\d+([tgmk]b)?$"}
SCHEMA = {
    "type": "object",
    "required": ["image"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "image": {"type": "string"},
        "hostRequirements": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "cpus": {"type": "integer", "minimum": 1},
                "memory": SIZE,
                "storage": SIZE,
                "gpu": {"enum": [True, False, "optional"]},
            },
        },
        "postCreateCommand": {"type": ["string", "array", "object"]},
        "forwardPorts": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 65535}},
        "portsAttributes": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "label": {"type": "string"},
                    "onAutoForward": {
                        "enum": ["notify", "openBrowser", "openBrowserOnce", "openPreview", "silent", "ignore"]
                    },
                },
            },
        },
        "customizations": {"type": "object"},
    },
}


@pytest.fixture
def settings(root: Path) -> dict:
    return json.loads((root / ".devcontainer/devcontainer.json").read_text())


def test_the_settings_obey_the_specification(settings: dict) -> None:
    jsonschema.validate(settings, SCHEMA)
    assert settings["hostRequirements"]["gpu"] == "optional"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(settings | {"forwardPort": [8888]}, SCHEMA)


def test_a_forwarded_port_says_what_listens_there(settings: dict) -> None:
    assert set(settings["portsAttributes"]) == {str(port) for port in settings["forwardPorts"]}


def test_container_script_exists(root: Path, settings: dict) -> None:
    assert settings["postCreateCommand"] == "bash .devcontainer/create"
    assert (root / ".devcontainer/create").exists()
    python = settings["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    made = next(
        line for line in (root / ".devcontainer/create").read_text().splitlines() if line.startswith("python3 -m venv")
    )
    assert python == f"${{containerWorkspaceFolder}}/{made.split()[-1]}/bin/python"


def test_vs_code_recommends_what_a_container_brings(root: Path, settings: dict) -> None:
    recommended = json.loads((root / ".vscode/extensions.json").read_text())["recommendations"]
    assert recommended == settings["customizations"]["vscode"]["extensions"]


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(("gpu", "wanted"), [(True, ".[labs,gpu]"), (False, "binder/requirements.txt")])
def test_a_container_with_a_gpu_gets_the_torch_for_it(root: Path, tmp_path: Path, gpu: bool, wanted: str) -> None:
    """Run the unchanged script with programs that only record their calls."""
    programs, said = tmp_path / "programs", tmp_path / "said"
    programs.mkdir()
    for name in ("python", "python3", "labkit"):
        program(programs, name, f'echo "{name} $*" >> {said}')
    program(programs, "nvidia-smi", "exit 0" if gpu else "exit 9")
    for folder in ("binder", ".devcontainer"):
        (tmp_path / folder).symlink_to(root / folder)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", ".devcontainer/create"], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    calls = said.read_text().splitlines()
    assert calls[0] == "python3 -m venv .venv"
    (install,) = (call for call in calls if "pip install" in call)
    assert wanted in install
    assert calls[-1] == "labkit doctor"
