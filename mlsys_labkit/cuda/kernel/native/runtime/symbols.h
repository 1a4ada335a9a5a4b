// symbols.h: the symbol table of an object file, for what the dynamic loader does not tell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lk {

struct Symbol {
    std::string name;
    uint64_t value;  // address in the file; of a thread-local variable: offset in its segment
    uint64_t bytes;
    bool defined;
    bool is_thread_local;
    bool is_constant;  // a __constant__ variable
};

// Throws std::runtime_error when the file is no 64-bit ELF file of this machine.
std::vector<Symbol> read_symbols(const std::string& path);

}  // namespace lk
