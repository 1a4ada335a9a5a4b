// sorting.h: Thrust's algorithms that order, part or merge ranges, and those of sorted sets.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "lk/thrust/execution.h"
#include "lk/thrust/functional.h"

namespace thrust {

namespace lk_detail {

template <class Keys, class Values, class Compare = less<>>
void sort_by_key(Keys keys, Keys keys_end, Values values, Compare compare = {}) {
    const size_t count = static_cast<size_t>(keys_end - keys);
    std::vector<std::pair<Value<Keys>, Value<Values>>> pairs;
    pairs.reserve(count);
    for (size_t i = 0; i < count; ++i) pairs.emplace_back(keys[i], values[i]);
    std::stable_sort(pairs.begin(), pairs.end(),
                     [&compare](auto a, auto b) { return bool(compare(a.first, b.first)); });
    for (size_t i = 0; i < count; ++i) {
        keys[i] = pairs[i].first;
        values[i] = pairs[i].second;
    }
}

}  // namespace lk_detail

inline constexpr lk_detail::Algorithm sort{[](auto first, auto last, auto... compare) { std::sort(first, last, compare...); }};

inline constexpr lk_detail::Algorithm stable_sort{[](auto first, auto last, auto... compare) {
    std::stable_sort(first, last, compare...);
}};

inline constexpr lk_detail::Algorithm sort_by_key{[](auto keys, auto keys_end, auto values, auto... compare) {
    lk_detail::sort_by_key(keys, keys_end, values, compare...);
}};
inline constexpr auto& stable_sort_by_key = sort_by_key;

inline constexpr lk_detail::Algorithm unique{[](auto first, auto last, auto... more) {
    return std::unique(first, last, more...);
}};

inline constexpr lk_detail::Algorithm remove{[](auto first, auto last, const auto& value) {
    return std::remove(first, last, value);
}};

inline constexpr lk_detail::Algorithm remove_if{[](auto first, auto last, auto predicate) {
    return std::remove_if(first, last, predicate);
}};

inline constexpr lk_detail::Algorithm partition{[](auto first, auto last, auto predicate) {
    return std::stable_partition(first, last, predicate);
}};
inline constexpr auto& stable_partition = partition;

inline constexpr lk_detail::Algorithm merge{
    [](auto first, auto last, auto second, auto second_end, auto out, auto... more) {
    return std::merge(first, last, second, second_end, out, more...);
}};

inline constexpr lk_detail::Algorithm set_union{
    [](auto first, auto last, auto second, auto second_end, auto out, auto... more) {
    return std::set_union(first, last, second, second_end, out, more...);
}};

inline constexpr lk_detail::Algorithm set_intersection{
    [](auto first, auto last, auto second, auto second_end, auto out, auto... more) {
    return std::set_intersection(first, last, second, second_end, out, more...);
}};

inline constexpr lk_detail::Algorithm set_difference{
    [](auto first, auto last, auto second, auto second_end, auto out, auto... more) {
    return std::set_difference(first, last, second, second_end, out, more...);
}};

}  // namespace thrust
