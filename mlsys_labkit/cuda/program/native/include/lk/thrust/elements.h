// elements.h: Thrust's algorithms that treat each element by itself: copies, fills, maps, gathers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "lk/thrust/execution.h"

namespace thrust {

inline constexpr auto for_each = lk_detail::writer([](auto first, auto last, auto function) {
    std::for_each(first, last, function);
    return last;
});

inline constexpr auto for_each_n = lk_detail::writer([](auto first, auto count, auto function) {
    for (decltype(count) i = 0; i < count; ++i, ++first) function(*first);
    return first;
});

inline constexpr lk_detail::Algorithm copy{[](auto first, auto last, auto out) { return std::copy(first, last, out); }};

inline constexpr lk_detail::Algorithm copy_n{[](auto first, auto count, auto out) { return std::copy_n(first, count, out); }};

inline constexpr lk_detail::Algorithm copy_if{lk_detail::Overloads{
    [](auto first, auto last, auto out, auto predicate) { return std::copy_if(first, last, out, predicate); },
    [](auto first, auto last, auto stencil, auto out, auto predicate) {
        for (; first != last; ++first, ++stencil) {
            if (predicate(*stencil)) *out++ = *first;
        }
        return out;
    },
}};

inline constexpr auto fill = lk_detail::writer([](auto first, auto last, const auto& value) { std::fill(first, last, value); });

inline constexpr auto fill_n = lk_detail::writer([](auto first, auto count, const auto& value) {
    std::fill_n(first, count, value);
    return first + count;
});

inline constexpr auto sequence = lk_detail::writer(lk_detail::Overloads{
    [](auto first, auto last) { std::iota(first, last, lk_detail::Value<decltype(first)>{}); },
    [](auto first, auto last, auto start) { std::iota(first, last, start); },
    [](auto first, auto last, auto start, auto step) {
        for (size_t i = 0; first != last; ++first) *first = start + step * i++;
    },
});

inline constexpr auto tabulate = lk_detail::writer([](auto first, auto last, auto function) {
    for (std::ptrdiff_t i = 0; first != last; ++first) *first = function(i++);
});

inline constexpr auto generate = lk_detail::writer([](auto first, auto last, auto generator) {
    std::generate(first, last, generator);
});

inline constexpr lk_detail::Algorithm transform{[](auto first, auto last, auto out, auto... more) {
    return std::transform(first, last, out, more...);
}};

inline constexpr lk_detail::Algorithm transform_if{[](auto first, auto last, auto out, auto function, auto predicate) {
    for (; first != last; ++first, ++out) {
        if (predicate(*first)) *out = function(*first);
    }
    return out;
}};

inline constexpr lk_detail::Algorithm replace{[](auto first, auto last, const auto& old_value, const auto& new_value) {
    std::replace(first, last, old_value, new_value);
}};

inline constexpr lk_detail::Algorithm replace_if{[](auto first, auto last, auto predicate, const auto& value) {
    std::replace_if(first, last, predicate, value);
}};

inline constexpr lk_detail::Algorithm reverse{[](auto first, auto last) { std::reverse(first, last); }};

inline constexpr lk_detail::Algorithm adjacent_difference{[](auto first, auto last, auto out, auto... more) {
    return std::adjacent_difference(first, last, out, more...);
}};

inline constexpr lk_detail::Algorithm gather{[](auto map, auto map_end, auto elements, auto out) {
    for (; map != map_end; ++map, ++out) *out = elements[*map];
    return out;
}};

inline constexpr lk_detail::Algorithm scatter{[](auto first, auto last, auto map, auto out) {
    for (; first != last; ++first, ++map) out[*map] = *first;
}};

inline constexpr auto& uninitialized_copy = copy;

}  // namespace thrust
