// cuda_fp8.h: __nv_fp8_e4m3 and __nv_fp8_e5m2, alone, in pairs and in fours.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "lk/fp8.h"
