"""Step ``labs``: the solutions executed as a student's on the GPU, and two under another device's name beside it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.cases import ROOT, Case, torch_on_gpu
from benchmarks.gpu.commands import labkit

# Those whose cells touch a GPU first, so that a step cut short has them.
ORDER = ("lab03", "lab05", "lab04", "lab09", "lab10", "lab06", "lab08", "lab00", "lab01", "lab02", "lab07")
VIRTUAL = ("lab01", "lab05")  # a student on a GPU machine who looks at another GPU: tensors and kernels stay on the CPU


def cases() -> list[Case]:
    plain = [Case(lab, partial(execute, lab), 300) for lab in ORDER]
    return [
        *plain,
        *(Case(f"{lab} with LABKIT_DEVICE", partial(execute, lab, LABKIT_DEVICE="a10"), 200) for lab in VIRTUAL),
    ]


def execute(lab: str, **environment: str) -> dict[str, Any]:
    """Execute one solution, and return what its section for a GPU printed."""
    torch_on_gpu()
    with TemporaryDirectory(prefix="labkit-gpu-") as folder:
        ran = labkit("run", lab, "--no-roofline", "--out", folder, **environment)
        report = Path(folder, "report.json")
        if not report.exists():
            return {"ok": False, "error": f"no report: {(ran.stdout + ran.stderr).strip()[-400:]}"}
        (notebook,) = json.loads(report.read_text())["notebooks"]
        executed = Path(folder, "notebooks", f"{notebook['name']}.ipynb")
        said = printed(json.loads(executed.read_text())) if executed.exists() else []
    found = {key: notebook[key] for key in ("peak_bytes", "error", "failure") if notebook.get(key)}
    return {"ok": notebook["status"] == "passed", "on_gpu": said, **found}


def printed(notebook: dict[str, Any]) -> list[str]:
    """Return the lines that the cells under the heading "On your GPU" printed."""
    found, inside = [], False
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            inside = "On your GPU" in source if source.startswith("## ") else inside
        elif inside:
            for output in cell.get("outputs", []):
                text = output.get("text") or output.get("data", {}).get("text/plain") or ""
                found += "".join(text).strip().splitlines()
    return found[:60]


def lab_names() -> set[str]:
    """Return the first letters of all labs, which ORDER has to name."""
    return {path.name[:5] for path in (ROOT / "solutions").glob("lab*")}
