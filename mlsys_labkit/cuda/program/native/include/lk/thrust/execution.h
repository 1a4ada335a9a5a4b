// execution.h: what Thrust's algorithms share: execution policies, and device memory that is open while one runs.
#pragma once

#include <iterator>
#include <type_traits>

#include "lk/thrust/iterators.h"

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

}  // namespace lk_detail

}  // namespace thrust
