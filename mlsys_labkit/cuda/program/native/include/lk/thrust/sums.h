// sums.h: Thrust's reductions and scans.
#pragma once

#include <cstddef>
#include <numeric>

#include "lk/thrust/execution.h"
#include "lk/thrust/functional.h"

namespace thrust {

namespace lk_detail {

// Both read an element before they write its sum, because the output may be the input.
template <class In, class Out, class Operation>
Out inclusive(In first, In last, Out out, Operation operation) {
    if (first == last) return out;
    Value<In> sum = *first;
    *out = sum;
    while (++first != last) {
        sum = static_cast<Value<In>>(operation(sum, Value<In>(*first)));
        *++out = sum;
    }
    return ++out;
}

template <class In, class Out, class Operation = plus<>>
Out exclusive(In first, In last, Out out, Value<In> sum = {}, Operation operation = {}) {
    for (; first != last; ++first, ++out) {
        const Value<In> value = *first;
        *out = sum;
        sum = operation(sum, value);
    }
    return out;
}

template <class Keys, class Values, class KeysOut, class ValuesOut, class Same = equal_to<>, class Operation = plus<>>
std::pair<KeysOut, ValuesOut> by_key(Keys keys, Keys keys_end, Values values, KeysOut keys_out, ValuesOut values_out,
                                     Same same = {}, Operation operation = {}) {
    while (keys != keys_end) {
        const Value<Keys> key = *keys;
        Value<Values> sum = *values;
        for (++keys, ++values; keys != keys_end && same(key, *keys); ++keys, ++values) sum = operation(sum, *values);
        *keys_out++ = key;
        *values_out++ = sum;
    }
    return {keys_out, values_out};
}

}  // namespace lk_detail

inline constexpr lk_detail::Algorithm reduce{lk_detail::Overloads{
    [](auto first, auto last) { return std::accumulate(first, last, lk_detail::Value<decltype(first)>{}); },
    [](auto first, auto last, auto start, auto... operation) { return std::accumulate(first, last, start, operation...); },
}};

inline constexpr lk_detail::Algorithm transform_reduce{
    [](auto first, auto last, auto function, auto start, auto operation) {
        for (; first != last; ++first) start = operation(start, function(*first));
        return start;
    }};

inline constexpr lk_detail::Algorithm inner_product{[](auto first, auto last, auto second, auto start, auto... operations) {
    return std::inner_product(first, last, second, start, operations...);
}};

inline constexpr lk_detail::Algorithm inclusive_scan{lk_detail::Overloads{
    [](auto first, auto last, auto out) { return lk_detail::inclusive(first, last, out, plus<>()); },
    [](auto first, auto last, auto out, auto operation) { return lk_detail::inclusive(first, last, out, operation); },
}};

inline constexpr lk_detail::Algorithm exclusive_scan{[](auto first, auto last, auto out, auto... start_and_operation) {
    return lk_detail::exclusive(first, last, out, start_and_operation...);
}};

inline constexpr lk_detail::Algorithm transform_inclusive_scan{
    [](auto first, auto last, auto out, auto function, auto operation) {
        const auto begin = thrust::make_transform_iterator(first, function);
        return lk_detail::inclusive(begin, begin + (last - first), out, operation);
    }};

inline constexpr lk_detail::Algorithm transform_exclusive_scan{
    [](auto first, auto last, auto out, auto function, auto start, auto operation) {
        const auto begin = thrust::make_transform_iterator(first, function);
        return lk_detail::exclusive(begin, begin + (last - first), out, start, operation);
    }};

inline constexpr lk_detail::Algorithm reduce_by_key{
    [](auto keys, auto keys_end, auto values, auto keys_out, auto values_out, auto... same_and_operation) {
        return lk_detail::by_key(keys, keys_end, values, keys_out, values_out, same_and_operation...);
    }};

}  // namespace thrust
