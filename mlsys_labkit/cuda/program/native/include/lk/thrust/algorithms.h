// algorithms.h: all of Thrust's algorithms, one element after the other. Where they run, and how fast, says nothing of a GPU.
#pragma once

#include "lk/thrust/elements.h"
#include "lk/thrust/searching.h"
#include "lk/thrust/sorting.h"
#include "lk/thrust/sums.h"
