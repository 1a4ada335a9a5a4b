// surface.h: surf2Dread, surf2Dwrite and their relatives. The first coordinate counts bytes.
#pragma once

#include "lk/texture_fetch.h"

namespace lk {

// Where an element is: nullptr where nothing is to be done, address 1 where the kernel ends. Outside, a surface ends it unless it
// is told otherwise.
LK_OPAQUE inline char* surface_element(cudaSurfaceObject_t surface, long long x, int y, int z, size_t bytes,
                                       cudaSurfaceBoundaryMode mode) {
    const Array& array = *reinterpret_cast<const Array*>(surface);
    const long long width = static_cast<long long>(array.row_bytes()), size = static_cast<long long>(bytes);
    const int rows = static_cast<int>(array.rows()), slices = static_cast<int>(array.slices());
    if (x < 0 || x + size > width || y < 0 || y >= rows || z < 0 || z >= slices) {
        if (mode == cudaBoundaryModeZero) return nullptr;
        if (mode == cudaBoundaryModeTrap) return reinterpret_cast<char*>(1);
        x = x < 0 ? 0 : x + size > width ? width - size : x;
        y = y < 0 ? 0 : y >= rows ? rows - 1 : y;
        z = z < 0 ? 0 : z >= slices ? slices - 1 : z;
    }
    return array.data + size_t(z) * array.slice_bytes() + size_t(y) * array.row_bytes() + size_t(x);
}

template <class Value>
LK_INLINE Value surface_read(cudaSurfaceObject_t surface, int x, int y, int z, cudaSurfaceBoundaryMode mode) {
    const char* from = surface_element(surface, x, y, z, sizeof(Value), mode);
    if (from == reinterpret_cast<const char*>(1)) lk_trap();
    if (!from) return Value{};
    return *reinterpret_cast<const Value*>(from);
}

template <class Value>
LK_INLINE void surface_write(Value value, cudaSurfaceObject_t surface, int x, int y, int z, cudaSurfaceBoundaryMode mode) {
    char* to = surface_element(surface, x, y, z, sizeof(Value), mode);
    if (to == reinterpret_cast<char*>(1)) lk_trap();
    if (to) *reinterpret_cast<Value*>(to) = value;
}

}  // namespace lk

#define LK_SURFACE(name, parameters, y, z)                                                                            \
    template <class Value>                                                                                            \
    LK_INLINE Value name##read(cudaSurfaceObject_t surface, LK_LIST parameters,                                       \
                               cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                                 \
        return lk::surface_read<Value>(surface, x, y, z, mode);                                                       \
    }                                                                                                                 \
    template <class Value>                                                                                            \
    LK_INLINE void name##read(Value* value, cudaSurfaceObject_t surface, LK_LIST parameters,                          \
                              cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                                  \
        *value = lk::surface_read<Value>(surface, x, y, z, mode);                                                     \
    }                                                                                                                 \
    template <class Value>                                                                                            \
    LK_INLINE void name##write(Value value, cudaSurfaceObject_t surface, LK_LIST parameters,                          \
                               cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                                 \
        lk::surface_write(value, surface, x, y, z, mode);                                                             \
    }
#define LK_LIST(...) __VA_ARGS__

LK_SURFACE(surf1D, (int x), 0, 0)
LK_SURFACE(surf2D, (int x, int y), y, 0)
LK_SURFACE(surf3D, (int x, int y, int z), y, z)
LK_SURFACE(surf1DLayered, (int x, int layer), 0, layer)
LK_SURFACE(surf2DLayered, (int x, int y, int layer), y, layer)
LK_SURFACE(surfCubemap, (int x, int y, int face), y, face)
LK_SURFACE(surfCubemapLayered, (int x, int y, int face), y, face)
#undef LK_SURFACE
#undef LK_LIST
