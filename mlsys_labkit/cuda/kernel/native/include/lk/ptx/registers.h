// registers.h: operands of inline PTX: registers are plain variables, whose bits an instruction takes as its own type.
#pragma once

#include <type_traits>

#include "lk/convert16.h"
#include "lk/floats.h"

extern "C" __attribute__((__visibility__("hidden"))) thread_local char lk_dynamic_shared[];

namespace lk {
namespace ptx {

// A register's bits as another type of the same size. Integers of another size are cut off or widened by their sign, as cvt,
// ld and st do; constants are numbers.
template <class To, class From>
LK_INLINE To get(From from) {
    if constexpr (std::is_same_v<To, From>) {
        return from;
    } else if constexpr (sizeof(To) == sizeof(From) && !std::is_same_v<To, bool> && !std::is_same_v<From, bool>) {
        To to;
        __builtin_memcpy(&to, &from, sizeof to);
        return to;
    } else if constexpr (std::is_class_v<To> && std::is_integral_v<From>) {
        return get<To>(static_cast<std::conditional_t<sizeof(To) == 2, unsigned short, unsigned>>(from));
    } else if constexpr (std::is_class_v<From> && std::is_integral_v<To>) {
        return To(get<unsigned short>(from));
    } else {
        static_assert(!(std::is_floating_point_v<To> && std::is_integral_v<From> && sizeof(From) < 8) &&
                          !(std::is_integral_v<To> && std::is_floating_point_v<From>),
                      "an operand of this PTX instruction has another size than its type");
        return To(from);
    }
}

template <class Register, class Value>
LK_INLINE void set(Register& target, Value value) {
    target = get<Register>(value);
}

// A C++ expression as the register of its constraint.
template <class Register, class Value>
LK_INLINE Register input(Value value) {
    static_assert(std::is_scalar_v<Value>, "an operand of asm is a number or a pointer");
    static_assert(sizeof(Value) <= sizeof(Register), "an operand of asm is larger than its constraint allows");
    if constexpr (std::is_pointer_v<Value>) {
        return reinterpret_cast<Register>(value);
    } else if constexpr (std::is_floating_point_v<Register> == std::is_floating_point_v<Value>) {
        return Register(value);
    } else {
        return get<Register>(value);
    }
}

template <class Target, class Register>
LK_INLINE void output(Target& target, Register value) {
    static_assert(std::is_scalar_v<Target>, "an operand of asm is a number or a pointer");
    if constexpr (std::is_pointer_v<Target>) {
        target = reinterpret_cast<Target>(value);
    } else if constexpr (std::is_floating_point_v<Register> == std::is_floating_point_v<Target>) {
        target = Target(value);
    } else {
        target = get<Target>(value);
    }
}

template <class Half>
LK_INLINE unsigned long long packed(Half low, Half high) {
    using Bits = std::conditional_t<sizeof(Half) == 2, unsigned short, unsigned>;
    return (unsigned long long)get<Bits>(high) << 8 * sizeof(Half) | get<Bits>(low);
}

template <class Half>
LK_INLINE unsigned long long packed(Half a, Half b, Half c, Half d) {
    return packed(a, b) | packed(c, d) << 16 * sizeof(Half);
}

template <class Whole, class... Parts>
LK_INLINE void unpack(Whole whole, Parts&... parts) {
    unsigned long long bits = get<std::conditional_t<sizeof(Whole) == 4, unsigned, unsigned long long>>(whole);
    constexpr int width = 8 * sizeof(Whole) / sizeof...(Parts);
    ((set(parts, static_cast<std::conditional_t<width == 16, unsigned short, std::conditional_t<width == 8, unsigned char, unsigned>>>(bits)), bits >>= width), ...);
}

// An address is hidden from gcc: it may lead to any array whose address was ever taken.
LK_INLINE void* hidden(void* address) {
    __asm__("" : "+r"(address));
    return address;
}

template <class Register>
LK_INLINE void* address(Register base, long long offset = 0) {
    return static_cast<char*>(hidden(reinterpret_cast<void*>(base))) + offset;
}

// A 32-bit shared address is the lower half of the generic one, and the block's shared memory is far smaller than 4 GiB.
template <class Register>
LK_INLINE void* shared_address(Register base, long long offset = 0) {
    char* window = static_cast<char*>(hidden(lk_dynamic_shared));
    return window + int(unsigned(base) - unsigned(reinterpret_cast<size_t>(window))) + offset;
}

// In shared memory of any block of the cluster; a 64-bit register holds the generic address.
template <class Register>
LK_INLINE void* cluster_address(Register base, long long offset = 0) {
    if constexpr (sizeof(Register) == 8 && !std::is_same_v<Register, long long>) {
        if (base >> 32) return address(base, offset);
    }
    return static_cast<char*>(hidden(lk_cluster_address(unsigned(base)))) + offset;
}

// An address as mapa gives it.
template <class Register>
LK_INLINE Register address_bits(const void* pointer) {
    return Register(reinterpret_cast<unsigned long long>(pointer));
}

template <class Register>
LK_INLINE unsigned long long generic_of_shared(Register base) {
    return reinterpret_cast<unsigned long long>(shared_address(base));
}

}  // namespace ptx
}  // namespace lk
