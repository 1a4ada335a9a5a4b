"""The process of one rank: it joins its group, waits for a function, runs it, and reports what it does."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import queue
import random
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.processes.channel import KEY, Channel, connect, pack, unpack
from mlsys_labkit.ranks.student_lines import Frames, of_thread, of_traceback, raising


@dataclass(frozen=True)
class Birth:
    """The settings that a rank gets when it starts."""

    generation: int  # of the pool: each run has ranks of its own
    rank: int
    world_size: int
    backend: str  # "gloo" or "nccl"
    threads: int
    address: str
    folder: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def store(self) -> Path:
        """The beginning of the names of the files through which the ranks of one generation find each other."""
        return Path(self.folder) / f"{self.generation}-store"

    def path(self, what: str) -> Path:
        """Return a file of this rank: "output" is what it prints, "crash" its stack when a signal ended it."""
        return Path(self.folder) / f"{self.generation}-{self.rank}-{what}"


@dataclass(frozen=True)
class Order:
    """One run: what to call, and the notebook's surroundings at that time."""

    call: bytes  # packed (function, arguments)
    began: float  # time.monotonic()
    folder: str
    path: tuple[str, ...]
    environment: dict[str, str]
    memory: bool  # whether to record what tensors take


class Rank:
    """A rank: the main thread runs the student's function; another thread listens to the notebook."""

    def __init__(self, birth: Birth, channel: Channel) -> None:
        self._birth = birth
        self._main = threading.get_ident()
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._channel = channel
        threading.Thread(target=self._listen, daemon=True, name="labkit-ranks-listen").start()

    def live(self) -> None:
        """Join the group, and run one order."""
        import torch

        from mlsys_labkit.ranks.processes.process_group import LoggingReporter, join, settings
        from mlsys_labkit.ranks.recording import torch_private
        from mlsys_labkit.ranks.recording.rank_run import run_rank
        from mlsys_labkit.ranks.recording.recorder import RankRecorder

        birth = self._birth
        torch.set_num_threads(birth.threads)
        recorder = RankRecorder(birth.rank, birth.world_size, LoggingReporter(birth.path("calls")))
        join_again = join(birth.backend, birth.rank, birth.world_size, birth.store, recorder)
        modules = set(sys.modules)
        self._channel.send("ready")
        order = self._orders.get()
        _surround(order, settings(birth.backend))
        _tell_of_exits(self._channel)
        recorder.clock = lambda: time.monotonic() - order.began
        try:
            function, args = unpack(order.call)
            with torch_private.init_finds_group(join_again), torch_private.all_groups_on(f"labkit_{birth.backend}"):
                record = run_rank(recorder, function, args, order.memory)
            data = pack(record, "returned or kept", record.value)
            imported = [name for name in sys.modules if name.startswith("torch.") and name not in modules]
            _flush()
            self._channel.send("done", data, imported)
        except BaseException as error:
            _flush()
            self._channel.send("failed", *_told(error), time.monotonic())
        threading.Event().wait()  # peers may still be reading from this one: the notebook ends all of them together

    def _listen(self) -> None:
        try:
            while True:
                match self._channel.receive():
                    case ("run", Order() as order):
                        self._orders.put(order)
                    case ("where",):
                        self._channel.send("where", of_thread(sys._current_frames()[self._main]))
        except (EOFError, OSError):
            os._exit(1)  # the notebook has gone


def serve(birth: Birth) -> NoReturn:
    """Run this process as a rank; never return."""
    channel = connect(birth.address, bytes.fromhex(os.environ[KEY]))
    channel.send(birth.generation, birth.rank, os.getpid())
    try:
        _redirect(birth)
        Rank(birth, channel).live()
    except BaseException as error:
        with contextlib.suppress(OSError):  # not into a file: the disk may be full
            channel.send("failed", f"{type(error).__name__}: {error}")
    os._exit(1)


def main() -> None:
    """Serve one rank in this new interpreter (platforms without fork)."""
    serve(Birth(**json.loads(sys.argv[1])))


def _redirect(birth: Birth) -> None:
    """Send everything printed, also by C, to a file, which survives a crash and never blocks the rank."""
    output = os.open(birth.path("output"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target, inheritable=True)
    os.close(nothing)
    os.close(output)
    sys.stdout, sys.stderr = (
        os.fdopen(target, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False) for target in (1, 2)
    )
    crash = birth.path("crash").open("w")  # stays open, because faulthandler writes to it in a crash
    faulthandler.enable(crash, all_threads=False)
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1, crash, all_threads=False)
    random.seed()  # a fork shares the state; torch's and numpy's own seeds are the same in every new process anyway


def _told(error: BaseException) -> tuple[str, bytes | None, Frames]:
    """Return the error in words, the pickled exception (None if it cannot be pickled), and its frames."""
    where = of_traceback(error)
    if isinstance(error, RanksError) and not where:
        return str(error), None, where  # raised by the kit, about the run
    data = None
    with contextlib.suppress(Exception):
        packed = pack(error.with_traceback(None), "")
        unpack(packed)  # some exceptions can be pickled but not unpickled
        data = packed
    return raising(error), data, where


def _surround(order: Order, ours: dict[str, str]) -> None:
    environment = order.environment | ours
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    sys.path[:] = order.path
    with contextlib.suppress(OSError):
        os.chdir(order.folder)


def _tell_of_exits(channel: Channel) -> None:
    """Report the line that calls os._exit, which leaves no traceback."""
    leave, owner = os._exit, os.getpid()

    def told_exit(status: int) -> NoReturn:
        if os.getpid() == owner:  # a fork of a rank ends this way, too
            _flush()
            channel.send("exits", of_thread(sys._getframe(1)))
        leave(status)

    os._exit = told_exit


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).fflush(None)  # what C has printed


if __name__ == "__main__":
    from mlsys_labkit.ranks.processes import worker  # messages are pickled with its classes; those of __main__ differ

    worker.main()
