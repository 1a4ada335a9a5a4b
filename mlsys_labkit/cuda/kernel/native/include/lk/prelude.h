// prelude.h: what every kernel sees before its first line: the standard headers, then CUDA's own words.
//
// All of it is read (and precompiled) before any text of the student's, so that no macro of theirs can change it. Names that
// need an #include in CUDA are kept in namespace lk, and the public header of that name brings them out.
#pragma once

#include "lk/standard.h"

#include "lk/qualifiers.h"
#include "lk/vectors.h"
#include "lk/local_value.h"
#include "lk/builtins.h"
#include "lk/synchronize.h"
#include "lk/warp.h"
#include "lk/atomics.h"
#include "lk/memory.h"
#include "lk/minmax.h"
#include "lk/bits.h"
#include "lk/packed.h"
#include "lk/floats.h"
#include "lk/special.h"
#include "lk/half.h"
#include "lk/convert16.h"
#include "lk/ptx/instructions.h"
