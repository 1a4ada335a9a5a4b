// curand_kernel.h: random numbers inside kernels: XORWOW and Philox as their papers give them, seeded as cuRAND seeds them.
//
// Whether the numbers equal cuRAND's bit for bit was not measured. Programs should rely on their distribution only.
#pragma once

#include "lk/random.h"
