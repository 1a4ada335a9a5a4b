"""The notebook's side of the worker processes: start one, send it kernels and buffers, wait for it, survive its end.

There are at most three. Graded kernels have workers of their own, because other code could change the counters, which
are part of a worker's process. Their plain launches, which nothing watches, have another one than those that count.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.cuda.errors import CudaError, CudaLaunchError, CudaWorkerError
from mlsys_labkit.cuda.kernel.simulator import protocol, runtime
from mlsys_labkit.cuda.kernel.simulator.arena import Arena, Changes
from mlsys_labkit.cuda.kernel.simulator.decode import RecordedLaunch
from mlsys_labkit.cuda.kernel.simulator.process import Printer, WorkerProcess
from mlsys_labkit.cuda.kernel.simulator.protocol import Command

Mode = Literal["run", "check", "profile"]
Kind = Literal["ordinary", "graded", "counted"]
"""Of a worker: for kernels that are not graded, for plain launches of graded ones, and for those that count."""
_WANTS: dict[Kind, str] = {"ordinary": "", "graded": "LK_CUDA_SEALED", "counted": "LK_CUDA_GUARDED"}

_LOAD_SECONDS = 30.0  # static initialisers of the student's code run in it
_STOP_SECONDS = 1.0
_START_ATTEMPTS = 3


@dataclass(frozen=True)
class Variable:
    """A variable of a kernel.so that keeps its value between launches, and the offset in device memory where."""

    address: int  # in the file
    nbytes: int
    offset: int


@dataclass(frozen=True)
class LoadedModule:
    """A kernel.so in a worker. It stays valid when the worker dies: the next launch loads it again."""

    id: int
    path: Path
    graded: bool
    descriptors: tuple[str, ...]  # lk_describe_<i> of every kernel, in order
    text_address: int  # load address of the object: program counter - text_address = address in the ELF file
    text_bytes: int  # from the load address to the end of the last segment
    variables: tuple[Variable, ...] = ()


@dataclass(frozen=True)
class LaunchRequest:
    """One launch. Argument i begins at argument_offsets[i] of packed_arguments, in the host's own alignment."""

    module: LoadedModule
    kernel_index: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    packed_arguments: bytes
    argument_offsets: tuple[int, ...]
    shared_bytes: int = 0  # the dynamic part, as in <<<grid, block, shared_bytes>>>
    mode: Mode = "run"
    seed: int = 0  # 0: natural order of warps and lanes
    sample_blocks: int = 0  # 0: every block
    timeout_s: float = 60.0


@dataclass(frozen=True)
class LaunchResult(RecordedLaunch):
    """The records of a launch, and what it printed."""

    output: str  # of printf; already written to sys.stdout while the kernel ran


class DeviceBuffer:
    """A range of the simulator's memory, mapped in the notebook and in the worker. Freed with its last reference."""

    __slots__ = ("_offset", "_simulator", "nbytes")

    def __init__(self, simulator: Simulator, offset: int, nbytes: int) -> None:
        self._simulator = simulator
        self._offset: int | None = offset
        self.nbytes = nbytes

    @property
    def offset(self) -> int:
        """The place in device memory, from its beginning. Raises CudaError after ``free``."""
        if self._offset is None:
            raise CudaError("this device memory was freed; allocate it again")
        return self._offset

    @property
    def address(self) -> int:
        """The address for kernels, 256-byte aligned. Raises CudaError when this process cannot use the buffer."""
        offset = self.offset
        if self._simulator is not Simulator.current():
            raise CudaError(
                "this device memory belongs to the process that forked this one; copy it: to_device(array.numpy())"
            )
        return self._simulator.arena_address + offset

    def view(self) -> NDArray[np.uint8]:
        """Return the bytes themselves, shape (nbytes,): no copy. Raises CudaError after ``free``."""
        return self._simulator.view(self.offset, self.nbytes)

    def free(self) -> None:
        """Give the range back. Freeing twice does nothing; a kernel that still uses the address faults."""
        offset, self._offset = self._offset, None
        if offset is not None:
            self._simulator.release(offset)

    def __del__(self) -> None:
        if self._offset is not None:
            self._simulator.release(self._offset)


@dataclass
class _Worker:
    """A worker process, the modules loaded in it, and the changes it has not received yet."""

    process: WorkerProcess
    changes: Changes
    numbers: dict[int, int] = field(default_factory=dict)  # LoadedModule.id -> its number there
    modules: list[LoadedModule] = field(default_factory=list)
    is_sealed: bool = False  # it opens no file any more

    def keep(self, module: LoadedModule, number: int) -> None:
        self.numbers[module.id] = number
        self.modules.append(module)


class Simulator:
    """Device memory and the worker processes of this interpreter, each started by its first use and after it died.

    Safe from several threads: one launch at a time, the others wait.
    """

    _current: ClassVar[Simulator | None] = None

    def __init__(self) -> None:
        self._lock = threading.Lock()  # not reentrant: a finalizer that runs meanwhile must not get in
        self._arena = Arena()
        self._arena_address = 0
        self._workers: dict[Kind, _Worker] = {}
        self._loaded = 0
        self._frozen = False  # nothing is freed any more: the memory is another process's, or the interpreter ends

    @staticmethod
    def current() -> Simulator:
        """Return the simulator of this process (a forked child gets its own)."""
        with _current_lock:
            if Simulator._current is None:
                Simulator._current = Simulator()
            return Simulator._current

    @property
    def arena_address(self) -> int:
        """The address of device memory for kernels: the same for the life of the notebook, whatever worker runs."""
        if not self._arena_address:
            with self._lock:
                self._living_worker("ordinary")
        return self._arena_address

    def load(self, path: Path, graded: bool = False, variables: tuple[Variable, ...] = ()) -> LoadedModule:
        """Load a compiled kernel.so in the worker for its kind. Raises CudaWorkerError when that fails."""
        with self._lock:
            worker = self._living_worker("counted" if graded else "ordinary")
            number = self._load(worker, path, variables)
            reply = worker.process.control.reply
            self._loaded += 1
            module = LoadedModule(
                id=self._loaded,
                path=path,
                graded=graded,
                descriptors=tuple(worker.process.section(0).decode().split("\0")[:-1]),
                text_address=reply.text_address,
                text_bytes=reply.text_bytes,
                variables=variables,
            )
            worker.keep(module, number)
            return module

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Return uninitialised device memory. Raises CudaError ("out of memory") when the machine has no room."""
        with self._lock:
            return DeviceBuffer(self, self._arena.allocate(nbytes), nbytes)

    def view(self, offset: int, nbytes: int) -> NDArray[np.uint8]:
        return self._arena.view(offset, nbytes)

    def release(self, offset: int) -> None:
        """Free the buffer at ``offset``: at once, or after the launch that is under way."""
        if self._frozen:
            return
        self._arena.drop(offset)
        if self._lock.acquire(blocking=False):
            try:
                self._arena.collect()
            finally:
                self._lock.release()

    def launch(self, request: LaunchRequest) -> LaunchResult:
        """Run to the end; what the kernel prints goes to sys.stdout meanwhile.

        Raises CudaLaunchError when the launch is refused, KeyboardInterrupt when interrupted, CudaWorkerError when it
        died or did not stop in time: the next launch starts another, and device arrays keep their content.
        """
        with self._lock:
            worker = self._worker_with(request.module, _kind(request))
            process = worker.process
            message = process.control.request
            message.module = worker.numbers[request.module.id]
            message.kernel = request.kernel_index
            message.grid[:] = request.grid
            message.block[:] = request.block
            message.shared_bytes = request.shared_bytes
            message.mode = protocol.MODES[request.mode]
            message.seed = request.seed
            message.sample_blocks = request.sample_blocks
            message.timeout_seconds = request.timeout_s
            message.arguments = len(request.argument_offsets)
            offsets = struct.pack(f"={len(request.argument_offsets)}I", *request.argument_offsets)
            printer = Printer(process)
            # The engine stops a kernel that takes too long and reports its line. A worker that does not stop is killed.
            limit = request.timeout_s + _STOP_SECONDS
            try:
                self._ask(worker, Command.LAUNCH, offsets + request.packed_arguments, limit, printer.show_new)
            finally:
                printer.finish()
            reply = process.control.reply
            if reply.failed:
                raise CudaLaunchError(reply.error.decode())
            findings, sites, steps, samples, totals = map(process.section, range(len(protocol.SECTIONS)))
            return LaunchResult(findings, sites, steps, samples, totals, reply.seconds, printer.text)

    def close(self) -> None:
        """End the workers and their kernels' heap. Device arrays stay readable; the next launch starts another."""
        with self._lock:
            for worker in self._workers.values():
                worker.process.close()
            self._workers.clear()
            self._arena.clear_heap()

    def disown(self) -> None:
        """Leave workers and memory to the parent of a forked child: arrays stay readable, freeing them does nothing."""
        self._frozen = True
        for worker in self._workers.values():
            worker.process.disown()

    def _living_worker(self, kind: Kind) -> _Worker:
        """Return a worker that is ready for a request; start one if there is none."""
        worker = self._workers.get(kind)
        if worker:
            worker.process.stop()  # a second Ctrl-C may have left a request under way
            if worker.process.alive:
                return worker
            worker.process.close()
            del self._workers[kind]
        for _ in range(_START_ATTEMPTS):
            process = WorkerProcess(
                runtime.worker(),
                self._arena.file,
                self._arena.window_bytes,
                self._arena_address,
                _WANTS[kind],
            )
            if process.arena_address:
                break
            process.close()  # the system happened to put a library where our buffers were
        else:
            raise CudaWorkerError("device memory cannot be mapped where it was; restart the notebook's kernel")
        self._arena_address = process.arena_address
        self._spread_changes()
        self._workers[kind] = _Worker(process, Changes(self._arena.live()))
        return self._workers[kind]

    def _worker_with(self, module: LoadedModule, kind: Kind) -> _Worker:
        """Return a worker that has the module. One that is sealed makes way for a new one, with its modules."""
        worker = self._living_worker(kind)
        if module.id not in worker.numbers:
            earlier = worker.modules if worker.is_sealed else []
            if worker.is_sealed:
                worker.process.close()
                worker = self._living_worker(kind)
            for each in earlier:
                with contextlib.suppress(CudaWorkerError):  # its file has left the cache
                    worker.keep(each, self._load(worker, each.path, each.variables))
            worker.keep(module, self._load(worker, module.path, module.variables))
        worker.is_sealed = kind == "graded"
        return worker

    def _load(self, worker: _Worker, path: Path, variables: tuple[Variable, ...]) -> int:
        rows = (struct.pack("=3Q", each.address, each.nbytes, each.offset) for each in variables)
        worker.process.control.request.arguments = len(variables)
        self._ask(worker, Command.LOAD, b"".join((os.fsencode(path), b"\0", *rows)), _LOAD_SECONDS)
        reply = worker.process.control.reply
        if reply.failed:
            raise CudaWorkerError(f"{path.name} does not load: {reply.error.decode()}")
        return int(reply.module)

    def _ask(
        self,
        worker: _Worker,
        command: Command,
        payload: bytes,
        seconds: float,
        on_slice: Callable[[], None] = lambda: None,
    ) -> None:
        self._spread_changes()
        while len(worker.changes) > protocol.CHANGES:
            worker.process.ask(Command.SYNC, b"", worker.changes.take(protocol.CHANGES), _LOAD_SECONDS)
        worker.process.ask(command, payload, worker.changes.take(protocol.CHANGES), seconds, on_slice)

    def _spread_changes(self) -> None:
        """Add changes of the arena to the list that each worker gets with its next request."""
        self._arena.collect()
        for worker in self._workers.values():
            worker.changes.add(self._arena.changes)
        self._arena.changes.clear()


def _kind(request: LaunchRequest) -> Kind:
    if not request.module.graded:
        return "ordinary"
    return "graded" if request.mode == "run" else "counted"


_current_lock = threading.Lock()


def _after_fork_in_child() -> None:
    """Disown the inherited simulator, so that the child starts its own worker."""
    global _current_lock
    _current_lock = threading.Lock()
    inherited, Simulator._current = Simulator._current, None
    if inherited:
        inherited.disown()


@atexit.register
def _at_exit() -> None:
    if Simulator._current:
        Simulator._current.close()
        Simulator._current._frozen = True


os.register_at_fork(after_in_child=_after_fork_in_child)
