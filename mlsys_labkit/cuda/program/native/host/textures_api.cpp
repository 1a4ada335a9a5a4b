// textures_api.cpp: texture and surface objects.
#include <map>

#include "context.h"
#include "h100.h"
#include "heap.h"
#include "lk/host/textures.h"

using namespace lk::host;

namespace {

struct Made {
    lk::Texture texture;
    cudaResourceDesc resource;
};

// Destroyed ones stay: a kernel that is given one still finds memory there.
std::map<cudaTextureObject_t, Made*>& textures() {
    static std::map<cudaTextureObject_t, Made*> live;
    return live;
}

std::map<cudaSurfaceObject_t, cudaResourceDesc>& surfaces() {
    static std::map<cudaSurfaceObject_t, cudaResourceDesc> live;
    return live;
}

bool is_on_device(const void* pointer, size_t bytes) {
    uint64_t begin = 0;
    const Allocation* allocation = heap().find(pointer, &begin);
    return allocation && reinterpret_cast<uint64_t>(pointer) + bytes <= begin + allocation->bytes;
}

int element_bytes(const cudaChannelFormatDesc& format) { return (format.x + format.y + format.z + format.w) / 8; }

// Of one extent at least.
int extent(size_t count) { return count ? static_cast<int>(count) : 1; }

cudaError_t read_resource(const cudaResourceDesc& resource, lk::Texture& texture) {
    if (resource.resType == cudaResourceTypeArray) {
        const lk::Array* array = resource.res.array.array;
        if (!array) return cudaErrorInvalidValue;
        texture.data = array->data;
        texture.format = array->format;
        texture.width = extent(array->width);
        texture.height = extent(array->height);
        texture.depth = extent(array->depth);
        texture.pitch = array->row_bytes();
        texture.slice_pitch = array->slice_bytes();
    } else if (resource.resType == cudaResourceTypeLinear) {
        const auto& linear = resource.res.linear;
        texture.format = linear.desc;
        if (element_bytes(linear.desc) == 0 || !is_on_device(linear.devPtr, linear.sizeInBytes)) return cudaErrorInvalidValue;
        texture.data = static_cast<const char*>(linear.devPtr);
        texture.width = static_cast<int>(linear.sizeInBytes / static_cast<size_t>(element_bytes(linear.desc)));
        texture.height = texture.depth = 1;
        texture.pitch = texture.slice_pitch = linear.sizeInBytes;
    } else if (resource.resType == cudaResourceTypePitch2D) {
        const auto& plane = resource.res.pitch2D;
        texture.format = plane.desc;
        const size_t width = plane.width * static_cast<size_t>(element_bytes(plane.desc));
        if (width == 0 || plane.height == 0 || plane.pitchInBytes % h100::texture_pitch_alignment != 0 ||
            plane.pitchInBytes < width || !is_on_device(plane.devPtr, plane.pitchInBytes * (plane.height - 1) + width)) {
            return cudaErrorInvalidValue;
        }
        texture.data = static_cast<const char*>(plane.devPtr);
        texture.width = static_cast<int>(plane.width);
        texture.height = static_cast<int>(plane.height);
        texture.depth = 1;
        texture.pitch = plane.pitchInBytes;
        texture.slice_pitch = plane.pitchInBytes * plane.height;
    } else {
        return cudaErrorNotSupported;
    }
    texture.element_bytes = element_bytes(texture.format);
    return cudaSuccess;
}

cudaError_t check(const cudaTextureDesc& how, const cudaChannelFormatDesc& format) {
    const bool gives_floats = format.f == cudaChannelFormatKindFloat || how.readMode == cudaReadModeNormalizedFloat;
    if (how.filterMode == cudaFilterModeLinear && !gives_floats) return cudaErrorInvalidFilterSetting;
    if (how.readMode == cudaReadModeNormalizedFloat && format.f != cudaChannelFormatKindFloat && format.x == 32) {
        return cudaErrorInvalidNormSetting;
    }
    return cudaSuccess;
}

}  // namespace

extern "C" cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
    return {x, y, z, w, kind};
}

extern "C" cudaError_t cudaCreateTextureObject(cudaTextureObject_t* object, const cudaResourceDesc* resource,
                                               const cudaTextureDesc* how, const cudaResourceViewDesc* view) {
    return api([=] {
        if (!object || !resource || !how) return cudaErrorInvalidValue;
        if (view) return cudaErrorNotSupported;
        Made made{{}, *resource};
        cudaError_t error = read_resource(*resource, made.texture);
        if (error == cudaSuccess) error = check(*how, made.texture.format);
        if (error != cudaSuccess) return error;
        made.texture.how = *how;
        Made* kept = new Made(made);
        *object = reinterpret_cast<cudaTextureObject_t>(&kept->texture);
        textures()[*object] = kept;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
    return api([=] { return object == 0 || textures().erase(object) ? cudaSuccess : cudaErrorInvalidValue; });
}

extern "C" cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource, cudaTextureObject_t object) {
    return api([=] {
        if (!resource || !textures().count(object)) return cudaErrorInvalidValue;
        *resource = textures()[object]->resource;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* how, cudaTextureObject_t object) {
    return api([=] {
        if (!how || !textures().count(object)) return cudaErrorInvalidValue;
        *how = textures()[object]->texture.how;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* object, const cudaResourceDesc* resource) {
    return api([=] {
        if (!object || !resource || resource->resType != cudaResourceTypeArray || !resource->res.array.array) {
            return cudaErrorInvalidValue;
        }
        if (!(resource->res.array.array->flags & cudaArraySurfaceLoadStore)) return cudaErrorInvalidValue;
        *object = reinterpret_cast<cudaSurfaceObject_t>(resource->res.array.array);
        surfaces()[*object] = *resource;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) {
    return api([=] { return object == 0 || surfaces().erase(object) ? cudaSuccess : cudaErrorInvalidValue; });
}

extern "C" cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* resource, cudaSurfaceObject_t object) {
    return api([=] {
        if (!resource || !surfaces().count(object)) return cudaErrorInvalidValue;
        *resource = surfaces()[object];
        return cudaSuccess;
    });
}
