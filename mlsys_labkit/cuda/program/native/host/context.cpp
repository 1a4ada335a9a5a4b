// context.cpp: the error state of a whole program, see context.h.
#include "context.h"

#include <cstdio>

#include "capture.h"
#include "engine.h"

namespace lk::host {

cudaError_t Context::finish(cudaError_t error) {
    if (error != cudaSuccess) last_ = error;
    return error;
}

cudaError_t Context::synchronize() {
    if (!held_output_.empty()) {
        fwrite(held_output_.data(), 1, held_output_.size(), stdout);
        fflush(stdout);
        held_output_.clear();
    }
    if (pending_ != cudaSuccess) {
        sticky_ = pending_;
        last_ = pending_;
        pending_ = cudaSuccess;
    }
    return sticky_;
}

void Context::fault(cudaError_t error) {
    if (pending_ == cudaSuccess) pending_ = error;
}

void Context::refuse(const std::string& launch) {
    if (refused_launch_.empty()) refused_launch_ = launch;
}

// CUDA's buffer is as large by default (cudaLimitPrintfFifoSize); text beyond it is lost there, too.
void Context::hold_output(const char* text, size_t bytes) {
    const std::lock_guard<std::mutex> held(output_lock_);
    constexpr size_t most_bytes = 1 << 20;
    if (held_output_.size() + bytes <= most_bytes) held_output_.append(text, bytes);
}

void Context::reset() { last_ = pending_ = sticky_ = cudaSuccess; }

// Reading takes even a fault away, until the next call of the API meets it again (an H100 with CUDA 13.0 does so).
cudaError_t Context::take_last() {
    const cudaError_t error = last_;
    forget_refusal();
    last_ = cudaSuccess;
    return error;
}

cudaError_t Context::peek_last() const { return last_; }

cudaError_t may_wait(cudaError_t during_capture) {
    return capture_forbids() ? spoil_captures(during_capture) : cudaSuccess;
}

bool in_kernel() { return current() != nullptr; }

Context& context() {
    static Context state;
    return state;
}

}  // namespace lk::host

using lk::host::context;

extern "C" cudaError_t cudaGetLastError() {
    if (lk::host::in_kernel()) return cudaSuccess;
    const std::lock_guard<std::recursive_mutex> held(context().lock);
    return context().take_last();
}

extern "C" cudaError_t cudaPeekAtLastError() {
    if (lk::host::in_kernel()) return cudaSuccess;
    const std::lock_guard<std::recursive_mutex> held(context().lock);
    context().forget_refusal();
    return context().peek_last();
}
