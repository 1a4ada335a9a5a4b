// mma.h: tensor cores through nvcuda::wmma.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "lk/wmma/multiply.h"
