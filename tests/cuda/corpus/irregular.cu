// Histograms, stencils, convolutions, sparse products, graphs, sorting.
#define RADIUS 3
#define BLOCK_SIZE 64
#define MASK_WIDTH 5
__constant__ float Mc[MASK_WIDTH] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
__device__ unsigned int finished_blocks = 0;

__global__ void histo_naive(const unsigned char* buffer, long size, unsigned int* histo) {
    int i = threadIdx.x + blockIdx.x * blockDim.x, stride = blockDim.x * gridDim.x;
    while (i < size) {
        atomicAdd(&(histo[buffer[i]]), 1);
        i += stride;
    }
}

__global__ void histo_private(unsigned char* buffer, long size, unsigned int* histo) {
    __shared__ unsigned int temp[256];
    temp[threadIdx.x] = 0;
    __syncthreads();
    int i = threadIdx.x + blockIdx.x * blockDim.x, offset = blockDim.x * gridDim.x;
    while (i < size) {
        atomicAdd(&temp[buffer[i]], 1);
        i += offset;
    }
    __syncthreads();
    atomicAdd(&(histo[threadIdx.x]), temp[threadIdx.x]);
}

__global__ void stencil_1d(int* in, int* out, int n) {
    __shared__ int temp[BLOCK_SIZE + 2 * RADIUS];
    int gindex = threadIdx.x + blockIdx.x * blockDim.x + RADIUS;
    int lindex = threadIdx.x + RADIUS;
    temp[lindex] = in[gindex];
    if (threadIdx.x < RADIUS) {
        temp[lindex - RADIUS] = in[gindex - RADIUS];
        temp[lindex + BLOCK_SIZE] = in[gindex + BLOCK_SIZE];
    }
    __syncthreads();
    int result = 0;
    for (int offset = -RADIUS; offset <= RADIUS; offset++) result += temp[lindex + offset];
    out[gindex - RADIUS] = result;
}

__global__ void convolution_1D(const float* N, float* P, int Width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float Pvalue = 0;
    int N_start_point = i - (MASK_WIDTH / 2);
    for (int j = 0; j < MASK_WIDTH; j++)
        if (N_start_point + j >= 0 && N_start_point + j < Width) Pvalue += N[N_start_point + j] * Mc[j];
    if (i < Width) P[i] = Pvalue;
}

__global__ void heat_7point(const float* in, float* out, int nx, int ny, int nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x < 1 || y < 1 || z < 1 || x >= nx - 1 || y >= ny - 1 || z >= nz - 1) return;
#define AT(a, b, c) in[((c) * ny + (b)) * nx + (a)]
    out[(z * ny + y) * nx + x] = AT(x, y, z) + 0.1f * (AT(x - 1, y, z) + AT(x + 1, y, z) + AT(x, y - 1, z) + AT(x, y + 1, z) + AT(x, y, z - 1) + AT(x, y, z + 1) - 6 * AT(x, y, z));
}

__global__ void game_of_life(const int* now, int* next, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int alive = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx || dy) alive += now[((y + dy + h) % h) * w + (x + dx + w) % w];
    next[y * w + x] = alive == 3 || (alive == 2 && now[y * w + x]);
}

__global__ void spmv_csr_scalar(const int num_rows, const int* ptr, const int* indices, const float* data, const float* x, float* y) {
    int row = blockDim.x * blockIdx.x + threadIdx.x;
    if (row < num_rows) {
        float dot = 0;
        for (int jj = ptr[row]; jj < ptr[row + 1]; jj++) dot += data[jj] * x[indices[jj]];
        y[row] = dot;
    }
}

__global__ void spmv_csr_vector(int rows, const int* ptr, const int* indices, const float* data, const float* x, float* y) {
    int thread = blockDim.x * blockIdx.x + threadIdx.x, row = thread / 32, lane = thread & 31;
    if (row >= rows) return;
    float v = 0;
    for (int j = ptr[row] + lane; j < ptr[row + 1]; j += 32) v += data[j] * x[indices[j]];
    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(0xffffffffu, v, o);
    if (!lane) y[row] = v;
}

__global__ void bfs_level(const int* edges_from, const int* edges, int* level, int n, int current, int* changed) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= n || level[v] != current) return;
    for (int e = edges_from[v]; e < edges_from[v + 1]; ++e)
        if (atomicCAS(&level[edges[e]], -1, current + 1) == -1) *changed = 1;
}

__global__ void floyd_warshall_step(int* dist, int n, int k) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || j >= n || i == k || j == k) return;
    dist[i * n + j] = min(dist[i * n + j], dist[i * n + k] + dist[k * n + j]);
}

__global__ void bitonic_step(float* dev_values, int j, int k) {
    unsigned int i = threadIdx.x + blockDim.x * blockIdx.x, ixj = i ^ j;
    if (ixj > i) {
        bool ascending = (i & k) == 0;
        if ((dev_values[i] > dev_values[ixj]) == ascending) {
            float temp = dev_values[i];
            dev_values[i] = dev_values[ixj];
            dev_values[ixj] = temp;
        }
    }
}

__global__ void odd_even_sort_block(int* data, int n) {
    extern __shared__ int s[];
    int t = threadIdx.x;
    s[t] = data[t];
    __syncthreads();
    for (int phase = 0; phase < n; ++phase) {
        int left = 2 * (t / 2) + (phase & 1);
        if ((t & 1) == 0 && left + 1 < n && s[left] > s[left + 1]) {
            int swap = s[left];
            s[left] = s[left + 1];
            s[left + 1] = swap;
        }
        __syncthreads();
    }
    data[t] = s[t];
}

__global__ void compact_positive(const int* in, int* out, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    bool keep = i < n && in[i] > 0;
    unsigned votes = __ballot_sync(0xffffffff, keep);
    int base = 0;
    if (lane == 0 && votes) base = atomicAdd(count, __popc(votes));
    base = __shfl_sync(0xffffffff, base, 0);
    if (keep) out[base + __popc(votes & ((1u << lane) - 1))] = in[i];
}

__global__ void single_pass_sum(const int* in, int* partial, int* total, int n) {
    __shared__ bool last;
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&sum, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(&finished_blocks, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int all = 0;
        for (int b = 0; b < gridDim.x; ++b) all += ((volatile int*)partial)[b];
        *total = all;
    }
}

__global__ void merge_path(const int* a, int na, const int* b, int nb, int* out) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= na + nb) return;
    int low = max(0, k - nb), high = min(k, na);
    while (low < high) {
        int mid = (low + high) / 2;
        if (a[mid] < b[k - mid - 1]) low = mid + 1;
        else high = mid;
    }
    int i = low, j = k - low;
    out[k] = j >= nb || (i < na && a[i] <= b[j]) ? a[i] : b[j];
}

__global__ void julia(int* iterations, int dim, float cr, float ci) {
    int x = blockIdx.x, y = blockIdx.y;
    struct Complex {
        float r, i;
        __device__ Complex(float a, float b) : r(a), i(b) {}
        __device__ float magnitude2() { return r * r + i * i; }
        __device__ Complex operator*(const Complex& a) { return Complex(r * a.r - i * a.i, i * a.r + r * a.i); }
        __device__ Complex operator+(const Complex& a) { return Complex(r + a.r, i + a.i); }
    };
    Complex c(cr, ci), a(1.5f * (dim / 2 - x) / (dim / 2), 1.5f * (dim / 2 - y) / (dim / 2));
    int n = 0;
    for (; n < 50; ++n) {
        a = a * a + c;
        if (a.magnitude2() > 1000) break;
    }
    iterations[y * gridDim.x + x] = n;
}

__global__ void nbody_forces(const float4* bodies, float3* accelerations, int n) {
    extern __shared__ float4 shPosition[];
    int gtid = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = gtid < n ? bodies[gtid] : make_float4(0.f, 0.f, 0.f, 0.f);
    float3 acc = {0.0f, 0.0f, 0.0f};
    for (int tile = 0; tile * blockDim.x < n; tile++) {
        int idx = tile * blockDim.x + threadIdx.x;
        shPosition[threadIdx.x] = idx < n ? bodies[idx] : make_float4(0.f, 0.f, 0.f, 0.f);
        __syncthreads();
        for (int k = 0; k < blockDim.x; k++) {
            float4 other = shPosition[k];
            float3 r = {other.x - me.x, other.y - me.y, other.z - me.z};
            float inv = rsqrtf(r.x * r.x + r.y * r.y + r.z * r.z + 0.01f);
            float s = other.w * inv * inv * inv;
            acc.x += r.x * s;
            acc.y += r.y * s;
            acc.z += r.z * s;
        }
        __syncthreads();
    }
    if (gtid < n) accelerations[gtid] = acc;
}
