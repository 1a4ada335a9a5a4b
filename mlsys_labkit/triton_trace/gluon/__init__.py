"""Gluon kernels: layouts, shared memory, asynchronous operations and partitions, on top of the Triton interpreter."""
