"""Real runs of the steps of a Binder and of a new dev container: minutes, and gigabytes from the package index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import jupytext
import nbformat
import pytest

from tests.places.test_binder import needs_repo2docker, repo2docker

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600), pytest.mark.xdist_group("places")]

# Of the Python 3.11 environment that repo2docker starts from, which holds Jupyter before our first step.
BASE = ("jupyterlab", "jupyter_server", "ipykernel", "ipython", "traitlets", "tornado")
LABS = ("lab00_your_machine", "lab03_cuda_matmul", "lab05_triton")  # torch, the compiler, triton


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """Clone this repository, as a service does."""
    tree = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{root}", tree], check=True)
    return tree


def run(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def of(prefix: Path, home: Path) -> dict[str, str]:
    """Return the environment of a user with only the programs under ``prefix``."""
    home.mkdir(exist_ok=True)
    gone = {"PYTHONPATH", "VIRTUAL_ENV", "JUPYTER_PATH", "XDG_CACHE_HOME", "OMP_NUM_THREADS"}
    kept = {name: value for name, value in os.environ.items() if name not in gone}
    path = f"{prefix / 'bin'}{os.pathsep}{kept['PATH']}"
    # Where torch's own index cannot be reached, pip would try it again and again for each package.
    return kept | {"PATH": path, "HOME": str(home), "PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "60"}


def solve_labs(checkout: Path, folder: Path, start: Sequence[str | Path], environment: Mapping[str, str]) -> None:
    """Execute solutions with the Jupyter of that place, started by the command ``start``."""
    for name in LABS:
        notebook = folder / f"{name}.ipynb"
        nbformat.write(jupytext.read(checkout / f"solutions/{name}/{name}.py", fmt="py:percent"), notebook)
        run([*start, "jupyter", "execute", "--timeout=600", notebook], folder, environment)


@needs_repo2docker
def test_a_binder_is_made_and_runs_labs(checkout: Path, tmp_path: Path) -> None:
    code, dockerfile = repo2docker(checkout)
    assert code == 0, dockerfile[-2000:]
    lock = Path(sys.prefix).glob(
        "lib/python3*/site-packages/repo2docker/buildpacks/conda/environment.py-3.11-linux-64.lock"
    )
    base = dict(re.findall(r"/([\w-]+?)-(\d[\d.]*)-\w+\.conda", next(lock).read_text()))
    prefix, home = tmp_path / "notebook", tmp_path / "home"
    python = shutil.which("python3.11") or sys.executable
    subprocess.run([python, "-m", "venv", prefix], check=True)
    environment = of(prefix, home) | {"KERNEL_PYTHON_PREFIX": str(prefix), "REPO_DIR": str(checkout)}
    run(["pip", "install", "-q", *(f"{name}=={base[name]}" for name in BASE)], tmp_path, environment)
    steps = [step for step in re.findall(r"^RUN (.*)$", dockerfile, re.MULTILINE) if "binder/" in step]
    assert len(steps) == 4, steps  # pip, chmod and postBuild, chmod of start
    for step in steps:
        run(["bash", "-c", step], checkout, environment)
    assert run(["jupyter", "lab", "--version"], checkout, environment).strip() == base["jupyterlab"]
    run(["pip", "check"], checkout, environment)
    solve_labs(checkout, tmp_path, [checkout / "binder/start"], environment)


def test_a_dev_container_is_made_and_runs_labs(checkout: Path, tmp_path: Path) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a GPU; the steps without one are what is tried here")
    environment = of(Path("/usr/local"), tmp_path / "home")
    run(["bash", ".devcontainer/create"], checkout, environment)
    inside = of(checkout / ".venv", tmp_path / "home")
    run(["pip", "check"], checkout, inside)
    solve_labs(checkout, tmp_path, [], inside)
