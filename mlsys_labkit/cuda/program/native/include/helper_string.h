// helper_string.h: the command-line helpers that the CUDA samples lean on: -name, --name and --name=value.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

#ifndef EXIT_WAIVED
#define EXIT_WAIVED 2
#endif

namespace lk {

// What follows "--name": "" for a bare flag, nullptr when it is not there.
inline const char* find_option(int count, const char** arguments, const char* name) {
    const size_t length = std::strlen(name);
    for (int i = 1; i < count; ++i) {
        const char* text = arguments[i];
        while (*text == '-') ++text;
        if (text == arguments[i] || std::strncmp(text, name, length) != 0) continue;
        if (text[length] == '=') return text + length + 1;
        if (text[length] == '\0') return text + length;
    }
    return nullptr;
}

}  // namespace lk

inline bool checkCmdLineFlag(int count, const char** arguments, const char* name) {
    return lk::find_option(count, arguments, name) != nullptr;
}

inline int getCmdLineArgumentInt(int count, const char** arguments, const char* name) {
    const char* value = lk::find_option(count, arguments, name);
    return value ? std::atoi(value) : 0;
}

inline float getCmdLineArgumentFloat(int count, const char** arguments, const char* name) {
    const char* value = lk::find_option(count, arguments, name);
    return value ? static_cast<float>(std::atof(value)) : 0.0f;
}

inline bool getCmdLineArgumentString(int count, const char** arguments, const char* name, char** result) {
    const char* value = lk::find_option(count, arguments, name);
    *result = const_cast<char*>(value);
    return value != nullptr;
}

template <class T>
bool getCmdLineArgumentValue(int count, const char** arguments, const char* name, T* result) {
    const char* value = lk::find_option(count, arguments, name);
    if (value) *result = static_cast<T>(std::atof(value));
    return value != nullptr;
}

inline char* sdkFindFilePath(const char* name, const char*) { return strdup(name); }
