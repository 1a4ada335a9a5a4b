// Sum of an array in two launches, templates, dynamic shared memory and warp shuffles.
#include <iostream>
#include <vector>
#include <numeric>

using std::cout;
using std::endl;

template <typename T>
__inline__ __device__ T warpReduceSum(T val)
{
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        val += __shfl_down_sync(0xffffffff, val, offset);
    return val;
}

template <typename T, unsigned int blockSize>
__global__ void reduceShared(const T *g_idata, T *g_odata, unsigned int n)
{
    extern __shared__ unsigned char raw[];
    T *sdata = reinterpret_cast<T *>(raw);

    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * (blockSize * 2) + tid;
    unsigned int gridSize = blockSize * 2 * gridDim.x;
    T sum = 0;
    while (i < n) {
        sum += g_idata[i];
        if (i + blockSize < n) sum += g_idata[i + blockSize];
        i += gridSize;
    }
    sdata[tid] = sum;
    __syncthreads();

    for (unsigned int s = blockSize / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}

template <class T>
__global__ void reduceFinal(const T *in, T *out, int n)
{
    T sum = threadIdx.x < n ? in[threadIdx.x] : T(0);
    sum = warpReduceSum(sum);
    if (threadIdx.x == 0) *out = sum;
}

template <typename T>
bool test(const char *name, int n)
{
    std::vector<T> data(n);
    for (int i = 0; i < n; ++i) data[i] = static_cast<T>((i * 7) % 13);
    T expected = std::accumulate(data.begin(), data.end(), T(0));

    const int threads = 128, blocks = 32;
    T *d_in, *d_partial, *d_out, result = 0;
    cudaMalloc(&d_in, n * sizeof(T));
    cudaMalloc(&d_partial, blocks * sizeof(T));
    cudaMalloc(&d_out, sizeof(T));
    cudaMemcpy(d_in, data.data(), n * sizeof(T), cudaMemcpyHostToDevice);

    reduceShared<T, threads><<<blocks, threads, threads * sizeof(T)>>>(d_in, d_partial, n);
    reduceFinal<<<1, 32>>>(d_partial, d_out, blocks);
    cudaMemcpy(&result, d_out, sizeof(T), cudaMemcpyDeviceToHost);

    cudaFree(d_in);
    cudaFree(d_partial);
    cudaFree(d_out);
    cout << name << ": " << result << ", expected " << expected << endl;
    return result == expected;
}

int main()
{
    bool ok = test<int>("int", 100000) & test<float>("float", 20000) & test<double>("double", 12345);
    cout << (ok ? "PASS" : "FAIL") << endl;
    return !ok;
}
