"""``kernel[grid](...)`` on a machine without a GPU."""

from __future__ import annotations

import warnings
from typing import Any

from mlsys_labkit.triton_trace.arguments import bind, grid_of, pack
from mlsys_labkit.triton_trace.client import Order, Outcome, Worker
from mlsys_labkit.triton_trace.rules import check_rules
from mlsys_labkit.triton_trace.source import KernelSource

__all__ = ["Launcher"]


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
        check_rules(self.source)
        function = self.source.entry
        chosen = self._chosen(args, dict(kwargs), [one.name for one in function.parameters])
        bound = bind(function, args, chosen)
        return Worker.current().launch(
            self.source,
            grid_of(grid, bound),
            pack(function, bound),
            recorder=self._recorder,
            recorder_options=self._options,
            order=self._order,
            timeout_s=self._timeout_s,
        )

    def _chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any], names: list[str]) -> dict[str, Any]:
        """``kwargs`` with what the kernel's wrappers add."""
        layer = self._kernel
        while not callable(getattr(layer, "__code__", None)) and hasattr(layer, "fn"):
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            if hasattr(layer, "configs"):
                config = self._config or layer.configs[0]
                if self._config is None and len(layer.configs) > 1:
                    warnings.warn(
                        f"without a GPU there is nothing to tune: {names and self.source.entry.name} takes its first "
                        f"configuration, {config}",
                        stacklevel=4,
                    )
                kwargs.update(config.kwargs)
                if getattr(config, "pre_hook", None):
                    config.pre_hook({**given, **config.all_kwargs()})
            elif isinstance(getattr(layer, "values", None), dict):
                for name, rule in layer.values.items():
                    kwargs[name] = rule({**given, **kwargs})
            layer = layer.fn
        return kwargs
