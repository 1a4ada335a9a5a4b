// errors.cpp: names and texts of the runtime's errors.
#include "lk/host/errors.h"

namespace {

struct ErrorText {
    cudaError_t code;
    const char* name;
    const char* text;
};

const ErrorText error_texts[] = {
#define LK_ERROR(name, code, text) {name, #name, text},
#include "lk/cuda_errors.h"
#undef LK_ERROR
};

const ErrorText* find_text(cudaError_t code) {
    for (const ErrorText& entry : error_texts) {
        if (entry.code == code) return &entry;
    }
    return nullptr;
}

}  // namespace

extern "C" const char* cudaGetErrorString(cudaError_t error) {
    const ErrorText* entry = find_text(error);
    return entry ? entry->text : "unrecognized error code";
}

extern "C" const char* cudaGetErrorName(cudaError_t error) {
    const ErrorText* entry = find_text(error);
    return entry ? entry->name : "unrecognized error code";
}
