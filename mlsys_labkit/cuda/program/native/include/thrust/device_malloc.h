#include "lk/thrust/pointers.h"
