// ordering.h: whether streams and the host wait for each other before they touch the same bytes (check only).
//
// Work runs in the order it is issued, so nothing goes wrong here; on a GPU two streams run at once, and the host goes on. Each
// stream has a vector clock: how much of every stream's work came before its next work. Waits and events join clocks.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "lk/host/streams.h"
#include "touched.h"

namespace lk::host {

using StreamClock = std::vector<uint64_t>;  // by the number of the stream

// A place in the program: a line, or an address in its code.
struct Site {
    std::string what;
    std::string file;
    int line = 0;
    uint64_t pc = 0;
};

struct Span {
    uint64_t begin;
    uint64_t end;
    bool writes;
};

// The bytes that a piece of work touched.
struct Footprint {
    std::vector<Span> spans;
    std::vector<std::shared_ptr<const TouchedBuffer>> kernel;
};

class Ordering {
public:
    // Whether what kernels touch is asked for: there are streams, or memory that the host may touch, too.
    bool watches_kernels() const;
    void add_stream(CUstream_st& stream);
    void note_shared_memory() { shared_memory_ = true; }

    // Work of a stream, which has run.
    void add(CUstream_st& stream, const Site& site, Footprint footprint);
    // What has to be over before work that the stream would get now.
    StreamClock before(CUstream_st& stream) const;
    void host_waits_for(const StreamClock& clock);
    void host_waits_for_all();
    void host_access(uint64_t address, uint64_t bytes, bool writes, uint64_t pc);
    void forget();

private:
    struct Past {
        unsigned stream;
        uint64_t number;
        Site site;
        Footprint footprint;
    };

    bool is_over(const Past& past, const StreamClock& clock) const;
    void drop_what_is_over();

    std::list<Past> past_;
    StreamClock host_;
    std::vector<CUstream_st*> all_;  // those destroyed, too: nullptr
    bool streams_ = false;
    bool shared_memory_ = false;
    uint64_t low_ = UINT64_MAX;  // of what the host could clash with
    uint64_t high_ = 0;

    friend void forget_stream(CUstream_st& stream);
};

Ordering& ordering();
void forget_stream(CUstream_st& stream);
void join(StreamClock& clock, const StreamClock& other);

// The host code that runs meanwhile is a stream's, not the host thread's.
struct InCallback {
    InCallback();
    ~InCallback();
};

}  // namespace lk::host
