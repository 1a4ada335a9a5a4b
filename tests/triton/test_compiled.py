"""Tests of compile_for without a GPU: each stage against theory, and resources against NVIDIA's own tools."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.triton_trace.compile.compiled import Compiled, compile_for
from mlsys_labkit.triton_trace.compile.stages import lines_of
from mlsys_labkit.triton_trace.errors import RefusedSourceError, TritonArgumentError, TritonCompileError

BIAS = tl.constexpr(3)
PLAIN = 3


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr = 1024):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a = tl.load(x + i, mask=mask)
    b = tl.load(y + i, mask=mask)
    tl.store(out + i, a + b, mask=mask)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + i[:, None] * K + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * N + j[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * N + j[None, :], total.to(tl.float16))


def line(kernel: Any, text: str) -> int:
    """Return the line of this file that holds ``text`` within ``kernel``."""
    lines = Path(__file__).read_text().splitlines()
    start = next(at for at, one in enumerate(lines, 1) if one.startswith(f"def {kernel.__name__}("))
    return next(at for at in range(start, len(lines)) if text in lines[at - 1])


def compiled_matmul(target: str, **options: Any) -> Compiled:
    types = dict.fromkeys("abc", "*fp16:16") | dict.fromkeys("MNK", "i32:16")
    options = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 3} | options
    return compile_for(matmul, target, signature=types, **options)


def resources(compiled: Compiled, folder: Path) -> dict[str, int]:
    """Return the resources that cuobjdump, which Triton ships, reads in the machine code."""
    (folder / "kernel.cubin").write_bytes(compiled.cubin)
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    said = subprocess.run([tool, "-res-usage", folder / "kernel.cubin"], capture_output=True, text=True, check=True)
    return {name: int(value) for name, value in re.findall(r"(\w+(?:\[\d\])?):(\d+)", said.stdout)}


# --- stages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "gpu_operation", "instruction", "never"),
    [
        ("sm_80", "tt.dot", "mma.sync.aligned", "wgmma"),
        ("sm_90", "ttng.warp_group_dot", "wgmma.mma_async", "mma.sync.aligned.m16"),
        ("sm_100", "ttng.tc_gen5_mma", "tcgen05.mma", "wgmma"),
    ],
)
def test_dot_compiles_to_tensor_core_instruction_of_each_generation(
    target: str, gpu_operation: str, instruction: str, never: str
) -> None:
    """NVIDIA, PTX ISA: mma.sync from Volta on, wgmma on Hopper alone, tcgen05 on Blackwell."""
    compiled = compiled_matmul(target)
    at = line(matmul, "tl.dot")
    assert "tt.dot" in compiled.lines_at("ttir", at)
    assert gpu_operation in compiled.lines_at("ttgir", at)
    assert instruction in compiled.lines_at("ptx", at)
    assert never not in compiled.ptx
    assert f".target {target}" in compiled.ptx


X = np.zeros(4096, np.float32)
HALF = torch.zeros(4096, dtype=torch.float16)


@pytest.mark.parametrize(
    ("x", "n", "width"),
    [
        (X, 4096, "v4.b32"),  # 16 bytes a lane
        (X[4:], 4096, "v4.b32"),  # still at a multiple of 16 bytes
        (X[1:], 4096, "b32"),  # 4 bytes beside one
        (X, 4095, "b32"),  # the mask may end inside 4 elements
        (HALF, 4096, "v4.b32"),
        (HALF[1:], 4096, "b16"),
        (torch.empty(1 << 33, dtype=torch.float64, device="meta"), 4096, "v2.b64"),
    ],
)
def test_load_width_follows_alignment_and_length(x: Any, n: int, width: str) -> None:
    out = X if isinstance(x, np.ndarray) else torch.zeros(4096, dtype=x.dtype)
    compiled = compile_for(add, "sm_90", x, out, out, n)
    loads = re.findall(r"ld\.global\.(\S+)", compiled.lines_at("ptx", line(add, "tl.load(x")))
    assert set(loads) == {width}


def test_lines_at_finds_each_source_line_in_each_stage() -> None:
    compiled = compile_for(add, "sm_90", X, X, X, 4096)  # whose loads are assembly of several lines
    loads = {line(add, "tl.load(x"), line(add, "tl.load(y")}
    stores = {line(add, "tl.store")}
    for stage, load, store in (("ttir", "tt.load", "tt.store"), ("ttgir", "tt.load", "tt.store"), *LOWERED):
        text = getattr(compiled, stage).splitlines()
        where = {
            name: {
                one.number
                for one, numbers in compiled.lines[stage].items()  # type: ignore[index]
                if any(word in text[at - 1] for at in numbers)
            }
            for name, word in (("load", load), ("store", store))
        }
        assert where == {"load": loads, "store": stores}, stage
        assert {one.place for one in compiled.lines[stage]} == {"test_compiled.py"}  # type: ignore[index]
        last = line(add, "tl.store")
        assert {one.number for one in compiled.lines[stage]} <= set(range(last - 6, last + 1))  # type: ignore[index]


LOWERED = (("llir", "ld.global", "st.global"), ("ptx", "ld.global", "st.global"))


@triton.jit
def cube(v):
    squared = v * v
    return squared * v


@triton.jit
def cubes(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, cube(tl.load(x + i)) + BIAS)


def test_lines_of_assigns_inlined_lines_to_callee_and_caller() -> None:
    compiled = compile_for(cubes, "sm_90", X, BLOCK=128)
    for stage in ("ttir", "ttgir", "llir"):
        inner, outer = (compiled.lines_at(stage, at) for at in (line(cube, "v * v"), line(cubes, "tl.store")))
        assert "mul" in inner
        assert set(inner.splitlines()) <= set(outer.splitlines())
    assert "3.000000e+00" in compiled.ttir
    assert not compiled.lines_at("ptx", 1)


def test_lines_of_reads_every_form_of_location() -> None:
    text = """\
#loc = loc("k.py":1:0)
module {
  tt.func public @k(%x: i32 loc("x"(#loc))) {
    scf.for %i = %a to %b {
      %y = arith.addi %x, %x : i32 loc(#loc5)
    } loc(#loc2)
    tt.return loc("k.py":9:3)
  } loc(#loc)
} loc(#loc)
#loc2 = loc("k.py":2:4)
#loc3 = loc("other.py":7:4)
#loc4 = loc("k.py":3:4)
#loc5 = loc(callsite(#loc3 at #loc6))
#loc6 = loc("y"(#loc4))
"""
    found = lines_of("ttir", text, {"k.py": "In[1]", "other.py": "In[2]"})
    assert {(one.place, one.number): numbers for one, numbers in found.items()} == {
        ("In[1]", 1): (2, 3, 8, 9),
        ("In[1]", 2): (4, 6),
        ("In[1]", 3): (5,),
        ("In[1]", 9): (7,),
        ("In[2]", 7): (5,),
    }


def test_lines_of_keeps_inline_assembly_on_one_source_line() -> None:
    """LLVM of Triton 3.9 counts source lines on within it."""
    text = """\
.file 1 "k.py"
.loc 1 5 2
add.s32 %r1, %r2, 1;
// begin inline asm
.loc 1 6 13
mov.u32 %r1, 0x0;
.loc 1 7 13
@%p1 ld.global.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];
// end inline asm
mul.f32 %f1, %f2, %f3;
.loc 1 9 2
ret;
}
.loc 1 9 2
"""
    found = lines_of("ptx", text, {"k.py": "k.py"})
    assert {one.number: numbers for one, numbers in found.items()} == {5: (3,), 6: (6, 8, 10), 9: (12,)}


# --- what it takes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "buffers"), [("sm_80", 2), ("sm_90", 3)])
@pytest.mark.parametrize("block", [(128, 128, 64), (64, 128, 32)])
def test_compiled_registers_and_shared_memory(
    target: str, buffers: int, block: tuple[int, int, int], tmp_path: Path
) -> None:
    """``num_stages`` tiles of both operands wait in shared memory; Ampere's mma reads registers: one buffer less."""
    BM, BN, BK = block
    compiled = compiled_matmul(target, BM=BM, BN=BN, BK=BK)
    assert compiled.shared_bytes == buffers * (BM * BK + BK * BN) * 2
    assert compiled.num_warps == 8
    said = resources(compiled, tmp_path)
    assert (compiled.registers, compiled.spills) == (said["REG"], 0)
    assert said["STACK"] == 0
    assert compiled.occupancy.warps == 8 * compiled.occupancy.blocks_per_sm
    assert f".reqntid {8 * 32}" in compiled.ptx


def test_compile_for_reports_spills_under_maxnreg(tmp_path: Path) -> None:
    compiled = compiled_matmul("sm_80", maxnreg=64)
    assert compiled.registers == resources(compiled, tmp_path)["REG"] <= 64
    assert compiled.spill_store_bytes > 0
    assert compiled.spills == compiled.spill_store_bytes + compiled.spill_load_bytes
    assert "bytes of spills" in str(compiled)


def test_occupancy_is_zero_with_too_much_shared_memory() -> None:
    compiled = compiled_matmul("sm_90", num_stages=8)
    assert compiled.shared_bytes > 227 * 1024
    assert str(compiled.occupancy) == "no block fits on an SM of sm_90: shared memory allows none"


def test_sass_contains_wgmma_instruction() -> None:
    assert "HGMMA" in compiled_matmul("sm_90").sass


# --- arguments -------------------------------------------------------------------------------------------------------


def test_signature_compiles_to_same_code_as_arguments() -> None:
    types = {"x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16", "n": "i32:16"}
    assert compile_for(add, "sm_90", signature=types).ptx == compile_for(add, "sm_90", X, X, X, 4096).ptx
    assert compile_for(add, "sm_90", X, X, X, signature={"n": "i32"}).ptx != compile_for(add, "sm_90", X, X, X, 16).ptx


def test_argument_types_reach_the_compiled_signature() -> None:
    tensors = [torch.zeros(16, dtype=dtype) for dtype in (torch.bfloat16, torch.int8, torch.float8_e4m3fn)]
    head = re.search(r"tt\.func public @add\((.*)", compile_for(add, "sm_90", *tensors[:2], X, 2**40).ttir)
    assert head
    assert re.findall(r"%\w+: ([!\w.]+(?:<\w+>)?)", head[1]) == ["!tt.ptr<bf16>", "!tt.ptr<i8>", "!tt.ptr<f32>", "i64"]
    assert "f8E4M3FN" in compile_for(cubes_of_small, "sm_90", tensors[2], X, BLOCK=16).ttir


@triton.jit
def cubes_of_small(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, cube(tl.load(x + i).to(tl.float32)))


def test_integer_one_is_specialised_unless_disabled() -> None:
    assert "%n:" not in compile_for(add, "sm_90", X, X, X, 1).ttir
    general = triton.jit(do_not_specialize=["n"])(add.fn)
    assert "%n: i32" in compile_for(general, "sm_90", X, X, X, 1).ttir


def test_compile_for_applies_autotune_and_heuristics() -> None:
    configs = [triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 512}, num_warps=8)]
    tuned = triton.autotune(configs, key=["n"])(add)
    assert compile_for(tuned, "sm_90", X, X, X, 4096).num_warps == 2
    assert compile_for(tuned, "sm_90", X, X, X, 4096, config=configs[1]).num_warps == 8
    ruled = triton.heuristics({"BLOCK": lambda given: given["n"]})(add)
    assert "end = 4096" in compile_for(ruled, "sm_90", X, X, X, 4096).ttir


def test_compile_for_works_beside_the_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("LABKIT_CUDA_CACHE", str(tmp_path))
    assert "ld.global" in compile_for(cubes, "sm_90", X, BLOCK=128).ptx


# --- errors ----------------------------------------------------------------------------------------------------------


@triton.jit
def wrong_size(x, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(x + i, i + tl.arange(0, 2 * n))


@triton.jit
def wrong_name(x):
    tl.store(x, cubed(tl.load(x)))  # noqa: F821


@triton.jit
def plain_global(x):
    tl.store(x, tl.load(x) * PLAIN)


@triton.jit
def calls_wrong(x):
    tl.store(x, tl.load(x))
    wrong_size(x, 100)


def test_compile_errors_name_the_students_line() -> None:
    with pytest.raises(TritonCompileError) as caught:
        compile_for(wrong_size, "sm_90", X, n=128)
    at = line(wrong_size, "2 * n")
    assert str(caught.value).startswith(f"test_compiled.py line {at}: ")
    assert "128 and 256" in str(caught.value)
    assert str(caught.value).endswith("[tl.store(x + i, i + tl.arange(0, 2 * n))]")
    assert (caught.value.place, caught.value.line) == ("test_compiled.py", at)
    with pytest.raises(TritonCompileError, match=rf"line {line(wrong_size, 'arange')}: .*power of 2"):
        compile_for(calls_wrong, "sm_90", X)
    for kernel, word, reason in ((wrong_name, "cubed", "not defined"), (plain_global, "PLAIN", "tl.constexpr")):
        with pytest.raises(RefusedSourceError, match=rf"line {line(kernel, word)}: .*{reason}"):
            compile_for(kernel, "sm_90", X)


def test_compile_for_refuses_bad_requests_in_one_line() -> None:
    with pytest.raises(CudaError, match="no architecture 'sm_42' on record"):
        compile_for(add, "sm_42", X, X, X, 4)
    with pytest.raises(TritonArgumentError, match="add is not given n"):
        compile_for(add, "sm_90", X, X, X)
    with pytest.raises(TritonArgumentError, match=r'"\*fp16:16"'):
        compile_for(add, "sm_90", X, X, signature={"out": "pointer", "n": "i32"})
    with pytest.raises(TritonArgumentError, match="got n twice"):
        compile_for(add, "sm_90", X, X, X, n=3, signature={"n": "i32"})
    with pytest.raises(TritonArgumentError, match="out: expected an array"):
        compile_for(add, "sm_90", X, X, [1.0], 4)


def test_compile_for_stops_the_compiler_after_its_timeout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LABKIT_CUDA_CACHE", str(tmp_path))
    with pytest.raises(TritonCompileError, match=r"stopped after 0\.05 s"):
        compile_for(add, "sm_90", X, X, X, 4, timeout_s=0.05)
    assert not list(tmp_path.glob("triton-*/*"))
