// instructions.h: what inline PTX is rewritten with (source/assembly.py).
#pragma once

#include "lk/ptx/arithmetic.h"
#include "lk/ptx/memory.h"
#include "lk/ptx/warp.h"
#include "lk/ptx/warpgroup.h"
#include "lk/sync/bulk.h"
#include "lk/sync/bulk_tensor.h"
#include "lk/sync/mbarrier.h"
