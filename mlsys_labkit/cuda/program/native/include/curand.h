#include "lk/host/random.h"
