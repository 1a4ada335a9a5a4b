#include "lk/prelude.h"
#ifdef CUDART_VERSION  // in a whole program
#include "lk/host/driver.h"
#endif
