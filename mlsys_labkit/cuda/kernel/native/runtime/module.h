// module.h: opens a kernel.so and learns from it what the engine and the recorder need.
#pragma once

#include <string>
#include <vector>

#include "engine.h"

namespace lk {

struct Kernel {
    void (*run)(void** arguments);
    const char* description;
    lk_uint3 cluster;
};

struct LoadedModule {
    Module module;
    u64 load_address = 0;  // program counter - load_address = address in the ELF file
    u64 load_bytes = 0;    // to the end of its last segment
    std::vector<Kernel> kernels;
    SharedArray dynamic_shared{};  // and how much of it a launch may have
    LaunchDescription description;  // what is the same for every launch

    AddressRange image() const { return {load_address, load_address + load_bytes}; }
    LaunchDescription describe_launch(u64 dynamic_shared_bytes) const;
};

// Runs the static initialisers of the student's code. Throws std::runtime_error.
LoadedModule load_module(const std::string& path);

}  // namespace lk
