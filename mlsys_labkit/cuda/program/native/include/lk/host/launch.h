// launch.h: what kernel<<<grid, block, shared, stream>>>(arguments) becomes.
//
// The rewriter turns it into lk_launch("kernel", kernel, lk_configure(grid, block, shared, stream))(arguments), so that the
// configuration and the arguments are converted as the language converts them in a call.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "lk/host/errors.h"
#include "lk/host/streams.h"
#include "lk/passed.h"
#include "lk/vectors.h"

namespace lk {

struct Configuration {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    cudaStream_t stream;
    bool cooperative;
    const char* file;
    int line;
    dim3 cluster = dim3(0, 0, 0);  // 0: the one that the kernel is declared with, else none
};

// A parameter as it reaches a kernel: its bytes are copied. element_bytes: of what a pointer points to; 0 for void.
struct Parameter {
    size_t bytes;
    bool is_pointer;
    size_t element_bytes;
};

template <class T>
constexpr Parameter parameter() {
    if constexpr (std::is_pointer_v<T>) {
        using Element = std::remove_pointer_t<T>;
        if constexpr (std::is_void_v<Element>) return {sizeof(T), true, 0};
        else if constexpr (!std::is_function_v<Element>) return {sizeof(T), true, sizeof(Element)};
    }
    return {sizeof(T), false, 0};
}

// run(frame) runs threads of a kernel: frame[0] leads to what is called, and the rest to its arguments.
struct Body {
    void (*run)(void** frame);
    size_t called_bytes;  // of what frame[0] leads to; 0: frame[0] is the kernel itself
    const Parameter* parameters;
    size_t count;
};

}  // namespace lk

extern "C" {
void lk_program_cluster(const char* kernel, unsigned x, unsigned y, unsigned z);
void lk_program_cluster_rule(const char* kernel, void (*of)(const long long* arguments, unsigned* extents));
// kernel may be nullptr where only a call of it can be written down. name is a literal, or empty.
cudaError_t lk_program_launch(const char* name, const void* kernel, const lk::Configuration* configuration,
                              const lk::Body* body, void** frame);
}

namespace lk {

// The cluster that a kernel is declared with, __cluster_dims__.
inline bool declare_cluster(const char* kernel, unsigned x, unsigned y = 1, unsigned z = 1) {
    lk_program_cluster(kernel, x, y, z);
    return true;
}

// One that depends on the kernel's template arguments, which are given as numbers.
inline bool declare_cluster(const char* kernel, void (*of)(const long long* arguments, unsigned* extents)) {
    lk_program_cluster_rule(kernel, of);
    return true;
}

template <class T>
void* untyped(T& argument) {
    return const_cast<void*>(static_cast<const volatile void*>(std::addressof(argument)));
}

// A kernel whose parameters are known: arguments convert to them as in a call.
template <class... Parameters>
class TypedLaunch {
public:
    TypedLaunch(const char* name, void (*kernel)(Parameters...), const Configuration& configuration)
        : name_(name), kernel_(kernel), configuration_(configuration) {}

    cudaError_t operator()(Parameters... arguments) const {
        void* frame[] = {reinterpret_cast<void*>(kernel_), untyped(arguments)...};
        return lk_program_launch(name_, reinterpret_cast<const void*>(kernel_), &configuration_, &body, frame);
    }

private:
    LK_UNRECORDED static void run(void** frame) { call(frame, std::index_sequence_for<Parameters...>()); }

    template <size_t... I>
    LK_UNRECORDED __attribute__((always_inline)) static inline void call(void** frame, std::index_sequence<I...>) {
        if constexpr ((std::is_same_v<typename Passed<Parameters>::Type, Parameters> && ...)) {
            call_for_threads<Parameters...>(reinterpret_cast<void (*)(Parameters...)>(frame[0]),
                                            *static_cast<std::remove_reference_t<Parameters>*>(frame[I + 1])...);
        } else {
            using Kernel = void (*)(typename Passed<Parameters>::Type...);
            do {
                reinterpret_cast<Kernel>(frame[0])(
                    Passed<Parameters>(static_cast<typename Passed<Parameters>::Stored>(frame[I + 1])).get()...);
            } while (lk_next_thread());
        }
    }

    static constexpr Parameter parameters[] = {parameter<std::remove_reference_t<Parameters>>()..., {}};
    static constexpr Body body = {run, 0, parameters, sizeof...(Parameters)};

    const char* name_;
    void (*kernel_)(Parameters...);
    Configuration configuration_;
};

// A kernel that only a call can choose (an overload, a template whose arguments are deduced): call is that call.
template <class Call>
class DeducedLaunch {
public:
    DeducedLaunch(const char* name, Call call, const Configuration& configuration)
        : name_(name), call_(call), configuration_(configuration) {}

    template <class... Arguments>
    cudaError_t operator()(Arguments... arguments) const {
        static constexpr Parameter parameters[] = {parameter<Arguments>()..., {}};
        static constexpr Body body = {run<Arguments...>, sizeof(Call), parameters, sizeof...(Arguments)};
        void* frame[] = {untyped(call_), untyped(arguments)...};
        return lk_program_launch(name_, nullptr, &configuration_, &body, frame);
    }

private:
    template <class... Arguments>
    LK_UNRECORDED static void run(void** frame) {
        invoke<Arguments...>(frame, std::index_sequence_for<Arguments...>());
    }

    template <class... Arguments, size_t... I>
    LK_UNRECORDED __attribute__((always_inline)) static inline void invoke(void** frame, std::index_sequence<I...>) {
        do (*static_cast<const Call*>(frame[0]))(*static_cast<Arguments*>(frame[I + 1])...);
        while (lk_next_thread());
    }

    const char* name_;
    Call call_;
    Configuration configuration_;
};

// cudaLaunchKernel: arguments come as an array of pointers to them.
template <class... Parameters, size_t... I>
cudaError_t launch_with_addresses(void (*kernel)(Parameters...), const Configuration& configuration, void** arguments,
                                  std::index_sequence<I...>) {
    return TypedLaunch<Parameters...>("", kernel, configuration)(*static_cast<std::remove_reference_t<Parameters>*>(arguments[I])...);
}

using LaunchByAddress = cudaError_t (*)(const void* kernel, const Configuration& configuration, void** arguments);

// The kernels whose address was cast to void*, and how to launch each: cudaLaunchKernel gets nothing else of them.
class KnownKernels {
public:
    void add(const void* kernel, LaunchByAddress launch) {
        const std::lock_guard<std::mutex> held(lock_);
        launches_[kernel] = launch;
    }

    LaunchByAddress find(const void* kernel) {
        const std::lock_guard<std::mutex> held(lock_);
        const auto found = launches_.find(kernel);
        return found == launches_.end() ? nullptr : found->second;
    }

private:
    std::mutex lock_;
    std::map<const void*, LaunchByAddress> launches_;
};

inline KnownKernels& known_kernels() {
    static KnownKernels known;
    return known;
}

template <class... Parameters>
cudaError_t launch_address(const void* kernel, const Configuration& configuration, void** arguments) {
    return launch_with_addresses(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(kernel)), configuration,
                                 arguments, std::index_sequence_for<Parameters...>());
}

inline cudaError_t launch_known(const void* kernel, const Configuration& configuration, void** arguments) {
    const LaunchByAddress launch = known_kernels().find(kernel);
    return launch ? launch(kernel, configuration, arguments) : cudaErrorInvalidDeviceFunction;
}

}  // namespace lk

// What (void*)kernel becomes: (void*)lk_known(kernel).
template <class... Parameters>
auto lk_known(void (*kernel)(Parameters...)) -> void (*)(Parameters...) {
    lk::known_kernels().add(reinterpret_cast<const void*>(kernel), lk::launch_address<Parameters...>);
    return kernel;
}

inline lk::Configuration lk_configure(dim3 grid, dim3 block, size_t shared_bytes = 0, cudaStream_t stream = 0,
                                      const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {grid, block, shared_bytes, stream, false, file, line};
}

// Streams that are written as the integer 0 in a variable.
inline lk::Configuration lk_configure(dim3 grid, dim3 block, size_t shared_bytes, int,
                                      const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {grid, block, shared_bytes, nullptr, false, file, line};
}

template <class... Parameters>
lk::TypedLaunch<Parameters...> lk_launch(const char* name, void (*kernel)(Parameters...),
                                         const lk::Configuration& configuration) {
    return {name, kernel, configuration};
}

template <class Call>
lk::DeducedLaunch<Call> lk_launch(const char* name, Call call, const lk::Configuration& configuration) {
    return {name, call, configuration};
}

template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes = 0, cudaStream_t stream = 0, const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
    const lk::Configuration configuration = {grid, block, shared_bytes, stream, false, file, line};
    return lk::launch_with_addresses(kernel, configuration, arguments, std::index_sequence_for<Parameters...>());
}

template <class... Parameters>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                                        size_t shared_bytes = 0, cudaStream_t stream = 0,
                                        const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    const lk::Configuration configuration = {grid, block, shared_bytes, stream, true, file, line};
    return lk::launch_with_addresses(kernel, configuration, arguments, std::index_sequence_for<Parameters...>());
}

inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes = 0,
                                    cudaStream_t stream = 0, const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) {
    return lk::launch_known(kernel, {grid, block, shared_bytes, stream, false, file, line}, arguments);
}

inline cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                               size_t shared_bytes = 0, cudaStream_t stream = 0,
                                               const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return lk::launch_known(kernel, {grid, block, shared_bytes, stream, true, file, line}, arguments);
}

// cudaLaunchKernelEx: a launch with attributes, of which the cluster and the cooperative launch are honoured.
enum cudaLaunchAttributeID {
    cudaLaunchAttributeIgnore = 0,
    cudaLaunchAttributeAccessPolicyWindow = 1,
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeSynchronizationPolicy = 3,
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeClusterSchedulingPolicyPreference = 5,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
    cudaLaunchAttributePriority = 8,
};

enum cudaClusterSchedulingPolicy {
    cudaClusterSchedulingPolicyDefault = 0,
    cudaClusterSchedulingPolicySpread = 1,
    cudaClusterSchedulingPolicyLoadBalancing = 2,
};

union cudaLaunchAttributeValue {
    char pad[64];
    int cooperative;
    struct {
        unsigned x, y, z;
    } clusterDim;
    cudaClusterSchedulingPolicy clusterSchedulingPolicyPreference;
    int programmaticStreamSerializationAllowed;
    int priority;
};

struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};

struct cudaLaunchConfig_t {
    dim3 gridDim = dim3(1, 1, 1);
    dim3 blockDim = dim3(1, 1, 1);
    size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
    cudaLaunchAttribute* attrs = nullptr;
    unsigned int numAttrs = 0;
};

namespace lk {

inline Configuration with_attributes(const cudaLaunchConfig_t& config, const char* file, int line) {
    Configuration configuration = {config.gridDim, config.blockDim, config.dynamicSmemBytes, config.stream, false, file, line};
    for (unsigned i = 0; i < config.numAttrs; i++) {
        const cudaLaunchAttribute& one = config.attrs[i];
        if (one.id == cudaLaunchAttributeCooperative) configuration.cooperative = one.val.cooperative != 0;
        if (one.id == cudaLaunchAttributeClusterDimension) {
            configuration.cluster = dim3(one.val.clusterDim.x, one.val.clusterDim.y, one.val.clusterDim.z);
        }
    }
    return configuration;
}

}  // namespace lk

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
    const lk::Configuration configuration = lk::with_attributes(*config, __builtin_FILE(), __builtin_LINE());
    return lk::TypedLaunch<Parameters...>("", kernel, configuration)(static_cast<Parameters>(arguments)...);
}

inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments,
                                       const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return lk::launch_known(kernel, lk::with_attributes(*config, file, line), arguments);
}

template <class Kernel>
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* blocks, Kernel, const cudaLaunchConfig_t*) {
    *blocks = 8;  // what every GPU with clusters has
    return cudaSuccess;
}

template <class Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, Kernel, const cudaLaunchConfig_t* config) {
    const dim3 size = lk::with_attributes(*config, "", 0).cluster;
    *clusters = int(132 / (size.x ? size.x * size.y * size.z : 1));
    return cudaSuccess;
}
