#include "lk/cub/block_order.h"
