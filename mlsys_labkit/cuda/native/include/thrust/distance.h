// distance.h: part of the stand-in for Thrust, see lk/thrust/algorithms.h.
#pragma once

#include "lk/thrust/algorithms.h"
