// cuda_bf16.h: nv_bfloat16 and nv_bfloat162.
#pragma once

#include "lk/convert16.h"

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

using namespace lk::bfloat16_functions;
