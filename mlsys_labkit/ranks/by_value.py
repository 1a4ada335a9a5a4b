"""Pickles of functions and classes by value, with the files of their code: a ``pickle_module`` for ``torch.save``."""

from __future__ import annotations

import io
import pickle
from functools import cache
from types import CodeType
from typing import Any

from mlsys_labkit.errors import require


@cache
def _pickler() -> Any:
    """Return cloudpickle's class of picklers, changed to keep the file of a function's code.

    cloudpickle 3.1.3 replaces the file by ``<dynamic-code>``. Traces and errors of ranks name lines of that file.
    """
    cloudpickle = require("cloudpickle", "torch")

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined]
        def reducer_override(self, obj: Any) -> Any:
            if not isinstance(obj, CodeType):
                return super().reducer_override(obj)
            make, arguments = self.dispatch_table[CodeType](obj)
            return make, tuple(obj.co_filename if each == "<dynamic-code>" else each for each in arguments)

    return Pickler


def dumps(value: Any) -> bytes:
    file = io.BytesIO()
    _pickler()(file, pickle.DEFAULT_PROTOCOL).dump(value)
    return file.getvalue()


def __getattr__(name: str) -> Any:
    if name == "Pickler":
        return _pickler()
    raise AttributeError(name)
