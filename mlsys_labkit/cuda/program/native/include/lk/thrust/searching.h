// searching.h: Thrust's algorithms that look for an element, count, or compare.
#pragma once

#include <algorithm>

#include "lk/thrust/execution.h"
#include "lk/thrust/functional.h"

namespace thrust {

inline constexpr lk_detail::Algorithm mismatch{[](auto first, auto last, auto second, auto... more) {
    return std::mismatch(first, last, second, more...);
}};

inline constexpr lk_detail::Algorithm min_element{[](auto first, auto last, auto... more) {
    return std::min_element(first, last, more...);
}};

inline constexpr lk_detail::Algorithm max_element{[](auto first, auto last, auto... compare) {
    return std::max_element(first, last, compare...);
}};

inline constexpr lk_detail::Algorithm minmax_element{[](auto first, auto last, auto... more) {
    return std::minmax_element(first, last, more...);
}};

inline constexpr lk_detail::Algorithm count{[](auto first, auto last, const auto& value) {
    return std::count(first, last, value);
}};

inline constexpr lk_detail::Algorithm count_if{[](auto first, auto last, auto predicate) {
    return std::count_if(first, last, predicate);
}};

inline constexpr lk_detail::Algorithm find{[](auto first, auto last, const auto& value) {
    return std::find(first, last, value);
}};

inline constexpr lk_detail::Algorithm find_if{[](auto first, auto last, auto predicate) {
    return std::find_if(first, last, predicate);
}};

inline constexpr lk_detail::Algorithm lower_bound{[](auto first, auto last, const auto& value, auto... more) {
    return std::lower_bound(first, last, value, more...);
}};

inline constexpr lk_detail::Algorithm upper_bound{[](auto first, auto last, const auto& value, auto... more) {
    return std::upper_bound(first, last, value, more...);
}};

inline constexpr lk_detail::Algorithm all_of{[](auto first, auto last, auto predicate) {
    return std::all_of(first, last, predicate);
}};

inline constexpr lk_detail::Algorithm any_of{[](auto first, auto last, auto predicate) {
    return std::any_of(first, last, predicate);
}};

inline constexpr lk_detail::Algorithm none_of{[](auto first, auto last, auto predicate) {
    return std::none_of(first, last, predicate);
}};

inline constexpr lk_detail::Algorithm equal{[](auto first, auto last, auto second, auto... more) {
    return std::equal(first, last, second, more...);
}};

inline constexpr lk_detail::Algorithm is_sorted{[](auto first, auto last, auto... more) {
    return std::is_sorted(first, last, more...);
}};

}  // namespace thrust
