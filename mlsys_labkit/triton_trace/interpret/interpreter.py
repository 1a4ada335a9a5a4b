"""The interpreter: makes blocks of a launch's arguments, then runs every program of the grid in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import triton.language as tl

from mlsys_labkit.triton_trace.gluon.layouts import layout_of
from mlsys_labkit.triton_trace.gluon.objects import AggregateClass
from mlsys_labkit.triton_trace.interpret.branches import mark_one
from mlsys_labkit.triton_trace.interpret.builder import Builder
from mlsys_labkit.triton_trace.interpret.handles import dtype_of, handle_of
from mlsys_labkit.triton_trace.interpret.language import Language
from mlsys_labkit.triton_trace.interpret.memory import LaunchMemory
from mlsys_labkit.triton_trace.interpret.private import Handle
from mlsys_labkit.triton_trace.interpret.records import ConstantTuple, record
from mlsys_labkit.triton_trace.interpret.run import InterpreterRun
from mlsys_labkit.triton_trace.names import Name, constant
from mlsys_labkit.triton_trace.recorder import Argument, Program, Recorder, TracedLaunch
from mlsys_labkit.triton_trace.rules import check_rules
from mlsys_labkit.triton_trace.source import KernelSource


class Interpreter:
    """An interpreter of launches, one after the other, in a process that does nothing else."""

    def __init__(self) -> None:
        self._functions: dict[str, Any] = {}
        self._language = Language(Builder())
        self._languages = {False: self._language}
        self._builder = self._language.builder
        self._language.speak()

    def _speak(self, gluon: bool) -> None:
        """Let Triton's or Gluon's language interpret what follows."""
        if gluon and gluon not in self._languages:
            self._languages[gluon] = _gluon()
        if self._languages[gluon] is not self._language:
            self._language = self._languages[gluon]
            self._builder = self._language.builder
            self._language.speak()

    def launch(
        self,
        source: KernelSource,
        grid: Program,
        arguments: dict[str, Any],
        arrays: tuple[Argument, ...],
        memory: LaunchMemory,
        *,
        warps: int,
        recorder: Recorder | None,
        order: Iterable[int] | None,
        print: Callable[[str], object],
        progress: Callable[[int], object],
    ) -> None:
        """Run every program, x fastest unless ``order`` lists them otherwise.

        Args:
            arguments: parameter -> JSON, as arguments.py writes it.
            arrays: the arrays among them, for messages and for the recorder.
            warps: what the kernel is told when it asks for its warps or threads.
            progress: called before each program with the number of programs done.

        Raises RefusedSourceError before anything ran, TritonKernelError with the student's line afterwards.
        """
        check_rules(source)
        self._speak(source.gluon)
        run = InterpreterRun(source, memory, arrays, recorder, print)
        self._builder.warps = warps
        self._builder.run, self._builder.grid_dim, self._builder.grid_idx = run, grid, (0, 0, 0)
        if recorder:
            recorder.begin(TracedLaunch(source.entry.name, grid, arrays))
        try:
            with np.errstate(all="ignore"):  # a GPU does not report overflow and NaN either
                self._functions = self._language.functions(source, run.places)
                kernel = self._functions[source.kernel]
                self._language.begin()
                values = {name: self._argument(value) for name, value in arguments.items()}
                for done, index in enumerate(range(grid[0] * grid[1] * grid[2]) if order is None else order):
                    program = index % grid[0], index // grid[0] % grid[1], index // grid[0] // grid[1]
                    run.program = self._builder.grid_idx = program
                    progress(done)
                    self._language.begin()
                    kernel(**values)
                    self._language.end()
            run.end()
        except Exception as error:
            raise run.explained(error) from error
        finally:
            self._builder.run = None

    def _argument(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "base" not in value and "layout" in value:
            return layout_of(value["layout"])
        if "aggregate" in value:
            return AggregateClass(value["aggregate"], self._functions)
        if "language" in value:
            return self._language.meaning(Name("language", value["language"]))
        if "function" in value:
            return self._functions[value["function"]]
        if "tuple" in value:
            parts = (self._argument(part) for part in value["tuple"])
            if value.get("constant") and not value["fields"]:
                return ConstantTuple(parts)
            return record(value["fields"], parts) if value.get("fields") else tuple(parts)
        if "float" in value:
            return constant(value)
        if "pointer" in value:
            pointer = tl.pointer_type(dtype_of(value["pointer"]))
            return tl.tensor(Handle(np.array([value["address"]], np.uint64), pointer), pointer)
        if "scalar" in value:
            dtype = dtype_of(value["scalar"])
            number = tl.tensor(handle_of(np.array([value["value"]]), dtype), dtype)
            return mark_one(number) if dtype.is_int() and value["value"] == 1 and dtype != tl.int1 else number
        return self._descriptor(value)

    def _descriptor(self, value: dict[str, Any]) -> Any:
        made = self._gluon_descriptor(value) if value["layout"] else self._triton_descriptor(value)
        made.handle.rounds_to_tf32 = value["tf32"]
        return made

    def _triton_descriptor(self, value: dict[str, Any]) -> Any:
        semantic = self._language.semantic
        strides = [semantic.to_tensor(one) for one in value["strides"]]
        return semantic.make_tensor_descriptor(
            base=self._argument(value["base"]),
            shape=[semantic.to_tensor(one) for one in value["shape"]],
            strides=[*strides[:-1], tl.constexpr(value["strides"][-1])],
            block_shape=[tl.constexpr(one) for one in value["block"]],
            padding_option=value["padding"],
        )

    def _gluon_descriptor(self, value: dict[str, Any]) -> Any:
        from triton.experimental.gluon.language.nvidia.hopper.tma import make_tensor_descriptor

        lengths, strides = value["shape"], value["strides"]
        layout, padding = layout_of(value["layout"]), value["padding"]
        return make_tensor_descriptor(
            self._argument(value["base"]), lengths, strides, value["block"], layout, padding_option=padding
        )


def _gluon() -> Language:
    """Return the language of Gluon, whose modules are loaded by the first Gluon kernel."""
    from mlsys_labkit.triton_trace.gluon.builder import GluonBuilder
    from mlsys_labkit.triton_trace.gluon.language import GluonLanguage

    return GluonLanguage(GluonBuilder())
