"""The launches of step ``counters``: kernels of the labs and of the tests' corpus, the same on both sides.

Their counters follow from the source: no data race, no loop that waits for another thread's store, and no atomic whose
contention repeats loads. The launches of the labs are those of their own traffic tests where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

# Of the corpus: known races, waits for other blocks, memory from the device's allocator, and loops of compare-and-swap,
# which an atomic add of floats in shared memory is, too.
NOT_DETERMINISTIC = {
    "reduce_last_warp_volatile<128>", "max_reduce", "rmsnorm", "bfs_level", "lookback_packed", "lookback_volatile",
    "persistent_squares", "counted_under_lock", "message", "from_new",
}  # fmt: skip
GROUPS = ("labs", "hopper", "corpus")  # each is one run of Nsight Compute


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel.

    Attributes:
        source: a lab such as ``lab03``, or a file of the corpus such as ``reduce``.
        kernel: its name there, ``cell.kernel`` in a cell of several. shape: grid, block and dynamic shared bytes.
        make: returns new arguments, the same each time.
    """

    name: str
    group: str
    source: str
    kernel: str
    shape: tuple[Any, ...]
    make: Callable[[], tuple[Any, ...]]

    @property
    def function(self) -> str:
        """The name of the function, without the arguments of a template."""
        return self.kernel.partition("<")[0].rpartition(".")[2]

    @property
    def grid(self) -> tuple[int, ...]:
        from mlsys_labkit.cuda.shape import launch_shape

        return launch_shape(self.shape, 0).grid


@cache
def launches() -> dict[str, Launch]:
    """Return all launches by name, in the order in which they are made."""
    made = [Launch(*launch, lambda name=launch[0]: arguments(name)) for launch in _of_labs()]  # type: ignore[misc]
    return {one.name: one for one in (*made, *_of_corpus())}


def of_group(group: str) -> list[Launch]:
    return [launch for launch in launches().values() if launch.group == group]


@cache
def kernel_of(name: str, backend: str) -> Any:
    """Compile the kernel of a launch."""
    launch = launches()[name]
    if launch.group != "corpus":
        from benchmarks.gpu.cells import lab_kernels

        return lab_kernels(launch.source, backend, launch.kernel.partition(".")[0])[launch.kernel]
    from mlsys_labkit import cuda
    from tests.cuda.test_corpus import CORPUS

    return cuda.compile(CORPUS / f"{launch.source}.cu", launch.kernel, backend=backend)  # type: ignore[arg-type]


def _of_corpus() -> list[Launch]:
    from tests.cuda.test_corpus import CASES, fresh

    return [
        Launch(f"{file}/{name}", "corpus", file, name, case.shape, lambda case=case: fresh(case))  # type: ignore[misc]
        for (file, name), case in CASES.items()
        if not case.kinds and name not in NOT_DETERMINISTIC
    ]


def _of_labs() -> list[tuple[str, str, str, str, tuple[Any, ...]]]:
    """Return name, group, lab, kernel and shape of the labs' launches."""
    return [
        ("hello", "labs", "lab03", "hello", (3, 4)),
        ("vector_add", "labs", "lab03", "vector_add", (4, 256)),
        ("saxpy", "labs", "lab03", "saxpy", (2, 128)),
        ("matmul_naive", "labs", "lab03", "matmul_naive", ((64, 2), (1, 32))),
        ("matmul_coalesced", "labs", "lab03", "matmul_coalesced", ((2, 8), 256)),
        ("matmul_coalesced, 256", "labs", "lab03", "matmul_coalesced", ((8, 32), 256)),
        ("alternate_slow", "labs", "lab03", "alternate_slow", (2, 256)),
        ("alternate", "labs", "lab03", "alternate", (2, 256)),
        ("stencil", "labs", "lab03", "stencil", ((4, 4), (32, 8))),
        ("row_sums", "labs", "lab03", "row_sums", (2, 32)),
        ("matmul_lab03", "labs", "lab04", "matmul_lab03", ((2, 8), (32, 8))),
        ("matmul_tiled", "labs", "lab04", "matmul_tiled", ((4, 4), (16, 16))),
        ("matmul_registers", "labs", "lab04", "matmul_registers", ((4, 4), (16, 16))),
        ("matmul_pipelined", "labs", "lab04", "matmul_pipelined", ((1, 2), 256)),
        ("transpose_tiled", "labs", "lab04", "transpose_tiled", ((2, 2), (32, 8))),
        ("scale4", "labs", "lab04", "scale4", (4, 64)),
        ("block_sum", "labs", "lab04", "block_sum", (4, 256)),
        ("shuffle_sum", "labs", "lab04", "shuffle_sum", (4, 256)),
        ("differences", "labs", "lab04", "differences", (2, 128)),
        ("histogram", "labs", "lab04", "histogram", (4, 128)),
        ("normalize", "labs", "lab04", "debug.normalize", (2, 64)),
        ("clamp", "labs", "lab04", "debug.clamp", (1, 128)),
        ("blur", "labs", "lab04", "debug.blur", (2, 64)),
        ("prefix_sum", "labs", "lab04", "debug.prefix_sum", (2, 64)),
        ("flash_wmma", "labs", "lab09", "flash_wmma", (2, 32)),
        ("reverse_lab04", "hopper", "lab10", "reverse_lab04", (1, 256)),
        ("reverse_tile", "hopper", "lab10", "reverse_tile", (4, 256)),
        ("reverse_two", "hopper", "lab10", "reverse_two", (1, 256)),
        ("reverse_ring", "hopper", "lab10", "reverse_ring", (1, 256)),
        ("specialised", "hopper", "lab10", "specialised", (1, 288)),
        ("scale_copies", "hopper", "lab10", "scale_copies", (1, 256)),
        ("cluster_sum", "hopper", "lab10", "cluster_sum", (8, 256)),
        ("sums", "hopper", "lab10", "debug_async.sums", (1, 64)),
        ("join", "hopper", "lab10", "debug_async.join", (3, 128)),
    ]


def arguments(name: str) -> tuple[Any, ...]:
    """Return the arguments of a lab's launch."""
    import numpy as np

    rng = np.random.default_rng(0)

    def f(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32)

    def halves(*shape: int) -> Any:
        return f(*shape).astype(np.float16)

    def square(n: int) -> tuple[Any, ...]:
        return f(n, n), f(n, n), f(n, n), n, n, n

    made: dict[str, Callable[[], tuple[Any, ...]]] = {
        "hello": lambda: (np.zeros(12, np.int32),),
        "vector_add": lambda: (f(1024), f(1024), f(1024), 1024),
        "saxpy": lambda: (4096, 2.0, f(4096), f(4096)),
        "matmul_coalesced, 256": lambda: square(256),
        "matmul_registers": lambda: square(256),
        "matmul_pipelined": lambda: (f(256, 64), f(64, 256), f(256, 256), 256, 256, 64),
        "alternate_slow": lambda: (f(512) ** 2, f(512), 512),
        "alternate": lambda: (f(512) ** 2, f(512), 512),
        "stencil": lambda: (f(32, 128), f(32, 128), 32, 128),
        "row_sums": lambda: (f(200), f(40), 40, 2, 5),
        "transpose_tiled": lambda: (f(64, 64), f(64, 64), 64, 64),
        "scale4": lambda: (f(1024), f(1024), 2.5, 1024),
        "block_sum": lambda: (f(2048), f(4), 2048),
        "shuffle_sum": lambda: (f(2048), f(4), 2048),
        "differences": lambda: (f(1024), f(1024), 8),
        "histogram": lambda: (rng.integers(0, 256, 5000, dtype=np.uint8), np.zeros(256, np.uint32), 5000),
        "normalize": lambda: (f(128),),
        "clamp": lambda: (f(100), 100),
        "blur": lambda: (f(100), f(100), 100),
        "prefix_sum": lambda: (f(100), f(100), 100),
        "flash_wmma": lambda: (halves(32, 64), halves(64, 64), halves(64, 64), f(32, 64), 64, 0.125),
        "reverse_lab04": lambda: (f(2048), f(2048), 8),
        "reverse_tile": lambda: (f(1024), f(1024)),
        "reverse_two": lambda: (f(2048), f(2048), 8),
        "reverse_ring": lambda: (f(3072), f(3072), 12),
        "specialised": lambda: (f(3072), f(3072), 12),
        "scale_copies": lambda: (f(2048), 2.0, 8),
        "cluster_sum": lambda: (f(2048), f(2)),
        "sums": lambda: (f(576), f(9), 9),
        "join": lambda: (f(384), f(384), f(384)),
    }
    return made[name]() if name in made else square(64)
