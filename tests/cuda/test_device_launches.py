"""Kernels that kernels launch (dynamic parallelism)."""

from __future__ import annotations

import pytest

from tests.cuda.program_helpers import run

TREE = """#include <cstdio>
struct Pair { char a; int b; };
__global__ void leaf(int* data, Pair pair) { data[4 * pair.a + threadIdx.x] += pair.b; }
template <class T> __global__ void add(T* data, T value) { data[threadIdx.x] += value; }
__global__ void last(int* data) { printf("last sees %d\\n", data[0]); }
__global__ void tree(int* data, int depth) {
  if (threadIdx.x != 0) return;
  if (depth == 0) {
    leaf<<<1, 4>>>(data, Pair{char(blockIdx.x), 3});
    return;
  }
  last<<<1, 1, 0, cudaStreamTailLaunch>>>(data);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  tree<<<2, 32, 0, stream>>>(data, depth - 1);
  add<<<1, 2>>>(data, 10);
  cudaStreamDestroy(stream);
}
int main() {
  int* data;
  cudaMallocManaged(&data, 9 * sizeof(int));
  for (int i = 0; i < 9; ++i) data[i] = 0;
  tree<<<1, 32>>>(data, 2);
  printf("%s:", cudaGetErrorString(cudaDeviceSynchronize()));
  for (int i = 0; i < 9; ++i) printf(" %d", data[i]);
}"""


@pytest.mark.parametrize("check", [False, True])
def test_children_run_before_their_parent_is_complete_and_tail_launches_after_them(check: bool) -> None:
    result = run(TREE, check=check)
    # Two blocks of the second level each launch two leaves and one add; the first level launches one add.
    assert result.stdout.splitlines() == [*["last sees 26"] * 2, "last sees 36", "no error: 36 36 6 6 6 6 6 6 0"]
    assert result.findings == ()
    assert len(result.launches) == 14


def test_a_childs_fault_names_its_own_line() -> None:
    source = """__global__ void child(int* p) {
  p[8] = 1;
}
__global__ void parent(int* p) { child<<<1, 1>>>(p); }
int main() {
  int* p; cudaMalloc(&p, 4);
  parent<<<1, 1>>>(p);
  return cudaDeviceSynchronize();
}
"""
    (finding,) = run(source, check=True).findings
    assert (finding.kind, finding.line) == ("out_of_bounds", 2)


def test_a_parents_local_variable_is_no_memory_of_its_child() -> None:
    source = """__global__ void child(int* p) { *p = 1; }
__global__ void parent() { int local = 0; child<<<1, 1>>>(&local); }
int main() { parent<<<1, 1>>>(); return cudaDeviceSynchronize() != cudaErrorIllegalAddress; }"""
    assert run(source).returncode == 0


def test_launches_without_end_stop_at_the_deepest_level() -> None:
    source = """__global__ void again(int* count) { ++*count; again<<<1, 1>>>(count); }
int main() {
  int* count; cudaMallocManaged(&count, 4); *count = 0;
  again<<<1, 1>>>(count); cudaDeviceSynchronize();
  return *count;
}"""
    result = run(source)
    assert result.returncode == 25  # the host's launch, and 24 levels
    assert any("24 levels" in note for note in result.notes)


@pytest.mark.parametrize("check", [False, True])
def test_memory_from_a_kernel_goes_to_its_child(check: bool) -> None:
    source = """#include <cstdio>
struct Line { int* points; };
__global__ void fill(int* p) { p[threadIdx.x] = threadIdx.x + 1; }
__global__ void parent(Line* line) {
  cudaMalloc((void**)&line->points, 32 * sizeof(int));
  fill<<<1, 32>>>(line->points);
}
__global__ void finish(Line* line, int* sum) {
  for (int i = 0; i < 32; ++i) *sum += line->points[i];
  cudaFree(line->points);
}
int main() {
  Line* line; int* sum;
  cudaMalloc(&line, sizeof(Line)); cudaMallocManaged(&sum, sizeof(int)); *sum = 0;
  parent<<<1, 1>>>(line);
  finish<<<1, 1>>>(line, sum);
  const char* said = cudaGetErrorString(cudaDeviceSynchronize());
  printf("%s %d", said, *sum);
}"""
    result = run(source, check=check)
    assert (result.stdout, result.findings) == ("no error 528", ())
