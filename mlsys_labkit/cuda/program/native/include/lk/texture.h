// texture.h: what kernels and the host share: the format of an element, a CUDA array, a texture.
#pragma once

#include <cstddef>

#include "lk/qualifiers.h"

enum cudaChannelFormatKind {
    cudaChannelFormatKindSigned = 0,
    cudaChannelFormatKindUnsigned = 1,
    cudaChannelFormatKindFloat = 2,
    cudaChannelFormatKindNone = 3,
};

struct cudaChannelFormatDesc {
    int x;  // bits of each channel
    int y;
    int z;
    int w;
    cudaChannelFormatKind f;
};

typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;

enum cudaTextureAddressMode {
    cudaAddressModeWrap = 0,
    cudaAddressModeClamp = 1,
    cudaAddressModeMirror = 2,
    cudaAddressModeBorder = 3,
};

enum cudaTextureFilterMode {
    cudaFilterModePoint = 0,
    cudaFilterModeLinear = 1,
};

enum cudaTextureReadMode {
    cudaReadModeElementType = 0,
    cudaReadModeNormalizedFloat = 1,
};

enum cudaSurfaceBoundaryMode {
    cudaBoundaryModeZero = 0,
    cudaBoundaryModeClamp = 1,
    cudaBoundaryModeTrap = 2,
};

struct cudaTextureDesc {
    cudaTextureAddressMode addressMode[3];
    cudaTextureFilterMode filterMode;
    cudaTextureReadMode readMode;
    int sRGB;
    float borderColor[4];
    int normalizedCoords;
    unsigned int maxAnisotropy;
    cudaTextureFilterMode mipmapFilterMode;
    float mipmapLevelBias;
    float minMipmapLevelClamp;
    float maxMipmapLevelClamp;
    int disableTrilinearOptimization;
    int seamlessCubemap;
};

namespace lk {

// Rows of elements, kept one behind the other. A GPU keeps them in tiles, which no program can see.
struct Array {
    cudaChannelFormatDesc format;
    size_t width;  // in elements
    size_t height;  // 0: an array of one dimension
    size_t depth;   // or layers; 0: none
    unsigned int flags;
    size_t element_bytes;
    char* data;

    LK_UNRECORDED size_t row_bytes() const { return width * element_bytes; }
    LK_UNRECORDED size_t rows() const { return height ? height : 1; }
    LK_UNRECORDED size_t slices() const { return depth ? depth : 1; }
    LK_UNRECORDED size_t slice_bytes() const { return row_bytes() * rows(); }
};

// What a texture object is the address of.
struct Texture {
    const char* data;
    cudaChannelFormatDesc format;
    int element_bytes;
    int width;  // in elements
    int height;
    int depth;  // or layers
    size_t pitch;
    size_t slice_pitch;
    cudaTextureDesc how;
};

}  // namespace lk
