// outcome.h: one launch on the engine, and what it left.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine.h"
#include "lk/host/errors.h"
#include "module.h"

namespace lk::host {

struct Outcome {
    cudaError_t error = cudaSuccess;
    double seconds = 0;
    std::vector<std::string> sections;  // findings, sites, steps, samples, totals: arrays of the structs in records.h
};

// The student's program, once it is loaded.
LoadedModule& program();

// with_counts: a profile's sites, steps, samples and totals too; findings always.
Outcome run_and_collect(Launch& launch, bool with_counts);

// What the last launch touched, where that was asked for.
std::vector<std::shared_ptr<const TouchedBuffer>> take_kernel_footprint();

}  // namespace lk::host
