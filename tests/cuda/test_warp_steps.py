"""A plain run says where a kernel counts on the lanes of a warp being in step."""

from __future__ import annotations

import pytest

from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.warp_steps import warp_steps
from tests.cuda.program_helpers import run

KERNEL = """__global__ void k(float* a) {
  __shared__ float s[64], r[64];
  int t = threadIdx.x;
  s[t] = a[t];
  __syncthreads();
  %s
}
int main() { float* a; cudaMalloc(&a, 256); cudaMemset(a, 0, 256); k<<<1, 64>>>(a); return cudaDeviceSynchronize(); }
"""


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("if (t < 4) { s[t] += 1; }\n  if (t == 0) *a = s[0] + s[1];", 7),
        ("if (t < 4) s[t] += 1;\n  if (!t) *a = s[3];", 7),
        ("if (t < 32) {\n  s[t] += s[t + 32];\n  s[t] += s[t + 16];\n  }", 8),
        ("if (t < 32) {\n  for (int i = 16; i > 0; i /= 2) s[t] += s[t + i];\n  }", 7),
        ("if (t < 8) { s[t] = 1;\n  a[t] = s[t ^ 1]; }", 7),
        # not seen: two names for one index
        ("if (threadIdx.x < 32) {\n  for (int i = 16; i > 0; i /= 2) s[t] += s[t + i];\n  }", 0),
        # correct
        ("if (t < 4) { s[t] += 1; } __syncwarp(); if (t == 0) *a = s[0] + s[1];", 0),
        ("if (t < 4) { s[t] += 1; } if (t == 0) *a = s[0];", 0),
        ("if (t < 4) { s[t] += 1; } if (t == 0) *a = s[4];", 0),
        ("if (t < 4) { s[t] += 1; } if (t == 0) *a = r[1];", 0),
        ("if (t < 32) { s[t] += s[t + 32]; __syncwarp(); s[t] += s[t + 16]; }", 0),
        ("if (t < 32) { for (int i = 16; i > 0; i /= 2) { s[t] += s[t + i]; __syncwarp(); } }", 0),
        ("if (t < 32) { s[t] += s[t + 32]; a[t] = s[t]; }", 0),
        ("for (int i = 32; i > 0; i /= 2) { if (t < i) s[t] += s[t + i]; __syncthreads(); }", 0),
        ("if (t < 64) { s[t] += 1; } if (t == 0) *a = s[40];", 0),
        ("if (t < 1) { s[t] += 1; a[t] = s[0]; }", 0),
        ("volatile float* v = s; if (t < 32) { v[t] += v[t + 16]; v[t] += v[t + 8]; }", 0),
    ],
)
def test_reads_of_other_lanes_are_seen_in_the_text(body: str, line: int) -> None:
    assert [one.line for one in warp_steps(Source(KERNEL % body))] == ([line] if line else [])


def test_a_plain_run_says_it_and_check_finds_it() -> None:
    source = KERNEL % "if (t < 4) { s[t] += 1; }\n  if (t == 0) *a = s[0] + s[1];"
    (note,) = run(source).notes
    assert note.startswith("program.cu:7: a lane reads s where another lane of its warp wrote in line 6")
    checked = run(source, check=True)
    assert [(one.kind, {one.line, one.other_line}) for one in checked.findings] == [("shared_race", {6, 7})]
