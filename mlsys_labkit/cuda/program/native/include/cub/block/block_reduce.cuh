#include "lk/cub/block.h"
