"""``InterpreterRun``: the launch that is being interpreted, with its accesses, their source lines, and its errors."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.errors import TritonKernelError
from mlsys_labkit.triton_trace.interpret.atomics import atomic
from mlsys_labkit.triton_trace.interpret.memory import LaunchMemory, MemoryRegion, Reach
from mlsys_labkit.triton_trace.interpret.narrow_floats import Narrow
from mlsys_labkit.triton_trace.recorder import Argument, Kind, Line, Program, RawAccess, Recorder, Severity
from mlsys_labkit.triton_trace.source import KernelSource

Addresses = NDArray[np.uint64]
Mask = NDArray[np.bool_] | None


_WORDS = {
    "NoneType": "None, such as an argument that is not given,",
    "tensor": "a block",
    "tuple": "a tuple",
    "tensor_descriptor": "a tensor descriptor",
    "int": "a constant",
    "float": "a constant",
    "bool": "a constant",
    "str": "a constant",
}


_NOTED: set[Line] = set()


class Refused(Exception):
    """An operation that the interpreter cannot carry out exactly."""


class StaticAssertionError(TritonKernelError):
    """A ``tl.static_assert`` that does not hold."""

    refusal = "CompileTimeAssertionFailure"


class CompilerRefusal(Refused):
    """Variables whose types Triton's compiler refuses."""


class InterpreterRun:
    """The launch that is being interpreted.

    Attributes:
        places: names of files given to Python's compiler -> the student's cell or file.
        program: the program that runs now.
        print: function that takes the kernel's output.
        dry: the run has no memory: it tries a branch.
    """

    dry = False

    def __init__(
        self,
        source: KernelSource,
        memory: LaunchMemory,
        arguments: tuple[Argument, ...],
        recorder: Recorder | None,
        print: Callable[[str], object],
    ) -> None:
        self.print = print
        self.program: Program = (0, 0, 0)
        self.places: dict[str, str] = {}
        self._source = source
        self._files = {one.place for one in source.functions if one.in_file}
        self._memory = memory
        self._arguments = arguments
        self._recorder = recorder
        self._arithmetic: dict[str, int] = {}
        self._read_only = [region for region in memory.regions if not region.writable]

    def load(self, addresses: Addresses, mask: Mask, other: NDArray[Any], nan: int | None, kind: Kind = "load") -> Any:
        """Return the elements at ``addresses`` in ``other``'s type, and ``nan`` (or poison) outside every array."""
        return self._memory.load(self._reach(kind, addresses, mask, other.dtype.itemsize, None), other, nan)

    def store(self, addresses: Addresses, mask: Mask, value: NDArray[Any], kind: Kind = "store") -> None:
        self._memory.store(self._reach(kind, addresses, mask, value.dtype.itemsize, value), value)

    def atomic(
        self,
        name: str,
        addresses: Addresses,
        mask: Mask,
        value: NDArray[Any],
        compare: NDArray[Any] | None,
        form: Narrow | None,
        *,
        order: str = "acq_rel",
    ) -> NDArray[Any]:
        """Apply an atomic operation and return the values before it; ``order`` is that of RawAccess."""
        reach = self._reach("atomic", addresses, mask, value.dtype.itemsize, value, order)
        return atomic(self._memory, name, reach, value, compare, form)

    def translated(self, addresses: Addresses) -> Addresses:
        """Return integers as pointers."""
        return self._memory.translated(addresses)

    def dot(self, m: int, n: int, k: int, dtype: str) -> None:
        if self._recorder:
            self._recorder.dot(self.line(), self.program, m, n, k, dtype)

    def arithmetic(self, dtype: str, operations: int) -> None:
        if dtype.startswith(("fp", "bf")):
            self._arithmetic[dtype] = self._arithmetic.get(dtype, 0) + operations

    def misuse(
        self, kind: str, message: str, cause: Line | None = None, count: int = 1, severity: Severity = "error"
    ) -> None:
        """Report an operation whose result no GPU promises. Without a recorder, an error ends the launch.

        An undefined value ends it in kernels that are written in cells only.

        Args:
            cause: the line that is to be changed, unless it is the one that runs. count: elements concerned.
        """
        if self._recorder is not None:
            here = self.line()
            self._recorder.misuse((kind, severity), cause or here, self.program, message, here, count)
        elif kind == "undefined_value" and (cause or self.line()).place in self._files:
            self._note(cause or self.line(), message)
        elif severity == "error":
            raise TritonKernelError(f"it {message}")

    def _note(self, line: Line, message: str) -> None:
        """Print once what a kernel of a file does: such kernels rely on the 0 that NVIDIA's GPUs have there."""
        if line not in _NOTED:
            _NOTED.add(line)
            self.print(f"Note: {line} {message}; it is 0 here, as on NVIDIA's GPUs\n")

    @property
    def traced(self) -> bool:
        """Return whether the launch is recorded."""
        return self._recorder is not None

    def line(self) -> Line:
        """Return the student's line that is being interpreted."""
        at: FrameType | None = sys._getframe(1)
        while at is not None and at.f_code.co_filename not in self.places:
            at = at.f_back
        return Line(self.places[at.f_code.co_filename], at.f_lineno) if at else Line("", 0)

    def end(self) -> None:
        """Report the arithmetic to the recorder, after the last program."""
        if self._recorder:
            self._recorder.arithmetic(self._arithmetic)

    def explained(self, error: Exception) -> TritonKernelError:
        """Return ``error`` as a TritonKernelError with the student's line, the program and the source text."""
        line = Line("", 0)
        for frame, number in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename in self.places:
                line = Line(self.places[frame.f_code.co_filename], number)
        text = " ".join(str(error).split())
        if isinstance(error, NameError) and (unknown := re.search(r"'(\w+)'", text)):
            text = (
                f"{unknown[1]} has no value here: Triton's compiler forgets what a turn of a loop, or one branch of an "
                f"if, gives its first value; give {unknown[1]} one before, of the same type and shape"
            )
        elif isinstance(error, AttributeError) and error.name:
            text = f"{_WORDS.get(type(error.obj).__name__, type(error.obj).__name__)} has no .{error.name} in Triton"
        elif type(error).__module__ == "builtins" and not isinstance(error, (AssertionError, ValueError, TypeError)):
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        if "arange's arguments must be" in text:  # Triton's own words, which name no remedy
            text += "; write start + tl.arange(0, BLOCK)"
        where = f"{line}: " if line.number else ""
        code = self._source.line_text(*line) if line.number else ""
        shown = f"  [{code}]" if code else ""
        told = TritonKernelError(
            f"{where}{text or 'this does not hold'}, in program {self.program}{shown}",
            line.place,
            line.number,
            self.program,
        )
        told.refusal = getattr(error, "refusal", "CompilationError")  # what is no error of ours, Triton's rules raised
        return told

    def _reach(
        self,
        kind: Kind,
        addresses: Addresses,
        mask: Mask,
        itemsize: int,
        value: NDArray[Any] | None,
        order: str = "acq_rel",
    ) -> Reach:
        """Check an access, report it to the recorder, and return the memory that it reaches."""
        crooked = (addresses & np.uint64(itemsize - 1)) != 0
        if crooked.any() and (mask is None or (crooked & mask).any()):
            raise TritonKernelError(f"a {kind} of {itemsize} bytes at an address that is no multiple of {itemsize}")
        reach = self._memory.reach(addresses, mask, itemsize)
        if self._recorder:
            access = RawAccess(kind, self.line(), self.program, itemsize, addresses, mask, value, reach.outside, order)
            self._recorder.access(access)
        elif reach.outside is not None:
            first = int(addresses[reach.outside].reshape(-1)[0])
            raise TritonKernelError(self._stray(kind, first, int(reach.outside.sum())))
        if value is not None:
            self._require_writable(addresses, mask)
        return reach

    def _require_writable(self, addresses: Addresses, mask: Mask) -> None:
        for region in self._read_only:
            touched = (addresses >= np.uint64(region.start)) & (addresses < np.uint64(region.stop))
            if (touched if mask is None else touched & mask).any():
                raise TritonKernelError(f"it stores to {self._owners(region)[0].name}, which is read-only")

    def _owners(self, region: MemoryRegion | None) -> list[Argument]:
        if region is None:
            return []
        return [one for one in self._arguments if region.start <= one.start <= one.stop <= region.stop]

    def _stray(self, kind: Kind, address: int, count: int) -> str:
        verb = {"load": "reads", "store": "writes", "atomic": "updates"}[kind]
        owners = self._owners(self._memory.region_of(address))
        if not owners:
            return (
                f"it {verb} {count:,} elements at addresses of no argument; pointers in an array need reachable(arrays)"
            )
        near = min(owners, key=lambda one: abs(one.address - address))
        element = (address - near.address) // near.itemsize
        length = (near.stop - near.start) // near.itemsize
        more = f", and {count - 1:,} more outside" if count > 1 else ""
        return f"it {verb} {near.name}[{element}], and {near.name} has {length:,} elements{more}; give it a mask"
