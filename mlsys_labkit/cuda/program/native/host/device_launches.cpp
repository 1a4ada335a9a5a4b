// device_launches.cpp: see device_launches.h.
#include "device_launches.h"

#include <mutex>
#include <utility>
#include <vector>

#include "context.h"
#include "journal.h"
#include "lk/qualifiers.h"
#include "lk/vectors.h"

#include "lk/host/launch.h"

using namespace lk::host;

namespace {

constexpr int deepest = 24;  // levels of launches, by the CUDA programming guide

class KeptLaunch {
public:
    KeptLaunch(const void* kernel, const lk::Configuration& configuration, lk::LaunchByAddress launch,
               const lk::KeptArgument* arguments, size_t count)
        : kernel_(kernel), configuration_(configuration), launch_(launch) {
        for (size_t i = 0; i < count; ++i) {
            const char* bytes = static_cast<const char*>(arguments[i].address);
            // In units of the strictest alignment that a parameter has.
            kept_.emplace_back((arguments[i].bytes + sizeof(Unit) - 1) / sizeof(Unit));
            __builtin_memcpy(kept_.back().data(), bytes, arguments[i].bytes);
        }
    }

    bool is_last() const { return configuration_.stream == cudaStreamTailLaunch; }

    void run() {
        std::vector<void*> addresses;
        for (std::vector<Unit>& each : kept_) addresses.push_back(each.data());
        configuration_.stream = nullptr;
        launch_(kernel_, configuration_, addresses.data());
    }

private:
    struct alignas(64) Unit {
        char bytes[64];
    };

    const void* kernel_;
    lk::Configuration configuration_;
    lk::LaunchByAddress launch_;
    std::vector<std::vector<Unit>> kept_;
};

std::mutex kept_lock;  // blocks run on several threads
std::vector<KeptLaunch> kept;
int depth = 0;

}  // namespace

bool lk_program_in_kernel() { return in_kernel(); }

cudaError_t lk_program_launch_later(const void* kernel, const lk::Configuration* configuration,
                                    lk::LaunchByAddress launch, const lk::KeptArgument* arguments, size_t count) {
    if (depth >= deepest) {
        journal().note_once("a launch by a kernel failed: more than " + std::to_string(deepest) + " levels of launches");
        return cudaErrorLaunchMaxDepthExceeded;
    }
    const std::lock_guard<std::mutex> held(kept_lock);
    kept.emplace_back(kernel, *configuration, launch, arguments, count);
    return cudaSuccess;
}

namespace lk::host {

void run_device_launches() {
    std::vector<KeptLaunch> children = std::exchange(kept, {});
    ++depth;
    for (const bool last : {false, true}) {
        for (KeptLaunch& each : children) {
            if (each.is_last() == last && context().unnoticed_fault() == cudaSuccess) each.run();
        }
    }
    --depth;
}

}  // namespace lk::host
