"""``check`` of a program finds streams, and the host, that touch the same bytes and do not wait for each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlsys_labkit.cuda.finding import KernelFinding
from tests.cuda.program_helpers import run

CASE = re.compile(r"(?m)^(?P<name>\w+) (?P<kind>\w+): (?P<body>.*)$")
CASES = {found["name"]: found for found in CASE.finditer(Path(__file__).with_name("planted_orders.txt").read_text())}
PROGRAM = """#include <cstdio>
__constant__ float table[64];
__global__ void fill(float* p, int n) { if (threadIdx.x < n) p[threadIdx.x] = threadIdx.x; }
__global__ void add(float* p, const float* q, int n) { if (threadIdx.x < n) p[threadIdx.x] += q[threadIdx.x]; }
__global__ void even(float* p, int odd) { p[2 * threadIdx.x + odd] = 1; }
__global__ void use(float* p) { p[threadIdx.x] = table[threadIdx.x]; }
void look(void* p) { static_cast<float*>(p)[0] += 1; }
int main() {
  const int n = 64;
  float *d, *e, *f, *g, *m, *p, h[n] = {}, x = 0;
  cudaMalloc(&d, 256); cudaMalloc(&e, 256); cudaMalloc(&g, 256); cudaMallocManaged(&m, 256); cudaMallocHost(&p, 256);
  cudaMemset(d, 0, 256); cudaMemset(e, 0, 256); cudaMemset(g, 0, 256);
  for (int i = 0; i < n; i++) m[i] = p[i] = i;
  cudaStream_t s, t, u;
  cudaStreamCreate(&s); cudaStreamCreate(&t); cudaStreamCreateWithFlags(&u, cudaStreamNonBlocking);
  cudaEvent_t event, other, fresh, ring;
  cudaEventCreate(&event); cudaEventCreate(&other); cudaEventCreate(&fresh); cudaEventCreate(&ring);
  cudaGraph_t captured; cudaGraphExec_t graph;
  cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
  fill<<<1, 64, 0, s>>>(g, n);
  cudaStreamEndCapture(s, &captured); cudaGraphInstantiate(&graph, captured);
"""


def _program() -> tuple[str, dict[str, tuple[range, int, int]]]:
    """Return one program of all cases, and of each its lines, the finding's and the other party's."""
    text, places = PROGRAM, {}
    for name, case in CASES.items():
        first = text.count("\n") + 1
        text += "  {\n" + case["body"].replace(";;", "\n") + "\n  }\n  cudaDeviceSynchronize();\n"
        lines = text.splitlines()
        here = range(first, len(lines) + 1)
        marked = [[number for number in here if re.search(rf"// &?@?{mark}", lines[number - 1])] for mark in "@&"]
        places[name] = (here, *(numbers[0] if numbers else 0 for numbers in marked))
    return text + '  std::printf("%g", x);\n}\n', places


@pytest.fixture(scope="module")
def findings() -> tuple[KernelFinding, ...]:
    return run(_program()[0], check=True).findings


@pytest.mark.parametrize("name", CASES)
def test_each_order_is_judged(name: str, findings: tuple[KernelFinding, ...]) -> None:
    here, line, other = _program()[1][name]
    found = [one for one in findings if one.line in here]
    if CASES[name]["kind"] == "nothing":
        assert not found
    else:
        assert [(one.kind, one.line) for one in found] == [(CASES[name]["kind"], line)]
        assert not other or found[0].other_line == other
        assert ("did nothing" in found[0].message) == (name == "S7")


def test_without_check_nothing_is_said_of_order() -> None:
    source = (
        "#include <cstdio>\n__global__ void k(int* p) { *p = 3; }\nint main() { int* m; cudaMallocManaged(&m, 4);\n"
    )
    result = run(source + 'k<<<1, 1>>>(m); std::printf("%d", *m); }')
    assert (result.stdout, result.findings) == ("3", ())


def test_after_a_fault_the_host_is_not_told_to_wait() -> None:
    source = """__global__ void k(int* p) { p[99] = 3; }
int main() {
  int *d, *p; cudaMalloc(&d, 4); cudaMallocHost(&p, 4); cudaMemset(d, 0, 4);
  cudaMemcpyAsync(p, d, 4, cudaMemcpyDeviceToHost); k<<<1, 1>>>(d); cudaDeviceSynchronize(); return p[0];
}"""
    assert [one.kind for one in run(source, check=True).findings] == ["out_of_bounds"]
