#include "lk/host/blas.h"
