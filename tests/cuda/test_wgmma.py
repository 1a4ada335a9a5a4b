"""Products of a warpgroup (wgmma): every layout of the operands against numpy, and the mistakes that check names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from mlsys_labkit import cuda
from tests.cuda.hopper_kernels import INCLUDES, Planted

DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
SUMS = {"f32": np.float32, "f16": np.float16, "s32": np.int32}
MODES = {0: 0, 32: 3, 64: 2, 128: 1}  # of a descriptor, by the bytes of the swizzle
RIGHT_AT, SHARED = 8192, 43008  # bytes: where B begins in the image of shared memory, and all of it


class Case(NamedTuple):
    """One instruction. ``lines``: the swizzle of A and of B in bytes. ``scales``: of D, A and B."""

    columns: int
    left: str
    right: str
    total: str
    lines: tuple[int, int] = (128, 128)
    turned: tuple[int, int] = (0, 0)
    scales: tuple[int, int, int] = (1, 1, 1)
    in_registers: bool = False
    base: int = 0  # lines of 128 bytes by which B's pattern begins behind a multiple of 1,024

    @property
    def depth(self) -> int:
        return 32 // np.dtype(DTYPES[self.left]).itemsize


CASES = [
    Case(64, "bf16", "bf16", "f32"),
    Case(8, "f16", "f16", "f32", (0, 0)),
    Case(256, "f16", "f16", "f16", (64, 128)),
    Case(24, "bf16", "bf16", "f32", (32, 32), scales=(0, -1, 1)),
    Case(128, "f16", "f16", "f32", (128, 64), (1, 1)),
    Case(40, "bf16", "bf16", "f32", (0, 0), (1, 1), scales=(1, -1, -1)),
    Case(16, "tf32", "tf32", "f32", (64, 32)),
    Case(32, "e4m3", "e5m2", "f32", (128, 0)),
    Case(8, "e5m2", "e5m2", "f16", (32, 64)),
    Case(48, "s8", "u8", "s32", (0, 32)),
    Case(64, "f16", "f16", "f32", (0, 128), (0, 1), in_registers=True),
    Case(16, "s8", "s8", "s32", (0, 128), in_registers=True),
    Case(16, "f16", "f16", "f32", (32, 128), base=3),
]


def image(matrix: np.ndarray, line: int, turned: int, base: int = 0) -> tuple[np.ndarray, int]:
    """Return a matrix, whose rows lie along M or N, as bytes of shared memory, and its descriptor without an address.

    Core matrices are 8 x 16 bytes (PTX ISA, "Strides" and "Swizzling modes" of wgmma). Whole lines of a swizzle hold
    ``line`` bytes; 8 of them are an atom. The 16-byte parts of line i of the pattern are XORed with i.
    """
    rows, item = (matrix.T if turned else matrix), matrix.itemsize
    wide = max(line, 16) // item
    across = -(-rows.shape[1] // wide)
    padded = np.zeros((rows.shape[0], across * wide), matrix.dtype)
    padded[:, : rows.shape[1]] = rows
    atoms = padded.reshape(rows.shape[0] // 8, 8, across, wide)
    # Turned, atoms follow each other along K first; else along M or N: both distances differ from 16 bytes then.
    order = (2, 0, 1, 3)
    placed = np.ascontiguousarray(atoms.transpose(order)).view(np.uint8).reshape(-1)
    atom, column = 8 * max(line, 16), 8 * max(line, 16) * atoms.shape[0]
    if line:
        places = np.arange(placed.size)
        width = (line // 32).bit_length()
        swizzled = np.empty_like(placed)
        swizzled[places ^ (places >> 7 & (1 << width) - 1) << 4] = placed
        placed = swizzled
    leading, stride = (column, atom) if line or not turned else (atom, column)
    descriptor = leading >> 4 << 16 | stride >> 4 << 32 | base << 49 | MODES[line] << 62
    return placed, descriptor


def registers(matrix: np.ndarray) -> np.ndarray:
    """Return A's registers of each thread: 16 rows a warp, 4 bytes a register (PTX ISA, "Register Fragments")."""
    per = 4 // matrix.itemsize
    thread = np.arange(128)
    words = [
        np.stack([
            matrix[thread // 32 * 16 + thread % 32 // 4 + part % 2 * 8, part // 2 * 4 * per + thread % 4 * per + i]
            for i in range(per)
        ], axis=1)
        for part in range(4)
    ]  # fmt: skip
    return np.ascontiguousarray(np.stack(words, axis=1)).view(np.uint32).reshape(128, 4)


def of_threads(matrix: np.ndarray) -> np.ndarray:
    """Return the sums of each thread: two columns of every eight, in two rows."""
    thread, i = np.arange(128)[:, None], np.arange(matrix.shape[1] // 2)[None]
    return matrix[thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8, i // 4 * 8 + thread % 4 * 2 + i % 2]


def kernel_source(number: int, case: Case) -> str:
    sums = case.columns // (4 if case.total == "f16" else 2)
    letter, kind = ("f", "float") if case.total == "f32" else ("r", "unsigned")
    words = 4 if case.in_registers else 1
    names = iter(range(sums + words + 2))
    d = ", ".join(f"%{next(names)}" for _ in range(sums))
    a = ", ".join(f"%{next(names)}" for _ in range(words))
    a = f"{{{a}}}" if case.in_registers else a
    more = [case.scales[0], *case.scales[1:]] if case.left in ("f16", "bf16", "tf32", "e4m3", "e5m2") else []
    if case.left in ("f16", "bf16"):
        more += case.turned[1:] if case.in_registers else case.turned
    more = ["p", *more[1:]]
    name = f"m64n{case.columns}k{case.depth}.{case.total}.{case.left}.{case.right}"
    text = f"wgmma.mma_async.sync.aligned.{name} {{{d}}}, {a}, %{next(names)}, {', '.join(map(str, more))};"
    values = [f'"r"(left[t * 4 + {i}])' for i in range(4)] if case.in_registers else ['"l"(at + a)']
    outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(sums))
    return f"""__global__ void k{number}(const uint4* given, uint64_t a, uint64_t b, const unsigned* left, {kind}* out,
                                         int adds) {{
  extern __shared__ __align__(1024) uint4 s[];
  const int t = threadIdx.x;
  for (int i = t; i < {SHARED // 16}; i += 128) s[i] = given[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const uint64_t at = (__cvta_generic_to_shared(s) & 0x3ffff) >> 4;
  {kind} d[{sums}];
  for (int i = 0; i < {sums}; i++) d[i] = out[t * {sums} + i];
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{sums + words + 1}, 0; {text} }}"
               : {outputs} : {", ".join(values)}, "l"(at + b + {RIGHT_AT // 16}), "r"(adds));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < {sums}; i++) out[t * {sums} + i] = d[i];
}}
"""


SHAPES = "#include <cstdint>\n" + "".join(kernel_source(number, case) for number, case in enumerate(CASES))


def numbers(shape: tuple[int, ...], kind: Any, seed: int) -> np.ndarray:
    least = 0 if kind is np.uint8 else -3
    return np.random.default_rng(seed).integers(least, 4, shape).astype(kind)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_product_is_that_of_the_matrices(number: int) -> None:
    case = CASES[number]
    a, b = numbers((64, case.depth), DTYPES[case.left], 1), numbers((case.columns, case.depth), DTYPES[case.right], 2)
    before = numbers((64, case.columns), SUMS[case.total], 3)
    left, a_descriptor = image(a, case.lines[0], case.turned[0])
    right, b_descriptor = image(b, case.lines[1], case.turned[1], case.base)
    memory = np.zeros(SHARED, np.uint8)
    memory[: left.size] = left
    place = RIGHT_AT + 128 * case.base
    memory[place : place + right.size] = right
    out = np.ascontiguousarray(of_threads(before))
    kernel = cuda.compile_all(SHAPES, backend="simulator")[f"k{number}"]
    held = registers(a) if case.in_registers else np.zeros(1, np.uint32)
    given = out.view(np.float32 if case.total == "f32" else np.uint32)
    words = memory.view(np.uint32)
    kernel[1, 128, SHARED](words, a_descriptor, b_descriptor + 8 * case.base, held, given, case.scales[0])
    wide = np.int64 if case.total == "s32" else np.float64
    scale = case.scales[1] * case.scales[2]
    expected = scale * (a.astype(wide) @ b.astype(wide).T) + case.scales[0] * before.astype(wide)
    np.testing.assert_array_equal(out, of_threads(expected.astype(SUMS[case.total])))


PRODUCT = (Path(__file__).with_name("hopper") / "product.cu").read_text()

FENCE = '    asm volatile("fence.proxy.async;" ::: "memory");  // fence\n'
AWAITED = '    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");\n    const int t'
WAIT = 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");  // products'
BUGS = [
    Planted("product", WAIT, "", "operand_in_use", "// load", "wgmma.wait_group has to come before"),
    Planted("product", "0;\" ::: \"memory\");  // products", "1;\" ::: \"memory\");  // products", "operand_in_use",
            "// load", "which the wgmma by"),
    Planted("product", "while (!ptx::mbarrier_try_wait_parity(&full[tile % 2], tile / 2 % 2)) {}  // wait", "",
            "unfinished_copy", "// multiply", "has not waited for the phase"),
    Planted("product", "until, left + right);", "until, left);", "byte_count", "// load", "256 bytes more"),
    Planted("product", "s[tile % 2] + left, 128, 256)", "s[tile % 2] + left, 16000 * 16, 256)", "matrix_descriptor",
            "// multiply", "descriptor of B leads out of shared memory"),
    Planted("written", FENCE, "", "missing_proxy_fence", "// multiply", "starts a wgmma that reads"),
    Planted("written", AWAITED, "    const int t", "pending_result", "out[row", "wgmma.wait_group has to come before"),
]  # fmt: skip
"""Mistakes of wgmma."""


def planted(number: int, bug: Planted) -> str:
    assert PRODUCT.count(bug.old) == 1, bug.old
    return f"namespace bug{number} {{\n{PRODUCT.replace(bug.old, bug.new)}}}\n"


RIGHT = f"namespace right {{\n{PRODUCT}}}\n"
# The wait of one warp is for the products of its whole warpgroup: thread 0 may go on to the next copy.
UNSYNCED = "namespace unsynced {\n" + PRODUCT.replace("        __syncthreads();  // reuse\n", "") + "}\n"
# One statement has the product, the commit and the wait, and none comes after it.
FUSED = '0, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"'
TOGETHER = PRODUCT.replace(AWAITED, "    const int t").replace('0, 1, 1, 0, 0;"', FUSED)
TOGETHER = f"namespace together {{\n{TOGETHER}}}\n"
# Sums in registers of 32 bits, held by empty assembly while the product may still write them, as CUTLASS does.
HELD = """
__global__ void held(const uint4* tile, float* out) {
    __shared__ alignas(128) uint4 s[(64 * 16 + 16 * 8) / 8];
    for (int i = threadIdx.x; i < (64 * 16 + 16 * 8) / 8; i += blockDim.x) s[i] = tile[i];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    const uint64_t a = descriptor(s, 1024, 128), b = descriptor(s + 128, 128, 256);
    unsigned d[2];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%0, %1}, %2, %3, 0, 1, 1, 0, 0;"
                 : "+r"(d[0]), "+r"(d[1]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    for (int i = 0; i < 2; i++) asm volatile("" : "+r"(d[i]) :: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const int t = threadIdx.x;
    for (int i = 0; i < 2; i++) {
        const float2 sums = __half22float2(*reinterpret_cast<__half2*>(&d[i]));
        float* at = out + (t / 32 * 16 + t % 32 / 4 + i * 8) * 8 + t % 4 * 2;
        at[0] = sums.x, at[1] = sums.y;
    }
}
"""
RIGHT += f"#include <cuda_fp16.h>\nnamespace right {{\n{HELD}}}\n"
CHECKED = INCLUDES + RIGHT + UNSYNCED + TOGETHER + "".join(planted(number, bug) for number, bug in enumerate(BUGS))


def core_matrices(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.concatenate([image(a, 0, 0)[0], image(b, 0, 0)[0]]).view(np.uint32)


def launch(kernel: Any, name: str) -> tuple[list[Any], np.ndarray, np.ndarray]:
    count = 4 if name == "product" else 1
    a, b = numbers((count, 64, 16), np.float16, 4), numbers((count, 8, 16), np.float16, 5)
    tiles = np.concatenate([core_matrices(*each) for each in zip(a, b, strict=True)])
    out = np.zeros((64, 8), np.float32)
    arguments = (tiles, out, count) if name == "product" else (tiles, out)
    found = kernel[1, 128](*arguments)
    return found, out, np.einsum("tik,tjk->ij", a.astype(np.float32), b.astype(np.float32))


@pytest.mark.parametrize("name", [
    "right::product", "right::written", "right::chained", "right::held", "unsynced::product", "together::written",
])  # fmt: skip
def test_correct_kernel_has_its_result_and_no_finding(name: str) -> None:
    kernel = cuda.compile_all(CHECKED, backend="simulator")[name]
    for way in (kernel, kernel.seeded(2), kernel.check, kernel.check.seeded(3)):
        found, out, expected = launch(way, name.split("::")[1])
        np.testing.assert_array_equal(out, expected)
        assert not found


@pytest.mark.parametrize("number", range(len(BUGS)))
def test_planted_bug_is_named_with_its_line(number: int) -> None:
    bug = BUGS[number]
    kernel = cuda.compile_all(CHECKED, backend="simulator")[f"bug{number}::{bug.kernel}"]
    found, _, _ = launch(kernel.check, bug.kernel)
    kinds = {one.kind for one in found}
    assert kinds in ({bug.kind}, {bug.kind, "pending_result"}), found  # without a wait, the result comes too early, too
    (one,) = (one for one in found if one.kind == bug.kind)
    assert bug.marker in one.source_line
    assert bug.words in one.message


def test_profile_counts_the_operations_of_tensor_cores() -> None:
    kernel = cuda.compile_all(CHECKED, backend="simulator")["right::product"]
    profile, _, _ = launch(kernel.profile, "product")
    assert profile.instructions["tensor"] == 4 * 2 * 64 * 8 * 16
