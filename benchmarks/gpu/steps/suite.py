"""Step ``suite``: the unit tests marked gpu, and those that may find another machine where there is a GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from typing import Any

from benchmarks.gpu.cases import ROOT, Case, NotMeasured, torch_on_gpu

PARTS: dict[str, tuple[tuple[str, ...], float]] = {
    "marked gpu": (("-m", "gpu", "tests/cuda/test_gpu_backend.py", "tests/labkit/test_memory.py"), 90),
    "triton": (("tests/triton",), 180),
    "cuda": (("tests/cuda", "--ignore=tests/cuda/test_corpus.py", "--ignore=tests/cuda/test_views_browser.py"), 300),
    "timing": (("tests/labkit/test_timing.py", "tests/labkit/test_device.py", "tests/labkit/test_roofline.py"), 120),
    "serving": (("tests/serving",), 180),
}


def cases() -> list[Case]:
    return [Case(name, partial(run_tests, *words), seconds) for name, (words, seconds) in PARTS.items()]


def run_tests(*words: str) -> dict[str, Any]:
    """Run a part of the suite and return the tests that failed."""
    torch_on_gpu()
    plugins = ["-n", "8", "--dist", "loadgroup"] if _installed("xdist") else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, "--tb=line", *words]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if "No module named pytest" in ran.stderr:
        raise NotMeasured("pytest is not installed")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S.{0,200})", ran.stdout, re.MULTILINE)
    last = ran.stdout.strip().rpartition("\n")[2] or ran.stderr.strip()[-200:]
    said = [] if ran.returncode == 0 else ran.stdout.splitlines()[-40:]
    return {"ok": ran.returncode == 0, "last": last, "failed": failed[:60], "said": said}


def _installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None
