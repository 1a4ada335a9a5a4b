"""Inline PTX: each instruction against its definition in the PTX ISA, written in Python or numpy."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.nvidia import nvrtc

RNG = np.random.default_rng(5)
A, B, C = (RNG.integers(0, 1 << 32, 32, dtype=np.uint64).astype(np.uint32) for _ in range(3))
A[:4], B[:4], C[:4] = (0, 1, 0xFFFFFFFF, 0x80000000), (0xFFFFFFFF, 0, 1, 0x80000000), (0, 1, 1, 0xFFFFFFFF)


def signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def of_float(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def as_float(x: int) -> np.float32:
    return np.uint32(x).view(np.float32)


def bfe(a: int, b: int, c: int) -> int:
    position, length = b & 0xFF, c & 0xFF
    return (a >> position) & ((1 << length) - 1)


def lop3(a: int, b: int, c: int) -> int:
    bits = (0xE8 >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1 for i in range(32))
    return sum(bit << i for i, bit in enumerate(bits))


def bytes_of(a: int, b: int, c: int) -> int:
    data = (a | b << 32).to_bytes(8, "little")
    return int.from_bytes(bytes(data[c >> 4 * i & 7] for i in range(4)), "little")


U = {  # d, a, b, c are 32-bit registers; each expected value is of the lane's three inputs
    "add.u32 %0, %1, %2;": lambda a, b, c: a + b,
    "sub.s32 %0, %1, %2;": lambda a, b, c: a - b,
    "mul.lo.u32 %0, %1, %2;": lambda a, b, c: a * b,
    "mul.hi.u32 %0, %1, %2;": lambda a, b, c: a * b >> 32,
    "mul.hi.s32 %0, %1, %2;": lambda a, b, c: signed(a) * signed(b) >> 32,
    "mad.lo.s32 %0, %1, %2, %3;": lambda a, b, c: a * b + c,
    "mad.hi.u32 %0, %1, %2, %3;": lambda a, b, c: (a * b >> 32) + c,
    "min.s32 %0, %1, %2;": lambda a, b, c: min(signed(a), signed(b)),
    "max.u32 %0, %1, %2;": lambda a, b, c: max(a, b),
    "and.b32 %0, %1, 0xff;": lambda a, b, c: a & 255,
    "xor.b32 %0, %1, %2;": lambda a, b, c: a ^ b,
    "not.b32 %0, %1;": lambda a, b, c: ~a,
    "shl.b32 %0, %1, 40;": lambda a, b, c: 0,
    "shr.s32 %0, %1, 40;": lambda a, b, c: -(a >> 31),
    "shr.u32 %0, %1, 5;": lambda a, b, c: a >> 5,
    "popc.b32 %0, %1;": lambda a, b, c: a.bit_count(),
    "clz.b32 %0, %1;": lambda a, b, c: 32 - a.bit_length(),
    "brev.b32 %0, %1;": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "bfind.u32 %0, %1;": lambda a, b, c: a.bit_length() - 1,
    "bfe.u32 %0, %1, 7, 9;": lambda a, b, c: bfe(a, 7, 9),
    "bfe.s32 %0, %1, 28, 9;": lambda a, b, c: signed(a) >> 28,
    "bfi.b32 %0, %1, %2, 8, 12;": lambda a, b, c: (b & ~(0xFFF << 8)) | (a & 0xFFF) << 8,
    "lop3.b32 %0, %1, %2, %3, 0xe8;": lop3,
    "prmt.b32 %0, %1, %2, 0x5410;": lambda a, b, c: bytes_of(a, b, 0x5410),
    "shf.l.wrap.b32 %0, %1, %2, 8;": lambda a, b, c: (b << 32 | a) << 8 >> 32,
    "dp4a.u32.u32 %0, %1, %2, %3;": lambda a, b, c: sum((a >> s & 255) * (b >> s & 255) for s in (0, 8, 16, 24)) + c,
    "sad.u32 %0, %1, %2, %3;": lambda a, b, c: abs(a - b) + c,
    "abs.s32 %0, %1;": lambda a, b, c: abs(signed(a)),
    "{ .reg .u32 low; add.cc.u32 low, %1, %2; addc.u32 %0, %3, 0; }": lambda a, b, c: c + (a + b >> 32),
    "{ .reg .u32 low; sub.cc.u32 low, %1, %2; subc.u32 %0, %3, 0; }": lambda a, b, c: c - (a < b),
    "{ .reg .pred p; setp.lt.s32 p, %1, %2; selp.b32 %0, %1, %2, p; }": lambda a, b, c: min(signed(a), signed(b)),
    "{ .reg .pred p; setp.ge.u32 p, %1, %2; mov.b32 %0, 7; @p mov.b32 %0, 9; @!p mov.b32 %0, 8; }": lambda a, b, c: (
        9 if a >= b else 8
    ),
    "{ .reg .pred p, q; setp.eq.u32 p, %1, 1; setp.ne.and.u32 q, %2, %3, !p; selp.u32 %0, 1, 0, q; }": lambda a, b, c: (
        int(b != c and a != 1)
    ),
    "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; mov.b32 %0, {hi, lo}; }": lambda a, b, c: a >> 16 | a << 16,
    "{ .reg .u64 wide; mul.wide.u32 wide, %1, %2; cvt.u32.u64 %0, wide; }": lambda a, b, c: a * b,
    "{ .reg .b8 low; cvt.u8.u32 low, %1; cvt.u32.u8 %0, low; } // the low byte": lambda a, b, c: a & 255,
    "{ .reg .u32 i; mov.u32 i, 0; mov.u32 %0, 0; MORE: add.u32 %0, %0, %1; add.u32 i, i, 1;"
    " .reg .pred p; setp.lt.u32 p, i, 3; @p bra MORE; }": lambda a, b, c: 3 * a,
}

F = {  # d, a, b, c are floats: the bits of the inputs, made finite and moderate
    "add.f32 %0, %1, %2;": lambda a, b, c: a + b,
    "sub.rn.f32 %0, %1, %2;": lambda a, b, c: a - b,
    "mul.ftz.f32 %0, %1, %2;": lambda a, b, c: a * b,
    "fma.rn.f32 %0, %1, %2, %3;": lambda a, b, c: np.float32(np.float64(a) * np.float64(b) + np.float64(c)),
    "div.rn.f32 %0, %1, %2;": lambda a, b, c: a / b,
    "max.f32 %0, %1, %2;": lambda a, b, c: max(a, b),
    "abs.f32 %0, %1;": lambda a, b, c: abs(a),
    "neg.f32 %0, %1;": lambda a, b, c: -a,
    "ex2.approx.ftz.f32 %0, %1;": lambda a, b, c: np.float32(2.0 ** float(a)),
    "{ .reg .f32 x; abs.f32 x, %1; lg2.approx.f32 %0, x; }": lambda a, b, c: np.float32(math.log2(abs(float(a)))),
    "{ .reg .f32 x; abs.f32 x, %1; rsqrt.approx.f32 %0, x; }": lambda a, b, c: np.float32(abs(float(a)) ** -0.5),
    "{ .reg .f32 x; abs.f32 x, %1; sqrt.approx.f32 %0, x; }": lambda a, b, c: np.float32(abs(float(a)) ** 0.5),
    "rcp.approx.ftz.f32 %0, %1;": lambda a, b, c: np.float32(1.0 / float(a)),
    "tanh.approx.f32 %0, %1;": lambda a, b, c: np.float32(math.tanh(a)),
    "sin.approx.f32 %0, %1;": lambda a, b, c: np.float32(math.sin(a)),
    "cos.approx.f32 %0, %1;": lambda a, b, c: np.float32(math.cos(a)),
    "mov.f32 %0, 0f3fC00000;": lambda a, b, c: np.float32(1.5),
    "add.sat.f32 %0, %1, 0f00000000;": lambda a, b, c: np.float32(min(max(a, 0), 1)),
    "cvt.rni.f32.f32 %0, %1;": lambda a, b, c: np.rint(a),
    "{ .reg .b32 t; cvt.rna.tf32.f32 t, %1; mov.b32 %0, t; }": lambda a, b, c: as_float(
        (of_float(a) + 0x1000) & 0xFFFFE000
    ),
    "{ .reg .s32 t; cvt.rzi.s32.f32 t, %1; cvt.rn.f32.s32 %0, t; }": lambda a, b, c: np.float32(int(a)),
    "{ .reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.f32.f16 %0, h; }": lambda a, b, c: np.float32(np.float16(a)),
    "{ .reg .b32 p; .reg .b16 x, y; cvt.rn.f16x2.f32 p, %1, %2; mov.b32 {x, y}, p; cvt.f32.f16 %0, x; }": (
        lambda a, b, c: np.float32(np.float16(b))
    ),
}


def source() -> str:
    unsigned = "".join(
        f'{{ unsigned d; asm volatile("{text}\\n" : "=r"(d) : "r"(a), "r"(b), "r"(c)); out[{i} * 32 + t] = d; }}\n'
        for i, text in enumerate(U)
    )
    floats = "".join(
        f'{{ float d; asm("{text}" : "=f"(d) : "f"(x), "f"(y), "f"(z)); out[{i} * 32 + t] = __float_as_uint(d); }}\n'
        for i, text in enumerate(F, len(U))
    )
    return f"""
    __global__ void f(const unsigned* as, const unsigned* bs, const unsigned* cs,
                      const float* xs, const float* ys, const float* zs, unsigned* out) {{
      int t = threadIdx.x; unsigned a = as[t], b = bs[t], c = cs[t]; float x = xs[t], y = ys[t], z = zs[t];
      {unsigned} {floats}
    }}"""


@functools.cache
def calculated() -> np.ndarray:
    """Return what each instruction gives, a row per instruction, from one kernel."""
    out = np.zeros((len(U) + len(F)) * 32, np.uint32)
    cuda.compile(source(), backend="simulator")[1, 32](A, B, C, *reals(), out)
    return out.reshape(-1, 32)


def test_nvrtc_accepts_the_same_text():
    assert nvrtc.check(source()) == ()
    assert nvrtc.check(MEMORY) == ()


def reals() -> list[np.ndarray]:
    return [row.astype(np.float32) for row in np.linspace(-8, 5.3, 96).reshape(3, 32)]


@pytest.mark.parametrize(("row", "text"), [*enumerate(U)])
def test_integer_instruction(row, text):
    expected = [U[text](int(a), int(b), int(c)) % (1 << 32) for a, b, c in zip(A, B, C, strict=True)]
    np.testing.assert_array_equal(calculated()[row], np.array(expected, np.uint32), err_msg=text)


@pytest.mark.parametrize(("row", "text"), [*enumerate(F)])
def test_float_instruction(row, text):
    expected = [F[text](a, b, c) for a, b, c in zip(*reals(), strict=True)]
    got = calculated()[len(U) + row].view(np.float32)
    np.testing.assert_allclose(got, np.array(expected, np.float32), rtol=3e-7, err_msg=text)


MEMORY = r"""
#include <cuda_fp16.h>
#define LOAD4(d, p) asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4 + 16];\n" \
    : "=f"(d[0]), "=f"(d[1]), \
      "=f"(d[2]), "=f"(d[3]) : "l"(p))
__device__ __forceinline__ unsigned at(const void* p) {
  unsigned a; asm("{ .reg .u64 u; cvta.to.shared.u64 u, %1; cvt.u32.u64 %0, u; }" : "=r"(a) : "l"(p)); return a; }
__global__ void copies(const float* in, float* out, int valid) {
  __shared__ __align__(16) float s[128]; __shared__ float t[32];
  int i = threadIdx.x; float v[4]; LOAD4(v, in + 4 * i);
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
    :: "r"(at(s + 4 * i)), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]));
  asm volatile("bar.sync 0;" ::: "memory");
  float w; asm volatile("ld.shared.f32 %0, [%1];" : "=f"(w) : "r"(at(s + 127 - i)));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(at(t + i)), "l"(in + i), "r"(i < valid ? 4 : 0));
  asm volatile("cp.async.commit_group;"); asm volatile("cp.async.wait_group %0;" :: "n"(0));
  asm volatile("st.global.cs.f32 [%0], %1;" :: "l"(out + i), "f"(w + 1000 * t[i]));
  asm volatile("red.global.add.f32 [%0], %1;" :: "l"(out + 32), "f"(1.0f) : "memory");
  unsigned old; asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(out + 33), "r"(2));
  asm volatile("{ .reg .pred p; setp.eq.s32 p, %0, 3; @p st.global.u32 [%1], 77; }" :: "r"(i), "l"(out + 34));
}
__global__ void race(float* out) {
  __shared__ float s[32]; int i = threadIdx.x;
  asm volatile("st.shared.f32 [%0], %1;" :: "r"(at(s + i)), "f"(1.0f));
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(out[i]) : "r"(at(s + 31 - i)));
}
__global__ void past(float* out) {
  asm volatile("st.global.f32 [%0], %1;" :: "l"(out + threadIdx.x + 1), "f"(1.0f));
}
__global__ void early(const float* in, float* out) {
  __shared__ float s[32]; int i = threadIdx.x;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" :: "r"(at(s + i)), "l"(in + i));
  out[i] = s[i];
}
"""


@functools.cache
def memory(name: str) -> cuda.Kernel:
    return cuda.compile(MEMORY, name, backend="simulator")


def test_loads_stores_and_copies():
    given = np.arange(132, dtype=np.float32)
    out = np.zeros(35, np.float32)
    memory("copies")[1, 32](given, out, 5)
    i = np.arange(32)
    np.testing.assert_array_equal(out[:32], 4 + 127 - i + 1000 * np.where(i < 5, i, 0))
    assert out[32] == 32
    assert list(out.view(np.uint32)[33:]) == [64, 77]


def test_vector_load_is_one_request():
    given, out = np.zeros(132, np.float32), np.zeros(35, np.float32)
    profile = memory("copies").profile[1, 32](given, out, 5)
    wide = next(line for line in profile.lines if line.bytes_per_lane == 16 and line.space == "global")
    assert (wide.requests, wide.sectors) == (1, 17)  # 16 bytes behind the beginning of a sector


@pytest.mark.parametrize(
    ("name", "shown", "kind"),
    [
        ("race", "shared.f32", "shared_race"),
        ("past", "out + threadIdx.x + 1", "out_of_bounds"),
        ("early", "= s[i]", "unfinished_copy"),
    ],
)
def test_check_names_the_line_of_an_instruction(name, shown, kind):
    given, out = np.zeros(32, np.float32), np.zeros(32, np.float32)
    found = memory(name).check[1, 32](*([given] if name == "early" else []), out)
    assert found
    assert (found[0].kind, shown in MEMORY.split("\n")[found[0].line - 1]) == (kind, True)


CONDITIONS = """
__global__ void f(int* x) {
  int d;
  asm volatile(
      "{\\n"
#if __CUDACC_VER_MAJOR__ >= 11
      " add.s32 %0, %1, 5;\\n"
#else
      " add.s32 %0, %1, 6;\\n"
#endif
      "}\\n"
      : "=r"(d) : "r"(x[0]));
  x[0] = d;
  asm("add.s32 %0, %1, 1;\\n"
#ifdef TRIPLED
      " mul.lo.s32 %0, %0, 3;\\n"
#elif defined(DOUBLED)
      " shl.b32 %0, %0, 1;\\n"
#endif
      : "=r"(d)
      : "r"(x[1])
      );
  x[1] = d;
}
"""


@pytest.mark.parametrize(("defines", "factor"), [({}, 1), ({"DOUBLED": 1}, 2), ({"TRIPLED": 1}, 3)])
def test_a_statement_may_have_conditions_inside(defines, factor):
    x = np.array([10, 20], np.int32)
    kernel = cuda.compile(CONDITIONS, backend="simulator", defines=defines)
    profile = kernel.profile[1, 1](x)
    np.testing.assert_array_equal(x, [15, 21 * factor])
    lines = {(count.line, count.op) for count in profile.lines if count.requests}
    assert {(13, "store"), (23, "store")} <= lines, "no line of the source moves"


def test_a_condition_that_the_statement_has_no_lines_for_is_refused_by_name():
    statement = 'asm("add.s32 %0, %0, 1;"\n#ifdef A\n" add.s32 %0, %0, 1;"\n#endif\n: "+r"(x[0]));'
    source = f"__global__ void f(int* x) {{ {statement} }}"
    with pytest.raises(cuda.CudaCompileError, match="inline PTX"):
        cuda.compile(source, backend="simulator", strict=False)


def test_empty_assembly_that_holds_registers_is_no_instruction():
    source = """__global__ void k(float* x) {
      float y = x[threadIdx.x];
      asm volatile("" : "+f"(y) :: "memory");
      x[threadIdx.x] = y + 1;
    }"""
    x = np.zeros(32, np.float32)
    cuda.compile(source, backend="simulator")[1, 32](x)
    assert (x == 1).all()
