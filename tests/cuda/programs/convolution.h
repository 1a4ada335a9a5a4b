// The header of convolution.cu: a kernel template and a host function that launches it.
#ifndef CONVOLUTION_H
#define CONVOLUTION_H

#define MAX_RADIUS 4

__constant__ float F_c[2 * MAX_RADIUS + 1][2 * MAX_RADIUS + 1];

template <int RADIUS, int TILE = 16>
__global__ void convolve(const float *__restrict__ N, float *P, int width, int height)
{
    __shared__ float N_s[TILE][TILE];
    int col = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    N_s[threadIdx.y][threadIdx.x] = (row < height && col < width) ? N[row * width + col] : 0.0f;
    __syncthreads();
    if (col >= width || row >= height) return;
    float value = 0.0f;
    for (int r = 0; r < 2 * RADIUS + 1; r++)
        for (int c = 0; c < 2 * RADIUS + 1; c++) {
            int y = (int)threadIdx.y - RADIUS + r, x = (int)threadIdx.x - RADIUS + c;
            if (x >= 0 && x < TILE && y >= 0 && y < TILE)
                value += F_c[r][c] * N_s[y][x];
            else if (row - RADIUS + r >= 0 && row - RADIUS + r < height && col - RADIUS + c >= 0 && col - RADIUS + c < width)
                value += F_c[r][c] * N[(row - RADIUS + r) * width + col - RADIUS + c];
        }
    P[row * width + col] = value;
}

template <int RADIUS>
void runConvolution(const float *d_N, float *d_P, int width, int height)
{
    dim3 block(16, 16), grid((width + 15) / 16, (height + 15) / 16);
    convolve<RADIUS><<<grid, block>>>(d_N, d_P, width, height);
}

#endif
