// device_heap.h: malloc and free inside kernels. As on a GPU, what is not freed stays from launch to launch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lk {

// As cudaLimitMallocHeapSize is by default, times eight: there is no host call here to raise it.
constexpr size_t kDeviceHeapBytes = 64 << 20;
constexpr size_t kHeapRegionBytes = kDeviceHeapBytes + (64 << 10);  // with what is kept about it, in pages of its own

// Takes the heap from zeroed memory that other processes map at the same address: a pointer is valid in all of them. Without
// this call the first allocation takes memory of this process.
void heap_open(void* shared);

void* heap_allocate(size_t bytes);  // 16-byte aligned; nullptr when the heap is full
bool heap_release(void* pointer);   // false when it is not the beginning of an allocation
bool in_heap(const void* pointer);
uint64_t heap_begin();              // 0 before the first allocation

}  // namespace lk
