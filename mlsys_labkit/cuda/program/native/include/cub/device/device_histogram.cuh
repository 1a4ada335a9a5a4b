#include "lk/cub/device.h"
