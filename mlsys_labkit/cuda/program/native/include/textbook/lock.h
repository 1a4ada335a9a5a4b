// lock.h: the mutex of "CUDA by Example", appendix A.
#pragma once

struct Lock {
    int* mutex;

    Lock() {
        int free_state = 0;
        cudaMalloc(reinterpret_cast<void**>(&mutex), sizeof(int));
        cudaMemcpy(mutex, &free_state, sizeof(int), cudaMemcpyHostToDevice);
    }

    ~Lock() { cudaFree(mutex); }

    __device__ void lock() {
        while (atomicCAS(mutex, 0, 1) != 0) {
        }
        __threadfence();
    }

    __device__ void unlock() {
        __threadfence();
        atomicExch(mutex, 0);
    }
};
