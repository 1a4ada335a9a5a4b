"""Triton without a GPU: run a kernel, see every access it makes, and what the compiler makes of it.

Importing this room is enough for ``kernel[grid](...)`` to run on a machine without a GPU.
"""

from mlsys_labkit.triton_trace.launch import install_if_there

install_if_there()
