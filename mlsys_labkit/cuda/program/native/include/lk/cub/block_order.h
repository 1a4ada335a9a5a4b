// block_order.h: CUB's block-wide sorts, exchanges, differences and histograms.
#pragma once

#include "lk/cub/block.h"

namespace cub {

namespace lk_detail {

template <class Key, class Value, int count>
struct Sorted {  // not std::pair, whose constructor would keep it out of a union
    Slots<Key, count> first;
    Slots<Value, count> second;
};

}  // namespace lk_detail

template <class Key, int x, int items, class Value = NullType, int bits = 4, bool memoize = true,
          BlockScanAlgorithm algorithm = BLOCK_SCAN_WARP_SCANS, int config = 0, int y = 1, int z = 1, int arch = 0>
class BlockRadixSort
    : public lk_detail::InBlock<lk_detail::Sorted<Key, Value, x * y * z * items>> {
    static constexpr int threads = x * y * z, count = threads * items, all = 8 * sizeof(Key);

public:
    using lk_detail::InBlock<lk_detail::Sorted<Key, Value, x * y * z * items>>::InBlock;

    void Sort(Key (&keys)[items], int begin = 0, int end = all) { sorted<false, false>(keys, none_, begin, end); }
    void SortDescending(Key (&keys)[items], int begin = 0, int end = all) { sorted<true, false>(keys, none_, begin, end); }
    void SortBlockedToStriped(Key (&keys)[items], int begin = 0, int end = all) { sorted<false, true>(keys, none_, begin, end); }
    void SortDescendingBlockedToStriped(Key (&keys)[items], int begin = 0, int end = all) {
        sorted<true, true>(keys, none_, begin, end);
    }
    void Sort(Key (&keys)[items], Value (&values)[items], int begin = 0, int end = all) {
        sorted<false, false>(keys, values, begin, end);
    }
    void SortDescending(Key (&keys)[items], Value (&values)[items], int begin = 0, int end = all) {
        sorted<true, false>(keys, values, begin, end);
    }
    void SortBlockedToStriped(Key (&keys)[items], Value (&values)[items], int begin = 0, int end = all) {
        sorted<false, true>(keys, values, begin, end);
    }

private:
    // Each thread counts, for each of its keys, the keys that come before it.
    template <bool descending, bool striped>
    void sorted(Key (&keys)[items], Value (&values)[items], int begin, int end) {
        const int thread = lk_detail::thread_of<y, z>(x);
        auto& stored = this->storage_.first;
        auto& companions = this->storage_.second;
        for (int i = 0; i < items; ++i) stored[thread * items + i] = keys[i];
        __syncthreads();
        int ranks[items] = {};
        for (int other = 0; other < count; ++other) {
            const auto theirs = lk_detail::digits(stored[other], begin, end);
            for (int i = 0; i < items; ++i) {
                const auto mine = lk_detail::digits(keys[i], begin, end);
                ranks[i] += (descending ? theirs > mine : theirs < mine) || (theirs == mine && other < thread * items + i);
            }
        }
        __syncthreads();
        for (int i = 0; i < items; ++i) {
            stored[ranks[i]] = keys[i];
            if constexpr (!std::is_same_v<Value, NullType>) companions[ranks[i]] = values[i];
        }
        __syncthreads();
        for (int i = 0; i < items; ++i) {
            const int at = striped ? thread + i * threads : thread * items + i;
            keys[i] = stored[at];
            if constexpr (!std::is_same_v<Value, NullType>) values[i] = companions[at];
        }
    }

    Value none_[items];
};

template <class T, int x, int items, bool timeslicing = false, int y = 1, int z = 1, int arch = 0>
class BlockExchange : public lk_detail::InBlock<lk_detail::Slots<T, x * y * z * items>> {
    static constexpr int threads = x * y * z;

public:
    using lk_detail::InBlock<lk_detail::Slots<T, x * y * z * items>>::InBlock;
    void StripedToBlocked(T (&in)[items], T (&out)[items]) { moved<true, false>(in, out); }
    void StripedToBlocked(T (&values)[items]) { moved<true, false>(values, values); }
    void BlockedToStriped(T (&in)[items], T (&out)[items]) { moved<false, true>(in, out); }
    void BlockedToStriped(T (&values)[items]) { moved<false, true>(values, values); }
    template <class Rank>
    void ScatterToBlocked(T (&values)[items], Rank (&ranks)[items]) { scattered<false>(values, ranks); }
    template <class Rank>
    void ScatterToStriped(T (&values)[items], Rank (&ranks)[items]) { scattered<true>(values, ranks); }

private:
    template <bool striped>
    static int place(int i) {
        const int thread = lk_detail::thread_of<y, z>(x);
        return striped ? thread + i * threads : thread * items + i;
    }
    template <bool from_striped, bool to_striped>
    void moved(T (&in)[items], T (&out)[items]) {
        for (int i = 0; i < items; ++i) this->storage_[place<from_striped>(i)] = in[i];
        __syncthreads();
        for (int i = 0; i < items; ++i) out[i] = this->storage_[place<to_striped>(i)];
    }
    template <bool striped, class Rank>
    void scattered(T (&values)[items], Rank (&ranks)[items]) {
        for (int i = 0; i < items; ++i) this->storage_[int(ranks[i])] = values[i];
        __syncthreads();
        for (int i = 0; i < items; ++i) values[i] = this->storage_[place<striped>(i)];
    }
};

template <class T, int x, int y = 1, int z = 1, int arch = 0>
class BlockDiscontinuity : public lk_detail::InBlock<lk_detail::Slots<T, x * y * z>> {
public:
    using lk_detail::InBlock<lk_detail::Slots<T, x * y * z>>::InBlock;
    template <int items, class Flag, class Different>
    void FlagHeads(Flag (&flags)[items], T (&values)[items], Different different) {
        const int thread = lk_detail::thread_of<y, z>(x);
        this->storage_[thread] = values[items - 1];
        __syncthreads();
        flags[0] = thread == 0 ? Flag(1) : Flag(different(this->storage_[thread - 1], values[0]));
        for (int i = 1; i < items; ++i) flags[i] = Flag(different(values[i - 1], values[i]));
    }
    template <int items, class Flag, class Different>
    void FlagTails(Flag (&flags)[items], T (&values)[items], Different different) {
        const int thread = lk_detail::thread_of<y, z>(x);
        this->storage_[thread] = values[0];
        __syncthreads();
        for (int i = 0; i + 1 < items; ++i) flags[i] = Flag(different(values[i], values[i + 1]));
        flags[items - 1] = thread == x * y * z - 1 ? Flag(1) : Flag(different(values[items - 1], this->storage_[thread + 1]));
    }
};

template <class T, int x, int items, int bins, BlockHistogramAlgorithm algorithm = BLOCK_HISTO_SORT, int y = 1, int z = 1,
          int arch = 0>
class BlockHistogram : public lk_detail::InBlock<char[16]> {
public:
    using lk_detail::InBlock<char[16]>::InBlock;
    template <class Counter>
    void InitHistogram(Counter (&histogram)[bins]) {
        for (int i = lk_detail::thread_of<y, z>(x); i < bins; i += x * y * z) histogram[i] = 0;
    }
    template <class Counter>
    void Histogram(T (&values)[items], Counter (&histogram)[bins]) {
        InitHistogram(histogram);
        __syncthreads();
        Composite(values, histogram);
    }
    template <class Counter>
    void Composite(T (&values)[items], Counter (&histogram)[bins]) {
        for (int i = 0; i < items; ++i) atomicAdd(&histogram[int(values[i])], Counter(1));
    }
};

}  // namespace cub
