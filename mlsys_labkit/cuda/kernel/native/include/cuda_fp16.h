// cuda_fp16.h: half and half2.
#pragma once

#include "lk/convert16.h"

typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half __nv_half;
typedef __half2 nv_half2;
typedef __half2 __nv_half2;

using namespace lk::half_functions;
