// warp.h: CUB's reductions and scans over a warp, or a part of one of 2, 4, 8, 16 or 32 lanes, by shuffles.
#pragma once

#include "lk/cub/common.h"

namespace cub {

namespace lk_detail {

template <class T, int width>
class InWarp {
public:
    struct TempStorage {
        char unused;
    };
    explicit InWarp(TempStorage&) {}

protected:
    static_assert(width >= 1 && width <= 32 && (width & (width - 1)) == 0, "cub: a part of a warp has 2, 4, 8, 16 or 32 lanes");
    static int lane() {
        const int thread = (int(threadIdx.z) * int(blockDim.y) + int(threadIdx.y)) * int(blockDim.x) + int(threadIdx.x);
        return thread % width;
    }
    static unsigned mask() {
        const int thread = (int(threadIdx.z) * int(blockDim.y) + int(threadIdx.y)) * int(blockDim.x) + int(threadIdx.x);
        return width == 32 ? 0xffffffffu : ((1u << width) - 1) << (thread % 32 / width * width);
    }
    // Any type, four bytes at a time.
    static T from(T value, int source) {
        constexpr int words = int((sizeof(T) + 3) / 4);
        unsigned parts[words] = {};
        __builtin_memcpy(parts, &value, sizeof value);
        for (unsigned& part : parts) part = __shfl_sync(mask(), part, source, width);
        __builtin_memcpy(&value, parts, sizeof value);
        return value;
    }
};

}  // namespace lk_detail

template <class T, int width = 32, int arch = 0>
class WarpReduce : public lk_detail::InWarp<T, width> {
    using Base = lk_detail::InWarp<T, width>;

public:
    using Base::Base;
    // The result is the first lane's; the others get a part of it.
    template <class Operation>
    T Reduce(T value, Operation operation, int valid = width) {
        for (int step = 1; step < width; step *= 2) {
            const int source = Base::lane() + step;
            const T other = Base::from(value, source < width ? source : Base::lane());
            if (Base::lane() % (2 * step) == 0 && source < valid) value = operation(value, other);
        }
        return value;
    }
    T Sum(T value) { return Reduce(value, cub::Sum()); }
    T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
};

template <class T, int width = 32, int arch = 0>
class WarpScan : public lk_detail::InWarp<T, width> {
    using Base = lk_detail::InWarp<T, width>;

public:
    using Base::Base;
    template <class Operation>
    void InclusiveScan(T input, T& output, Operation operation) {
        for (int step = 1; step < width; step *= 2) {
            const int source = Base::lane() - step;
            const T other = Base::from(input, source >= 0 ? source : Base::lane());
            if (source >= 0) input = operation(other, input);
        }
        output = input;
    }
    template <class Operation>
    void InclusiveScan(T input, T& output, Operation operation, T& aggregate) {
        InclusiveScan(input, output, operation);
        aggregate = Base::from(output, width - 1);
    }
    template <class Operation>
    void ExclusiveScan(T input, T& output, T initial, Operation operation) {
        T sum;
        InclusiveScan(input, sum, operation);
        const T before = Base::from(sum, Base::lane() > 0 ? Base::lane() - 1 : 0);
        output = Base::lane() > 0 ? T(operation(initial, before)) : initial;
    }
    template <class Operation>
    void ExclusiveScan(T input, T& output, T initial, Operation operation, T& aggregate) {
        T sum;
        InclusiveScan(input, sum, operation, aggregate);
        ExclusiveScan(input, output, initial, operation);
    }
    void InclusiveSum(T input, T& output) { InclusiveScan(input, output, cub::Sum()); }
    void InclusiveSum(T input, T& output, T& aggregate) { InclusiveScan(input, output, cub::Sum(), aggregate); }
    void ExclusiveSum(T input, T& output) { ExclusiveScan(input, output, T(), cub::Sum()); }
    void ExclusiveSum(T input, T& output, T& aggregate) { ExclusiveScan(input, output, T(), cub::Sum(), aggregate); }
    T Broadcast(T input, unsigned source) { return Base::from(input, int(source)); }
};

}  // namespace cub
