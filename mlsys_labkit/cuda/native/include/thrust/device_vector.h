// device_vector.h: part of the stand-in for Thrust, see lk/thrust/vectors.h.
#pragma once

#include "lk/thrust/vectors.h"

#include "lk/thrust/algorithms.h"
