"""CUDA C++ on any machine: write a kernel, run it, and get the counters of a profiler and the findings of a sanitizer.

    kernel = lk.cuda.compile(source, "matmul<16>")
    kernel[grid, block](a, b, c, n)                      # numpy arrays, torch tensors, device arrays
    profile = kernel.profile[grid, block](a, b, c, n)    # sectors, bank conflicts, divergence, line by line
    findings = kernel.check[grid, block](a, b, c, n)     # races, missing barriers, ...; [] when clean
    estimate = kernel.model("h100-sxm")[grid, block](a, b, c, n)    # its time there by a model, never a measurement

On an NVIDIA GPU the kernel runs there. Everywhere else, and always for ``profile`` and ``check``, it runs in a
simulator, which needs Linux and g++ 12 or newer. Every name below is loaded on first use.
"""

from __future__ import annotations

from mlsys_labkit._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
