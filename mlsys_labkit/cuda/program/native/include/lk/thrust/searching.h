// searching.h: Thrust's algorithms that look for an element, count, or compare.
#pragma once

#include <algorithm>

#include "lk/thrust/execution.h"
#include "lk/thrust/functional.h"

namespace thrust {

inline constexpr lk_detail::Algorithm mismatch{[](auto first, auto last, auto second) {
    auto begin = lk_detail::unwrapped(first);
    auto second_begin = lk_detail::unwrapped(second);
    const auto found = std::mismatch(begin, lk_detail::unwrapped(last), second_begin);
    return thrust::make_pair(lk_detail::wrapped_as(first, begin, found.first),
                             lk_detail::wrapped_as(second, second_begin, found.second));
}};

inline constexpr lk_detail::Algorithm min_element{[](auto first, auto last) {
    auto begin = lk_detail::unwrapped(first);
    return lk_detail::wrapped_as(first, begin, std::min_element(begin, lk_detail::unwrapped(last)));
}};

inline constexpr lk_detail::Algorithm max_element{lk_detail::Overloads{
    [](auto first, auto last) {
        auto begin = lk_detail::unwrapped(first);
        return lk_detail::wrapped_as(first, begin, std::max_element(begin, lk_detail::unwrapped(last)));
    },
    [](auto first, auto last, auto compare) {
        auto begin = lk_detail::unwrapped(first);
        return lk_detail::wrapped_as(first, begin, std::max_element(begin, lk_detail::unwrapped(last), compare));
    },
}};

inline constexpr lk_detail::Algorithm minmax_element{[](auto first, auto last) {
    auto begin = lk_detail::unwrapped(first);
    const auto found = std::minmax_element(begin, lk_detail::unwrapped(last));
    return thrust::make_pair(lk_detail::wrapped_as(first, begin, found.first),
                             lk_detail::wrapped_as(first, begin, found.second));
}};

inline constexpr lk_detail::Algorithm count{[](auto first, auto last, const auto& value) {
    return std::count(lk_detail::unwrapped(first), lk_detail::unwrapped(last), value);
}};

inline constexpr lk_detail::Algorithm count_if{[](auto first, auto last, auto predicate) {
    return std::count_if(lk_detail::unwrapped(first), lk_detail::unwrapped(last), predicate);
}};

inline constexpr lk_detail::Algorithm find{[](auto first, auto last, const auto& value) {
    auto begin = lk_detail::unwrapped(first);
    return lk_detail::wrapped_as(first, begin, std::find(begin, lk_detail::unwrapped(last), value));
}};

inline constexpr lk_detail::Algorithm find_if{[](auto first, auto last, auto predicate) {
    auto begin = lk_detail::unwrapped(first);
    return lk_detail::wrapped_as(first, begin, std::find_if(begin, lk_detail::unwrapped(last), predicate));
}};

inline constexpr lk_detail::Algorithm lower_bound{[](auto first, auto last, const auto& value) {
    auto begin = lk_detail::unwrapped(first);
    return lk_detail::wrapped_as(first, begin, std::lower_bound(begin, lk_detail::unwrapped(last), value));
}};

inline constexpr lk_detail::Algorithm upper_bound{[](auto first, auto last, const auto& value) {
    auto begin = lk_detail::unwrapped(first);
    return lk_detail::wrapped_as(first, begin, std::upper_bound(begin, lk_detail::unwrapped(last), value));
}};

inline constexpr lk_detail::Algorithm all_of{[](auto first, auto last, auto predicate) {
    return std::all_of(lk_detail::unwrapped(first), lk_detail::unwrapped(last), predicate);
}};

inline constexpr lk_detail::Algorithm any_of{[](auto first, auto last, auto predicate) {
    return std::any_of(lk_detail::unwrapped(first), lk_detail::unwrapped(last), predicate);
}};

inline constexpr lk_detail::Algorithm none_of{[](auto first, auto last, auto predicate) {
    return std::none_of(lk_detail::unwrapped(first), lk_detail::unwrapped(last), predicate);
}};

inline constexpr lk_detail::Algorithm equal{[](auto first, auto last, auto second) {
    return std::equal(lk_detail::unwrapped(first), lk_detail::unwrapped(last), lk_detail::unwrapped(second));
}};

inline constexpr lk_detail::Algorithm is_sorted{[](auto first, auto last) {
    return std::is_sorted(lk_detail::unwrapped(first), lk_detail::unwrapped(last));
}};

}  // namespace thrust
