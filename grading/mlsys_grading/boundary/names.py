"""Names by which both processes find the same thing: a student's function or class, a library's, a call."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from mlsys_grading.boundary import proxies
from mlsys_grading.boundary.student import LIBRARIES, named


def call_name(operation: str, given: tuple[Any, ...]) -> str:
    """Return the name that a contract has for a call."""
    target = given[0] if given else None
    name = student_name(target)
    if operation in ("method", "getattr"):
        return f"{operation} {name}.{given[1]}"
    if operation == "names":
        return f"value {', '.join(given[0])}"
    if operation == "probe":
        about = next(filter(None, map(student_name, given[1])), "")
        return f"{str(target).rpartition('.')[2]} {about}".strip()
    return f"{operation} {name}".strip()


def student_name(value: Any) -> str:
    """Return the name that messages use for something of the student's; "" for anything else."""
    if isinstance(value, proxies.Remote):
        return str(vars(value)["_path"])
    return str(getattr(value, "__labkit_student__", "")) or proxies.class_path(value)


def library_path(value: Any) -> str:
    """Return the dotted path at which both processes find the same function or class of a library."""
    if not callable(value):
        return ""
    homes = dict.fromkeys([str(getattr(value, "__module__", None)), "torch", "numpy", "torch.nn.functional"])
    names = dict.fromkeys(getattr(value, each, None) for each in ("__qualname__", "__name__"))
    for home in homes:
        if home.partition(".")[0] not in LIBRARIES or home not in sys.modules:
            continue
        for name in names:
            with suppress(AttributeError):
                if name and named(f"{home}.{name}") is value:
                    return f"{home}.{name}"
    return ""
