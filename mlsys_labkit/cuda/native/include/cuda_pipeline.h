// cuda_pipeline.h: the primitives; and nvcuda::experimental::pipeline, which is a thread's own.
#pragma once

#include <cuda_pipeline_primitives.h>

#include <cuda/pipeline>
