"""Tests of the wheelhouse for a GPU machine: its checksums, its size, its list, and the messages of its installer."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.gpu import carry, install, manifest, wheelhouse
from tests.conftest import ROOT


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheelhouse"
    folder.mkdir()
    for name in ("a-1-py3-none-any.whl", "b-2-py3-none-any.whl"):
        (folder / name).write_bytes(name.encode() * 100)
    manifest.write_manifest(folder)
    return folder


def test_manifest_is_readable_by_sha256sum(wheels: Path) -> None:
    assert [path.name for path in manifest.read_manifest(wheels)] == ["a-1-py3-none-any.whl", "b-2-py3-none-any.whl"]
    text = (wheels / "SHA256SUMS").read_text()
    assert re.fullmatch(r"([0-9a-f]{64}  \S+\.whl\n){2}", text)
    assert text.startswith(hashlib.sha256((wheels / "a-1-py3-none-any.whl").read_bytes()).hexdigest())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda folder: (folder / "SHA256SUMS").unlink(),
            r"has no SHA256SUMS, so it is not whole; copy the whole folder",
        ),
        (lambda folder: (folder / "b-2-py3-none-any.whl").unlink(), r"1 of 2 wheels are absent, b-2-py3-none-any.whl"),
        (lambda folder: (folder / "a-1-py3-none-any.whl").write_bytes(b"half"), r"a-1-py3-none-any.whl is damaged"),
        (lambda folder: (folder / "c-3-py3-none-any.whl").touch(), r"holds c-3-py3-none-any.whl, which is not in"),
        (lambda folder: (folder / "SHA256SUMS").write_text("deadbeef\n"), r"is no list of checksums"),
        (lambda folder: (folder / "SHA256SUMS").write_text(""), r"is no list of checksums"),
    ],
    ids=["no list", "absent", "damaged", "unknown", "half a line", "empty"],
)
def test_installer_refuses_a_wheelhouse_that_is_not_whole(
    wheels: Path, damage: object, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(wheels)  # type: ignore[operator]
    monkeypatch.setattr(install, "WHEELHOUSE", wheels)
    monkeypatch.setattr(install, "ENVIRONMENT", wheels.parent / "environment")
    assert install.main() == 2
    heard = capsys.readouterr()
    assert heard.out == ""
    (line,) = heard.err.splitlines()
    assert re.search(said, line), line
    assert not (wheels.parent / "environment").exists()


def test_installer_refuses_wheels_of_another_python() -> None:
    wheels = [Path("a-1-cp312-cp312-manylinux_2_28_x86_64.whl"), Path("b-1-cp39-abi3-linux_x86_64.whl")]
    install.check_version(wheels, (3, 12))
    install.check_version(wheels[1:], (3, 13))
    with pytest.raises(
        ValueError, match=r"is for Python 3\.12, and this is Python 3\.13; run: make gpu PYTHON=python3"
    ):
        install.check_version(wheels, (3, 13))


def test_load_counts_the_tree_and_the_wheels_once(wheels: Path) -> None:
    tree = wheels.parent / "tree"
    (tree / "build").mkdir(parents=True)
    (tree / "kept.txt").write_bytes(b"x" * 1000)
    (tree / ".gitignore").write_text("/build/\n")
    (tree / "build" / "ignored").write_bytes(b"x" * 5000)
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    found = carry.load(tree, wheels)
    with tarfile.open(tree / "build" / "all.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(tree / "kept.txt", "kept.txt")
        archive.add(tree / ".gitignore", ".gitignore")
        for path in wheels.glob("*.whl"):
            archive.add(path, path.name)
        assert (found.tree + found.wheels, found.count) == (archive.offset, 2)
    assert found.fits
    assert not carry.Load(carry.LIMIT, 1, 1).fits
    assert "2 wheels of 0.0 MiB" in str(found)
    assert str(carry.Load(0, 0, 0)).startswith("no wheelhouse and")


def test_wheels_are_named_once_and_pinned() -> None:
    names = [line for line in wheelhouse.NAMES.read_text().splitlines() if not line.startswith("#")]
    assert len(set(names)) == len(names)
    lines = (ROOT / "constraints.txt").read_text().lower().splitlines()
    pinned = {re.sub("[._]", "-", line.partition("==")[0]) for line in lines}
    assert {*names} <= pinned
    assert not {"torch", "triton", "numpy", "nvidia-cuda-nvrtc"} & {*names}, "the GPU machine has its own"


def test_wheelhouse_refuses_a_version_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert wheelhouse.main(["--for", "three"]) == 2
    assert capsys.readouterr().err == "wheelhouse: 'three' is no version of Python; give one such as 3.12\n"


def test_make_gpu_refuses_a_wheelhouse_that_is_not_whole(tmp_path: Path) -> None:
    """The target stops, and does not go on with an interpreter that lacks half of the packages."""
    (tmp_path / "build" / "wheelhouse").mkdir(parents=True)
    shutil.copytree(ROOT / "benchmarks" / "gpu", tmp_path / "benchmarks" / "gpu")
    command = ["make", "-f", str(ROOT / "Makefile"), "gpu", f"PYTHON={sys.executable}", "ARGS=--dry-run"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert (done.stdout, "has no SHA256SUMS, so it is not whole" in done.stderr) == ("", True)
