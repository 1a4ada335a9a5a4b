// runtime.h: the host's half of the CUDA runtime, for whole programs. Kernels alone never see it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "lk/host/device.h"
#include "lk/host/errors.h"
#include "lk/host/functions.h"
#include "lk/host/launch.h"
#include "lk/host/memory.h"
#include "lk/host/streams.h"

#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#define CUDARTAPI
