"""/proc of one sandbox: its own processes, and copies of the few files about the machine that programs read.

Two sandboxes could pass bits through a number that both move and both read, such as that of open files or of free
memory. Of all that /proc has beside processes, a sandbox gets files that say the same to everybody and do not change:
copies made once, when the first sandbox is. The mount is read-only: a process must not reset the kernel's record of its
own memory (clear_refs), which marks depend on.

The folder of a process says such numbers, too: which pages of a library others have mapped (smaps, smaps_rollup,
pagemap, numa_maps), packets on any loopback (net/softnet_stat), the machine's numbers of pipes (fd) and of events
(fdinfo). No mount can hide a file in the folders of processes that come later, and a sandbox without /proc/self/exe
starts no program that looks for its libraries beside itself ($ORIGIN: a conda Python, torch_shm_manager, compilers). So
an ordinary sandbox shows its processes, and the rest of /proc is hidden by name, whatever a later kernel adds.

A sandbox that must learn nothing from others, a rank's, has the folder of its first process alone, with the files of
``_SHOWN``, which speak of that process only; /proc/self leads there, also for its children.

Reference: Linux, Documentation/filesystems/proc.rst; the masked paths of the OCI runtime specification, which are a
list of refusals instead.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from mlsys_grading.sandbox import kernel

_COPIED = ("cpuinfo", "meminfo", "stat", "version", "filesystems", "loadavg", "uptime", "vmstat")
_SETTINGS = """
kernel/cap_last_cap kernel/ngroups_max kernel/osrelease kernel/ostype kernel/pid_max kernel/threads-max kernel/version
vm/max_map_count vm/overcommit_memory vm/overcommit_ratio fs/pipe-max-size net/core/somaxconn
"""
_SHOWN = ("cmdline", "comm", "stat", "statm", "status")  # what psutil and most programs read of themselves
_LINKS = ("self", "thread-self", "mounts", "net")  # into the folder of the process that follows them
_CONSTANT = ("cmdline", "config.gz", "consoles", "devices", "dma", "execdomains", "misc")
_DRIVERS = "driver"  # what a GPU's libraries read
_TCP_BYTES = 256 << 10
_PLACE = "/etc/proc"
_FLAGS = kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC


@cache
def _copies() -> dict[str, bytes]:
    """Return the content of the copied files, as it was when this process was first asked."""
    found = {}
    for name in (*_COPIED, *(f"sys/{name}" for name in _SETTINGS.split())):
        try:
            found[name] = Path("/proc", name).read_bytes()
        except OSError:
            continue  # another kernel has no such file
    return found


def prepare() -> None:
    """Make the copies now, so that all sandboxes of this process and its forks get the same."""
    _copies()


def mount_processes(gpu: bool = False, shown: bool = True) -> int:
    """Mount /proc of the new pid namespace, whose first process calls this; ``gpu`` shows the drivers, too.

    Return a descriptor of the same folder that can be written, for the maps of a user namespace. It has all processes
    also if they are not ``shown``.
    """
    kernel.mount("proc", "/proc", "proc", _FLAGS)
    for name in ("tcp_rmem", "tcp_wmem"):  # of this network alone; the watcher counts so much for each socket
        with suppress(FileNotFoundError):
            Path("/proc/sys/net/ipv4", name).write_text(f"4096 65536 {_TCP_BYTES}")
    writable = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    if shown:
        _mask_machine(gpu)
    else:
        os.chdir("/proc")  # where the names of the first process's files still lead after the next mount
        _mount_copies("/proc", 1)
    return writable


def _mask_machine(gpu: bool) -> None:
    """Put copies over the files of /proc about the machine, and nothing over those that have no copy."""
    kernel.mount("/proc", "/proc", flags=kernel.BIND)
    os.mkdir(_PLACE)
    _mount_copies(_PLACE)
    kept = {*_LINKS, *_CONSTANT, *([_DRIVERS] if gpu else [])}
    with os.scandir("/proc") as entries:
        others = [each for each in entries if not each.name.isdigit() and each.name not in kept]
    for entry in others:
        name, is_folder = entry.name, entry.is_dir()
        if is_folder or entry.stat().st_mode & stat.S_IROTH:  # root of the machine alone reads the rest
            copy = f"{_PLACE}/{name}"
            stands = copy if os.path.exists(copy) else f"{_PLACE}/{'nothing' if is_folder else 'hidden'}"
            kernel.mount(stands, f"/proc/{name}", flags=kernel.BIND)
    kernel.unmount(_PLACE)
    os.rmdir(_PLACE)
    kernel.mount("", "/proc", flags=kernel.BIND | kernel.REMOUNT | kernel.READ_ONLY | _FLAGS)


def _mount_copies(place: str, shown: int = 0) -> None:
    """Mount the copies on ``place``, and with them files of the process ``shown``, which lie in the working folder."""
    copies = _copies()  # of what a mount on /proc hides
    kernel.mount("tmpfs", place, "tmpfs", _FLAGS, "size=1m,mode=755")
    # Plain calls of the system: pathlib takes several times as long, and this runs for every sandbox.
    for folder in ("nothing", *sorted({part for name in copies for part in _folders(name)})):
        os.mkdir(f"{place}/{folder}")
    for name, data in copies.items():
        _write_new(f"{place}/{name}", data, 0o666)
    _write_new(f"{place}/hidden", b"", 0)
    if shown:
        os.mkdir(f"{place}/{shown}")
        os.symlink(str(shown), f"{place}/self")
        for name in _SHOWN:
            file = f"{place}/{shown}/{name}"
            _write_new(file, b"", 0o666)
            kernel.mount(f"{shown}/{name}", file, flags=kernel.BIND)
            kernel.mount("", file, flags=kernel.BIND | kernel.REMOUNT | kernel.READ_ONLY | _FLAGS)
    kernel.mount("", place, flags=kernel.REMOUNT | kernel.READ_ONLY | _FLAGS, options="size=1m")  # and all its binds


def _folders(name: str) -> list[str]:
    """Return the folders on the way to a file.

    Example:
        >>> _folders("sys/vm/max_map_count")
        ['sys', 'sys/vm']
    """
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _write_new(path: str, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    os.write(descriptor, data)
    os.close(descriptor)
