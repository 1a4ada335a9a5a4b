// cudaTypedefs.h: types of the driver API's functions, as far as programs look them up by name.
#include "lk/host/driver.h"
