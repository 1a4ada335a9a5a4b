// main.cpp: the worker process: runs the kernels of one notebook, so that what they break is not the notebook.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "channel.h"
#include "device_heap.h"
#include "device_memory.h"
#include "engine.h"
#include "module.h"
#include "output.h"
#include "records.h"
#include "seal.h"
#include "variables.h"

namespace {

using namespace lk;
using protocol::Command;
using protocol::Failure;

constexpr uint64_t kUsualArenaAddress = uint64_t{1} << 44;  // between programs and libraries on 47-bit addresses

Channel* the_channel;
pid_t notebook;

// Which request runs and which one the notebook has given up; a cancellation may come before its request, or too late.
std::mutex cancellation_mutex;
uint64_t running_sequence;
uint64_t cancelled_sequence;
std::atomic<bool> cancelled{false};

void print_to_cell(const char* text, size_t bytes) { the_channel->print(text, bytes); }

// PR_SET_PDEATHSIG fires when the thread that started us ends, which need not be the end of the notebook.
void leave_if_orphaned(int) {
    if (getppid() != notebook) _exit(0);
}

void become_expendable() {
    notebook = getppid();
    std::signal(SIGINT, SIG_IGN);  // Ctrl-C reaches the whole process group; the notebook decides what it means
    std::signal(SIGUSR1, leave_if_orphaned);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    if (getppid() != notebook) _exit(0);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (std::FILE* file = std::fopen("/proc/self/oom_score_adj", "w")) {
        std::fputs("500", file);  // when memory runs out, us rather than the notebook
        std::fclose(file);
    }
}

void say_hello(Channel& channel, int arena_file, size_t arena_bytes, uint64_t arena_address) {
    DeviceMemory& memory = device_memory();
    const bool anywhere = arena_address == 0;
    if (!memory.open_arena(arena_file, arena_bytes, anywhere ? kUsualArenaAddress : arena_address) && anywhere) {
        memory.open_arena(arena_file, arena_bytes, 0);
    }
    protocol::Hello& hello = channel.control().hello;
    hello.version = protocol::kVersion;
    hello.size_of_change = sizeof(protocol::Change);
    hello.size_of_request = sizeof(protocol::Request);
    hello.size_of_reply = sizeof(protocol::Reply);
    hello.size_of_control = sizeof(protocol::Control);
    const uint32_t records[] = {sizeof(FindingRecord), sizeof(SiteCount), sizeof(StepCount), sizeof(RequestSample),
                                sizeof(Totals)};
    std::memcpy(hello.size_of_records, records, sizeof records);
    hello.arena_address = memory.arena_address();
    hello.heap_bytes = kHeapRegionBytes;
    channel.complete();
}

bool apply_changes(Channel& channel, uint32_t count) {
    DeviceMemory& memory = device_memory();
    bool all = true;
    for (uint32_t i = 0; i < count; ++i) {
        const protocol::Change change = channel.control().changes[i];
        if (change.bytes == 0) {
            memory.detach(change.offset);
        } else {
            all = memory.attach(change.offset, change.bytes) && all;
        }
    }
    return all;
}

struct WorkersModule {
    LoadedModule loaded;
    Variables variables;
};

void load(Channel& channel, std::vector<WorkersModule>& modules, const protocol::Request& request) {
    const unsigned char* payload = channel.control().payload;
    LoadedModule loaded = load_module(reinterpret_cast<const char*>(payload));
    const auto same = std::find_if(modules.begin(), modules.end(), [&loaded](const WorkersModule& each) {
        return each.loaded.load_address == loaded.load_address;
    });
    Variables variables;
    const unsigned char* rows = payload + request.payload_bytes - request.arguments * sizeof(protocol::KeptVariable);
    for (uint32_t i = 0; i < request.arguments; ++i) {
        protocol::KeptVariable row;
        std::memcpy(&row, rows + i * sizeof row, sizeof row);
        variables.add(reinterpret_cast<char*>(loaded.load_address + row.address),
                      reinterpret_cast<char*>(device_memory().arena_address() + row.offset), row.bytes,
                      same == modules.end() ? nullptr : &same->variables);
    }
    std::string descriptions;
    for (const Kernel& kernel : loaded.kernels) descriptions.append(kernel.description).push_back('\0');
    channel.add_section(0, descriptions.data(), descriptions.size());
    protocol::Reply& reply = channel.control().reply;
    reply.module = static_cast<uint32_t>(modules.size());
    reply.text_address = loaded.load_address;
    reply.text_bytes = loaded.load_bytes;
    modules.push_back({std::move(loaded), std::move(variables)});
}

template <typename Record>
void add_records(Channel& channel, unsigned section, const std::vector<Record>& records) {
    channel.add_section(section, records.data(), records.size() * sizeof(Record));
}

void seal_if_wanted() {
    static bool open = std::getenv("LK_CUDA_SEALED") != nullptr;
    if (!open) return;
    start_pool();
    seal_process();
    open = false;
}

void launch(Channel& channel, const std::vector<WorkersModule>& modules, const protocol::Request& request) {
    const auto& [loaded, variables] = modules.at(request.module);
    unsigned char* payload = channel.control().payload;
    const uint32_t* offsets = reinterpret_cast<const uint32_t*>(payload);
    // A copy, aligned for any type, that a wild store of the kernel is unlikely to meet.
    const size_t offset_bytes = request.arguments * sizeof(uint32_t);
    std::vector<std::max_align_t> packed(request.payload_bytes / sizeof(std::max_align_t) + 1);
    std::memcpy(packed.data(), payload + offset_bytes, request.payload_bytes - offset_bytes);
    std::vector<void*> arguments;
    for (uint32_t i = 0; i < request.arguments; ++i) {
        arguments.push_back(reinterpret_cast<char*>(packed.data()) + offsets[i]);
    }
    Launch launch;
    launch.module = &loaded.module;
    launch.run = loaded.kernels.at(request.kernel).run;
    launch.arguments = arguments.data();
    launch.grid = {request.grid[0], request.grid[1], request.grid[2]};
    launch.block = {request.block[0], request.block[1], request.block[2]};
    launch.cluster = loaded.kernels.at(request.kernel).cluster;
    if (const char* why = wrong_cluster(launch)) throw std::runtime_error(why);
    launch.shared_bytes = request.shared_bytes;
    launch.mode = static_cast<Mode>(request.mode);
    launch.seed = request.seed;
    launch.sample_blocks = request.sample_blocks;
    launch.timeout_seconds = request.timeout_seconds;
    launch.cancelled = &cancelled;
    launch.description = loaded.describe_launch(request.shared_bytes);
    seal_if_wanted();
    variables.take();
    run_launch(launch);
    variables.put();
    if (launch.failure) throw std::runtime_error(launch.failure);
    channel.control().reply.seconds = launch.seconds;
    add_records(channel, 0, launch.findings.records());
    if (!launch.record) return;
    add_records(channel, 1, launch.record->sites());
    add_records(channel, 2, launch.record->steps());
    add_records(channel, 3, launch.record->samples());
    add_records(channel, 4, launch.record->totals());
}

void begin_request(uint64_t sequence) {
    const std::lock_guard<std::mutex> lock(cancellation_mutex);
    running_sequence = sequence;
    cancelled = cancelled_sequence == sequence;
}

void cancel(uint64_t sequence) {
    const std::lock_guard<std::mutex> lock(cancellation_mutex);
    cancelled_sequence = sequence;
    if (running_sequence == sequence) cancelled = true;
}

void answer(Channel& channel, std::vector<WorkersModule>& modules) {
    const protocol::Request& request = channel.wait();
    begin_request(request.sequence);
    try {
        if (!apply_changes(channel, request.changes)) {
            channel.fail(Failure::out_of_mappings, "the system has no room for another mapping");
        } else if (request.command == static_cast<uint32_t>(Command::load)) {
            load(channel, modules, request);
        } else if (request.command == static_cast<uint32_t>(Command::launch)) {
            launch(channel, modules, request);
        }
    } catch (const std::exception& error) {
        channel.fail(Failure::refused, error.what());
    }
    channel.complete();
}

}  // namespace

// worker CONTROL ARENA SUBMITTED COMPLETED LIFELINE ARENA_BYTES ARENA_ADDRESS SPIN_MICROSECONDS
int main(int count, char** arguments) {
    if (count != 9) {
        std::fputs("this program is started by mlsys_labkit.cuda\n", stderr);
        return 2;
    }
    const auto number = [arguments](int place) { return std::strtoull(arguments[place], nullptr, 10); };
    const auto file = [&number](int place) { return static_cast<int>(number(place)); };
    become_expendable();
    Channel channel({file(1), file(3), file(4), file(5)}, static_cast<unsigned>(number(8)));
    the_channel = &channel;
    print_text = print_to_cell;
    channel.watch_lifeline(cancel);
    say_hello(channel, file(2), number(6), number(7));
    std::vector<WorkersModule> modules;
    for (;;) answer(channel, modules);
}
