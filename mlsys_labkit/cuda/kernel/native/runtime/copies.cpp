// copies.cpp: see copies.h.
#include "copies.h"

#include <algorithm>

namespace lk {

void AsyncCopies::begin_block() {
    if (copy_of_byte_.empty()) return;
    for (Thread& thread : threads_) thread = {};
    of_barrier_.clear();
    for (const AsyncCopy& copy : copies_) std::fill_n(copy_of_byte_.begin() + long(copy.offset), copy.bytes, 0);
    copies_.clear();
    free_.clear();
    pending_ = 0;
}

void AsyncCopies::start(uint32_t thread, uint64_t offset, uint32_t bytes, uint64_t pc, uint64_t barrier, uint32_t phase) {
    if (offset >= shared_bytes_ || bytes > shared_bytes_ - offset) return;
    if (copy_of_byte_.empty()) copy_of_byte_.resize(shared_bytes_);
    if (free_.empty()) {
        free_.push_back(static_cast<uint32_t>(copies_.size()));
        copies_.emplace_back();
    }
    const uint32_t place = free_.back();
    free_.pop_back();
    Thread& own = threads_[thread];
    copies_[place] = {offset, bytes, thread, pc, barrier, barrier ? phase : own.batches};
    (barrier ? of_barrier_[barrier] : own.under_way).push_back(place);
    std::fill_n(copy_of_byte_.begin() + long(offset), bytes, place + 1);
    pending_++;
}

std::vector<AsyncCopy> AsyncCopies::wait_for_batches(uint32_t thread, uint32_t left) {
    Thread& own = threads_[thread];
    std::vector<AsyncCopy> ended;
    const auto first_left = std::find_if(own.under_way.begin(), own.under_way.end(), [&](uint32_t place) {
        return uint64_t{copies_[place].number} + left >= own.batches;
    });
    for (auto place = own.under_way.begin(); place != first_left; ++place) {
        ended.push_back(copies_[*place]);
        forget(*place);
    }
    own.under_way.erase(own.under_way.begin(), first_left);
    return ended;
}

void AsyncCopies::wait_for_barrier(uint64_t barrier, uint32_t phase) {
    const auto found = of_barrier_.find(barrier);
    if (found == of_barrier_.end()) return;
    Places& flying = found->second;
    const auto end = [&](uint32_t place) {
        if (static_cast<int32_t>(phase - copies_[place].number) < 0) return false;
        forget(place);
        return true;
    };
    flying.erase(std::remove_if(flying.begin(), flying.end(), end), flying.end());
}

const AsyncCopy* AsyncCopies::find(uint64_t offset, uint32_t bytes) const {
    if (pending_ == 0) return nullptr;
    const auto first = copy_of_byte_.begin() + long(offset);
    const auto found = std::find_if(first, first + bytes, [](uint32_t number) { return number != 0; });
    return found == first + bytes ? nullptr : &copies_[*found - 1];
}

// A later copy to the same bytes keeps them.
void AsyncCopies::forget(uint32_t place) {
    const AsyncCopy& copy = copies_[place];
    for (uint64_t byte = copy.offset; byte < copy.offset + copy.bytes; byte++) {
        if (copy_of_byte_[byte] == place + 1) copy_of_byte_[byte] = 0;
    }
    free_.push_back(place);
    pending_--;
}

}  // namespace lk
