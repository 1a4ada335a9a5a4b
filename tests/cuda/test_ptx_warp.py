"""Inline PTX of a warp: fragments of matrices against numpy, shuffles, votes, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.nvidia import nvrtc
from tests.cuda.program_helpers import run as run_program

RNG = np.random.default_rng(3)
SHAPES = [  # instruction, type of A and B, of the sums
    ("m16n8k16", "f16", "f32"), ("m16n8k8", "f16", "f32"), ("m16n8k16", "bf16", "f32"), ("m16n8k16", "f16", "f16"),
    ("m16n8k8", "tf32", "f32"), ("m16n8k4", "tf32", "f32"), ("m16n8k32", "s8", "s32"), ("m16n8k16", "u8", "s32"),
    ("m8n8k16", "s8", "s32"), ("m8n8k4", "f64", "f64"),
]  # fmt: skip
DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "s8": np.int8, "u8": np.uint8, "f64": np.float64,
    "f32": np.float32, "s32": np.int32,
}  # fmt: skip


def fragments(matrix: np.ndarray, *, by_columns: bool) -> np.ndarray:
    """Return the registers of each lane, by the PTX ISA: lines of 4 bytes a lane, 8 lines and 4 lanes a block."""
    lines = matrix.T if by_columns else matrix
    pack = max(4 // matrix.itemsize, 1)
    lane = np.arange(32)
    words = [
        np.stack([lines[lane // 4 + over, along + lane % 4 * pack + i] for i in range(pack)], axis=1)
        for along in range(0, lines.shape[1], 4 * pack)
        for over in range(0, lines.shape[0], 8)
    ]
    kind = np.uint64 if matrix.itemsize == 8 else np.uint32
    return np.ascontiguousarray(np.stack(words, axis=1)).view(kind).reshape(32, -1)


def mma_source(shape: str, kind: str, total: str, a: int, b: int, c: int) -> str:
    word, letter = ("unsigned long long", "l") if kind == "f64" else ("unsigned", "r")
    names = iter(range(a + b + 2 * c))
    d_names, a_names, b_names, c_names = (", ".join(f"%{next(names)}" for _ in range(n)) for n in (c, a, b, c))
    values = [f'"{letter}"(a[t * {a} + {i}])' for i in range(a)] + [f'"{letter}"(b[t * {b} + {i}])' for i in range(b)]
    values += [f'"{letter}"(c[t * {c} + {i}])' for i in range(c)]
    results = ", ".join(f'"={letter}"(d[t * {c} + {i}])' for i in range(c))
    move = ""
    if letter == "l":  # .f64 operands take "d"
        values = [value.replace('"l"(', '"d"(__longlong_as_double(').replace("])", "]))") for value in values]
        results, move = (
            ", ".join(f'"=d"(sum[{i}])' for i in range(c)),
            "".join(f"d[t * {c} + {i}] = __double_as_longlong(sum[{i}]);" for i in range(c)),
        )
    elif total == "f32":
        values[a + b :] = [f'"f"(__uint_as_float(c[t * {c} + {i}]))' for i in range(c)]
        results, move = (
            ", ".join(f'"=f"(sum[{i}])' for i in range(c)),
            "".join(f"d[t * {c} + {i}] = __float_as_uint(sum[{i}]);" for i in range(c)),
        )
    declared = f"{'double' if letter == 'l' else 'float'} sum[4];" if move else ""
    operands = f"{total}.{kind}.{kind}.{total}"
    return f"""__global__ void f(const {word}* a, const {word}* b, const {word}* c, {word}* d) {{
      int t = threadIdx.x; {declared}
      asm volatile("mma.sync.aligned.{shape}.row.col.{operands} "
                   "{{{d_names}}}, {{{a_names}}}, {{{b_names}}}, {{{c_names}}};\\n"
        : {results} : {", ".join(values)});
      {move}
    }}"""


def random(dtype: type, *shape: int) -> np.ndarray:
    if np.issubdtype(dtype, np.integer) and np.dtype(dtype).itemsize == 1:
        return RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)
    return RNG.integers(-8, 9, shape).astype(dtype)  # few bits: every sum is exact


@pytest.mark.parametrize(("shape", "kind", "total"), SHAPES)
def test_mma_multiplies_fragments(shape, kind, total):
    rows, depth = (int(n) for n in shape.replace("m", "").replace("n8k", " ").split())
    a, b = random(DTYPES[kind], rows, depth), random(DTYPES[kind], depth, 8)
    c = random(DTYPES[total], rows, 8)
    left, right = fragments(a, by_columns=False), fragments(b, by_columns=True)
    lane = np.arange(32)
    places = [(lane // 4 + over, lane % 4 * 2 + i) for over in range(0, rows, 8) for i in (0, 1)]
    kinds = np.uint64 if kind == "f64" else np.uint32
    sums = np.ascontiguousarray(np.stack([c[place] for place in places], axis=1)).view(kinds).reshape(32, -1)
    source = mma_source(shape, kind, total, left.shape[1], right.shape[1], sums.shape[1])
    out = np.zeros_like(sums)
    cuda.compile(source, backend="simulator")[1, 32](left.ravel(), right.ravel(), sums.ravel(), flat := out.ravel())
    got = flat.view(DTYPES[total]).reshape(32, -1)
    wide = np.int64 if total == "s32" else np.float64
    exact = a.astype(wide) @ b.astype(wide) + c.astype(wide)
    np.testing.assert_array_equal(got, np.stack([exact[place] for place in places], axis=1).astype(DTYPES[total]))
    assert nvrtc.check(source) == ()


MATRICES = """
__global__ void move(const unsigned short* in, unsigned* loaded, unsigned short* stored) {
  __shared__ __align__(16) unsigned short s[256], d[256];
  int t = threadIdx.x; unsigned r[4];
  for (int i = t; i < 256; i += 32) s[i] = in[i];
  __syncwarp();
  unsigned from = __cvta_generic_to_shared(s + 8 * t), to = __cvta_generic_to_shared(d + 8 * t);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4TURNED.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
  for (int i = 0; i < 4; ++i) loaded[4 * t + i] = r[i];
  asm volatile("stmatrix.sync.aligned.m8n8.x4TURNED.shared.b16 [%0], {%1, %2, %3, %4};"
    :: "r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
  __syncwarp();
  for (int i = t; i < 256; i += 32) stored[i] = d[i];
}
"""


@pytest.mark.parametrize("turned", [False, True])
def test_ldmatrix_and_stmatrix(turned):
    source = MATRICES.replace("TURNED", ".trans" if turned else "")
    given = np.arange(256, dtype=np.uint16)
    loaded, stored = np.zeros(128, np.uint32), np.zeros(256, np.uint16)
    kernel = cuda.compile(source, backend="simulator")
    kernel[1, 32](given, loaded, stored)
    matrices = given.reshape(4, 8, 8)
    expected = np.concatenate([fragments(m, by_columns=turned) for m in matrices], axis=1)
    np.testing.assert_array_equal(loaded.reshape(32, 4), expected)
    np.testing.assert_array_equal(stored, given)
    assert kernel.check[1, 32](given, loaded, stored) == []


LANES = """
__global__ void f(unsigned* out) {
  unsigned t = threadIdx.x, v = 100 + t, r, m = 0xffffffffu; unsigned* o = out + 8 * t;
  asm volatile("{ .reg .pred p; shfl.sync.down.b32 %0|p, %1, 5, 0x1f, %2; @!p mov.u32 %0, 0; }"
    : "=r"(r) : "r"(v), "r"(m)); o[0] = r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %3, 0x1f, %2;" : "=r"(r) : "r"(v), "r"(m), "r"(1)); o[1] = r;
  asm volatile("shfl.sync.up.b32 %0, %1, 1, 0, 0xffffffff;" : "=r"(r) : "r"(v)); o[2] = r;
  asm volatile("shfl.sync.idx.b32 %0, %1, 3, 0x181f, %2;" : "=r"(r) : "r"(v), "r"(m)); o[3] = r;
  asm volatile("{ .reg .pred p; setp.lt.u32 p, %1, 4; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
    : "=r"(r) : "r"(t)); o[4] = r;
  asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(t)); o[5] = r;
  asm volatile("activemask.b32 %0;" : "=r"(r)); o[6] = r;
  asm volatile("mov.u32 %0, %%lanemask_gt;" : "=r"(r)); o[7] = r;
  asm volatile("membar.gl;"); asm volatile("bar.warp.sync 0xffffffff;"); asm volatile("nanosleep.u32 20;");
}
"""


def test_shuffles_votes_and_registers():
    out = np.zeros(256, np.uint32)
    cuda.compile(LANES, backend="simulator")[1, 32](out)
    t = np.arange(32)
    expected = [
        np.where(t < 27, 105 + t, 0), 100 + (t ^ 1), 100 + np.maximum(t - 1, 0), 103 + t // 8 * 8, np.full(32, 15),
        np.full(32, 496), np.full(32, 0xFFFFFFFF), 0xFFFFFFFF << t + 1 & 0xFFFFFFFF,
    ]  # fmt: skip
    np.testing.assert_array_equal(out.reshape(32, 8), np.stack(expected, axis=1).astype(np.uint32))
    assert nvrtc.check(LANES) == ()


REFUSED = """
template <bool hopper> __device__ void go(unsigned* p) {
  if constexpr (hopper) { asm volatile("tcgen05.fence::before_thread_sync;\\n" ::: "memory"); } else { *p = 5; }
}
static __device__ void unused() { asm volatile("tcgen05.wait::ld.sync.aligned;"); }
#if __CUDA_ARCH__ >= 1000
__device__ void newer() { asm volatile("tcgen05.fence;"); }
#endif
__global__ void k(unsigned* p) {
  go<HOPPER>(p);
}
int main() {
  unsigned *d, h = 0; cudaMalloc(&d, 4); k<<<1, 1>>>(d);
  cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost);
  return h != 5;
}
"""


def test_path_not_taken_is_silent():
    assert run_program(REFUSED.replace("HOPPER", "false")).returncode == 0


def test_refusal_names_the_instruction_and_its_line():
    with pytest.raises(cuda.CudaCompileError) as caught:
        run_program(REFUSED.replace("HOPPER", "true"))
    first = caught.value.diagnostics[0]
    assert first.line == 3
    assert first.text.startswith(
        "inline PTX tcgen05.fence::before_thread_sync: left out of the simulator; a GPU is needed; what"
    )
    assert len(caught.value.diagnostics) == 1


def test_untyped_instruction_is_refused_by_name():
    with pytest.raises(cuda.CudaCompileError, match=r"line 1: inline PTX add\.rn: left out"):
        cuda.compile(
            '__global__ void f(int* p) { asm("add.rn %0, %0, 1;" : "+r"(*p)); }', backend="simulator", strict=False
        )


@pytest.mark.parametrize("name", ["bfind.shiftamt.u32", "abs.relu.s32", "ld.local::x.u32", "redux.sync.NaN.min.u32"])
def test_modifier_that_would_be_lost_is_refused(name: str):
    last = "[%1]" if name.startswith("ld") else "%1, -1" if "redux" in name else "%1"
    source = f'__global__ void f(int* p) {{ asm("{name} %0, {last};" : "+r"(*p) : "r"(5)); }}'
    with pytest.raises(cuda.CudaCompileError, match=f"line 1: inline PTX {name}: left out"):
        cuda.compile(source, backend="simulator", strict=False)


def test_assembly_of_the_host_stays():
    assert (
        run_program('int main() { int x = 3; asm volatile("" : "+r"(x) : : "memory"); return x - 3; }').returncode == 0
    )
