// operations.h: what reductions and scans fold values with.
#pragma once

#include "lk/qualifiers.h"

namespace cooperative_groups {

#define LK_OPERATION(name, result)                                          \
    template <class Value>                                                  \
    struct name {                                                           \
        LK_INLINE Value operator()(const Value& lk_left, const Value& lk_right) const { return result; } \
    };

LK_OPERATION(plus, lk_left + lk_right)
LK_OPERATION(less, lk_right < lk_left ? lk_right : lk_left)
LK_OPERATION(greater, lk_left < lk_right ? lk_right : lk_left)
LK_OPERATION(bit_and, lk_left & lk_right)
LK_OPERATION(bit_or, lk_left | lk_right)
LK_OPERATION(bit_xor, lk_left ^ lk_right)

#undef LK_OPERATION

}  // namespace cooperative_groups
