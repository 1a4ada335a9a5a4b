"""Kernels: compiled from CUDA C++, launched from Python, checked and profiled."""
