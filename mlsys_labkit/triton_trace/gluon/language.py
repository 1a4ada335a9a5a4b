"""The namespace of a Gluon kernel in the worker: the public names of Gluon's modules, over Gluon's type rules."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import triton.experimental.gluon.language as gl
import triton.language as tl
from triton.experimental.gluon._runtime import GluonJITFunction
from triton.experimental.gluon.language import _core, _math, _standard
from triton.experimental.gluon.language.nvidia.ampere.mbarrier import MBarrierLayout
from triton.language.semantic import TritonSemantic

from mlsys_labkit.triton_trace.gluon import vocabulary
from mlsys_labkit.triton_trace.gluon.builder import GluonBuilder
from mlsys_labkit.triton_trace.gluon.semantic import GluonRules
from mlsys_labkit.triton_trace.gluon.unfinished import require_finished
from mlsys_labkit.triton_trace.interpret import blocks
from mlsys_labkit.triton_trace.interpret.blocks import plain
from mlsys_labkit.triton_trace.interpret.language import Language
from mlsys_labkit.triton_trace.interpret.private import give_semantic, speaking
from mlsys_labkit.triton_trace.interpret.public_modules import PublicKind, PublicModule

_OF_TRITON = ("static_range", "static_assert", "static_print", "reduce", "associative_scan", "map_elementwise")
_KINDS = ("tensor", "tensor_descriptor", "warpgroup_mma_accumulator", *vocabulary.KINDS, *vocabulary.BLACKWELL_KINDS)


class GluonLanguage(Language):
    """A factory of Python functions from the sources of Gluon kernels."""

    builder: GluonBuilder

    def __init__(self, builder: GluonBuilder) -> None:
        self._plain = TritonSemantic(builder)
        super().__init__(builder, GluonRules(builder))
        modules = (importlib.import_module(path) for path in vocabulary.MODULES)
        for module in (_core, _math, _standard, *modules):
            give_semantic(module)
        give_semantic(gl.shared_memory_descriptor)
        view = gl.shared_memory_descriptor.slice
        gl.shared_memory_descriptor.slice = lambda *args, **options: view(*args, **options, _semantic=self.semantic)
        GluonJITFunction.__call__ = lambda function, *args, **options: self.library(function.fn)(*args, **options)

    def speak(self) -> None:
        super().speak()
        for name in ("reduce", "associative_scan"):
            for module in (tl, tl.core):
                setattr(module, name, getattr(self, f"_{name}"))
        self.modules |= gluon_modules()

    def begin(self) -> None:
        self.builder.begin()
        self.semantic.partitions = self.builder.partitions

    def end(self) -> None:
        self.builder.end()

    def _reduce(self, input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **options: Any) -> Any:
        axis, keep = plain(axis), plain(keep_dims)
        self._require_finished(input)
        with speaking(self._plain):
            made = blocks.reduce(input, axis, combine_fn, False, **options)
        made = self.semantic.reduced(input, made, axis)
        if not keep:
            return made
        if isinstance(made, tuple):
            return tuple(self.semantic.expand_dims(one, axis) for one in made)
        return self.semantic.expand_dims(made, axis)

    def _require_finished(self, input: Any) -> None:
        for one in input if isinstance(input, (tuple, tl.tuple)) else (input,):
            require_finished(self.builder.running, one.handle)

    def _associative_scan(self, input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **options: Any) -> Any:
        self._require_finished(input)
        with speaking(self._plain):
            made = blocks.scan(input, axis, combine_fn, reverse, **options)
        return self.semantic.laid_out_like(input, made)


def gluon_modules() -> dict[str, Any]:
    """Return Gluon's modules by their dotted names, with the names of the vocabulary only."""
    made: dict[str, Any] = {}
    for path, names in vocabulary.MODULES.items():
        module = importlib.import_module(path)
        members = {name: _member(module, name) for name in names if hasattr(module, name)}
        made[path] = PublicModule(path.rpartition(".")[2], members)
    for module in made.values():  # a module inside another, also where a third one imports it
        for name, value in list(vars(module).items()):
            if inspect.ismodule(value):
                setattr(module, name, made[value.__name__])
    return made


def _member(module: Any, name: str) -> Any:
    value = getattr(module, name)
    if name == "constexpr":
        return plain
    if name == "allocate_mbarrier":
        return allocate_mbarrier
    if name in _OF_TRITON:
        return lambda *args, **options: getattr(tl.core, name)(*args, **options)
    return PublicKind(value) if name in _KINDS and inspect.isclass(value) else value


def allocate_mbarrier(batch: Any = None, two_ctas: Any = False) -> Any:
    """Allocate a barrier, or several in a row."""
    shape = [1] if batch is None else [batch, 1]
    return gl.allocate_shared_memory(tl.int64, shape, MBarrierLayout())
