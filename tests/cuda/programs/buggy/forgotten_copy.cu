// The first launch is passed the host's own array.
#include <cstdio>
#include <cstdlib>

#define WIDTH 64
#define HEIGHT 48

typedef unsigned char ubyte;

__device__ __forceinline__ int wrap(int i, int n) { return (i + n) % n; }

__global__ void lifeStep(const ubyte *now, ubyte *next)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= WIDTH || y >= HEIGHT) return;
    int neighbours = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx != 0 || dy != 0)
                neighbours += now[wrap(y + dy, HEIGHT) * WIDTH + wrap(x + dx, WIDTH)];
    const ubyte alive = now[y * WIDTH + x];
    next[y * WIDTH + x] = neighbours == 3 || (alive && neighbours == 2);
}

int main()
{
    size_t bytes = WIDTH * HEIGHT;
    ubyte *board = (ubyte *)calloc(bytes, 1), *result = (ubyte *)malloc(bytes);
    const int glider[5][2] = {{1, 0}, {2, 1}, {0, 2}, {1, 2}, {2, 2}};
    for (auto &cell : glider) board[cell[1] * WIDTH + cell[0]] = 1;

    ubyte *d_now, *d_next;
    cudaMalloc((void **)&d_now, bytes);
    cudaMalloc((void **)&d_next, bytes);
    cudaMemcpy(d_now, board, bytes, cudaMemcpyHostToDevice);

    dim3 blockDim(16, 16);
    dim3 gridDim((WIDTH + blockDim.x - 1) / blockDim.x, (HEIGHT + blockDim.y - 1) / blockDim.y);
    const int generations = 40;  // a glider moves by one cell a quarter
    for (int i = 0; i < generations; i++) {
        lifeStep<<<gridDim, blockDim>>>(i == 0 ? board : d_now, d_next);
        ubyte *t = d_now;
        d_now = d_next;
        d_next = t;
    }
    cudaMemcpy(result, d_now, bytes, cudaMemcpyDeviceToHost);

    int population = 0, matches = 0;
    for (int i = 0; i < WIDTH * HEIGHT; i++) population += result[i];
    for (auto &cell : glider) matches += result[(cell[1] + generations / 4) * WIDTH + cell[0] + generations / 4];
    cudaFree(d_now);
    cudaFree(d_next);
    free(board);
    free(result);
    printf("population %d\n%s\n", population, population == 5 && matches == 5 ? "PASS" : "FAIL");
    return 0;
}
