// outcome.h: one launch on the engine, and what it left.
#pragma once

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

}  // namespace lk::host
