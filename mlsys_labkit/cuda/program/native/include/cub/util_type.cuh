#include "lk/cub/common.h"
