"""The Linux calls that Python has no name for, each raising OSError with what was tried.

Reference: man 2 unshare, mount, pivot_root, prctl, capset; man 7 namespaces, user_namespaces, capabilities.
"""

from __future__ import annotations

import ctypes
import os

NEW_MOUNT, NEW_UTS, NEW_IPC = 0x20000, 0x4000000, 0x8000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000
READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
SET_DUMPABLE, SET_NO_NEW_PRIVS, SET_PDEATHSIG, SET_SECCOMP, DROP_BOUNDING = 4, 38, 1, 22, 24

_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces of these flags for new ones; a new pid namespace begins with the next fork."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Call mount(2); an empty string stands for NULL."""
    texts = [text.encode() or None for text in (source, target, kind, options)]
    result = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _check(result, f"mount {source or kind} on {target}")


def unmount(target: str) -> None:
    """Remove a mount as soon as no process uses it."""
    _check(_libc.umount2(target.encode(), _DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root directory of this mount namespace, and put the former one on ``old``."""
    number = _PIVOT_ROOT[os.uname().machine]
    _check(_libc.syscall(ctypes.c_long(number), new.encode(), old.encode()), f"pivot_root {new}")


def prctl(option: int, *arguments: int) -> None:
    """Call prctl(2) with whole-number arguments."""
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *padded), f"prctl({option})")


def drop_capabilities() -> None:
    """Give up every capability, for this process and for every program that it executes."""
    for capability in range(64):
        if _libc.prctl(DROP_BOUNDING, ctypes.c_ulong(capability), 0, 0, 0):
            break  # past the kernel's last capability
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(header, none), "capset")
