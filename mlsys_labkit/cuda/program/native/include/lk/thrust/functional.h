// functional.h: Thrust's function objects, pairs and tuples.
#pragma once

#include <functional>
#include <iterator>
#include <tuple>
#include <utility>

namespace thrust {

template <class T = void>
using plus = std::plus<T>;
template <class T = void>
using minus = std::minus<T>;
template <class T = void>
using multiplies = std::multiplies<T>;
template <class T = void>
using divides = std::divides<T>;
template <class T = void>
using modulus = std::modulus<T>;
template <class T = void>
using negate = std::negate<T>;
template <class T = void>
using less = std::less<T>;
template <class T = void>
using less_equal = std::less_equal<T>;
template <class T = void>
using greater = std::greater<T>;
template <class T = void>
using greater_equal = std::greater_equal<T>;
template <class T = void>
using equal_to = std::equal_to<T>;
template <class T = void>
using not_equal_to = std::not_equal_to<T>;
template <class T = void>
using logical_and = std::logical_and<T>;
template <class T = void>
using logical_or = std::logical_or<T>;
template <class T = void>
using logical_not = std::logical_not<T>;
template <class T = void>
using bit_and = std::bit_and<T>;
template <class T = void>
using bit_or = std::bit_or<T>;
template <class T = void>
using bit_xor = std::bit_xor<T>;

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
    constexpr A operator()(const A& a) const {
        return a * a;
    }
};

template <class T = void>
struct identity {
    template <class A>
    constexpr A operator()(const A& a) const {
        return a;
    }
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

using std::advance;
using std::distance;
using std::get;
using std::make_pair;
using std::make_tuple;
using std::pair;
using std::swap;
using std::tie;
using std::tuple;
using std::tuple_element;
using std::tuple_size;

}  // namespace thrust
