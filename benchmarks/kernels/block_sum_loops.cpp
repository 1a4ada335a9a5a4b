// block_sums.cu without CUDA: between two barriers, a loop over the threads. What the simulator is compared with.
extern "C" void block_sums(const float* x, float* sums, int blocks, int threads) {
#pragma omp parallel for
    for (int block = 0; block < blocks; ++block) {
        float part[1024];
        for (int thread = 0; thread < threads; ++thread) part[thread] = x[block * threads + thread];
        for (int half = threads / 2; half > 0; half /= 2) {
            for (int thread = 0; thread < half; ++thread) part[thread] += part[thread + half];
        }
        sums[block] = part[0];
    }
}
