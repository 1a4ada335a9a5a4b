"""The notebook's side: ranks that wait for a function, one run at a time, and all processes ended in every case.

A run has ranks of its own, and the next run's are forked while the notebook looks at the results: they have joined
their group when they are needed, and nothing that a run leaves behind (groups, hooks, seeds, threads) reaches another.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.connection as connections
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlsys_labkit._base.limits import memory_free_bytes, usable_cores
from mlsys_labkit._base.units import si
from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.processes.channel import KEY, Channel, Meeting, Message
from mlsys_labkit.ranks.processes.worker import Birth

# Measured: 7 MiB of its own for an idle rank, 120 MiB for one that has just imported DDP, which the next ones inherit.
RANK_BYTES = 64 << 20
_START_SECONDS = 120.0  # a first import of torch, from a network disk
_STOP_SECONDS = 2.0
_SLICE_SECONDS = 0.05  # between two checks for Ctrl-C, which the system may deliver to another thread
_MODULE = "mlsys_labkit.ranks.processes.host"
# Threads that a library started before a fork are missing after it: the host starts none, each rank its own.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass
class RankProcess:
    """The notebook's record of one rank process."""

    birth: Birth
    channel: Channel | None = None
    pid: int = 0
    ready: bool = False
    exit_code: int | None = None  # -signal when one ended it


class RankPool:
    """The host and the ranks of this interpreter: started by the first run, ended by ``close`` or with the interpreter.

    Args:
        method: "fork", or "spawn" where there is no fork: every rank is then a new interpreter.

    Attributes:
        lock: held during a run; other threads wait for it.
    """

    _current: ClassVar[RankPool | None] = None

    def __init__(self, method: str = "fork" if hasattr(os, "fork") else "spawn") -> None:
        self.lock = threading.Lock()
        self._method = method
        self._host: _Host | None = None
        self._ranks: list[RankProcess] = []
        self._generation = 0
        self._next: tuple[int, str] | None = None

    @staticmethod
    def current() -> RankPool:
        """Return the pool of this process (a forked child gets its own)."""
        with _current_lock:
            if RankPool._current is None:
                RankPool._current = RankPool()
            return RankPool._current

    def ranks(self, world_size: int, backend: str) -> list[RankProcess]:
        """Return ranks that have joined their group: the waiting ones if they fit, or else new ones.

        Raises RanksError when they do not start.
        """
        waiting = bool(self._ranks) and all(rank.exit_code is None for rank in self._ranks)
        if waiting and (self._ranks[0].birth.world_size, self._ranks[0].birth.backend) == (world_size, backend):
            with contextlib.suppress(RanksError):  # if they were ended while they waited, start new ones
                return self._await_ready()
        self.prepare(world_size, backend)
        try:
            return self._await_ready()
        except RanksError as first:  # the host may have lost its folder or its memory: try another host, once
            self.close()
            self.prepare(world_size, backend)
            try:
                return self._await_ready()
            except RanksError as second:
                second.add_note(f"The first time: {first}")
                raise

    def prepare_next(self) -> None:
        """Start ranks for the next run, as many as for the last one, if the host is alive."""
        if self._host and self._host.alive and self._next:
            with contextlib.suppress(RanksError):  # the next run will raise the error
                self.prepare(*self._next)

    def prepare(self, world_size: int, backend: str) -> None:
        """Replace the ranks by new ones, without waiting for them."""
        self._forget_ranks()
        _refuse_what_does_not_fit(world_size)
        host = self._living_host()
        for old in host.meeting.folder.glob(f"{self._generation}-*"):
            old.unlink(missing_ok=True)
        self._generation += 1
        threads = max(1, int(usable_cores() // world_size))
        folder, address = os.fspath(host.meeting.folder), host.meeting.address
        self._next = (world_size, backend)
        birth = Birth(self._generation, 0, world_size, backend, threads=threads, address=address, folder=folder)
        self._ranks = [RankProcess(replace(birth, rank=rank)) for rank in range(world_size)]
        host.say("start", [rank.birth for rank in self._ranks])

    def end_ranks(self) -> None:
        """End all ranks at once, whatever they are doing, and wait until they are gone."""
        host = self._host
        self._forget_ranks()
        if host is None:
            return
        try:
            host.say("kill", self._generation)
            deadline = time.monotonic() + _STOP_SECONDS
            while time.monotonic() < deadline:
                if ("killed", self._generation) in host.heard(_SLICE_SECONDS):
                    return
        except RanksError:
            pass
        self.close()  # a host that does not answer is ended with all its ranks

    def hear(self, seconds: float) -> Iterator[tuple[RankProcess, Message]]:
        """Yield messages of the ranks, waiting for the first one up to that time; ("exited", code) comes from the host.

        Raises RanksError when the host itself has died.
        """
        host = self._host
        if host is None:
            raise RanksError("the process that starts ranks has gone; run it again")
        talking: dict[Any, RankProcess] = {rank.channel: rank for rank in self._ranks if rank.channel}
        for source in connections.wait([host.channel, *talking], seconds):  # type: ignore[list-item]
            if source in talking:
                yield from _said(talking[source])
        for message in host.heard(0):
            match message:
                case ("exited", self._generation, number, code):
                    rank = self._ranks[number]
                    yield from _said(rank)  # its messages came before its end
                    rank.exit_code = code
                    yield rank, ("exited", code)

    def import_before(self, modules: list[str]) -> None:
        """Let the host import the modules that the ranks imported, so that later ranks inherit them."""
        if modules and self._host and self._method == "fork":
            self._host.say("import", modules)

    def close(self) -> None:
        """End the host and all ranks; the next run starts them again."""
        self._forget_ranks()
        host, self._host = self._host, None
        if host:
            host.close()

    def disown(self) -> None:
        """Drop the ranks in a forked child, because they belong to the parent."""
        host, self._host = self._host, None
        if host:
            host.disown()
        self._forget_ranks()

    def _living_host(self) -> _Host:
        if self._host and not self._host.alive:
            self.close()
        if self._host is None:
            self._host = _Host(self._method)
        return self._host

    def _await_ready(self) -> list[RankProcess]:
        deadline = time.monotonic() + _START_SECONDS
        while not all(rank.ready for rank in self._ranks):
            for channel, (generation, number, pid) in self._host.arrived() if self._host else ():
                if generation == self._generation:
                    self._ranks[number].channel, self._ranks[number].pid = channel, pid
                else:
                    channel.close()
            for rank, message in self.hear(0.002):
                if message == ("ready",):
                    rank.ready = True
                elif message[0] in ("exited", "failed"):
                    output = rank.birth.path("output")
                    said = message[1] if message[0] == "failed" else ""
                    said = (
                        said or _last_line(output) or _last_line(output.with_name("host")) or f"exit code {message[1]}"
                    )
                    self._forget_ranks()
                    raise RanksError(f"rank {rank.birth.rank} did not start ({said}); run it again")
            if time.monotonic() > deadline:
                self.close()
                raise RanksError(f"the ranks did not start within {_START_SECONDS:g} s; run it again")
        if list(self.hear(0)) or not all(rank.channel for rank in self._ranks):  # a rank has died since it was ready
            raise RanksError("a rank ended while it waited; run it again")
        return self._ranks

    def _forget_ranks(self) -> None:
        for rank in self._ranks:
            if rank.channel:
                rank.channel.close()
        self._ranks = []


class _Host:
    """The process that ranks are forked from, and the socket on which the host and the ranks connect."""

    def __init__(self, method: str) -> None:
        self.meeting = Meeting()
        self._arrivals: queue.SimpleQueue[tuple[Channel, Message]] = queue.SimpleQueue()
        errors = self.meeting.folder / "host"
        path = os.pathsep.join(filter(None, sys.path))  # the host imports from the same folders as the notebook
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, self.meeting.address, errors.parent, method],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path, KEY: self.meeting.key.hex()},
                start_new_session=True,  # Ctrl-C in a terminal reaches the notebook only, which ends the ranks
            )
        threading.Thread(target=self._welcome, daemon=True, name="labkit-ranks-welcome").start()
        deadline = time.monotonic() + _START_SECONDS
        self.channel: Channel
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    self.channel, _ = self._arrivals.get(timeout=_SLICE_SECONDS)
                    return
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = _last_line(errors) or f"exit code {self._process.poll()}"
                    raise RanksError(
                        f"the process that starts ranks did not come up ({said}); does `import torch` work?"
                    )
        except BaseException:
            self.meeting.close()
            self._process.kill()
            self._end()
            raise

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and not self.channel.torn

    def say(self, *message: object) -> None:
        """Send a message to the host. Raises RanksError when the host is dead."""
        try:
            self.channel.send(*message)
        except OSError:
            raise self._death() from None

    def heard(self, seconds: float) -> list[Message]:
        """Return the host's messages, waiting up to ``seconds`` for the first. Raises RanksError when it is dead."""
        messages = []
        sources: list[Any] = [self.channel]
        connections.wait(sources, seconds)
        try:
            while self.channel.waiting():
                messages.append(self.channel.receive())
        except EOFError:
            raise self._death() from None
        return messages

    def arrived(self) -> Iterator[tuple[Channel, Message]]:
        """Yield the ranks that have connected since the last call, each with its first message."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._arrivals.get_nowait()

    def close(self) -> None:
        self.meeting.close()  # first: the host removes the folder, too, and a meeting is ended through its address
        self.channel.close()  # the end of its lifeline
        self._end()

    def disown(self) -> None:
        self.channel.close()
        self.meeting.disown()
        self._process.returncode = 0  # the parent's child: Popen must not wait for it

    def _end(self) -> None:
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _welcome(self) -> None:
        while channel := self.meeting.accept():
            with contextlib.suppress(EOFError):
                self._arrivals.put((channel, channel.receive()))

    def _death(self) -> RanksError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        code = self._process.poll()
        why = "out of memory?" if code == -9 else _last_line(self.meeting.folder / "host") or f"exit code {code}"
        return RanksError(f"the process that starts ranks died ({why}); the next run starts another")


def _refuse_what_does_not_fit(world_size: int) -> None:
    free = memory_free_bytes()
    if free is not None and world_size * RANK_BYTES > free:
        raise RanksError(
            f"{world_size} ranks as processes want {si(world_size * RANK_BYTES, 'B')} of memory, and {si(free, 'B')} "
            f"are free: enough for {free // RANK_BYTES}; take fewer ranks, or backend='local'"
        )


def _said(rank: RankProcess) -> Iterator[tuple[RankProcess, Message]]:
    try:
        while rank.channel and rank.channel.waiting():
            yield rank, rank.channel.receive()
    except EOFError:
        rank.channel = None  # the host will report its exit code


def _last_line(path: os.PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read()[-4096:].strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""


_current_lock = threading.Lock()


def _after_fork_in_child() -> None:
    global _current_lock
    _current_lock = threading.Lock()
    inherited, RankPool._current = RankPool._current, None
    if inherited:
        inherited.disown()


@atexit.register
def _at_exit() -> None:
    if RankPool._current:
        RankPool._current.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
