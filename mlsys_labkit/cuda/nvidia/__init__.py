"""NVIDIA's own tools: a kernel's errors, PTX, SASS, registers and occupancy; and a real GPU.

Only the last needs a GPU. NVRTC, NVIDIA's run-time compiler, is a library without a driver: it compiles anywhere.
"""
