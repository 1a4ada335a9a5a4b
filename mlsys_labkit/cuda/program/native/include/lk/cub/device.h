// device.h: CUB's device-wide calls, one element after the other on the CPU. The first call, without storage, asks for its size.
#pragma once

#include <vector>

#include "lk/cub/common.h"

namespace cub {

namespace lk_detail {

using thrust::lk_detail::Opened;
using thrust::lk_detail::note_reads;
using thrust::lk_detail::unwrapped;
template <class Iterator>
using Value = std::decay_t<decltype(*unwrapped(std::declval<Iterator>()))>;

// Says how much storage is needed, or does the work after what was issued before.
template <class Body>
cudaError_t two_calls(void* storage, size_t& bytes, Body body) {
    if (!storage) {
        bytes = 1;
        return cudaSuccess;
    }
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) return error;
    const Opened open;
    body();
    return cudaSuccess;
}

template <class In, class Out, class T, class Operation, class Count>
void reduce(In in, Out out, Count count, Operation operation, T sum) {
    note_reads(in, count);
    for (Count i = 0; i < count; ++i) sum = operation(sum, in[i]);
    *out = sum;
}

template <class Key, class Item, class Count>
void radix_sort(const Key* keys_in, Key* keys_out, const Item* values_in, Item* values_out, Count count, int begin, int end,
                bool descending) {
    struct One {
        unsigned long long digits;
        Key key;
        Item item;
    };
    note_reads(keys_in, count);
    if (values_in) note_reads(values_in, count);
    std::vector<One> all;
    all.reserve(size_t(count));
    for (Count i = 0; i < count; ++i) {
        all.push_back({digits(keys_in[i], begin, end), keys_in[i], values_in ? values_in[i] : Item()});
    }
    std::stable_sort(all.begin(), all.end(), [descending](const One& a, const One& b) {
        return descending ? a.digits > b.digits : a.digits < b.digits;
    });
    for (Count i = 0; i < count; ++i) {
        keys_out[i] = all[size_t(i)].key;
        if (values_out) values_out[i] = all[size_t(i)].item;
    }
}

}  // namespace lk_detail

struct DeviceReduce {
    template <class In, class Out, class Count, class Operation, class T>
    static cudaError_t Reduce(void* storage, size_t& bytes, In in, Out out, Count count, Operation operation, T initial,
                              cudaStream_t = 0) {
        return lk_detail::two_calls(storage, bytes, [=] {
            lk_detail::reduce(lk_detail::unwrapped(in), lk_detail::unwrapped(out), count, operation, initial);
        });
    }
    template <class In, class Out, class Count>
    static cudaError_t Sum(void* storage, size_t& bytes, In in, Out out, Count count, cudaStream_t = 0) {
        return Reduce(storage, bytes, in, out, count, cub::Sum(), lk_detail::Value<In>());
    }
    template <class In, class Out, class Count>
    static cudaError_t Max(void* storage, size_t& bytes, In in, Out out, Count count, cudaStream_t = 0) {
        return Reduce(storage, bytes, in, out, count, cub::Max(), std::numeric_limits<lk_detail::Value<In>>::lowest());
    }
    template <class In, class Out, class Count>
    static cudaError_t Min(void* storage, size_t& bytes, In in, Out out, Count count, cudaStream_t = 0) {
        return Reduce(storage, bytes, in, out, count, cub::Min(), std::numeric_limits<lk_detail::Value<In>>::max());
    }
    template <class In, class Out, class Count>
    static cudaError_t ArgMax(void* storage, size_t& bytes, In in, Out out, Count count, cudaStream_t = 0) {
        return arg(storage, bytes, in, out, count, cub::ArgMax());
    }
    template <class In, class Out, class Count>
    static cudaError_t ArgMin(void* storage, size_t& bytes, In in, Out out, Count count, cudaStream_t = 0) {
        return arg(storage, bytes, in, out, count, cub::ArgMin());
    }
    template <class Keys, class KeysOut, class Values, class ValuesOut, class Runs, class Operation, class Count>
    static cudaError_t ReduceByKey(void* storage, size_t& bytes, Keys keys, KeysOut keys_out, Values values,
                                   ValuesOut values_out, Runs runs, Operation operation, Count count, cudaStream_t = 0) {
        return lk_detail::two_calls(storage, bytes, [=] {
            Count run = -1;
            for (Count i = 0; i < count; ++i) {
                const bool joins = i > 0 && keys[i] == keys[i - 1];
                if (!joins) keys_out[++run] = keys[i];
                values_out[run] = joins ? operation(values_out[run], values[i]) : values[i];
            }
            *runs = run + 1;
        });
    }

private:
    template <class In, class Out, class Count, class Better>
    static cudaError_t arg(void* storage, size_t& bytes, In in, Out out, Count count, Better better) {
        return lk_detail::two_calls(storage, bytes, [=] {
            KeyValuePair<int, lk_detail::Value<In>> best{0, in[0]};
            for (Count i = 1; i < count; ++i) best = better(best, KeyValuePair<int, lk_detail::Value<In>>{int(i), in[i]});
            *out = best;
        });
    }
};

struct DeviceScan {
    template <class In, class Out, class Operation, class Count>
    static cudaError_t InclusiveScan(void* storage, size_t& bytes, In in, Out out, Operation operation, Count count,
                                     cudaStream_t = 0) {
        return lk_detail::two_calls(storage, bytes, [=] {
            if (count == 0) return;
            const auto from = lk_detail::unwrapped(in);
            lk_detail::note_reads(from, count);
            lk_detail::Value<In> sum = from[0];
            for (Count i = 0; i < count; ++i) {
                if (i > 0) sum = operation(sum, from[i]);
                lk_detail::unwrapped(out)[i] = sum;
            }
        });
    }
    template <class In, class Out, class Operation, class T, class Count>
    static cudaError_t ExclusiveScan(void* storage, size_t& bytes, In in, Out out, Operation operation, T initial, Count count,
                                     cudaStream_t = 0) {
        return lk_detail::two_calls(storage, bytes, [=] {
            lk_detail::note_reads(lk_detail::unwrapped(in), count);
            T sum = initial;
            for (Count i = 0; i < count; ++i) {
                const T value = lk_detail::unwrapped(in)[i];
                lk_detail::unwrapped(out)[i] = sum;
                sum = operation(sum, value);
            }
        });
    }
    template <class In, class Out, class Count>
    static cudaError_t InclusiveSum(void* storage, size_t& bytes, In in, Out out, Count count, cudaStream_t = 0) {
        return InclusiveScan(storage, bytes, in, out, cub::Sum(), count);
    }
    template <class In, class Out, class Count>
    static cudaError_t ExclusiveSum(void* storage, size_t& bytes, In in, Out out, Count count, cudaStream_t = 0) {
        return ExclusiveScan(storage, bytes, in, out, cub::Sum(), lk_detail::Value<In>(), count);
    }
};

struct DeviceRadixSort {
#define LK_SORT(keys_call, pairs_call, descending)                                                                            \
    template <class Key, class Count>                                                                                         \
    static cudaError_t keys_call(void* storage, size_t& bytes, const Key* in, Key* out, Count count, int begin = 0,           \
                                 int end = int(sizeof(Key) * 8), cudaStream_t = 0) {                                          \
        return lk_detail::two_calls(storage, bytes, [=] {                                                                     \
            lk_detail::radix_sort<Key, char>(in, out, nullptr, nullptr, count, begin, end, descending);                       \
        });                                                                                                                   \
    }                                                                                                                         \
    template <class Key, class Count>                                                                                         \
    static cudaError_t keys_call(void* storage, size_t& bytes, DoubleBuffer<Key>& keys, Count count, int begin = 0,           \
                                 int end = int(sizeof(Key) * 8), cudaStream_t = 0) {                                          \
        return lk_detail::two_calls(storage, bytes, [&] {                                                                     \
            lk_detail::radix_sort<Key, char>(keys.Current(), keys.Alternate(), nullptr, nullptr, count, begin, end,           \
                                             descending);                                                                     \
            keys.selector ^= 1;                                                                                               \
        });                                                                                                                   \
    }                                                                                                                         \
    template <class Key, class Item, class Count>                                                                             \
    static cudaError_t pairs_call(void* storage, size_t& bytes, const Key* in, Key* out, const Item* values, Item* values_out, \
                                  Count count, int begin = 0, int end = int(sizeof(Key) * 8), cudaStream_t = 0) {             \
        return lk_detail::two_calls(storage, bytes, [=] {                                                                     \
            lk_detail::radix_sort(in, out, values, values_out, count, begin, end, descending);                                \
        });                                                                                                                   \
    }                                                                                                                         \
    template <class Key, class Item, class Count>                                                                             \
    static cudaError_t pairs_call(void* storage, size_t& bytes, DoubleBuffer<Key>& keys, DoubleBuffer<Item>& values,          \
                                  Count count, int begin = 0, int end = int(sizeof(Key) * 8), cudaStream_t = 0) {             \
        return lk_detail::two_calls(storage, bytes, [&] {                                                                     \
            lk_detail::radix_sort<Key, Item>(keys.Current(), keys.Alternate(), values.Current(), values.Alternate(), count,   \
                                             begin, end, descending);                                                         \
            keys.selector ^= 1;                                                                                               \
            values.selector ^= 1;                                                                                             \
        });                                                                                                                   \
    }
    LK_SORT(SortKeys, SortPairs, false)
    LK_SORT(SortKeysDescending, SortPairsDescending, true)
#undef LK_SORT
};

struct DeviceSelect {
    template <class In, class Flags, class Out, class Chosen, class Count>
    static cudaError_t Flagged(void* storage, size_t& bytes, In in, Flags flags, Out out, Chosen chosen, Count count,
                               cudaStream_t = 0) {
        return kept(storage, bytes, in, out, chosen, count, [=](Count i) { return bool(flags[i]); });
    }
    template <class In, class Out, class Chosen, class Count, class Predicate>
    static cudaError_t If(void* storage, size_t& bytes, In in, Out out, Chosen chosen, Count count, Predicate predicate,
                          cudaStream_t = 0) {
        return kept(storage, bytes, in, out, chosen, count, [=](Count i) mutable { return bool(predicate(in[i])); });
    }
    template <class In, class Out, class Chosen, class Count>
    static cudaError_t Unique(void* storage, size_t& bytes, In in, Out out, Chosen chosen, Count count, cudaStream_t = 0) {
        return kept(storage, bytes, in, out, chosen, count, [=](Count i) { return i == 0 || !(in[i] == in[i - 1]); });
    }

private:
    template <class In, class Out, class Chosen, class Count, class Wanted>
    static cudaError_t kept(void* storage, size_t& bytes, In in, Out out, Chosen chosen, Count count, Wanted wanted) {
        return lk_detail::two_calls(storage, bytes, [=]() mutable {
            lk_detail::note_reads(in, count);
            Count number = 0;
            for (Count i = 0; i < count; ++i) {
                if (wanted(i)) out[number++] = in[i];
            }
            *chosen = number;
        });
    }
};

struct DeviceHistogram {
    template <class Sample, class Counter, class Level, class Count>
    static cudaError_t HistogramEven(void* storage, size_t& bytes, Sample samples, Counter* histogram, int levels, Level lower,
                                     Level upper, Count count, cudaStream_t = 0) {
        return lk_detail::two_calls(storage, bytes, [=] {
            std::fill_n(histogram, levels - 1, Counter(0));
            for (Count i = 0; i < count; ++i) {
                const auto sample = samples[i];
                if (sample < lower || !(sample < upper)) continue;
                const double part = (double(sample) - double(lower)) / (double(upper) - double(lower));
                ++histogram[std::min(levels - 2, int(part * (levels - 1)))];
            }
        });
    }
    template <class Sample, class Counter, class Level, class Count>
    static cudaError_t HistogramRange(void* storage, size_t& bytes, Sample samples, Counter* histogram, int levels,
                                      const Level* bounds, Count count, cudaStream_t = 0) {
        return lk_detail::two_calls(storage, bytes, [=] {
            std::fill_n(histogram, levels - 1, Counter(0));
            for (Count i = 0; i < count; ++i) {
                const Level* above = std::upper_bound(bounds, bounds + levels, Level(samples[i]));
                if (above != bounds && above != bounds + levels) ++histogram[above - bounds - 1];
            }
        });
    }
};

struct DeviceRunLengthEncode {
    template <class In, class Out, class Lengths, class Runs, class Count>
    static cudaError_t Encode(void* storage, size_t& bytes, In in, Out out, Lengths lengths, Runs runs, Count count,
                              cudaStream_t = 0) {
        return lk_detail::two_calls(storage, bytes, [=] {
            Count run = -1;
            for (Count i = 0; i < count; ++i) {
                const bool joins = i > 0 && in[i] == in[i - 1];
                if (!joins) {
                    out[++run] = in[i];
                    lengths[run] = 0;
                }
                ++lengths[run];
            }
            *runs = run + 1;
        });
    }
};

}  // namespace cub
