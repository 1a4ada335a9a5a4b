// special.h: CUDA's inverses of error functions and normal distributions, and modified Bessel functions.
#pragma once

#include <cmath>

#include "lk/qualifiers.h"

namespace lk {

// erfc(x) exp(x^2): a continued fraction where the factors would overflow (Abramowitz and Stegun, 7.1.14).
LK_INLINE double scaled_erfc(double x) {
    if (x < 10.0) {
        return ::exp(x * x) * ::erfc(x);
    }
    double tail = x;
    for (int k = 40; k > 0; --k) {
        tail = x + 0.5 * k / tail;
    }
    return 0.56418958354775629 / tail;
}

// Where erf is x, for |x| < 1/2: Newton's steps from the first term of its series.
LK_INLINE double inverse_erf_near_0(double x) {
    double y = 0.88622692545275801 * x;
    for (int step = 0; step < 6; ++step) {
        y -= (::erf(y) - x) * 0.88622692545275801 * ::exp(y * y);
    }
    return y;
}

// Where erfc is y, for 0 < y < 2. Away from 1 by Newton's steps on the logarithm, which is nearly a parabola.
LK_INLINE double inverse_erfc(double y) {
    if (!(y > 0.0 && y < 2.0)) {
        return y == 0.0 ? INFINITY : y == 2.0 ? -INFINITY : NAN;
    }
    if (y > 0.5 && y < 1.5) {
        return inverse_erf_near_0(1.0 - y);
    }
    const double small = y > 1.0 ? 2.0 - y : y;
    double x = ::sqrt(-::log(small * 1.7724538509055161));
    for (int step = 0; step < 12; ++step) {
        const double scaled = scaled_erfc(x);
        x += (::log(scaled) - x * x - ::log(small)) * scaled * 0.88622692545275801;
    }
    return y > 1.0 ? -x : x;
}

LK_INLINE double inverse_erf(double x) {
    if (::fabs(x) < 0.5) {
        return inverse_erf_near_0(x);
    }
    return x > 0.0 ? inverse_erfc(1.0 - x) : -inverse_erfc(1.0 + x);
}

// I_order(x): its power series, and Hankel's asymptotic one where that is long (Abramowitz and Stegun, 9.6.10 and 9.7.1).
LK_INLINE double modified_bessel(int order, double given) {
    const double x = ::fabs(given);
    double sum = 0.0;
    if (x < 25.0) {
        double term = order ? x / 2 : 1.0;
        for (int k = 1; k < 80; ++k) {
            sum += term;
            term *= x * x / 4 / (double(k) * (k + order));
        }
    } else {
        double term = ::exp(x) / ::sqrt(2 * M_PI * x);
        for (int k = 1; k < 20; ++k) {
            sum += term;
            const double odd = 2 * k - 1;
            term *= (odd * odd - 4.0 * order * order) / (8 * x * k);
        }
    }
    return order && given < 0 ? -sum : sum;
}

}  // namespace lk

// clang-format off
#define LK_SPECIAL(name, formula) \
    LK_INLINE double name(double x) { return formula; } \
    LK_INLINE float name##f(float given) { const double x = given; return float(formula); } \
    LK_INLINE float name(float x) { return name##f(x); }

LK_SPECIAL(erfcx, lk::scaled_erfc(x))
LK_SPECIAL(erfinv, lk::inverse_erf(x))
LK_SPECIAL(erfcinv, lk::inverse_erfc(x))
LK_SPECIAL(normcdfinv, -M_SQRT2 * lk::inverse_erfc(2.0 * x))
LK_SPECIAL(cyl_bessel_i0, lk::modified_bessel(0, x))
LK_SPECIAL(cyl_bessel_i1, lk::modified_bessel(1, x))

#undef LK_SPECIAL
// clang-format on
