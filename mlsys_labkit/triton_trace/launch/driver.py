"""A stand-in for the driver of a GPU, for programs that ask ``triton.runtime.driver.active`` on a machine without one.

It answers as one H100 whose tensors are on the CPU: the interpreter follows that GPU, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mlsys_labkit.errors import require
from mlsys_labkit.triton_trace.errors import TritonLaunchError

Interpret = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
_PROPERTIES = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 5120,
}
# In a cubin's .nv.info: format 4, attribute 0x2f (registers per thread), 8 bytes: a symbol's number and the count.
_REGISTER_COUNT = b"\x04\x2f\x08\x00"


class _Utilities:
    """A device as Triton's ``driver.active.utils`` describes it."""

    def get_device_properties(self, device: Any) -> dict[str, int]:
        return dict(_PROPERTIES)

    def load_binary(
        self, name: str, kernel: bytes, shared: int, device: Any
    ) -> tuple[None, None, int | None, None, int]:
        """Return what a driver tells of a kernel: of module, function and spills nothing, and its registers."""
        at = kernel.find(_REGISTER_COUNT)
        return None, None, kernel[at + 8] if at >= 0 else None, None, 1024


_BEFORE_ARGUMENTS = 6  # stream, function, two kinds of metadata, two hooks


class _Launcher:
    """The function that would start a compiled kernel. It interprets the kernel."""

    launch_cooperative_grid = False

    def __init__(self, interpret: Interpret, source: Any, metadata: Any) -> None:
        self._interpret = interpret
        self._kernel = getattr(source, "fn", None)

    def __call__(self, x: int, y: int, z: int, *rest: Any) -> None:
        if self._kernel is None:
            raise TritonLaunchError(
                "a kernel that was compiled from the text of an IR runs on a GPU only, and this machine has none; "
                "launch a function under @triton.jit"
            )
        self._interpret(self._kernel, (x, y, z), rest[_BEFORE_ARGUMENTS:], {})


class StandInDriver:
    """Triton's driver where no GPU is: its target is sm_90, and its tensors are on the CPU.

    Args:
        interpret: runs a kernel with a grid, arguments and options.
    """

    utils = _Utilities()

    def __init__(self, interpret: Interpret) -> None:
        self.launcher_cls = functools.partial(_Launcher, interpret)

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> Any:
        return require("torch", "torch").device("cpu")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """Do nothing: there is one device."""

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return 9, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise TritonLaunchError(f"driver.active.{name} needs a GPU, and this machine has none")
