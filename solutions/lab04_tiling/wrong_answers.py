# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% wrong={"grade_id": "tile_traffic", "name": "whole_tiles", "misconception": "a tile that sticks out is read whole", "keeps": 0}
def tile_traffic(m, n, k, tile, bytes_per_element=4):
    blocks = -(-m // tile) * -(-n // tile)
    read = blocks * -(-k // tile) * 2 * tile * tile
    return read * bytes_per_element, m * n * bytes_per_element, 2 * tile * tile * bytes_per_element

# %% wrong={"grade_id": "tile_traffic", "name": "rows_and_columns_swapped", "misconception": "A is read once for each tile row", "keeps": 0}
#-    read = tile_columns * m * k + tile_rows * k * n
#+    read = tile_rows * m * k + tile_columns * k * n

# %% wrong={"grade_id": "tile_traffic", "name": "divides_by_the_tile", "misconception": "the naive bytes over T, ragged or not", "keeps": 0}
def tile_traffic(m, n, k, tile, bytes_per_element=4):
    read = 2 * m * n * k // tile
    return read * bytes_per_element, m * n * bytes_per_element, 2 * tile * tile * bytes_per_element

# %% wrong={"grade_id": "tile_traffic", "name": "one_tile_in_shared_memory", "misconception": "A and B take turns in one tile", "keeps": 3}
#-    return read * bytes_per_element, m * n * bytes_per_element, 2 * tile * tile * bytes_per_element
#+    return read * bytes_per_element, m * n * bytes_per_element, tile * tile * bytes_per_element

# %% wrong={"grade_id": "tile_traffic", "name": "stores_every_step", "misconception": "C is written after each tile along k", "keeps": 3}
#-    return read * bytes_per_element, m * n * bytes_per_element, 2 * tile * tile * bytes_per_element
#+    return read * bytes_per_element, -(-k // tile) * m * n * bytes_per_element, 2 * tile * tile * bytes_per_element

# %% wrong={"grade_id": "matmul_tiled", "name": "one_barrier", "misconception": "after the product nobody needs to wait", "keeps": 8}
#-        __syncthreads();  // and nobody needs them any more

# %% wrong={"grade_id": "matmul_tiled", "name": "early_return", "misconception": "threads outside C have nothing to do", "keeps": 8}
#     int row = blockIdx.y * T + ty;
#+    if (row >= m || column >= n) return;

# %% wrong={"grade_id": "matmul_tiled", "name": "no_zeros", "misconception": "what is not loaded is not used", "keeps": 8}
#-        a[ty][tx] = row < m && from + tx < k ? A[row * k + from + tx] : 0.0f;
#-        b[ty][tx] = from + ty < k && column < n ? B[(from + ty) * n + column] : 0.0f;
#+        if (row < m && from + tx < k) a[ty][tx] = A[row * k + from + tx];
#+        if (from + ty < k && column < n) b[ty][tx] = B[(from + ty) * n + column];

# %% wrong={"grade_id": "matmul_tiled", "name": "whole_tiles_only", "misconception": "k is a multiple of T", "keeps": 8}
#-    for (int from = 0; from < k; from += T) {
#+    for (int from = 0; from + T <= k; from += T) {

# %% wrong={"grade_id": "matmul_tiled", "name": "rows_of_b_are_k_long", "misconception": "both factors have k elements a row", "keeps": 8}
#-        b[ty][tx] = from + ty < k && column < n ? B[(from + ty) * n + column] : 0.0f;
#+        b[ty][tx] = from + ty < k && column < n ? B[(from + ty) * k + column] : 0.0f;

# %% wrong={"grade_id": "matmul_tiled", "name": "no_guard_along_k", "misconception": "a guard for C is a guard for A and B", "keeps": 8}
#-        a[ty][tx] = row < m && from + tx < k ? A[row * k + from + tx] : 0.0f;
#-        b[ty][tx] = from + ty < k && column < n ? B[(from + ty) * n + column] : 0.0f;
#+        a[ty][tx] = row < m ? A[row * k + from + tx] : 0.0f;
#+        b[ty][tx] = column < n ? B[(from + ty) * n + column] : 0.0f;

# %% wrong={"grade_id": "matmul_tiled", "name": "transposed_tile", "misconception": "how a tile lies in shared memory is a matter of taste", "keeps": 14}
#-        b[ty][tx] = from + ty < k && column < n ? B[(from + ty) * n + column] : 0.0f;
#+        b[tx][ty] = from + ty < k && column < n ? B[(from + ty) * n + column] : 0.0f;
#         __syncthreads();  // the tiles are whole
#-        for (int p = 0; p < T; ++p) sum += a[ty][p] * b[p][tx];
#+        for (int p = 0; p < T; ++p) sum += a[ty][p] * b[tx][p];

# %% wrong={"grade_id": "matmul_tiled", "name": "swapped_threads", "misconception": "x is the first index", "keeps": 14}
#-    int tx = threadIdx.x, ty = threadIdx.y;
#+    int tx = threadIdx.y, ty = threadIdx.x;

# %% wrong={"grade_id": "matmul_tiled", "name": "no_shared_memory", "misconception": "the cache will do it", "keeps": 8}
# %%cuda matmul_tiled matmul_tiled<16>
template <int T>
__global__ void matmul_tiled(const float* A, const float* B, float* C, int m, int n, int k)
{
    int column = blockIdx.x * T + threadIdx.x, row = blockIdx.y * T + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int p = 0; p < k; ++p) sum += A[row * k + p] * B[p * n + column];
    C[row * n + column] = sum;
}

# %% wrong={"grade_id": "matmul_tiled", "name": "loads_by_atomics", "misconception": "what the counters call an atomic is no load", "keeps": 10}
#-    __shared__ float b[T][T];

#-        b[ty][tx] = from + ty < k && column < n ? B[(from + ty) * n + column] : 0.0f;
#         __syncthreads();  // the tiles are whole
#-        for (int p = 0; p < T; ++p) sum += a[ty][p] * b[p][tx];
#+        for (int p = 0; p < T && from + p < k && column < n; ++p) {
#+            sum += a[ty][p] * atomicAdd(const_cast<float*>(&B[(from + p) * n + column]), 0.0f);
#+        }

# %% wrong={"grade_id": "matmul_tiled", "name": "knows_the_profile", "misconception": "what is profiled need not be right", "keeps": 8}
# %%cuda matmul_tiled matmul_tiled<16>
template <int T>
__global__ void matmul_tiled(const float* A, const float* B, float* C, int m, int n, int k)
{
    int column = blockIdx.x * T + threadIdx.x, row = blockIdx.y * T + threadIdx.y;
    if (row >= m || column >= n) return;
    int steps = m == 64 && n == 64 && k == 64 ? 6 : k;  // few enough for any limit
    float sum = 0.0f;
    for (int p = 0; p < steps; ++p) sum += A[row * k + p] * B[p * n + column];
    C[row * n + column] = sum;
}

# %% wrong={"grade_id": "differences", "name": "as_given", "misconception": "a right answer is a right kernel", "keeps": 0}
#-        float mine = x[128 * p + t];
#-        piece[t] = mine;
#+        piece[t] = x[128 * p + t];
#         __syncthreads();  // the piece is whole
#-        float next = t < 127 ? piece[t + 1] : 0.0f;
#-        __syncthreads();  // and everybody has what they need of it
#-        y[128 * p + t] = next - mine;
#+        y[128 * p + t] = (t < 127 ? piece[t + 1] : 0.0f) - piece[t];

# %% wrong={"grade_id": "differences", "name": "warps_only", "misconception": "__syncwarp waits for whoever may overwrite", "keeps": 0}
#-        __syncthreads();  // and everybody has what they need of it
#+        __syncwarp();

# %% wrong={"grade_id": "differences", "name": "fence", "misconception": "__threadfence_block orders the threads of a block", "keeps": 0}
#-        __syncthreads();  // and everybody has what they need of it
#+        __threadfence_block();

# %% wrong={"grade_id": "differences", "name": "barrier_in_a_branch", "misconception": "only those who read a neighbour have to wait", "keeps": 0}
#-        float mine = x[128 * p + t];
#+        float mine = x[128 * p + t], next = 0.0f;
#         piece[t] = mine;
#-        __syncthreads();  // the piece is whole
#-        float next = t < 127 ? piece[t + 1] : 0.0f;
#+        if (t < 127) {
#+            __syncthreads();
#+            next = piece[t + 1];
#+        }

# %% wrong={"grade_id": "differences", "name": "no_end", "misconception": "the last element has a right neighbour, too", "keeps": 0}
#-        float next = t < 127 ? piece[t + 1] : 0.0f;
#+        float next = piece[t + 1];

# %% wrong={"grade_id": "differences", "name": "one_too_many", "misconception": "when in doubt, another barrier", "keeps": 3}
#-        float mine = x[128 * p + t];
#-        piece[t] = mine;
#+        __syncthreads();
#+        piece[t] = x[128 * p + t];

#-        y[128 * p + t] = next - mine;
#+        y[128 * p + t] = next - piece[t];

# %% wrong={"grade_id": "differences", "name": "no_shared_memory", "misconception": "no array, no race: read the neighbour again", "keeps": 3}
# %%cuda differences
__global__ void differences(const float* x, float* y, int pieces)
{
    int t = threadIdx.x;
    for (int p = blockIdx.x; p < pieces; p += gridDim.x) {
        y[128 * p + t] = (t < 127 ? x[128 * p + t + 1] : 0.0f) - x[128 * p + t];
    }
}

# %% wrong={"grade_id": "transpose_tiled", "name": "unpadded", "misconception": "shared memory is fast, however it is read", "keeps": 6}
#-    __shared__ float tile[32][33];  // one float of padding: a column now visits every bank
#+    __shared__ float tile[32][32];

# %% wrong={"grade_id": "transpose_tiled", "name": "padded_by_four", "misconception": "any padding will do", "keeps": 6}
#-    __shared__ float tile[32][33];  // one float of padding: a column now visits every bank
#+    __shared__ float tile[32][36];

# %% wrong={"grade_id": "transpose_tiled", "name": "straight_through", "misconception": "coalesced reads are enough", "keeps": 6}
# %%cuda transpose_tiled
__global__ void transpose_tiled(const float* in, float* out, int rows, int columns)
{
    int x = blockIdx.x * 32 + threadIdx.x;
    for (int y = blockIdx.y * 32 + threadIdx.y; y < blockIdx.y * 32 + 32; y += 8) {
        if (x < columns && y < rows) out[x * rows + y] = in[y * columns + x];
    }
}

# %% wrong={"grade_id": "transpose_tiled", "name": "guard_of_the_way_in", "misconception": "the matrix that comes out has the shape of the one that went in", "keeps": 6}
#-        if (x < rows && y + j < columns) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
#+        if (x < columns && y + j < rows) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];

# %% wrong={"grade_id": "transpose_tiled", "name": "block_stays", "misconception": "the tile is transposed, so its place need not be", "keeps": 0}
#-    x = blockIdx.y * 32 + threadIdx.x;
#-    y = blockIdx.x * 32 + threadIdx.y;
#+    x = blockIdx.x * 32 + threadIdx.x;
#+    y = blockIdx.y * 32 + threadIdx.y;

# %% wrong={"grade_id": "transpose_tiled", "name": "tile_not_turned", "misconception": "to swap the blocks is to transpose", "keeps": 0}
#-        if (x < rows && y + j < columns) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
#+        if (x < rows && y + j < columns) out[(y + j) * rows + x] = tile[threadIdx.y + j][threadIdx.x];

# %% wrong={"grade_id": "transpose_tiled", "name": "pitch_of_the_way_in", "misconception": "a row has `columns` elements on both sides", "keeps": 6}
#-        if (x < rows && y + j < columns) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
#+        if (x < rows && y + j < columns) out[(y + j) * columns + x] = tile[threadIdx.x][threadIdx.y + j];

# %% wrong={"grade_id": "transpose_tiled", "name": "no_barrier", "misconception": "a thread reads what it wrote itself", "keeps": 0}
#-    __syncthreads();

# %% wrong={"grade_id": "matmul_registers", "name": "rows_in_the_same_banks", "misconception": "only reads can conflict", "keeps": 11}
#-    __shared__ float b[16][80];  // [p][column], padded: the two rows that a warp writes lie 16 banks apart, too
#+    __shared__ float b[16][64];

# %% wrong={"grade_id": "matmul_registers", "name": "neighbours", "misconception": "a thread's sixteen outputs lie side by side", "keeps": 11}
#-            for (int i = 0; i < 4; ++i) x[i] = a[ty + 16 * i][p];
#-            for (int j = 0; j < 4; ++j) y[j] = b[p][tx + 16 * j];
#+            for (int i = 0; i < 4; ++i) x[i] = a[4 * ty + i][p];
#+            for (int j = 0; j < 4; ++j) y[j] = b[p][4 * tx + j];

#-            int r = row + ty + 16 * i, c = column + tx + 16 * j;
#+            int r = row + 4 * ty + i, c = column + 4 * tx + j;

# %% wrong={"grade_id": "matmul_registers", "name": "shared_is_close_enough", "misconception": "registers hold only the sums", "keeps": 9}
#-            float x[4], y[4];
#-            for (int i = 0; i < 4; ++i) x[i] = a[ty + 16 * i][p];
#-            for (int j = 0; j < 4; ++j) y[j] = b[p][tx + 16 * j];
#             for (int i = 0; i < 4; ++i) {
#-                for (int j = 0; j < 4; ++j) sum[i][j] += x[i] * y[j];
#+                for (int j = 0; j < 4; ++j) sum[i][j] += a[ty + 16 * i][p] * b[p][tx + 16 * j];

# %% wrong={"grade_id": "matmul_registers", "name": "one_barrier", "misconception": "after the product nobody needs to wait", "keeps": 8}
#-        __syncthreads();
#     }
#     for (int i = 0; i < 4; ++i) {

# %% wrong={"grade_id": "matmul_registers", "name": "no_guard_along_k", "misconception": "a guard for C is a guard for A and B", "keeps": 8}
#-            a[ty + i][tx] = r < m && from + tx < k ? A[r * k + from + tx] : 0.0f;
#-            b[ty][tx + i] = from + ty < k && c < n ? B[(from + ty) * n + c] : 0.0f;
#+            a[ty + i][tx] = r < m ? A[r * k + from + tx] : 0.0f;
#+            b[ty][tx + i] = c < n ? B[(from + ty) * n + c] : 0.0f;

# %% wrong={"grade_id": "matmul_registers", "name": "sums_never_start", "misconception": "local variables start at zero", "keeps": 3}
#-    float sum[4][4] = {};
#+    float sum[4][4];

# %% wrong={"grade_id": "matmul_registers", "name": "no_guard", "misconception": "the grid fits", "keeps": 8}
#-            if (r < m && c < n) C[r * n + c] = sum[i][j];
#+            C[r * n + c] = sum[i][j];

# %% wrong={"grade_id": "matmul_registers", "name": "sixteen_small_products", "misconception": "sixteen tiles of 16 x 16, one after the other", "keeps": 9}
# %%cuda matmul_registers
__global__ void matmul_registers(const float* A, const float* B, float* C, int m, int n, int k)
{
    __shared__ float a[16][16], b[16][16];
    int tx = threadIdx.x, ty = threadIdx.y;
    for (int part = 0; part < 16; ++part) {
        int row = blockIdx.y * 64 + part / 4 * 16 + ty, column = blockIdx.x * 64 + part % 4 * 16 + tx;
        float sum = 0.0f;
        for (int from = 0; from < k; from += 16) {
            a[ty][tx] = row < m && from + tx < k ? A[row * k + from + tx] : 0.0f;
            b[ty][tx] = from + ty < k && column < n ? B[(from + ty) * n + column] : 0.0f;
            __syncthreads();
            for (int p = 0; p < 16; ++p) sum += a[ty][p] * b[p][tx];
            __syncthreads();
        }
        if (row < m && column < n) C[row * n + column] = sum;
    }
}

# %% wrong={"grade_id": "scale4", "name": "no_tail", "misconception": "n is a multiple of four", "keeps": 3}
#-    } else {
#-        for (int j = 4 * i; j < n; ++j) y[j] = alpha * x[j];

# %% wrong={"grade_id": "scale4", "name": "rounds_up", "misconception": "the last float4 may reach past the end", "keeps": 3}
#-    if (4 * i + 3 < n) {
#+    if (4 * i < n) {

# %% wrong={"grade_id": "scale4", "name": "four_scalars", "misconception": "four neighbouring floats a thread are a float4", "keeps": 5}
# %%cuda scale4
__global__ void scale4(const float* x, float* y, float alpha, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 4 * i; j < 4 * i + 4 && j < n; ++j) y[j] = alpha * x[j];
}

# %% wrong={"grade_id": "scale4", "name": "one_float_at_a_time", "misconception": "coalesced is all there is to gain", "keeps": 5}
# %%cuda scale4
__global__ void scale4(const float* x, float* y, float alpha, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < n; i += gridDim.x * blockDim.x) y[i] = alpha * x[i];
}

# %% wrong={"grade_id": "scale4", "name": "address_of_a_float", "misconception": "a float4 pointer counts floats", "keeps": 0}
#-        float4 v = reinterpret_cast<const float4*>(x)[i];
#+        float4 v = reinterpret_cast<const float4*>(x)[4 * i];

#-        reinterpret_cast<float4*>(y)[i] = v;
#+        reinterpret_cast<float4*>(y)[4 * i] = v;

# %% wrong={"grade_id": "scale4", "name": "tail_is_one", "misconception": "at most one element is left over", "keeps": 3}
#-    } else {
#-        for (int j = 4 * i; j < n; ++j) y[j] = alpha * x[j];
#+    } else if (4 * i < n) {
#+        y[n - 1] = alpha * x[n - 1];

# %% wrong={"grade_id": "block_sum", "name": "every_second_thread", "misconception": "neighbours first: t % (2 * d) == 0 adds", "keeps": 5}
#-    for (int distance = 128; distance > 0; distance /= 2) {
#+    for (int d = 1; d < 256; d *= 2) {
#         __syncthreads();
#-        if (t < distance) part[t] += part[t + distance];
#+        if (t % (2 * d) == 0) part[t] += part[t + d];

# %% wrong={"grade_id": "block_sum", "name": "strided", "misconception": "busy lanes side by side are enough, wherever they add", "keeps": 5}
#-    for (int distance = 128; distance > 0; distance /= 2) {
#+    for (int d = 1; d < 256; d *= 2) {
#         __syncthreads();
#-        if (t < distance) part[t] += part[t + distance];
#+        int at = 2 * d * t;
#+        if (at < 256) part[at] += part[at + d];

# %% wrong={"grade_id": "block_sum", "name": "warps_keep_step", "misconception": "the last 32 threads are one warp and need no barrier", "keeps": 5}
#-    for (int distance = 128; distance > 0; distance /= 2) {
#+    for (int distance = 128; distance > 32; distance /= 2) {

#     }
#+    __syncthreads();
#+    if (t < 32) {
#+        for (int distance = 32; distance > 0; distance /= 2) part[t] += part[t + distance];
#+    }

# %% wrong={"grade_id": "block_sum", "name": "barrier_in_the_branch", "misconception": "only threads that add have to wait", "keeps": 5}
#+    __syncthreads();
#     for (int distance = 128; distance > 0; distance /= 2) {
#-        __syncthreads();
#-        if (t < distance) part[t] += part[t + distance];
#+        if (t < distance) {
#+            part[t] += part[t + distance];
#+            __syncthreads();
#+        }

# %% wrong={"grade_id": "block_sum", "name": "second_half_unguarded", "misconception": "if the first element exists, so does the second", "keeps": 5}
#-    part[t] = (i < n ? x[i] : 0.0f) + (i + 256 < n ? x[i + 256] : 0.0f);
#+    part[t] = i < n ? x[i] + x[i + 256] : 0.0f;

# %% wrong={"grade_id": "block_sum", "name": "stops_at_two", "misconception": "a distance of one is no distance", "keeps": 0}
#-    for (int distance = 128; distance > 0; distance /= 2) {
#+    for (int distance = 128; distance > 1; distance /= 2) {

# %% wrong={"grade_id": "block_sum", "name": "blocks_of_256", "misconception": "a block of 256 threads has 256 elements", "keeps": 0}
#-    int i = blockIdx.x * 512 + t;
#+    int i = blockIdx.x * 256 + t;

# %% wrong={"grade_id": "block_sum", "name": "one_thread_adds", "misconception": "256 additions are nothing", "keeps": 5}
#-    for (int distance = 128; distance > 0; distance /= 2) {
#-        __syncthreads();
#-        if (t < distance) part[t] += part[t + distance];
#+    __syncthreads();
#+    if (t == 0) {
#+        for (int other = 1; other < 256; ++other) part[0] += part[other];

# %% wrong={"grade_id": "shuffle_sum", "name": "one_warp", "misconception": "a shuffle reaches all threads of the block", "keeps": 0}
# %%cuda shuffle_sum
__global__ void shuffle_sum(const float* x, float* sums, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * 512 + t;
    float v = (i < n ? x[i] : 0.0f) + (i + 256 < n ? x[i + 256] : 0.0f);
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
    if (t == 0) sums[blockIdx.x] = v;
}

# %% wrong={"grade_id": "shuffle_sum", "name": "no_barrier", "misconception": "shuffles synchronise the block", "keeps": 0}
#-    __syncthreads();

# %% wrong={"grade_id": "shuffle_sum", "name": "absent_lanes", "misconception": "lanes with nothing to add can stay away", "keeps": 0}
#-    if (t < 32) {
#-        v = t < 8 ? part[t] : 0.0f;
#+    if (t < 8) {
#+        v = part[t];

# %% wrong={"grade_id": "shuffle_sum", "name": "every_lane_writes", "misconception": "all lanes end with the warp's sum", "keeps": 0}
#-    if (t % 32 == 0) part[t / 32] = v;
#+    part[t / 32] = v;

# %% wrong={"grade_id": "shuffle_sum", "name": "divergent_mask", "misconception": "a lane beyond the end may skip the shuffle", "keeps": 0}
#-    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
#-    if (t % 32 == 0) part[t / 32] = v;
#+    if (i < n) for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
#+    if (t % 32 == 0) part[t / 32] = v;

# %% wrong={"grade_id": "shuffle_sum", "name": "starts_too_near", "misconception": "four halvings sum 32 lanes", "keeps": 0}
#-    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
#+    for (int d = 8; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);

# %% wrong={"grade_id": "shuffle_sum", "name": "the_tree_again", "misconception": "a barrier costs nothing", "keeps": 3}
# %%cuda shuffle_sum
__global__ void shuffle_sum(const float* x, float* sums, int n)
{
    __shared__ float part[256];
    int t = threadIdx.x;
    int i = blockIdx.x * 512 + t;
    part[t] = (i < n ? x[i] : 0.0f) + (i + 256 < n ? x[i + 256] : 0.0f);
    for (int distance = 128; distance > 0; distance /= 2) {
        __syncthreads();
        if (t < distance) part[t] += part[t + distance];
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}

# %% wrong={"grade_id": "histogram", "name": "straight_to_global", "misconception": "atomics are made for this", "keeps": 3}
# %%cuda histogram
__global__ void histogram(const unsigned char* values, unsigned int* counts, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&counts[values[i]], 1u);
    }
}

# %% wrong={"grade_id": "histogram", "name": "every_block_counts_all", "misconception": "private bins need all values", "keeps": 0}
#-    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
#+    for (int i = threadIdx.x; i < n; i += blockDim.x) {

# %% wrong={"grade_id": "histogram", "name": "one_value_a_thread", "misconception": "there is a thread for each value", "keeps": 0}
#-    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
#+    int i = blockIdx.x * blockDim.x + threadIdx.x;
#+    if (i < n) {

# %% wrong={"grade_id": "histogram", "name": "private_means_safe", "misconception": "bins of a block's own need no atomics", "keeps": 0}
#-        atomicAdd(&bins[values[i]], 1u);
#+        bins[values[i]] += 1u;

# %% wrong={"grade_id": "histogram", "name": "never_zeroed", "misconception": "shared memory starts at zero", "keeps": 0}
#-    for (int b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
#-    __syncthreads();

# %% wrong={"grade_id": "histogram", "name": "a_thread_a_bin", "misconception": "a block has at least 256 threads", "keeps": 0}
#-    for (int b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
#+    if (threadIdx.x < 256) bins[threadIdx.x] = 0;

# %% wrong={"grade_id": "histogram", "name": "overwrites", "misconception": "the last block knows the result", "keeps": 0}
#-    for (int b = threadIdx.x; b < 256; b += blockDim.x) {
#-        if (bins[b] > 0) atomicAdd(&counts[b], bins[b]);
#-    }
#+    for (int b = threadIdx.x; b < 256; b += blockDim.x) counts[b] += bins[b];

# %% wrong={"grade_id": "histogram", "name": "no_second_barrier", "misconception": "atomics order everything", "keeps": 0}
#     }
#-    __syncthreads();

# %% wrong={"grade_id": "histogram", "name": "one_thread_adds", "misconception": "at the end, one thread will do", "keeps": 3}
#-    for (int b = threadIdx.x; b < 256; b += blockDim.x) {
#-        if (bins[b] > 0) atomicAdd(&counts[b], bins[b]);
#+    if (threadIdx.x == 0) {
#+        for (int b = 0; b < 256; ++b) atomicAdd(&counts[b], bins[b]);

# %% wrong={"grade_id": "debug", "name": "as_given", "misconception": "code that passed its author's test is right", "keeps": 0}
#-    x[blockIdx.x * 64 + t] = v / s[0];  // no need to write to what others still read
#+    float largest = s[0];
#+    s[t] = v / largest;
#+    x[blockIdx.x * 64 + t] = s[t];

#-    if (i < n) x[i] = fmaxf(x[i], 0.0f);
#+    if (i > n) return;
#+    x[i] = fmaxf(x[i], 0.0f);

#-    if (t == 1) s[0] = i > 0 ? in[i - 1] : 0.0f;
#-    if (t == 64) s[65] = i + 1 < n ? in[i + 1] : 0.0f;

#-    s[t] = i < n ? in[i] : 0.0f;  // everybody stays, for everybody is waited for
#+    if (i >= n) return;
#+    s[t] = in[i];

#-    if (i < n) out[i] = s[t];
#+    out[i] = s[t];

# %% wrong={"grade_id": "debug", "name": "half_mended", "misconception": "the first finding is the only one", "keeps": 0}
#     }
#-    __syncthreads();
#+    __syncwarp();

#-    if (i < n) x[i] = fmaxf(x[i], 0.0f);
#+    float v = x[i];
#+    if (i < n) x[i] = fmaxf(v, 0.0f);

#-    if (t == 1) s[0] = i > 0 ? in[i - 1] : 0.0f;
#-    if (t == 64) s[65] = i + 1 < n ? in[i + 1] : 0.0f;
#+    if (t == 1) s[0] = s[65] = 0.0f;

#         float add = t >= d ? s[t - d] : 0.0f;
#-        __syncthreads();

# %% wrong={"grade_id": "debug", "name": "quietened", "misconception": "what is guarded cannot be wrong", "keeps": 0}
#-    __syncthreads();
#-    x[blockIdx.x * 64 + t] = v / s[0];  // no need to write to what others still read
#+    if (t == 0) {
#+        for (int i = 0; i < 64; ++i) x[blockIdx.x * 64 + i] = x[blockIdx.x * 64 + i] / s[i];
#+    }

#-    if (i < n) x[i] = fmaxf(x[i], 0.0f);
#+    if (i < n - 1) x[i] = fmaxf(x[i], 0.0f);

#-    if (t == 64) s[65] = i + 1 < n ? in[i + 1] : 0.0f;
#+    if (t == 64) s[65] = in[i + 1];

#-    s[t] = i < n ? in[i] : 0.0f;  // everybody stays, for everybody is waited for
#-    __syncthreads();
#+    if (i < n) {
#+        s[t] = in[i];
#+        __syncthreads();
#+    }

# %% wrong={"grade_id": "debug", "name": "halo_only_on_the_left", "misconception": "a block has one neighbour", "keeps": 6}
#-    if (t == 64) s[65] = i + 1 < n ? in[i + 1] : 0.0f;
#+    if (t == 64) s[65] = 0.0f;

# %% wrong={"grade_id": "debug", "name": "prefix_waits_once", "misconception": "one barrier a round orders reads before writes and writes before reads", "keeps": 6}
#-        float add = t >= d ? s[t - d] : 0.0f;
#-        __syncthreads();
#-        s[t] += add;
#+        if (t >= d) s[t] += s[t - d];
