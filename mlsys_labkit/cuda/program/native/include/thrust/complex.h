// complex.h: thrust::complex is std::complex here.
#pragma once

#include <complex>

namespace thrust {
using std::abs, std::arg, std::complex, std::conj, std::norm, std::polar;
}  // namespace thrust
