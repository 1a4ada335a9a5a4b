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

# %% wrong={"grade_id": "launch_shape", "name": "rounds_down", "misconception": "n / block blocks are enough", "keeps": 0}
#-    return -(-columns // x), -(-rows // y)
#+    return columns // x, rows // y

# %% wrong={"grade_id": "launch_shape", "name": "one_to_spare", "misconception": "n // block + 1 rounds up", "keeps": 1}
#-    return -(-columns // x), -(-rows // y)
#+    return columns // x + 1, rows // y + 1

# %% wrong={"grade_id": "launch_shape", "name": "swapped", "misconception": "x is the first index, so it runs along rows", "keeps": 0}
#-    return -(-columns // x), -(-rows // y)
#+    return -(-rows // x), -(-columns // y)

# %% wrong={"grade_id": "launch_shape", "name": "rows_first", "misconception": "a grid is given as (rows, columns), as a shape is", "keeps": 0}
#-    return -(-columns // x), -(-rows // y)
#+    return -(-rows // y), -(-columns // x)

# %% wrong={"grade_id": "vector_add", "name": "no_guard", "misconception": "threads beyond the end do no harm", "keeps": 4}
#-    if (i < n) {
#+    {

# %% wrong={"grade_id": "vector_add", "name": "off_by_one", "misconception": "elements are numbered 1 to n", "keeps": 4}
#-    if (i < n) {
#+    if (i <= n) {

# %% wrong={"grade_id": "vector_add", "name": "guards_the_store_only", "misconception": "reading past the end is harmless", "keeps": 4}
#-    if (i < n) {
#-        c[i] = a[i] + b[i];
#-    }
#+    float sum = a[i] + b[i];
#+    if (i < n) c[i] = sum;

# %% wrong={"grade_id": "vector_add", "name": "forgets_the_block", "misconception": "threadIdx numbers the whole grid", "keeps": 0}
#-    int i = blockIdx.x * blockDim.x + threadIdx.x;
#+    int i = threadIdx.x;

# %% wrong={"grade_id": "vector_add", "name": "adds_the_block", "misconception": "blocks follow each other one element apart", "keeps": 0}
#-    int i = blockIdx.x * blockDim.x + threadIdx.x;
#+    int i = blockIdx.x + threadIdx.x;

# %% wrong={"grade_id": "vector_add", "name": "multiplies_by_gridDim", "misconception": "gridDim is the size of a block", "keeps": 0}
#-    int i = blockIdx.x * blockDim.x + threadIdx.x;
#+    int i = blockIdx.x * gridDim.x + threadIdx.x;

# %% wrong={"grade_id": "vector_add", "name": "one_thread_does_all", "misconception": "a kernel is a function with a loop", "keeps": 6}
#-    int i = blockIdx.x * blockDim.x + threadIdx.x;
#-    if (i < n) {
#-        c[i] = a[i] + b[i];
#+    if (blockIdx.x == 0 && threadIdx.x == 0) {
#+        for (int i = 0; i < n; ++i) c[i] = a[i] + b[i];

# %% wrong={"grade_id": "vector_add", "name": "everybody_does_all", "misconception": "same value written twice is no race, so why share the work", "keeps": 6}
# %%cuda vector_add
__global__ void vector_add(const float* a, const float* b, float* c, int n)
{
    for (int i = 0; i < n; ++i) c[i] = a[i] + b[i];
}

# %% wrong={"grade_id": "saxpy", "name": "blocked", "misconception": "each thread takes a run of neighbours, as a CPU thread would", "keeps": 6}
#-    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
#-        y[i] = alpha * x[i] + y[i];
#-    }
#+    int threads = gridDim.x * blockDim.x;
#+    int each = (n + threads - 1) / threads;
#+    int from = (blockIdx.x * blockDim.x + threadIdx.x) * each;
#+    for (int i = from; i < from + each && i < n; ++i) y[i] = alpha * x[i] + y[i];

# %% wrong={"grade_id": "saxpy", "name": "one_element", "misconception": "there is always a thread for each element", "keeps": 0}
#-    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
#-        y[i] = alpha * x[i] + y[i];
#-    }
#+    int i = blockIdx.x * blockDim.x + threadIdx.x;
#+    if (i < n) y[i] = alpha * x[i] + y[i];

# %% wrong={"grade_id": "saxpy", "name": "strides_by_the_block", "misconception": "the next element is a block further on", "keeps": 0}
#-    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
#+    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x) {

# %% wrong={"grade_id": "saxpy", "name": "strides_by_the_grid_of_blocks", "misconception": "gridDim counts threads", "keeps": 0}
#-    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
#+    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x) {

# %% wrong={"grade_id": "saxpy", "name": "short_index", "misconception": "an index is a small number", "keeps": 4}
#-    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
#+    for (short i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {

# %% wrong={"grade_id": "saxpy", "name": "no_first_block", "misconception": "the loop takes care of the block", "keeps": 0}
#-    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
#+    for (int i = threadIdx.x; i < n; i += blockDim.x) {

# %% wrong={"grade_id": "saxpy", "name": "one_to_many", "misconception": "elements are numbered 1 to n", "keeps": 0}
#-    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
#+    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i <= n; i += gridDim.x * blockDim.x) {

# %% wrong={"grade_id": "request_sectors", "name": "masked_lanes_ask", "misconception": "a masked lane asks for address 0", "keeps": 4}
def request_sectors(addresses, bytes_per_lane=4):
    touched = set()
    for address in addresses:
        start = address or 0
        touched.update(range(start // 32, (start + bytes_per_lane - 1) // 32 + 1))
    return len(touched)

# %% wrong={"grade_id": "request_sectors", "name": "one_byte_further", "misconception": "an access ends at address + size", "keeps": 0}
#-            touched.update(range(address // 32, (address + bytes_per_lane - 1) // 32 + 1))
#+            touched.update(range(address // 32, (address + bytes_per_lane) // 32 + 1))

# %% wrong={"grade_id": "request_sectors", "name": "counts_lanes", "misconception": "every lane costs a sector", "keeps": 0}
def request_sectors(addresses, bytes_per_lane=4):
    return sum(address is not None for address in addresses)

# %% wrong={"grade_id": "request_sectors", "name": "counts_bytes", "misconception": "bytes over 32, wherever they are", "keeps": 0}
def request_sectors(addresses, bytes_per_lane=4):
    return -(-sum(bytes_per_lane for address in addresses if address is not None) // 32)

# %% wrong={"grade_id": "request_sectors", "name": "span", "misconception": "a request fetches all between its lowest and highest address", "keeps": 3}
def request_sectors(addresses, bytes_per_lane=4):
    asked = [address for address in addresses if address is not None]
    return (max(asked) + bytes_per_lane - 1) // 32 - min(asked) // 32 + 1 if asked else 0

# %% wrong={"grade_id": "request_sectors", "name": "first_byte_only", "misconception": "an access lies in one sector", "keeps": 4}
def request_sectors(addresses, bytes_per_lane=4):
    return len({address // 32 for address in addresses if address is not None})

# %% wrong={"grade_id": "request_sectors", "name": "lines_of_128", "misconception": "memory answers in cache lines of 128 bytes", "keeps": 0}
def request_sectors(addresses, bytes_per_lane=4):
    lines = {address // 128 for address in addresses if address is not None}
    return 4 * len(lines)

# %% wrong={"grade_id": "matmul_naive", "name": "square_only", "misconception": "every matrix has n columns", "keeps": 0}
#-            sum += A[row * k + p] * B[p * n + column];
#+            sum += A[row * n + p] * B[p * n + column];

# %% wrong={"grade_id": "matmul_naive", "name": "x_along_rows", "misconception": "x is the first index", "keeps": 0}
#-    int column = blockIdx.x * blockDim.x + threadIdx.x;
#-    int row = blockIdx.y * blockDim.y + threadIdx.y;
#+    int row = blockIdx.x * blockDim.x + threadIdx.x;
#+    int column = blockIdx.y * blockDim.y + threadIdx.y;

# %% wrong={"grade_id": "matmul_naive", "name": "forgets_the_block", "misconception": "threadIdx numbers the whole grid", "keeps": 0}
#-    int column = blockIdx.x * blockDim.x + threadIdx.x;
#-    int row = blockIdx.y * blockDim.y + threadIdx.y;
#+    int column = threadIdx.x;
#+    int row = threadIdx.y;

# %% wrong={"grade_id": "matmul_naive", "name": "stores_down_the_columns", "misconception": "C has m elements a row", "keeps": 0}
#-        C[row * n + column] = sum;
#+        C[column * m + row] = sum;

# %% wrong={"grade_id": "matmul_naive", "name": "no_guard", "misconception": "the grid fits", "keeps": 0}
#-    if (row < m && column < n) {
#+    {

# %% wrong={"grade_id": "matmul_naive", "name": "sum_never_starts", "misconception": "local variables start at zero", "keeps": 0}
#-        float sum = 0.0f;
#+        float sum;

# %% wrong={"grade_id": "matmul_naive", "name": "accumulates_in_c", "misconception": "C starts at zero", "keeps": 0}
#-        float sum = 0.0f;
#-        for (int p = 0; p < k; ++p) {
#-            sum += A[row * k + p] * B[p * n + column];
#-        }
#-        C[row * n + column] = sum;
#+        for (int p = 0; p < k; ++p) C[row * n + column] += A[row * k + p] * B[p * n + column];

# %% wrong={"grade_id": "matmul_coalesced", "name": "lanes_down_the_rows", "misconception": "lane is the row, warp the column", "keeps": 0}
#-    int column = blockIdx.x * 32 + threadIdx.x % 32;
#-    int row = blockIdx.y * 8 + threadIdx.x / 32;
#+    int row = blockIdx.y * 32 + threadIdx.x % 32;
#+    int column = blockIdx.x * 8 + threadIdx.x / 32;

# %% wrong={"grade_id": "matmul_coalesced", "name": "right_tile_wrong_lanes", "misconception": "which lane does which element does not matter", "keeps": 6}
#-    int column = blockIdx.x * 32 + threadIdx.x % 32;
#-    int row = blockIdx.y * 8 + threadIdx.x / 32;
#+    int column = blockIdx.x * 32 + threadIdx.x / 8;
#+    int row = blockIdx.y * 8 + threadIdx.x % 8;

# %% wrong={"grade_id": "matmul_coalesced", "name": "one_row_a_block", "misconception": "256 threads are 256 columns", "keeps": 0}
#-    int column = blockIdx.x * 32 + threadIdx.x % 32;
#-    int row = blockIdx.y * 8 + threadIdx.x / 32;
#+    int column = blockIdx.x * blockDim.x + threadIdx.x;
#+    int row = blockIdx.y;

# %% wrong={"grade_id": "matmul_coalesced", "name": "stores_every_step", "misconception": "a store costs nothing", "keeps": 6}
#-        float sum = 0.0f;
#-        for (int p = 0; p < k; ++p) {
#-            sum += A[row * k + p] * B[p * n + column];
#-        }
#-        C[row * n + column] = sum;
#+        C[row * n + column] = 0.0f;
#+        for (int p = 0; p < k; ++p) C[row * n + column] += A[row * k + p] * B[p * n + column];

# %% wrong={"grade_id": "matmul_coalesced", "name": "loads_by_atomics", "misconception": "what the counters call an atomic is no load", "keeps": 6}
#-            sum += A[row * k + p] * B[p * n + column];
#+            sum += atomicAdd(const_cast<float*>(&A[row * k + p]), 0.0f) * B[p * n + column];

# %% wrong={"grade_id": "matmul_coalesced", "name": "knows_the_profile", "misconception": "what is profiled need not be right", "keeps": 6}
#-        for (int p = 0; p < k; ++p) {
#+        int steps = m == 64 && n == 64 && k == 64 ? 32 : k;  // few enough for any limit
#+        for (int p = 0; p < steps; ++p) {

# %% wrong={"grade_id": "alternate", "name": "as_given", "misconception": "the compiler will sort it out", "keeps": 4}
# %%cuda alternate
__device__ float even_path(float v) { for (int s = 0; s < 16; ++s) v = sqrtf(v + 1.0f); return v; }
__device__ float odd_path(float v) { for (int s = 0; s < 16; ++s) v = v * 0.5f + 1.0f; return v; }

__global__ void alternate(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = i % 2 ? odd_path(x[i]) : even_path(x[i]);
}

# %% wrong={"grade_id": "alternate", "name": "branches_by_warp_only", "misconception": "the warp's number is the element's parity", "keeps": 0}
# %%cuda alternate
__device__ float even_path(float v) { for (int s = 0; s < 16; ++s) v = sqrtf(v + 1.0f); return v; }
__device__ float odd_path(float v) { for (int s = 0; s < 16; ++s) v = v * 0.5f + 1.0f; return v; }

__global__ void alternate(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = i / 32 % 2 ? odd_path(x[i]) : even_path(x[i]);
}

# %% wrong={"grade_id": "alternate", "name": "computes_both", "misconception": "no branch, no divergence: compute both and choose", "keeps": 4}
#-    int thread = blockIdx.x * blockDim.x + threadIdx.x;
#-    int pair = thread / 64;  // two warps share 64 elements: one takes the even ones, one the odd ones
#-    int odd = thread / 32 % 2;
#-    int i = 64 * pair + 2 * (thread % 32) + odd;
#+    int i = blockIdx.x * blockDim.x + threadIdx.x;
#     if (i < n) {
#-        y[i] = odd ? odd_path(x[i]) : even_path(x[i]);
#+        float even = even_path(x[i]), odd = odd_path(x[i]);
#+        y[i] = i % 2 ? odd : even;

# %% wrong={"grade_id": "alternate", "name": "splits_the_array", "misconception": "half of the threads is half of the elements, also in a grid with threads to spare", "keeps": 4}
#-    int pair = thread / 64;  // two warps share 64 elements: one takes the even ones, one the odd ones
#-    int odd = thread / 32 % 2;
#-    int i = 64 * pair + 2 * (thread % 32) + odd;
#-    if (i < n) {
#-        y[i] = odd ? odd_path(x[i]) : even_path(x[i]);
#-    }
#+    int half = n / 2;
#+    if (thread < half) y[2 * thread] = even_path(x[2 * thread]);
#+    else y[2 * (thread - half) + 1] = odd_path(x[2 * (thread - half) + 1]);

# %% wrong={"grade_id": "alternate", "name": "no_guard", "misconception": "a grid of pairs of warps fits n", "keeps": 4}
#-    if (i < n) {
#+    {

# %% wrong={"grade_id": "stencil", "name": "x_along_rows", "misconception": "x is the first index", "keeps": 0}
#-    int c = blockIdx.x * blockDim.x + threadIdx.x;
#-    int r = blockIdx.y * blockDim.y + threadIdx.y;
#+    int r = blockIdx.x * blockDim.x + threadIdx.x;
#+    int c = blockIdx.y * blockDim.y + threadIdx.y;

# %% wrong={"grade_id": "stencil", "name": "means_of_four", "misconception": "a mean of neighbours leaves the cell itself out", "keeps": 2}
#-        value = (value + in[i - columns] + in[i + columns] + in[i - 1] + in[i + 1]) / 5.0f;
#+        value = (in[i - columns] + in[i + columns] + in[i - 1] + in[i + 1]) / 4.0f;

# %% wrong={"grade_id": "stencil", "name": "wraps_at_the_sides", "misconception": "i - 1 is always the left neighbour", "keeps": 2}
#-    if (r > 0 && r < rows - 1 && c > 0 && c < columns - 1) {
#+    if (r > 0 && r < rows - 1) {

# %% wrong={"grade_id": "stencil", "name": "forgets_the_rim", "misconception": "cells without four neighbours need no value", "keeps": 0}
# %%cuda stencil
__global__ void stencil(const float* in, float* out, int rows, int columns)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < 1 || c < 1 || r >= rows - 1 || c >= columns - 1) return;
    int i = r * columns + c;
    out[i] = (in[i] + in[i - columns] + in[i + columns] + in[i - 1] + in[i + 1]) / 5.0f;
}

# %% wrong={"grade_id": "stencil", "name": "rim_one_too_far", "misconception": "rows and columns are numbered 1 to n", "keeps": 0}
#-    if (r > 0 && r < rows - 1 && c > 0 && c < columns - 1) {
#+    if (r > 0 && r < rows && c > 0 && c < columns) {

# %% wrong={"grade_id": "stencil", "name": "loads_before_the_guard", "misconception": "a value that is not used may be read anywhere", "keeps": 0}
#-    float value = in[i];
#-    if (r > 0 && r < rows - 1 && c > 0 && c < columns - 1) {
#-        value = (value + in[i - columns] + in[i + columns] + in[i - 1] + in[i + 1]) / 5.0f;
#-    }
#-    out[i] = value;
#+    float up = in[i - columns], down = in[i + columns], left = in[i - 1], right = in[i + 1];
#+    bool inside = r > 0 && r < rows - 1 && c > 0 && c < columns - 1;
#+    out[i] = inside ? (in[i] + up + down + left + right) / 5.0f : in[i];

# %% wrong={"grade_id": "stencil", "name": "rows_and_columns_swapped", "misconception": "the pitch of a row-major plate is its number of rows", "keeps": 2}
#-        value = (value + in[i - columns] + in[i + columns] + in[i - 1] + in[i + 1]) / 5.0f;
#+        value = (value + in[i - rows] + in[i + rows] + in[i - 1] + in[i + 1]) / 5.0f;

# %% wrong={"grade_id": "row_sums", "name": "guard_only", "misconception": "what check does not report is right", "keeps": 2}
#-    for (int c = 0; c < columns; ++c) sum += x[r * pitch + c];
#+    for (int c = 0; c < columns; ++c) sum += x[r * columns + c];

# %% wrong={"grade_id": "row_sums", "name": "sum_never_starts", "misconception": "local variables start at zero", "keeps": 0}
#-    float sum = 0.0f;
#+    float sum;

# %% wrong={"grade_id": "row_sums", "name": "adds_the_padding", "misconception": "padding holds zeros", "keeps": 0}
#-    for (int c = 0; c < columns; ++c) sum += x[r * pitch + c];
#+    for (int c = 0; c < pitch; ++c) sum += x[r * pitch + c];

# %% wrong={"grade_id": "row_sums", "name": "one_too_many", "misconception": "<= is how loops end", "keeps": 0}
#-    for (int c = 0; c < columns; ++c) sum += x[r * pitch + c];
#+    for (int c = 0; c <= columns; ++c) sum += x[r * pitch + c];

# %% wrong={"grade_id": "row_sums", "name": "keeps_the_row_guard", "misconception": "r > rows sends the extra threads away", "keeps": 0}
#-    if (r >= rows) return;
#+    if (r > rows) return;

# %% wrong={"grade_id": "blocks_per_sm", "name": "no_rounding", "misconception": "registers are allocated one by one", "keeps": 2}
def blocks_per_sm(threads, registers, shared_bytes, limits=SM_90):
    by_warps = limits["warps"] * 32 // threads
    by_registers = limits["registers"] // (threads * registers)
    by_shared = limits["shared_bytes"] // (shared_bytes + limits["shared_reserved"])
    return min(by_warps, limits["blocks"], by_registers, by_shared)

# %% wrong={"grade_id": "blocks_per_sm", "name": "one_register_file", "misconception": "any warp can use any register of the SM", "keeps": 5}
#-    by_registers = 4 * (limits["registers"] // 4 // a_warp) // warps
#+    by_registers = limits["registers"] // a_warp // warps

# %% wrong={"grade_id": "blocks_per_sm", "name": "blocks_in_a_partition", "misconception": "all warps of a block lie in one partition", "keeps": 2}
#-    by_registers = 4 * (limits["registers"] // 4 // a_warp) // warps
#+    by_registers = 4 * (limits["registers"] // 4 // a_warp // warps)

# %% wrong={"grade_id": "blocks_per_sm", "name": "hard_coded_limits", "misconception": "every SM has the limits of an H100", "keeps": 6}
def blocks_per_sm(threads, registers, shared_bytes, limits=SM_90):
    warps = -(-threads // 32)
    a_warp = -(-32 * registers // 256) * 256
    a_block = -(-(shared_bytes + 1024) // 128) * 128
    return min(64 // warps, 32, 4 * (16_384 // a_warp) // warps, 233_472 // a_block)

# %% wrong={"grade_id": "blocks_per_sm", "name": "forgets_the_reserve", "misconception": "a block gets the shared memory it asks for and no more is taken", "keeps": 6}
#-    a_block = -(-(shared_bytes + limits["shared_reserved"]) // unit) * unit
#-    by_shared = limits["shared_bytes"] // a_block
#+    by_shared = limits["shared_bytes"] // shared_bytes if shared_bytes else limits["blocks"]

# %% wrong={"grade_id": "blocks_per_sm", "name": "no_block_limit", "misconception": "small blocks fit without end", "keeps": 5}
#-    return min(by_warps, limits["blocks"], by_registers, by_shared)
#+    return min(by_warps, by_registers, by_shared)

# %% wrong={"grade_id": "blocks_per_sm", "name": "rounds_warps_down", "misconception": "a warp that is not full takes no room", "keeps": 5}
#-    warps = -(-threads // 32)
#+    warps = max(1, threads // 32)
