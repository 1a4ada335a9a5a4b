// The loop of vector_add.cu without CUDA: what the simulator is compared with.
extern "C" void add(const float* x, const float* y, float* z, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}
