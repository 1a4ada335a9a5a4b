// launch.h: what makes a kernel callable from Python: LK_EXPORT(3, matmul<16>) exports lk_run_3 and lk_describe_3.
//
// Argument types come from the kernel's own function type, so nobody parses C++. Included before the student's source; what
// LK_EXPORT expands to after it are names with lk_ only.
//
// lk_describe_3 writes one word a parameter: kind ':' bytes ':' type. Kind is v for a value, p for a pointer, c for a pointer
// to const, followed by the element: f float, i int, u unsigned, b bool, h half, g bfloat16, s anything else (a struct);
// bytes are the value's or the element's. "cf:4:float vi:4:int" is (const float*, int).
#pragma once

#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#include "lk/bfloat16.h"
#include "lk/half.h"
#include "lk/qualifiers.h"

namespace lk {

template <class Value>
constexpr char kind_of() {
    if (std::is_same<Value, bool>::value) return 'b';
    if (std::is_same<Value, __half>::value) return 'h';
    if (std::is_same<Value, __nv_bfloat16>::value) return 'g';
    if (std::is_floating_point<Value>::value) return 'f';
    if (std::is_integral<Value>::value || std::is_enum<Value>::value) return std::is_signed<Value>::value ? 'i' : 'u';
    return 's';
}

// The name that gcc itself gives the type, without spaces: "float", "unsigned_int", "Params".
template <class Value>
struct TypeName {
    static int write(char* text, int room) {
        const char* begin = strstr(__PRETTY_FUNCTION__, "Value = ") + 8;
        int length = 0;
        for (int depth = 0; begin[length] && length < room - 1; ++length) {
            char letter = begin[length];
            depth += letter == '<' || letter == '(' || letter == '[';
            if ((letter == ']' || letter == ';') && depth == 0) break;
            depth -= letter == '>' || letter == ')' || letter == ']';
            text[length] = letter == ' ' ? '_' : letter;
        }
        text[length] = 0;
        return length;
    }
};

// One parameter; returns how many characters it wrote.
template <class Parameter>
int describe(char* text, int room) {
    using Element = std::remove_cv_t<std::remove_pointer_t<Parameter>>;
    using Sized = std::conditional_t<std::is_void<Element>::value || std::is_function<Element>::value, char, Element>;
    const bool constant = std::is_const<std::remove_pointer_t<Parameter>>::value;
    const char how = !std::is_pointer<Parameter>::value ? 'v' : constant ? 'c' : 'p';
    char name[120];
    TypeName<Element>::write(name, sizeof name);
    return snprintf(text, size_t(room), "%c%c:%zu:%s ", how, kind_of<Element>(), sizeof(Sized), name);
}

template <auto kernel>
struct Exported;

template <class... Parameters, void (*kernel)(Parameters...)>
struct Exported<kernel> {
    template <size_t... index>
    LK_UNRECORDED static LK_INLINE void call(void** arguments, std::index_sequence<index...>) {
        kernel(*static_cast<std::remove_const_t<std::remove_reference_t<Parameters>>*>(arguments[index])...);
    }

    LK_UNRECORDED static void run(void** arguments) { call(arguments, std::index_sequence_for<Parameters...>()); }

    // text: 160 characters a parameter.
    static void describe(char* text) {
        *text = 0;
        ((text += lk::describe<std::remove_cv_t<Parameters>>(text, 160)), ...);
    }
};

}  // namespace lk

template <auto kernel>
LK_UNRECORDED inline void lk_run_thread(void** arguments) {
    lk::Exported<kernel>::run(arguments);
}

template <auto kernel>
void lk_describe_kernel(char* text) {
    lk::Exported<kernel>::describe(text);
}

#define LK_EXPORT(lk_index, ...)                                                                         \
    extern "C" LK_UNRECORDED void lk_run_##lk_index(void** lk_a) { lk_run_thread<&__VA_ARGS__>(lk_a); }  \
    extern "C" void lk_describe_##lk_index(char* lk_t) { lk_describe_kernel<&__VA_ARGS__>(lk_t); }

// One of several kernels of a name: LK_EXPORT_OVERLOAD(3, (float*, int), scale).
#define LK_EXPORT_OVERLOAD(lk_index, lk_types, ...)                              \
    extern "C" LK_UNRECORDED void lk_run_##lk_index(void** lk_a) {               \
        lk_run_thread<static_cast<void(*) lk_types>(&__VA_ARGS__)>(lk_a);        \
    }                                                                            \
    extern "C" void lk_describe_##lk_index(char* lk_t) {                         \
        lk_describe_kernel<static_cast<void(*) lk_types>(&__VA_ARGS__)>(lk_t);   \
    }
