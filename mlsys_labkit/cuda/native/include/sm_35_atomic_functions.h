// sm_35_atomic_functions.h: all of it is in every kernel from the start.
#pragma once

#include "lk/prelude.h"
