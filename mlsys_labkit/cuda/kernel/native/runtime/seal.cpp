// seal.cpp: a seccomp filter that lets through what a launch needs, see seal.h.
//
// Nothing watches the memory of a plain launch: a kernel may overwrite where a function returns to, and then code of the C
// library runs as it wants. A list of permissions, since our own code and malloc need few calls. A call without permission
// fails with EPERM. Reference: Linux, Documentation/userspace-api/seccomp_filter.rst.
#include "seal.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <system_error>
#include <vector>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lk {

namespace {

constexpr int kPermitted[] = {
    SYS_read, SYS_write, SYS_writev, SYS_ppoll,  // of files that are open: rings, and what is said on stderr
    SYS_brk, SYS_munmap, SYS_mremap, SYS_madvise,
    SYS_futex, SYS_sched_yield, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_restart_syscall,
    SYS_rseq, SYS_set_robust_list,  // of a thread that has just begun
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack,
    SYS_getpid, SYS_getppid, SYS_gettid, SYS_getrandom, SYS_exit, SYS_exit_group,
#if defined(__x86_64__)
    SYS_poll,
#endif
};

#if defined(__x86_64__)
constexpr uint32_t kMachine = AUDIT_ARCH_X86_64;
#else
constexpr uint32_t kMachine = AUDIT_ARCH_AARCH64;
#endif

constexpr uint32_t argument(int place) { return offsetof(seccomp_data, args) + 8 * place; }  // its lower half

using Filter = std::vector<sock_filter>;

void add(Filter& filter, uint16_t operation, uint32_t operand, uint8_t if_so = 0, uint8_t if_not = 0) {
    filter.push_back({operation, if_so, if_not, operand});
}

void load(Filter& filter, uint32_t offset) { add(filter, BPF_LD | BPF_W | BPF_ABS, offset); }

void answer(Filter& filter, uint32_t how) { add(filter, BPF_RET | BPF_K, how); }

// A call that is permitted if its argument equals value, or has none of its bits.
void permit_if(Filter& filter, int call, int place, uint16_t test, uint32_t value) {
    const bool equal = test == BPF_JEQ;
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, uint32_t(call), 0, 4);
    load(filter, argument(place));
    add(filter, BPF_JMP | test | BPF_K, value, equal ? 0 : 1, equal ? 1 : 0);
    answer(filter, SECCOMP_RET_ALLOW);
    answer(filter, SECCOMP_RET_ERRNO | EPERM);
}

Filter filter_of_launches() {
    Filter filter;
    load(filter, offsetof(seccomp_data, arch));
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, kMachine, 1, 0);
    answer(filter, SECCOMP_RET_KILL_PROCESS);
    load(filter, offsetof(seccomp_data, nr));
    for (int call : kPermitted) {
        add(filter, BPF_JMP | BPF_JEQ | BPF_K, uint32_t(call), 0, 1);
        answer(filter, SECCOMP_RET_ALLOW);
    }
    for (int call : {SYS_mmap, SYS_mprotect}) permit_if(filter, call, 2, BPF_JSET, PROT_EXEC);
    permit_if(filter, SYS_tgkill, 0, BPF_JEQ, uint32_t(getpid()));  // a thread that spins is interrupted
    answer(filter, SECCOMP_RET_ERRNO | EPERM);
    return filter;
}

}  // namespace

void seal_process() {
    Filter filter = filter_of_launches();
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) throw std::system_error(errno, std::generic_category(), "no_new_privs");
    // The second flag: a filter alone is no reason for the processor to run slower.
    for (unsigned flags : {SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, SECCOMP_FILTER_FLAG_TSYNC}) {
        const long done = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
        if (done == 0) return;
        if (done > 0) throw std::runtime_error("a thread of the worker has a filter of its own");
    }
    // A system without filters has no sandbox for graders either: there is nothing to keep.
    if (errno != ENOSYS && errno != EINVAL) throw std::system_error(errno, std::generic_category(), "the filter of system calls");
}

}  // namespace lk
