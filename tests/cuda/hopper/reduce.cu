// Each block of a cluster of four writes the sum of its numbers into the first one, and the first one adds them up.
__global__ void __cluster_dims__(4, 1, 1) reduce(const int* data, int* sums) {
    __shared__ int own, parts[4];
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) own = 0;
    __syncthreads();
    atomicAdd(&own, data[blockIdx.x * blockDim.x + threadIdx.x]);
    cluster.sync();  // begun
    if (threadIdx.x == 0) cluster.map_shared_rank(parts, 0)[cluster.block_rank()] = own;  // remote write
    cluster.sync();  // written
    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        sums[blockIdx.x / 4] = parts[0] + parts[1] + parts[2] + parts[3];  // read
    }
    cluster.sync();  // ended
}
