// 64 x 64 outputs a block of 4 warps, 32 x 32 a warp, 4 x 8 a thread in registers; n is a multiple of 64.
constexpr int BLOCK_TILE = 64;
constexpr int DEPTH = 8;
constexpr int WARP_TILE = 32;
constexpr int ROWS = 4;
constexpr int COLUMNS = 8;

__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float tile_a[DEPTH][BLOCK_TILE];
    __shared__ float tile_b[DEPTH][BLOCK_TILE];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row = (warp / 2) * WARP_TILE + (lane / 4) * ROWS;
    int column = (warp % 2) * WARP_TILE + (lane % 4) * COLUMNS;
    int first_row = blockIdx.y * BLOCK_TILE, first_column = blockIdx.x * BLOCK_TILE;
    float sum[ROWS][COLUMNS] = {};
    for (int k = 0; k < n; k += DEPTH) {
        for (int i = threadIdx.x; i < BLOCK_TILE * DEPTH; i += blockDim.x) {
            tile_a[i % DEPTH][i / DEPTH] = a[(first_row + i / DEPTH) * n + k + i % DEPTH];
            tile_b[i / BLOCK_TILE][i % BLOCK_TILE] = b[(k + i / BLOCK_TILE) * n + first_column + i % BLOCK_TILE];
        }
        __syncthreads();
        for (int depth = 0; depth < DEPTH; ++depth) {
            float part_a[ROWS], part_b[COLUMNS];
            for (int i = 0; i < ROWS; ++i) part_a[i] = tile_a[depth][row + i];
            for (int j = 0; j < COLUMNS; ++j) part_b[j] = tile_b[depth][column + j];
            for (int i = 0; i < ROWS; ++i) {
                for (int j = 0; j < COLUMNS; ++j) sum[i][j] += part_a[i] * part_b[j];
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < ROWS; ++i) {
        for (int j = 0; j < COLUMNS; ++j) c[(first_row + row + i) * n + first_column + column + j] = sum[i][j];
    }
}
