#include "lk/prelude.h"
#include "lk/tensor_map.h"
#ifdef CUDART_VERSION  // in a whole program
#include "lk/host/driver.h"
#endif
