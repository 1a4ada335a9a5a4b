// ordering.cpp: see ordering.h.
#include "ordering.h"

#include <algorithm>

#include "context.h"
#include "heap.h"
#include "hooks.h"
#include "journal.h"
#include "settings.h"
#include "stream_state.h"

namespace lk::host {

namespace {

constexpr size_t most_past = 512;

thread_local int callbacks = 0;

struct Meeting {
    bool found = false;
    uint64_t address = 0;
    bool first_writes = false;
    bool second_writes = false;
};

uint64_t first_common(const Bitmap& a, uint64_t a_begin, const Bitmap& b, uint64_t b_begin, uint64_t begin, uint64_t end) {
    for (uint64_t at = begin; at < end; ++at) {
        if (a.holds(at - a_begin) && b.holds(at - b_begin)) return at;
    }
    return UINT64_MAX;
}

Meeting meet(const TouchedBuffer& a, const TouchedBuffer& b) {
    const uint64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
    if (begin >= end) return {};
    const struct {
        const Bitmap &first, &second;
        bool first_writes, second_writes;
    } pairs[] = {{a.written, b.written, true, true}, {a.written, b.read, true, false}, {a.read, b.written, false, true}};
    for (const auto& pair : pairs) {
        if (a.begin == b.begin && !pair.first.meets(pair.second)) continue;
        const uint64_t at = first_common(pair.first, a.begin, pair.second, b.begin, begin, end);
        if (at != UINT64_MAX) return {true, at, pair.first_writes, pair.second_writes};
    }
    return {};
}

Meeting meet(const TouchedBuffer& a, const Span& b) {
    const uint64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
    for (uint64_t at = begin; at < end; ++at) {
        const bool written = a.written.holds(at - a.begin);
        if (written || (b.writes && a.read.holds(at - a.begin))) return {true, at, written, b.writes};
    }
    return {};
}

Meeting meet(const Span& a, const Span& b) {
    const bool clash = std::max(a.begin, b.begin) < std::min(a.end, b.end) && (a.writes || b.writes);
    return {clash, std::max(a.begin, b.begin), a.writes, b.writes};
}

Meeting meet(const Footprint& a, const Footprint& b) {
    const auto mirrored = [](Meeting one) { return Meeting{one.found, one.address, one.second_writes, one.first_writes}; };
    for (const Span& x : a.spans) {
        for (const Span& y : b.spans) {
            if (const Meeting one = meet(x, y); one.found) return one;
        }
        for (const auto& y : b.kernel) {
            if (const Meeting one = meet(*y, x); one.found) return mirrored(one);
        }
    }
    for (const auto& x : a.kernel) {
        for (const Span& y : b.spans) {
            if (const Meeting one = meet(*x, y); one.found) return one;
        }
        for (const auto& y : b.kernel) {
            if (const Meeting one = meet(*x, *y); one.found) return one;
        }
    }
    return {};
}

std::string json(const Site& site, bool writes) {
    return "{\"what\": " + quoted(site.what) + ", \"file\": " + quoted(site.file) + ", \"line\": " + std::to_string(site.line) +
           ", \"pc\": " + std::to_string(site.pc) + ", \"writes\": " + (writes ? "true" : "false") + "}";
}

void write_down(const char* kind, const Site& site, bool writes, const Site& other, bool other_writes, uint64_t address,
                uint64_t idle_wait) {
    uint64_t begin = 0;
    const Allocation* held = heap().find(reinterpret_cast<const void*>(address), &begin);
    std::string line = std::string("{\"record\": \"ordering\", \"kind\": \"") + kind + "\", \"site\": " + json(site, writes) +
                       ", \"other\": " + json(other, other_writes) + ", \"allocated\": " + std::to_string(held ? held->place : 0) +
                       ", \"offset\": " + std::to_string(held ? address - begin : 0) +
                       ", \"memory\": \"" + (!held                            ? "pageable"
                                              : held->kind == Kind::device    ? "device"
                                              : held->kind == Kind::managed   ? "managed"
                                                                              : "pinned") +
                       "\", \"idle_wait\": " + std::to_string(idle_wait) + "}";
    journal().write(line);
}

void on_host_access(uint64_t address, uint64_t bytes, bool writes, uint64_t pc) {
    if (callbacks == 0) ordering().host_access(address, bytes, writes, pc);
}

bool is_of_host(uint64_t address) {
    const Allocation* held = heap().find(reinterpret_cast<const void*>(address), nullptr);
    return !held || held->kind != Kind::device;
}

}  // namespace

InCallback::InCallback() { ++callbacks; }
InCallback::~InCallback() { --callbacks; }

void join(StreamClock& clock, const StreamClock& other) {
    clock.resize(std::max(clock.size(), other.size()));
    for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

bool Ordering::watches_kernels() const { return settings().mode == Mode::check && (streams_ || shared_memory_); }

void Ordering::add_stream(CUstream_st& stream) {
    if (stream.number != 0) return;
    if (all_.empty()) all_.push_back(nullptr);  // numbers begin with 1
    stream.number = static_cast<unsigned>(all_.size());
    all_.push_back(&stream);
    streams_ = streams_ || !is_legacy(&stream);
}

void forget_stream(CUstream_st& stream) {
    if (stream.number) ordering().all_[stream.number] = nullptr;
}

StreamClock Ordering::before(CUstream_st& stream) const {
    StreamClock clock = stream.clock;
    join(clock, host_);
    for (const CUstream_st* other : all_) {
        if (!other || other == &stream) continue;
        const bool waits = is_legacy(&stream) ? other->blocking : is_legacy(other) && stream.blocking;
        if (waits) join(clock, other->clock);
    }
    return clock;
}

bool Ordering::is_over(const Past& past, const StreamClock& clock) const {
    return past.stream < clock.size() && clock[past.stream] >= past.number;
}

void Ordering::drop_what_is_over() {
    past_.remove_if([this](const Past& one) { return is_over(one, host_); });
    while (past_.size() > most_past) past_.pop_front();
    if (past_.empty()) {
        low_ = UINT64_MAX;
        high_ = 0;
        access_outside_kernels = nullptr;
    }
}

void Ordering::add(CUstream_st& stream, const Site& site, Footprint footprint) {
    if (settings().mode != Mode::check) return;
    add_stream(stream);
    drop_what_is_over();
    StreamClock clock = before(stream);
    clock.resize(all_.size());
    for (const Past& one : past_) {
        if (one.stream == stream.number || is_over(one, clock)) continue;
        const Meeting clash = meet(one.footprint, footprint);
        if (clash.found) {
            write_down("stream_race", site, clash.second_writes, one.site, clash.first_writes, clash.address, stream.idle_wait);
        }
    }
    const uint64_t number = ++clock[stream.number];
    stream.clock = std::move(clock);
    for (const Span& span : footprint.spans) {
        if (!is_of_host(span.begin)) continue;
        low_ = std::min(low_, span.begin);
        high_ = std::max(high_, span.end);
    }
    for (const auto& buffer : footprint.kernel) {
        if (!is_of_host(buffer->begin)) continue;
        low_ = std::min(low_, buffer->begin);
        high_ = std::max(high_, buffer->end);
    }
    if (footprint.spans.empty() && footprint.kernel.empty()) return;
    past_.push_back({stream.number, number, site, std::move(footprint)});
    if (low_ < high_) access_outside_kernels = on_host_access;
}

void Ordering::host_waits_for(const StreamClock& clock) {
    join(host_, clock);
    drop_what_is_over();
}

void Ordering::host_waits_for_all() {
    for (CUstream_st* stream : all_) {
        if (!stream) continue;
        join(host_, stream->clock);
        stream->idle_wait = 0;
    }
    past_.clear();
    drop_what_is_over();
}

void Ordering::host_access(uint64_t address, uint64_t bytes, bool writes, uint64_t pc) {
    if (address >= high_ || address + bytes <= low_) return;
    const std::lock_guard<std::recursive_mutex> held(context().lock);
    // After a fault no call waits for anything.
    if (context().broken() != cudaSuccess || context().unnoticed_fault() != cudaSuccess) return;
    const Footprint touched{{{address, address + bytes, writes}}, {}};
    for (auto past = past_.begin(); past != past_.end(); ++past) {
        const Meeting clash = meet(past->footprint, touched);
        if (!clash.found) continue;
        // What is pageable was copied away before the call returned.
        if (writes && !clash.first_writes && !heap().find(reinterpret_cast<const void*>(address), nullptr)) continue;
        write_down("host_race", {"the host", "", 0, pc}, writes, past->site, clash.first_writes, address, 0);
        past_.erase(past);  // one finding for each piece of work
        return;
    }
}

void Ordering::forget() {
    past_.clear();
    drop_what_is_over();
}

Ordering& ordering() {
    static Ordering the_ordering;
    return the_ordering;
}

}  // namespace lk::host
