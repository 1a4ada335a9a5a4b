"""``Bounds``: the resources that one submission may use. The lab or the command line can change each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from mlsys_grading.sandbox.limits import SandboxLimits
from mlsys_grading.time_limits import TimeLimits
from mlsys_labkit.errors import LabkitError

NAMESPACE = "mlsys_grading"
"""Of the kit's own metadata in a notebook."""

_LIMITS = {
    "memory_gib": ("memory_bytes", 1 << 30),
    "scratch_mib": ("scratch_bytes", 1 << 20),
    "file_gib": ("file_bytes", 1 << 30),
    "processes": ("children", 1),
}
_TIME_LIMITS = tuple(each.name for each in fields(TimeLimits))
_SLOTS = ("gpu", "timing")


@dataclass(frozen=True)
class Bounds:
    """Limits of one submission.

    A lab states its own in its notebook's metadata, under ``mlsys_grading: limits:``; ``labkit grade --limit
    NAME=VALUE`` goes before that. Names: memory_gib, scratch_mib, file_gib, processes, call_seconds, cell_seconds,
    wall_seconds; and gpu and timing, which are true or false.

    Attributes:
        sandbox: False runs the submission's code with all the rights of the grader.
        gpu: True leases a GPU for this submission alone while it is graded.
        timing: True grades no other submission at the same time on the same machine.
    """

    time_limits: TimeLimits = field(default_factory=TimeLimits)
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    sandbox: bool = True
    gpu: bool = False
    timing: bool = False

    def stated(self, limits: Mapping[str, Any]) -> Bounds:
        """Return these bounds, changed by the ``limits`` given by the names above.

        Raises LabkitError for an unknown name, or a value that it cannot have.

        Example:
            >>> Bounds().stated({"memory_gib": 8, "gpu": True}).limits.memory_bytes >> 30
            8
        """
        bounds = self
        for name, value in limits.items():
            if name in _SLOTS:
                if type(value) is not bool:
                    raise _wrong(name, value, "true or false")
                bounds = replace(bounds, gpu=value) if name == "gpu" else replace(bounds, timing=value)
                continue
            if name not in (*_LIMITS, *_TIME_LIMITS):
                known = ", ".join((*_LIMITS, *_TIME_LIMITS, *_SLOTS))
                raise LabkitError(f"there is no limit {name!r}; there are {known}")
            if type(value) not in (int, float) or not 0 < value < 1 << 20:
                raise _wrong(name, value, "a number above 0 and below a million")
            if name in _TIME_LIMITS:
                bounds = replace(bounds, time_limits=replace(bounds.time_limits, **{name: float(value)}))
            else:
                which, unit = _LIMITS[name]
                bounds = replace(bounds, limits=replace(bounds.limits, **{which: max(1, int(value * unit))}))
        return bounds

    def of(self, notebook: Mapping[str, Any], limits: Mapping[str, Any] | None = None) -> Bounds:
        """Return these bounds, changed by a lab's notebook and then by ``limits``."""
        own = (notebook.get("metadata") or {}).get(NAMESPACE) or {}
        stated = own.get("limits") or {} if isinstance(own, Mapping) else own
        if not isinstance(stated, Mapping):
            raise LabkitError(
                f"the notebook's metadata has {NAMESPACE}: {str(own)[:60]!r}; write limits: {{name: value}}"
            )
        return self.stated({**stated, **(limits or {})})


def _wrong(name: str, value: object, expected: str) -> LabkitError:
    return LabkitError(f"the limit {name} is {value!r}; write {expected}")
