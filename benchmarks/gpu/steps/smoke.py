"""Step ``smoke``: two minutes that say which tools are here, and where the first kernels and lab 03 break."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from functools import partial
from importlib import import_module, metadata, util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.cases import Case, first_line, kit_on_gpu, torch_on_gpu

TOOLS = ("nvidia-smi", "nvcc", "ncu", "compute-sanitizer", "cuobjdump", "g++", "git", "make")
SOURCE = """
struct Range { int begin, end; };
__global__ void scale(float* out, const float* in, float factor, Range range) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= range.begin && i < range.end) out[i] = factor * in[i];
}
__global__ void stray(float* x, long long where) { x[where] = 1; }
__global__ void tile(float* x) { extern __shared__ float s[]; s[threadIdx.x] = x[0]; __syncthreads(); x[1] = s[0]; }
__global__ void say(int* x) { if (threadIdx.x == 3) printf("thread %d says %d\\n", threadIdx.x, x[0]); }
"""
HEADERS = {
    "cooperative groups": "#include <cooperative_groups.h>\n"
    "__global__ void k(int* x) { cooperative_groups::this_grid().sync(); x[0] = 1; }",
    "limits of C": "#include <float.h>\n#include <limits.h>\n#include <stdint.h>\n"
    "__global__ void k(float* x) { x[0] = FLT_MAX + INT_MAX + UINT32_MAX; }",
    "numeric_limits": "#include <limits>\n__global__ void k(float* x) { x[0] = std::numeric_limits<float>::max(); }",
    "half": "#include <cuda_fp16.h>\n__global__ void k(half* x) { x[0] = __hadd(x[0], x[1]); }",
    "wmma": "#include <mma.h>\n__global__ void k(float* x) { "
    "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> f; x[0] = f.num_elements; }",
    "barrier": "#include <cuda/barrier>\n__global__ void k(int* x) { "
    "__shared__ cuda::barrier<cuda::thread_scope_block> b; x[0] = sizeof(b); }",
}
DOUBLE = """import triton
import triton.language as tl


@triton.jit
def double(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at))
"""


def cases() -> list[Case]:
    headers = [Case(f"header/{name}", partial(compile_header, source)) for name, source in HEADERS.items()]
    triton = [Case(f"triton/tensors on {place}", partial(run_triton, place), 90) for place in ("cuda", "cpu")]
    return [
        Case("tools", find_tools),
        Case("torch", start_torch, 90),
        Case("cuda-core", find_cuda_core),
        Case("nvrtc", find_compiler),
        *headers,
        Case("gpu/found", find_gpu, 90),
        Case("gpu/numpy", scale_numpy),
        Case("gpu/profile", time_launches),
        Case("gpu/shared memory", use_shared_memory),
        Case("gpu/printf", print_from_kernel),
        Case("gpu/device array", copy_to_device),
        Case("gpu/torch, default stream", partial(scale_tensors, side_stream=False), 90),
        Case("gpu/torch, side stream", partial(scale_tensors, side_stream=True), 90),
        Case("gpu/numpy on a side stream", scale_numpy_on_side_stream, 90),
        Case("fault/alone", partial(fault, with_torch=False), 90, alone=True),
        Case("fault/beside torch", partial(fault, with_torch=True), 90, alone=True),
        Case("data limit", start_under_data_limit, 120),
        *triton,
        Case("triton/trace", trace_beside_gpu, 90),
        Case("lab03", run_lab, 120, alone=True),
    ]


def find_tools() -> dict[str, Any]:
    """Return the programs that are installed, and the GPU's device files."""
    files = [name for name in sorted(os.listdir("/dev")) if "nvidia" in name]
    found = {name: bool(shutil.which(name)) for name in TOOLS}
    return {"ok": all(found[name] for name in TOOLS[:4]), "missing": [n for n in TOOLS if not found[n]], "files": files}


def start_torch() -> dict[str, Any]:
    began = time.monotonic()
    torch = torch_on_gpu()
    imported = time.monotonic() - began
    torch.zeros(1, device="cuda")
    about = torch.cuda.get_device_properties(0)
    context = time.monotonic() - began - imported
    return {"ok": True, "import_s": imported, "context_s": context, "gpu": about.name, "l2_bytes": about.L2_cache_size}


def find_cuda_core() -> dict[str, Any]:
    core = import_module("cuda.core")
    options = core.EventOptions(timing_enabled=True)
    return {"ok": hasattr(core.Kernel, "handle"), "version": metadata.version("cuda-core"), "options": str(options)}


def find_compiler() -> dict[str, Any]:
    from mlsys_labkit.cuda.nvidia import libraries

    headers = [Path(each).name for each in libraries.toolkit_headers()]
    return {"ok": True, "library": Path(libraries.find_nvrtc().library).name, "headers": headers}


def compile_header(source: str) -> dict[str, Any]:
    from mlsys_labkit.cuda.nvidia import nvrtc

    nvrtc.compile(source, "k", "sm_90")
    return {"ok": True}


def find_gpu() -> dict[str, Any]:
    from mlsys_labkit import detect

    kit_on_gpu()
    return {"ok": True, "device": detect().label}


def whole(count: int) -> Any:
    """Return the struct Range from 0 to ``count``."""
    import numpy as np

    return np.array((0, count), dtype=[("begin", "i4"), ("end", "i4")])[()]


def kernel(name: str) -> Any:
    """Return a kernel of SOURCE on the GPU, or raise NotMeasured where there is none."""
    from mlsys_labkit import cuda

    kit_on_gpu()
    return cuda.compile(SOURCE, name, backend="gpu")


def scale_numpy() -> dict[str, Any]:
    import numpy as np

    x, out = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    kernel("scale")[4, 256](out, x, 3, whole(1000))
    return {"ok": bool(np.array_equal(out, 3 * x))}


def time_launches() -> dict[str, Any]:
    """Profile a kernel of a microsecond three times: what is beyond 5 us is the host's, between the events."""
    import numpy as np

    x, out, scale = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32), kernel("scale")
    seconds = [scale.profile[4, 256](out, x, 3, whole(1000)).gpu_seconds for _ in range(3)]
    return {"ok": all(each and each > 0 for each in seconds), "gpu_seconds": seconds}


def use_shared_memory() -> dict[str, Any]:
    import numpy as np

    from mlsys_labkit.cuda.nvidia.device import the_gpu
    from mlsys_labkit.cuda.nvidia.occupancy import limits_of

    tile = kernel("tile")
    most, x = limits_of(the_gpu().arch).shared_per_block, np.ones(2, np.float32)
    tile[1, 32, most](x)
    return {"ok": True, "shared_bytes": most}


def print_from_kernel() -> dict[str, Any]:
    import io
    from contextlib import redirect_stdout

    import numpy as np

    said = io.StringIO()
    with redirect_stdout(said):
        kernel("say")[1, 32](np.full(1, 42, np.int32))
    return {"ok": "thread 3 says 42" in said.getvalue(), "said": said.getvalue()}


def copy_to_device() -> dict[str, Any]:
    import numpy as np

    from mlsys_labkit import cuda

    kit_on_gpu()
    x = np.arange(1000, dtype=np.float32)
    array = cuda.to_device(x)
    return {"ok": bool(array.on_gpu and np.array_equal(array.numpy(), x))}


def scale_tensors(side_stream: bool) -> dict[str, Any]:
    torch = torch_on_gpu()
    scale, a, b = kernel("scale"), torch.arange(1000.0, device="cuda"), torch.zeros(1000, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream() if side_stream else torch.cuda.current_stream()):
        b.zero_()
        scale[4, 256](b, a, 2, whole(1000))
        total = float(b.sum())
    return {"ok": total == float(2 * a.sum()), "total": total}


def scale_numpy_on_side_stream() -> dict[str, Any]:
    """Launch 200 times on arrays of the host while a side stream is current, which waits for no other stream."""
    import numpy as np

    torch = torch_on_gpu()
    scale, count, wrong = kernel("scale"), 1 << 18, 0
    with torch.cuda.stream(torch.cuda.Stream()):
        for number in range(200):
            own = np.full(count, number, np.float32)
            out = np.zeros_like(own)
            scale[count // 256, 256](out, own, 1, whole(count))
            wrong += not (out == number).all()
    return {"ok": wrong == 0, "wrong": wrong}


def fault(with_torch: bool) -> dict[str, Any]:
    """Fault in a process of its own: one line names the kernel, the next launch works, ``check`` names the line."""
    import numpy as np

    from mlsys_labkit import detect

    if with_torch:
        torch_on_gpu().zeros(1, device="cuda")
    stray, x, said = kernel("stray"), np.zeros(4, np.float32), "no error"
    try:
        stray[1, 1](x, 1 << 40)
    except Exception as error:
        said = first_line(error)
    try:
        stray[1, 1](x, 1)
        afterwards = "the next launch works" if x.any() else "the next launch wrote nothing"
        found = stray.check[1, 1](np.zeros(4, np.float32), 8)
        afterwards += f"; check: {found[0].kind} in line {found[0].line}; device: {detect().label}"
    except Exception as error:
        afterwards = first_line(error)
    named = "kernel stray read or wrote outside its arrays" in said
    works = "launch works" in afterwards and "check:" in afterwards
    return {"ok": named and works, "said": said, "afterwards": afterwards}


def start_under_data_limit() -> dict[str, Any]:
    """Start CUDA under 4 GiB of RLIMIT_DATA, the limit of a grader's worker."""
    torch_on_gpu()
    code = "import resource as r; r.setrlimit(r.RLIMIT_DATA, (4 << 30,) * 2); import torch; "
    code += "print(float(torch.ones(8, device='cuda').sum()))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    return {"ok": ran.stdout.strip() == "8.0", "said": (ran.stdout + ran.stderr[-300:]).strip()}


def double_kernel(folder: Path) -> Any:
    """Return the Triton kernel ``double`` from a file, because Triton reads a kernel's source there."""
    import mlsys_labkit.triton_trace  # noqa: F401  # which interprets launches without a GPU

    path = folder / "double_kernel.py"
    path.write_text(DOUBLE)
    spec = util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.double


def run_triton(place: str) -> dict[str, Any]:
    torch = torch_on_gpu()
    with TemporaryDirectory() as folder:
        x, out = torch.arange(8.0, device=place), torch.zeros(8, device=place)
        double_kernel(Path(folder))[(2,)](x, out, BLOCK=4)
        return {"ok": bool((out == 2 * x).all())}


def trace_beside_gpu() -> dict[str, Any]:
    from mlsys_labkit.triton_trace import trace

    torch = torch_on_gpu()
    with TemporaryDirectory() as folder:
        x, out = torch.arange(4096.0, device="cuda"), torch.zeros(4096, device="cuda")
        traced = trace(double_kernel(Path(folder)))[(16,)](x, out, BLOCK=256)
    return {"ok": traced.arrays["x"].loaded_bytes == 4 * 4096, "gpu": traced.gpu, "traced_seconds": traced.seconds}


def run_lab() -> dict[str, Any]:
    """Run lab 03 cell by cell, and go on behind each cell that fails."""
    from benchmarks.gpu.cells import lab_path, run_cells

    kit_on_gpu()
    runs = [*run_cells(lab_path("lab03"))]
    failed = [
        {"line": run.cell.line, "task": run.cell.grade_id, "error": run.error, "at": run.at}
        for run in runs
        if run.error
    ]
    on_gpu = [run.output.strip()[-400:] for run in runs if "On your GPU" in run.output or "TFLOP" in run.output]
    return {"ok": not failed, "failed": failed, "cells": len(runs), "on_gpu": on_gpu}
