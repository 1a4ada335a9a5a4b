#include "curand.h"
#include "lk/random.h"
