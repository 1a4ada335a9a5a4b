#include "lk/thrust/algorithms.h"
