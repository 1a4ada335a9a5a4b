// variables.cpp: __device__ variables in the memory of all workers, see variables.h.
//
// A pointer that the source itself sets to one of its variables has another value in each process. So a word is kept as what
// it has become, and one that has its initial value as 0. An address of one of the variables is kept as the address of its value.
#include "variables.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lk {

namespace {

using Word = uint64_t;

constexpr Word kChanged = 0x6b657074576f7264;  // makes a 0 that was set another value than 0

Word word_at(const char* place) {
    Word word;
    std::memcpy(&word, place, sizeof word);
    return word;
}

void set_word(char* place, Word word) { std::memcpy(place, &word, sizeof word); }

}  // namespace

// A word that is an address in one of the variables at `from`, as the address of the same place at `to`.
Word Variables::moved(Word word, char* Variable::* from, char* Variable::* to) const {
    for (const Variable& each : variables_) {
        const Word place = word - reinterpret_cast<Word>(each.*from);
        if (place < each.initial.size()) return reinterpret_cast<Word>(each.*to) + place;
    }
    return word;
}

void Variables::add(char* here, char* kept, size_t bytes, const Variables* other) {
    Variable variable{here, kept, {here, here + bytes}};
    if (other) {
        const auto& known = other->variables_;
        const auto same = std::find_if(known.begin(), known.end(), [here](const Variable& each) { return each.here == here; });
        if (same != known.end()) variable.initial = same->initial;
    }
    variables_.push_back(std::move(variable));
}

void Variables::take() const {
    for (const Variable& each : variables_) {
        const size_t bytes = each.initial.size();
        size_t at = 0;
        for (; at + sizeof(Word) <= bytes; at += sizeof(Word)) {
            const Word kept = word_at(each.kept + at);
            set_word(each.here + at, kept ? moved(kept ^ kChanged, &Variable::kept, &Variable::here) : word_at(&each.initial[at]));
        }
        for (; at < bytes; at++) each.here[at] = char(each.kept[at] ^ each.initial[at]);
    }
}

void Variables::put() const {
    for (const Variable& each : variables_) {
        const size_t bytes = each.initial.size();
        size_t at = 0;
        for (; at + sizeof(Word) <= bytes; at += sizeof(Word)) {
            const Word now = word_at(each.here + at);
            const bool is_initial = now == word_at(&each.initial[at]);
            set_word(each.kept + at, is_initial ? 0 : moved(now, &Variable::here, &Variable::kept) ^ kChanged);
        }
        for (; at < bytes; at++) each.kept[at] = char(each.here[at] ^ each.initial[at]);
    }
}

}  // namespace lk
