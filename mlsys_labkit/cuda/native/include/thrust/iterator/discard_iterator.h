// discard_iterator.h: part of the stand-in for Thrust, see lk/thrust/iterators.h.
#pragma once

#include "lk/thrust/iterators.h"
