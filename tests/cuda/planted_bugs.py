"""Planted bugs that are no races: one kernel or program each, the kind of the finding, and ``// @`` on its line."""

from __future__ import annotations

import re
from pathlib import Path

# One kernel a line: its name, the kind of the finding ("nothing" for a correct one), the threads of the block, its body
# ("// @ ;" ends a line). Each has the parameters (float* a, int* b, int n), arrays of n = 64 elements: "a" holds ones,
# "b" 0 to 63, or nothing after "/* empty */".
KERNELS = Path(__file__).with_name("planted_bugs.txt").read_text()

_BEGINNING = """#include <cuda_pipeline.h>
#include <cuda/atomic>
#define UNSET(address) (unsigned(reinterpret_cast<size_t>(address) >> 2 & 1023) * 0x9e3779b1u >> 11)  // unset_memory.h
#define LEAVE(from) if (threadIdx.x >= from) return
struct Padded { double d; int i; };
__device__ void vote(int* b) { b[threadIdx.x] = __any_sync(0xffffffff, 1); }
"""
_CASE = re.compile(r"(?m)^(?P<name>\w+) (?P<kind>\w+) (?P<block>\d+): (?P<body>.*)$")


def planted_kernels() -> tuple[str, list[tuple[str, str, int, bool, int]]]:
    """Return one source with all kernels, and of each its name, kind, block, whether arrays are empty, and its line."""
    text, cases = _BEGINNING, []
    for case in _CASE.finditer(KERNELS):
        body = case["body"].replace("; //", "//").replace("// @ ;", "// @\n")
        text += f"__global__ void {case['name']}(float* a, int* b, int n) {{\n{body}\n}}\n"
        lines = text.splitlines()
        line = max((number for number, one in enumerate(lines, 1) if "// @" in one), default=0)
        cases.append((case["name"], case["kind"], int(case["block"]), "/* empty */" in body, line))
    return text, cases


_PROGRAM = """#include <cstdio>
__global__ void fill(float* p, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] = i; }
__global__ void scale(float* p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] *= 2;  // @scale
}
int main() {
  float *d, *e, h[256] = {};
  cudaMalloc(&d, sizeof h); cudaMalloc(&e, sizeof h);
%s
  cudaDeviceSynchronize();
  cudaFree(d); cudaFree(e);
}
"""
# Parts of messages, where another finding would have the same kind.
WORDS = {
    "A3": "of s, an address", "B1": "another one of this line", "V1": "passes by", "I3": "a row of it has 3",
    "memory that was freed": "was freed", "a pointer to host memory": "a pointer to host memory",
}  # fmt: skip
# (what main does, the kind of the finding or part of the note, the line: a marker, or 0 for a note)
PROGRAMS = {
    "memory that nobody filled": (_PROGRAM % "  scale<<<1, 256>>>(d, 256);", "uninitialized_global", "// @scale"),
    "half of the memory filled": (
        _PROGRAM % "  cudaMemcpy(d, h, 512, cudaMemcpyHostToDevice); scale<<<1, 256>>>(d, 256);",
        "uninitialized_global", "// @scale",
    ),
    "the wrong buffer filled": (
        _PROGRAM % "  cudaMemset(e, 0, sizeof h); scale<<<1, 256>>>(d, 256);", "uninitialized_global", "// @scale",
    ),
    "memory that was freed": (
        _PROGRAM % "  float* f; cudaMalloc(&f, 1024); cudaFree(f); scale<<<1, 256>>>(f, 256);",
        "illegal_address", "// @scale",
    ),
    "a pointer to host memory": (_PROGRAM % "  scale<<<1, 256>>>(h, 256);", "illegal_address", "// @scale"),
    "a launch that failed": (_PROGRAM % "  fill<<<1, 2048>>>(d, 256);  // @", "cudaErrorInvalidConfiguration", ""),
    "a launch with too much shared memory": (
        _PROGRAM % "  fill<<<1, 32, 400000>>>(d, 256);  // @", "cudaErrorInvalidValue", "",
    ),
    "a launch whose error is asked for": (
        _PROGRAM % "  fill<<<1, 2048>>>(d, 256); if (cudaGetLastError()) puts(\"refused\");", "nothing", "",
    ),
    "a launch that returns its error": (
        _PROGRAM % "  int n = 1;\n  void* all[] = {&d, &n};\n"
        "  if (cudaLaunchKernel((void*)fill, dim3(1), dim3(2048), all, 0, 0)) puts(\"refused\");", "nothing", "",
    ),
    "memory that is never freed": (
        _PROGRAM % "  float* f;\n  cudaMalloc(&f, 1024);  // @\n  fill<<<1, 32>>>(f, 32);", "never freed", "",
    ),
}  # fmt: skip
