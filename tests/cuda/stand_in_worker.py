"""The worker process of a GPU on the device in host memory: run as a module, in place of ``gpu_process``."""

from __future__ import annotations

import sys

from mlsys_labkit.cuda.nvidia import gpu_process
from tests.cuda.gpu_kernels import KERNELS
from tests.cuda.stand_in_driver import DriverInMemory

if __name__ == "__main__":
    driver = DriverInMemory(dict(KERNELS), memory_bytes=64 << 20)
    gpu_process.main(sys.argv[1:])
