"""Output of kernels on a GPU: the driver writes it to the process's standard output, past ``sys.stdout``."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def printed_to_sys_stdout() -> Iterator[None]:
    """Send what C code prints meanwhile to ``sys.stdout``: below the cell of a notebook, and not into the server's log.

    The driver prints when the host waits for the GPU, so the wait belongs inside.

    Reference: CUDA C++ Programming Guide, "Formatted output": the buffer is flushed at synchronisation.
    """
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    try:
        kept = os.dup(1)
    except OSError:  # there is no file descriptor 1 to replace
        yield
        return
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)
        try:
            yield
        finally:
            libc.fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
            printed.seek(0)
            sys.stdout.write(printed.read().decode(errors="replace"))
