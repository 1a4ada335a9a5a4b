// functional.h: Thrust's function objects, pairs and tuples.
#pragma once

#include <functional>
#include <iterator>
#include <tuple>
#include <utility>

#include "lk/thrust/placeholders.h"

namespace thrust {

using std::bit_and, std::bit_or, std::bit_xor, std::logical_and, std::logical_not, std::logical_or;
using std::divides, std::minus, std::modulus, std::multiplies, std::negate, std::plus;
using std::equal_to, std::greater, std::greater_equal, std::less, std::less_equal, std::not_equal_to;

template <class T = void>
struct maximum {
    template <class A, class B>
    constexpr auto operator()(const A& a, const B& b) const {
        return a < b ? static_cast<std::common_type_t<A, B>>(b) : static_cast<std::common_type_t<A, B>>(a);
    }
};

template <class T = void>
struct minimum {
    template <class A, class B>
    constexpr auto operator()(const A& a, const B& b) const {
        return b < a ? static_cast<std::common_type_t<A, B>>(b) : static_cast<std::common_type_t<A, B>>(a);
    }
};

template <class T = void>
struct square {
    template <class A>
    constexpr A operator()(const A& a) const { return a * a; }
};

template <class T = void>
struct identity {
    template <class A>
    constexpr A operator()(const A& a) const { return a; }
};

// The argument and result types that functors of the time before C++11 inherit.
template <class Argument, class Result>
struct unary_function {
    typedef Argument argument_type;
    typedef Result result_type;
};

template <class First, class Second, class Result>
struct binary_function {
    typedef First first_argument_type;
    typedef Second second_argument_type;
    typedef Result result_type;
};

using std::advance, std::distance, std::swap;
using std::get, std::make_pair, std::make_tuple, std::pair, std::tie, std::tuple, std::tuple_element, std::tuple_size;

}  // namespace thrust
