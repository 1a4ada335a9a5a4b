#include "lk/thrust/iterators.h"
