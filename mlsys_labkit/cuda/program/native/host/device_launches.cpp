// device_launches.cpp: see device_launches.h.
#include "device_launches.h"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "journal.h"

namespace lk::host {

namespace {

constexpr int deepest = 24;  // levels of launches, by the CUDA programming guide

std::mutex kept_lock;  // blocks run on several threads
std::vector<DeviceLaunch> kept;
int depth = 0;

}  // namespace

cudaError_t launch_later(DeviceLaunch launch) {
    if (depth >= deepest) {
        journal().note_once("a launch by a kernel failed: more than " + std::to_string(deepest) + " levels of launches");
        return cudaErrorLaunchMaxDepthExceeded;
    }
    const std::lock_guard<std::mutex> held(kept_lock);
    kept.push_back(std::move(launch));
    return cudaSuccess;
}

void run_device_launches(void (*run)(DeviceLaunch& launch)) {
    std::vector<DeviceLaunch> children = std::exchange(kept, {});
    ++depth;
    for (const bool last : {false, true}) {
        for (DeviceLaunch& each : children) {
            const bool is_last = each.configuration.stream == cudaStreamTailLaunch;
            if (is_last == last && context().unnoticed_fault() == cudaSuccess) run(each);
        }
    }
    --depth;
}

}  // namespace lk::host
