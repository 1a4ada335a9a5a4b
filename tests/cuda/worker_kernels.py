"""Kernels that damage their own process, and a way to launch them."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.cuda.cache import Cache
from mlsys_labkit.cuda.kernel.gcc.flags import Build
from mlsys_labkit.cuda.kernel.gcc.module import compile_module
from mlsys_labkit.cuda.kernel.gcc.toolchain import find_toolchain
from mlsys_labkit.cuda.kernel.gcc.unit import Unit
from mlsys_labkit.cuda.kernel.simulator.client import (
    DeviceBuffer,
    LaunchRequest,
    LaunchResult,
    LoadedModule,
    Mode,
    Simulator,
)
from mlsys_labkit.cuda.kernel.simulator.process import WorkerProcess
from mlsys_labkit.cuda.source.source import Source

SOURCE = r"""
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

__global__ void add(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}

__global__ void store_address(float** place, float* target) { *place = target; }
__global__ void follow_address(float** place, float value) { **place = value; }

__global__ void leave(int status) { exit(status); }
__global__ void give_up() { abort(); }
__global__ void die_of(int signal) { raise(signal); }
__global__ void smash_thread() {
    char* own = reinterpret_cast<char*>(&errno);
    for (int i = -2048; i < 2048; i++) own[i] = 0x55;
}

__global__ void spin() {
    volatile int turns = 0;
    while (true) turns = turns + 1;
}
__global__ void spin_without_a_trace() {
    while (true) free(malloc(100));  // which gcc takes out
}
__global__ void spin_in_the_library(char* data) {
    while (true) memset(data, 0, 4000);
}
__global__ void spin_at_barriers() {
    while (true) __syncthreads();
}

__global__ void count(int n) {
    for (int i = 0; i < n; i++) printf("%d\n", i);
}
__global__ void speak_in_bytes() { printf("\xc3\xa4\xff|"); }
__global__ void chatter() {
    while (true) printf("%01000d\n", 7);
}
__global__ void say_and_leave() {
    printf("last words\n");
    exit(0);
}
__global__ void complain_and_leave() {
    write(2, "oh dear\n", 8);
    exit(1);
}

struct Large {
    int values[8000];
};
__global__ void read_large(Large large, int* sum) {
    for (int i = 0; i < 8000; i++) *sum += large.values[i];
}
"""
NAMES = tuple(re.findall(r"__global__ void (\w+)", SOURCE))


class Kernels:
    """The kernels, loaded in a simulator. ``run`` takes arguments as (struct format, value) pairs or device buffers."""

    def __init__(self, simulator: Simulator, graded: bool = False) -> None:
        self.simulator = simulator
        self.graded = graded
        self.modules: dict[Build, LoadedModule] = {}

    @property
    def process(self) -> WorkerProcess:
        """The process that ran them last."""
        return self.simulator._workers["graded" if self.graded else "ordinary"].process

    def module(self, build: Build) -> LoadedModule:
        if build not in self.modules:
            compiled = compile_module(Unit(Source(SOURCE), NAMES), build, find_toolchain(), Cache())
            self.modules[build] = self.simulator.load(compiled.path, self.graded)
        return self.modules[build]

    def run(
        self,
        name: str,
        *arguments: Any,
        grid: int = 1,
        block: int = 1,
        mode: Mode = "run",
        timeout_s: float = 60.0,
    ) -> LaunchResult:
        packed, offsets = b"", []
        for argument in arguments:
            form, value = ("Q", argument.address) if isinstance(argument, DeviceBuffer) else argument
            data = value if form == "s" else struct.pack(form, value)
            packed += bytes(-len(packed) % 8)
            offsets.append(len(packed))
            packed += data
        request = LaunchRequest(
            module=self.module(Build.FAST if mode == "run" else Build.INSTRUMENTED),
            kernel_index=NAMES.index(name),
            grid=(grid, 1, 1),
            block=(block, 1, 1),
            packed_arguments=packed,
            argument_offsets=tuple(offsets),
            mode=mode,
            timeout_s=timeout_s,
        )
        return self.simulator.launch(request)

    def array(self, values: Any) -> tuple[DeviceBuffer, NDArray[np.float32]]:
        """Allocate a device buffer with these floats; return it and the notebook's view of it."""
        host = np.asarray(values, np.float32)
        buffer = self.simulator.allocate(host.nbytes)
        view = buffer.view().view(np.float32)
        view[:] = host
        return buffer, view

    def add(self, n: int = 1000) -> bool:
        """Return whether the worker adds correctly."""
        x, _ = self.array(np.arange(n))
        y, result = self.array(np.full(n, 2))
        self.run("add", x, y, ("i", n), grid=-(-n // 128), block=128)
        return bool((result == np.arange(n, dtype=np.float32) + 2).all())
