"""Arguments that a call may write to: their content of before, and what the student's process has now."""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from typing import Any

from mlsys_grading.boundary.arrays import overwrite
from mlsys_grading.boundary.errors import ProtocolError

_REPLACED = (list, bytearray, dict, set, deque)


class ArgumentCopies:
    """Copies of the arguments' content, to be restored: the student then seems to have worked on copies."""

    def __init__(self, objects: list[object], spans: Any) -> None:
        self._spans = [(span, bytearray(span.bytes())) for span in spans if span.low < span.high]
        mutable = (each for each in objects[1:] if isinstance(each, _REPLACED) or dataclasses.is_dataclass(each))
        self._objects = [(each, copy.copy(each)) for each in mutable]

    def restore(self) -> None:
        for span, memory in self._spans:
            overwrite(span, memoryview(memory))
        for each, held in self._objects:
            replace_content(each, held)


def replace_content(old: Any, new: Any) -> None:
    """Give a mutable argument the content that it has in the student's process."""
    if type(old) is not type(new):
        raise ProtocolError("an argument that changed its type")
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)
    elif isinstance(old, deque):
        old.clear()
        old.extend(new)
    else:
        for each in dataclasses.fields(new):
            object.__setattr__(old, each.name, getattr(new, each.name))
