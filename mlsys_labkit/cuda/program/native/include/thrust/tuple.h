#include "lk/thrust/functional.h"
