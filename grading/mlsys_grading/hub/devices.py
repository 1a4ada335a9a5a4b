"""Leases of GPUs: one person per device, kept in a file, so that a restarted Hub reads them again.

A lease is made before a server starts, records the server's process, and ends when the server stops or its process is
gone. If the server has left memory or processes on the device, the device is out of service until they are gone, and
messages name them. Not measured on a GPU.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from mlsys_grading import files, processes
from mlsys_grading.gpu.devices import DeviceError, DeviceUsage, GpuDevice, usage, visible_devices

_START_SECONDS = 600.0  # longer than any start; then a lease without a process ends


@dataclass(frozen=True)
class Lease:
    """One device given to one person.

    Attributes:
        owner: the person, or the person and the name of one of several servers.
        since: seconds since the epoch, for messages.
        asked: seconds since the machine started, which do not change when somebody sets the clock.
        idle_bytes: bytes in use on the device before the lease.
        pid, born: the server's process and its ``processes.birth``; 0 before there is one.
        ended: the server has gone; the lease remains for as long as its remains are on the device.
    """

    owner: str
    since: float
    idle_bytes: int
    pid: int = 0
    born: int = 0
    ended: bool = False
    asked: float = field(default_factory=time.monotonic)

    @property
    def is_alive(self) -> bool:
        """True while the owner may use the device."""
        if self.ended:
            return False
        if not self.pid:
            return 0 <= time.monotonic() - self.asked < _START_SECONDS
        return self.born > 0 and processes.birth(self.pid) == self.born


def kind_of(device: GpuDevice) -> str:
    """Return the word by which a profile asks for such a device: "gpu", or "mig-1g.10gb" for a slice of that size.

    Example:
        >>> kind_of(GpuDevice("MIG-1", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0, 10 << 30, (12, 13)))
        'mig-1g.10gb'
    """
    _, instance, size = device.name.partition(" MIG ")
    return f"mig-{size.replace('+', '.')}" if instance else "gpu"


class Devices:
    """The devices of this machine and their leases, kept in ``state/devices.json``.

    Args:
        state: the Hub's folder.
        list_devices, look: list the devices, and the use of one: NVIDIA's library, except in tests.

    Example:
        >>> Devices(Path("build/hub")).lease("ada", "gpu")  # doctest: +SKIP
        {'CUDA_VISIBLE_DEVICES': 'GPU-8c5f2e1a'}
    """

    def __init__(
        self,
        state: Path,
        list_devices: Callable[[], Sequence[GpuDevice]] = lambda: visible_devices(),
        look: Callable[[GpuDevice], DeviceUsage] = lambda device: usage(device),
    ) -> None:
        self._file = state / "devices.json"
        self._list, self._look = list_devices, look

    def lease(self, owner: str, kind: str) -> dict[str, str]:
        """Give ``owner`` a free device of that kind and return the variables for their server; "" asks for no device.

        An owner with a device of that kind keeps it. Raises DeviceError, one line with the owners, when none is free.
        """
        with self._leases() as leases:
            present = [device for device in self._list() if kind_of(device) == kind] if kind else []
            if (mine := _of(owner, leases)) and any(device.uuid == mine for device in present):
                leases[mine] = Lease(owner, time.time(), leases[mine].idle_bytes)  # of a new server
            else:
                _end(owner, leases)
                mine = ""
                if kind:
                    device, idle = self._free(leases, present, kind)
                    leases[mine := device.uuid] = Lease(owner, time.time(), idle.used_bytes)
            return {"CUDA_VISIBLE_DEVICES": mine}  # "": no device; without the variable, all would be visible

    def started(self, owner: str, pid: int) -> None:
        """Record ``pid`` as the process of the owner's server: the lease ends with it."""
        with self._leases() as leases:
            if mine := _of(owner, leases):
                leases[mine] = replace(leases[mine], pid=pid, born=processes.birth(pid))

    def release(self, owner: str) -> None:
        """End the lease of the owner, whose server has stopped; no lease is no error."""
        with self._leases() as leases:
            _end(owner, leases)

    def held(self) -> dict[str, Lease]:
        """Return the leases in force, by the UUID of their device."""
        return {uuid: lease for uuid, lease in self._read().items() if lease.is_alive}

    def left(self) -> tuple[str, ...]:
        """Describe the remains of ended servers on devices, one line each, with the way to free the device."""
        ended = {uuid: lease for uuid, lease in self._read().items() if not lease.is_alive}
        lines = (self._left_on(device, ended[device.uuid]) for device in self._list() if device.uuid in ended)
        return tuple(filter(None, lines))

    def counts(self) -> dict[str, dict[str, int]]:
        """Count the devices of each kind that are held, starting (leased to a server that is not up), left or free.

        "left" is a device on which an ended server has left memory or processes.
        """
        leases = self._read()
        found: dict[str, dict[str, int]] = {}
        for device in self._list():
            states = found.setdefault(kind_of(device), {"held": 0, "starting": 0, "left": 0, "free": 0})
            lease = leases.get(device.uuid)
            if lease and lease.is_alive:
                states["held" if lease.pid else "starting"] += 1
            else:
                states["left" if lease and self._left_on(device, lease) else "free"] += 1
        return found

    def hidden_from(self, owner: str) -> tuple[str, ...]:
        """Return the device files that open other people's devices, for the server's mount namespace to close."""
        mine, present = _of(owner, self._read()), self._list()
        own = {path for device in present if device.uuid == mine for path in device.files}
        others = {path for device in present for path in device.own_files} - own
        return tuple(sorted(filter(os.path.exists, others)))

    def _free(self, leases: dict[str, Lease], present: Sequence[GpuDevice], kind: str) -> tuple[GpuDevice, DeviceUsage]:
        if not present:
            raise DeviceError(f"this machine has no {kind}; choose another profile, or see nvidia-smi -L")
        told = []
        for device in present:
            lease = leases.get(device.uuid)
            if lease and not lease.ended:
                told.append(f"{lease.owner} has one since {time.strftime('%H:%M', time.localtime(lease.since))}")
            elif lease and (left := self._left_on(device, lease)):
                told.append(left)
            elif (now := self._look(device)).processes:
                told.append(f"{device.uuid} is used by {_named(now.processes)}, which is no server of this Hub")
            else:
                return device, now
        raise DeviceError(
            f"no {kind} is free: {'; '.join(told)}. Choose a profile without one, or try again when one has stopped"
        )

    def _left_on(self, device: GpuDevice, lease: Lease) -> str:
        now = self._look(device)
        if not (left := now.left_since(lease.idle_bytes)):
            return ""
        mend = f"end {_named(now.processes)}" if now.processes else f"nvidia-smi --gpu-reset -i {device.uuid}"
        return f"{device.uuid} has {left} left by {lease.owner}, whose server has gone ({mend})"

    @contextmanager
    def _leases(self) -> Iterator[dict[str, Lease]]:
        """Lock and yield the leases; changes are on the disk when the block ends."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with open(self._file.with_suffix(".lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            files.sweep_parts([self._file.parent])
            before = self._read()
            leases = {uuid: lease if lease.is_alive else replace(lease, ended=True) for uuid, lease in before.items()}
            try:
                yield leases
            finally:  # also when a lease is refused: the owner has given back the device before
                if leases != before:
                    plain = {uuid: asdict(lease) for uuid, lease in leases.items()}
                    files.write_atomic(self._file, json.dumps(plain, indent=2) + "\n")

    def _read(self) -> dict[str, Lease]:
        try:
            return {uuid: Lease(**plain) for uuid, plain in json.loads(self._file.read_text()).items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            line = f"{self._file} is not a list of leases ({error}); remove it when no server with a GPU runs"
            raise DeviceError(line) from None


def _of(owner: str, leases: dict[str, Lease]) -> str:
    """Return the UUID of the device that ``owner`` has; "" for none."""
    return next((uuid for uuid, lease in leases.items() if lease.owner == owner and not lease.ended), "")


def _end(owner: str, leases: dict[str, Lease]) -> None:
    """Mark the owner's lease as ended. It stays, with ``idle_bytes``, until the next lease of the device."""
    if mine := _of(owner, leases):
        leases[mine] = replace(leases[mine], ended=True)


def _named(pids: Sequence[int]) -> str:
    return ", ".join(f"process {pid}{_user(pid)}" for pid in pids)


def _user(pid: int) -> str:
    try:
        return f" of user id {os.stat(f'/proc/{pid}').st_uid}"
    except OSError:
        return ""
