#include "lk/host/fft.h"
