"""Cases of a step: what a worker process runs, one after the other, and the needs that a case can state."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "cuda" / "programs"


@dataclass(frozen=True)
class Case:
    """One measurement or check.

    Attributes:
        run: returns figures by name. ``"ok"`` among them is True or False; without it the case has no bar.
        seconds: time after which the process that runs the case is ended.
        alone: run the case in a new process that ends with it, because the case may lose the GPU.
    """

    name: str
    run: Callable[[], Mapping[str, Any]]
    seconds: float = 60.0
    alone: bool = False


class NotMeasured(Exception):
    """A machine that lacks what a case needs; the message names it."""


def torch_on_gpu() -> Any:
    """Return torch, or raise NotMeasured where it sees no GPU."""
    try:
        import torch
    except ImportError:
        raise NotMeasured("torch is not installed") from None
    if torch.version.cuda is None or not torch.cuda.is_available():
        raise NotMeasured("torch sees no GPU")
    return torch


def kit_on_gpu() -> None:
    """Raise NotMeasured where the kit's kernels run in the simulator."""
    from mlsys_labkit.cuda.nvidia.device import why_no_gpu

    if reason := why_no_gpu():
        raise NotMeasured(reason)


def warm_seconds(call: Callable[[], object]) -> float:
    """Return the median seconds of a call on the GPU by ``lk.bench``, with what it left in the cache."""
    import mlsys_labkit as lk

    return float(lk.bench(call, device="cuda", cold=False).median)


def tool(name: str) -> str:
    """Return the path of a program, or raise NotMeasured where it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise NotMeasured(f"{name} is not installed")
    return found


def first_line(error: BaseException, most: int = 300) -> str:
    """Return the class of an error and the first line of its message."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:most]
