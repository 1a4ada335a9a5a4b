"""Compilation of the student's source to a kernel.so that the worker loads."""
