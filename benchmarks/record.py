"""Results of benchmarks, written with a description of the machine that ran them."""

from __future__ import annotations

import json
import os
import platform
from datetime import date
from pathlib import Path
from typing import Any

from mlsys_labkit._base.limits import usable_cores
from mlsys_labkit.device import detect

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Return the facts needed to judge a figure: processor, GPU, usable cores, load, versions."""
    device = detect(os.environ | {"LABKIT_DEVICE": ""})  # a virtual device measures nothing
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next(
            (line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line), model
        )
    return {
        "processor": model,
        "cores": usable_cores(),
        "load_1_min": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "date": date.today().isoformat(),
        "gpu": device.name if device.kind == "cuda" else "not measured",
    }


def write_result(name: str, result: dict[str, Any]) -> Path:
    """Write ``results/name.json``: the machine and the result."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), "result": result}, indent=2) + "\n")
    print(f"wrote {path.relative_to(RESULTS.parent.parent)}")
    return path
