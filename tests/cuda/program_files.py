"""C++ with which the tests' programs read arrays from files and write them there."""

from __future__ import annotations

FILES = """#include <cstdio>
#include <vector>
#define OK(call) do { int lk = int(call); if (lk) { printf("line %d: %d", __LINE__, lk); return 1; } } while (0)
template <class T> T* load(const char* name, size_t n) {
  std::vector<T> h(n); FILE* f = fopen(name, "rb"); fread(h.data(), sizeof(T), n, f); fclose(f);
  T* d; cudaMalloc(&d, n * sizeof(T)); cudaMemcpy(d, h.data(), n * sizeof(T), cudaMemcpyHostToDevice); return d;
}
template <class T> void save(const char* name, T* d, size_t n) {
  std::vector<T> h(n); cudaMemcpy(h.data(), d, n * sizeof(T), cudaMemcpyDeviceToHost);
  FILE* f = fopen(name, "wb"); fwrite(h.data(), sizeof(T), n, f); fclose(f);
}
"""
