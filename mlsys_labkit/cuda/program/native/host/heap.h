// heap.h: the memory that a program owns, and whether host or device may access it.
//
// Host code that follows a pointer from cudaMalloc crashes on a machine with a GPU; here such memory is closed to the host
// except while a kernel or a copy runs, so that the program crashes here too, with its line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace lk::host {

enum class Kind { device, pinned, managed, registered };

struct Allocation {
    size_t bytes;
    Kind kind;
    uint64_t place;  // in the program's code, behind the call; 0: not known
    bool of_graph = false;  // a node of a graph allocates it: it stays, since the graph may be launched again
};

class Heap {
public:
    // nullptr when the virtual GPU's memory, or this machine's, is used up.
    void* allocate(size_t bytes, Kind kind, uint64_t place = 0);
    // Device memory that a node of a graph allocates.
    void* allocate_for_graph(size_t bytes);
    // False when no allocation of this side (device and managed, or pinned) begins at the address.
    bool release(void* address, bool pinned);
    // Host memory that the program made visible to the GPU.
    bool enlist(void* address, size_t bytes);
    bool delist(void* address);
    void clear();
    // Writes a record for each allocation of device memory that the program did not free.
    void write_down_leaks() const;
    // True for memory that was released and that no allocation has taken since; it goes to begin and end.
    bool was_released(const void* address, uint64_t* begin, uint64_t* end) const;

    // The allocation that holds the address; its first byte goes to begin. nullptr when it is the host's own.
    const Allocation* find(const void* address, uint64_t* begin) const;
    size_t total_bytes() const { return total_bytes_; }
    size_t free_bytes() const { return total_bytes_ - used_bytes_; }

    // Between these, this process may touch device memory. They nest.
    void open();
    void close();

private:
    Heap();
    void protect(uint64_t begin, const Allocation& allocation, bool open) const;
    void protect_all(bool open) const;
    friend Heap& heap();

    std::map<uint64_t, Allocation> allocations_;
    std::map<uint64_t, size_t> released_;  // bytes, by their first address
    size_t used_bytes_ = 0;
    size_t total_bytes_ = 0;
    size_t unset_bytes_ = 0;
    int opened_ = 0;
};

Heap& heap();

// Device memory is open while one of these lives.
class Opened {
public:
    Opened() { heap().open(); }
    ~Opened() { heap().close(); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
};

}  // namespace lk::host
