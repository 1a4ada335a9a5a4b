// cuda_pipeline.h: the primitives (nvcuda::experimental::pipeline, which came before cuda::pipeline, is left out).
#pragma once

#include <cuda_pipeline_primitives.h>

#include <cuda/pipeline>
