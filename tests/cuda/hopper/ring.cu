// Warp 0 copies tiles into a ring of stages; the threads of the other warps add them up. sums has one element per consumer.
constexpr int stages = 3, tile = 128, consumers = 64;
__global__ void ring(const float* data, float* sums, int tiles) {
    __shared__ alignas(128) float s[stages][tile];
    __shared__ alignas(8) uint64_t full[stages], empty[stages];
    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; i++) {
            ptx::mbarrier_init(&full[i], 1);  // init full
            ptx::mbarrier_init(&empty[i], consumers);
        }
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) {
            for (int i = 0; i < tiles; i++) {
                int stage = i % stages, parity = i / stages & 1;
                while (!ptx::mbarrier_try_wait_parity(&empty[stage], parity ^ 1)) {}  // wait empty
                ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[stage], sizeof s[0]);
                ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, s[stage], data + i * tile, sizeof s[0], &full[stage]);
            }
        }
    } else {
        int t = threadIdx.x - 32;
        float sum = 0;
        for (int i = 0; i < tiles; i++) {
            int stage = i % stages, parity = i / stages & 1;
            while (!ptx::mbarrier_try_wait_parity(&full[stage], parity)) {}  // wait full
            sum += s[stage][t] + s[stage][t + consumers];  // read
            ptx::mbarrier_arrive(&empty[stage]);  // release
        }
        sums[t] = sum;
    }
}
