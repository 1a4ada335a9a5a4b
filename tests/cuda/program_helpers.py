"""A small program, and its run."""

from __future__ import annotations

from mlsys_labkit.cuda import run_program

HELLO = """
#include <cstdio>
#define N 5
const int M = 7;
__global__ void mark(int* p) { p[threadIdx.x] = 1; }
int main(int count, char** arguments) {
  int* d;
  cudaMalloc(&d, 64 * sizeof(int));
  for (int i = 0; i < N; ++i) mark<<<1, M>>>(d);
  std::printf("%d %d %d", N, M, count);
  for (int i = 1; i < count; ++i) std::printf(" %s", arguments[i]);
  std::printf("\\n");
}
"""


def run(source: str, *args: object, **options: object):
    return run_program(source, args, **{"backend": "simulator", **options})
