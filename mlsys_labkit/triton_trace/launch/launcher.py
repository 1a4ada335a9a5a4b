"""Launches: ``kernel[grid](...)`` goes to the worker on a machine without a GPU, and to Triton where there is one."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from mlsys_labkit.triton_trace.errors import RefusedSourceError, TritonArgumentError
from mlsys_labkit.triton_trace.gluon.aggregates import is_aggregate
from mlsys_labkit.triton_trace.launch.arguments import bind, grid_of, pack, wrapped
from mlsys_labkit.triton_trace.launch.client import LaunchOutcome, Order, TritonWorker
from mlsys_labkit.triton_trace.launch.driver import StandInDriver
from mlsys_labkit.triton_trace.launch.gpu import LaunchArguments
from mlsys_labkit.triton_trace.launch.handle import LaunchHandle
from mlsys_labkit.triton_trace.launch.pointed_at import pointed_at
from mlsys_labkit.triton_trace.launch.tritons_errors import also_tritons
from mlsys_labkit.triton_trace.names import is_jitted
from mlsys_labkit.triton_trace.rules import check_rules, require_solved
from mlsys_labkit.triton_trace.source import KernelSource, layers

_DEVICE_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, WSL's, AMD's

Through = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], None]
_through: ContextVar[Through | None] = ContextVar("_through", default=None)


@contextmanager
def launching(through: Through | None) -> Iterator[None]:
    """Turn every ``kernel[grid](*args, **kwargs)`` inside into ``through(kernel, grid, args, kwargs)``."""
    token = _through.set(through)
    try:
        yield
    finally:
        _through.reset(token)


_reachable: ContextVar[tuple[Any, ...]] = ContextVar("_reachable", default=())


@contextmanager
def reachable(*arrays: Any) -> Iterator[None]:
    """Name arrays that kernels reach by pointers kept in another array, as grouped kernels do.

    Tensors of torch whose ``data_ptr()`` stands in that array are found without.

    Example:
        >>> import numpy as np, triton, triton.language as tl
        >>> @triton.jit
        ... def gather(pointers, out):
        ...     array = tl.load(pointers + tl.program_id(0)).to(tl.pointer_type(tl.float32))
        ...     tl.store(out + tl.program_id(0), tl.load(array))
        >>> a, b, out = np.float32([3]), np.float32([4]), np.zeros(2, np.float32)
        >>> with reachable(a, b):
        ...     _ = gather[(2,)](np.array([a.ctypes.data, b.ctypes.data]), out)
        >>> out
        array([3., 4.], dtype=float32)
    """
    token = _reachable.set((*_reachable.get(), *arrays))
    try:
        yield
    finally:
        _reachable.reset(token)


class TritonLauncher:
    """A kernel with its decorators (``@triton.autotune``, ``@triton.heuristics``), ready to be launched.

    Args:
        recorder: "module:Class" inside this package that records every access, or None.
        config: the ``triton.Config`` to take under ``@triton.autotune``; the first by default.
    """

    def __init__(
        self,
        kernel: Any,
        *,
        recorder: str | None = None,
        order: Order = "ascending",
        timeout_s: float = 120.0,
        config: Any = None,
    ) -> None:
        self.source = KernelSource.of(kernel)
        self._kernel = kernel
        self._recorder = recorder
        self._order = order
        self._timeout_s = timeout_s
        self._config = config

    def launch(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LaunchOutcome:
        """Launch once. Raises what TritonWorker.launch raises, TritonArgumentError and TritonLaunchError."""
        source = self._with_functions(args, kwargs)
        function = source.entry
        names = [one.name for one in function.parameters]
        positional = dict(zip(names, args, strict=False))
        warps = 4  # Triton's own choice

        def configure(configs: list[Any], given: dict[str, Any]) -> dict[str, Any]:
            nonlocal warps
            config = self._config or configs[0]
            warps = config.num_warps
            if self._config is None and len(configs) > 1:
                _say_first_config(function.name, str(config))
            if twice := sorted(config.kwargs.keys() & given.keys()):
                raise TritonArgumentError(
                    f"{function.name} got {', '.join(twice)} as an argument, and @triton.autotune chooses it, too: "
                    "leave it out of the launch, or out of the configurations"
                )
            options = config.all_kwargs().items()  # a kernel may declare num_warps and its like as parameters
            given = {**{name: value for name, value in options if name in names}, **given, **config.kwargs}
            if config.pre_hook:
                config.pre_hook({**positional, **given, **config.all_kwargs()})
            return given

        added = wrapped(self._kernel, positional, kwargs, configure)
        bound = bind(function, args, added)
        return TritonWorker.current().launch(
            source,
            grid_of(grid, bound),
            pack(function, bound, (*_reachable.get(), *pointed_at(source, bound.values()))),
            warps=added.get("num_warps") or warps,
            recorder=self._recorder,
            order=self._order,
            timeout_s=self._timeout_s,
        )

    def _with_functions(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KernelSource:
        """Return the source with the jitted functions among the arguments. Raises RefusedSourceError."""
        values = (*args, *kwargs.values())
        try:
            found = self.source
            if any(isinstance(one, tuple) or is_jitted(one) or is_aggregate(one) for one in values):
                found = KernelSource.of(self._kernel, values)
            check_rules(found)
            _require_special(self._kernel)
        except RefusedSourceError as error:
            also_tritons(error)
            raise
        return found


def _require_special(kernel: Any) -> None:
    """Raise RefusedSourceError for a constant that is not to be specialized. Reference: CodeGenerator.visit_arg."""
    *_, jitted, _ = layers(kernel)
    for one in getattr(jitted, "params", ()):
        never = one.do_not_specialize or one.do_not_specialize_on_alignment
        if one.is_constexpr and never:
            raise RefusedSourceError(
                f"{one.name} marked as constexpr and listed in do_not_specialize/do_not_specialize_on_alignment: a "
                "constant is always specialized; leave out one of the two"
            )


@functools.cache
def _say_first_config(kernel: str, config: str) -> None:
    # On stdout: nbgrader fails a test that writes to stderr, as warnings do.
    print(f"{kernel} takes its first configuration ({config}): without a GPU there is nothing to time")


@functools.cache
def has_gpu() -> bool:
    """Return True where Triton can launch compiled kernels."""
    if not any(Path(file).exists() for file in _DEVICE_FILES):
        return False  # without asking Triton's drivers, which load torch to find out
    from triton.runtime import driver

    try:
        driver.active.get_current_device()
    except Exception:  # every backend raises its own error when it has no device
        return False
    return True


def _interpret(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if through := _through.get():
        with launching(None):  # launches by ``through`` itself are not sent to it again
            through(kernel, grid, args, kwargs)
    else:
        TritonLauncher(kernel).launch(grid, args, kwargs)


def _require_solved(kernel: Any) -> None:
    with contextlib.suppress(RefusedSourceError):
        require_solved(KernelSource.of(kernel))


def _give_driver() -> None:
    """Let ``triton.runtime.driver.active`` be a stand-in on a machine without a GPU."""
    from triton.runtime import driver

    if driver._active is None and not any(Path(file).exists() for file in _DEVICE_FILES):
        driver.set_active(StandInDriver(_interpret))


def install() -> None:
    """Send each ``kernel[grid](...)`` of this process to the worker if its arrays are in the CPU's memory.

    Triton itself launches the others, and refuses them without a GPU. May be called twice. Does nothing without Triton.
    """
    if sys.platform != "linux":
        return
    try:
        from triton.runtime import KernelInterface
    except ModuleNotFoundError:
        return
    _give_driver()
    compiled = KernelInterface.__getitem__
    if getattr(compiled, "labkit", False):
        return

    @functools.wraps(compiled)
    def choose(kernel: Any, grid: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> Any:
            if not _through.get() and has_gpu() and not LaunchArguments(args, kwargs).on_host:
                try:
                    return compiled(kernel, grid)(*args, **kwargs)
                except Exception:
                    _require_solved(kernel)  # Triton's compiler calls a stub an unsupported statement
                    raise
            _interpret(kernel, grid, args, kwargs)
            return LaunchHandle(kernel, args, kwargs)

        return launch

    choose.labkit = True  # type: ignore[attr-defined]
    KernelInterface.__getitem__ = choose
