"""Servers on this machine: each runs as its own person, in its own namespaces, and outlives a restart of the Hub."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.spawner import LocalProcessSpawner, SpawnException
from jupyterhub.utils import url_path_join, wait_for_http_server
from traitlets import Instance, Integer, Unicode

from mlsys_grading import processes
from mlsys_grading.hub import limits
from mlsys_grading.hub.accounts import Accounts, Person
from mlsys_grading.hub.devices import Devices
from mlsys_grading.hub.enter import Entry
from mlsys_grading.hub.entries import entry_for
from mlsys_grading.hub.monitoring.starts import measured
from mlsys_grading.hub.quota import HomeWatcher
from mlsys_grading.hub.settings import HubSettings, ServerProfile
from mlsys_grading.hub.sockets import url
from mlsys_labkit._base.limits import usable_cores
from mlsys_labkit.errors import LabkitError

_homes = HomeWatcher()
# Starts at the same time. Each needs a core for some seconds: more at once would make all of them late, not one sooner.
_turns = asyncio.Semaphore(max(2, round(usable_cores())))
_TURN_SECONDS = 30.0  # a server that never answers, by its person's own settings, does not hold up others
_LOG_BYTES = 2000  # of the end of a log, which the page for a failed start may show


def refused(error: LabkitError) -> SpawnException:
    """Build the page for a person who cannot have a server; without it, they read "Internal Server Error"."""
    page = SpawnException(str(error), reason="refused", status_code=503)
    page.jupyterhub_message = str(error)  # else the page of a start that is under way shows the exception's own words
    return page


def last_line(log: Path) -> str:
    """Return the last line of a person's log, or its end: the person can make the file as large as the disk."""
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
        lines = file.read(_LOG_BYTES).decode(errors="replace").strip("\0 \n").splitlines()
    return lines[-1] if lines else ""


@contextlib.asynccontextmanager
async def _turn() -> AsyncIterator[None]:
    """Wait for a turn to start a server; it lasts to the end of the block, or _TURN_SECONDS if that is sooner."""
    await _turns.acquire()
    turn = contextlib.ExitStack()
    turn.callback(_turns.release)
    timer = asyncio.get_running_loop().call_later(_TURN_SECONDS, turn.close)
    try:
        yield
    finally:
        timer.cancel()
        turn.close()


class LabSpawner(LocalProcessSpawner):  # type: ignore[misc]
    """Spawner of jupyterhub-singleuser as a person of the Hub, within the limits of a profile."""

    settings = Instance(HubSettings, config=True, help="the content of hub.toml")
    profile = Unicode(config=True, help="the slug of the profile")
    born = Integer(0, help="when the process started: a pid alone may be another's by now")
    _leased: dict[str, str]
    _notifying: asyncio.Task[None]

    def user_env(self, env: dict[str, str]) -> dict[str, str]:
        quota = {"MLSYS_HUB_HOME_GIB": f"{self.settings.quota.home_gib:g}"}
        return env | self._person.variables() | self._leased | quota

    def make_preexec_fn(self, name: str) -> None:
        """Return None: the process itself becomes the person, see mlsys_grading.hub.enter."""

    @property
    def _person(self) -> Person:
        return Accounts(self.settings.state).person(self.user.name)

    @property
    def _log_file(self) -> Path:
        return self.settings.state / "logs" / f"{self.user.name}.log"

    @measured
    async def start(self) -> str:
        async with _turn():
            return await self._start_now()

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Tell the person, on the page that waits for the server, why nothing happens yet."""
        if _turns.locked():
            yield {"progress": 0, "message": "Many servers are being started. Yours is in the queue."}

    async def _start_now(self) -> str:
        devices = Devices(self.settings.state)
        try:
            profile = self._chosen()
            self._leased = await asyncio.to_thread(devices.lease, self.user.name, profile.device)
            entry = entry_for(self.settings, self._person)
            closed = await asyncio.to_thread(devices.hidden_from, self.user.name)
            entry = replace(entry, closed=closed, most_seconds=round(3600 * self.settings.idle.max_hours))
            self.mem_limit, self.cpu_limit = _bounds(profile).memory_bytes or None, profile.cpus or None
            return await self._start(entry, profile)
        except BaseException as error:
            devices.release(self.user.name)
            if isinstance(error, LabkitError):
                raise refused(error) from None
            raise

    async def _start(self, entry: Entry, profile: ServerProfile) -> str:
        address = url(Path(entry.socket))
        ours, theirs = os.pipe()
        with open(theirs, "wb") as pipe:
            try:
                with open(self._log_file, "ab") as log:
                    log.truncate(0)  # and appended to, so that logrotate may truncate it
                    os.fchown(log.fileno(), entry.uid, entry.gid)  # it counts against the person's quota
                    self.popen_kwargs = {"stdin": ours, "stdout": log, "stderr": log, "cwd": "/"}
                    await super().start()
            finally:
                os.close(ours)
            self.born = processes.birth(self.pid)
            self._confine(profile)
            Devices(self.settings.state).started(self.user.name, self.pid)
            self._remember(address)
            pipe.write(entry.to_json())  # the process waits for this before it begins
        self._notify_when_it_ends()
        await self._until_it_answers(url_path_join(address, self.server.base_url, "api"))
        return address

    def _remember(self, address: str) -> None:
        """Write the process into the database, for the Hub that follows if this one is killed during the start."""
        spawner = self.user.spawners[self.name]  # this spawner, or the ProfileSpawner around it
        spawner.server.proto, spawner.server.ip, spawner.server.port = "http+unix", urlsplit(address).netloc, 80
        spawner.orm_spawner.state = spawner.get_state()
        self.user.db.commit()

    async def _until_it_answers(self, address: str) -> None:
        """Wait for the server's first answer. Raises LabkitError, with the end of its log, if it ends before that."""
        answer = asyncio.ensure_future(wait_for_http_server(address, self.http_timeout))
        try:
            while not (await asyncio.wait({answer}, timeout=0.2))[0]:
                if processes.birth(self.pid) != self.born:
                    raise LabkitError(f"the server ended while it started: {last_line(self._log_file)}")
            await answer
        finally:
            answer.cancel()

    def _notify_when_it_ends(self) -> None:
        """Notify the Hub at the moment the server ends, so that its page offers a new one."""
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

    def _confine(self, profile: ServerProfile) -> None:
        limits.confine(self.pid, _bounds(profile))
        person = self._person
        own = (person.home, self.settings.state / "tmp" / person.name, self._log_file)
        _homes.add(self.pid, person.uid, own, round(self.settings.quota.home_gib * (1 << 30)))

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
            self._confine(self._chosen())
            self._notify_when_it_ends()

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state()
        return state | ({"born": self.born} if self.pid else {})

    def clear_state(self) -> None:
        """Release the limits and the device of a server that has ended."""
        if self.pid:
            limits.release(self.pid)
            _homes.remove(self.pid)
            Devices(self.settings.state).release(self.user.name)
        super().clear_state()
        self.born = 0


def _bounds(profile: ServerProfile) -> limits.ServerLimits:
    return limits.ServerLimits(memory_bytes=round(profile.memory_gib * (1 << 30)), cores=profile.cpus)
