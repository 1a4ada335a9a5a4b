// transfers.h: copies and fills: whether one may be done, and the doing.
#pragma once

#include <cstddef>

#include "lk/host/arrays.h"
#include "lk/host/errors.h"
#include "lk/host/memory.h"

namespace lk::host {

// Rows of bytes: one, a plane of them, or a box.
struct Rows {
    char* data;
    size_t pitch;        // from one row to the next
    size_t slice_pitch;  // from one plane to the next
};

struct Transfer {
    Rows to{};
    Rows from{};
    size_t width = 0;  // bytes
    size_t height = 1;
    size_t depth = 1;
    cudaMemcpyKind kind = cudaMemcpyDefault;

    bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

struct Fill {
    char* data = nullptr;
    size_t pitch = 0;
    unsigned int value = 0;
    unsigned int element_bytes = 1;
    size_t width = 0;  // elements
    size_t height = 1;
};

Transfer plain_transfer(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
Transfer plane_transfer(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                        cudaMemcpyKind kind);
// An error where the parameters are none of a copy.
cudaError_t read_parameters(const cudaMemcpy3DParms& parameters, Transfer& transfer);

cudaError_t check(const Transfer& transfer);
cudaError_t check(const Fill& fill);
// Both were checked.
cudaError_t carry_out(const Transfer& transfer);
cudaError_t carry_out(const Fill& fill);

bool in_program(const void* pointer);

}  // namespace lk::host
