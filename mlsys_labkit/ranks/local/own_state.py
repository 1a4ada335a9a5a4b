"""Each rank's own part of the state that a process has once: a copy from before the run, and its changes since."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

from mlsys_labkit.ranks.local.copying import Copier
from mlsys_labkit.ranks.local.program import find_program, forget_modules, is_library
from mlsys_labkit.ranks.random_state import RandomState
from mlsys_labkit.ranks.recording import torch_private

Values = list[dict[str, Any]]  # of each place of the program


class Notebook:
    """The state of the process before the run: each rank begins with a copy of it, and it is restored at the end."""

    def __init__(self, fn: Any, arguments: Any) -> None:
        self.fn, self.program = fn, find_program(fn, arguments)
        for name in self.program.imports:
            with suppress(ImportError):
                importlib.import_module(name)  # a default argument in it would be the group of the first rank
        self.values = self.read()
        self.random = RandomState.capture()

    def read(self) -> Values:
        return [place.read() for place in self.program.places]

    def write(self, values: Values) -> None:
        for place, own in zip(self.program.places, values, strict=True):
            place.write(own)

    def restore(self) -> None:
        self.write(self.values)
        self.random.restore()
        forget_modules()

    def copied(self) -> tuple[Values, Any]:
        """Return a copy of the values, as another process would have it, and of the function itself."""
        program = self.program
        with (
            torch_private.unseen(),
            Copier(program.classes, program.caches, program.of_thread, is_library).ready() as copier,
        ):
            values = [
                own | {name: copier.copied(name, own[name]) for name in sorted(needed) if name in own}
                for own, needed in zip(self.values, program.needed, strict=True)
            ]
            return values, (copier.copied("the function", self.fn), copier.weakly_held())


class OwnState:
    """The state of one rank while another one runs."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._values: Values | None = None
        self._random = notebook.random
        self.fn: Any = None
        self._held: Any = None

    def save(self) -> None:
        self._values, self._random = self._notebook.read(), RandomState.capture()

    def restore(self) -> None:
        if self._values is None:
            self._values, (self.fn, self._held) = self._notebook.copied()
        self._notebook.write(self._values)
        self._random.restore()
