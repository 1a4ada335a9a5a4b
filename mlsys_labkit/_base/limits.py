"""The cores and memory that this process may use, after cgroups (v1 and v2), affinity and other tenants.

A container, a hub or Binder gives a notebook a slice of a large host, but ``os.cpu_count()`` returns the cores of the
host. With that many threads, threads wait for each other; sizes chosen from the memory of the host exceed the limit,
and the kernel kills the process. Outside Linux only affinity and memory as the system reports them count.

Every function takes ``root``, a directory used in place of ``/``, so that a test can describe a machine by files.

Reference: Linux kernel documentation, "Control Group v2" (cpu.max, memory.max) and "CFS Bandwidth Control" (v1).
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")
_NO_LIMIT_BYTES = 1 << 60  # cgroup v1 writes "no limit" as a number near 2**63


def usable_cores(root: Path = ROOT, visible: int | None = None) -> float:
    """Return how many cores this process may keep busy: the smaller of affinity and CPU quota.

    A quota can be a fraction.

    Example:
        >>> usable_cores() > 0
        True
    """
    quotas = [*_v2_quotas(root), *_v1_quotas(root)]
    return float(min([visible or _visible_cores(), *quotas]))


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """Return the most bytes this process may hold: physical memory or the tightest cgroup limit; None if unknown."""
    limits = [limit for limit, _ in _memory_groups(root)]
    total = _meminfo(root, "MemTotal") or _system_memory("total")
    return min([*limits, *([total] if total else [])], default=None)


def memory_free_bytes(root: Path = ROOT) -> int | None:
    """Return the bytes that can be allocated now without swapping or being killed; None if unknown.

    Page cache that the kernel would drop counts as free, as it does in MemAvailable.
    """
    rooms = [max(0, limit - used) for limit, used in _memory_groups(root)]
    available = _meminfo(root, "MemAvailable") or _system_memory("available")
    return min([*rooms, *([available] if available else [])], default=None)


def memory_kills(root: Path = ROOT) -> int:
    """Count the processes in this process's cgroup that the kernel has killed because of the memory limit.

    Example:
        >>> memory_kills() >= 0
        True
    """
    for controller, name in ((None, "memory.events"), ("memory", "memory.oom_control")):
        folder = group_folder(controller, root)
        if folder and (match := re.search(r"^oom_kill (\d+)$", _read(folder / name) or "", re.MULTILINE)):
            return int(match[1])
    return 0


def group_folder(controller: str | None, root: Path = ROOT) -> Path | None:
    """Return the folder of this process's cgroup: of v1 hierarchy ``controller``, or of the unified one (None).

    Return None where the hierarchy is not mounted.

    Example:
        >>> group_folder("no such controller") is None
        True
    """
    return max(_groups(root, controller), key=lambda folder: len(folder.parts), default=None)


def cache_bytes(root: Path = ROOT) -> dict[str, int]:
    """Return the sizes of the first core's data caches in bytes, e.g. ``{"l1": 32768, "l2": 1048576}``.

    The result is empty where the system does not report them.
    """
    caches: dict[str, int] = {}
    for entry in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_read(entry / name) for name in ("level", "type", "size"))
        match = re.fullmatch(r"(\d+)([KMG]?)", size or "")
        if level and match and kind in ("Data", "Unified"):
            caches[f"l{level}"] = int(match[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]]
    return caches


def _visible_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _v2_quotas(root: Path) -> Iterator[float]:
    for group in _groups(root, None):
        quota, _, period = (_read(group / "cpu.max") or "max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) / int(period)


def _v1_quotas(root: Path) -> Iterator[float]:
    for group in _groups(root, "cpu"):
        quota, period = _integer(group / "cpu.cfs_quota_us"), _integer(group / "cpu.cfs_period_us")
        if quota and period and quota > 0:  # -1 is "no limit"
            yield quota / period


def _memory_groups(root: Path) -> Iterator[tuple[int, int]]:
    """Yield (limit, used) in bytes for every cgroup from this process upwards that has a memory limit.

    Memory that the kernel can reclaim is not counted as used.
    """
    for controller, limit_file, used_file, reclaimable in (
        (None, "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        for group in _groups(root, controller):
            limit = _integer(group / limit_file)
            if limit is not None and limit < _NO_LIMIT_BYTES:
                match = re.search(rf"^{reclaimable} (\d+)$", _read(group / "memory.stat") or "", re.MULTILINE)
                yield limit, max(0, (_integer(group / used_file) or 0) - (int(match[1]) if match else 0))


def _groups(root: Path, controller: str | None) -> Iterator[Path]:
    """Yield the folders of this process's cgroup and of its ancestors: a limit on any of them applies.

    ``controller`` names a v1 hierarchy, None the unified one.
    """
    own = _own_group(root, controller)
    mount = _mount(root, controller)
    if own is None or mount is None:
        return
    mount_root, mount_point = mount
    # A container without a cgroup namespace sees the host's path in /proc and only its own subtree mounted.
    inside = own.relative_to(mount_root) if own.is_relative_to(mount_root) else PurePosixPath()
    if ".." in inside.parts:
        inside = PurePosixPath()
    group = root / mount_point.relative_to("/")
    yield group
    for part in inside.parts:
        group /= part
        yield group


def _own_group(root: Path, controller: str | None) -> PurePosixPath | None:
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if (controller is None and not names) or (controller is not None and controller in names.split(",")):
            return PurePosixPath(path)
    return None


def _mount(root: Path, controller: str | None) -> tuple[PurePosixPath, PurePosixPath] | None:
    for line in (_read(root / "proc/self/mountinfo") or "").splitlines():
        mount, _, system = line.partition(" - ")
        fields, kind = mount.split(" "), system.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        unified = kind[0] == "cgroup2"
        if unified if controller is None else kind[0] == "cgroup" and controller in kind[2].split(","):
            return PurePosixPath(fields[3]), PurePosixPath(fields[4])
    return None


def _meminfo(root: Path, field: str) -> int | None:
    match = re.search(rf"^{field}:\s+(\d+) kB$", _read(root / "proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _system_memory(which: str) -> int | None:
    """Return the total or available memory where there is no /proc (macOS, Windows); None if unknown.

    psutil comes with every Jupyter kernel. Without it POSIX gives the total only.
    """
    try:
        return int(getattr(importlib.import_module("psutil").virtual_memory(), which))
    except ImportError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if which == "total" else None
    except (AttributeError, ValueError, OSError):
        return None


def _integer(path: Path) -> int | None:
    text = _read(path)
    try:
        return int(text) if text else None
    except ValueError:
        return None  # "max"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
