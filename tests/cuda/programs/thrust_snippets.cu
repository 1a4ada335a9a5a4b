// The parts of Thrust that courses start with.
#include <thrust/copy.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/fill.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>

#include <iostream>

struct saxpy_functor {
    const float a;
    saxpy_functor(float _a) : a(_a) {}
    __host__ __device__ float operator()(const float &x, const float &y) const { return a * x + y; }
};

template <typename T>
struct square {
    __host__ __device__ T operator()(const T &x) const { return x * x; }
};

__global__ void triple(int *p, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] *= 3;
}

int main()
{
    bool ok = true;

    thrust::host_vector<int> H(4);
    H[0] = 14; H[1] = 20; H[2] = 38; H[3] = 46;
    thrust::device_vector<int> D = H;
    D[0] = 99;
    D.resize(5, 7);
    std::cout << "D[0] = " << D[0] << ", size " << D.size() << std::endl;
    ok = ok && D[0] == 99 && D[4] == 7 && H[0] == 14;

    thrust::sort(D.begin(), D.end());
    ok = ok && D[0] == 7 && D[4] == 99;
    thrust::sort(D.begin(), D.end(), thrust::greater<int>());
    ok = ok && D[0] == 99;

    thrust::device_vector<int> S(100);
    thrust::sequence(S.begin(), S.end());
    int sum = thrust::reduce(S.begin(), S.end(), 0, thrust::plus<int>());
    int largest = thrust::reduce(S.begin(), S.end(), -1, thrust::maximum<int>());
    ok = ok && sum == 4950 && largest == 99;

    triple<<<1, 128>>>(thrust::raw_pointer_cast(S.data()), (int)S.size());
    ok = ok && thrust::reduce(S.begin(), S.end()) == 3 * 4950;

    thrust::device_vector<int> P(S.size());
    thrust::exclusive_scan(S.begin(), S.end(), P.begin());
    ok = ok && P[99] == 3 * 98 * 99 / 2;
    thrust::inclusive_scan(thrust::device, P.begin(), P.begin() + 4, P.begin());
    ok = ok && P[3] == 0 + 0 + 3 + 9;

    thrust::device_vector<float> X(10, 2.0f), Y(10);
    thrust::fill(Y.begin(), Y.end(), 1.0f);
    thrust::transform(X.begin(), X.end(), Y.begin(), Y.begin(), saxpy_functor(3.0f));
    ok = ok && Y[9] == 7.0f;
    float squares = thrust::transform_reduce(X.begin(), X.end(), square<float>(), 0.0f, thrust::plus<float>());
    ok = ok && squares == 40.0f;

    thrust::counting_iterator<int> first(1);
    ok = ok && thrust::reduce(first, first + 10) == 55;

    int *raw;
    cudaMalloc(&raw, 8 * sizeof(int));
    thrust::device_ptr<int> ptr(raw);
    thrust::fill(ptr, ptr + 8, 5);
    thrust::host_vector<int> back(8);
    thrust::copy(ptr, ptr + 8, back.begin());
    ok = ok && back[7] == 5;
    cudaFree(raw);

    std::cout << (ok ? "PASS" : "FAIL") << std::endl;
    return 0;
}
