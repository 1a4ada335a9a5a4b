#include "lk/cub/block_order.h"
#include "lk/cub/device.h"
#include "lk/cub/warp.h"
