// sums.h: Thrust's reductions and scans.
#pragma once

#include <cstddef>
#include <numeric>

#include "lk/thrust/execution.h"
#include "lk/thrust/functional.h"

namespace thrust {

namespace lk_detail {

template <class In, class Out, class Operation>
Out scan(In first, In last, Out out, Operation operation, bool inclusive, Value<In> sum, bool started) {
    for (; first != last; ++first, ++out) {
        const Value<In> value = *first;
        if (inclusive) {
            sum = started ? static_cast<Value<In>>(operation(sum, value)) : value;
            started = true;
            *out = sum;
        } else {
            *out = sum;
            sum = operation(sum, value);
        }
    }
    return out;
}

}  // namespace lk_detail

inline constexpr lk_detail::Algorithm reduce{lk_detail::Overloads{
    [](auto first, auto last) {
        lk_detail::Value<decltype(first)> sum{};
        for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it) sum = sum + *it;
        return sum;
    },
    [](auto first, auto last, auto start) {
        for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it) start = start + *it;
        return start;
    },
    [](auto first, auto last, auto start, auto operation) {
        for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it) start = operation(start, *it);
        return start;
    },
}};

inline constexpr lk_detail::Algorithm transform_reduce{
    [](auto first, auto last, auto function, auto start, auto operation) {
        for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it) {
            start = operation(start, function(*it));
        }
        return start;
    }};

inline constexpr lk_detail::Algorithm inner_product{lk_detail::Overloads{
    [](auto first, auto last, auto second, auto start) {
        return std::inner_product(lk_detail::unwrapped(first), lk_detail::unwrapped(last), lk_detail::unwrapped(second),
                                  start);
    },
    [](auto first, auto last, auto second, auto start, auto add, auto multiply) {
        return std::inner_product(lk_detail::unwrapped(first), lk_detail::unwrapped(last), lk_detail::unwrapped(second),
                                  start, add, multiply);
    },
}};

inline constexpr lk_detail::Algorithm inclusive_scan{lk_detail::Overloads{
    [](auto first, auto last, auto out) {
        lk_detail::scan(lk_detail::unwrapped(first), lk_detail::unwrapped(last), lk_detail::unwrapped(out), plus<>(), true,
                        {}, false);
        return out + (last - first);
    },
    [](auto first, auto last, auto out, auto operation) {
        lk_detail::scan(lk_detail::unwrapped(first), lk_detail::unwrapped(last), lk_detail::unwrapped(out), operation, true,
                        {}, false);
        return out + (last - first);
    },
}};

inline constexpr lk_detail::Algorithm exclusive_scan{lk_detail::Overloads{
    [](auto first, auto last, auto out) {
        lk_detail::scan(lk_detail::unwrapped(first), lk_detail::unwrapped(last), lk_detail::unwrapped(out), plus<>(), false,
                        {}, false);
        return out + (last - first);
    },
    [](auto first, auto last, auto out, auto start) {
        lk_detail::scan(lk_detail::unwrapped(first), lk_detail::unwrapped(last), lk_detail::unwrapped(out), plus<>(), false,
                        start, true);
        return out + (last - first);
    },
    [](auto first, auto last, auto out, auto start, auto operation) {
        lk_detail::scan(lk_detail::unwrapped(first), lk_detail::unwrapped(last), lk_detail::unwrapped(out), operation, false,
                        start, true);
        return out + (last - first);
    },
}};

inline constexpr lk_detail::Algorithm transform_inclusive_scan{
    [](auto first, auto last, auto out, auto function, auto operation) {
        const auto begin = thrust::make_transform_iterator(lk_detail::unwrapped(first), function);
        lk_detail::scan(begin, begin + (last - first), lk_detail::unwrapped(out), operation, true, {}, false);
        return out + (last - first);
    }};

inline constexpr lk_detail::Algorithm transform_exclusive_scan{
    [](auto first, auto last, auto out, auto function, auto start, auto operation) {
        const auto begin = thrust::make_transform_iterator(lk_detail::unwrapped(first), function);
        lk_detail::scan(begin, begin + (last - first), lk_detail::unwrapped(out), operation, false, start, true);
        return out + (last - first);
    }};

inline constexpr lk_detail::Algorithm reduce_by_key{lk_detail::Overloads{
    [](auto keys, auto keys_end, auto values, auto keys_out, auto values_out) {
        auto value = lk_detail::unwrapped(values);
        auto key_out = lk_detail::unwrapped(keys_out);
        auto value_out = lk_detail::unwrapped(values_out);
        std::ptrdiff_t groups = 0;
        auto it = lk_detail::unwrapped(keys);
        while (it != lk_detail::unwrapped(keys_end)) {
            const lk_detail::Value<decltype(keys)> key = *it;
            lk_detail::Value<decltype(values)> sum = *value;
            for (++it, ++value; it != lk_detail::unwrapped(keys_end) && *it == key; ++it, ++value) sum = sum + *value;
            key_out[groups] = key;
            value_out[groups] = sum;
            ++groups;
        }
        return thrust::make_pair(keys_out + groups, values_out + groups);
    },
    [](auto keys, auto keys_end, auto values, auto keys_out, auto values_out, auto same, auto operation) {
        auto value = lk_detail::unwrapped(values);
        auto key_out = lk_detail::unwrapped(keys_out);
        auto value_out = lk_detail::unwrapped(values_out);
        std::ptrdiff_t groups = 0;
        auto it = lk_detail::unwrapped(keys);
        while (it != lk_detail::unwrapped(keys_end)) {
            const lk_detail::Value<decltype(keys)> key = *it;
            lk_detail::Value<decltype(values)> sum = *value;
            for (++it, ++value; it != lk_detail::unwrapped(keys_end) && same(key, *it); ++it, ++value) {
                sum = operation(sum, *value);
            }
            key_out[groups] = key;
            value_out[groups] = sum;
            ++groups;
        }
        return thrust::make_pair(keys_out + groups, values_out + groups);
    },
}};

}  // namespace thrust
