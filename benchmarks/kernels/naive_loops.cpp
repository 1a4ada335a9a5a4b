// The loops of naive_matmul.cu without CUDA: what the simulator is compared with.
extern "C" void matmul(const float* a, const float* b, float* c, int n) {
#pragma omp parallel for collapse(2)
    for (int row = 0; row < n; ++row) {
        for (int column = 0; column < n; ++column) {
            float sum = 0;
            for (int k = 0; k < n; ++k) {
                sum += a[row * n + k] * b[k * n + column];
            }
            c[row * n + column] = sum;
        }
    }
}
