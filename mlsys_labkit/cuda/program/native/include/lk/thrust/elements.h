// elements.h: Thrust's algorithms that treat each element by itself: copies, fills, maps, gathers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "lk/thrust/execution.h"

namespace thrust {

inline constexpr lk_detail::Algorithm for_each{[](auto first, auto last, auto function) {
    for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it) function(*it);
    return last;
}};

inline constexpr lk_detail::Algorithm for_each_n{[](auto first, auto count, auto function) {
    auto it = lk_detail::unwrapped(first);
    for (decltype(count) i = 0; i < count; ++i, ++it) function(*it);
    return first + count;
}};

inline constexpr lk_detail::Algorithm copy{[](auto first, auto last, auto out) {
    auto begin = lk_detail::unwrapped(out);
    return lk_detail::wrapped_as(out, begin,
                                 std::copy(lk_detail::unwrapped(first), lk_detail::unwrapped(last), begin));
}};

inline constexpr lk_detail::Algorithm copy_n{[](auto first, auto count, auto out) {
    auto begin = lk_detail::unwrapped(out);
    return lk_detail::wrapped_as(out, begin, std::copy_n(lk_detail::unwrapped(first), count, begin));
}};

inline constexpr lk_detail::Algorithm copy_if{lk_detail::Overloads{
    [](auto first, auto last, auto out, auto predicate) {
        auto begin = lk_detail::unwrapped(out);
        return lk_detail::wrapped_as(
            out, begin, std::copy_if(lk_detail::unwrapped(first), lk_detail::unwrapped(last), begin, predicate));
    },
    [](auto first, auto last, auto stencil, auto out, auto predicate) {
        auto marks = lk_detail::unwrapped(stencil);
        auto begin = lk_detail::unwrapped(out);
        auto to = begin;
        for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it, ++marks) {
            if (predicate(*marks)) *to++ = *it;
        }
        return lk_detail::wrapped_as(out, begin, to);
    },
}};

inline constexpr lk_detail::Algorithm fill{[](auto first, auto last, const auto& value) {
    std::fill(lk_detail::unwrapped(first), lk_detail::unwrapped(last), value);
}};

inline constexpr lk_detail::Algorithm fill_n{[](auto first, auto count, const auto& value) {
    std::fill_n(lk_detail::unwrapped(first), count, value);
    return first + count;
}};

inline constexpr lk_detail::Algorithm sequence{lk_detail::Overloads{
    [](auto first, auto last) {
        lk_detail::Value<decltype(first)> value{};
        for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it) *it = value++;
    },
    [](auto first, auto last, auto start) {
        for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it) *it = start++;
    },
    [](auto first, auto last, auto start, auto step) {
        size_t i = 0;
        for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it) *it = start + step * i++;
    },
}};

inline constexpr lk_detail::Algorithm tabulate{[](auto first, auto last, auto function) {
    std::ptrdiff_t i = 0;
    for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it) *it = function(i++);
}};

inline constexpr lk_detail::Algorithm generate{[](auto first, auto last, auto generator) {
    std::generate(lk_detail::unwrapped(first), lk_detail::unwrapped(last), generator);
}};

inline constexpr lk_detail::Algorithm transform{lk_detail::Overloads{
    [](auto first, auto last, auto out, auto function) {
        auto begin = lk_detail::unwrapped(out);
        auto to = begin;
        for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it, ++to) *to = function(*it);
        return lk_detail::wrapped_as(out, begin, to);
    },
    [](auto first, auto last, auto second, auto out, auto function) {
        auto other = lk_detail::unwrapped(second);
        auto begin = lk_detail::unwrapped(out);
        auto to = begin;
        for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it, ++other, ++to) {
            *to = function(*it, *other);
        }
        return lk_detail::wrapped_as(out, begin, to);
    },
}};

inline constexpr lk_detail::Algorithm transform_if{[](auto first, auto last, auto out, auto function, auto predicate) {
    auto to = lk_detail::unwrapped(out);
    for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it, ++to) {
        if (predicate(*it)) *to = function(*it);
    }
    return out + (last - first);
}};

inline constexpr lk_detail::Algorithm replace{[](auto first, auto last, const auto& old_value, const auto& new_value) {
    std::replace(lk_detail::unwrapped(first), lk_detail::unwrapped(last), old_value, new_value);
}};

inline constexpr lk_detail::Algorithm replace_if{[](auto first, auto last, auto predicate, const auto& value) {
    std::replace_if(lk_detail::unwrapped(first), lk_detail::unwrapped(last), predicate, value);
}};

inline constexpr lk_detail::Algorithm reverse{
    [](auto first, auto last) { std::reverse(lk_detail::unwrapped(first), lk_detail::unwrapped(last)); }};

inline constexpr lk_detail::Algorithm adjacent_difference{[](auto first, auto last, auto out) {
    std::adjacent_difference(lk_detail::unwrapped(first), lk_detail::unwrapped(last), lk_detail::unwrapped(out));
    return out + (last - first);
}};

inline constexpr lk_detail::Algorithm gather{[](auto map, auto map_end, auto elements, auto out) {
    auto from = lk_detail::unwrapped(elements);
    auto to = lk_detail::unwrapped(out);
    for (auto it = lk_detail::unwrapped(map); it != lk_detail::unwrapped(map_end); ++it, ++to) *to = from[*it];
    return out + (map_end - map);
}};

inline constexpr lk_detail::Algorithm scatter{[](auto first, auto last, auto map, auto out) {
    auto place = lk_detail::unwrapped(map);
    auto to = lk_detail::unwrapped(out);
    for (auto it = lk_detail::unwrapped(first); it != lk_detail::unwrapped(last); ++it, ++place) to[*place] = *it;
}};

template <class From, class To>
To uninitialized_copy(From first, From last, To out) {
    return thrust::copy(first, last, out);
}

}  // namespace thrust
