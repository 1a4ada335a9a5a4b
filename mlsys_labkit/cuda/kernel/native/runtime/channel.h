// channel.h: the worker's end of the conversation with the notebook.
#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "protocol.h"

namespace lk {

// Files the worker inherits. The lifeline is a pipe whose writing end only the notebook holds: the number of a request in
// it cancels that request, its end means that the notebook is gone.
struct ChannelFiles {
    int control;
    int submitted;  // eventfd, rung by the notebook
    int completed;  // eventfd, rung by the worker
    int lifeline;
};

class Channel {
public:
    // spin_microseconds: how long to watch for the next request before sleeping. Throws std::runtime_error.
    Channel(ChannelFiles files, unsigned spin_microseconds);

    protocol::Control& control() { return *control_; }

    // The next request, once there is one. The reply starts empty.
    const protocol::Request& wait();
    // Copies bytes into the result area as a section of the reply.
    void add_section(unsigned section, const void* data, size_t bytes);
    void fail(protocol::Failure failure, const std::string& why);
    void complete();

    // Text for the cell's standard output, from any thread.
    void print(const char* text, size_t bytes);

    // Calls cancel, from a thread of its own, with the sequence number of a request that the notebook gives up; ends the
    // process when the notebook is gone.
    void watch_lifeline(void (*cancel)(uint64_t));

private:
    ChannelFiles files_;
    unsigned spin_microseconds_;
    protocol::Control* control_;
    uint64_t result_bytes_ = 0;
    std::mutex output_mutex_;
};

}  // namespace lk
