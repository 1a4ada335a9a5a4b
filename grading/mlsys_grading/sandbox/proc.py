"""/proc of one sandbox: its own processes, and copies of the few files about the machine that programs read.

Two sandboxes could pass bits through a number that both move and both read, such as that of open files or of free
memory. Of all that /proc has beside processes, a sandbox gets files that say the same to everybody and do not change:
copies made once, when the first sandbox is. The rest is hidden by name, whatever a later kernel adds. The mount is
read-only: a process must not reset the kernel's record of its own memory (clear_refs), which marks depend on.

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
_LINKS = ("self", "thread-self", "mounts", "net")  # into the folder of the process that follows them
_CONSTANT = ("cmdline", "config.gz", "consoles", "devices", "dma", "execdomains", "misc")
_DRIVERS = "driver"  # what a GPU's libraries read
_TCP_BYTES = 256 << 10
_PLACE = "/etc/proc"


@cache
def _copies() -> dict[str, str]:
    """Return the content of the copied files, as it was when this process was first asked."""
    found = {}
    for name in (*_COPIED, *(f"sys/{name}" for name in _SETTINGS.split())):
        try:
            found[name] = Path("/proc", name).read_text(errors="replace")
        except OSError:
            continue  # another kernel has no such file
    return found


def prepare() -> None:
    """Make the copies now, so that all sandboxes of this process and its forks get the same."""
    _copies()


def mount_processes(gpu: bool = False) -> int:
    """Mount /proc of the new pid namespace, which this process has to be in; ``gpu`` shows the drivers, too.

    Return a descriptor of the same folder that can be written, for the maps of a user namespace.
    """
    flags = kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC
    kernel.mount("proc", "/proc", "proc", flags)
    for name in ("tcp_rmem", "tcp_wmem"):  # of this network alone; the watcher counts so much for each socket
        with suppress(FileNotFoundError):
            Path("/proc/sys/net/ipv4", name).write_text(f"4096 65536 {_TCP_BYTES}")
    writable = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    kernel.mount("/proc", "/proc", flags=kernel.BIND)
    os.mkdir(_PLACE)
    kernel.mount("tmpfs", _PLACE, "tmpfs", flags, "size=1m,mode=755")
    Path(_PLACE, "hidden").touch(mode=0)
    Path(_PLACE, "nothing").mkdir()
    Path(_PLACE, "sys").mkdir()
    for name, text in _copies().items():
        path = Path(_PLACE, name)
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    kernel.mount("", _PLACE, flags=kernel.REMOUNT | kernel.READ_ONLY | flags, options="size=1m")  # and all its binds
    shown = {*_LINKS, *_CONSTANT, *([_DRIVERS] if gpu else [])}
    with os.scandir("/proc") as entries:
        others = [each for each in entries if not each.name.isdigit() and each.name not in shown]
    for entry in others:
        name, is_folder = entry.name, entry.is_dir()
        if is_folder or entry.stat().st_mode & stat.S_IROTH:  # root of the machine alone reads the rest
            copy = f"{_PLACE}/{name}"
            stands = copy if os.path.exists(copy) else f"{_PLACE}/{'nothing' if is_folder else 'hidden'}"
            kernel.mount(stands, f"/proc/{name}", flags=kernel.BIND)
    kernel.unmount(_PLACE)
    os.rmdir(_PLACE)
    kernel.mount("", "/proc", flags=kernel.BIND | kernel.REMOUNT | kernel.READ_ONLY | flags)
    return writable
