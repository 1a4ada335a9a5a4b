// common.h: what CUB's parts share. Results are CUB's; how often a kernel touches shared memory in them is not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

#include "cuda_bf16.h"  // NVIDIA's CUB brings these two as well
#include "cuda_fp16.h"
#include "lk/host/memory.h"
#include "lk/host/streams.h"
#include "lk/thrust/execution.h"
#include "lk/thrust/functional.h"

namespace cub {

struct Sum {
    template <class A, class B>
    constexpr auto operator()(const A& a, const B& b) const { return a + b; }
};
struct Difference {
    template <class A, class B>
    constexpr auto operator()(const A& a, const B& b) const { return a - b; }
};
struct Max {
    template <class A, class B>
    constexpr std::common_type_t<A, B> operator()(const A& a, const B& b) const {
        return a < b ? b : a;
    }
};
struct Min {
    template <class A, class B>
    constexpr std::common_type_t<A, B> operator()(const A& a, const B& b) const {
        return b < a ? b : a;
    }
};
struct Equality {
    template <class A, class B>
    constexpr bool operator()(const A& a, const B& b) const { return a == b; }
};
struct Inequality {
    template <class A, class B>
    constexpr bool operator()(const A& a, const B& b) const { return a != b; }
};

template <class Key, class Value>
struct KeyValuePair {
    typedef Key key_type;
    typedef Value value_type;
    Key key;
    Value value;
    bool operator!=(const KeyValuePair& other) const { return key != other.key || value != other.value; }
};
// The pair with the larger (smaller) value; of equal ones that with the smaller key.
struct ArgMax {
    template <class T>
    constexpr T operator()(const T& a, const T& b) const {
        return b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};
struct ArgMin {
    template <class T>
    constexpr T operator()(const T& a, const T& b) const {
        return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};

struct NullType {};

template <class T>
struct DoubleBuffer {
    T* d_buffers[2] = {nullptr, nullptr};
    int selector = 0;
    DoubleBuffer() = default;
    DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
    T* Current() { return d_buffers[selector]; }
    T* Alternate() { return d_buffers[selector ^ 1]; }
};

template <class T>
struct Uninitialized {
    alignas(T) char storage[sizeof(T)];
    T& Alias() { return *reinterpret_cast<T*>(this); }
};

template <class A, class B>
constexpr auto DivideAndRoundUp(A a, B b) { return (a + b - 1) / b; }

inline unsigned LaneId() { return threadIdx.x % 32; }

namespace lk_detail {

template <int y, int z>
int thread_of(int x_size) {
    if constexpr (y == 1 && z == 1) {
        return int(threadIdx.x);
    } else {
        return (int(threadIdx.z) * y + int(threadIdx.y)) * x_size + int(threadIdx.x);
    }
}

// Of a key: the digits from begin to end, in the order in which radix sort compares them.
template <class Key>
unsigned long long digits(Key key, int begin, int end) {
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &key, sizeof key);
    const unsigned long long top = 1ull << (8 * sizeof(Key) - 1);
    if constexpr (std::is_floating_point_v<Key> || (!std::is_integral_v<Key> && sizeof(Key) == 2)) {
        if (bits == top) bits = 0;  // -0.0 and 0.0 are equal keys
        bits = bits & top ? ~bits : bits | top;
    } else if constexpr (std::is_signed_v<Key>) {
        bits ^= top;
    }
    const int count = end - begin;
    return (bits >> begin) & (count >= 64 ? ~0ull : (1ull << count) - 1);
}

}  // namespace lk_detail

}  // namespace cub

// CUDA 13 has these instead of cub::Sum and cub::Max.
namespace cuda {
template <class T = void>
using minimum = thrust::minimum<T>;
template <class T = void>
using maximum = thrust::maximum<T>;
}  // namespace cuda
