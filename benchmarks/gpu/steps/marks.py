"""Step ``marks``: one exercise, one grade. ``labkit prove`` with the GPU in sight and without, mark by mark."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from benchmarks.gpu.cases import ROOT, Case, torch_on_gpu
from benchmarks.gpu.commands import labkit
from benchmarks.gpu.steps.labs import ORDER

# Of a machine without a GPU: labkit prove --json > build/gpu/reference.json. Halves the time; the task names it.
REFERENCE = ROOT / "build" / "gpu" / "reference.json"


def cases() -> list[Case]:
    return [Case(lab, partial(compare_marks, lab), 400) for lab in ORDER]


def compare_marks(lab: str) -> dict[str, Any]:
    """Compare the marks of the solution, the unsolved notebook and each wrong answer."""
    torch_on_gpu()
    here, there = prove(lab), _kept(lab) or prove(lab, CUDA_VISIBLE_DEVICES="")
    mine, theirs = marks(here), marks(there)
    differ = {key: [mine.get(key), theirs.get(key)] for key in mine | theirs if mine.get(key) != theirs.get(key)}
    problems = [f"{each['where']}: {each['text']}"[:300] for each in here["problems"]][:10]
    return {"ok": not differ and here["proved"], "marks": len(mine), "differ": differ, "problems": problems}


def prove(lab: str, **environment: str) -> dict[str, Any]:
    """Return the proof of one lab as JSON."""
    ran = labkit("prove", lab, "--json", **environment)
    try:
        (proof,) = json.loads(ran.stdout)
    except ValueError:
        raise RuntimeError(f"labkit prove {lab}: {(ran.stderr or ran.stdout).strip()[-300:]}") from None
    return dict(proof)


def marks(proof: dict[str, Any]) -> dict[str, float]:
    """Return the marks of a proof by task and answer."""
    found = {}
    for task in proof["tasks"]:
        found |= {f"{task['name']}.solution": task["solution"], f"{task['name']}.unsolved": task["unsolved"]}
        found |= {f"{task['name']}.{wrong['name']}": wrong["earned"] for wrong in task["wrong"]}
    return found


def _kept(lab: str) -> dict[str, Any] | None:
    if not REFERENCE.exists():
        return None
    return next((proof for proof in json.loads(REFERENCE.read_text()) if proof["name"].startswith(lab)), None)
