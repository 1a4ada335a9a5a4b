// module.cpp: opens a kernel.so and learns from it what the engine and the recorder need, see module.h.
#include "module.h"

#include <algorithm>
#include <map>
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
        const u64 begin = loaded.load_address + segment.p_vaddr;
        const AddressRange range{begin, begin + segment.p_memsz};
        if (segment.p_type == PT_TLS) loaded.module.shared_bytes = static_cast<u32>(segment.p_memsz);
        if (segment.p_type != PT_LOAD) continue;
        loaded.load_bytes = std::max(loaded.load_bytes, range.end - loaded.load_address);
        if (segment.p_flags & PF_X) {
            loaded.description.text = range;
        } else if (segment.p_flags & PF_W) {
            loaded.description.data = range;
        } else if (loaded.description.text.end) {  // the read-only segment before the code holds the loader's tables
            loaded.description.constants = range;
        }
    }
    return 1;
}

void read_shared_arrays(const std::vector<Symbol>& symbols, LoadedModule& loaded) {
    std::map<u64, u64> arrays;  // sorted by offset; an array may have several names
    for (const Symbol& symbol : symbols) {
        if (!symbol.defined || !symbol.is_thread_local || symbol.bytes == 0) continue;
        if (symbol.name == "lk_dynamic_shared") {
            loaded.dynamic_shared = {symbol.value, symbol.bytes};
        } else {
            arrays[symbol.value] = std::max(arrays[symbol.value], symbol.bytes);
        }
    }
    for (const auto& [offset, bytes] : arrays) loaded.description.shared_arrays.push_back({offset, bytes});
}

void read_constants(const std::vector<Symbol>& symbols, LoadedModule& loaded) {
    for (const Symbol& symbol : symbols) {
        const u64 begin = loaded.load_address + symbol.value;
        if (symbol.is_constant) loaded.description.constant_variables.push_back({begin, begin + symbol.bytes});
    }
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
    loaded.description.object_address = loaded.load_address;
    loaded.description.shared_segment_bytes = loaded.module.shared_bytes;
    loaded.module.text = loaded.description.text;
    const std::vector<Symbol> symbols = read_symbols(path);
    read_shared_arrays(symbols, loaded);
    read_constants(symbols, loaded);
    loaded.module.instrumented = std::any_of(symbols.begin(), symbols.end(), [](const Symbol& each) {
        return !each.defined && each.name == "__sanitizer_cov_trace_pc";
    });
    loaded.module.is_asynchronous = std::any_of(symbols.begin(), symbols.end(), [](const Symbol& each) {
        constexpr const char* kPrefixes[] = {"lk_bulk_", "lk_mbarrier_", "lk_cluster_", "lk_named_", "lk_wgmma_"};
        return !each.defined && std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                                            [&](const char* prefix) { return each.name.rfind(prefix, 0) == 0; });
    });
    loaded.description.bulk_copies = std::any_of(symbols.begin(), symbols.end(), [](const Symbol& each) {
        return !each.defined && (each.name.rfind("lk_bulk_", 0) == 0 || each.name.rfind("lk_wgmma_", 0) == 0);
    });
    const int count = symbol<int (*)()>(handle, "lk_kernel_count")();
    for (int i = 0; i < count; ++i) {
        const std::string number = std::to_string(i);
        lk_uint3 cluster{1, 1, 1};
        if (void* clustered = dlsym(handle, ("lk_cluster_" + number).c_str())) {
            reinterpret_cast<void (*)(unsigned*)>(clustered)(&cluster.x);
        }
        loaded.kernels.push_back({symbol<void (*)(void**)>(handle, "lk_run_" + number),
                                  symbol<const char* (*)()>(handle, "lk_describe_" + number)(), cluster});
    }
    return loaded;
}

// Behind the dynamic shared memory of a launch, as there is behind static arrays (gcc/red_zones.py): only check minds it.
constexpr u64 kSlack = 256;

LaunchDescription LoadedModule::describe_launch(u64 dynamic_shared_bytes) const {
    LaunchDescription launch = description;
    // A kernel without a dynamic array may be given memory for one: nothing can reach it.
    const u64 bytes = std::min(dynamic_shared_bytes, dynamic_shared.bytes);
    if (bytes) launch.shared_arrays.push_back({dynamic_shared.offset, bytes});
    launch.dynamic_shared = {dynamic_shared.offset, dynamic_shared.offset + bytes};
    const u64 end = dynamic_shared.offset + dynamic_shared.bytes;
    launch.shared_rest = {std::min(dynamic_shared.offset + bytes + kSlack, end), end};
    return launch;
}

}  // namespace lk
