"""Shared fixtures: the checkout's root, a clean interpreter, and a real browser when there is one."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from mlsys_labkit._base.limits import memory_free_bytes, usable_cores

ROOT = Path(__file__).resolve().parents[1]
# The shell is the same browser without windows, menus and extensions: a page takes a quarter of the processor time.
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None
)
# `make test-places` runs these folders, the groups that start a Hub, JupyterLab or dask or kill graders, all that
# drives a browser, and what uses the built site, a Jupyter kernel, or the nbgrader command, which starts a kernel
# for each submission.
PLACES_FOLDERS = ("tests/hub/", "tests/places/")
PLACES_GROUPS = frozenset({"hub", "own-hub", "loop", "jupyterlab", "dask", "kills"})
PLACES_FIXTURES = frozenset({"site", "jupyter_kernel", "nbgrader"})
# The text of a file with such a test has one of these; `make test-places` reads no other file.
PLACES_MARKS = re.compile(rf"mark\.(?:places|browser)\b|xdist_group\(\"(?:{'|'.join(PLACES_GROUPS)})\"")
PLACES_WORDS = re.compile(rf"{PLACES_MARKS.pattern}|\b(?:{'|'.join(PLACES_FIXTURES)})\b")
# A module that has one of the marks as a whole has no other tests. A fixture's name there may be a group's: "site".
MODULE_MARKS = re.compile(r"^pytestmark = (?:\[$.*?^\]|.*?$)", re.MULTILINE | re.DOTALL)
# The groups that take longest begin first: one that began last would leave the other core idle. Thirteen are of places.
LONG_GROUPS = (
    "hub",
    "own-hub",
    "jupyterlab",
    "site",
    "tests/grading/test_solutions.py",
    "loop",
    "tests/labkit/test_widgets_verdicts.py",
    "tests/hub/test_images.py",
    "tests/grading/test_run_notebooks.py",
    "packaging",
    "tests/grading/test_nbgrader.py",
    "release",
    "dask",
    "rank-processes",
    "sandbox",
    "grade",
    "corpus",
    "endpoint",
    "tests/cuda/test_programs.py",
    "tests/grading/test_prove.py",
    "tests/cuda/test_headers.py",
    "tests/cuda/test_compile_cache.py",
    "tests/cuda/test_hopper.py",
    "tests/cuda/test_program_blas.py",
    "tests/cuda/test_races.py",
    "tests/serving/test_engine.py",
    "tests/ranks/test_planner_memory.py",
    "tests/labkit/test_memory.py",
)
# Without these Chromium looks for updates and sync servers, which a closed network refuses many times a second.
PAGE_SECONDS = 300
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]

# One BLAS thread a test worker: the workers share the cores, and a fork after a threaded matmul hangs. Set here and not
# in pytest_configure, because a folder's own conftest.py may import torch before that.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # xdist would begin with the groups that have most tests
    os.environ.pop("LABKIT_DEVICE", None)
    # The set-up has made all bytecode; a process whose files a test limits in size would write half a file of it.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    hypothesis.settings.register_profile("untimed", deadline=None)  # on a busy machine, a slow example is no bug
    hypothesis.settings.load_profile("untimed")
    # A suite started in the background inherits an ignored Ctrl-C, and would hand it down to all that it starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Start five workers on two cores, if each has 1.5 GiB: a test often waits for a process to start or end.

    Start seven for places, of which five run one group of servers each: those wait for half of their time.
    """
    free = memory_free_bytes()
    fitting = free // (3 << 29) if free else 1 << 30
    return max(1, min(round((3.5 if only_places(config) else 2.5) * usable_cores()), fitting))


def pytest_collection(session: pytest.Session) -> None:
    """Import a worker's share of the tests first, and keep the bytecode: a file is rewritten once, not five times."""
    gc.disable()  # until all is collected: hardly anything of it is garbage
    given = getattr(session.config, "workerinput", None)
    if given is None:
        return
    sys.dont_write_bytecode = False
    folders = [path for path in map(Path, session.config.args) if path.is_dir()]
    tests = sorted(path.resolve() for folder in folders for path in folder.rglob("test_*.py"))
    for path in tests[int(given["workerid"].removeprefix("gw")) :: given["workercount"]]:
        if not any(pytest_ignore_collect(one, session.config) for one in (path.parent, path)):
            with contextlib.suppress(Exception, pytest.skip.Exception):  # whoever collects the file reports the error
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave unread what has no test to run: in `make test-places` files without places, in `make test` those alone.

    The Hub's folders also import what `make test` does not install.
    """
    if not collection_path.is_relative_to(ROOT):
        return None
    name, is_test = collection_path.relative_to(ROOT).as_posix(), collection_path.name.startswith("test_")
    if only_places(config):
        return True if is_test and not may_have_places(name) else None
    if "not places" not in config.option.markexpr:
        return None
    return True if f"{name}/" in PLACES_FOLDERS or (is_test and has_only_places(name)) else None


def only_places(config: pytest.Config) -> bool:
    """Return whether this is `make test-places`."""
    return re.search(r"(?<!not )\bplaces\b", config.option.markexpr) is not None


@functools.cache
def may_have_places(name: str) -> bool:
    """Return whether a file of tests may have one of places, by its text alone."""
    return name.startswith(PLACES_FOLDERS) or PLACES_WORDS.search((ROOT / name).read_text("utf-8")) is not None


@functools.cache
def has_only_places(name: str) -> bool:
    """Return whether all tests of a file are of places, by its text alone."""
    marks = MODULE_MARKS.search((ROOT / name).read_text("utf-8"))
    return marks is not None and PLACES_MARKS.search(marks[0]) is not None


@pytest.hookimpl(tryfirst=True)  # before pytest's own -m, which chooses by the marks given here
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if not item.get_closest_marker("xdist_group"):  # a module's fixtures are made once, not once in each worker
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
        if belongs_to_places(item):
            item.add_marker("places")
        name = item.nodeid.partition("::")[0]
        if item.get_closest_marker("places"):
            if not may_have_places(name):
                raise pytest.UsageError(f"make test-places would not read {name}: PLACES_WORDS has nothing of it")
        elif has_only_places(name):
            raise pytest.UsageError(f"make test would not read {name}, and {item.name} is no test of places")
        if item.get_closest_marker("gpu") and not _gpu():
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU; this machine has none"))
        if item.get_closest_marker("browser") and CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason="needs Chromium; install the package chromium-headless-shell"))
    if getattr(config.option, "loadgroup", False):
        items[:] = [items[at] for at in long_first([*map(group_of, items)])]


def long_first(groups: Sequence[str]) -> list[int]:
    """Return the places of tests by their groups: first those of LONG_GROUPS, then those with most tests."""
    sizes, first = collections.Counter(groups), {name: place for place, name in enumerate(LONG_GROUPS)}

    def key(at: int) -> tuple[int, int, str]:
        return first.get(groups[at], len(first)), -sizes[groups[at]], groups[at]

    return sorted(range(len(groups)), key=key)


def group_of(item: pytest.Item) -> str:
    """Return the name by which xdist keeps tests in one worker."""
    return "_".join(sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")}))


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Iterator[None]:
    """Pass the groups of tests to xdist: under pytest 9.2 it misses them, and would spread a group over all workers.

    A worker's list of tests is sent while this hook runs; then each test has its own name again, for --last-failed.
    Reference: https://github.com/pytest-dev/pytest-xdist/issues/1386
    """
    sys.dont_write_bytecode = True
    gc.enable()
    gc.collect()
    gc.freeze()  # the collector need not look at 8,000 tests and all their modules again, which takes it a second
    plain: dict[pytest.Item, Any] = {}
    if getattr(session.config.option, "loadgroup", False):
        for item in session.items:
            group = group_of(item)
            if group and hasattr(item, "_id") and not item.nodeid.endswith(f"@{group}"):
                plain[item] = item._id
                item._id = f"{item.nodeid}@{group}"
    try:
        return (yield)
    finally:
        for item, name in plain.items():
            item._id = name


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect garbage for the last time: hundreds of IPython shells do it once each when the interpreter ends."""
    gc.collect()
    gc.freeze()


def belongs_to_places(item: pytest.Item) -> bool:
    """Return whether ``make test-places`` runs this test: for its folder, its browser or server, or its fixtures."""
    groups = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
    in_place = item.nodeid.startswith(PLACES_FOLDERS) or not PLACES_GROUPS.isdisjoint(groups)
    in_place = in_place or item.get_closest_marker("browser") is not None
    return in_place or not PLACES_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def _gpu() -> bool:
    return (
        shutil.which("nvidia-smi") is not None
        and subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0
    )


@pytest.fixture(scope="module")
def small_heap() -> None:
    """Hide what earlier tests left from the collector: a trace of memory collects all garbage, which takes it 0.3 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Yield a headless Chromium driven by Playwright, whose pages wait for long. Exits in one line if there is none."""
    from playwright.sync_api import expect, sync_playwright

    if CHROMIUM is None:
        raise SystemExit("no Chromium was found; install the package chromium-headless-shell")
    # The page's own deadlines of 5 and 30 s are missed where ten things want each core.
    expect.set_options(timeout=1e3 * PAGE_SECONDS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=1e3 * PAGE_SECONDS)
        for name in ("new_context", "new_page"):
            setattr(running, name, _patient(getattr(running, name)))
        yield running
        running.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Yield a headless Chromium. Nothing that it loads may come from the network."""
    with chromium() as running:
        yield running


def _patient(make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a browser's ``new_context`` or ``new_page`` so that the page's waits last PAGE_SECONDS."""

    def made(*given: Any, **named: Any) -> Any:
        context_or_page = make(*given, **named)
        context_or_page.set_default_timeout(1e3 * PAGE_SECONDS)
        return context_or_page

    return made


def settle(page: Any) -> None:
    """Wait for two frames of ``page``: its first tells a widget its width, upon which the widget draws itself anew."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")


def unfold(page: Any) -> None:
    """Open the settings and numbers that the widgets of ``page`` fold."""
    page.evaluate("document.querySelectorAll('.lk-fold').forEach((fold) => { fold.open = true; })")


def python(code: str, *, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=600,
    )
