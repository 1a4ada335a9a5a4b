"""What NVIDIA's own tools say of a kernel: its errors, its PTX and SASS, its registers, its occupancy; and a real GPU.

Only the last needs a GPU. NVRTC, NVIDIA's run-time compiler, is a library without a driver: it compiles anywhere.
"""
