"""Environment on a GPU machine without a network: the machine's own Python and packages, and the wheelhouse.

    python3 -m benchmarks.gpu.install       prints the interpreter of the environment

Takes torch, triton and numpy from the interpreter that runs this, and everything else from build/wheelhouse. Refuses a
wheelhouse that is not whole. A second call with the same wheelhouse returns at once.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

from benchmarks.gpu.manifest import NAME, read_manifest

ROOT = Path(__file__).resolve().parents[2]
WHEELHOUSE = ROOT / "build" / "wheelhouse"
ENVIRONMENT = ROOT / "build" / "gpu-environment"
# Each is a leaf of what the labs' graders import: a wheel that wheels.txt lacks stops the installation and not a step.
TRY = "import torch, triton, jupytext, nbgrader.api, papermill, plotly, anywidget, latex2mathml, mlsys_grading"


def main() -> int:
    try:
        print(install(WHEELHOUSE, ENVIRONMENT))
    except (ValueError, OSError) as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as failed:
        said = [line for line in (failed.stderr or "").strip().splitlines() if line.strip()]
        reason = next((line.strip() for line in reversed(said) if "Error:" in line or "ERROR:" in line), "no word")
        print(f"gpu: the wheelhouse cannot be installed: {reason}", file=sys.stderr)
        return 2
    return 0


def install(wheelhouse: Path, environment: Path) -> Path:
    """Make the environment and return its interpreter. Raises ValueError for a wheelhouse that is not whole."""
    wheels = read_manifest(wheelhouse)
    check_version(wheels)
    python, stamp = environment / "bin" / "python", environment / ".ready"
    state = hashlib.sha256((wheelhouse / NAME).read_bytes() + sys.executable.encode() + str(ROOT).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == state:
        return python
    shutil.rmtree(environment, ignore_errors=True)
    _run(sys.executable, "-m", "venv", "--without-pip", str(environment))
    # An environment of an environment would see the system's packages only, so that these are named.
    folders = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()])
    (packages,) = (environment / "lib").glob("python3.*/site-packages")
    (packages / "zz_base.pth").write_text("".join(f"{folder}\n" for folder in folders))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "-q"]
    pip += ["--no-index", "--no-deps", "--no-compile", "--no-cache-dir"]
    _run(*pip, "--find-links", str(wheelhouse), *map(str, wheels))
    _run(*pip, "--no-build-isolation", "-e", str(ROOT), "-e", str(ROOT / "grading"))
    _run(str(python), "-c", TRY)
    stamp.write_text(state)
    return python


def check_version(wheels: list[Path], here: tuple[int, int] = sys.version_info[:2]) -> None:
    """Raise ValueError in one line for wheels that were fetched for another Python than ``here``."""
    tags = {tag[1] for path in wheels if (tag := re.search(r"-cp3(\d+)-cp3\1-", path.name))}
    if tags and str(here[1]) not in tags:
        wanted, own = f"3.{min(tags)}", f"{here[0]}.{here[1]}"
        again = f"run: make gpu PYTHON=python{wanted}, or fetch again with: make wheelhouse GPU_PYTHON={own}"
        raise ValueError(f"the wheelhouse is for Python {wanted}, and this is Python {own}; {again}")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
