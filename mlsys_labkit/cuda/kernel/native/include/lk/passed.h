// passed.h: how an argument becomes the parameter of one thread.
#pragma once

#include <type_traits>

#include "lk/qualifiers.h"

#include "../../runtime/abi.h"

namespace lk {

// How one parameter reaches a kernel. CUDA copies the bytes of an argument and runs no constructor or destructor for the
// kernel's copy; a class that has its own would else run host code in every thread. The ABI (Itanium C++, "non-trivial
// parameters") passes such a class by the address of a copy that the caller makes: ours is made of its bytes.
template <class Parameter, bool plain = std::is_reference_v<Parameter> ||
                                       (std::is_trivially_copy_constructible_v<Parameter> &&
                                        std::is_trivially_move_constructible_v<Parameter> &&
                                        std::is_trivially_destructible_v<Parameter>)>
struct Passed {
    using Type = Parameter;
    using Stored = std::remove_reference_t<Parameter>*;

    LK_UNRECORDED explicit Passed(Stored argument) : argument_(argument) {}
    LK_UNRECORDED Parameter get() { return static_cast<Parameter>(*argument_); }

    Stored argument_;
};

template <class Parameter>
struct Passed<Parameter, false> {
    using Type = void*;
    using Stored = Parameter*;

    LK_UNRECORDED explicit Passed(Stored argument) { __builtin_memcpy(bytes_, argument, sizeof bytes_); }
    LK_UNRECORDED void* get() { return bytes_; }

    alignas(Parameter) unsigned char bytes_[sizeof(Parameter)];
};

// Calls a kernel for one thread, and for those that run in a loop with it.
template <class... Parameters>
LK_UNRECORDED __attribute__((always_inline)) inline void call_for_threads(void (*kernel)(Parameters...),
                                                                          Parameters... arguments) {
    do kernel(static_cast<Parameters>(arguments)...);
    while (lk_next_thread());
}

}  // namespace lk
