// book.h: what the programs of "CUDA by Example" (Sanders, Kandrot) expect of the header of that name.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <ctime>

static void HandleError(cudaError_t error, const char* file, int line) {
    if (error == cudaSuccess) return;
    std::printf("%s in %s at line %d\n", cudaGetErrorString(error), file, line);
    std::exit(EXIT_FAILURE);
}

#define HANDLE_ERROR(err) (HandleError(err, __FILE__, __LINE__))
#define HANDLE_NULL(a)                                                          \
    {                                                                           \
        if (a == NULL) {                                                        \
            std::printf("Host memory failed in %s at line %d\n", __FILE__, __LINE__); \
            std::exit(EXIT_FAILURE);                                            \
        }                                                                       \
    }

template <class T>
void swap(T& a, T& b) {
    T t = a;
    a = b;
    b = t;
}

inline void* big_random_block(int size) {
    unsigned char* data = static_cast<unsigned char*>(std::malloc(size));
    for (int i = 0; i < size; ++i) data[i] = static_cast<unsigned char>(std::rand());
    return data;
}

inline int* big_random_block_int(int count) {
    int* data = static_cast<int*>(std::malloc(count * sizeof(int)));
    for (int i = 0; i < count; ++i) data[i] = std::rand();
    return data;
}
