"""The tests of this folder under the oldest Triton that the kit admits and the newest that it was tried with.

Each version is installed once, into build/, and kept. Without a network and without the folder the test fails with the
reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import triton

from tests.conftest import ROOT

OLDEST, NEWEST = "3.6.0", "3.9.0"


def installed(version: str) -> Path:
    """Return a folder with that Triton, which is moved there when pip is done so that it is never incomplete."""
    folder = ROOT / "build" / f"triton-{version}"
    if not (folder / "triton").exists():
        folder.parent.mkdir(exist_ok=True)
        partial = tempfile.mkdtemp(dir=folder.parent, prefix="triton-partial-")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
        # Pip's own copies lie beside it: moved, not copied, and no gigabyte in a temporary folder that others need.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="pip-") as place:
            done = subprocess.run(
                [*pip, "--no-cache-dir", "--target", partial, f"triton=={version}"],
                env={**os.environ, "TMPDIR": place},
                capture_output=True,
                text=True,
            )
        if done.returncode:
            shutil.rmtree(partial)
            pytest.fail(f"pip cannot install triton {version}, which this test is about:\n{done.stderr[-2000:]}")
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(partial, folder)
    return folder


@pytest.mark.soak  # a download and half a minute of CPU time each; the workflow runs the whole suite under both
@pytest.mark.parametrize("version", [one for one in (OLDEST, NEWEST) if one != triton.__version__])
def test_folder_passes_under_another_triton(version: str) -> None:
    paths = [str(installed(version)), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    shown = subprocess.run(
        [sys.executable, "-c", "import triton; print(triton.__version__)"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip() == version, shown.stderr
    options = ["-q", "-x", "--tb=short", "-p", "no:xdist", "-p", "no:cacheprovider", f"--ignore={__file__}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(Path(__file__).parent), *options],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"triton {version}\n{done.stdout[-6000:]}{done.stderr[-1000:]}"
