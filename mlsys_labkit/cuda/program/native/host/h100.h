// h100.h: the limits of the virtual GPU, which are those of compute capability 9.0: CUDA C++ Programming Guide,
// "Technical specifications per compute capability".
#pragma once

#include <cstddef>

namespace lk::host::h100 {

constexpr size_t kib = 1024;
constexpr int multiprocessors = 132;
constexpr int threads_of_block = 1024;
constexpr int warps_of_multiprocessor = 64;
constexpr int blocks_of_multiprocessor = 32;
constexpr size_t shared_bytes_by_default = 48 * kib;
constexpr size_t shared_bytes_of_block = 227 * kib;
constexpr size_t shared_bytes_of_multiprocessor = 228 * kib;
constexpr size_t reserved_shared_bytes = 1 * kib;
constexpr size_t texture_pitch_alignment = 32;

}  // namespace lk::host::h100
