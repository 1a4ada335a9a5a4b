"""The worker: the process that interprets kernels, started by launch.client.TritonWorker.

The worker reads launches from a pipe and answers on it, finds the arrays in shared memory, and ends with the notebook.
"""

from __future__ import annotations

import importlib
import io
import mmap
import os
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from mlsys_labkit.triton_trace.errors import RefusedSourceError, TritonKernelError
from mlsys_labkit.triton_trace.interpret import channel
from mlsys_labkit.triton_trace.interpret.interpreter import Interpreter
from mlsys_labkit.triton_trace.interpret.memory import LaunchMemory, MemoryRegion
from mlsys_labkit.triton_trace.recorder import Argument, Recorder
from mlsys_labkit.triton_trace.source import KernelSource

_PROGRESS_SECONDS = 0.25
_OUTPUT_BYTES = 1 << 16
_ERROR_CHARACTERS = 4_000


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    memory_file, lifeline = int(sys.argv[2]), int(sys.argv[3])
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    interpreter = Interpreter()
    channel.send(connection, {"ready": True})
    while True:
        try:
            request, _ = channel.receive(connection)
        except EOFError:
            return
        channel.send(connection, *_answer(interpreter, connection, request, memory_file))


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(0)


def _answer(
    interpreter: Interpreter, connection: Connection, request: dict[str, Any], memory_file: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    output = _Output(connection)
    started = time.monotonic()
    try:
        recorder = _recorder(request["recorder"])
        regions = _map(memory_file, request["regions"])
        interpreter.launch(
            KernelSource.from_json(request["source"]),
            tuple(request["grid"]),
            request["arguments"],
            tuple(Argument(**one) for one in request["arrays"]),
            LaunchMemory(regions),
            warps=request["warps"],
            recorder=recorder,
            order=_order(request["order"], request["grid"]),
            print=output.write,
            progress=output.progress,
        )
        report, arrays = recorder.end() if recorder else ({}, {})
    except RefusedSourceError as error:
        return {"refused": _beginning(error)}, {}
    except TritonKernelError as error:
        said = {"failed": _beginning(error), "refusal": error.refusal, "cause": _beginning(error.__cause__ or "")}
        return {**said, "place": error.place, "line": error.line, "program": error.program}, {}
    except Exception as error:
        return {"broken": f"{type(error).__name__}: {_beginning(error)}"}, {}
    finally:
        output.finish()
    stored = [region.stored for region in regions]
    return {"report": report, "stored": stored, "seconds": time.monotonic() - started}, arrays


def _beginning(error: object) -> str:
    """Return the error's text, or its beginning where the kernel made it long."""
    text = str(error)
    left = len(text) - _ERROR_CHARACTERS
    return text if left <= 0 else f"{text[:_ERROR_CHARACTERS]} [{left:,} characters more]"


def _recorder(spec: str | None) -> Recorder | None:
    """Make the recorder that ``spec`` names as "module:Class" inside this package."""
    if spec is None:
        return None
    module, _, name = spec.partition(":")
    made: Recorder = getattr(importlib.import_module(f"mlsys_labkit.triton_trace.{module}"), name)()
    return made


def _map(file: int, layout: list[dict[str, Any]]) -> list[MemoryRegion]:
    size = os.fstat(file).st_size
    everything = np.frombuffer(mmap.mmap(file, size), np.uint8) if size else np.empty(0, np.uint8)
    regions = []
    for one in layout:
        room = MemoryRegion.room(one["start"], one["stop"])
        buffer = everything[one["offset"] : one["offset"] + room]
        regions.append(MemoryRegion(one["start"], one["stop"], buffer, one["writable"], place=one["place"]))
    return regions


def _order(order: Any, grid: list[int]) -> Any:
    count = grid[0] * grid[1] * grid[2]
    if order == "ascending":
        return None
    if order == "reversed":
        return range(count - 1, -1, -1)
    return np.random.default_rng(order).permutation(count).tolist()


class _Output:
    """The kernel's output and progress, sent while it runs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept = io.StringIO()
        self._left = _OUTPUT_BYTES
        self._dropped = 0
        self._next = time.monotonic() + _PROGRESS_SECONDS

    def write(self, text: str) -> None:
        shown = text[: self._left]
        self._left -= len(shown)
        self._dropped += len(text) - len(shown)
        self._kept.write(shown)

    def progress(self, done: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_SECONDS
            self._send({"done": done})

    def finish(self) -> None:
        if self._dropped:
            self._kept.write(f"\n[the kernel printed {self._dropped:,} characters more]\n")
        self._send({})

    def _send(self, message: dict[str, Any]) -> None:
        if text := self._kept.getvalue():
            self._kept = io.StringIO()
            message["text"] = text
        if message:
            channel.send(self._connection, message)


if __name__ == "__main__":
    main()
