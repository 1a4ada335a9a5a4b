#include "lk/thrust/vectors.h"
#include "lk/thrust/algorithms.h"
