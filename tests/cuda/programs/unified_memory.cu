// Managed memory, a class whose objects live in it, a grid-stride loop, prefetching.
#include <cmath>
#include <iostream>
#include <string>

class Managed
{
public:
    void *operator new(size_t len)
    {
        void *ptr;
        cudaMallocManaged(&ptr, len);
        cudaDeviceSynchronize();
        return ptr;
    }
    void operator delete(void *ptr)
    {
        cudaDeviceSynchronize();
        cudaFree(ptr);
    }
};

class Array : public Managed
{
    int length;
    float *data;

public:
    Array(int n, float value) : length(n)
    {
        cudaMallocManaged(&data, n * sizeof(float));
        for (int i = 0; i < n; i++) data[i] = value;
    }
    ~Array() { cudaFree(data); }
    __host__ __device__ int size() const { return length; }
    __host__ __device__ float &operator[](int pos) { return data[pos]; }
};

// Kernel function to add the elements of two arrays
__global__
void add(Array *x, Array *y)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    int stride = blockDim.x * gridDim.x;
    for (int i = index; i < x->size(); i += stride)
        (*y)[i] = (*x)[i] + (*y)[i];
}

int main(void)
{
    int N = 1 << 14;
    Array *x = new Array(N, 1.0f);
    Array *y = new Array(N, 2.0f);

    int device = -1, numberOfSMs;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&numberOfSMs, cudaDevAttrMultiProcessorCount, device);

    add<<<numberOfSMs / 4, 256>>>(x, y);

    // Wait for GPU to finish before accessing on host
    cudaDeviceSynchronize();

    float maxError = 0.0f;
    for (int i = 0; i < N; i++)
        maxError = std::fmax(maxError, std::fabs((*y)[i] - 3.0f));
    std::cout << "Max error: " << maxError << std::endl;
    std::cout << std::string(maxError == 0 ? "PASS" : "FAIL") << std::endl;

    delete x;
    delete y;
    return 0;
}
