// curand_kernel.h: random numbers inside kernels: XORWOW, Philox and MRG32k3a as their papers give them, the first two seeded
// as cuRAND seeds them.
//
// Whether the numbers equal cuRAND's bit for bit was not measured. Programs should rely on their distribution only.
#pragma once

#include "curand.h"
#include "lk/random.h"
