// memory.h: loads and stores with a cache hint, and what kind of memory an address is in. Hints change nothing here.
#pragma once

#include "lk/atomics.h"

#include "../../runtime/abi.h"

#define LK_HINTED_LOAD(name)                 \
    template <class Value>                   \
    LK_INLINE Value name(const Value* from) { \
        return *from;                        \
    }

#define LK_HINTED_STORE(name)                                                    \
    template <class Value>                                                       \
    LK_INLINE void name(Value* to, lk::Given<Value> value) { \
        *to = value;                                                             \
    }

LK_HINTED_LOAD(__ldg)
LK_HINTED_LOAD(__ldca)
LK_HINTED_LOAD(__ldcg)
LK_HINTED_LOAD(__ldcs)
LK_HINTED_LOAD(__ldlu)
LK_HINTED_LOAD(__ldcv)

LK_HINTED_STORE(__stwb)
LK_HINTED_STORE(__stcg)
LK_HINTED_STORE(__stcs)
LK_HINTED_STORE(__stwt)

LK_INLINE unsigned __isShared(const void* address) { return unsigned(lk_is_shared(address)); }

LK_INLINE unsigned __isGlobal(const void* address) { return !lk_is_shared(address); }

// Inline PTX keeps the lower 32 bits (lk/ptx/registers.h). gcc must not see that they came from this array: what is read through
// them later may be the array's.
LK_INLINE size_t __cvta_generic_to_shared(const void* address) {
    __asm__("" : "+r"(address));
    return reinterpret_cast<size_t>(address);
}

LK_INLINE size_t __cvta_generic_to_global(const void* address) { return reinterpret_cast<size_t>(address); }

LK_INLINE void* __cvta_shared_to_generic(size_t address) { return reinterpret_cast<void*>(address); }
