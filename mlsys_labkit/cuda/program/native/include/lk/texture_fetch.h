// texture_fetch.h: tex2D and its relatives, as a kernel calls them.
//
// A texture unit filters with fractions of 8 bits (CUDA C++ programming guide, "Texture Fetching"), and so does this. A fetch is
// recorded as one read, of the element that it is nearest to.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>

#include "abi.h"
#include "lk/half.h"
#include "lk/qualifiers.h"
#include "lk/texture.h"
#include "lk/vectors.h"

namespace lk {

// The channels of an element; doubles hold each format's numbers.
struct Texel {
    double channel[4];
};

template <class Number>
LK_UNRECORDED inline Number number_at(const char* from) {
    Number number;
    __builtin_memcpy(&number, from, sizeof number);
    return number;
}

LK_UNRECORDED inline double channel_at(const char* from, int bits, cudaChannelFormatKind kind) {
    switch (kind) {
        case cudaChannelFormatKindSigned:
            return bits == 8 ? number_at<signed char>(from) : bits == 16 ? number_at<short>(from) : number_at<int>(from);
        case cudaChannelFormatKindUnsigned:
            return bits == 8    ? number_at<unsigned char>(from)
                   : bits == 16 ? number_at<unsigned short>(from)
                                : number_at<unsigned int>(from);
        default: return bits == 16 ? double(float(number_at<_Float16>(from))) : double(number_at<float>(from));
    }
}

LK_UNRECORDED inline double normalized(double value, int bits, cudaChannelFormatKind kind) {
    if (kind == cudaChannelFormatKindUnsigned) return float(value / ((1ll << bits) - 1));
    if (kind == cudaChannelFormatKindSigned) return std::fmax(-1.0f, float(value / ((1ll << (bits - 1)) - 1)));
    return value;
}

// The index that the address mode gives, or -1 where the border is.
LK_UNRECORDED inline int addressed(long long index, int count, cudaTextureAddressMode mode, bool is_normalized) {
    if (index >= 0 && index < count) return int(index);
    if (mode == cudaAddressModeBorder) return -1;
    if (is_normalized && mode == cudaAddressModeWrap) return int((index % count + count) % count);
    if (is_normalized && mode == cudaAddressModeMirror) {
        const long long place = (index % (2ll * count) + 2ll * count) % (2ll * count);
        return int(place < count ? place : 2ll * count - 1 - place);
    }
    return index < 0 ? 0 : count - 1;
}

struct Place {
    long long x;
    long long y;
    long long z;
};

LK_UNRECORDED inline const char* address_in(const Texture& texture, const Place& place, int layers) {
    const cudaTextureDesc& how = texture.how;
    const bool wraps = how.normalizedCoords;
    const int x = addressed(place.x, texture.width, how.addressMode[0], wraps);
    const int y = addressed(place.y, texture.height, how.addressMode[1], wraps);
    const int z = addressed(place.z, texture.depth, layers ? cudaAddressModeClamp : how.addressMode[2], wraps && !layers);
    if (x < 0 || y < 0 || z < 0) return nullptr;
    return texture.data + size_t(z) * texture.slice_pitch + size_t(y) * texture.pitch + size_t(x) * size_t(texture.element_bytes);
}

LK_UNRECORDED inline Texel texel(const Texture& texture, const char* at) {
    Texel result{};
    const int bits[4] = {texture.format.x, texture.format.y, texture.format.z, texture.format.w};
    if (!at) {
        for (int i = 0; i < 4; i++) result.channel[i] = texture.how.borderColor[i];
        return result;
    }
    for (int i = 0, byte = 0; i < 4; byte += bits[i++] / 8) {
        if (!bits[i]) continue;
        const double value = channel_at(at + byte, bits[i], texture.format.f);
        const bool scaled = texture.how.readMode == cudaReadModeNormalizedFloat;
        result.channel[i] = scaled ? normalized(value, bits[i], texture.format.f) : value;
    }
    return result;
}

// One axis: the first of two elements, and how much of the second.
struct Axis {
    long long first;
    float part;
};

LK_UNRECORDED inline Axis axis(float coordinate, int count, bool is_normalized, bool is_linear) {
    const float at = is_normalized ? coordinate * float(count) : coordinate;
    if (!(std::fabs(at) < 1e9f)) return {at > 0 ? 1000000000 : at < 0 ? -1000000000 : 0, 0};
    if (!is_linear) return {static_cast<long long>(std::floor(at)), 0};
    const float moved = at - 0.5f;
    const float whole = std::floor(moved);
    return {static_cast<long long>(whole), std::floor((moved - whole) * 256 + 0.5f) / 256};
}

// rank: of the texture without its layers; layer: -1 where it has none.
LK_UNRECORDED inline Texel sample(const Texture& texture, const float (&at)[3], int rank, int layer) {
    const bool is_linear = texture.how.filterMode == cudaFilterModeLinear;
    const int counts[3] = {texture.width, texture.height, texture.depth};
    Axis axes[3] = {};
    for (int i = 0; i < rank; i++) axes[i] = axis(at[i], counts[i], texture.how.normalizedCoords, is_linear);
    if (layer >= 0) axes[2] = {layer, 0};
    if (!is_linear) return texel(texture, address_in(texture, {axes[0].first, axes[1].first, axes[2].first}, layer >= 0));
    Texel sum{};
    for (int corner = 0; corner < 1 << rank; corner++) {
        float weight = 1;
        long long place[3] = {axes[0].first, axes[1].first, axes[2].first};
        for (int i = 0; i < rank; i++) {
            const bool second = corner >> i & 1;
            place[i] += second;
            weight *= second ? axes[i].part : 1 - axes[i].part;
        }
        if (weight == 0) continue;
        const Texel one = texel(texture, address_in(texture, {place[0], place[1], place[2]}, layer >= 0));
        for (int i = 0; i < 4; i++) sum.channel[i] += double(weight) * one.channel[i];
    }
    return sum;
}

// What a fetch is recorded as: the element that it is nearest to; no bytes where that is outside.
struct Recorded {
    const char* address;
    size_t bytes;
};

LK_UNRECORDED inline const Texture& texture_of(cudaTextureObject_t object) { return *reinterpret_cast<const Texture*>(object); }

LK_UNRECORDED inline Recorded recorded(const Texture& texture, const Place& place, bool has_layers) {
    const char* at = address_in(texture, place, has_layers);
    return {at, at ? size_t(texture.element_bytes) : 0};
}

LK_OPAQUE inline Recorded nearest(cudaTextureObject_t object, float x, float y, float z, int rank, int layer) {
    const Texture& texture = texture_of(object);
    const bool is_normalized = texture.how.normalizedCoords;
    Place place{axis(x, texture.width, is_normalized, false).first, 0, layer < 0 ? 0 : layer};
    if (rank > 1) place.y = axis(y, texture.height, is_normalized, false).first;
    if (rank > 2) place.z = axis(z, texture.depth, is_normalized, false).first;
    return recorded(texture, place, layer >= 0);
}

template <class Value>
struct Channels {  // a scalar
    LK_UNRECORDED static Value of(const Texel& texel) { return static_cast<Value>(texel.channel[0]); }
};

#define LK_CHANNELS(Scalar, Name)                                                                                     \
    template <>                                                                                                       \
    struct Channels<Name##1> {                                                                                        \
        LK_UNRECORDED static Name##1 of(const Texel& t) { return {static_cast<Scalar>(t.channel[0])}; }                            \
    };                                                                                                                \
    template <>                                                                                                       \
    struct Channels<Name##2> {                                                                                        \
        LK_UNRECORDED static Name##2 of(const Texel& t) {                                                             \
            return {static_cast<Scalar>(t.channel[0]), static_cast<Scalar>(t.channel[1])};                            \
        }                                                                                                             \
    };                                                                                                                \
    template <>                                                                                                       \
    struct Channels<Name##4> {                                                                                        \
        LK_UNRECORDED static Name##4 of(const Texel& t) {                                                             \
            return {static_cast<Scalar>(t.channel[0]), static_cast<Scalar>(t.channel[1]),                             \
                    static_cast<Scalar>(t.channel[2]), static_cast<Scalar>(t.channel[3])};                            \
        }                                                                                                             \
    };

LK_CHANNELS(signed char, char)
LK_CHANNELS(unsigned char, uchar)
LK_CHANNELS(short, short)
LK_CHANNELS(unsigned short, ushort)
LK_CHANNELS(int, int)
LK_CHANNELS(unsigned int, uint)
LK_CHANNELS(float, float)

template <class Value>
LK_OPAQUE Value sampled(cudaTextureObject_t object, float x, float y, float z, int rank, int layer) {
    const float at[3] = {x, y, z};
    return Channels<Value>::of(sample(texture_of(object), at, rank, layer));
}

template <class Value>
LK_INLINE Value fetch(cudaTextureObject_t object, float x, float y, float z, int rank, int layer) {
    if constexpr (recording) {
        const Recorded read = nearest(object, x, y, z, rank, layer);
        lk_read(read.address, read.bytes);
    }
    return sampled<Value>(object, x, y, z, rank, layer);
}

LK_OPAQUE inline Recorded element(cudaTextureObject_t object, int index) {
    const Texture& texture = texture_of(object);
    if (index < 0 || index >= texture.width) return {nullptr, 0};
    return {texture.data + size_t(index) * size_t(texture.element_bytes), size_t(texture.element_bytes)};
}

// Outside, a texture of linear memory gives 0.
template <class Value>
LK_OPAQUE Value element_value(cudaTextureObject_t object, const char* at) {
    return Channels<Value>::of(at ? texel(texture_of(object), at) : Texel{});
}

template <class Value>
LK_INLINE Value fetch_linear(cudaTextureObject_t object, int index) {
    const Recorded read = element(object, index);
    if constexpr (recording) lk_read(read.address, read.bytes);
    return element_value<Value>(object, read.address);
}

struct CubeFace {
    int face;
    float s;
    float t;
};

// The programming guide's table, "Cubemap Textures".
LK_UNRECORDED inline CubeFace cube_face(float x, float y, float z) {
    const float a = std::fabs(x), b = std::fabs(y), c = std::fabs(z);
    const bool on_x = a >= b && a >= c, on_y = !on_x && b >= c;
    const float m = on_x ? x : on_y ? y : z;
    const bool back = m < 0;
    const float s = on_x ? (back ? z : -z) : on_y ? x : (back ? -x : x);
    const float t = on_y ? (back ? -z : z) : -y;
    const float size = std::fabs(m);
    return {(on_x ? 0 : on_y ? 2 : 4) + back, (s / size + 1) / 2, (t / size + 1) / 2};
}

template <class Value>
LK_INLINE Value fetch_cube(cudaTextureObject_t object, float x, float y, float z, int layer) {
    const CubeFace face = cube_face(x, y, z);
    return fetch<Value>(object, face.s, face.t, 0, 2, 6 * layer + face.face);
}

// The four elements around a place, one channel of each, from the lower left counter-clockwise.
template <class Value>
LK_OPAQUE Value gathered(cudaTextureObject_t object, float x, float y, int channel) {
    const Texture& texture = texture_of(object);
    const bool is_normalized = texture.how.normalizedCoords;
    const long long i = axis(x, texture.width, is_normalized, true).first;
    const long long j = axis(y, texture.height, is_normalized, true).first;
    const Place places[4] = {{i, j + 1, 0}, {i + 1, j + 1, 0}, {i + 1, j, 0}, {i, j, 0}};
    Texel result{};
    for (int k = 0; k < 4; k++) result.channel[k] = texel(texture, address_in(texture, places[k], 0)).channel[channel];
    return Channels<Value>::of(result);
}

template <class Value>
LK_INLINE Value gather(cudaTextureObject_t object, float x, float y, int channel) {
    if constexpr (recording) {
        const Recorded read = nearest(object, x, y, 0, 2, -1);
        lk_read(read.address, read.bytes);
    }
    return gathered<Value>(object, x, y, channel);
}

}  // namespace lk

// Each comes as a function of its result's type, and with a pointer to the result first.
#define LK_FETCH(name, parameters, call)                                     \
    template <class Value>                                                   \
    LK_INLINE Value name(cudaTextureObject_t texture, LK_LIST parameters) { \
        return call;                                                         \
    }                                                                        \
    template <class Value>                                                   \
    LK_INLINE void name(Value* value, cudaTextureObject_t texture, LK_LIST parameters) { \
        *value = call;                                                       \
    }
#define LK_LIST(...) __VA_ARGS__

LK_FETCH(tex1Dfetch, (int x), lk::fetch_linear<Value>(texture, x))
LK_FETCH(tex1D, (float x), (lk::fetch<Value>(texture, x, 0, 0, 1, -1)))
LK_FETCH(tex2D, (float x, float y), (lk::fetch<Value>(texture, x, y, 0, 2, -1)))
LK_FETCH(tex3D, (float x, float y, float z), (lk::fetch<Value>(texture, x, y, z, 3, -1)))
LK_FETCH(tex1DLayered, (float x, int layer), (lk::fetch<Value>(texture, x, 0, 0, 1, layer)))
LK_FETCH(tex2DLayered, (float x, float y, int layer), (lk::fetch<Value>(texture, x, y, 0, 2, layer)))
LK_FETCH(texCubemap, (float x, float y, float z), (lk::fetch_cube<Value>(texture, x, y, z, 0)))
LK_FETCH(texCubemapLayered, (float x, float y, float z, int layer), (lk::fetch_cube<Value>(texture, x, y, z, layer)))
LK_FETCH(tex2Dgather, (float x, float y, int channel = 0), (lk::gather<Value>(texture, x, y, channel)))
// There is one level.
LK_FETCH(tex1DLod, (float x, float), (lk::fetch<Value>(texture, x, 0, 0, 1, -1)))
LK_FETCH(tex2DLod, (float x, float y, float), (lk::fetch<Value>(texture, x, y, 0, 2, -1)))
LK_FETCH(tex3DLod, (float x, float y, float z, float), (lk::fetch<Value>(texture, x, y, z, 3, -1)))
#undef LK_FETCH
#undef LK_LIST
