// lockstep.h: what each lane did, written down as it runs, and laid side by side afterwards.
#pragma once

#include <vector>

#include "engine.h"

namespace lk {

enum class Kind : u8 { step, resume, access };

// A basic block that begins, kernel code that goes on after a wait, or an access to memory.
struct Event {
    u64 value;  // step, resume: its rank (lockstep.cpp); access: the address
    u32 pc;     // from the start of the module's text
    u8 bytes;
    Op op;
    Kind kind;
};

// Events of a turn. 32 lanes' events of one turn fit in the second-level cache.
constexpr u32 kTurnEvents = 128;

class LaneTrace {
public:
    LaneTrace();

    void push(const Event& event) {
        if (tail_ == end_) grow();
        *tail_++ = event;
    }
    // False: a basic block that would begin now waits for the lane's next turn.
    bool has_room() const { return tail_ < turn_end_; }
    bool empty() const { return head_ == tail_; }
    const Event& head() const { return *head_; }  // the first that has not been replayed
    void pop() { head_++; }

    void clear();
    void extend_turn();

    u32 held_back = 0;  // turns of its warp in which the lane was kept from running

private:
    void grow();

    Event* head_;
    Event* tail_;
    Event* turn_end_;
    Event* end_;
    std::vector<Event> events_;
};

struct Trace {
    LaneTrace lanes[kWarpSize];
    u64 rank[kWarpSize] = {};  // of each lane's head; 0: nothing is there
};

// How far a lane's place comes before another's: the deepest frame first, then the lowest address. Lanes that wait there meet
// those that took a longer way, as on hardware that reconverges at the nearest common point.
inline u64 place_rank(u64 depth, u64 pc_offset) { return depth << 32 | (~pc_offset & 0xffffffff); }
inline u32 rank_pc(u64 rank) { return ~u32(rank); }

// The lanes of the warp that may run on: those with nothing, or little, left to replay.
u32 lanes_with_room(Warp& warp);
// Forms steps and requests as far as they are certain: up to a lane that will do more, but has not done it yet.
void replay(Block& block, u32 warp);

}  // namespace lk
