// Adds one to each tile of 256 numbers, in place, on its way through shared memory.
__global__ void store(int* data, int tiles) {
    __shared__ alignas(128) int s[256];
    __shared__ Barrier bar;
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);  // init
        ptx::fence_proxy_async(ptx::space_shared);  // fence init
    }
    __syncthreads();
    for (int i = 0; i < tiles; i++) {
        Barrier::arrival_token token;
        if (threadIdx.x == 0) {
            cuda::device::memcpy_async_tx(s, data + 256 * i, cuda::aligned_size_t<16>(sizeof s), bar);  // load
            token = cuda::device::barrier_arrive_tx(bar, 1, sizeof s);  // arrive
        } else {
            token = bar.arrive();
        }
        bar.wait(std::move(token));  // wait
        for (int k = threadIdx.x; k < 256; k += blockDim.x) s[k] += 1;  // change
        ptx::fence_proxy_async(ptx::space_shared);  // fence data
        __syncthreads();
        if (threadIdx.x == 0) {
            ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, data + 256 * i, s, sizeof s);  // store
            ptx::cp_async_bulk_commit_group();  // commit
            ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());  // wait group
        }
        __syncthreads();  // reuse
    }
}
