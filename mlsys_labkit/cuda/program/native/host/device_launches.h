// device_launches.h: kernels that a kernel launches (dynamic parallelism).
//
// A child may begin at any time after its launch, and its parent is not complete before it. Here it begins when the parent's
// threads have ended, which is one of those times; launches to cudaStreamTailLaunch come after all others, as CUDA defines.
#pragma once

#include "kept_arguments.h"
#include "lk/host/errors.h"

namespace lk::host {

struct DeviceLaunch {
    const char* name;
    const void* kernel;
    Configuration configuration;
    Body body;
    KeptArguments arguments;
};

cudaError_t launch_later(DeviceLaunch launch);

// Runs what the kernel that has just ended launched, and what these kernels launch.
void run_device_launches(void (*run)(DeviceLaunch& launch));

}  // namespace lk::host
