// Copies and kernels in several streams, pinned memory, callbacks and events without timing.
#include <cstdio>
#include <cstring>

#define NSTREAMS 4

static void handle(cudaError_t err, const char *file, int line)
{
    if (err != cudaSuccess) {
        printf("%s in %s at line %d\n", cudaGetErrorString(err), file, line);
        exit(EXIT_FAILURE);
    }
}
#define HANDLE_ERROR(err) (handle(err, __FILE__, __LINE__))

__global__ void kernel(float *a, int offset)
{
    int i = offset + threadIdx.x + blockIdx.x * blockDim.x;
    float x = (float)i;
    float s = sinf(x);
    float c = cosf(x);
    a[i] = a[i] + sqrtf(s * s + c * c);
}

int finished = 0;

void CUDART_CB whenDone(cudaStream_t stream, cudaError_t status, void *data)
{
    if (status == cudaSuccess) finished += *static_cast<int *>(data);
}

int main(int argc, char **argv)
{
    const int blockSize = 256;
    const int n = 4 * 1024 * NSTREAMS;
    const int streamSize = n / NSTREAMS;
    const int streamBytes = streamSize * sizeof(float);
    const int bytes = n * sizeof(float);

    float *a, *d_a;
    HANDLE_ERROR(cudaMallocHost((void **)&a, bytes));
    HANDLE_ERROR(cudaMalloc((void **)&d_a, bytes));

    cudaStream_t stream[NSTREAMS];
    cudaEvent_t ready;
    HANDLE_ERROR(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    for (int i = 0; i < NSTREAMS; ++i) HANDLE_ERROR(cudaStreamCreate(&stream[i]));
    int leastPriority, greatestPriority;
    HANDLE_ERROR(cudaDeviceGetStreamPriorityRange(&leastPriority, &greatestPriority));

    memset(a, 0, bytes);
    int one = 1;
    for (int i = 0; i < NSTREAMS; ++i) {
        int offset = i * streamSize;
        HANDLE_ERROR(cudaMemcpyAsync(&d_a[offset], &a[offset], streamBytes, cudaMemcpyHostToDevice, stream[i]));
        kernel<<<streamSize / blockSize, blockSize, 0, stream[i]>>>(d_a, offset);
        HANDLE_ERROR(cudaMemcpyAsync(&a[offset], &d_a[offset], streamBytes, cudaMemcpyDeviceToHost, stream[i]));
        HANDLE_ERROR(cudaStreamAddCallback(stream[i], whenDone, &one, 0));
    }
    HANDLE_ERROR(cudaEventRecord(ready, stream[0]));
    HANDLE_ERROR(cudaStreamWaitEvent(stream[1], ready, 0));
    for (int i = 0; i < NSTREAMS; ++i) HANDLE_ERROR(cudaStreamSynchronize(stream[i]));

    float maxE = 0;
    for (int i = 0; i < n; i++) {
        float error = fabs(a[i] - 1.0f);
        if (error > maxE) maxE = error;
    }
    for (int i = 0; i < NSTREAMS; ++i) HANDLE_ERROR(cudaStreamDestroy(stream[i]));
    HANDLE_ERROR(cudaEventDestroy(ready));
    HANDLE_ERROR(cudaFree(d_a));
    HANDLE_ERROR(cudaFreeHost(a));
    printf("max error %g, %d streams done\n", maxE, finished);
    puts(maxE < 1e-5 && finished == NSTREAMS ? "PASS" : "FAIL");
    return 0;
}
