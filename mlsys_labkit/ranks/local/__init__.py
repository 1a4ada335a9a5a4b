"""The local backend: all ranks are threads of this process, and one runs at a time."""
