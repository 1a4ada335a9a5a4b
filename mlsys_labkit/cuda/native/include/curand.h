// curand.h: the host side of cuRAND: arrays of random numbers. The generators are the standard library's, so the numbers are
// not cuRAND's.
#pragma once

#include "lk/host/random.h"
