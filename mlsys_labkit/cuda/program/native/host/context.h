// context.h: what the runtime of a whole program remembers between calls.
//
// A kernel's fault shows at the next call that waits for the device, and from then on at every call, as CUDA defines it. An
// error of a call itself is kept for cudaGetLastError and is gone once read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "lk/host/errors.h"

namespace lk::host {

class Context {
public:
    // Every call of the API holds this lock: a program may have host threads.
    std::recursive_mutex lock;

    // The first thing an API call asks: an error that no call survives.
    cudaError_t broken() const { return sticky_; }
    // The last thing an API call says.
    cudaError_t finish(cudaError_t error);
    // A call that waits for the device: faults of kernels become visible, and their printf too.
    cudaError_t synchronize();
    // A kernel faulted, and no call has reported it yet.
    void fault(cudaError_t error);
    // A launch was refused: remembered until the program asks for the error.
    void refuse(const std::string& launch);
    void forget_refusal() { refused_launch_.clear(); }
    const std::string& refused_launch() const { return refused_launch_; }
    // A fault of a kernel that no call has waited for.
    cudaError_t unnoticed_fault() const { return pending_; }
    // Text of a kernel's printf, held back until the host waits, as the GPU does.
    // Called by the engine's threads while the host's waits for them with the lock.
    void hold_output(const char* text, size_t bytes);
    size_t held_output_bytes() const { return held_output_.size(); }
    // cudaDeviceReset.
    void reset();

    cudaError_t take_last();
    cudaError_t peek_last() const;

private:
    cudaError_t last_ = cudaSuccess;
    cudaError_t pending_ = cudaSuccess;
    cudaError_t sticky_ = cudaSuccess;
    std::string refused_launch_;  // the first one that nobody asked about
    std::mutex output_lock_;
    std::string held_output_;
};

Context& context();

// Whether a kernel's thread is asking. The launching thread holds the lock then, so that nothing here can be waited for.
bool in_kernel();

// The usual shape of an API call: under the lock, refused when the device is broken, its error remembered.
template <class Call>
cudaError_t api(Call call) {
    if (in_kernel()) return cudaErrorNotSupported;
    Context& state = context();
    const std::lock_guard<std::recursive_mutex> held(state.lock);
    const cudaError_t broken = state.broken();
    return state.finish(broken != cudaSuccess ? broken : call());
}

// An error where a stream captures and the calling thread may not wait; the captures are then lost.
cudaError_t may_wait(cudaError_t during_capture);

// The same for a call that waits for everything issued before it.
template <class Call>
cudaError_t api_after_wait(Call call, cudaError_t during_capture = cudaErrorStreamCaptureUnsupported) {
    return api([&call, during_capture] {
        if (const cudaError_t refused = may_wait(during_capture)) return refused;
        const cudaError_t error = context().synchronize();
        return error != cudaSuccess ? error : call();
    });
}

}  // namespace lk::host
