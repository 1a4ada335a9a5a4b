// common.h: what the programs of "Professional CUDA C Programming" (Cheng, Grossman, McKercher) expect of it.
#pragma once

#include <cstdio>
#include <cstdlib>

#include <sys/time.h>

#define CHECK(call)                                                                     \
    {                                                                                   \
        const cudaError_t error = call;                                                 \
        if (error != cudaSuccess) {                                                     \
            fprintf(stderr, "Error: %s:%d, ", __FILE__, __LINE__);                      \
            fprintf(stderr, "code: %d, reason: %s\n", error, cudaGetErrorString(error)); \
            exit(1);                                                                    \
        }                                                                               \
    }

#define LK_CHECK_STATUS(library, call)                                                            \
    {                                                                                             \
        const auto error = call;                                                                  \
        if (error != 0) {                                                                         \
            fprintf(stderr, "Got " library " error %d at %s:%d\n", int(error), __FILE__, __LINE__); \
            exit(1);                                                                              \
        }                                                                                         \
    }

#define CHECK_CUBLAS(call) LK_CHECK_STATUS("CUBLAS", call)
#define CHECK_CURAND(call) LK_CHECK_STATUS("CURAND", call)

inline double seconds() {
    timeval now;
    gettimeofday(&now, nullptr);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_usec) * 1e-6;
}
