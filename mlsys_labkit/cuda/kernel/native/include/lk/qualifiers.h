// qualifiers.h: the words that CUDA adds to C++, and how our own functions are marked.
#pragma once

#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDACC_VER_BUILD__ 0
#define __CUDA_ARCH__ 900
#define __NVCC__ 1
#define __MLSYS_LABKIT__ 1

#define __host__
#define __device__
// In a section of its own, by which the profile knows what is read through the constant cache. Each declaration has another:
// gcc refuses one section for const and other variables.
#define LK_WORD(word) #word
#define LK_NUMBERED(number) ".lk_constant." LK_WORD(number)
#define __constant__ __attribute__((section(LK_NUMBERED(__COUNTER__))))
#define __managed__
#define __grid_constant__

// A kernel takes in what it calls, as nvcc does. Else gcc passes structs from memory to memory between functions, which no
// hook sees. Who calls the kernel does not look into it: gcc would leave out a call that ends in a trap.
#ifdef __SANITIZE_THREAD__
#define __global__ __attribute__((flatten, noipa))
#else
#define __global__ __attribute__((noipa))
#endif

// One block runs on one thread of the operating system, so that what is local to that thread is shared by the block.
// constinit: an array of a class with constructors gets no guard variable, which all threads would read and one would write;
// and a class that needs one to run is refused, as by nvcc.
#define __shared__ __constinit __attribute__((aligned(16))) thread_local

#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __restrict __restrict__

// Empty, since libstdc++ writes __attribute__((__noinline__)).
#define __noinline__

#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)  // source/clusters.py reads it

// Behind the declaration of a local array that is indexed by a number known only at run time (source/local_arrays.py).
#ifdef __SANITIZE_THREAD__
#define LK_LOCAL(array, is_set) lk_local((void*)&array, sizeof array, is_set);
#else
#define LK_LOCAL(array, is_set)
#endif

// The templates of ours that other functions of ours call return auto: gcc has to make them where they are called to know
// what they return. It makes any others at the end of a compilation, and not while it precompiles a header: each source
// that is compiled with the header would make hundreds of them again.

// A function of ours that becomes part of its caller: what it reads and writes is recorded as the student's.
#define LK_INLINE inline __attribute__((always_inline))

// Code between the simulator and a kernel is not the student's: it is neither counted nor checked.
#define LK_UNRECORDED __attribute__((no_sanitize("thread"), no_sanitize_coverage))

// A function of ours that the student calls but that must not be recorded: it says itself what it reads and writes.
#define LK_OPAQUE LK_UNRECORDED __attribute__((noinline))

namespace lk {

#ifdef __SANITIZE_THREAD__
constexpr bool recording = true;
#else
constexpr bool recording = false;
#endif

}  // namespace lk
