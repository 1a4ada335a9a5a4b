"""``kernel[grid](...)`` on a machine without a GPU: to the worker, once the kit is loaded; with a GPU, as ever."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from mlsys_labkit.triton_trace.arguments import bind, grid_of, pack
from mlsys_labkit.triton_trace.client import Order, Outcome, Worker
from mlsys_labkit.triton_trace.rules import check_rules
from mlsys_labkit.triton_trace.source import KernelSource

__all__ = ["Launched", "Launcher", "has_gpu", "install", "launching", "reachable"]


@dataclass(frozen=True)
class Launched:
    """A launch that has ended."""

    source: KernelSource
    grid: tuple[int, int, int]
    bound: dict[str, Any]  # parameter -> the caller's value
    outcome: Outcome


_DEVICE_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, WSL's, AMD's

Through = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], None]
_through: ContextVar[Through | None] = ContextVar("_through", default=None)


@contextmanager
def launching(through: Through | None) -> Iterator[None]:
    """While it lasts, every ``kernel[grid](*args, **kwargs)`` is ``through(kernel, grid, args, kwargs)``."""
    token = _through.set(through)
    try:
        yield
    finally:
        _through.reset(token)


_reachable: ContextVar[tuple[Any, ...]] = ContextVar("_reachable", default=())


@contextmanager
def reachable(*arrays: Any) -> Iterator[None]:
    """Arrays that kernels reach by pointers kept in another array, as grouped kernels do.

    Example:
        >>> import numpy as np, triton, triton.language as tl
        >>> @triton.jit
        ... def gather(pointers, out):
        ...     array = tl.load(pointers + tl.program_id(0)).to(tl.pointer_type(tl.float32))
        ...     tl.store(out + tl.program_id(0), tl.load(array))
        >>> a, b, out = np.float32([3]), np.float32([4]), np.zeros(2, np.float32)
        >>> with reachable(a, b):
        ...     gather[(2,)](np.array([a.ctypes.data, b.ctypes.data]), out)
        >>> out
        array([3., 4.], dtype=float32)
    """
    token = _reachable.set((*_reachable.get(), *arrays))
    try:
        yield
    finally:
        _reachable.reset(token)


class Launcher:
    """A kernel, with what stands above it (``@triton.autotune``, ``@triton.heuristics``), ready to be launched.

    Args:
        recorder: "module:Class" of this room that is told of every access, or None.
        config: the ``triton.Config`` to take under ``@triton.autotune``; the first by default.
    """

    def __init__(
        self,
        kernel: Any,
        *,
        recorder: str | None = None,
        recorder_options: dict[str, Any] | None = None,
        order: Order = "ascending",
        timeout_s: float = 120.0,
        config: Any = None,
    ) -> None:
        self.source = KernelSource.of(kernel)
        self._kernel = kernel
        self._recorder = recorder
        self._options = recorder_options
        self._order = order
        self._timeout_s = timeout_s
        self._config = config

    def run(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        """Launch once. Raises what Worker.launch raises, ArgumentError and LaunchError."""
        return self.launch(grid, args, kwargs).outcome

    def launch(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launched:
        """The same, with what was launched."""
        check_rules(self.source)
        function = self.source.entry
        names = [one.name for one in function.parameters]
        bound = bind(function, args, self._with_wrappers(dict(zip(names, args, strict=False)), kwargs))
        sizes = grid_of(grid, bound)
        outcome = Worker.current().launch(
            self.source,
            sizes,
            pack(function, bound, _reachable.get()),
            recorder=self._recorder,
            recorder_options=self._options,
            order=self._order,
            timeout_s=self._timeout_s,
        )
        return Launched(self.source, sizes, bound, outcome)

    def _with_wrappers(self, positional: dict[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """``kwargs`` with what the kernel's wrappers add, from the outermost to the kernel."""
        added = dict(kwargs)
        layer = self._kernel
        while not isinstance(layer, FunctionType) and hasattr(layer, "fn"):
            if hasattr(layer, "configs"):
                config = self._config or layer.configs[0]
                if self._config is None and len(layer.configs) > 1:
                    _say_first_config(self.source.entry.name, str(config))
                added.update(config.kwargs)
                if config.pre_hook:
                    config.pre_hook({**positional, **added, **config.all_kwargs()})
            elif isinstance(getattr(layer, "values", None), dict):
                for name, rule in layer.values.items():
                    added[name] = rule({**positional, **added})
            layer = layer.fn
        return added


@functools.cache
def _say_first_config(kernel: str, config: str) -> None:
    warnings.warn(
        f"{kernel} takes its first configuration ({config}): without a GPU there is nothing to time", stacklevel=6
    )


@functools.cache
def has_gpu() -> bool:
    """Whether Triton can launch compiled kernels here."""
    if not any(Path(file).exists() for file in _DEVICE_FILES):
        return False  # without asking Triton's drivers, who would load torch to find out
    from triton.runtime import driver

    try:
        driver.active.get_current_device()
    except Exception:  # every backend has its own way to say that it has no device
        return False
    return True


def install() -> None:
    """Send every ``kernel[grid](...)`` of this process to the worker when there is no GPU. Twice does no harm."""
    from triton.runtime import KernelInterface

    compiled = KernelInterface.__getitem__
    if getattr(compiled, "labkit", False):
        return

    @functools.wraps(compiled)
    def launch(kernel: Any, grid: Any) -> Any:
        if through := _through.get():
            return lambda *args, **kwargs: _run_through(through, kernel, grid, args, kwargs)
        if has_gpu():
            return compiled(kernel, grid)
        return lambda *args, **kwargs: _interpret(kernel, grid, args, kwargs)

    launch.labkit = True  # type: ignore[attr-defined]
    KernelInterface.__getitem__ = launch


def _run_through(through: Through, kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with launching(None):  # what it launches itself goes its usual way
        through(kernel, grid, args, kwargs)


def _interpret(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    Launcher(kernel).run(grid, args, kwargs)


def install_if_there() -> None:
    """``install``, where Triton is."""
    if sys.platform == "linux":
        try:
            install()
        except ModuleNotFoundError:
            return
