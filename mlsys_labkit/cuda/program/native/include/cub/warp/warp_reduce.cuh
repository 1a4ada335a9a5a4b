#include "lk/cub/warp.h"
