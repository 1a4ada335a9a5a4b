// error.cuh: the error macro that many programs keep in a header of this name.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                              \
    do {                                                                         \
        const cudaError_t error_code = call;                                     \
        if (error_code != cudaSuccess) {                                         \
            printf("CUDA Error:\n");                                             \
            printf("    File:       %s\n", __FILE__);                            \
            printf("    Line:       %d\n", __LINE__);                            \
            printf("    Error code: %d\n", error_code);                          \
            printf("    Error text: %s\n", cudaGetErrorString(error_code));      \
            exit(1);                                                             \
        }                                                                        \
    } while (0)
