// clusters.h: the thread block clusters that kernels are declared with, __cluster_dims__.
#pragma once

#include <string>

#include "lk/qualifiers.h"
#include "lk/vectors.h"

#include "lk/host/launch.h"

namespace lk::host {

// Of a kernel by its address, else by its name in the launch. 1, 1, 1 for a kernel that is declared with none.
dim3 declared_cluster(const std::string& name, const void* kernel);

}  // namespace lk::host
