// execution.h: what Thrust's algorithms share: execution policies, and device memory that is open while one runs.
#pragma once

#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lk/thrust/iterators.h"

namespace thrust {

// Execution policies: thrust::device and its kin as a first argument change nothing here.
struct execution_policy_base {
    template <class Stream>
    const execution_policy_base& on(Stream) const { return *this; }
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

// Which of the first `end` arguments a plain iterator stands for: the last of its type, as outputs come last; -1: none.
template <class Plain, class... Arguments>
constexpr int place_of(int end = sizeof...(Arguments)) {
    int place = 0;
    int found = -1;
    ((found = place < end && std::is_same_v<Plain, Unwrapped<Arguments>> ? place : found, ++place), ...);
    return found;
}

template <int place, class... Arguments, class Plain>
auto as_given(Plain plain) {
    if constexpr (place < 0) {
        return plain;
    } else {
        return std::tuple_element_t<place, std::tuple<Arguments...>>(plain);
    }
}

template <class... Arguments, class Plain>
auto wrapped(Plain plain) { return as_given<place_of<Plain, Arguments...>(), Arguments...>(plain); }

template <class... Arguments, class First, class Second>
auto wrapped(std::pair<First, Second> plain) {
    constexpr int second = place_of<Second, Arguments...>();
    constexpr int first = place_of<First, Arguments...>(second);
    return std::make_pair(as_given<first, Arguments...>(plain.first), as_given<second, Arguments...>(plain.second));
}

// What begins with a range or a count of elements reads them. Inlined, as its caller is: the finding names the program's line.
template <class First, class Second, class... Rest>
[[gnu::always_inline]] inline void note_read_range(First first, Second second, const Rest&...) {
    if constexpr (std::is_same_v<First, Second>) {
        if constexpr (std::is_pointer_v<First>) note_reads(first, second - first);
    } else if constexpr (std::is_integral_v<Second>) {
        note_reads(first, second);
    }
}

// An algorithm takes a policy first or not, and opens device memory while it runs. Its body sees device pointers as plain ones;
// what it returns becomes the caller's kind of iterator again.
template <class Body, bool reads = true>
struct Algorithm {
    Body body;

    template <class First, class... Rest>
    [[gnu::always_inline]] inline auto operator()(const First& first, const Rest&... rest) const {
        if constexpr (std::is_base_of_v<execution_policy_base, First>) {
            return (*this)(rest...);
        } else {
            const Opened open;
            if constexpr (reads && sizeof...(Rest) > 0) note_read_range(unwrapped(first), unwrapped(rest)...);
            if constexpr (std::is_void_v<decltype(body(unwrapped(first), unwrapped(rest)...))>) {
                body(unwrapped(first), unwrapped(rest)...);
            } else {
                return wrapped<First, Rest...>(body(unwrapped(first), unwrapped(rest)...));
            }
        }
    }
};

template <class Body>
Algorithm(Body) -> Algorithm<Body>;

// An algorithm that may only write its first range.
template <class Body>
constexpr Algorithm<Body, false> writer(Body body) { return {body}; }

template <class... Bodies>
struct Overloads : Bodies... {
    using Bodies::operator()...;
};

template <class... Bodies>
Overloads(Bodies...) -> Overloads<Bodies...>;

}  // namespace lk_detail

}  // namespace thrust
