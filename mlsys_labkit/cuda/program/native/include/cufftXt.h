// cufftXt.h: callbacks and transforms over several GPUs are left out; the header also has what cufft.h has.
#pragma once
#include "cufft.h"
