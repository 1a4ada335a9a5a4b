// cuda_std.h: what g++ has in namespace std, under the name that device code uses.
#pragma once

namespace cuda {
namespace std {
using namespace ::std;
}
}  // namespace cuda
