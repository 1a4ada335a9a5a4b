#include "lk/prelude.h"
