// image.cpp: see image.h.
#include "image.h"

#include <algorithm>

#include <link.h>

namespace lk::host {

namespace {

struct Search {
    uint64_t address;
    Image found;
};

int look_at(dl_phdr_info* object, size_t, void* data) {
    Search& search = *static_cast<Search*>(data);
    Image image{object->dlpi_addr, object->dlpi_addr};
    bool holds = false;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const auto& segment = object->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD) continue;
        const uint64_t begin = object->dlpi_addr + segment.p_vaddr;
        const uint64_t end = begin + segment.p_memsz;
        image.end = std::max(image.end, end);
        holds = holds || (search.address >= begin && search.address < end);
    }
    if (!holds) return 0;
    search.found = image;
    return 1;
}

}  // namespace

Image find_image(const void* address) {
    Search search{reinterpret_cast<uint64_t>(address), {}};
    dl_iterate_phdr(look_at, &search);
    return search.found;
}

Image& program_image() {
    static Image image;
    return image;
}

}  // namespace lk::host
