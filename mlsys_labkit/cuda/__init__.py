"""CUDA C++ on any machine: write a kernel, run it, and see what a profiler and a sanitizer would say of it.

    kernel = lk.cuda.compile(source, "matmul<16>")
    kernel[grid, block](a, b, c, n)                      # numpy arrays, torch tensors, device arrays
    profile = kernel.profile[grid, block](a, b, c, n)    # sectors, bank conflicts, divergence, line by line
    findings = kernel.check[grid, block](a, b, c, n)     # races, missing barriers, ...; [] when clean

On an NVIDIA GPU the kernel runs there. Everywhere else, and always for ``profile`` and ``check``, it runs in a
simulator, which needs Linux and g++ 12 or newer. Every name below is loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "ArgumentError": "errors",
    "CompileError": "errors",
    "CudaError": "errors",
    "DeviceArray": "device_array",
    "Diagnostic": "errors",
    "Finding": "finding",
    "Kernel": "kernel",
    "KernelError": "errors",
    "Kernels": "compilation",
    "LaunchError": "errors",
    "Profile": "profile",
    "WorkerError": "errors",
    "compile": "compilation",
    "compile_all": "compilation",
    "empty": "device_array",
    "occupancy": "nvidia.occupancy",
    "run_program": "program",
    "to_device": "device_array",
    "zeros": "device_array",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from mlsys_labkit.cuda.compilation import Kernels, compile, compile_all
    from mlsys_labkit.cuda.device_array import DeviceArray, empty, to_device, zeros
    from mlsys_labkit.cuda.errors import (
        ArgumentError,
        CompileError,
        CudaError,
        Diagnostic,
        KernelError,
        LaunchError,
        WorkerError,
    )
    from mlsys_labkit.cuda.finding import Finding
    from mlsys_labkit.cuda.kernel import Kernel
    from mlsys_labkit.cuda.nvidia.occupancy import occupancy
    from mlsys_labkit.cuda.profile import Profile
    from mlsys_labkit.cuda.program import run_program
