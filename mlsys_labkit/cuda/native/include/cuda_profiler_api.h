// cuda_profiler_api.h: all of it is in every program from the start.
#pragma once

#include "lk/prelude.h"
