"""``SandboxLimits``: what a sandboxed process may use."""

from __future__ import annotations

import resource
from dataclasses import dataclass

CUDA_BYTES = 4 << 30  # more than the libraries and the context of CUDA and torch write in private memory of the host


def limit_data(memory_bytes: int, gpu: bool) -> None:
    """Limit this process's own data to ``memory_bytes``, and beside a ``gpu`` to what CUDA itself writes in addition.

    Linux charges private writable mappings alone. The terabytes of addresses that CUDA reserves are not writable, and
    its maps of device files are shared, so neither counts. What it writes does: relocated libraries, the context,
    copies on their way to the GPU. The addition is an estimate, not measured on a GPU.
    Reference: setrlimit(2), RLIMIT_DATA; ``is_data_mapping`` in Linux, mm/.
    """
    limit = memory_bytes + CUDA_BYTES * gpu
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


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

    def apply(self, gpu: bool = False) -> None:
        """Set this process's rlimits, soft and hard."""
        limit_data(self.memory_bytes, gpu)
        for which, value in (
            (resource.RLIMIT_NPROC, self.processes),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_FSIZE, self.file_bytes),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_MEMLOCK, 64 << 10),
            (resource.RLIMIT_MSGQUEUE, 0),
            (resource.RLIMIT_SIGPENDING, 256),  # without root's rights, all sandboxes queue them for one user
        ):
            resource.setrlimit(which, (value, value))
