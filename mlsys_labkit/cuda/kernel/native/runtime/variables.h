// variables.h: the __device__ variables of a source, which each of its builds has in each worker: one value in all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lk {

// Of one build in this process. The values lie in memory that all workers map: they are taken from there before a launch and
// put back after it. Zeros there are initial values.
class Variables {
public:
    // other: of the same file, loaded earlier in this process, or nullptr; its variables may have changed since.
    void add(char* here, char* kept, size_t bytes, const Variables* other);
    void take() const;
    void put() const;

private:
    struct Variable {
        char* here;
        char* kept;
        std::vector<char> initial;
    };
    uint64_t moved(uint64_t word, char* Variable::* from, char* Variable::* to) const;
    std::vector<Variable> variables_;
};

}  // namespace lk
