// device_free.h: part of the stand-in for Thrust, see lk/thrust/pointers.h.
#pragma once

#include "lk/thrust/pointers.h"
