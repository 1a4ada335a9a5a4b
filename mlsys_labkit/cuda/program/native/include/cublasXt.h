#include "lk/host/blas_xt.h"
