"""The student's side: runs the student's cells, and answers the examiner's requests about what they defined.

This code runs in the sandbox, in one interpreter with the student's code, which can read and change all of it.
Nothing here is a defence, and the examiner trusts no answer of it.
"""

from __future__ import annotations

import functools
import io
import operator
import os
import signal
import socket
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from mlsys_grading.boundary.arrays import Span, span_of
from mlsys_grading.boundary.definitions import definitions_of
from mlsys_grading.boundary.errors import NotPlainError, StudentGoneError
from mlsys_grading.boundary.lent_memory import BorrowedMemory
from mlsys_grading.boundary.rehearsal import rehearse
from mlsys_grading.boundary.values import Decoder, Encoder, Node
from mlsys_grading.boundary.wire import Wire
from mlsys_grading.sandbox import syscalls
from mlsys_grading.shell import CellSource, Shell
from mlsys_labkit._base import probes

LIBRARIES = frozenset(("torch", "numpy", "math", "operator", "builtins", "functools", "itertools", "collections"))
LIBRARIES |= {"random", "mlsys_labkit"}
"""Packages whose functions and classes may be named across the boundary, in both directions."""

_FOREVER = float("inf")
_TEXT = 2000
_LARGE_BYTES = 4 << 20


def named(path: str) -> Any:
    """Return the object of an imported library at a dotted path: ``torch.nn.functional.relu``."""
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = sys.modules.get(".".join(parts[:end]))
        if module is not None and parts[0] in LIBRARIES:
            return functools.reduce(getattr, parts[end:], module)
    raise AttributeError(f"no imported library has {path}")


class _Printed(io.TextIOBase):
    """A stream that keeps the first characters of what calls print."""

    encoding = "UTF-8"

    def __init__(self) -> None:
        self._text = ""

    def write(self, text: str) -> int:
        self._text += text[: _TEXT - len(self._text)]
        return len(text)

    def take(self) -> str:
        taken, self._text = self._text, ""
        return taken


class Callback:
    """A function, an iterator or an object that lives with the examiner."""

    def __init__(self, student: StudentProcess, number: int) -> None:
        self._student, self._number = student, number

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._student.ask_back(self._number, "call", [list(arguments), keywords])


class CallbackIterator(Callback):
    def __iter__(self) -> CallbackIterator:
        return self

    def __next__(self) -> Any:
        given = self._student.ask_back(self._number, "next", [])
        if not given:
            raise StopIteration
        return given[0]


class CallbackObject(Callback):
    def __getattr__(self, name: str) -> Any:
        return self._student.ask_back(self._number, "attribute", [name])


_CALLBACKS = {"function": Callback, "iterator": CallbackIterator, "object": CallbackObject}


class StudentProcess:
    """The server in the student's process for one examiner.

    Args:
        wire: to the examiner.
        shell: in which the cells run.
        cells: (position, name, source) of the cells to run, in order of their positions.
        records: names of the classes that locked cells define, whose instances cross as records.
        live: names of the classes that solutions define, whose instances stay here.
        whole: names of the cells that run whole, of the others only what they define; None: all.
        defined: names of cells of which only what they define runs, whatever ``whole`` says: they did not end before.
    """

    def __init__(
        self,
        wire: Wire,
        shell: Shell,
        cells: list[tuple[int, str, str]],
        records: list[str],
        live: Sequence[str] = (),
        whole: list[str] | None = None,
        *,
        defined: Sequence[str] = (),
    ) -> None:
        self._wire, self._shell, self._cells, self._record_names = wire, shell, cells, records
        self._live_names, self._whole, self._defined = live, whole, defined
        self._handles: dict[int, object] = {}
        self._numbers: dict[int, int] = {}
        self._borrowed = BorrowedMemory()
        self._printed = _Printed()
        self._passing: dict[int, tuple[BaseException, int]] = {}
        self._operations: dict[str, Callable[..., Any]] = {
            "run": self._run,
            "names": lambda names: {name: self.space[name] for name in names if name in self.space},
            "call": lambda function, arguments, keywords: function(*arguments, **keywords),
            "method": lambda owner, name, arguments, keywords: getattr(owner, name)(*arguments, **keywords),
            "probe": probes.answer,
            "getattr": getattr,
            "setattr": setattr,
            "len": len,
            "getitem": operator.getitem,
            "setitem": operator.setitem,
            "delitem": operator.delitem,
            "contains": lambda owner, item: item in owner,
            "iter": iter,
            "next": lambda iterator: [next(iterator)],
            "enter": lambda manager: type(manager).__enter__(manager),
            "exit": lambda manager: type(manager).__exit__(manager, None, None, None),
            "str": str,
            "repr": repr,
        }

    @property
    def space(self) -> dict[str, Any]:
        """The notebook's globals."""
        return self._shell.space

    def serve(self) -> None:
        """Answer until the examiner hangs up. A forked child of this process ends when it tries to answer."""
        os.register_at_fork(after_in_child=self._wire.close)
        try:
            self._shell.finish(self._serve())
        except StudentGoneError:  # on this side, the examiner is the one that has gone
            os._exit(0)

    async def _serve(self) -> None:
        """Answer within the notebook's loop, so that a call finds it running, as a test cell would have it."""
        while True:
            await self._answer(*self._wire.receive(_FOREVER))
            self._borrowed.clear()

    def ask_back(self, number: int, operation: str, given: list[Any]) -> Any:
        """Call one of the examiner's callbacks, in the middle of a call."""
        encoder = self._encoder()
        question = {"callback": number, "operation": operation, "given": encoder.node(given)}
        self._wire.send(question, encoder.collected().copies(), _FOREVER)
        while True:
            header, buffers = self._wire.receive(_FOREVER)
            if "operation" in header:  # the callback itself calls a student function
                with suppress(StopIteration):
                    self._answer(header, buffers).send(None)  # at once: no cell runs within a call
                continue
            self._borrowed.accept(number, header, buffers)
            if "error" in header:
                name, message, token = header["error"]
                kind = getattr(__import__("builtins"), name, RuntimeError)
                error = kind(message)
                self._passing[id(error)] = (error, token)
                raise error
            return self._decoder(buffers).value(header["value"])

    async def _answer(self, header: Mapping[str, Any], buffers: list[memoryview]) -> None:
        before = [_content(each) for each in buffers]
        known = [span_of(np.frombuffer(each, np.uint8)) for each in buffers]
        decoder = self._decoder(buffers)
        reply: dict[str, Any] = {"id": header["id"]}
        copies: list[Any] = []
        same: dict[int, int] = {}
        watched: dict[int, object] = {}
        old: dict[int, Node] = {}

        def changes(encoder: Encoder) -> list[Any]:
            now = ((number, each) for number, each in watched.items() if number in old)
            changed = [(number, each) for number, each in now if self._snapshot(each, known, same) != old[number]]
            return [[number, self._inside(encoder, each)] for number, each in changed]

        try:
            for name, seed in header.get("seeds", ()):
                named(name)(seed)
            given = decoder.value(header["given"])
            _, *objects = enumerate(decoder.objects)  # number 0 is the list of all arguments
            same = {id(each): number for number, each in objects}
            watched = {number: each for number, each in objects if _changes(each)}
            old = {number: self._snapshot(each, known, same) for number, each in watched.items()}
            with redirect_stdout(self._printed), redirect_stderr(self._printed):
                result = self._operations[header["operation"]](*given)
                if header["operation"] == "run":
                    result = await result
            encoder = self._encoder(known, same)
            reply["value"] = encoder.node(result)
            reply["changed"] = changes(encoder)
            copies = encoder.collected().memory()
        except BaseException as error:
            reply = {"id": header["id"], "error": self._describe(error)}
            copies = []
            with suppress(Exception):  # changes before a failure are reported, too
                encoder = self._encoder(known, same)
                changed = changes(encoder)
                copies = encoder.collected().copies()
                reply["changed"] = changed
        written = [number for number, each in enumerate(buffers) if _content(each) != before[number]]
        reply["written"] = [[number, len(copies) + place] for place, number in enumerate(written)]
        copies += [bytes(buffers[number]) for number in written]
        reply["printed"] = self._printed.take()
        try:
            self._wire.send(reply, copies, _FOREVER)
        except NotPlainError as error:
            reply = {"id": header["id"], "error": self._describe(error), "written": [], "printed": ""}
            self._wire.send(reply, [], _FOREVER)

    def _snapshot(self, value: object, known: Any, same: Mapping[int, int]) -> Node:
        """Describe a mutable argument's content, its members that are arguments themselves by their numbers."""
        others = {each: number for each, number in same.items() if each != id(value)}
        return self._encoder(known, others).node(value)

    @staticmethod
    def _inside(encoder: Encoder, value: object) -> Node:
        """Return the node of an argument's content, not its number."""
        same = encoder.same
        encoder.same = {each: number for each, number in same.items() if each != id(value)}
        try:
            return encoder.node(value)
        finally:
            encoder.same = same

    def _decoder(self, buffers: list[memoryview]) -> Decoder:
        return Decoder(buffers, self._records(), self._resolve, generators=True)

    def _encoder(self, known: Sequence[Span] = (), same: Mapping[int, int] | None = None) -> Encoder:
        return Encoder(self._records(), self._refer, known, same, tuple(self._types(self._live_names).values()))

    def _records(self) -> dict[str, type]:
        return self._types(self._record_names)

    def _types(self, names: Sequence[str]) -> dict[str, type]:
        found = {name: self.space.get(name) for name in names}
        return {name: each for name, each in found.items() if isinstance(each, type)}

    def _refer(self, value: object) -> Node:
        if isinstance(value, Callback):
            return ["callback", value._number]
        if isinstance(value, types.ModuleType):
            raise NotPlainError(f"the module {value.__name__} cannot cross between processes")
        number = self._numbers.setdefault(id(value), len(self._numbers) + 1)
        self._handles[number] = value  # kept, so that no other object gets its id
        return ["handle", number, _kind(value), self._ancestry(value if isinstance(value, type) else type(value))]

    def _ancestry(self, kind: type) -> list[str]:
        return [
            f"student.{each.__name__}"
            if self.space.get(each.__name__) is each
            else f"{each.__module__}.{each.__qualname__}"
            for each in kind.__mro__
        ][:8]

    def _resolve(self, tag: str, parts: Any) -> object:
        if tag == "handle":
            return self._handles[parts[0]]
        if tag == "callback":
            return _CALLBACKS[parts[1]](self, parts[0])
        if parts[0] == "student":
            if parts[1] not in self.space:
                raise NameError(f"name {parts[1]!r} is not defined")
            return self.space[parts[1]]
        return named(parts[1])

    def _describe(self, error: BaseException) -> dict[str, Any]:
        try:
            message = str(error)[:_TEXT]
        except BaseException:
            message = "an exception that cannot be printed"
        return {
            "kinds": self._ancestry(type(error)),
            "message": message,
            "arguments": self._plain(error.args),
            "attributes": self._plain({name: each for name, each in vars(error).items() if name[:1] != "_"}),
            "token": self._passing.get(id(error), (error, 0))[1],
        }

    def _plain(self, value: object) -> Node:
        """Return the node of plain data that brings no buffers, or None."""
        encoder = Encoder(self._records())
        try:
            node = encoder.node(value)
        except BaseException:
            return None
        return None if encoder.collected().spans else node

    async def _run(self, upto: int) -> list[Any] | None:
        """Run the next cell up to a position; returns its name and its error, if any, or None if no cell is left."""
        if not self._cells or self._cells[0][0] > upto:
            return None
        position, name, source = self._cells.pop(0)
        if name in self._defined or (self._whole is not None and name not in self._whole):
            source = definitions_of(source)
        error = (await self._shell.run_in_loop(CellSource(position, name, source)))["error"]
        return [name, f"{error['kinds'][0]}: {error['message']}" if error else None]


def _content(buffer: memoryview) -> bytes:
    """Return a value that changes when the buffer does: its bytes, or a hash of a large one to save memory."""
    return bytes(buffer) if len(buffer) < _LARGE_BYTES else blake2b(buffer, digest_size=16).digest()


def _kind(value: object) -> str:
    if isinstance(value, (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)):
        return "method"
    if isinstance(value, (types.FunctionType, functools.partial)):
        return "function"
    if isinstance(value, Iterator):
        return "iterator"
    return "class" if isinstance(value, type) else "object"


def _changes(value: object) -> bool:
    """Return True if a change of the value is seen by comparing its content; arrays are compared as memory."""
    return not isinstance(value, (np.ndarray, torch.Tensor, np.random.Generator))


def ready(sockets: list[socket.socket]) -> Callable[[dict[str, Any]], None]:
    """Make a shell in a fork, and return what then runs the student's end in it: see ``serve``."""
    shell = Shell()
    rehearse(shell)
    return functools.partial(serve, sockets=sockets, shell=shell)


def serve(job: dict[str, Any], sockets: list[socket.socket], shell: Shell | None = None) -> None:
    """Run the student's end in a fork: ``job`` has "cells" and "records"; the socket leads to the examiner."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the grader was started in the background
    shell = shell or Shell()
    if job.get("witnessed"):
        syscalls.install_witness()
    if job.get("apart"):
        syscalls.install_apart()
    cells = [(position, name, source) for position, name, source in job["cells"]]
    live, whole, defined = job.get("live", ()), job.get("whole"), job.get("defined", ())
    StudentProcess(Wire(sockets[0]), shell, cells, job["records"], live, whole, defined=defined).serve()
