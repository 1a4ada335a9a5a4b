"""Every storage that torch operations make or use, from first use to last, on any device and on fake tensors."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch._dynamo  # noqa: F401 - a dispatch mode's first operation imports it: not while memory is being traced
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from mlsys_labkit.memory.trace import MemoryTrace, TracedTensor
from mlsys_labkit.memory.user_line import user_line


class TorchTracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that fills a ``MemoryTrace`` while it is active.

    A storage is recorded at the operation that makes it, and freed when the last tensor on it dies (a weak reference's
    callback). Storages that were alive before are listed at the start, and recorded when an operation uses one.
    """

    def __init__(self, trace: MemoryTrace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trace = trace
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._older: dict[int, weakref.ref[Any]] = {}
        self._hooked = WeakIdKeyDictionary()
        self.operations = 0
        self._in_step = False
        self._thread = 0
        self._line = ("", "")
        self._undo = ExitStack()

    def __enter__(self) -> TorchTracer:
        self._thread = threading.get_ident()  # a dispatch mode is per thread, but optimizer hooks are global
        with torch._C.DisableTorchFunctionSubclass():  # a subclass may return anything, even for its storage
            for thing in gc.get_objects():
                if issubclass(type(thing), torch.Tensor):
                    self._older.update((storage._cdata, weakref.ref(storage)) for storage, _ in _storages(thing))
                    self._await_gradient(thing)  # backward may write a gradient without an operation on its leaf
        for register, begins in ((register_optimizer_step_pre_hook, True), (register_optimizer_step_post_hook, False)):
            self._undo.callback(register(partial(self._at_step, begins)).remove)
        self._watch_resizing()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._undo.close()
        self._known.clear()  # this also removes the callbacks of the weak references

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        inputs = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if func is not torch.ops.aten.lift_fresh.default:  # torch.tensor(): only the result is counted, real or fake
            for tensor in inputs:
                self._see(tensor)
        category = "activations" if self._is_forward(inputs) else "other"
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, category)
        return out

    def _is_forward(self, inputs: Iterable[torch.Tensor]) -> bool:
        """Return whether an operation continues a model's forward pass.

        It does if an input is a parameter, an activation or a tracked leaf.

        Backward and the optimizer's step only make temporaries, except where backward records a graph of its own
        (recomputation, higher derivatives). A forward pass without gradients counts, too.
        """
        if self._in_step or (torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled()):
            return False
        for tensor in inputs:
            if tensor.requires_grad:
                return True
            for index in self._indices(tensor):
                if self._trace.tensors[index].category in ("parameters", "activations"):
                    return True
        return False

    def _see(self, tensor: torch.Tensor, category: str = "other") -> None:
        for storage, view in _storages(tensor):
            key, size = storage._cdata, storage.nbytes()
            known = self._known.get(key)
            if known is not None and self._trace.tensors[known[1]].bytes != size:  # resized in place
                category = self._trace.tensors[known[1]].category
                self._gone(key, known[1])
                known = None
            if known is None and size:
                older = self._older.get(key)
                before = older is not None and older() is not None
                if not before and not storage.resizable():
                    continue  # lent by numpy or mapped from a file: not torch's memory
                self._record(storage, view, category, before)
        if isinstance(tensor, torch.nn.Parameter):
            self._mark(tensor, "parameters")
        self._await_gradient(tensor)
        if tensor.is_leaf:
            self._has_gradient(tensor)

    def _await_gradient(self, tensor: torch.Tensor) -> None:
        if tensor.requires_grad and tensor.is_leaf and tensor not in self._hooked:
            self._hooked[tensor] = True
            handle = tensor.register_post_accumulate_grad_hook(self._has_gradient)  # type: ignore[no-untyped-call]
            self._undo.callback(handle.remove)

    def _record(self, storage: Any, view: torch.Tensor, category: str, before: bool) -> None:
        dtype = str(view.dtype).removeprefix("torch.")
        # Autograd's threads for other devices have no user frame: theirs is the last line seen, the call of backward.
        if not before:
            here = user_line()
            self._line = here if here[0] else self._line
        line, code = ("", "") if before else self._line
        where = (category, line, code, before)
        self._remember(storage, TracedTensor(storage.nbytes(), dtype, tuple(view.shape), str(view.device), *where))

    def _watch_resizing(self) -> None:
        """Replace ``UntypedStorage.resize_`` by a function that records the change.

        FSDP empties and refills storages in place, without an operation that a dispatch mode receives.
        """
        resize = torch.UntypedStorage.resize_

        def resized(storage: Any, size: int) -> Any:
            result = resize(storage, size)
            self._resized(storage)
            return result

        torch.UntypedStorage.resize_ = resized  # type: ignore[assignment, method-assign]
        self._undo.callback(setattr, torch.UntypedStorage, "resize_", resize)

    def _resized(self, storage: Any) -> None:
        key = storage._cdata
        self._older.pop(key, None)  # its new contents are younger than the trace
        known = self._known.get(key)
        if known is not None:
            old = self._trace.tensors[known[1]]
            self._gone(key, known[1])
            if storage.nbytes():
                self._remember(storage, replace(old, bytes=storage.nbytes(), before=False))

    def _remember(self, storage: Any, tensor: TracedTensor) -> None:
        key, index = storage._cdata, self._trace.allocate(tensor)
        self._known[key] = (weakref.ref(storage, lambda _: self._gone(key, index)), index)

    def _gone(self, key: int, index: int) -> None:
        if self._known.get(key, (None, None))[1] == index:
            del self._known[key]
            self._trace.free(index)

    def _indices(self, tensor: torch.Tensor) -> list[int]:
        return [self._known[storage._cdata][1] for storage, _ in _storages(tensor) if storage._cdata in self._known]

    def _mark(self, tensor: torch.Tensor, category: str) -> None:
        for index in self._indices(tensor):
            self._trace.mark(index, category)

    def _has_gradient(self, leaf: torch.Tensor) -> None:
        gradient = leaf.grad
        if gradient is not None:
            self._see(gradient)
            self._mark(gradient, "gradients")

    def _at_step(self, begins: bool, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Claim the parameters, gradients and state of an optimizer whose step begins or has ended."""
        if threading.get_ident() != self._thread:
            return
        self._in_step = begins
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._see(parameter)
                self._mark(parameter, "parameters")
                self._has_gradient(parameter)
        for tensor in tree_leaves(list(optimizer.state.values())):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor)
                self._mark(tensor, "optimizer")


def _storages(tensor: Any) -> list[tuple[Any, torch.Tensor]]:
    """Return a tensor's storages, each with the plain tensor on it; none for sparse and opaque tensors."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        inner = [getattr(tensor, name) for name in names]  # a DTensor names its mesh among them
        return [pair for part in inner if isinstance(part, torch.Tensor) for pair in _storages(part)]
    try:
        return [(tensor.untyped_storage(), tensor)]
    except (NotImplementedError, RuntimeError):
        return []
