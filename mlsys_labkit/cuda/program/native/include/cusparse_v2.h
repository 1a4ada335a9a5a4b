#include "lk/host/sparse.h"
