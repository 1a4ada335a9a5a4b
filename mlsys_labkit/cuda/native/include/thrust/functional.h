// functional.h: part of the stand-in for Thrust, see lk/thrust/functional.h.
#pragma once

#include "lk/thrust/functional.h"
