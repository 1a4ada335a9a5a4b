"""Leases of GPUs: one submission per device, and a check of what the submission left running or allocated on it.

The lock is flock(2) on a file of this machine, which the kernel releases however its holder ends. A device with remains
is out of service until they are gone; a note, which a reboot removes, records this for all graders.
Reference: man 2 flock. Not measured on a GPU.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mlsys_grading.gpu.devices import DeviceError, DeviceUsage, GpuDevice, usage

_FOLDER = "/dev/shm/labkit-gpu-{user}"  # the same for every session and job of one user, and empty after a reboot
_PATIENCE_SECONDS = 10.0  # the driver frees a killed process's memory some time after its end
_LOOK_SECONDS = 0.2


@contextmanager
def lease(
    devices: Sequence[GpuDevice], wait_seconds: float = 3600.0, folder: Path | None = None
) -> Iterator[GpuDevice]:
    """Give one of ``devices`` to the ``with`` block alone; at its end, end every process that the block started on it.

    Waits while all are leased or used by other processes. ``folder`` holds the locks.

    Raises:
        DeviceError: there is none; all are out of service; none came free in ``wait_seconds``; or, at the end of the
            block, something is left on the device. It is then out of service, and what the block found out is in doubt.

    Example:
        >>> with lease(visible_devices()) as device:  # doctest: +SKIP
        ...     examine_submission(server, plan, sandbox=device.shown_in(Sandbox()))
    """
    if not devices:
        raise DeviceError("no GPU is visible here; run nvidia-smi -L, and see CUDA_VISIBLE_DEVICES")
    folder = folder or _own_folder()
    lock, device, before = _first_free(devices, folder, wait_seconds)
    try:
        try:
            yield device
        except BaseException:
            with suppress(DeviceError):  # the device is already marked; the block's own error explains more
                _hand_back(lock, device, before)
            raise
        _hand_back(lock, device, before)
    finally:
        os.close(lock)


def _first_free(devices: Sequence[GpuDevice], folder: Path, wait_seconds: float) -> tuple[int, GpuDevice, DeviceUsage]:
    started = time.monotonic()
    while True:
        out: dict[str, str] = {}
        for device in devices:
            with ExitStack() as stack, suppress(BlockingIOError):
                lock = os.open(folder / f"{device.uuid}.lease", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
                stack.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if (before := _ready(lock, device, out)) is not None:
                    stack.pop_all()  # the lock stays open
                    return lock, device, before
        waited_seconds = time.monotonic() - started
        if len(out) == len(devices) and waited_seconds > _PATIENCE_SECONDS:
            told = "; ".join(f"{uuid} is out of service: {why}" for uuid, why in out.items())
            raise DeviceError(f"{told}; see nvidia-smi, or remove {folder} if that is how they are")
        if waited_seconds > wait_seconds:
            raise DeviceError(f"none of {len(devices)} GPUs came free; see nvidia-smi for what runs on them")
        time.sleep(_LOOK_SECONDS)


def _ready(lock: int, device: GpuDevice, out: dict[str, str]) -> DeviceUsage | None:
    """Return the usage of an idle device; None if a process computes on it, or it is out of service."""
    now = usage(device)
    note, _, idle_bytes = os.pread(lock, 1 << 12, 0).decode().partition("\n")
    if note and now.left_since(int(idle_bytes)):
        out[device.uuid] = note
        return None
    if now.processes:
        return None
    _note(lock, f"what a killed grader (process {os.getpid()}) left on it", now)
    return now


def _hand_back(lock: int, device: GpuDevice, before: DeviceUsage) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while left := usage(device).left_since(before.used_bytes):
        if time.monotonic() > until:
            note = f"{left} left on it by a submission that has ended"
            _note(lock, note, before)
            raise DeviceError(f"{device.uuid} is out of service until it is free: {note}")
        time.sleep(_LOOK_SECONDS)
    os.ftruncate(lock, 0)


def _note(lock: int, why: str, idle: DeviceUsage) -> None:
    """Write why the device is out of service if it is not idle. A note made before a lease outlives a killed holder."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{why}\n{idle.used_bytes}".encode(), 0)


def _own_folder() -> Path:
    folder = Path(_FOLDER.format(user=os.getuid()))
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise DeviceError(f"{folder} is not a folder of ours; remove it, or have its owner remove it")
    return folder
