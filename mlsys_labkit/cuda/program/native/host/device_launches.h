// device_launches.h: kernels that a kernel launches (dynamic parallelism).
//
// A child may begin at any time after its launch, and its parent is not complete before it. Here it begins when the parent's
// threads have ended, which is one of those times; launches to cudaStreamTailLaunch come after all others, as CUDA defines.
#pragma once

#include "lk/host/errors.h"

namespace lk::host {

// Runs what the kernel that has just ended launched, and what these kernels launch.
void run_device_launches();

}  // namespace lk::host
