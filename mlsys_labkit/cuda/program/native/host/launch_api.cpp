// launch_api.cpp: from kernel<<<...>>>() to the engine, and from what the engine found to CUDA's errors.
#include <cstdio>
#include <cstdlib>
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <cxxabi.h>
#include <dlfcn.h>
#include <unistd.h>

#include "capture.h"
#include "clusters.h"
#include "context.h"
#include "device_heap.h"
#include "device_launches.h"
#include "engine.h"
#include "functions_api.h"
#include "h100.h"
#include "heap.h"
#include "journal.h"
#include "outcome.h"
#include "output.h"
#include "settings.h"

#include "lk/qualifiers.h"
#include "lk/vectors.h"

#include "lk/host/launch.h"

using namespace lk::host;

namespace {

// Host pointers move to addresses where nothing is mapped, so that a kernel that follows one faults.
constexpr uint64_t host_pointer_mask = 0x0fffffffffffull;
constexpr uint64_t host_pointer_base = 0x100000000000ull;

// What a pointer among the arguments of the launch under way leads to. Host memory and memory that was freed are moved to begin;
// begin == end: host memory.
struct GivenBuffer {
    int parameter;
    uint64_t begin;
    uint64_t end;
    size_t element_bytes;
    bool freed = false;
};

struct GivenArguments {
    std::vector<GivenBuffer> buffers;
    bool host_pointer = false;
};

uint64_t launches = 0;

std::string kernel_name(const char* name, const void* kernel) {
    if (name && *name) return name;
    Dl_info symbol{};
    if (!kernel || !dladdr(kernel, &symbol) || !symbol.dli_sname || symbol.dli_saddr != kernel) return "kernel";
    int status = 0;
    char* plain = abi::__cxa_demangle(symbol.dli_sname, nullptr, nullptr, &status);
    std::string text = status == 0 ? plain : symbol.dli_sname;
    free(plain);
    text = text.substr(0, text.find('('));
    const size_t result = text.rfind(' ', text.find('<'));  // a template's name begins with its return type
    return result == std::string::npos ? text : text.substr(result + 1);
}

std::string triple(const dim3& size) {
    char text[64];
    snprintf(text, sizeof text, "[%u, %u, %u]", size.x, size.y, size.z);
    return text;
}

bool valid_extents(const dim3& grid, const dim3& block) {
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    if (threads == 0 || threads > h100::threads_of_block || block.x > 1024 || block.y > 1024 || block.z > 64) return false;
    return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535;
}

const char* wrong_cluster_of(const lk::Configuration& configuration) {
    lk::Launch launch;
    launch.cluster = {configuration.cluster.x, configuration.cluster.y, configuration.cluster.z};
    launch.grid = {configuration.grid.x, configuration.grid.y, configuration.grid.z};
    return lk::wrong_cluster(launch);
}

cudaError_t refusal(const lk::Configuration& configuration, const void* kernel) {
    if (!valid_extents(configuration.grid, configuration.block)) return cudaErrorInvalidConfiguration;
    if (configuration.shared_bytes > allowed_dynamic_shared_bytes(kernel)) return cudaErrorInvalidValue;
    if (configuration.shared_bytes > h100::shared_bytes_of_block) return cudaErrorInvalidValue;
    if (wrong_cluster_of(configuration)) return cudaErrorInvalidClusterSize;
    if (!configuration.cooperative) return cudaSuccess;
    const dim3& grid = configuration.grid;
    const dim3& block = configuration.block;
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    const int resident = resident_blocks(static_cast<int>(block.x * block.y * block.z), configuration.shared_bytes);
    const bool fits = blocks <= uint64_t(h100::multiprocessors) * static_cast<uint64_t>(resident);
    return fits ? cudaSuccess : cudaErrorCooperativeLaunchTooLarge;
}

std::string reason(const lk::Configuration& configuration) {
    const dim3& block = configuration.block;
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    if (threads > h100::threads_of_block) return std::to_string(threads) + " threads in a block, and 1024 are the most";
    if (!valid_extents(configuration.grid, block)) return "the grid or the block has an extent that is 0 or too large";
    if (const char* const wrong = wrong_cluster_of(configuration)) return wrong;
    if (configuration.cooperative) return "the blocks of a cooperative launch have to be resident together";
    return std::to_string(configuration.shared_bytes) + " bytes of dynamic shared memory are more than the kernel may use";
}

void stop_at_limit() {
    if (launches < settings().launch_limit) return;
    fflush(stdout);
    journal().note_once("stopped after " + std::to_string(launches) + " launches");
    _exit(exit_after_launch_limit);
}

void write_down(const std::string& name, const lk::Configuration& configuration, const GivenArguments& arguments,
                const Outcome& outcome, cudaError_t error) {
    std::string line = "{\"record\": \"launch\", \"name\": " + quoted(name);
    line += ", \"file\": " + quoted(configuration.file) + ", \"line\": " + std::to_string(configuration.line);
    line += ", \"grid\": " + triple(configuration.grid) + ", \"block\": " + triple(configuration.block);
    line += ", \"shared_bytes\": " + std::to_string(configuration.shared_bytes);
    line += ", \"seconds\": " + std::to_string(outcome.seconds);
    line += ", \"error\": " + quoted(error == cudaSuccess ? "" : cudaGetErrorName(error));
    line += ", \"buffers\": [";
    for (const GivenBuffer& buffer : arguments.buffers) {
        if (&buffer != arguments.buffers.data()) line += ", ";
        line += "[" + std::to_string(buffer.parameter) + ", " + std::to_string(buffer.begin) + ", " +
                std::to_string(buffer.end) + ", " + std::to_string(buffer.element_bytes) + (buffer.freed ? ", true]" : ", false]");
    }
    line += "]";
    line += ", \"sections\": [";
    for (size_t i = 0; i < outcome.sections.size(); ++i) {
        line += (i ? ", " : "") + std::to_string(outcome.sections[i].size());
    }
    journal().write(line + "]}", outcome.sections);
}

void hold_text(const char* text, size_t bytes) { context().hold_output(text, bytes); }

Outcome run(const lk::Configuration& configuration, void (*body)(void**), void** frame) {
    lk::Launch launch;
    launch.module = &program().module;
    launch.run = body;
    launch.arguments = frame;
    launch.grid = {configuration.grid.x, configuration.grid.y, configuration.grid.z};
    launch.block = {configuration.block.x, configuration.block.y, configuration.block.z};
    launch.cluster = {configuration.cluster.x, configuration.cluster.y, configuration.cluster.z};
    launch.shared_bytes = static_cast<uint32_t>(configuration.shared_bytes);
    launch.mode = settings().mode;
    launch.seed = settings().seed;
    launch.timeout_seconds = std::max(seconds_left(), 0.01);
    launch.description = program().describe_launch(configuration.shared_bytes);
    const Opened open;
    return run_and_collect(launch, launches <= settings().profile_limit);
}

// What a kernel is to receive for a pointer: one that faults where this one is the host's own.
const void* followed(const void* pointer, int number, size_t element_bytes, GivenArguments& given) {
    if (!pointer) return pointer;
    uint64_t begin = 0;
    const Allocation* allocation = heap().find(pointer, &begin);
    if (!allocation) allocation = heap().find(static_cast<const char*>(pointer) - 1, &begin);  // one past an array's end
    if (allocation) {
        given.buffers.push_back({number, begin, begin + allocation->bytes, element_bytes});
        return pointer;
    }
    const uint64_t address = reinterpret_cast<uint64_t>(pointer);
    if (lk::in_heap(pointer)) return pointer;  // from malloc in a kernel, which launches another one with it
    if (program().image().holds(address, 1)) return pointer;
    const uint64_t moved = (address & host_pointer_mask) | host_pointer_base;
    uint64_t end = 0;
    if (heap().was_released(pointer, &begin, &end)) {
        const uint64_t first = (begin & host_pointer_mask) | host_pointer_base;
        given.buffers.push_back({number, first, first + (end - begin), element_bytes, true});
        return reinterpret_cast<const void*>(moved);
    }
    given.host_pointer = true;
    given.buffers.push_back({number, moved, moved, element_bytes});
    return reinterpret_cast<const void*>(moved);
}

GivenArguments checked(const lk::Body& body, void** frame) {
    GivenArguments given;
    for (size_t i = 0; i < body.count; ++i) {
        if (!body.parameters[i].is_pointer) continue;
        auto& argument = *static_cast<const void**>(frame[i + 1]);
        argument = followed(argument, static_cast<int>(i), body.parameters[i].element_bytes, given);
    }
    return given;
}

KernelCall made(const char* name, const void* kernel, const lk::Configuration& configuration, void** frame) {
    KernelCall call{kernel_name(name, kernel), kernel, configuration, frame, {}};
    if (!configuration.cluster.x) call.configuration.cluster = declared_cluster(call.label, kernel);
    return call;
}

// An error where the launch may not run.
cudaError_t refused(const KernelCall& call, const char* name, const GivenArguments& arguments) {
    const cudaError_t error = refusal(call.configuration, call.kernel);
    if (error == cudaSuccess) return error;
    stop_at_limit();
    ++launches;
    write_down(call.label, call.configuration, arguments, {}, error);
    if (*name) {  // cudaLaunchKernel, which has none, returns the error itself
        context().refuse("the launch of " + call.label + " at line " + std::to_string(call.configuration.line) + " failed (" +
                         cudaGetErrorName(error) + ": " + reason(call.configuration) + ") and never ran");
    }
    return error;
}

void run_child(DeviceLaunch& launch);

cudaError_t run(const KernelCall& call, void (*body)(void**), const GivenArguments& arguments) {
    stop_at_limit();
    ++launches;
    lk::print_text = hold_text;
    const Outcome outcome = run(call.configuration, body, call.frame);
    write_down(call.label, call.configuration, arguments, outcome, outcome.error);
    if (outcome.error != cudaSuccess) {
        context().fault(outcome.error);
        if (arguments.host_pointer) {
            journal().note_once("kernel " + call.label + " was passed a pointer to host memory; a GPU follows "
                                "only pointers from cudaMalloc, cudaMallocManaged or cudaHostAlloc");
        }
    }
    run_device_launches(run_child);
    return cudaSuccess;
}

void run_child(DeviceLaunch& launch) {
    const KernelCall call = made(launch.name, launch.kernel, launch.configuration, launch.arguments.frame());
    const GivenArguments arguments = checked(launch.body, call.frame);
    if (refused(call, launch.name, arguments) == cudaSuccess) run(call, launch.body.run, arguments);
}

bool is_kept(cudaStream_t stream) {
    const CUstream_st* state = state_of(stream);
    return node_in_making || (state && state->capture);
}

}  // namespace

extern "C" cudaError_t lk_program_launch(const char* name, const void* kernel, const lk::Configuration* configuration,
                                         const lk::Body* body, void** frame) {
    if (in_kernel()) return launch_later({name, kernel, *configuration, *body, KeptArguments(*body, frame)});
    const std::lock_guard<std::recursive_mutex> held(context().lock);
    if (context().broken() != cudaSuccess) return context().finish(context().broken());
    const GivenArguments arguments = checked(*body, frame);
    const auto call = std::make_shared<KernelCall>(made(name, kernel, *configuration, frame));
    if (const cudaError_t error = refused(*call, name, arguments)) return context().finish(error);
    if (is_kept(configuration->stream)) call->keep(*body);
    Work work;
    work.type = cudaGraphNodeTypeKernel;
    work.run = [call, run_thread = body->run, arguments] { return run(*call, run_thread, arguments); };
    work.kernel = call;
    work.site = {"kernel " + call->label, configuration->file, configuration->line, 0};
    if (node_in_making) {
        *node_in_making = std::move(work);
        return cudaSuccess;
    }
    return context().finish(issue(configuration->stream, std::move(work)));
}
