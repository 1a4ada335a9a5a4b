// crash.cpp: see crash.h. Everything in the handler is safe in a signal handler, or reads data that no thread changes meanwhile.
#include "crash.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <signal.h>
#include <unistd.h>

#include "faults.h"
#include "heap.h"
#include "journal.h"
#include "outcome.h"

namespace lk::host {

namespace {

constexpr size_t stack_bytes = 64 << 10;

const char* kind_of(const void* address) {
    const Allocation* allocation = heap().find(address, nullptr);
    return allocation && allocation->kind == Kind::device ? "device" : "";
}

// The program counter, or what the stack holds of the program's code when a library's function was called with a bad pointer.
uint64_t students_counter(const ucontext_t& at) {
    const AddressRange image = program().image();
    const uint64_t pc = program_counter(at);
    if (image.holds(pc, 1)) return pc;
    const auto* stack = reinterpret_cast<const uint64_t*>(stack_pointer(at));
    constexpr int words_to_look_at = 256;
    for (int i = 0; i < words_to_look_at; ++i) {
        if (image.holds(stack[i], 1)) return stack[i] - 1;
    }
    return pc;
}

void on_crash(int signal_number, siginfo_t* info, void* context) {
    signal(signal_number, SIG_DFL);
    char line[256];
    const int length = snprintf(line, sizeof line,
                                "{\"record\": \"crash\", \"signal\": %d, \"pc\": %llu, \"memory\": \"%s\"}\n",
                                signal_number, static_cast<unsigned long long>(students_counter(*static_cast<ucontext_t*>(context))),
                                signal_number == SIGSEGV ? kind_of(info->si_addr) : "");
    if (journal().file() >= 0 && length > 0) {
        const ssize_t written = write(journal().file(), line, static_cast<size_t>(length));
        static_cast<void>(written);
    }
    raise(signal_number);
}

}  // namespace

void watch_for_crashes() {
    stack_t stack{};
    stack.ss_sp = malloc(stack_bytes);  // lives as long as the process: a stack overflow has no other place to run
    stack.ss_size = stack_bytes;
    sigaltstack(&stack, nullptr);
    fault_outside_kernels = on_crash;  // the engine's handlers replace these at the first launch
    struct sigaction action {};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (const int signal_number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
        sigaction(signal_number, &action, nullptr);
    }
}

}  // namespace lk::host
