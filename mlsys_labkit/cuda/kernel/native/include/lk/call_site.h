// call_site.h: a number for a place in the source, for functions whose caller matters.
#pragma once

#if __cplusplus < 202002L
namespace std {
struct source_location {  // the type that gcc's builtin function wants; <source_location> begins with C++20
    struct __impl {
        const char* _M_file_name;
        const char* _M_function_name;
        unsigned _M_line;
        unsigned _M_column;
    };
};
}  // namespace std
#else
#include <source_location>
#endif

namespace lk {

// As a default argument: the line of the call in the low 20 bits, its column above them (two calls may share a line).
constexpr int call_site(const void* where = __builtin_source_location()) {
    const auto* at = static_cast<const std::source_location::__impl*>(where);
    return static_cast<int>((at->_M_column & 0x7ff) << 20 | (at->_M_line & 0xfffff));
}

}  // namespace lk
