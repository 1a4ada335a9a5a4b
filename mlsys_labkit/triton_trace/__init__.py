"""Triton without a GPU: run a kernel, see every access it makes, and read what it compiles to.

    trace = lk.triton_trace.trace(kernel)[grid](x, out, n, BLOCK=256)     # numpy arrays or torch tensors
    trace.arrays["x"].loaded_bytes, trace.findings, trace.work
    with lk.triton_trace.tracing() as traces:                             # launches that your own functions make
        softmax(x)

Importing this package is enough for ``kernel[grid](...)`` to run on a machine without a GPU. Its names are loaded on
first use.
"""

from mlsys_labkit._base.lazy import attach
from mlsys_labkit.triton_trace.launch.launcher import install

__getattr__, __dir__, __all__ = attach(__name__, __file__)
install()
