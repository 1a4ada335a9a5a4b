"""Kernels compiled for any GPU: compiler stages, resources, and the source line of each instruction."""
