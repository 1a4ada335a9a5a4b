// module.cpp: opens a kernel.so and learns from it what the engine and the recorder need, see module.h.
#include "module.h"

#include <algorithm>
#include <stdexcept>

#include "symbols.h"

#include <dlfcn.h>
#include <link.h>

namespace lk {

namespace {

template <typename Function>
Function symbol(void* handle, const std::string& name) {
    void* found = dlsym(handle, name.c_str());
    if (!found) throw std::runtime_error("it does not define " + name);
    return reinterpret_cast<Function>(found);
}

// What the program headers say. dl_iterate_phdr calls this for every object in the process.
int read_segments(dl_phdr_info* object, size_t, void* data) {
    LoadedModule& loaded = *static_cast<LoadedModule*>(data);
    if (object->dlpi_addr != loaded.load_address) return 0;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr)& segment = object->dlpi_phdr[i];
        const u64 end = segment.p_vaddr + segment.p_memsz;
        if (segment.p_type == PT_LOAD) loaded.load_bytes = std::max<u64>(loaded.load_bytes, end);
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X)) {
            loaded.module.text_begin = loaded.load_address + segment.p_vaddr;
            loaded.module.text_end = loaded.load_address + end;
        }
        if (segment.p_type == PT_TLS) loaded.module.shared_bytes = static_cast<u32>(segment.p_memsz);
    }
    return 1;
}

}  // namespace

LoadedModule load_module(const std::string& path) {
    LoadedModule loaded;
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw std::runtime_error(dlerror());
    link_map* link = nullptr;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &link) != 0) throw std::runtime_error(dlerror());
    loaded.load_address = link->l_addr;
    loaded.module.handle = handle;
    loaded.module.shared_anchor = symbol<char* (*)()>(handle, "lk_shared_anchor");
    dl_iterate_phdr(read_segments, &loaded);
    const std::vector<Symbol> symbols = read_symbols(path);
    loaded.module.instrumented = std::any_of(symbols.begin(), symbols.end(), [](const Symbol& each) {
        return !each.defined && each.name == "__sanitizer_cov_trace_pc";
    });
    const int count = symbol<int (*)()>(handle, "lk_kernel_count")();
    for (int i = 0; i < count; ++i) {
        const std::string number = std::to_string(i);
        loaded.kernels.push_back({symbol<void (*)(void**)>(handle, "lk_run_" + number),
                                  symbol<const char* (*)()>(handle, "lk_describe_" + number)()});
    }
    return loaded;
}

}  // namespace lk
