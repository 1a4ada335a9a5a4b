// main.cpp: the process of a whole program: loads the student's program, made into a shared object, and calls its main.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>

#include "context.h"
#include "crash.h"
#include "heap.h"
#include "journal.h"
#include "outcome.h"
#include "settings.h"

namespace {

using namespace lk::host;

constexpr int cannot_load = 127;

void say_what_was_lost() {
    const size_t bytes = context().held_output_bytes();
    if (bytes == 0) return;
    journal().note_once("kernels printed " + std::to_string(bytes) +
                        " bytes that nobody waited for; call cudaDeviceSynchronize() before main ends");
}

void say_what_nobody_asked() {
    const std::string& launch = context().refused_launch();
    if (!launch.empty()) journal().note_once(launch + "; nobody asked: call cudaGetLastError() after a launch");
    const cudaError_t fault = context().unnoticed_fault();
    if (fault != cudaSuccess) {
        journal().note_once(std::string("a kernel failed (") + cudaGetErrorName(fault) +
                            ") and nobody waited for it: call cudaDeviceSynchronize() and look at its result");
    }
}

void list_leaks() {
    if (settings().mode == lk::Mode::check) heap().write_down_leaks();
}

void become_expendable(const char* parent) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != atoi(parent)) _exit(cannot_load);
}

}  // namespace

// program_runner PROGRAM.so PARENT_PID NAME ARGUMENTS...
int main(int count, char** arguments) {
    if (count < 4) {
        fputs("this program is started by mlsys_labkit.cuda\n", stderr);
        return cannot_load;
    }
    become_expendable(arguments[2]);
    settings();
    watch_for_crashes();
    context(), journal(), heap();  // made first, so that they outlive what follows
    atexit(list_leaks);
    atexit(say_what_nobody_asked);
    atexit(say_what_was_lost);
    int (*students_main)(int, char**) = nullptr;
    try {
        lk::LoadedModule& loaded = lk::host::program();
        loaded = lk::load_module(arguments[1]);
        students_main = reinterpret_cast<int (*)(int, char**)>(dlsym(loaded.module.handle, "main"));
    } catch (const std::exception& error) {
        fprintf(stderr, "labkit: the program cannot be loaded: %s\n", error.what());
        return cannot_load;
    }
    if (!students_main) {
        fputs("labkit: the program has no main\n", stderr);
        return cannot_load;
    }
    journal().write("{\"record\": \"image\", \"address\": " + std::to_string(program().load_address) + "}");
    exit(students_main(count - 3, arguments + 3));
}
