// cuComplex.h: complex numbers as pairs, with functions and no operators.
#pragma once

#include <cmath>

#include "lk/vectors.h"

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

// lk_z and lk_w are the operands; names of functions differ by a letter: cuCmulf, cuCmul.
#define LK_COMPLEX(Complex, Real, make, real, imag, conjugate, add, subtract, multiply, divide, magnitude, fma, hypotenuse)    \
    LK_INLINE Complex make(Real lk_x, Real lk_y) { return {lk_x, lk_y}; }                                                      \
    LK_INLINE Real real(Complex lk_z) { return lk_z.x; }                                                                       \
    LK_INLINE Real imag(Complex lk_z) { return lk_z.y; }                                                                       \
    LK_INLINE Complex conjugate(Complex lk_z) { return make(lk_z.x, -lk_z.y); }                                                \
    LK_INLINE Complex add(Complex lk_z, Complex lk_w) { return make(lk_z.x + lk_w.x, lk_z.y + lk_w.y); }                       \
    LK_INLINE Complex subtract(Complex lk_z, Complex lk_w) { return make(lk_z.x - lk_w.x, lk_z.y - lk_w.y); }                  \
    LK_INLINE Complex multiply(Complex lk_z, Complex lk_w) {                                                                   \
        return make(lk_z.x * lk_w.x - lk_z.y * lk_w.y, lk_z.x * lk_w.y + lk_z.y * lk_w.x);                                     \
    }                                                                                                                          \
    LK_INLINE Complex divide(Complex lk_z, Complex lk_w) {                                                                     \
        const Real lk_scale = 1 / (std::abs(lk_w.x) + std::abs(lk_w.y));                                                       \
        const Complex lk_a = make(lk_z.x * lk_scale, lk_z.y * lk_scale);                                                       \
        const Complex lk_b = make(lk_w.x * lk_scale, lk_w.y * lk_scale);                                                       \
        const Real lk_norm = 1 / (lk_b.x * lk_b.x + lk_b.y * lk_b.y);                                                          \
        return make((lk_a.x * lk_b.x + lk_a.y * lk_b.y) * lk_norm, (lk_a.y * lk_b.x - lk_a.x * lk_b.y) * lk_norm);             \
    }                                                                                                                          \
    LK_INLINE Real magnitude(Complex lk_z) { return hypotenuse(lk_z.x, lk_z.y); }                                              \
    LK_INLINE Complex fma(Complex lk_z, Complex lk_w, Complex lk_c) { return add(multiply(lk_z, lk_w), lk_c); }

LK_COMPLEX(cuFloatComplex, float, make_cuFloatComplex, cuCrealf, cuCimagf, cuConjf, cuCaddf, cuCsubf, cuCmulf, cuCdivf, cuCabsf,
           cuCfmaf, hypotf)
LK_COMPLEX(cuDoubleComplex, double, make_cuDoubleComplex, cuCreal, cuCimag, cuConj, cuCadd, cuCsub, cuCmul, cuCdiv, cuCabs, cuCfma,
           hypot)

#undef LK_COMPLEX

LK_INLINE cuComplex make_cuComplex(float lk_x, float lk_y) { return make_cuFloatComplex(lk_x, lk_y); }

LK_INLINE cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex lk_z) { return make_cuDoubleComplex(lk_z.x, lk_z.y); }

LK_INLINE cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex lk_z) {
    return make_cuFloatComplex(float(lk_z.x), float(lk_z.y));
}
