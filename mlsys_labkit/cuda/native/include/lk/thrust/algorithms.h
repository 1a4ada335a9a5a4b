// algorithms.h: Thrust's algorithms, one element after the other. Where they run, and how fast, says nothing of a GPU.
#pragma once

#include <algorithm>
#include <iterator>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "lk/thrust/functional.h"
#include "lk/thrust/iterators.h"
#include "lk/thrust/pointers.h"

namespace thrust {

// Execution policies: thrust::device and its kin as a first argument change nothing here.
struct execution_policy_base {
    template <class Stream>
    const execution_policy_base& on(Stream) const {
        return *this;
    }
};
inline constexpr execution_policy_base device{};
inline constexpr execution_policy_base host{};
inline constexpr execution_policy_base seq{};
namespace cuda {
inline constexpr execution_policy_base par{};
inline constexpr execution_policy_base par_nosync{};
}  // namespace cuda
namespace omp {
inline constexpr execution_policy_base par{};
}

namespace lk_detail {

template <class T>
using Value = typename std::iterator_traits<T>::value_type;

// What came out of a plain pointer goes back into the kind of iterator that came in.
template <class Iterator, class Plain>
Iterator wrapped_as(const Iterator& begin, Plain plain_begin, Plain plain) {
    return begin + (plain - plain_begin);
}

// An algorithm takes a policy first or not, and opens device memory while it runs.
template <class Body>
struct Algorithm {
    Body body;

    template <class First, class... Rest>
    auto operator()(const First& first, const Rest&... rest) const {
        const Opened open;
        if constexpr (std::is_base_of_v<execution_policy_base, First>) {
            return body(rest...);
        } else {
            return body(first, rest...);
        }
    }
};

template <class Body>
Algorithm(Body) -> Algorithm<Body>;

template <class... Bodies>
struct Overloads : Bodies... {
    using Bodies::operator()...;
};

template <class... Bodies>
Overloads(Bodies...) -> Overloads<Bodies...>;

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

template <class From, class To>
To uninitialized_copy(From first, From last, To out) {
    return thrust::copy(first, last, out);
}

}  // namespace thrust
