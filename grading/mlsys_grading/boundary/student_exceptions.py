"""Exceptions that student code raised, made again in the examiner's process from their plain description."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlsys_grading.boundary.values import Decoder

BUILT_IN = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and not issubclass(kind, (StopIteration, StopAsyncIteration, Warning, BaseExceptionGroup))
}
_LIBRARIES: dict[str, type[Exception]] = {"numpy.linalg.LinAlgError": np.linalg.LinAlgError}


def make_exception(told: Any, own: Mapping[str, type[Exception]], records: dict[str, type]) -> Exception:
    """Make an exception of the closest class that the examiner has; of RuntimeError, if it has none.

    Args:
        told: its ``kinds`` (paths of its classes, the closest first), ``message``, ``arguments`` and ``attributes``.
        own: the stand-ins of the student's classes of exceptions, by name.
        records: the examiner's own classes of records, by name.
    """
    kinds, message = told["kinds"], told["message"]
    for path in kinds:
        origin, _, name = path.rpartition(".")
        if origin in ("student", "__main__"):
            kind = own.get(name)
        elif origin == "builtins":
            kind = BUILT_IN.get(name)
        else:
            kind = _LIBRARIES.get(path) or _of_kit(path)
        if kind:
            made = kind.__new__(kind)
            given = Decoder(records=records).value(told.get("arguments"))
            made.args = given if type(given) is tuple else (message,)
            attributes = Decoder(records=records).value(told.get("attributes"))
            if type(attributes) is dict:
                vars(made).update({name: each for name, each in attributes.items() if type(name) is str})
            return made
    return RuntimeError(f"{kinds[0] if kinds else 'an exception'}: {message}")


def _of_kit(path: str) -> type[Exception] | None:
    if not path.startswith("mlsys_labkit."):
        return None
    module, _, name = path.rpartition(".")
    kind = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None
