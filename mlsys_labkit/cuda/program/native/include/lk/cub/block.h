// block.h: CUB's block-wide reductions, scans, sorts, exchanges, loads and stores.
//
// As with CUB, TempStorage may be used again only behind a __syncthreads() of the caller's; --check reports it otherwise.
#pragma once

#include "lk/cub/common.h"

namespace cub {

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};
enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };

namespace lk_detail {

// Storage that the caller may give or leave out; where it is left out, one for the type is used.
template <class Storage>
class InBlock {
public:
    using TempStorage = Storage;
    InBlock() : storage_(own()) {}
    explicit InBlock(TempStorage& storage) : storage_(storage) {}

protected:
    Storage& storage_;

private:
    static Storage& own() {
        static __shared__ Storage storage;
        return storage;
    }
};

template <class T, int count>
struct alignas(16) Slots {
    alignas(T) char bytes[sizeof(T) * count];
    T& operator[](int i) { return reinterpret_cast<T*>(bytes)[i]; }
};

}  // namespace lk_detail

template <class T, int x, BlockReduceAlgorithm algorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int y = 1, int z = 1, int arch = 0>
class BlockReduce : public lk_detail::InBlock<lk_detail::Slots<T, x * y * z>> {
    static constexpr int threads = x * y * z;

public:
    using lk_detail::InBlock<lk_detail::Slots<T, x * y * z>>::InBlock;

    // The result is the first thread's; the others get a part of it.
    template <class Operation>
    T Reduce(T value, Operation operation, int valid = threads) {
        const int thread = lk_detail::thread_of<y, z>(x);
        this->storage_[thread] = value;
        for (int width = 1; width < threads; width *= 2) {
            __syncthreads();
            if (thread % (2 * width) == 0 && thread + width < valid) {
                value = operation(value, this->storage_[thread + width]);
                this->storage_[thread] = value;
            }
        }
        return value;
    }
    template <int items, class Operation>
    T Reduce(T (&values)[items], Operation operation) {
        T value = values[0];
        for (int i = 1; i < items; ++i) value = operation(value, values[i]);
        return Reduce(value, operation);
    }
    T Sum(T value) { return Reduce(value, cub::Sum()); }
    T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
    template <int items>
    T Sum(T (&values)[items]) { return Reduce(values, cub::Sum()); }
};

template <class T, int x, BlockScanAlgorithm algorithm = BLOCK_SCAN_RAKING, int y = 1, int z = 1, int arch = 0>
class BlockScan : public lk_detail::InBlock<lk_detail::Slots<T, 2 * x * y * z>> {
    static constexpr int threads = x * y * z;

public:
    using lk_detail::InBlock<lk_detail::Slots<T, 2 * x * y * z>>::InBlock;

    template <class Operation>
    void InclusiveScan(T input, T& output, Operation operation) { output = scanned(input, operation); }
    template <class Operation>
    void InclusiveScan(T input, T& output, Operation operation, T& aggregate) {
        output = scanned(input, operation);
        aggregate = total();
    }
    template <class Operation>
    void ExclusiveScan(T input, T& output, T initial, Operation operation) {
        scanned(input, operation);
        output = before(initial, operation);
    }
    template <class Operation>
    void ExclusiveScan(T input, T& output, T initial, Operation operation, T& aggregate) {
        ExclusiveScan(input, output, initial, operation);
        aggregate = total();
    }
    template <class Operation>
    void ExclusiveScan(T input, T& output, Operation operation) {
        scanned(input, operation);
        if (thread() > 0) output = result(thread() - 1);
    }
    template <int items, class Operation>
    void InclusiveScan(T (&input)[items], T (&output)[items], Operation operation) {
        const T sum = folded(input, operation);
        scanned(sum, operation);
        T running = input[0];
        if (thread() > 0) running = operation(result(thread() - 1), input[0]);
        output[0] = running;
        for (int i = 1; i < items; ++i) output[i] = running = operation(running, input[i]);
    }
    template <int items, class Operation>
    void InclusiveScan(T (&input)[items], T (&output)[items], Operation operation, T& aggregate) {
        InclusiveScan(input, output, operation);
        aggregate = total();
    }
    template <int items, class Operation>
    void ExclusiveScan(T (&input)[items], T (&output)[items], T initial, Operation operation) {
        scanned(folded(input, operation), operation);
        T running = before(initial, operation);
        for (int i = 0; i < items; ++i) {
            const T value = input[i];
            output[i] = running;
            running = operation(running, value);
        }
    }
    template <int items, class Operation>
    void ExclusiveScan(T (&input)[items], T (&output)[items], T initial, Operation operation, T& aggregate) {
        ExclusiveScan(input, output, initial, operation);
        aggregate = total();
    }
    // A prefix of the whole block, which the first warp's threads are asked for, as for a running total over tiles.
    template <class Input, class Prefix, class = decltype(std::declval<Prefix&>()(std::declval<T>()))>
    void InclusiveSum(Input& input, Input& output, Prefix& prefix) {
        InclusiveSum(input, output);
        const T start = asked(prefix);
        shift(output, start);
    }
    template <class Input, class Prefix, class = decltype(std::declval<Prefix&>()(std::declval<T>()))>
    void ExclusiveSum(Input& input, Input& output, Prefix& prefix) {
        ExclusiveSum(input, output);
        const T start = asked(prefix);
        shift(output, start);
    }
    void InclusiveSum(T input, T& output) { InclusiveScan(input, output, cub::Sum()); }
    void InclusiveSum(T input, T& output, T& aggregate) { InclusiveScan(input, output, cub::Sum(), aggregate); }
    void ExclusiveSum(T input, T& output) { ExclusiveScan(input, output, T(), cub::Sum()); }
    void ExclusiveSum(T input, T& output, T& aggregate) { ExclusiveScan(input, output, T(), cub::Sum(), aggregate); }
    template <int items>
    void InclusiveSum(T (&input)[items], T (&output)[items]) { InclusiveScan(input, output, cub::Sum()); }
    template <int items>
    void InclusiveSum(T (&input)[items], T (&output)[items], T& aggregate) { InclusiveScan(input, output, cub::Sum(), aggregate); }
    template <int items>
    void ExclusiveSum(T (&input)[items], T (&output)[items]) { ExclusiveScan(input, output, T(), cub::Sum()); }
    template <int items>
    void ExclusiveSum(T (&input)[items], T (&output)[items], T& aggregate) {
        ExclusiveScan(input, output, T(), cub::Sum(), aggregate);
    }

private:
    static int thread() { return lk_detail::thread_of<y, z>(x); }
    T& result(int of) { return this->storage_[last_ * threads + of]; }
    T total() { return result(threads - 1); }
    template <class Operation>
    T before(T initial, Operation operation) { return thread() > 0 ? T(operation(initial, result(thread() - 1))) : initial; }

    template <class Operation>
    T scanned(T value, Operation operation) {
        last_ = 0;
        result(thread()) = value;
        __syncthreads();
        for (int width = 1; width < threads; width *= 2) {  // one half of the storage is read, the other written
            const T sum = thread() >= width ? T(operation(result(thread() - width), result(thread()))) : result(thread());
            last_ ^= 1;
            result(thread()) = sum;
            __syncthreads();
        }
        return result(thread());
    }
    template <int items, class Operation>
    static T folded(T (&input)[items], Operation operation) {
        T sum = input[0];
        for (int i = 1; i < items; ++i) sum = operation(sum, input[i]);
        return sum;
    }
    template <class Prefix>
    T asked(Prefix& prefix) {
        const T whole = total();
        T& slot = this->storage_[(last_ ^ 1) * threads];
        if (thread() < 32) {
            const T start = prefix(whole);
            if (thread() == 0) slot = start;
        }
        __syncthreads();
        return slot;
    }
    static void shift(T& output, T start) { output = start + output; }
    template <int items>
    static void shift(T (&output)[items], T start) {
        for (T& value : output) value = start + value;
    }

    int last_ = 0;
};

template <class T, int x, int items, BlockLoadAlgorithm algorithm = BLOCK_LOAD_DIRECT, int y = 1, int z = 1, int arch = 0>
class BlockLoad : public lk_detail::InBlock<char[16]> {
    static constexpr int stride = algorithm == BLOCK_LOAD_STRIPED ? x * y * z : 1;

public:
    using lk_detail::InBlock<char[16]>::InBlock;
    template <class Iterator>
    void Load(Iterator from, T (&values)[items]) {
        for (int i = 0; i < items; ++i) values[i] = from[place(i)];
    }
    template <class Iterator>
    void Load(Iterator from, T (&values)[items], int valid) {
        for (int i = 0; i < items; ++i) {
            if (place(i) < valid) values[i] = from[place(i)];
        }
    }
    template <class Iterator, class Default>
    void Load(Iterator from, T (&values)[items], int valid, Default otherwise) {
        for (int i = 0; i < items; ++i) values[i] = place(i) < valid ? T(from[place(i)]) : T(otherwise);
    }

private:
    static int place(int i) {
        const int thread = lk_detail::thread_of<y, z>(x);
        return stride == 1 ? thread * items + i : thread + i * stride;
    }
};

template <class T, int x, int items, BlockStoreAlgorithm algorithm = BLOCK_STORE_DIRECT, int y = 1, int z = 1, int arch = 0>
class BlockStore : public lk_detail::InBlock<char[16]> {
    static constexpr int stride = algorithm == BLOCK_STORE_STRIPED ? x * y * z : 1;

public:
    using lk_detail::InBlock<char[16]>::InBlock;
    template <class Iterator>
    void Store(Iterator to, T (&values)[items], int valid = x * y * z * items) {
        for (int i = 0; i < items; ++i) {
            const int at = stride == 1 ? lk_detail::thread_of<y, z>(x) * items + i : lk_detail::thread_of<y, z>(x) + i * stride;
            if (at < valid) to[at] = values[i];
        }
    }
};

}  // namespace cub
