"""A root directory for one sandbox: the system and Python read-only, scratch folders of its own, nothing else.

Reference: man 2 pivot_root; man 7 mount_namespaces.
"""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import mlsys_labkit
from mlsys_grading.sandbox import kernel
from mlsys_labkit.errors import LabkitError

_SYSTEM: tuple[str, ...] = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives", "/etc/fonts")
_SYSTEM += (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/ssl/certs",
)
# Inside shown folders, but hidden from students: nbgrader's exchange with all submissions, and settings with passwords.
_PRIVATE = ("/usr/local/share/nbgrader", "/usr/local/etc", f"{sys.prefix}/etc/jupyter", f"{sys.prefix}/share/nbgrader")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_MOST_FILES = 1 << 16  # in the scratch folders together: each name takes a kilobyte that no quota of bytes counts
_NEW = "/mnt"  # any folder serves: it is hidden from the rest of the machine, and gone after the pivot

# statvfs flags that a remount within a user namespace may not drop, and the mount flag of each.
_LOCKED = {os.ST_NOSUID: kernel.NO_SUID, 4: kernel.NO_DEV, 8: kernel.NO_EXEC}  # ST_NODEV and ST_NOEXEC lack names here


def readable_paths(more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the paths that a lab reads: the system's programs and libraries, this Python, the kit, and ``more``.

    Not ``sys.path``: a kit installed for development puts its whole checkout there, and with it the solutions. Raises
    LabkitError if one of these holds the grader's home folder, as an environment made in that very folder does.
    """
    python = {sys.base_prefix, sys.prefix, *sysconfig.get_paths().values(), os.path.dirname(mlsys_labkit.__file__)}
    wanted = [*_SYSTEM, *sorted(path for path in python if path), *more]
    kept: list[str] = []
    for path in dict.fromkeys(os.path.abspath(path) for path in wanted if os.path.exists(path)):
        if not any(path == other or path.startswith(other + "/") for other in kept):
            kept.append(path)
    home = Path(os.path.expanduser("~"))
    for path in kept:
        if path not in _SYSTEM and home.resolve().is_relative_to(Path(path).resolve()):
            raise LabkitError(
                f"every submission could read {home}, since Python's environment is {path}; make one in its own folder"
            )
    return tuple(kept)


def shown_with(path: Path) -> str:
    """Return the path shown in every sandbox that has ``path`` in it; "" if none has.

    Example:
        >>> shown_with(Path("/usr/share/course")), shown_with(Path("/srv/course"))
        ('/usr', '')
    """
    found = (shown for shown in readable_paths() if path.resolve().is_relative_to(Path(shown).resolve()))
    return next(found, "")


def build_root(readable: Iterable[str], scratch_bytes: int, devices: Iterable[str] = ()) -> None:
    """Give this process, in a mount namespace of its own, a root of ``readable`` paths and empty scratch folders.

    /sandbox (the working folder), /home, /tmp and /dev/shm are one tmpfs of ``scratch_bytes``. ``devices`` are further
    paths under /dev, such as /dev/nvidia0. /proc is mounted later (``sandbox.proc``). Raises OSError with the path that
    could not be mounted.
    """
    kernel.mount("", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    kernel.mount("tmpfs", _NEW, "tmpfs", kernel.NO_SUID | kernel.NO_DEV, "size=16m,mode=755")
    for name in ("dev", "proc", "old", "etc", "scratch"):
        os.makedirs(f"{_NEW}/{name}", exist_ok=True)
    kernel.mount("tmpfs", f"{_NEW}/dev", "tmpfs", kernel.NO_SUID | kernel.NO_EXEC, "size=64k,mode=755")
    for name in _DEVICES:
        _add_device(f"/dev/{name}")
    for path in devices:
        if os.path.exists(path):
            _bind(path)
    _add_terminals()
    scratch = f"{_NEW}/scratch"
    options = f"size={scratch_bytes},nr_inodes={_MOST_FILES},mode=755"
    kernel.mount("tmpfs", scratch, "tmpfs", kernel.NO_SUID | kernel.NO_DEV, options)
    for folder in ("sandbox", "home", "tmp", "dev/shm"):
        source = f"{scratch}/{Path(folder).name}"
        os.mkdir(source)
        os.chmod(source, 0o1777)
        os.makedirs(f"{_NEW}/{folder}", exist_ok=True)
        kernel.mount(source, f"{_NEW}/{folder}", flags=kernel.BIND)
    kernel.unmount(scratch)
    os.rmdir(scratch)
    for path in readable:  # after the scratch folders: an environment may well live under /tmp
        _show(path)
    for path in _PRIVATE:
        if os.path.isdir(_NEW + path) and not os.path.islink(_NEW + path):
            kernel.mount("tmpfs", _NEW + path, "tmpfs", kernel.READ_ONLY | kernel.NO_SUID | kernel.NO_DEV, "mode=755")
    Path(_NEW, "etc/passwd").write_text("student:x:1000:1000::/home:/bin/sh\n")
    Path(_NEW, "etc/group").write_text("student:x:1000:\n")
    Path(_NEW, "etc/hosts").write_text("127.0.0.1 localhost\n")
    kernel.pivot_root(_NEW, f"{_NEW}/old")
    os.chdir("/")


def _add_device(path: str) -> None:
    """Make a device file of the sandbox's own: what is kept in the inode (locks) is then nobody else's.

    Only the machine's root may; for others it is the machine's own file, of which the filter refuses all locks. It is
    read-only, so that nobody changes its times; what is written to a device goes to its driver all the same.
    """
    try:
        os.mknod(_NEW + path, stat.S_IFCHR, os.stat(path).st_rdev)
        os.chmod(_NEW + path, 0o666)
    except PermissionError:
        _bind(path)


def _add_terminals() -> None:
    """Mount the sandbox's own pseudo-terminals: a notebook's ``!command`` runs on one."""
    os.mkdir(f"{_NEW}/dev/pts")
    kernel.mount(
        "devpts", f"{_NEW}/dev/pts", "devpts", kernel.NO_SUID | kernel.NO_EXEC, "newinstance,ptmxmode=666,max=16"
    )
    os.symlink("pts/ptmx", f"{_NEW}/dev/ptmx")


def seal_root() -> None:
    """Take the machine's own root away, and write-protect the new one. /proc has been mounted by now."""
    kernel.unmount("/old")
    os.rmdir("/old")
    kept = kernel.REMOUNT | kernel.BIND | kernel.READ_ONLY | kernel.NO_SUID
    kernel.mount("", "/", flags=kept | kernel.NO_DEV)
    kernel.mount("", "/dev", flags=kept | kernel.NO_EXEC)


def _show(path: str) -> None:
    """Make ``path`` readable at the same place in the new root; a link stays a link."""
    target = _NEW + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        if not os.path.lexists(target):
            os.symlink(os.readlink(path), target)
        return
    _bind(path)


def _bind(path: str) -> None:
    target = _NEW + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        Path(target).touch()
    kernel.mount(path, target, flags=kernel.BIND)  # not recursive: what is mounted below stays outside
    kept = sum(flag for bit, flag in _LOCKED.items() if os.statvfs(target).f_flag & bit)
    kernel.mount("", target, flags=kernel.BIND | kernel.REMOUNT | kernel.READ_ONLY | kernel.NO_SUID | kept)
