// runtime.h: the host's half of the CUDA runtime, for whole programs. Kernels alone never see it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "lk/host/arrays.h"
#include "lk/host/device.h"
#include "lk/host/errors.h"
#include "lk/host/functions.h"
#include "lk/host/graphs.h"
#include "lk/host/launch.h"
#include "lk/host/memory.h"
#include "lk/host/pools.h"
#include "lk/host/streams.h"
#include "lk/host/textures.h"
#include "lk/surface.h"

// The include guards of CUDA's own headers, which nvcc reads before any source: programs ask which API they may use by them.
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define __DRIVER_TYPES_H__
#define __DEVICE_TYPES_H__
#define __VECTOR_TYPES_H__
#define __VECTOR_FUNCTIONS_H__
#define __DEVICE_LAUNCH_PARAMETERS_H__

#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#define CUDARTAPI
