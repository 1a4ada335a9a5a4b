"""The machine and the package versions of a run, as plain data."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = """
    mlsys-labkit mlsys-grading numpy torch triton plotly anywidget ipykernel jupyter_client nbclient papermill nbconvert
    nbgrader
"""


def machine() -> dict[str, Any]:
    """Describe the machine: processor, operating system, cores and memory that this process may use."""
    from mlsys_labkit._base.limits import memory_limit_bytes, usable_cores

    return {
        "processor": _processor(),
        "usable_cores": usable_cores(),
        "memory_limit_bytes": memory_limit_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "load_1min": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Return Python's version and those of the installed packages among :data:`PACKAGES`."""
    found = {"Python": platform.python_version()}
    for package in PACKAGES.split():
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
