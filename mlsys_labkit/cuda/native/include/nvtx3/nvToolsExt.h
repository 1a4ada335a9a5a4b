// nvToolsExt.h: see nvToolsExt.h.
#pragma once

#include "../nvToolsExt.h"
