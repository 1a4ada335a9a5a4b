// cublas_v2.h: a stand-in for cuBLAS: plain loops on the CPU, column-major as cuBLAS is. Right, and no measure of its speed.
#pragma once

#include "lk/host/blas.h"
