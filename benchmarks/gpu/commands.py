"""The command ``labkit`` in a process of its own, for steps whose cases are whole commands."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.gpu.cases import ROOT, NotMeasured

_MAIN = "import sys; from mlsys_labkit._frontends.cli import main; sys.exit(main(sys.argv[1:]))"


def labkit(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``labkit`` in the checkout. Raises NotMeasured where its graders are not installed."""
    try:
        import jupytext  # noqa: F401
        import nbgrader  # noqa: F401
    except ImportError as missing:
        raise NotMeasured(f"{missing.name} is not installed; make wheelhouse brings it") from None
    command = [sys.executable, "-c", _MAIN, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment})
