// sm_61_intrinsics.h: all of it is in every kernel from the start.
#pragma once

#include "lk/prelude.h"
