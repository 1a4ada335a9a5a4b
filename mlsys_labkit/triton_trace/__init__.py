"""Triton without a GPU: run a kernel, see every access it makes, and what the compiler makes of it."""
