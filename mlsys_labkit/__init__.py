"""mlsys-labkit: see what your code did to the machine.

    import mlsys_labkit as lk

    device = lk.detect()                       # this machine, or LABKIT_DEVICE=h100-sxm as a labelled model
    timing = lk.bench(f, x)                    # median, interval and verdict
    work = lk.count_work(f, x)                 # FLOPs and bytes
    roofline = lk.Roofline.from_spec("h100-sxm")
    roofline.place(work)                       # memory bound or compute bound, and why

Importing the package needs numpy alone; every public name (``__init__.pyi`` lists them) is loaded on
first use.
"""

from __future__ import annotations

import importlib

from mlsys_labkit._base.after_import import after_import
from mlsys_labkit._base.lazy import attach

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = attach(__name__, __file__)
__all__ += ["__version__"]
# Launches of Triton kernels on a machine without a GPU work from here on, whichever of the two is imported first.
after_import("triton", lambda: importlib.import_module("mlsys_labkit.triton_trace"))
