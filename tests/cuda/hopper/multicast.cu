// One block of a pair copies a tile into both.
__global__ void __cluster_dims__(2, 1, 1) multicast(const int* data, int* out) {
    __shared__ alignas(128) int s[128];
    __shared__ alignas(8) uint64_t bar;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&bar, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, &bar, sizeof s);
    }
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        const uint16_t both = 3;
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, s, data + blockIdx.x * 64, sizeof s, &bar, both);
    }
    while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {}  // wait
    out[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + 64];
    cluster.sync();
}
