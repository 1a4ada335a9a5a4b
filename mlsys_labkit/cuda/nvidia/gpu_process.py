"""The process that owns a GPU's context for the notebook: its main program, which serves ``gpu_worker.WorkerGpu``.

A request is (addresses to free, method, arguments); a reply is (error or None, answer, text that the kernel printed,
True if this process ends). Contents of arrays go through a window of shared memory. After a fault of a kernel the
context is lost, so this process ends.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import sys
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.nvidia.driver import Gpu, GpuMemory
from mlsys_labkit.cuda.nvidia.gpu_launch import GpuLaunch
from mlsys_labkit.errors import LabkitError


class _Service:
    """The requests, one method each."""

    def __init__(self, gpu: Gpu, window: mmap.mmap) -> None:
        self.gpu = gpu
        self._window = np.frombuffer(window, np.uint8)
        self._memory: dict[int, GpuMemory] = {}

    def describe(self) -> tuple[str, str]:
        return self.gpu.name, self.gpu.arch

    def allocate(self, nbytes: int) -> int:
        memory = self.gpu.allocate(nbytes)
        self._memory[memory.address] = memory
        return memory.address

    def free(self, address: int) -> None:
        self._memory.pop(address).free()

    def upload(self, address: int, nbytes: int) -> None:
        self.gpu.upload(address, self._window[:nbytes])

    def download(self, address: int, nbytes: int) -> None:
        self.gpu.download(self._window[:nbytes], address)

    def run(self, launch: GpuLaunch, prints: bool) -> float:
        return self.gpu.run(launch, prints)


def main(arguments: list[str]) -> None:
    """Serve until the notebook hangs up or a kernel has lost the GPU.

    Arguments: the descriptors of the connection and of the window, and the number of the GPU.
    """
    pipe, file, ordinal = map(int, arguments)
    connection: Connection[Any, Any] = Connection(pipe)
    window = mmap.mmap(file, 0)
    service: _Service | None = None
    # The notebook sends nothing while it waits for a reply, so what can be read then is the end of the connection.
    lost = False
    while not lost:
        try:
            dropped, method, given = connection.recv()
        except (EOFError, ConnectionError):
            return
        printed, error, answer = io.StringIO(), None, None
        try:
            with contextlib.redirect_stdout(printed):
                service = service or _Service(Gpu(ordinal, abandoned=connection.poll), window)
                for address in dropped:
                    service.free(address)
                answer = getattr(service, method)(*given)
        except LabkitError as known:
            error = known
        except Exception as unknown:  # such as a cuda-core with other names
            error = CudaError(f"the GPU cannot be used: {type(unknown).__name__}: {unknown}")
        lost = bool(service and service.gpu.lost)
        with contextlib.suppress(ConnectionError):
            connection.send((error, answer, printed.getvalue(), lost))


if __name__ == "__main__":
    main(sys.argv[1:])
