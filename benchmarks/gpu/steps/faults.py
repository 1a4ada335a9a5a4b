"""Step ``faults``: twenty planted faults in one Jupyter kernel. Each ends in an error, and the next cell has to run.

The cells go to a real ipykernel over its protocol, as those of a notebook do. The kernel is lost when it stops
answering or ends.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import time
from functools import cache
from typing import Any

from benchmarks.gpu.cases import ROOT, Case, kit_on_gpu

SECONDS = 45.0  # for one cell
_ONE = "[1, 1](x)"
# name: (the kernel's body, its launch, words of the error)
FAULTS: dict[str, tuple[str, str, str]] = {
    "far write": ("x[1LL << 38] = 1;", _ONE, "outside its arrays"),
    "far read": ("x[0] = x[-(1LL << 38)];", _ONE, "outside its arrays"),
    "null pointer": ("*(volatile float*)nullptr = 1;", _ONE, "kernel k"),
    "far write by one thread of many": (
        "if (blockIdx.x == 700 && threadIdx.x == 77) x[1LL << 38] = 1;",
        "[1000, 256](x)",
        "outside its arrays",
    ),
    "misaligned": ("*(float4*)((char*)x + 4) = float4{};", _ONE, "kernel k"),
    "trap": ("__trap();", _ONE, "kernel k"),
    "trap in a branch": ("if (threadIdx.x == 5) __trap(); x[threadIdx.x] = 1;", "[1, 32](x)", "kernel k"),
    "assert": ("assert(x[0] > 5);", _ONE, "kernel k"),
    "pointer from garbage": ("*(float*)(size_t)(x[0] + 3e14f) = 1;", _ONE, "kernel k"),
    "endless loop": ("while (x[0] == 0) {}", ".within(2)[1, 1](x)", "still runs"),
    "endless loop of one thread": ("if (threadIdx.x == 0) while (x[1] == 0) {}", ".within(2)[4, 64](x)", "still runs"),
    "waits for another block": (
        "if (blockIdx.x == 0) while (atomicAdd((int*)x, 0) == 0) {}",
        ".within(2)[1, 32](x)",
        "still runs",
    ),
    "endless recursion": ("x[0] = down(x, 1);", ".within(5)[1, 1](x)", "kernel k"),
    "too many threads": ("x[0] = 1;", "[1, 2048](x)", "at most 1,024"),
    "too much shared memory": ("x[0] = 1;", "[1, 32, 1 << 20](x)", "dynamic shared memory"),
    "empty grid": ("x[0] = 1;", "[0, 32](x)", "each extent is 1 or more"),
    "wrong number of arguments": ("x[0] = 1;", "[1, 1](x, x)", "k takes 1 argument and got 2"),
    "wrong type": ("x[0] = 1;", '[1, 1]("x")', "argument 1 (x) of k"),
    "process on the GPU is killed": ("x[0] = 1;", "[1, 1](x); killed()", "the process on the GPU ended"),
    "far shared address": ("__shared__ float s[4]; s[threadIdx.x + (1 << 22)] = x[0]; x[0] = s[1];", _ONE, "kernel k"),
}
_BEFORE = """import os, signal, sys
sys.path.insert(0, {root!r})
import numpy as np
from mlsys_labkit import cuda
from mlsys_labkit.cuda.nvidia.device import the_gpu
RECURSION = "__device__ __noinline__ float down(volatile float* x, int n) "
RECURSION += "{{ return x[0] > -1 ? down(x, n + 1) + n : 0; }}\\n"
HEAD = "#include <assert.h>\\n" + RECURSION
good = cuda.compile("__global__ void good(float* x) {{ x[threadIdx.x] += 1; }}", backend="gpu")
def killed():
    os.kill(the_gpu()._process._process.pid, signal.SIGKILL)
    good[1, 32](np.zeros(32, np.float32))
"""
_FAULT = """x = np.zeros(1024, np.float32)
k = cuda.compile(HEAD + "__global__ void k(volatile float* x) {{ {body} }}", "k", backend="gpu")
k{launch}
"""
_AFTER = """y = np.zeros(32, np.float32)
good[1, 32](y)
print("works" if y.sum() == 32 else "wrong")
"""


def cases() -> list[Case]:
    return [Case(name, lambda name=name: plant(name), 2 * SECONDS + 30) for name in FAULTS]  # type: ignore[misc]


@cache
def notebook() -> Any:
    """Start one Jupyter kernel for all faults, and run its first cell."""
    from jupyter_client.manager import start_new_kernel

    os.environ["PYTHONPATH"] = str(ROOT)
    _, client = start_new_kernel(kernel_name="python3", startup_timeout=60)
    begin = "from tests.cuda.stand_in_gpu import install\ninstall()\n" if "--stand-in" in sys.argv else ""
    error, said = run_cell(client, begin + _BEFORE.format(root=str(ROOT)))
    if error:
        raise RuntimeError(f"the first cell fails: {error} {said}")
    return client


def run_cell(client: Any, code: str) -> tuple[str, str]:
    """Run one cell; return its error in one line, or "", and what it printed. Raises TimeoutError for a lost kernel."""
    asked, error, said, until = client.execute(code), "", "", time.monotonic() + SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(queue.Empty):
            message = client.get_iopub_msg(timeout=1)
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "error":
                error = f"{content['ename']}: {content['evalue']}"[:400]
            elif kind == "stream":
                said += content["text"]
            elif kind == "status" and content["execution_state"] == "idle":
                return error, said
        if not client.is_alive():
            raise TimeoutError("the kernel of the notebook has ended")
    raise TimeoutError(f"the kernel of the notebook gave no answer in {SECONDS:g} s")


def plant(name: str) -> dict[str, Any]:
    """Run one faulty cell and the cell after it."""
    kit_on_gpu()
    client = notebook()
    body, launch, words = FAULTS[name]
    began = time.monotonic()
    error, _ = run_cell(client, _FAULT.format(body=body, launch=launch))
    took = time.monotonic() - began
    after, said = run_cell(client, _AFTER)
    survived = said.strip() == "works" and not after
    lines = error.count("\n") + 1
    print(f"{name}: {error}", file=sys.stderr)
    return {
        "ok": survived and words in error and lines == 1,
        "survived": survived,
        "said": error or "no error",
        "after": after,
        "fault_seconds": round(took, 2),
        "lines": lines,
    }
