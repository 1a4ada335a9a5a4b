// textures.h: how the host makes texture and surface objects.
#pragma once

#include "lk/host/arrays.h"

enum cudaResourceType {
    cudaResourceTypeArray = 0,
    cudaResourceTypeMipmappedArray = 1,
    cudaResourceTypeLinear = 2,
    cudaResourceTypePitch2D = 3,
};

struct cudaResourceDesc {
    cudaResourceType resType;
    union {
        struct {
            cudaArray_t array;
        } array;
        struct {
            void* devPtr;
            cudaChannelFormatDesc desc;
            size_t sizeInBytes;
        } linear;
        struct {
            void* devPtr;
            cudaChannelFormatDesc desc;
            size_t width;
            size_t height;
            size_t pitchInBytes;
        } pitch2D;
    } res;
};

struct cudaResourceViewDesc;  // views are for mipmaps and block-compressed formats, which are left out

extern "C" {
cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind);
cudaError_t cudaCreateTextureObject(cudaTextureObject_t* object, const cudaResourceDesc* resource, const cudaTextureDesc* how,
                                    const cudaResourceViewDesc* view);
cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object);
cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource, cudaTextureObject_t object);
cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* how, cudaTextureObject_t object);
cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* object, const cudaResourceDesc* resource);
cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object);
cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* resource, cudaSurfaceObject_t object);
}

namespace lk {

template <class Scalar>
cudaChannelFormatDesc format_of(int channels) {
    constexpr cudaChannelFormatKind kind = std::is_floating_point_v<Scalar> ? cudaChannelFormatKindFloat
                                           : std::is_signed_v<Scalar>       ? cudaChannelFormatKindSigned
                                                                            : cudaChannelFormatKindUnsigned;
    const int bits = static_cast<int>(8 * sizeof(Scalar));
    return {bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0, channels > 3 ? bits : 0, kind};
}

}  // namespace lk

template <class Value>
cudaChannelFormatDesc cudaCreateChannelDesc() {
    if constexpr (std::is_arithmetic_v<Value>) {
        return lk::format_of<Value>(1);
    } else {
        using Scalar = decltype(Value::x);
        return lk::format_of<Scalar>(static_cast<int>(sizeof(Value) / sizeof(Scalar)));
    }
}

inline cudaChannelFormatDesc cudaCreateChannelDescHalf() { return {16, 0, 0, 0, cudaChannelFormatKindFloat}; }
