"""Facts about the machine that a reader needs to judge a figure: GPU, driver, versions, clocks. Nothing is set."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch",
    "triton",
    "numpy",
    "transformers",
    "cuda-core",
    "cuda-bindings",
    "nvidia-ml-py",
    "nvidia-cuda-nvrtc",
)
_VERSIONS = """
import json, platform
from importlib import metadata
def version(name):
    try: return metadata.version(name)
    except metadata.PackageNotFoundError: return ""
print(json.dumps({"python": platform.python_version(), **{name: version(name) for name in %r}}))
"""


def machine(python: str = sys.executable) -> dict[str, Any]:
    """Return the GPU, the processor and the versions that ``python`` imports. No host's name is among them."""
    import json

    gpu = _query("name", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.mem", "mig.mode.current")
    versions = json.loads(_said(python, "-c", _VERSIONS % (PACKAGES,)) or "{}")
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
    return {
        "gpu": gpu.get("name", "none"),
        "driver": gpu.get("driver_version", ""),
        "memory": gpu.get("memory.total", ""),
        "most_clocks": {"sm": gpu.get("clocks.max.sm", ""), "memory": gpu.get("clocks.max.mem", "")},
        "mig": gpu.get("mig.mode.current", ""),
        "nvcc": _said("nvcc", "--version").rpartition("\n")[2],
        "g++": _said("g++", "--version").partition("\n")[0],
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1_min": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "date": date.today().isoformat(),
        **versions,
    }


def clocks() -> dict[str, str]:
    """Return the GPU's clocks, temperature and power now; empty without a GPU."""
    return _query("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")


def _query(*fields: str) -> dict[str, str]:
    said = _said("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader").partition("\n")[0]
    values = [value.strip() for value in said.split(",")]
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else {}


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
