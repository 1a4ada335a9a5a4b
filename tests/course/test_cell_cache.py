"""The cache of executed cells: another state of the kit has another folder, and old folders go."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.course.chapters import COURSE

sys.path.insert(0, str(COURSE / "_ext"))
cell_cache = pytest.importorskip("cell_cache", reason="needs the packages of the site")


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    (tmp_path / "mlsys_labkit").mkdir()
    (tmp_path / "course/data").mkdir(parents=True)
    (tmp_path / "mlsys_labkit/view.js").write_text("draw(1)")
    (tmp_path / "course/data/gpus.toml").write_text("peak = 1")
    return tmp_path


@pytest.mark.parametrize("changed", ["mlsys_labkit/view.js", "course/data/gpus.toml"])
def test_a_change_of_the_kit_or_its_data_runs_the_cells_again(kit: Path, changed: str) -> None:
    before = cell_cache.cache_of(kit)
    (kit / "mlsys_labkit/view.pyc").write_bytes(b"compiled")
    assert cell_cache.cache_of(kit) == before
    (kit / changed).write_text("changed")
    assert cell_cache.cache_of(kit) != before


def test_only_caches_that_no_build_can_use_are_removed(kit: Path) -> None:
    cache = cell_cache.cache_of(kit)
    young, old = cache.with_name("young"), cache.with_name("old")
    for folder in (young, old):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - 2 * cell_cache.OLD_SECONDS,) * 2)
    config = SimpleNamespace(nb_execution_mode="cache", nb_execution_cache_path=str(cache))
    cell_cache.make(SimpleNamespace(config=config))
    assert sorted(path.name for path in cache.parent.iterdir()) == sorted([cache.name, "young"])
    assert (cache / "global.db").exists()
