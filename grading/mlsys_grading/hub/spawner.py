"""Servers on this machine: each runs as its own person, in its own namespaces, and outlives a restart of the Hub."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyterhub.spawner import LocalProcessSpawner, SpawnException
from traitlets import Instance, Integer, Unicode

import mlsys_grading
import mlsys_labkit
from mlsys_grading import processes
from mlsys_grading.hub import limits
from mlsys_grading.hub.accounts import Accounts, Person
from mlsys_grading.hub.devices import Devices
from mlsys_grading.hub.enter import Entry
from mlsys_grading.hub.monitoring.starts import measured
from mlsys_grading.hub.ports import listeners, unused_port
from mlsys_grading.hub.settings import HubSettings, ServerProfile
from mlsys_labkit.errors import LabkitError


def entering(*command: str) -> list[str]:
    """Return the command line that runs ``command`` as a person, given an :class:`Entry` on its standard input."""
    return [sys.executable, "-I", "-m", "mlsys_grading.hub.enter", *command]


def entry_for(settings: HubSettings, person: Person) -> Entry:
    """Describe the view of ``person``: the machine, their home, the exchange; of the checkout, the kit and the labs."""
    private = settings.state / "tmp" / person.name
    private.parent.mkdir(exist_ok=True, mode=0o700)
    private.mkdir(exist_ok=True)
    os.chown(private, person.uid, person.uid)
    private.chmod(0o700)
    kit = [Path(package.__file__).parent for package in (mlsys_labkit, mlsys_grading) if package.__file__]
    python = [Path(sys.prefix), Path(sys.base_prefix)]
    shown = [*python, *kit, settings.singleuser, settings.labs, person.home, settings.exchange_folder]
    checkout = Path(mlsys_grading.__file__).parents[2]  # if this package is in one: it holds the solutions
    hidden = [settings.base, settings.state, *([checkout] if (checkout / "solutions").is_dir() else [])]
    placed = {"/etc/passwd": settings.state / "passwd", "/etc/group": settings.state / "group", "/tmp": private}
    return Entry(
        uid=person.uid,
        gid=person.uid,
        cwd=str(person.home),
        hidden=tuple(map(str, hidden)),
        shown=tuple(str(path) for path in shown if path.exists()),
        placed=tuple((str(source), target) for target, source in placed.items()),
        handed_out=((str(settings.labs), str(person.home / settings.course.id)),) if settings.labs.is_dir() else (),
    )


def refused(error: LabkitError) -> SpawnException:
    """Build the page for a person who cannot have a server; without it, they read "Internal Server Error"."""
    return SpawnException(str(error), reason="refused", status_code=503)


class LabSpawner(LocalProcessSpawner):  # type: ignore[misc]
    """Spawner of jupyterhub-singleuser as a person of the Hub, within the limits of a profile."""

    settings = Instance(HubSettings, config=True, help="the content of hub.toml")
    profile = Unicode(config=True, help="the slug of the profile")
    born = Integer(0, help="when the process started: a pid alone may be another's by now")
    _leased: dict[str, str]
    _notifying: asyncio.Task[None]

    def user_env(self, env: dict[str, str]) -> dict[str, str]:
        return env | Accounts(self.settings.state).person(self.user.name).variables() | self._leased

    def make_preexec_fn(self, name: str) -> None:
        """Return None: the process itself becomes the person, see mlsys_grading.hub.enter."""

    @measured
    async def start(self) -> tuple[str, int]:
        devices = Devices(self.settings.state)
        try:
            profile = self._chosen()
            self._leased = await asyncio.to_thread(devices.lease, self.user.name, profile.device)
            entry = entry_for(self.settings, Accounts(self.settings.state).person(self.user.name))
            entry = replace(entry, closed=await asyncio.to_thread(devices.hidden_from, self.user.name))
            self.mem_limit, self.cpu_limit = _bounds(profile).memory_bytes or None, profile.cpus or None
            return await self._start(entry, profile)
        except BaseException as error:
            devices.release(self.user.name)
            if isinstance(error, LabkitError):
                raise refused(error) from None
            raise

    async def _start(self, entry: Entry, profile: ServerProfile) -> tuple[str, int]:
        self.port = unused_port()
        ours, theirs = os.pipe()
        with open(theirs, "wb") as pipe:
            try:
                with open(self.settings.state / "logs" / f"{self.user.name}.log", "ab") as log:
                    log.truncate(0)  # and appended to, so that logrotate may truncate it
                    self.popen_kwargs = {"stdin": ours, "stdout": log, "stderr": log, "cwd": "/"}
                    url: tuple[str, int] = await super().start()
            finally:
                os.close(ours)
            self.born = processes.birth(self.pid)
            limits.confine(self.pid, _bounds(profile))
            Devices(self.settings.state).started(self.user.name, self.pid)
            pipe.write(entry.to_json())  # the process waits for this before it begins
        self._notify_when_it_ends()
        await self._until_it_listens(entry.uid)
        return url

    async def _until_it_listens(self, uid: int) -> None:
        """Wait until the server listens to its port. Raises LabkitError if another user does: the Hub trusts it."""
        while processes.birth(self.pid) == self.born:
            if found := listeners(self.port):
                if found != {uid}:
                    raise LabkitError(f"user ids {found} took port {self.port} before the server; start it again")
                return
            await asyncio.sleep(0.05)

    def _notify_when_it_ends(self) -> None:
        """Notify the Hub at the moment the server ends: the next to listen to the port would get its visitors."""
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(self.pid)
            asyncio.get_running_loop().add_reader(ended, self._has_ended, ended, self.pid)

    def _has_ended(self, ended: int, pid: int) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(ended)
        os.close(ended)
        self._notifying = loop.create_task(self._notify(pid))  # the loop keeps only a weak reference

    async def _notify(self, pid: int) -> None:
        spawner = self.user.spawners[self.name]  # this spawner, or the ProfileSpawner around it
        while spawner.pending:
            await asyncio.sleep(0.05)
        if self.pid == pid:  # else the Hub itself has stopped it, and a person may be starting the next one
            await spawner.poll_and_notify()

    def _chosen(self) -> ServerProfile:
        for profile in self.settings.profiles:
            if profile.slug == self.profile and profile.spawner == "local":
                return profile
        raise LabkitError(f"there is no profile {self.profile!r}; choose one of the page")

    async def _signal(self, sig: int) -> bool:
        """Send SIGTERM for SIGINT: a Jupyter server that is at work with a kernel sometimes swallows SIGINT."""
        return bool(await super()._signal(signal.SIGTERM if sig == signal.SIGINT else sig))

    async def poll(self) -> int | None:
        if self.proc is None and self.pid and processes.birth(self.pid) != self.born:
            self.clear_state()
            return 0
        status: int | None = await super().poll()
        return status

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.born = state.get("born", 0)
        if self.pid and self.born and processes.birth(self.pid) == self.born:
            limits.confine(self.pid, _bounds(self._chosen()))
            self._notify_when_it_ends()

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state()
        return state | ({"born": self.born} if self.pid else {})

    def clear_state(self) -> None:
        """Release the limits and the device of a server that has ended."""
        if self.pid:
            limits.release(self.pid)
            Devices(self.settings.state).release(self.user.name)
        super().clear_state()
        self.born = 0


def _bounds(profile: ServerProfile) -> limits.ServerLimits:
    return limits.ServerLimits(memory_bytes=round(profile.memory_gib * (1 << 30)), cores=profile.cpus)
