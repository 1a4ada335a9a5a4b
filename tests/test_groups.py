"""Groups of tests that run in one worker: tests that start a Hub or take half of the memory never run at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import LONG_GROUPS, ROOT, long_first, pytest_collection_modifyitems, pytest_ignore_collect

SAYS = """
import os, pathlib, pytest
pytestmark = pytest.mark.xdist_group({group!r})
@pytest.mark.parametrize("number", range(6))
def test_says_where_it_runs(number):
    with open({said!r}, "a") as file:
        print({group!r}, os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


def test_a_group_has_one_worker(tmp_path: Path) -> None:
    said = tmp_path / "said"
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_collection_finish")
    for name, group in (("test_a", "one"), ("test_b", "two"), ("test_c", "one")):
        (tmp_path / f"{name}.py").write_text(SAYS.format(group=group, said=str(said)))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)],
        env=clean | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [tuple(line.split()) for line in said.read_text().splitlines()]
    assert len(lines) == 18
    assert sorted(group for group, _ in set(lines)) == ["one", "two"]


def test_long_groups_begin_first() -> None:
    groups = ["small", "large", "small 2", "large", LONG_GROUPS[1], LONG_GROUPS[0], LONG_GROUPS[1]]
    assert long_first(groups) == [5, 4, 6, 1, 3, 0, 2]


def test_long_groups_exist() -> None:
    named = set(re.findall(r'xdist_group\("([\w-]+)"\)', "".join(p.read_text() for p in ROOT.glob("tests/*/*.py"))))
    assert [name for name in LONG_GROUPS if name not in named and not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    ("marks", "unread"),
    [
        ("not soak and not places", ["hub", "grading/test_solutions.py", "grading/test_run_notebooks.py"]),
        ("places and not soak", ["test_style.py"]),
        ("soak", []),
    ],
)
def test_what_no_chosen_test_can_be_in_is_not_read(marks: str, unread: list[str]) -> None:
    config = SimpleNamespace(option=SimpleNamespace(markexpr=marks))
    names = "hub test_style.py course/test_site.py grading/test_solutions.py grading/test_run_notebooks.py"
    assert [name for name in names.split() if pytest_ignore_collect(ROOT / "tests" / name, config)] == unread


@pytest.mark.parametrize(
    ("marks", "file", "target"),
    [(("xdist_group", "places"), "test_style.py", "test-places"), (("xdist_group",), "hub/test_loop.py", "test")],
)
def test_a_file_that_would_not_be_read_is_an_error(marks: tuple[str, ...], file: str, target: str) -> None:
    mark = SimpleNamespace(args=(file,))
    item = SimpleNamespace(
        name="test_x", nodeid=f"tests/{file}::test_x", iter_markers=lambda name: [], add_marker=lambda mark: None,
        get_closest_marker=lambda name: mark if name in marks else None,
    )  # fmt: skip
    with pytest.raises(pytest.UsageError, match=rf"make {target} would not read tests/{file}"):
        pytest_collection_modifyitems(SimpleNamespace(option=SimpleNamespace()), [item])
