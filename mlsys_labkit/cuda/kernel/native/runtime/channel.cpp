// channel.cpp: the worker's end of the conversation with the notebook, see channel.h.
#include "channel.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lk {

namespace {

void sleep_until_readable(int file) {
    pollfd entry{file, POLLIN, 0};
    poll(&entry, 1, -1);
}

// Takes the ring of a non-blocking eventfd. The system call orders what the other side wrote before it rang.
bool take_ring(int file) {
    uint64_t count;
    return read(file, &count, sizeof count) == sizeof count;
}

}  // namespace

Channel::Channel(ChannelFiles files, unsigned spin_microseconds)
    : files_(files), spin_microseconds_(spin_microseconds) {
    void* start = mmap(nullptr, sizeof(protocol::Control), PROT_READ | PROT_WRITE, MAP_SHARED, files.control, 0);
    if (start == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mapping the control block");
    control_ = static_cast<protocol::Control*>(start);
}

const protocol::Request& Channel::wait() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point spin_end = Clock::now() + std::chrono::microseconds(spin_microseconds_);
    while (!take_ring(files_.submitted)) {
        if (Clock::now() >= spin_end) sleep_until_readable(files_.submitted);
    }
    control_->reply = {};
    control_->output.bytes = 0;
    control_->output.dropped = 0;
    result_bytes_ = 0;
    return control_->request;
}

void Channel::add_section(unsigned section, const void* data, size_t bytes) {
    if (bytes > protocol::kResultBytes - result_bytes_) {
        fail(protocol::Failure::refused,
             "the results of this launch do not fit in " + std::to_string(protocol::kResultBytes >> 20) + " MiB");
        return;
    }
    if (bytes) std::memcpy(control_->results + result_bytes_, data, bytes);
    control_->reply.sections[section] = {result_bytes_, bytes};
    result_bytes_ += bytes + (-bytes & 15);  // the next one is aligned for any struct
}

void Channel::fail(protocol::Failure failure, const std::string& why) {
    protocol::Reply& reply = control_->reply;
    reply.failed = static_cast<uint32_t>(failure);
    const size_t length = std::min(why.size(), sizeof reply.error - 1);
    std::memcpy(reply.error, why.data(), length);
    reply.error[length] = 0;
}

void Channel::complete() {
    const uint64_t one = 1;
    if (write(files_.completed, &one, sizeof one) != sizeof one) _exit(1);  // the notebook closed it: nobody listens
}

void Channel::print(const char* text, size_t bytes) {
    protocol::Output& output = control_->output;
    if (output.bytes.load(std::memory_order_relaxed) == protocol::kOutputBytes) {  // a kernel that prints gigabytes is here
        output.dropped.fetch_add(bytes, std::memory_order_relaxed);
        return;
    }
    const std::lock_guard<std::mutex> lock(output_mutex_);
    const uint64_t used = output.bytes.load(std::memory_order_relaxed);
    const size_t kept = std::min<uint64_t>(bytes, protocol::kOutputBytes - used);
    std::memcpy(output.text + used, text, kept);
    output.bytes.store(used + kept, std::memory_order_release);
    output.dropped.fetch_add(bytes - kept, std::memory_order_relaxed);
}

void Channel::watch_lifeline(void (*cancel)(uint64_t)) {
    std::thread([lifeline = files_.lifeline, cancel] {
        for (;;) {
            uint64_t sequence;
            const ssize_t got = read(lifeline, &sequence, sizeof sequence);
            if (got == 0) _exit(0);
            if (got == sizeof sequence) cancel(sequence);
        }
    }).detach();
}

}  // namespace lk
