// warpgroup.h: products of a warpgroup (wgmma). Each thread hands over its part of the sums, and the runtime makes the product when
// the lanes of a warp have come (runtime/wgmma.cpp).
#pragma once

#include "lk/ptx/registers.h"

namespace lk {
namespace wgmma {

// The profile reads the FLOPs of a lane from this name and its number.
template <int flops>
LK_OPAQUE void tensor_core_multiply() {
    __asm__ volatile("");
}

// The address is hidden: gcc would read the variable in the caller and pass its value.
template <class Variable>
LK_OPAQUE Variable read(const Variable* variable) {
    __asm__ volatile("" : "+r"(variable));
    return *variable;
}

template <class Variable>
LK_OPAQUE void write(Variable* variable, Variable value) {
    __asm__ volatile("" : "+r"(variable));
    *variable = value;
}

}  // namespace wgmma

namespace ptx {

template <int flops>
LK_INLINE void warpgroup_multiply(const lk_wgmma& asked) {
    lk::wgmma::tensor_core_multiply<flops>();
    if (!lk_wgmma_multiply(&asked)) {
        lk_assert_fail("all 32 lanes of the warp take part in wgmma.mma_async", __FILE__, __LINE__, __func__);
    }
}

// Variables of the source that a product adds to. Another product may take them before the first has ended, and nothing else may:
// what the product itself reads and writes is not looked at.
template <class Register, class Variable>
LK_INLINE Register sum_input(Variable& variable) {
    return input<Register>(lk::wgmma::read(&variable));
}

template <class Variable, class Register>
LK_INLINE void sum_output(Variable& variable, Register value) {
    Variable whole;
    output(whole, value);
    lk::wgmma::write(&variable, whole);
}

template <class... Variables>
LK_INLINE void pending_sums(Variables&... variables) {
    void* const all[] = {const_cast<void*>(static_cast<const void*>(&variables))...};
    lk_wgmma_results(all, sizeof...(variables), 4);
}

}  // namespace ptx
}  // namespace lk

// Macros, since a product may have 128 sums, and each call of a function takes g++ its time.
#ifdef __SANITIZE_THREAD__
#define LK_SUM_INPUT lk::ptx::sum_input
#define LK_SUM_OUTPUT lk::ptx::sum_output
#define LK_PENDING_SUMS(...) lk::ptx::pending_sums(__VA_ARGS__)
#else
#define LK_SUM_INPUT lk::ptx::input
#define LK_SUM_OUTPUT lk::ptx::output
#define LK_PENDING_SUMS(...)
#endif
