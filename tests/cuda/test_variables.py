"""``__device__`` variables: one value of each in plain and in counted launches, in whatever process they run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.kernel.simulator.client import Simulator

# "step" and "daylight" are also variables of the GNU C library.
SOURCE = """
struct Odd { char c[5]; };
__constant__ int step = 3;
static __constant__ const int once = 1;
__device__ int daylight = 4, seven = 7, values[40];
__device__ Odd odd = {{1, 2, 3, 4, 5}};
__device__ int* to_values = values;
__device__ int* to_heap = values;
__device__ int* to_either = values;
__device__ int next()
{
    static int calls = 10;
    return calls++;
}
__global__ void turn(int* out)
{
    daylight += step * *(&once + seven / 8);
    seven = 0;
    odd.c[4] += 1;
    to_values[33] += 2;
    if (to_heap == values) *(to_heap = (int*)malloc(4)) = 100;
    const int all[] = {daylight, seven, odd.c[0], odd.c[4], values[33], *to_heap += 1, next()};
    for (int i = 0; i < 7; ++i) out[i] = all[i];
    out[7] = to_either == values ? -1 : *to_either;
    to_either = &daylight;
}
"""


def launches(kernel: cuda.Kernel) -> list[Callable[..., Any]]:
    return [kernel[1, 1], kernel.profile[1, 1], kernel[1, 1], kernel.check[1, 1], kernel.profile[1, 1], kernel[1, 1]]


def after(turn: int) -> list[int]:
    """Return what the kernel writes in its turn of this number, the first being 1."""
    return [4 + 3 * turn, 0, 1, 5 + turn, 2 * turn, 100 + turn, 9 + turn, -1 if turn == 1 else 4 + 3 * turn]


@pytest.mark.parametrize("graded", [True, False])
def test_each_launch_goes_on_with_the_values_of_the_last(graded: bool) -> None:
    Simulator.current().close()
    kernel = cuda.compile(SOURCE, "turn", backend="simulator", graded=graded)
    seen = []
    for launch in launches(kernel):
        out = np.zeros(8, np.int32)
        launch(out)
        seen.append(out.tolist())
    assert seen == [after(turn) for turn in range(1, 7)]
    for worker in Simulator.current()._workers.values():
        os.kill(worker.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOWAIT)
    kernel[1, 1](out)
    assert out.tolist() == after(7), "they outlive a process"
