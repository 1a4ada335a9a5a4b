"""The process that runs kernels on the CPU: its start, its messages, its memory and its records."""
