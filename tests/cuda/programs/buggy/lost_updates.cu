// Counts that threads of all blocks add up without an atomic operation.
#include <cstdio>
#include <cstring>
#include <cuda.h>

#define BINS 7
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

__global__ void histo_kernel(char *data, unsigned int length, unsigned int *histo)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < length) {
        int alphabet_position = data[i] - 'a';
        if (alphabet_position >= 0 && alphabet_position < 26)
            histo[alphabet_position / 4] += 1;
    }
}

__global__ void histo_private_kernel(char *data, unsigned int length, unsigned int *histo)
{
    __shared__ unsigned int histo_s[BINS];
    for (unsigned int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        histo_s[bin] = 0u;
    __syncthreads();

    unsigned int tid = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned int i = tid; i < length; i += blockDim.x * gridDim.x) {
        int alphabet_position = data[i] - 'a';
        if (alphabet_position >= 0 && alphabet_position < 26)
            atomicAdd(&(histo_s[alphabet_position / 4]), 1);
    }
    __syncthreads();
    for (unsigned int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        unsigned int binValue = histo_s[bin];
        if (binValue > 0) atomicAdd(&(histo[bin]), binValue);
    }
}

int main()
{
    const char *phrase = "programming massively parallel processors, a hands-on approach! ";
    const int repeats = 200;
    const int length = (int)strlen(phrase) * repeats;
    char *text = new char[length];
    for (int i = 0; i < length; i++) text[i] = phrase[i % strlen(phrase)];
    unsigned int expected[BINS] = {0}, result[BINS];
    for (int i = 0; i < length; i++)
        if (text[i] >= 'a' && text[i] <= 'z') expected[(text[i] - 'a') / 4]++;

    char *d_text;
    unsigned int *d_histo;
    cudaMalloc((void **)&d_text, length);
    cudaMalloc((void **)&d_histo, BINS * sizeof(unsigned int));
    cudaMemcpy(d_text, text, length, cudaMemcpyHostToDevice);

    bool ok = true;
    for (int variant = 0; variant < 2; variant++) {
        cudaMemset(d_histo, 0, BINS * sizeof(unsigned int));
        if (variant == 0)
            histo_kernel<<<CEIL_DIV(length, 128), 128>>>(d_text, length, d_histo);
        else histo_private_kernel<<<16, 128>>>(d_text, length, d_histo);
        cudaMemcpy(result, d_histo, sizeof(result), cudaMemcpyDeviceToHost);
        for (int b = 0; b < BINS; b++) {
            printf("%c-%c: %u%s", 'a' + 4 * b, b == 6 ? 'z' : 'd' + 4 * b, result[b], b == 6 ? "\n" : ", ");
            ok = ok && result[b] == expected[b];
        }
    }
    cudaFree(d_text);
    cudaFree(d_histo);
    delete[] text;
    printf(ok ? "PASS\n" : "FAIL\n");
}
