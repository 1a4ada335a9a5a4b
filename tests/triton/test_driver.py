"""Tests of programs that ask Triton's driver for a GPU, as the tutorials do, and of what a launch returns."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.tools.tensor_descriptor import TensorDescriptor

from mlsys_labkit.triton_trace import compile_for
from mlsys_labkit.triton_trace.errors import TritonKernelError, TritonLaunchError
from mlsys_labkit.triton_trace.launch.launcher import has_gpu

WITHOUT_GPU = pytest.mark.skipif(has_gpu(), reason="there is a GPU, and its own driver answers")


@triton.jit
def scaled(x, out, n, num_stages: tl.constexpr, num_warps: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < min(n, BLOCK))
    tl.store(out + i, v * num_stages + max(n, 1) * num_warps, mask=i < n)


@WITHOUT_GPU
def test_driver_answers_as_an_h100_with_cpu_tensors() -> None:
    active = triton.runtime.driver.active
    device = active.get_active_torch_device()
    assert device == torch.device("cpu")
    target = active.get_current_target()
    assert (target.backend, target.arch, target.warp_size) == ("cuda", 90, 32)
    properties = active.utils.get_device_properties(device.index)
    assert (properties["multiprocessor_count"], properties["max_shared_mem"]) == (132, 227 * 1024)
    with pytest.raises(TritonLaunchError, match=r"driver\.active\.get_benchmarker needs a GPU"):
        active.get_benchmarker()


@WITHOUT_GPU
def test_warmup_compiles_and_tells_the_registers() -> None:
    x = torch.ones(64)
    kernel = scaled.warmup(x, x, 64, num_stages=2, num_warps=4, BLOCK=64, grid=(1,))
    kernel._init_handles()
    same = compile_for(scaled, "sm_90", x, x, 64, num_stages=2, num_warps=4, BLOCK=64)
    assert kernel.n_regs == same.registers
    out = torch.zeros(64)
    kernel[(1, 1, 1)](x, out, 64, 2, 4, 64)
    assert (out == 2 + 64 * 4).all()


def test_a_launch_returns_a_handle_with_registers_and_ptx() -> None:
    x, out = torch.ones(64), torch.zeros(64)
    handle = scaled[1,](x, out, 64, num_stages=2, num_warps=8, BLOCK=64)
    assert (out == 2 + 64 * 8).all()
    assert handle.n_regs > 0
    assert handle.n_spills == 0
    assert ".entry scaled" in handle.asm["ptx"]
    assert ".reqntid 256" in handle.asm["ptx"]


def test_autotune_gives_declared_options() -> None:
    tuned = triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2, num_stages=5)], key=["n"])(scaled)
    x, out = torch.ones(64), torch.zeros(64)
    tuned[1,](x, out, 64)
    assert (out == 5 + 64 * 2).all()
    assert compile_for(tuned, "sm_90", x, out, 64).num_warps == 2


@triton.jit
def copied(x, out):
    out.store([0, 0], x.load([0, 0]))


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_compile_for_takes_host_descriptors(padding: Any) -> None:
    x = TensorDescriptor.from_tensor(torch.ones(64, 64), [16, 16], padding)
    assert "cp.async.bulk.tensor.2d" in compile_for(copied, "sm_90", x, x).ptx


def test_handle_compiles_for_a_reinterpreted_tensor() -> None:
    codes = triton.reinterpret(torch.full((64,), 0x38, dtype=torch.uint8), tl.float8e4nv)  # 1.0 in e4m3
    out = torch.zeros(64)
    handle = converted[1,](codes, out, BLOCK=64)
    assert (out == 1).all()
    assert "tt.ptr<f8E4M3FN>" in handle.asm["ttir"]


@triton.jit
def converted(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(tl.float32))


def test_kernel_from_the_text_of_an_ir_is_refused_by_name(tmp_path: Any) -> None:
    text = tmp_path / "kernel.ttir"
    text.write_text("module { tt.func public @kernel(%x: !tt.ptr<i32>) { tt.return } }")
    with pytest.raises(TritonLaunchError, match="compiled from the text of an IR runs on a GPU only"):
        triton.compile(str(text), target=GPUTarget("cuda", 90, 32))[1, 1, 1](torch.zeros(1, dtype=torch.int32))


@triton.jit
def filled_by_threads(out):
    threads: tl.constexpr = tl.extra.cuda.num_threads()
    tl.store(out + tl.arange(0, threads), tl.extra.cuda.num_warps())


def test_a_kernel_is_told_the_warps_of_its_launch() -> None:
    """A warp of NVIDIA's has 32 threads; Triton launches 4 warps where nothing is said."""
    for options, warps in (({}, 4), ({"num_warps": 2}, 2)):
        out = torch.zeros(256, dtype=torch.int32)
        filled_by_threads[1,](out, **options)
        assert out.tolist() == [warps] * 32 * warps + [0] * (256 - 32 * warps)
    out = torch.zeros(256, dtype=torch.int32)
    triton.autotune([triton.Config({}, num_warps=8)], key=[])(filled_by_threads)[1,](out)
    assert (out == 8).all()


def test_a_constant_that_is_not_to_be_specialized_is_refused() -> None:
    kernel = triton.jit(do_not_specialize=["n"])(filled.fn)
    with pytest.raises(triton.CompilationError, match="n marked as constexpr and listed in do_not_specialize"):
        kernel[1,](torch.zeros(1), 5)


@triton.jit
def filled(x, n: tl.constexpr):
    tl.store(x, n)


PROGRAM = """
import {first}
import {second}
import numpy as np, triton.language as tl
exec(compile(open({file!r}).read(), {file!r}, "exec"))
x = np.zeros(1, np.float32)
ones[1,](x)
assert x[0] == 1
"""


@pytest.mark.parametrize("first", ["mlsys_labkit", "triton"])
def test_importing_the_kit_is_enough_for_launches(first: str, tmp_path: Any) -> None:
    """Three processes are needed, because this one has both modules."""
    kernel = tmp_path / "kernel.py"
    kernel.write_text("import triton\n@triton.jit\ndef ones(x):\n    tl.store(x, 1.0)\n")
    second = "triton" if first == "mlsys_labkit" else "mlsys_labkit"
    text = PROGRAM.format(first=first, second=second, file=str(kernel))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_importing_the_kit_does_not_import_triton() -> None:
    program = "import sys, mlsys_labkit; assert 'triton' not in sys.modules and 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_cell_that_ends_in_a_launch_displays_nothing() -> None:
    """nbgrader reads the text of a test cell's last value as marks."""
    from IPython.core.formatters import DisplayFormatter

    x, out = torch.ones(64), torch.zeros(64)
    data, _ = DisplayFormatter().format(scaled[1,](x, out, 64, num_stages=2, num_warps=8, BLOCK=64))
    assert data == {}


@triton.jit
def sums_behind_pointers(table, out, n, B: tl.constexpr):
    at = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, B)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(at + i, mask=i < n, other=0.0), 0))


def test_tensors_behind_pointers_are_found() -> None:
    parts, out = [torch.full((5,), 2.0), torch.ones(8)[:5]], torch.zeros(2)
    sums_behind_pointers[2,](torch.tensor([one.data_ptr() for one in parts]), out, 5, B=8)
    assert out.tolist() == [10, 5]
    inside = torch.tensor([parts[0].data_ptr() + 4, parts[1].data_ptr()])
    with pytest.raises(TritonKernelError, match=r"pointers in an array need reachable\(arrays\)"):
        sums_behind_pointers[2,](inside, out, 5, B=8)
