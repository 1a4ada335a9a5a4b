// export.h: how a kernel is called without knowing its type, and how it describes its parameters.
//
// The lines after the student's source use only names that begin with lk_, so that no macro of the student's can meet them.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "lk/bfloat16.h"
#include "lk/half.h"
#include "lk/passed.h"
#include "lk/qualifiers.h"

namespace lk {

// A text that is put together while compiling.
template <size_t Capacity>
struct Text {
    char lk_characters[Capacity] = {};
    size_t length = 0;

    constexpr void add(char character) {
        if (length + 1 < Capacity) lk_characters[length++] = character;
    }

    constexpr void add(const char* text) {
        while (*text) add(*text++);
    }

    constexpr void add(size_t number) {
        if (number >= 10) add(number / 10);
        add(char('0' + number % 10));
    }
};

template <class T>
constexpr const char* kind_of() {
    using Plain = std::remove_cv_t<T>;
    if constexpr (std::is_enum_v<Plain>) {
        return kind_of<std::underlying_type_t<Plain>>();
    } else {
        if (std::is_same_v<Plain, bool>) return "bool";
        if (std::is_same_v<Plain, __half>) return "half";
        if (std::is_same_v<Plain, __nv_bfloat16>) return "bfloat16";
        if (std::is_floating_point_v<Plain>) return "float";
        if (std::is_integral_v<Plain>) return std::is_signed_v<Plain> ? "integer" : "unsigned";
        if (std::is_void_v<Plain>) return "void";
        return std::is_pointer_v<Plain> ? "pointer" : "record";
    }
}

template <class T>
constexpr size_t size_of() {
    if constexpr (std::is_void_v<T> || std::is_function_v<T>) {
        return 1;
    } else {
        return sizeof(T);
    }
}

// The type as the compiler writes it: what stands behind "T = " in this function's own name.
template <class T, size_t Capacity>
constexpr void add_type(Text<Capacity>& text) {
    const char* name = __PRETTY_FUNCTION__;
    while (!(name[0] == 'T' && name[1] == ' ' && name[2] == '=')) ++name;
    name += 4;
    for (size_t depth = 0; *name && !(depth == 0 && (*name == ';' || *name == ']')); ++name) {
        depth += *name == '[';
        depth -= *name == ']';
        text.add(*name);
    }
}

template <class T, size_t Capacity>
constexpr void add_parameter(Text<Capacity>& text) {
    using Value = std::remove_reference_t<T>;
    text.add(kind_of<Value>());
    text.add('\t');
    text.add(sizeof(Value));
    text.add('\t');
    text.add(alignof(Value));
    text.add('\t');
    if constexpr (std::is_pointer_v<Value>) {
        using Element = std::remove_pointer_t<Value>;
        text.add(kind_of<Element>());
        text.add('\t');
        text.add(size_of<Element>());
        text.add('\t');
        text.add(std::is_const_v<Element> ? "const" : "mutable");
    } else {
        text.add("\t\t");
    }
    text.add('\t');
    add_type<T>(text);
    text.add('\n');
}

template <class... Parameters>
constexpr auto lk_describe(void (*)(Parameters...)) {
    Text<160 * sizeof...(Parameters) + 1> text;
    (add_parameter<Parameters>(text), ...);
    return text;
}

template <class... Parameters, size_t... I>
LK_UNRECORDED __attribute__((always_inline)) inline void call(void (*kernel)(Parameters...), void** arguments,
                                                              std::index_sequence<I...>) {
    if constexpr ((std::is_same_v<typename Passed<Parameters>::Type, Parameters> && ...)) {
        call_for_threads<Parameters...>(kernel, *static_cast<std::remove_reference_t<Parameters>*>(arguments[I])...);
    } else {
        do {
            reinterpret_cast<void (*)(typename Passed<Parameters>::Type...)>(kernel)(
                Passed<Parameters>(static_cast<typename Passed<Parameters>::Stored>(arguments[I])).get()...);
        } while (lk_next_thread());
    }
}

// Runs threads of the kernel. The kernel is a constant here, so that it becomes part of this function.
template <auto kernel, class... Parameters>
LK_UNRECORDED __attribute__((always_inline)) inline void lk_run(void (*)(Parameters...), void** arguments) {
    call(kernel, arguments, std::index_sequence_for<Parameters...>());
}

}  // namespace lk

#define LK_VISIBLE extern "C" __attribute__((__visibility__("default"))) LK_UNRECORDED

#define LK_EXPORT(lk_number, ...)                              \
    LK_VISIBLE void lk_run_##lk_number(void** lk_arguments) {         \
        lk::lk_run<&__VA_ARGS__>(&__VA_ARGS__, lk_arguments);            \
    }                                                                 \
    LK_VISIBLE const char* lk_describe_##lk_number() {                \
        static constexpr auto lk_text = lk::lk_describe(&__VA_ARGS__);   \
        return lk_text.lk_characters;                                    \
    }

// The cluster that a kernel is declared with.
#define LK_CLUSTER(lk_number, ...)                                         \
    LK_VISIBLE void lk_cluster_##lk_number(unsigned* lk_extents) {         \
        const unsigned lk_given[] = {__VA_ARGS__};                         \
        for (unsigned lk_i = 0; lk_i < 3; lk_i++) {                        \
            lk_extents[lk_i] = lk_i < sizeof lk_given / sizeof *lk_given ? lk_given[lk_i] : 1; \
        }                                                                  \
    }

// Behind the last kernel: how many there are, and where dynamic shared memory begins. build/unit.py defines the array.
#define LK_EXPORT_MODULE(lk_kernels)                                                                             \
    extern "C" __attribute__((__visibility__("hidden"))) thread_local char lk_dynamic_shared[];                  \
    LK_VISIBLE int lk_kernel_count() { return lk_kernels; }                                                      \
    LK_VISIBLE char* lk_shared_anchor() { return lk_dynamic_shared; }
