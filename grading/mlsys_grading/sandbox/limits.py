"""``SandboxLimits``: what a sandboxed process may use."""

from __future__ import annotations

import resource
from dataclasses import dataclass


@dataclass(frozen=True)
class SandboxLimits:
    """Bounds of one sandbox. Bytes, seconds, counts.

    ``memory_bytes`` bounds each process's own data (RLIMIT_DATA) and, by a cgroup or a watcher, the whole tree's
    resident memory. ``scratch_bytes`` is all that may be written, in /tmp, /dev/shm and the working folder together
    (they are memory). ``processes`` counts threads, too; of ``children``, processes alone, no tree may have more: a
    watcher ends it, because hundreds of runnable processes slow other submissions down. ``file_bytes`` bounds the
    length of one file, and little follows from it: what a file stores is in the scratch space, or counts as memory, and
    CUDA's heap is a file of many gigabytes with next to nothing in it. ``cores`` bounds the tree's processor time, in
    processors' worth, by a cgroup where there is one; without one, the tree only has a lower priority than its watcher.
    """

    memory_bytes: int = 4 << 30
    scratch_bytes: int = 512 << 20
    processes: int = 256
    children: int = 64
    open_files: int = 512
    file_bytes: int = 64 << 30
    cores: float = 8.0

    def apply(self) -> None:
        """Set this process's rlimits, soft and hard."""
        for which, value in (
            # Data, not address space: CUDA and large reservations map far more than they ever touch.
            (resource.RLIMIT_DATA, self.memory_bytes),
            (resource.RLIMIT_NPROC, self.processes),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_FSIZE, self.file_bytes),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_MEMLOCK, 64 << 10),
            (resource.RLIMIT_MSGQUEUE, 0),
        ):
            resource.setrlimit(which, (value, value))
