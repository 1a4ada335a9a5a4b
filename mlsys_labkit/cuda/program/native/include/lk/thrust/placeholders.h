// placeholders.h: function objects that are written as expressions, such as 2 * _1 + _2.
#pragma once

#include <tuple>
#include <type_traits>

namespace thrust {
namespace placeholders {

template <class Function>
struct Actor {
    Function function;

    template <class... Arguments>
    constexpr auto operator()(const Arguments&... arguments) const {
        return function(arguments...);
    }
};

template <class T>
struct IsActor : std::false_type {};
template <class Function>
struct IsActor<Actor<Function>> : std::true_type {};

template <class Function>
constexpr Actor<Function> make_actor(Function function) {
    return {function};
}

template <class Function>
constexpr Actor<Function> as_actor(Actor<Function> actor) {
    return actor;
}

template <class T, class = std::enable_if_t<!IsActor<T>::value>>
constexpr auto as_actor(T constant) {
    return make_actor([constant](const auto&...) { return constant; });
}

template <int place>
struct Argument {
    template <class... Arguments>
    constexpr auto operator()(const Arguments&... arguments) const {
        return std::get<place>(std::tie(arguments...));
    }
};

#define LK_TWO(operation)                                                                                           \
    template <class Left, class Right, class = std::enable_if_t<IsActor<Left>::value || IsActor<Right>::value>>     \
    constexpr auto operator operation(Left left, Right right) {                                                     \
        return make_actor([first = as_actor(left), second = as_actor(right)](const auto&... arguments) {            \
            return first(arguments...) operation second(arguments...);                                              \
        });                                                                                                         \
    }
LK_TWO(+)
LK_TWO(-)
LK_TWO(*)
LK_TWO(/)
LK_TWO(%)
LK_TWO(==)
LK_TWO(!=)
LK_TWO(<)
LK_TWO(<=)
LK_TWO(>)
LK_TWO(>=)
LK_TWO(&&)
LK_TWO(||)
LK_TWO(&)
LK_TWO(|)
LK_TWO(^)
#undef LK_TWO

#define LK_ONE(operation)                                                                            \
    template <class Function>                                                                        \
    constexpr auto operator operation(Actor<Function> operand) {                                     \
        return make_actor([operand](const auto&... arguments) { return operation operand(arguments...); }); \
    }
LK_ONE(-)
LK_ONE(!)
LK_ONE(~)
#undef LK_ONE

static constexpr Actor<Argument<0>> _1{};
static constexpr Actor<Argument<1>> _2{};
static constexpr Actor<Argument<2>> _3{};
static constexpr Actor<Argument<3>> _4{};

}  // namespace placeholders
}  // namespace thrust
