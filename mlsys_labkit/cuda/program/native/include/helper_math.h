// helper_math.h: arithmetic of float4 and its relatives, as the header of this name among the CUDA samples has it.
#pragma once

#include <cmath>
#include <type_traits>

#if __has_include("lk/prelude.h")
#include "lk/prelude.h"
#else  // nvcc itself
#define LK_INLINE __host__ __device__ inline
#endif

typedef unsigned int uint;
typedef unsigned short ushort;

namespace lk {

template <class T, int n>
struct VectorOf {
    using Scalar = T;
    static constexpr int members = n;
};

template <class V>
struct VectorTraits {};
template <> struct VectorTraits<float2> : VectorOf<float, 2> {};
template <> struct VectorTraits<float3> : VectorOf<float, 3> {};
template <> struct VectorTraits<float4> : VectorOf<float, 4> {};
template <> struct VectorTraits<int2> : VectorOf<int, 2> {};
template <> struct VectorTraits<int3> : VectorOf<int, 3> {};
template <> struct VectorTraits<int4> : VectorOf<int, 4> {};
template <> struct VectorTraits<uint2> : VectorOf<unsigned, 2> {};
template <> struct VectorTraits<uint3> : VectorOf<unsigned, 3> {};
template <> struct VectorTraits<uint4> : VectorOf<unsigned, 4> {};

template <class V>
using ScalarOf = typename VectorTraits<V>::Scalar;

template <class V>
using Floats = std::enable_if_t<std::is_same_v<ScalarOf<V>, float>, V>;

// f of each member, or of those of several vectors.
template <class V, class F, class... More>
LK_INLINE V each(F f, V a, More... more) {
    a.x = f(a.x, more.x...);
    a.y = f(a.y, more.y...);
    if constexpr (VectorTraits<V>::members > 2) a.z = f(a.z, more.z...);
    if constexpr (VectorTraits<V>::members > 3) a.w = f(a.w, more.w...);
    return a;
}

// A vector of one number.
template <class V>
LK_INLINE V filled(ScalarOf<V> s) { return each([s](ScalarOf<V>) { return s; }, V{}); }

}  // namespace lk

LK_INLINE float2 make_float2(float s) { return make_float2(s, s); }
LK_INLINE float2 make_float2(float3 a) { return make_float2(a.x, a.y); }
LK_INLINE float2 make_float2(int2 a) { return make_float2(float(a.x), float(a.y)); }
LK_INLINE float2 make_float2(uint2 a) { return make_float2(float(a.x), float(a.y)); }
LK_INLINE float3 make_float3(float s) { return make_float3(s, s, s); }
LK_INLINE float3 make_float3(float2 a) { return make_float3(a.x, a.y, 0.0f); }
LK_INLINE float3 make_float3(float2 a, float s) { return make_float3(a.x, a.y, s); }
LK_INLINE float3 make_float3(float4 a) { return make_float3(a.x, a.y, a.z); }
LK_INLINE float3 make_float3(int3 a) { return make_float3(float(a.x), float(a.y), float(a.z)); }
LK_INLINE float3 make_float3(uint3 a) { return make_float3(float(a.x), float(a.y), float(a.z)); }
LK_INLINE float4 make_float4(float s) { return make_float4(s, s, s, s); }
LK_INLINE float4 make_float4(float3 a) { return make_float4(a.x, a.y, a.z, 0.0f); }
LK_INLINE float4 make_float4(float3 a, float w) { return make_float4(a.x, a.y, a.z, w); }
LK_INLINE float4 make_float4(int4 a) { return make_float4(float(a.x), float(a.y), float(a.z), float(a.w)); }
LK_INLINE int2 make_int2(int s) { return make_int2(s, s); }
LK_INLINE int2 make_int2(float2 a) { return make_int2(int(a.x), int(a.y)); }
LK_INLINE int3 make_int3(int s) { return make_int3(s, s, s); }
LK_INLINE int3 make_int3(float3 a) { return make_int3(int(a.x), int(a.y), int(a.z)); }
LK_INLINE int4 make_int4(int s) { return make_int4(s, s, s, s); }
LK_INLINE uint2 make_uint2(unsigned s) { return make_uint2(s, s); }
LK_INLINE uint3 make_uint3(unsigned s) { return make_uint3(s, s, s); }
LK_INLINE uint4 make_uint4(unsigned s) { return make_uint4(s, s, s, s); }

template <class V, class S = lk::ScalarOf<V>>
LK_INLINE V operator-(V a) { return lk::each([](S x) { return S(-x); }, a); }

// Of two vectors, and of a vector and a number on either side.
#define LK_MEMBERWISE(op)                                                                        \
    template <class V, class S = lk::ScalarOf<V>>                                                \
    LK_INLINE V operator op(V a, V b) { return lk::each([](S x, S y) { return x op y; }, a, b); } \
    template <class V>                                                                           \
    LK_INLINE V operator op(V a, lk::ScalarOf<V> s) { return a op lk::filled<V>(s); }            \
    template <class V>                                                                           \
    LK_INLINE V operator op(lk::ScalarOf<V> s, V a) { return lk::filled<V>(s) op a; }            \
    template <class V, class S = lk::ScalarOf<V>>                                                \
    LK_INLINE void operator op##=(V& a, V b) { a = a op b; }                                     \
    template <class V>                                                                           \
    LK_INLINE void operator op##=(V& a, lk::ScalarOf<V> s) { a = a op s; }

LK_MEMBERWISE(+)
LK_MEMBERWISE(-)
LK_MEMBERWISE(*)
LK_MEMBERWISE(/)
#undef LK_MEMBERWISE

template <class V, class S = lk::ScalarOf<V>>
LK_INLINE V min(V a, V b) { return lk::each([](S x, S y) { return y < x ? y : x; }, a, b); }

template <class V, class S = lk::ScalarOf<V>>
LK_INLINE V max(V a, V b) { return lk::each([](S x, S y) { return x < y ? y : x; }, a, b); }

template <class V>
LK_INLINE lk::Floats<V> fminf(V a, V b) { return lk::each([](float x, float y) { return fminf(x, y); }, a, b); }
template <class V>
LK_INLINE lk::Floats<V> fmaxf(V a, V b) { return lk::each([](float x, float y) { return fmaxf(x, y); }, a, b); }
template <class V>
LK_INLINE lk::Floats<V> fmodf(V a, V b) { return lk::each([](float x, float y) { return fmodf(x, y); }, a, b); }
template <class V>
LK_INLINE lk::Floats<V> floorf(V a) { return lk::each([](float x) { return floorf(x); }, a); }
template <class V>
LK_INLINE lk::Floats<V> fabs(V a) { return lk::each([](float x) { return fabsf(x); }, a); }

LK_INLINE float fracf(float x) { return x - floorf(x); }
template <class V>
LK_INLINE lk::Floats<V> fracf(V a) { return a - floorf(a); }

LK_INLINE float lerp(float a, float b, float t) { return a + t * (b - a); }
template <class V>
LK_INLINE lk::Floats<V> lerp(V a, V b, float t) { return a + t * (b - a); }

LK_INLINE float clamp(float x, float low, float high) { return fmaxf(low, fminf(x, high)); }
LK_INLINE int clamp(int x, int low, int high) { return max(low, min(x, high)); }
LK_INLINE unsigned clamp(unsigned x, unsigned low, unsigned high) { return max(low, min(x, high)); }
template <class V, class S = lk::ScalarOf<V>>
LK_INLINE V clamp(V a, V low, V high) { return max(low, min(a, high)); }
template <class V>
LK_INLINE V clamp(V a, lk::ScalarOf<V> low, lk::ScalarOf<V> high) {
    return clamp(a, lk::filled<V>(low), lk::filled<V>(high));
}

LK_INLINE float smoothstep(float a, float b, float x) {
    const float t = clamp((x - a) / (b - a), 0.0f, 1.0f);
    return t * t * (3.0f - 2.0f * t);
}

template <class V>
LK_INLINE lk::ScalarOf<V> dot(V a, V b) {
    const V products = a * b;
    lk::ScalarOf<V> sum = products.x + products.y;
    if constexpr (lk::VectorTraits<V>::members > 2) sum += products.z;
    if constexpr (lk::VectorTraits<V>::members > 3) sum += products.w;
    return sum;
}

template <class V, class = lk::Floats<V>>
LK_INLINE float length(V a) { return sqrtf(dot(a, a)); }
template <class V>
LK_INLINE lk::Floats<V> normalize(V a) { return a * (1.0f / sqrtf(dot(a, a))); }
template <class V>
LK_INLINE lk::Floats<V> reflect(V in, V normal) { return in - 2.0f * normal * dot(normal, in); }

LK_INLINE float3 cross(float3 a, float3 b) {
    return make_float3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
