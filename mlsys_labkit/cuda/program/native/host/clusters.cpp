// clusters.cpp: see clusters.h.
#include "clusters.h"

#include <cstdlib>
#include <map>
#include <vector>

#include <cxxabi.h>
#include <dlfcn.h>

namespace lk::host {

namespace {

struct Declared {
    dim3 extents{1, 1, 1};
    void (*of)(const long long* arguments, unsigned* extents) = nullptr;  // where they depend on template arguments
};

std::map<std::string, Declared>& declared() {
    static std::map<std::string, Declared> clusters;
    return clusters;
}

// "void M8::kernel<128, 2>(int)" for the function at an address; "" where no symbol says it.
std::string symbol_at(const void* function) {
    Dl_info symbol;
    if (!function || !dladdr(function, &symbol) || !symbol.dli_sname || symbol.dli_saddr != function) return "";
    int status = 0;
    char* plain = abi::__cxa_demangle(symbol.dli_sname, nullptr, nullptr, &status);
    const std::string shown = plain ? plain : symbol.dli_sname;
    free(plain);
    return shown;
}

// The name without its return type, its scope and its template arguments.
std::string own_name(const std::string& shown) {
    const std::string name = shown.substr(0, shown.find_first_of("<("));
    const size_t before = name.find_last_of(": ");
    return before == std::string::npos ? name : name.substr(before + 1);
}

std::vector<long long> template_arguments(const std::string& shown) {
    std::vector<long long> numbers;
    size_t at = shown.find('<');
    int depth = 0;
    for (size_t begin = at + 1; at < shown.size(); at++) {
        if (shown[at] == '<' || shown[at] == '(') depth++;
        if (shown[at] == '>' || shown[at] == ')') depth--;
        if (depth > 1 || (depth == 1 && shown[at] != ',')) continue;
        std::string text = shown.substr(begin, at - begin);
        text.erase(0, text.find_first_not_of(' '));
        if (!text.empty() && text[0] == '(') text.erase(0, text.find(')') + 1);  // (Enumeration)3
        numbers.push_back(text == "true" ? 1 : strtoll(text.c_str(), nullptr, 10));
        begin = at + 1;
        if (depth == 0) break;
    }
    return numbers;
}

}  // namespace

dim3 declared_cluster(const std::string& name, const void* kernel) {
    std::string shown = symbol_at(kernel);
    constexpr const char* kUnnamed = "(anonymous namespace)::";
    for (size_t at; (at = shown.find(kUnnamed)) != std::string::npos;) shown.erase(at, std::string(kUnnamed).size());
    const auto found = declared().find(own_name(shown.empty() ? name : shown));
    if (found == declared().end()) return dim3(1, 1, 1);
    if (!found->second.of) return found->second.extents;
    std::vector<long long> arguments = template_arguments(shown);
    if (arguments.empty()) return dim3(0, 0, 0);
    arguments.resize(64);
    unsigned extents[3] = {1, 1, 1};
    found->second.of(arguments.data(), extents);
    return dim3(extents[0], extents[1], extents[2]);
}

}  // namespace lk::host

void lk_program_cluster(const char* kernel, unsigned x, unsigned y, unsigned z) {
    lk::host::declared()[kernel].extents = dim3(x, y, z);
}

void lk_program_cluster_rule(const char* kernel, void (*of)(const long long* arguments, unsigned* extents)) {
    lk::host::declared()[kernel].of = of;
}
