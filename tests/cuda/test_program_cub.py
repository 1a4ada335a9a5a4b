"""CUB in whole programs: block, warp and device primitives, against numpy and plain loops on the host."""

from __future__ import annotations

import numpy as np
import pytest

from mlsys_labkit.cuda import CudaCompileError, run_program

BLOCK = """#include <cstdio>
#include <cub/cub.cuh>
__device__ int input(int i) { return i * 37 % 101 - 50; }
__global__ void k(int* out, int n) {
  typedef cub::BlockReduce<int, 128> Reduce; typedef cub::BlockScan<int, 128> Scan;
  typedef cub::BlockRadixSort<int, 128, 2, int> Sort; typedef cub::BlockExchange<int, 128, 2> Exchange;
  __shared__ union { Reduce::TempStorage reduce; Scan::TempStorage scan; Sort::TempStorage sort;
      Exchange::TempStorage move; } s;
  int t = threadIdx.x, v = input(t), total;
  int sum = Reduce(s.reduce).Sum(v); __syncthreads();
  int best = Reduce(s.reduce).Reduce(v, cub::Max(), n); __syncthreads();
  if (t == 0) { out[0] = sum; out[1] = best; }
  Scan(s.scan).ExclusiveSum(v, v, total); __syncthreads();
  out[2 + t] = v; if (t == 5) out[130] = total;
  int pair[2] = {input(2 * t), input(2 * t + 1)}, where[2] = {2 * t, 2 * t + 1};
  Scan(s.scan).InclusiveSum(pair, pair); __syncthreads();
  out[131 + 2 * t] = pair[0]; out[132 + 2 * t] = pair[1];
  int key[2] = {input(2 * t), input(2 * t + 1)};
  Sort(s.sort).Sort(key, where); __syncthreads();
  for (int i = 0; i < 2; ++i) { out[387 + 2 * t + i] = key[i]; out[643 + 2 * t + i] = where[i]; }
  Exchange(s.move).BlockedToStriped(where);
  out[899 + t] = where[0]; out[1027 + t] = where[1];
  __shared__ cub::WarpReduce<int, 16>::TempStorage w[8];
  int part = cub::WarpReduce<int, 16>(w[t / 16]).Sum(input(t));
  if (t % 16 == 0) out[1155 + t / 16] = part;
  __shared__ cub::WarpScan<int>::TempStorage ws[4];
  cub::WarpScan<int>(ws[t / 32]).InclusiveScan(input(t), part, cub::Min());
  out[1163 + t] = part;
}
int main() { int *d, h[1291]; cudaMalloc(&d, sizeof h); k<<<1, 128>>>(d, 70);
  printf("%s", cudaGetErrorString(cudaDeviceSynchronize())); cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
  for (int x : h) printf(" %d", x); }
"""


def test_block_and_warp_primitives_match_numpy() -> None:
    result = run_program(BLOCK, backend="simulator")
    error, out = result.stdout[:8], np.array(result.stdout[8:].split(), int)
    assert error == "no error"
    x = np.arange(256) * 37 % 101 - 50
    first = x[:128]
    assert out[:2].tolist() == [first.sum(), x[:70].max()]
    np.testing.assert_array_equal(out[2:131], [0, *first.cumsum()])
    np.testing.assert_array_equal(out[131:387], x.cumsum())
    order = x.argsort(kind="stable")
    np.testing.assert_array_equal(out[387:643], x[order])
    np.testing.assert_array_equal(out[643:899], order)
    np.testing.assert_array_equal(out[899:1155], order)
    np.testing.assert_array_equal(out[1155:1163], first.reshape(8, 16).sum(1))
    np.testing.assert_array_equal(out[1163:], np.minimum.accumulate(first.reshape(4, 32), axis=1).ravel())


def test_check_finds_storage_used_again_without_a_barrier() -> None:
    assert not run_program(BLOCK, check=True).findings
    wrong = BLOCK.replace("int sum = Reduce(s.reduce).Sum(v); __syncthreads();", "int sum = Reduce(s.reduce).Sum(v);")
    assert "race" in str(run_program(wrong, check=True))


DEVICE = """#include <cstdio>
#include <vector>
#include <cub/cub.cuh>
template <class Call> void twice(Call call) {
  void* d = nullptr; size_t bytes = 0; call(d, bytes); cudaMalloc(&d, bytes); printf("%d ", int(call(d,
      bytes))); cudaFree(d);
}
template <class T> void show(T* d, int n) {
  std::vector<T> h(n); cudaMemcpy(h.data(), d, n * sizeof(T), cudaMemcpyDeviceToHost);
  for (T x : h) printf("%g ", double(x)); puts("");
}
struct Odd { __host__ __device__ bool operator()(int x) const { return x & 1; } };
int main() {
  const int n = 10; float h[n] = {3, -1.5, 7, 0, -8, 7, 2, 2, -0.0, 5}; int index[n] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  float *x, *y; int *i, *j, *count; cudaMalloc(&x, 40); cudaMalloc(&y, 40); cudaMalloc(&i, 40); cudaMalloc(&j, 40);
  cudaMalloc(&count, 4); cudaMemcpy(x, h, 40, cudaMemcpyHostToDevice); cudaMemcpy(i, index, 40, cudaMemcpyHostToDevice);
  twice([&](void* d, size_t& b) { return cub::DeviceReduce::Sum(d, b, x, y, n); }); show(y, 1);
  twice([&](void* d, size_t& b) { return cub::DeviceReduce::Min(d, b, x, y, n); }); show(y, 1);
  twice([&](void* d, size_t& b) { return cub::DeviceScan::ExclusiveSum(d, b, i, j, n); }); show(j, n);
  twice([&](void* d, size_t& b) { return cub::DeviceScan::InclusiveScan(d, b, x, y, cub::Max(), n); }); show(y, n);
  twice([&](void* d, size_t& b) { return cub::DeviceRadixSort::SortPairs(d, b, x, y, i, j, n); }); show(y, n);
      show(j, n);
  twice([&](void* d, size_t& b) { return cub::DeviceRadixSort::SortKeysDescending(d, b, i, j, n, 0, 1); }); show(j, n);
  cub::DoubleBuffer<float> keys(x, y);
  twice([&](void* d, size_t& b) { return cub::DeviceRadixSort::SortKeys(d, b, keys, n); }); show(keys.Current(), n);
  twice([&](void* d, size_t& b) { return cub::DeviceSelect::If(d, b, i, j, count, n, Odd()); }); show(j, 5);
      show(count, 1);
  twice([&](void* d, size_t& b) { return cub::DeviceHistogram::HistogramEven(d, b, i, j, 4, 0, 9, n); }); show(j, 3);
}
"""


def test_device_primitives_match_numpy() -> None:
    x = np.array([3, -1.5, 7, 0, -8, 7, 2, 2, -0.0, 5])
    order = x.argsort(kind="stable")
    expected = [
        [x.sum()], [x.min()], [0, *np.arange(9).cumsum()], np.maximum.accumulate(x), x[order], order,
        [1, 3, 5, 7, 9, 0, 2, 4, 6, 8], np.sort(x), [1, 3, 5, 7, 9], [5], np.histogram(range(9), 3, (0, 9))[0],
    ]  # fmt: skip
    said = run_program(DEVICE, backend="simulator").stdout.strip().split("\n")
    for line, want in zip(said, expected, strict=True):
        numbers = [float(one) for one in line.split()]
        assert numbers[-len(want) :] == [float(one) for one in want], line


def test_what_is_left_out_of_cub_is_named() -> None:
    source = """#include <cub/cub.cuh>
    int main() { size_t b; cub::DeviceSegmentedSort::SortKeys(nullptr, b, (int*)0, (int*)0, 1, 1, (int*)0,
        (int*)0); }"""
    with pytest.raises(
        CudaCompileError, match=r"line 2: cub::DeviceSegmentedSort: left out of the simulator"
    ) as refused:
        run_program(source, backend="simulator")
    assert "template" not in str(refused.value)


def test_thrust_sorts_with_functors_and_allocates() -> None:
    source = """#include <cstdio>
    #include <thrust/device_malloc.h>
    #include <thrust/device_free.h>
    #include <thrust/device_vector.h>
    #include <thrust/extrema.h>
    #include <thrust/fill.h>
    #include <thrust/sort.h>
    #include <thrust/transform_reduce.h>
    struct Last { __host__ __device__ bool operator()(int a, int b) { return a % 10 < b % 10; } };
    int main() {
      thrust::device_vector<int> k{31, 12, 23}, v{1, 2, 3};
      thrust::sort_by_key(k.begin(), k.end(), v.begin(), Last()); printf("%d%d%d ", int(v[0]), int(v[1]), int(v[2]));
      auto both = thrust::minmax_element(k.begin(), k.end(), [] __host__ __device__ (int a, int b) { return a < b; });
      printf("%d %d ", int(*both.first), int(*both.second));
      thrust::device_ptr<int> p = thrust::device_malloc<int>(4); thrust::fill(p, p + 4, 7);
      printf("%d ", thrust::reduce(p, p + 4)); thrust::device_free(p);
      typedef thrust::pair<int, int> P;
      P r = thrust::transform_reduce(k.begin(), k.end(), [] __device__ (int x) { return P(x, x); }, P(99, -99),
        [] __device__ (P a, P b) { return P(a.first < b.first ? a.first : b.first,
            a.second > b.second ? a.second : b.second); });
      printf("%d %d", r.first, r.second);
    }"""
    assert run_program(source, backend="simulator").stdout == "123 12 31 28 12 31"
