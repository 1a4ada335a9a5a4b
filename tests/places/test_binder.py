"""Tests of Binder: repo2docker's result for ``binder/``, mistakes that it misses, and the memory of the labs there."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import InvalidRequirement, Requirement

from mlsys_labkit._base.limits import usable_cores

REPO2DOCKER = Path(sys.executable).with_name("repo2docker")
# The files allowed in binder/ itself. An environment.yml, for example, would silently replace requirements.txt.
FILES = {"README.md", "apt.txt", "lab_memory.toml", "postBuild", "requirements.txt", "runtime.txt", "start"}
KNOWS_PACKAGES = shutil.which("apt-cache") and any(Path("/var/lib/apt/lists").glob("*_Packages*"))
PACKAGE_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")  # Debian policy 5.6.1


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    """Make a repository with only the files that repo2docker reads."""
    (tmp_path / "binder").mkdir()
    for name in [*(f"binder/{name}" for name in FILES), "constraints.txt", "pyproject.toml"]:
        shutil.copy(root / name, tmp_path / name)
    return tmp_path


def repo2docker(tree: Path) -> tuple[int, str]:
    """Return its exit code and the Dockerfile, which it prints without a Docker engine."""
    done = subprocess.run([REPO2DOCKER, "--no-build", "--debug", "."], cwd=tree, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


needs_repo2docker = pytest.mark.skipif(
    not REPO2DOCKER.exists(), reason="needs repo2docker: pip install jupyter-repo2docker"
)


@needs_repo2docker
def test_the_image_is_made_in_the_right_order(tree: Path) -> None:
    code, dockerfile = repo2docker(tree)
    assert code == 0, dockerfile[-2000:]
    assert "environment.py-3.11" in dockerfile.replace("-2d", "-").replace("-2e", ".")
    steps = [
        r"apt-get install --yes --no-install-recommends g\+\+ ",
        r"^COPY --chown=\S+ src/ \$\{REPO_DIR\}/$",  # before pip: requirements.txt names files outside of binder/
        r'^RUN \S+/bin/pip install --no-cache-dir -r "binder/requirements.txt"$',
        r"^RUN \./binder/postBuild$",
        r'^ENV R2D_ENTRYPOINT="\$\{REPO_DIR\}/binder/start"$',
    ]
    places = [re.search(step, dockerfile, re.MULTILINE) for step in steps]
    assert None not in places, f"not in the Dockerfile: {[s for s, p in zip(steps, places, strict=True) if p is None]}"
    starts = [place.start() for place in places if place]
    assert starts == sorted(starts)


@needs_repo2docker
@pytest.mark.parametrize("mistake", ["runtime", "two folders"])
def test_repo2docker_refuses_a_mistake(tree: Path, mistake: str) -> None:
    if mistake == "runtime":
        (tree / "binder/runtime.txt").write_text("python-3.99\n")
    else:
        (tree / ".binder").mkdir()
    assert repo2docker(tree)[0] == 1


def test_nothing_in_the_folder_hides_the_requirements(root: Path) -> None:
    names = subprocess.run(["git", "ls-files", "binder"], cwd=root, capture_output=True, text=True, check=True)
    assert {Path(name).name for name in names.stdout.split() if name.count("/") == 1} == FILES


def requirement_problems(text: str, root: Path) -> Iterator[str]:
    """Yield mistakes in binder/requirements.txt that pip would report only an hour into the build of an image."""
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pins = dict(line.split("==") for line in (root / "constraints.txt").read_text().splitlines() if "==" in line)
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        option, _, value = line.partition(" ")
        if option == "-c":
            if not (root / "binder" / value).resolve().is_file():  # pip resolves it against the file that names it
                yield f"{line}: no such file"
        elif option == "-e":
            found = re.fullmatch(r"\.\[([\w,]+)\]", value)  # pip resolves it against the folder that it runs in
            yield from (
                f"{line}: no extra {extra}" for extra in (found[1].split(",") if found else [""]) if extra not in extras
            )
        elif option == "--extra-index-url":
            if not value.startswith("https://"):
                yield f"{line}: not https"
        else:
            try:
                requirement = Requirement(line)
            except InvalidRequirement as error:
                yield f"{line}: {error}"
                continue
            if not requirement.specifier.contains(f"{pins.get(requirement.name)}+cpu"):
                yield f"{line}: constraints.txt says {pins.get(requirement.name)}"


def test_requirements_have_no_mistake(root: Path) -> None:
    assert list(requirement_problems((root / "binder/requirements.txt").read_text(), root)) == []


@pytest.mark.parametrize(
    "line",
    [
        "-c constraints.txt",
        "-e .[all]",
        "-e ..[torch]",
        "torch==2.12.0+cpu",
        "numpy=2.4",
        "nunpy==2.4.6",
        "-r more.txt",
    ],
)
def test_a_mistake_in_a_requirement_is_found(root: Path, line: str) -> None:
    assert list(requirement_problems(line, root))


def package_problems(text: str) -> Iterator[str]:
    names = [name for line in text.splitlines() for name in line.partition("#")[0].split()]
    for name in names:
        if not PACKAGE_NAME.fullmatch(name):
            yield f"{name}: not a package's name"
        elif KNOWS_PACKAGES:
            shown = subprocess.run(["apt-cache", "show", "--no-all-versions", name], capture_output=True, text=True)
            if shown.returncode:
                yield f"{name}: {shown.stderr.strip()}"


def test_each_system_package_exists(root: Path) -> None:
    assert list(package_problems((root / "binder/apt.txt").read_text())) == []
    assert list(package_problems("G++\n"))
    if KNOWS_PACKAGES:
        assert list(package_problems("g++-of-tomorrow\n"))


def imported(path: Path) -> set[str]:
    """Return the modules that a lab needs: imported in a cell, and not in a ``try`` block."""
    names: set[str] = set()
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or source.startswith("%%"):
            continue
        tree = ast.parse("\n".join(line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))))
        optional = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Try) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            if id(node) in optional:
                continue
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"mlsys_labkit"}


def test_the_image_has_what_the_labs_import(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (asked,) = re.findall(r"^-e \.\[(.*)\]$", (root / "binder/requirements.txt").read_text(), re.MULTILINE)
    extras = [project["optional-dependencies"][extra] for extra in asked.split(",")]
    required = itertools.chain(project["dependencies"], *extras)
    there = {Requirement(need).name.replace("-", "_") for need in required} | {"IPython"}  # the kernel's own
    labs = sorted((root / "labs").glob("*/*.ipynb"))
    assert len(labs) == 11
    assert {lab.stem: imported(lab) - there for lab in labs} == {lab.stem: set() for lab in labs}


@pytest.mark.parametrize(("cores", "python"), [(1, True), (2, True), (1, False)], ids=["one", "two", "no package"])
def test_a_server_starts_with_as_many_threads_as_cores(root: Path, tmp_path: Path, cores: int, python: bool) -> None:
    mine = sorted(os.sched_getaffinity(0))[:cores]
    if len(mine) < cores:
        pytest.skip(f"needs {cores} cores; this process has {len(mine)}")
    (tmp_path / "python").write_text(f'#!/bin/sh\n{f"exec {sys.executable}" if python else "exit 1 #"} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        [root / "binder/start", "sh", "-c", 'echo "$OMP_NUM_THREADS/$1"', "sh", "two words"],
        env=environment,
        cwd=root,
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, mine),
    )
    assert done.stdout == f"{max(1, int(min(cores, usable_cores())))}/two words\n"


@pytest.fixture(scope="module")
def benchmark(root: Path) -> Iterator[ModuleType]:
    """Import benchmarks/lab_memory.py, which wrote the files checked here."""
    sys.path.insert(0, str(root / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location("lab_memory", root / "benchmarks/lab_memory.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(root / "benchmarks"))


@pytest.fixture(scope="module")
def measured(root: Path) -> dict:
    return json.loads((root / "benchmarks/results/lab_memory.json").read_text())["result"]


def test_each_lab_was_measured_under_the_bounds_of_a_binder(root: Path, measured: dict) -> None:
    assert (measured["limit_bytes"], measured["cores"]) == (2 * 2**30, 2)
    assert set(measured["labs"]) == {path.stem for path in (root / "labs").glob("*/*.ipynb")}


def test_readme_says_what_was_measured(root: Path, benchmark: ModuleType, measured: dict) -> None:
    readme = (root / "README.md").read_text()
    assert f"| {benchmark.COLUMN} |" in readme
    assert benchmark.with_memory(readme, benchmark.peaks(measured)) == readme


def test_a_release_offers_what_fits(root: Path, benchmark: ModuleType, measured: dict) -> None:
    text = (root / "binder/lab_memory.toml").read_text()
    assert text == benchmark.offers(measured)
    assert all(mebibytes <= 2048 for mebibytes in tomllib.loads(text).values())
    too_large = measured | {"labs": measured["labs"] | {"lab07_parallelism": {"error": "killed"}}}
    assert "lab07_parallelism" not in tomllib.loads(benchmark.offers(too_large))


def test_changed_figure_is_noticed(benchmark: ModuleType) -> None:
    rows = "| [00](labs/lab00_x/lab00_x.ipynb) | 1 |\n| [01](labs/lab01_y/a) | 2 |"
    readme = f"| lab | hours |\n|---|---|\n{rows}\n\n| a | b |"
    with_column = benchmark.with_memory(readme, {"lab00_x": "0.5 GB", "lab01_y": "over 2 GiB"})
    assert with_column == (
        f"| lab | hours | {benchmark.COLUMN} |\n|---|---|---|\n| [00](labs/lab00_x/lab00_x.ipynb) | 1 | 0.5 GB |\n"
        "| [01](labs/lab01_y/a) | 2 | over 2 GiB |\n\n| a | b |"
    )
    assert benchmark.with_memory(with_column, {"lab00_x": "0.5 GB", "lab01_y": "over 2 GiB"}) == with_column
    assert benchmark.with_memory(with_column, {"lab00_x": "0.6 GB", "lab01_y": "over 2 GiB"}) != with_column


def test_a_lab_that_was_killed_or_failed_does_not_fit(benchmark: ModuleType) -> None:
    assert benchmark.fits({"peak_bytes": 2**30, "error": ""})
    assert not benchmark.fits({"peak_bytes": 2**30, "error": "DeadKernelError: Kernel died"})
    assert not benchmark.fits({"peak_bytes": 2**31 + 1, "error": ""})
    assert not benchmark.fits({"error": "killed"})
