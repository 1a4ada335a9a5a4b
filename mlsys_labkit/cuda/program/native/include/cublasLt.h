#include "lk/host/blas_lt.h"
