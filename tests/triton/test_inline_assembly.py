"""Tests of ``tl.inline_asm_elementwise`` against Python's integers, exact fractions, ml_dtypes and torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from mlsys_labkit.triton_trace import TritonKernelError, trace

N = 64
WORDS = [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0x80FF7F01, 0xDEADBEEF, 0xFFFFFFFF]


@triton.jit
def of_three(a, b, c, out, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    values = [tl.load(a + i), tl.load(b + i), tl.load(c + i)]
    tl.store(out + i, tl.inline_asm_elementwise(ASM, CONSTRAINTS, values, dtype=TYPE, is_pure=True, pack=1))


@triton.jit
def of_one(
    a, out, ASM: tl.constexpr, LIMITS: tl.constexpr, TYPE: tl.constexpr, PACK: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.arange(0, BLOCK)
    v = tl.inline_asm_elementwise(ASM, LIMITS, [tl.load(a + i)], dtype=TYPE, is_pure=True, pack=PACK)
    tl.store(out + i, v)


def signed(word: int, bits: int = 32) -> int:
    return word - (1 << bits) if word >> (bits - 1) else word


def chosen_byte(a: int, b: int, code: int) -> int:
    byte = (b << 32 | a) >> 8 * (code & 7) & 0xFF
    return (255 if byte >> 7 else 0) if code & 8 else byte


def field(a: int, start: int, length: int, sign: bool) -> int:
    start, length = start & 255, length & 255
    fill = a >> min(start + length - 1, 31) & 1 if sign and length else 0
    return sum((a >> start + i & 1 if i < length and start + i <= 31 else fill) << i for i in range(32))


def inserted(a: int, b: int, start: int, length: int) -> int:
    start, length = start & 255, length & 255
    for i in range(min(length, max(32 - start, 0))):
        b = b & ~(1 << start + i) | (a >> i & 1) << start + i
    return b


INTEGERS: dict[str, Callable[[int, int, int], int]] = {
    "add.u32 $0, $1, $2;": lambda a, b, c: a + b,
    "sub.s32 $0, $1, $2;": lambda a, b, c: a - b,
    "mul.lo.u32 $0, $1, $2;": lambda a, b, c: a * b,
    "mul.hi.u32 $0, $1, $2;": lambda a, b, c: a * b >> 32,
    "mul.hi.s32 $0, $1, $2;": lambda a, b, c: signed(a) * signed(b) >> 32,
    "mad.lo.s32 $0, $1, $2, $3;": lambda a, b, c: a * b + c,
    "mad.hi.u32 $0, $1, $2, $3;": lambda a, b, c: (a * b >> 32) + c,
    "min.s32 $0, $1, $2;": lambda a, b, c: min(signed(a), signed(b)),
    "min.u32 $0, $1, $2;": lambda a, b, c: min(a, b),
    "max.s32 $0, $1, $2;": lambda a, b, c: max(signed(a), signed(b)),
    "neg.s32 $0, $1;": lambda a, b, c: -a,
    "not.b32 $0, $1;": lambda a, b, c: ~a,
    "and.b32 $0, $1, 0x1F1F1F1F;": lambda a, b, c: a & 0x1F1F1F1F,
    "xor.b32 $0, $1, -2;": lambda a, b, c: a ^ 0xFFFFFFFE,
    "shl.b32 $0, $1, $2;": lambda a, b, c: a << min(b, 64),
    "shr.u32 $0, $1, $2;": lambda a, b, c: a >> min(b, 64),
    "shr.s32 $0, $1, $2;": lambda a, b, c: signed(a) >> min(b, 64),
    "shf.l.wrap.b32 $0, $1, $2, $3;": lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32,
    "shf.l.clamp.b32 $0, $1, $2, $3;": lambda a, b, c: ((b << 32 | a) << min(c, 32)) >> 32,
    "shf.r.wrap.b32 $0, $1, $2, $3;": lambda a, b, c: (b << 32 | a) >> (c & 31),
    "shf.r.clamp.b32 $0, $1, $2, $3;": lambda a, b, c: (b << 32 | a) >> min(c, 32),
    "lop3.b32 $0, $1, $2, $3, 0xE8;": lambda a, b, c: a & b | a & c | b & c,  # the majority of three bits
    "lop3.b32 $0, $1, $2, $3, 0xCA;": lambda a, b, c: a & b | ~a & c,
    "prmt.b32 $0, $1, $2, 0x7531;": lambda a, b, c: sum(chosen_byte(a, b, 2 * i + 1) << 8 * i for i in range(4)),
    "prmt.b32 $0, $1, $2, $3;": lambda a, b, c: sum(chosen_byte(a, b, c >> 4 * i & 15) << 8 * i for i in range(4)),
    "bfe.u32 $0, $1, $2, $3;": lambda a, b, c: field(a, b, c, False),
    "bfe.s32 $0, $1, $2, $3;": lambda a, b, c: field(a, b, c, True),
    "bfi.b32 $0, $1, $2, $3, 7;": lambda a, b, c: inserted(a, b, c, 7),
    "popc.b32 $0, $1;": lambda a, b, c: a.bit_count(),
    "clz.b32 $0, $1;": lambda a, b, c: 32 - a.bit_length(),
    "brev.b32 $0, $1;": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "{ .reg .pred p, q; setp.lt.s32 p|q, $1, $2; selp.b32 $0, $1, $3, q; }": lambda a, b, c: (
        c if signed(a) < signed(b) else a
    ),
    "{ .reg .pred %p<2>; setp.hs.u32 %p0, $1, $2; setp.eq.and.b32 %p1, $3, 1, %p0; mov.b32 $0, 5;\n"
    "  @!%p1 add.u32 $0, $0, $1; /* guarded */ }": lambda a, b, c: 5 if a >= b and c == 1 else 5 + a,
    "{ .reg .b16 h<2>; mov.b32 {h0, h1}, $1; // halves\n mov.b32 $0, {h1, h0}; }": lambda a, b, c: a >> 16 | a << 16,
    "{ .reg .b64 w; mul.wide.s32 w, $1, $2; shr.u64 w, w, 16; cvt.u32.u64 $0, w; }": lambda a, b, c: (
        signed(a) * signed(b) >> 16
    ),
    "{ .reg .b16 h; cvt.u16.u32 h, $1; cvt.s32.s16 $0, h; }": lambda a, b, c: signed(a & 0xFFFF, 16),
    "cvt.sat.s8.s32 $0, $1;": lambda a, b, c: max(min(signed(a), 127), -128),
}


@pytest.mark.parametrize("asm", INTEGERS)
def test_instructions_on_integers(asm: str) -> None:
    table = [(a, b, c) for a in WORDS for b in WORDS for c in WORDS]
    table += [(0, 0, 0)] * (2048 - len(table))
    a, b, c = (np.array(column, np.uint32) for column in zip(*table, strict=True))
    out = np.zeros(2048, np.uint32)
    of_three[1,](a, b, c, out, asm, "=r,r,r,r", tl.uint32, 2048)
    wrong = [
        (row, hex(found))
        for row, found in zip(table, out.tolist(), strict=True)
        if found != INTEGERS[asm](*row) & 0xFFFFFFFF
    ]
    assert not wrong, wrong[:3]


def test_division_of_integers_goes_toward_zero() -> None:
    a, b = np.array([7, -7, 7, -7] * 4, np.int32), np.array([2, 2, -2, -2] * 4, np.int32)
    for asm, values in (("div.s32 $0, $1, $2;", [3, -3, -3, 3]), ("rem.s32 $0, $1, $2;", [1, -1, 1, -1])):
        out = np.zeros(16, np.int32)
        of_three[1,](a, b, b, out, asm, "=r,r,r,r", tl.int32, 16)
        assert out.tolist() == values * 4, asm


FLOATS: dict[str, Callable[[Fraction, Fraction, Fraction], Fraction]] = {
    "add.f32 $0, $1, $2;": lambda a, b, c: a + b,
    "mul.rn.f32 $0, $1, $2;": lambda a, b, c: a * b,
    "div.rn.f32 $0, $1, $2;": lambda a, b, c: a / b,
    "fma.rn.f32 $0, $1, $2, $3;": lambda a, b, c: a * b + c,
    "add.f32 $0, $1, 0f3DCCCCCD;": lambda a, b, c: a + Fraction(float(np.float32(0.1))),
    "add.sat.f32 $0, $1, $2;": lambda a, b, c: max(min(a + b, Fraction(1)), Fraction(0)),
    "max.f32 $0, $1, $2;": lambda a, b, c: max(a, b),
}


@pytest.mark.parametrize("asm", FLOATS)
def test_instructions_on_fp32_round_the_exact_result_once(asm: str) -> None:
    a, b, c = np.random.default_rng(1).normal(size=(3, N)).astype(np.float32)
    out = np.zeros(N, np.float32)
    traced = trace(of_three)[1,](a, b, c, out, asm, "=f,f,f,f", tl.float32, N)
    for x, y, z, found in zip(a, b, c, out, strict=True):
        exact = FLOATS[asm](*(Fraction(float(one)) for one in (x, y, z)))
        near = [np.nextafter(found, np.float32(way)) for way in (-np.inf, np.inf)]
        assert all(abs(Fraction(float(found)) - exact) <= abs(Fraction(float(one)) - exact) for one in near), (x, y, z)
    assert traced.work.flops == N * (2 if "fma" in asm else 1)


def test_approximations_are_those_of_mathematics() -> None:
    x = np.linspace(0.25, 3, N, dtype=np.float32)
    for name, function in (("ex2", np.exp2), ("lg2", np.log2), ("rcp", np.reciprocal), ("sqrt", np.sqrt),
                           ("rsqrt", lambda v: 1 / np.sqrt(v)), ("tanh", np.tanh), ("sin", np.sin)):  # fmt: skip
        out = np.zeros(N, np.float32)
        of_one[1,](x, out, f"{name}.approx.f32 $0, $1;", "=f,f", tl.float32, 1, N)
        np.testing.assert_allclose(out, function(x.astype(np.float64)), rtol=1e-7, err_msg=name)
    tiny, out = np.array([1e-40, -1e-40, 1.5, np.inf], np.float32), np.zeros(4, np.float32)
    of_one[1,](tiny, out, "add.ftz.f32 $0, $1, 0f00000000;", "=f,f", tl.float32, 1, 4)
    assert out.tolist() == [0, 0, 1.5, math.inf]


def test_nan_in_comparisons_and_maxima() -> None:
    a, b = np.array([1, np.nan] * 8, np.float32), np.array([2, 2] * 8, np.float32)
    cases = {"max.f32": [2, 2], "max.NaN.f32": [2, math.nan], "min.f32": [1, 2]}
    for asm, values in cases.items():
        out = np.zeros(16, np.float32)
        of_three[1,](a, b, b, out, f"{asm} $0, $1, $2;", "=f,f,f,f", tl.float32, 16)
        np.testing.assert_array_equal(out, values * 8, err_msg=asm)
    for how, values in {"lt": [1, 0], "ltu": [1, 1], "ne": [1, 0], "neu": [1, 1], "nan": [0, 1], "num": [1, 0]}.items():
        whole = np.zeros(16, np.int32)
        asm = f"{{ .reg .pred p; setp.{how}.f32 p, $1, $2; selp.s32 $0, 1, 0, p; }}"
        of_three[1,](a, b, b, whole, asm, "=r,f,f,f", tl.int32, 16)
        assert whole.tolist() == values * 8, how


NUMBERS = np.array(
    [0, -0.0, 1, 1.5, 2.5, -2.5, 3.3e-5, -7e-8, 448, 464, 480, 65504, 65520, 7e4, -1e9, 3e38], np.float32
)


@pytest.mark.parametrize(
    ("asm", "oracle"),
    [
        ("cvt.rn.f16x2.f32", lambda v: torch.from_numpy(v).half().view(torch.int16).numpy().view(np.uint16)),
        ("cvt.rn.bf16x2.f32", lambda v: v.astype(ml_dtypes.bfloat16).view(np.uint16)),
        ("cvt.rn.relu.bf16x2.f32", lambda v: np.maximum(v, 0).astype(ml_dtypes.bfloat16).view(np.uint16)),
        ("cvt.rz.bf16x2.f32", lambda v: (v.view(np.uint32) >> 16).astype(np.uint16)),
        ("cvt.rn.satfinite.e4m3x2.f32", lambda v: np.clip(v, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)),
        (
            "cvt.rn.satfinite.e5m2x2.f32",
            lambda v: np.clip(v, -57344, 57344).astype(ml_dtypes.float8_e5m2).view(np.uint8),
        ),
    ],
)
def test_conversions_of_pairs_put_the_first_operand_above(asm: str, oracle: Callable[[Any], Any]) -> None:
    high, low = NUMBERS, NUMBERS[::-1].copy()
    out = np.zeros(16, np.uint32)
    wide = "x2" in asm and "e" in asm.split(".")[-2][0]  # two numbers of 8 bits fill a register of 16
    text = f"{asm} $0, $1, $2;" if not wide else f"{{ .reg .b16 h; {asm} h, $1, $2; cvt.u32.u16 $0, h; }}"
    of_three[1,](high, low, low, out, text, "=r,f,f,f", tl.uint32, 16)
    bits = 8 if wide else 16
    expected = oracle(high).astype(np.uint32) << bits | oracle(low).astype(np.uint32)
    assert [hex(one) for one in out] == [hex(one) for one in expected]


@pytest.mark.parametrize("rule", ["rni", "rzi", "rmi", "rpi"])
def test_floats_become_integers_by_each_rule(rule: str) -> None:
    x, out = np.array([2.5, 3.5, -2.5, -0.5, 1e10, -1e10, np.nan, 7], np.float32), np.zeros(8, np.int32)
    of_one[1,](x, out, f"cvt.{rule}.s32.f32 $0, $1;", "=r,f", tl.int32, 1, 8)
    whole = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[rule]
    exact = [0 if math.isnan(one) else whole(one) for one in x.tolist()]
    assert out.tolist() == [min(max(one, -(2**31)), 2**31 - 1) for one in exact]


def test_small_elements_share_registers_in_their_order() -> None:
    x, out = np.arange(N, dtype=np.uint8), np.zeros(N, np.uint8)
    of_one[1,](x, out, "prmt.b32 $0, $1, $1, 0x0123;", "=r,r", tl.uint8, 4, N)
    assert out.reshape(-1, 4).tolist() == x.reshape(-1, 4)[:, ::-1].tolist()
    halves, sums = torch.linspace(-3, 3, N).half(), torch.zeros(N, dtype=torch.float16)
    of_one[1,](halves, sums, "fma.rn.f16x2 $0, $1, $1, $1;", "=r,r", tl.float16, 2, N)
    exact = halves.double()
    assert torch.equal(sums, (exact * exact + exact).half())
    wider = np.zeros(N, np.int32)
    each = "".join(f"cvt.u32.u8 ${i}, t{i};" for i in range(4))
    unpack = f"{{ .reg .b8 t<4>; mov.b32 {{t0, t1, t2, t3}}, $4; {each} }}"
    of_one[1,](x, wider, unpack, "=r,=r,=r,=r,r", tl.int32, 4, N)
    assert wider.tolist() == x.tolist()


@triton.jit
def both_differences(a, b, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    one, two = tl.inline_asm_elementwise(
        asm="sub.u32 $0, $2, $3; sub.u32 $1, $3, $2;",
        constraints="=&r,=r,r,r,~{memory}",
        args=[tl.load(a + i), tl.load(b + i)],
        dtype=(tl.int32, tl.int32),
        is_pure=True,
        pack=1,
    )
    tl.store(out + i, one)
    tl.store(out + BLOCK + i, two)


def test_several_results() -> None:
    a, b = np.arange(N, dtype=np.int32), np.arange(N, dtype=np.int32)[::-1].copy()
    out = np.zeros(2 * N, np.int32)
    both_differences[1,](a, b, out, N)
    assert out.tolist() == [*(a - b), *(b - a)]


@triton.jit
def moved(x, out, n, ASM: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.inline_asm_elementwise(ASM, "=r,l,l,r,r", [x + i, out + i, i, n], dtype=tl.int32, is_pure=False, pack=1)


MOVE = """
{{
    .reg .pred p;
    setp.lt.s32 p, $3, $4;
    mov.b32 $0, 0;
    @p ld.global{0}.u32 $0, [$1{1}];
    @p st.global.u32 [$2], $0;
}}
"""


def test_memory_is_reached_and_checked() -> None:
    x, out = np.arange(N, dtype=np.int32), np.zeros(N, np.int32)
    traced = trace(moved)[1,](x, out, 9, MOVE.format(".nc.L1::no_allocate", " + 4"), N)
    assert out.tolist() == [*range(1, 10), *[0] * (N - 9)]
    assert [one.kind for one in traced.findings if one.severity == "error"] == []
    assert (traced.arrays["x"].loaded_bytes, traced.arrays["out"].stored_bytes) == (36, 36)
    with pytest.raises(TritonKernelError, match=r"it reads x\[64\], and x has 64 elements"):
        moved[1,](x, out, N, MOVE.format(".cg", "+4"), N)


@triton.jit
def beyond(x, out, n, KEPT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    v = tl.inline_asm_elementwise("not.b32 $0, $1; not.b32 $0, $0;", "=r,r", [v], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out + i, v, mask=i < (n if KEPT else n + 1))


def test_undefined_lanes_go_through() -> None:
    x, out = np.arange(N, dtype=np.int32), np.zeros(N, np.int32)
    for kept, kinds in ((True, []), (False, ["undefined_value"])):
        traced = trace(beyond)[1,](x, out, 9, KEPT=kept, BLOCK=N)
        assert [one.kind for one in traced.findings if one.severity == "error"] == kinds


@triton.jit
def timed(out, places, clock: tl.constexpr):
    begin = clock()
    tl.store(places + tl.program_id(0), tl.extra.cuda.smid())
    count = tl.inline_asm_elementwise("mov.u32 $0, %nsmid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out, clock() - begin)
    tl.store(out + 1, count)


def test_special_registers() -> None:
    """Programs go to the 132 multiprocessors of an H100 in turn, and the time of a GPU does not go back."""
    out, places = np.zeros(2, np.int64), np.full(140, -1, np.int32)
    handle = timed[140,](out, places, tl.extra.cuda.globaltimer)
    assert out[0] >= 0
    assert out[1] == 132
    assert places.tolist() == [*range(132), *range(8)]
    assert handle.asm["ptx"].count("%globaltimer") == 2


@pytest.mark.parametrize(
    ("asm", "message"),
    [
        ("mov.u32 $0, %laneid;", "%laneid in .* is no register that it declares"),
        ("add.rz.f32 $0, $1, $1;", "add.rz.f32 in .* is not interpreted"),
        ("add.sat.s32 $0, $1, $1;", "add.sat.s32 in .* is not interpreted"),
        ("mul.s32 $0, $1, $1;", "mul.s32 in .* is not interpreted"),
        ("add.lo.u32 $0, $1, $1;", "add.lo.u32 in .* is not interpreted"),
        ("ld.shared.u32 $0, [$1];", "ld.shared.u32 in .* is not interpreted"),
        ("ld.global.u32 $0, [4096];", "4096 in .* is no register that it declares"),
        ("mma.sync.aligned.m16n8k8.f32 $0, $1;", "mma.sync.* is not interpreted"),
        ("cvt.f16.f32 $0, $1;", "cvt.f16.f32 in .* is not interpreted"),
        ("add.u32 $0, $0, $1;", "\\$0 in .* has no value yet"),
        ("add.u32 $0, $1, $2;", "\\$2 in .* is no register that it declares"),
        ("add.u32 $0, $1, 1.5;", "1.5 in .* is no number of the type"),
        ("add.u32 $0, $1, $1", "ends without ;"),
        ("add.u32 $0, $1;", "add.u32 in .* is not interpreted"),
        ("loop: bra loop;", "is not interpreted"),
        (".reg .b32 t<1000000>; mov.b32 $0, $1;", "is not interpreted"),
    ],
)
def test_what_is_not_interpreted_is_named(asm: str, message: str) -> None:
    x = np.zeros(N, np.int32)
    with pytest.raises(TritonKernelError, match=message):
        of_one[1,](x, x.copy(), asm, "=r,r", tl.int32, 1, N)


def test_constraints_have_to_fit() -> None:
    x = np.zeros(N, np.int32)
    with pytest.raises(TritonKernelError, match=r"name 1 results and 2 operands, and these blocks .* have 1 and 1"):
        of_one[1,](x, x.copy(), "mov.b32 $0, $1;", "=r,r,r", tl.int32, 1, N)
    with pytest.raises(TritonKernelError, match="the constraint '0' of"):
        of_one[1,](x, x.copy(), "mov.b32 $0, $1;", "=r,0", tl.int32, 1, N)
