"""A GPU in a process of its own, with the interface of ``driver.Gpu``: a kernel that fails ends that process only.

CUDA has no other way to go on: after an access to a wrong address every call of the process fails until it ends, and a
kernel that runs for ever ends with its process alone.
Reference: CUDA Driver API, CUresult, CUDA_ERROR_ILLEGAL_ADDRESS: "the process must be terminated and relaunched".
"""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection, Pipe
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.cuda.errors import CudaError, CudaWorkerError, KernelInterrupt
from mlsys_labkit.cuda.nvidia.driver import torch_device
from mlsys_labkit.cuda.nvidia.gpu_launch import GpuLaunch

COMMAND = [sys.executable, "-m", "mlsys_labkit.cuda.nvidia.gpu_process"]
_WINDOW_BYTES = 64 << 20  # large arrays are copied in parts
_PATIENCE_SECONDS = 60.0  # for a request without a limit of its own, such as the first: cuInit takes seconds
_GRACE_SECONDS = 10.0  # the worker stops waiting for a kernel by itself, and is killed if it does not
_END_SECONDS = 5.0
_SLICE_SECONDS = 0.5
_GO_ON = "all device arrays on the GPU are lost, and the next launch starts another"


class WorkerGpu:
    """A GPU that a worker process uses. The worker starts with the first request, and again after it ended.

    Raises what ``Gpu`` raises, and CudaWorkerError when the worker dies.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _GpuProcess | None = None
        self._dropped: list[tuple[_GpuProcess, int]] = []  # finalizers only append: they run at any time
        self.name, self.arch = self._ask("describe")

    def allocate(self, nbytes: int) -> WorkerMemory:
        """Return device memory, uninitialised. Raises CudaError when the GPU has no room."""
        with self._lock:
            address = self._ask_locked("allocate", nbytes)
            assert self._process
            return WorkerMemory(self, self._process, address, nbytes)

    def run(self, launch: GpuLaunch, prints: bool = False) -> float:
        """Launch and wait. Return seconds by events, NaN if it is not timed."""
        return float(self._ask("run", launch, prints, seconds=launch.seconds + _GRACE_SECONDS))

    def upload(self, address: int, raw: NDArray[np.uint8]) -> None:
        with self._lock:
            for begin in range(0, raw.nbytes, _WINDOW_BYTES):
                part = raw[begin : begin + _WINDOW_BYTES]
                self._living().window[: part.nbytes] = part
                self._ask_locked("upload", address + begin, part.nbytes)

    def download(self, raw: NDArray[np.uint8], address: int) -> None:
        with self._lock:
            for begin in range(0, raw.nbytes, _WINDOW_BYTES):
                part = raw[begin : begin + _WINDOW_BYTES]
                self._ask_locked("download", address + begin, part.nbytes)
                part[:] = self._living().window[: part.nbytes]

    def close(self) -> None:
        """End the worker. The next request starts another."""
        if self._process and self.has(self._process):
            self._process.end()

    def drop(self, process: _GpuProcess, address: int) -> None:
        """Free memory with the next request."""
        self._dropped.append((process, address))

    def has(self, process: _GpuProcess) -> bool:
        """Return True if ``process`` still runs and belongs to this one."""
        return process is self._process and process.owner == os.getpid() and not process.ended

    def _ask(self, method: str, *arguments: Any, seconds: float = _PATIENCE_SECONDS) -> Any:
        with self._lock:
            return self._ask_locked(method, *arguments, seconds=seconds)

    def _ask_locked(self, method: str, *arguments: Any, seconds: float = _PATIENCE_SECONDS) -> Any:
        process = self._living()
        dropped, self._dropped = self._dropped, []
        frees = [address for owner, address in dropped if owner is process]
        error, answer, printed = process.ask((frees, method, arguments), seconds)
        sys.stdout.write(printed)
        if error:
            raise error
        return answer

    def _living(self) -> _GpuProcess:
        if self._process is None or not self.has(self._process):
            self._process = _GpuProcess()
        return self._process


class WorkerMemory:
    """A range of a GPU's memory that a worker allocated. Freed with its last reference, lost when the worker ends."""

    def __init__(self, gpu: WorkerGpu, process: _GpuProcess, address: int, nbytes: int) -> None:
        self.gpu = gpu
        self._process: _GpuProcess | None = process
        self._address = address
        self.nbytes = nbytes

    @property
    def address(self) -> int:
        """The address for kernels. Raises CudaError after ``free``, and when the worker has ended."""
        if self._process is None:
            raise CudaError("this device memory was freed; allocate it again")
        if not self.gpu.has(self._process):
            raise CudaError("this device memory was lost when a kernel on the GPU was ended; make the array again")
        return self._address

    def view(self) -> NDArray[np.uint8]:
        """Return a copy of the bytes, shape (nbytes,)."""
        raw = np.empty(self.nbytes, np.uint8)
        self.gpu.download(raw, self.address)
        return raw

    def write(self, raw: NDArray[np.uint8]) -> None:
        """Overwrite all bytes."""
        self.gpu.upload(self.address, np.ascontiguousarray(raw))

    def free(self) -> None:
        """Give the memory back with the worker's next request. Freeing twice does nothing."""
        process, self._process = self._process, None
        if process is not None:
            self.gpu.drop(process, self._address)

    __del__ = free


class _GpuProcess:
    """One worker, from its start to its end."""

    def __init__(self) -> None:
        self.owner, self.ended = os.getpid(), False
        self._connection: Connection[Any, Any]
        self._connection, theirs = Pipe()
        file = os.memfd_create("labkit-gpu", os.MFD_CLOEXEC)
        os.ftruncate(file, _WINDOW_BYTES)
        self.window = np.frombuffer(mmap.mmap(file, _WINDOW_BYTES), np.uint8)
        given = (theirs.fileno(), file)
        self._process = subprocess.Popen(
            [*COMMAND, *map(str, given), str(torch_device())],
            stdin=subprocess.DEVNULL,
            pass_fds=given,
            start_new_session=True,  # a notebook's Ctrl-C reaches every process of its group
        )
        theirs.close()
        os.close(file)

    def ask(self, request: Any, seconds: float) -> Any:
        """Return the reply; end the worker if it does not come in time, or on Ctrl-C."""
        try:
            self._connection.send(request)
            until = time.monotonic() + seconds
            while not self._connection.poll(_SLICE_SECONDS):  # Ctrl-C does not end a wait of this call in every thread
                if time.monotonic() < until:
                    continue
                raise CudaWorkerError(f"the process on the GPU gave no answer in {seconds:g} s and was ended; {_GO_ON}")
            *reply, lost = self._connection.recv()
        except KeyboardInterrupt:
            self.end()
            raise KernelInterrupt(f"interrupted: the process on the GPU was ended; {_GO_ON}") from None
        except (EOFError, ConnectionError):
            code = self.end()
            raise CudaWorkerError(f"the process on the GPU ended with {code}; {_GO_ON}") from None
        except BaseException:
            self.end()
            raise
        if lost:
            self.end()
        return reply

    def end(self) -> int | None:
        self.ended = True
        self._connection.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the driver may need longer to stop an endless kernel
            return self._process.wait(_END_SECONDS)
        return None
