// Adds up products of 64 x 16 and 16 x 8 tiles, which lie in global memory as core matrices, two stages ahead of each other.
__device__ uint64_t descriptor(const void* at, unsigned leading, unsigned stride) {
    const uint64_t place = __cvta_generic_to_shared(at) & 0x3ffff;
    return place >> 4 | uint64_t(leading >> 4) << 16 | uint64_t(stride >> 4) << 32;
}

__global__ void product(const uint4* tiles, float* out, int count) {
    constexpr int left = 64 * 16 * 2, right = 16 * 8 * 2;
    __shared__ alignas(128) unsigned char s[2][left + right];
    __shared__ alignas(8) uint64_t full[2];
    const int t = threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < 2; i++) ptx::mbarrier_init(&full[i], 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    auto load = [&](int tile) {
        uint64_t* until = &full[tile % 2];
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, until, left + right);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, s[tile % 2], tiles + tile * (left + right) / 16, left + right, until);  // load
    };
    if (t == 0) load(0);
    float d[4] = {};
    for (int tile = 0; tile < count; tile++) {
        if (t == 0 && tile + 1 < count) load(tile + 1);
        while (!ptx::mbarrier_try_wait_parity(&full[tile % 2], tile / 2 % 2)) {}  // wait
        const uint64_t a = descriptor(s[tile % 2], 1024, 128);
        const uint64_t b = descriptor(s[tile % 2] + left, 128, 256);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"  // multiply
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");  // commit
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");  // products
        __syncthreads();  // reuse
    }
    for (int i = 0; i < 4; i++) {
        const int row = t / 32 * 16 + t % 32 / 4 + i / 2 * 8, column = t % 4 * 2 + i % 2;
        out[row * 8 + column] = d[i];  // result
    }
}

// One product of operands that the threads write themselves.
__global__ void written(const uint4* tile, float* out) {
    __shared__ alignas(128) uint4 s[(64 * 16 + 16 * 8) / 8];
    for (int i = threadIdx.x; i < (64 * 16 + 16 * 8) / 8; i += blockDim.x) s[i] = tile[i];  // write
    asm volatile("fence.proxy.async;" ::: "memory");  // fence
    __syncthreads();
    const uint64_t a = descriptor(s, 1024, 128), b = descriptor(s + 128, 128, 256);
    float d[4];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 0, 1, 1, 0, 0;"  // multiply
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const int t = threadIdx.x;
    for (int i = 0; i < 4; i++) {
        const int row = t / 32 * 16 + t % 32 / 4 + i / 2 * 8, column = t % 4 * 2 + i % 2;
        out[row * 8 + column] = d[i];
    }
}

__device__ __forceinline__ void add_product(float d[2][2], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1]) : "l"(a), "l"(b));
}

// Two products in one group add to the same sums, which nothing has to wait for in between.
__global__ void chained(const uint4* tile, float* out) {
    const int t = threadIdx.x;
    __shared__ alignas(128) uint4 s[(64 * 16 + 16 * 8) / 8];
    for (int i = t; i < (64 * 16 + 16 * 8) / 8; i += blockDim.x) s[i] = tile[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const uint64_t a = descriptor(s, 1024, 128), b = descriptor(s + 128, 128, 256);
    float d[2][2] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 2; i++) add_product(d, a, b);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; i++) {
        const int row = t / 32 * 16 + t % 32 / 4 + i / 2 * 8, column = t % 4 * 2 + i % 2;
        out[row * 8 + column] = d[i / 2][i % 2] / 2;
    }
}
