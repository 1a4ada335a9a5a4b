// sorting.h: Thrust's algorithms that order, part or merge ranges, and those of sorted sets.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "lk/thrust/execution.h"
#include "lk/thrust/functional.h"

namespace thrust {

namespace lk_detail {

template <class Keys, class Values, class Compare>
void sort_by_key(Keys keys, Keys keys_end, Values values, Compare compare) {
    const size_t count = static_cast<size_t>(keys_end - keys);
    std::vector<std::pair<Value<Keys>, Value<Values>>> pairs;
    pairs.reserve(count);
    for (size_t i = 0; i < count; ++i) pairs.emplace_back(keys[i], values[i]);
    std::stable_sort(pairs.begin(), pairs.end(),
                     [&compare](const auto& a, const auto& b) { return compare(a.first, b.first); });
    for (size_t i = 0; i < count; ++i) {
        keys[i] = pairs[i].first;
        values[i] = pairs[i].second;
    }
}

}  // namespace lk_detail

inline constexpr lk_detail::Algorithm sort{lk_detail::Overloads{
    [](auto first, auto last) { std::sort(lk_detail::unwrapped(first), lk_detail::unwrapped(last)); },
    [](auto first, auto last, auto compare) {
        std::sort(lk_detail::unwrapped(first), lk_detail::unwrapped(last), compare);
    },
}};

inline constexpr lk_detail::Algorithm stable_sort{lk_detail::Overloads{
    [](auto first, auto last) { std::stable_sort(lk_detail::unwrapped(first), lk_detail::unwrapped(last)); },
    [](auto first, auto last, auto compare) {
        std::stable_sort(lk_detail::unwrapped(first), lk_detail::unwrapped(last), compare);
    },
}};

inline constexpr lk_detail::Algorithm sort_by_key{lk_detail::Overloads{
    [](auto keys, auto keys_end, auto values) {
        lk_detail::sort_by_key(lk_detail::unwrapped(keys), lk_detail::unwrapped(keys_end), lk_detail::unwrapped(values),
                               less<>());
    },
    [](auto keys, auto keys_end, auto values, auto compare) {
        lk_detail::sort_by_key(lk_detail::unwrapped(keys), lk_detail::unwrapped(keys_end), lk_detail::unwrapped(values),
                               compare);
    },
}};
inline constexpr auto& stable_sort_by_key = sort_by_key;

inline constexpr lk_detail::Algorithm unique{[](auto first, auto last) {
    auto begin = lk_detail::unwrapped(first);
    return lk_detail::wrapped_as(first, begin, std::unique(begin, lk_detail::unwrapped(last)));
}};

inline constexpr lk_detail::Algorithm remove{[](auto first, auto last, const auto& value) {
    auto begin = lk_detail::unwrapped(first);
    return lk_detail::wrapped_as(first, begin, std::remove(begin, lk_detail::unwrapped(last), value));
}};

inline constexpr lk_detail::Algorithm remove_if{[](auto first, auto last, auto predicate) {
    auto begin = lk_detail::unwrapped(first);
    return lk_detail::wrapped_as(first, begin, std::remove_if(begin, lk_detail::unwrapped(last), predicate));
}};

inline constexpr lk_detail::Algorithm partition{[](auto first, auto last, auto predicate) {
    auto begin = lk_detail::unwrapped(first);
    return lk_detail::wrapped_as(first, begin, std::stable_partition(begin, lk_detail::unwrapped(last), predicate));
}};
inline constexpr auto& stable_partition = partition;

inline constexpr lk_detail::Algorithm merge{[](auto first, auto last, auto second, auto second_end, auto out) {
    std::merge(lk_detail::unwrapped(first), lk_detail::unwrapped(last), lk_detail::unwrapped(second),
               lk_detail::unwrapped(second_end), lk_detail::unwrapped(out));
    return out + (last - first) + (second_end - second);
}};

inline constexpr lk_detail::Algorithm set_union{[](auto first, auto last, auto second, auto second_end, auto out) {
    auto to = lk_detail::unwrapped(out);
    return out + (std::set_union(lk_detail::unwrapped(first), lk_detail::unwrapped(last), lk_detail::unwrapped(second),
                                 lk_detail::unwrapped(second_end), to) - to);
}};

inline constexpr lk_detail::Algorithm set_intersection{[](auto first, auto last, auto second, auto second_end, auto out) {
    auto to = lk_detail::unwrapped(out);
    return out + (std::set_intersection(lk_detail::unwrapped(first), lk_detail::unwrapped(last),
                                        lk_detail::unwrapped(second), lk_detail::unwrapped(second_end), to) - to);
}};

inline constexpr lk_detail::Algorithm set_difference{[](auto first, auto last, auto second, auto second_end, auto out) {
    auto to = lk_detail::unwrapped(out);
    return out + (std::set_difference(lk_detail::unwrapped(first), lk_detail::unwrapped(last),
                                      lk_detail::unwrapped(second), lk_detail::unwrapped(second_end), to) - to);
}};

}  // namespace thrust
