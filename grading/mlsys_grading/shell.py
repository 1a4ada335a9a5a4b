"""A shell that runs cells in this process as a kernel would, and keeps each cell's error, stderr and last value.

It is IPython's kernel in this process (``mlsys_grading.kernel``): what works in a notebook works here, in the same way.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from mlsys_grading.kernel.kernel import kernel_of_this_process
from mlsys_grading.kernel.loop import ForkableLoop

T = TypeVar("T")

_TEXT_LIMIT = 4000


@dataclass(frozen=True)
class CellSource:
    """One code cell to run: its place in the notebook, its name there, and whether marks depend on it."""

    index: int
    name: str
    source: str
    is_test: bool = False


class Shell:
    """One session. Make it before the fork; a fork carries its state on."""

    def __init__(self) -> None:
        self._kernel = kernel_of_this_process()
        self._kernel.enter()
        self._shell = self._kernel.shell
        self._loop = ForkableLoop()
        self._code_names: dict[str, CellSource] = {}
        self._running: CellSource | None = None
        cache = self._shell.compile.cache

        def remember(*args: Any, **kwargs: Any) -> str:
            name: str = cache(*args, **kwargs)
            if self._running is not None:
                self._code_names[name] = self._running
            return name

        self._shell.compile.cache = remember  # type: ignore[method-assign]

    @property
    def space(self) -> dict[str, Any]:
        """The notebook's globals."""
        space: dict[str, Any] = self._shell.user_ns
        return space

    def run(self, cell: CellSource) -> dict[str, Any]:
        """Run one cell; returns plain data: ``index``, ``seconds``, nbformat ``outputs``, and ``error`` or None."""
        return self.finish(self.run_in_loop(cell))

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` within the loop and the context that cells run in."""
        return self._loop.finish(work)

    def rehearse(self) -> None:
        """Run a cell that does nothing and leaves nothing: what the first cell would have to make is then there.

        In a fork this also copies the pages that every cell writes to.
        """
        self.finish(self.run_in_loop(CellSource(-1, "", "pass"), in_history=False))
        self._code_names.clear()
        self._running = None

    async def run_in_loop(self, cell: CellSource, in_history: bool = True) -> dict[str, Any]:
        """Run a cell as ``run`` does, within work that is done by ``finish``."""
        self._running = cell
        shell = self._shell
        shell.taken.clear()
        shell.keeps_values = cell.is_test
        started = time.perf_counter()
        with _Streams() as streams:
            error = await self._kernel.execute(cell.source, in_history)
            await self._loop.turns()
        seconds = time.perf_counter() - started
        outputs: list[dict[str, Any]] = []
        if streams.stderr:
            outputs.append({"output_type": "stream", "name": "stderr", "text": streams.stderr})
        outputs += shell.taken
        if error is not None:
            text = str(error)[:_TEXT_LIMIT]
            outputs.append({"output_type": "error", "ename": type(error).__name__, "evalue": text, "traceback": []})
        return {
            "index": cell.index,
            "seconds": seconds,
            "outputs": outputs,
            "error": self._describe(error) if error is not None else None,
        }

    def _describe(self, error: BaseException) -> dict[str, Any]:
        """Describe an error and its place: the check that raised it, and lines of the cell that ran.

        ``statement`` is the line at the top level of the cell, ``line`` the innermost, which may be in a function.
        """
        line, check, student_line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None, "", None
        statement: int | None = None
        for frame, number in traceback.walk_tb(error.__traceback__):  # extract_tb would read every source file
            code = frame.f_code
            cell = self._code_names.get(code.co_filename)
            if cell is self._running and cell is not None:
                line, check, student_line = number, "", None
                statement = statement or number
            elif cell is not None:
                student_line = [cell.name, number]
            elif not check and f"mlsys_labkit{os.sep}checks" in code.co_filename and code.co_name.startswith("expect_"):
                check = code.co_name
        kinds = type(error).__mro__[:-1]
        return {
            # From Python 3.13 on, a cell that ends too early raises _IncompleteInputError, which no one can name.
            "kinds": [kind.__name__ for kind in kinds if (kind.__module__, kind.__name__[0]) != ("builtins", "_")],
            "message": str(error)[:_TEXT_LIMIT],
            "line": line,
            "statement": statement,
            "check": check,
            "raised_in": student_line,
        }


class _Streams:
    """A capture that drops stdout and keeps stderr, also what C code writes to file descriptor 2."""

    def __init__(self) -> None:
        self.stderr = ""

    def __enter__(self) -> _Streams:
        self._saved = sys.stdout, sys.stderr
        self._file = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")
        self._descriptors = os.dup(1), os.dup(2)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        os.dup2(self._file.fileno(), 2)
        sys.stdout = open(os.devnull, "w")
        sys.stderr = open(os.dup(2), "w", encoding="utf-8", errors="replace", buffering=1)
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.close()
        sys.stdout, sys.stderr = self._saved
        for saved, target in zip(self._descriptors, (1, 2), strict=True):
            os.dup2(saved, target)
            os.close(saved)
        self._file.seek(0)
        self.stderr = self._file.read(_TEXT_LIMIT)
        self._file.close()
