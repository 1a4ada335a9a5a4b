// special_math.h: the special functions of C++17's <cmath>, for the sources that name one (gcc/headers.py).
#pragma once

#include "lk/standard.h"

#define _GLIBCXX_USE_STD_SPEC_FUNCS 1
#include <bits/specfun.h>
