// builtins.cpp: the C library as a kernel sees it. Outside kernels (host code of a whole program) it is the C library's own.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "device_heap.h"
#include "hooks.h"
#include "output.h"
#include "unset_memory.h"

using namespace lk;

namespace {

long long nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

// Longer text of one call is cut, as CUDA's own buffer would.
constexpr size_t kPrintBytes = 8192;

// The parts of a format that a GPU's printf supports.
struct Format {
    int arguments = 0;    // that it takes: what the call returns
    bool stores = false;  // %n, which a GPU does not know: it would store without being recorded

    explicit Format(const char* text) {
        for (; *text; text++) {
            if (*text != '%') continue;
            text++;
            if (*text == '%') continue;
            for (; *text && strchr("-+ #'I0123456789.*$hlLjztqZwf", *text); text++) {
                arguments += *text == '*';
                if (*text == 'f' && text[-1] != 'w') break;  // a conversion, and not the size in %wf8d
            }
            if (!*text) return;
            arguments++;
            stores |= *text == 'n';
        }
    }
};

// At the end of a call: an interruption waits for the kernel's own code, and a kernel that prints without end is hardly ever
// in it.
__attribute__((always_inline)) inline void leave_if_stopped() {
    Block* block = current();
    if (block && stopped(*block)) stop_launch(enter_runtime());
}

}  // namespace

int lk_printf(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!current()) {
        int printed = vprintf(format, arguments);
        va_end(arguments);
        return printed;
    }
    char text[kPrintBytes];
    const Format read(format);
    int length = read.stores ? snprintf(text, sizeof text, "%s", format) : vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0) print_text(text, std::min(size_t(length), sizeof text - 1));
    leave_if_stopped();
    return read.arguments;
}

// One tick a nanosecond: a GPU at 1 GHz. Differences order events; they do not tell a GPU's time.
long long lk_clock64() { return nanoseconds(); }
long lk_clock() { return current() ? nanoseconds() : clock(); }
long long lk_global_timer() { return nanoseconds(); }

int lk_is_shared(const void* address) {
    const Block* block = current();
    const u64 at = reinterpret_cast<u64>(address);
    return block && at >= block->shared_begin && at < block->shared_end;
}

unsigned lk_smid() { return current() ? unsigned(current()->number % pool_size()) : 0; }

#define CALLED_FROM reinterpret_cast<u64>(__builtin_return_address(0))

#define COPIES(name)                                                                \
    void* lk_##name(void* to, const void* from, unsigned long size) {               \
        record_range(reinterpret_cast<u64>(from), size, Op::load, CALLED_FROM);     \
        record_range(reinterpret_cast<u64>(to), size, Op::store, CALLED_FROM);      \
        name(to, from, size);                                                       \
        leave_if_stopped();                                                         \
        return to;                                                                  \
    }

COPIES(memcpy)
COPIES(memmove)

int lk_memcmp(const void* left, const void* right, unsigned long size) {
    record_range(reinterpret_cast<u64>(left), size, Op::load, CALLED_FROM);
    record_range(reinterpret_cast<u64>(right), size, Op::load, CALLED_FROM);
    int order = memcmp(left, right, size);
    leave_if_stopped();
    return order;
}

void* lk_memset(void* to, int byte, unsigned long size) {
    record_range(reinterpret_cast<u64>(to), size, Op::store, CALLED_FROM);
    memset(to, byte, size);
    leave_if_stopped();
    return to;
}

// A mathematical function writes a second result to where its caller points.
#define NOTE_STORE(result) record_range(reinterpret_cast<u64>(result), sizeof *result, Op::store, CALLED_FROM)

#define SECOND_RESULT(name, Number, Second)             \
    Number lk_##name(Number number, Second* second) {   \
        NOTE_STORE(second);                             \
        return name(number, second);                    \
    }

SECOND_RESULT(modff, float, float)
SECOND_RESULT(modf, double, double)
SECOND_RESULT(frexpf, float, int)
SECOND_RESULT(frexp, double, int)

#define QUOTIENT_AND_SINE(suffix, Number)                                               \
    Number lk_remquo##suffix(Number dividend, Number divisor, int* quotient) {          \
        NOTE_STORE(quotient);                                                           \
        return remquo##suffix(dividend, divisor, quotient);                             \
    }                                                                                   \
    void lk_sincos##suffix(Number angle, Number* sine, Number* cosine) {                \
        NOTE_STORE(sine);                                                               \
        NOTE_STORE(cosine);                                                             \
        sincos##suffix(angle, sine, cosine);                                            \
    }

QUOTIENT_AND_SINE(f, float)
QUOTIENT_AND_SINE(, double)

void lk_assert_fail(const char* expression, const char* file, unsigned line, const char* function) {
    Block* block = current();
    if (!block) {
        fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function, expression);
        abort();
    }
    FindingRecord finding = make_finding(enter_runtime(), FindingKind::assertion);
    snprintf(finding.text, sizeof finding.text, "%s", expression);
    block->launch->findings.report(finding);
    stop_launch(*block);
}

void lk_trap() {
    if (!current()) abort();
    Block& block = enter_runtime();
    block.launch->findings.report(make_finding(block, FindingKind::trap));
    stop_launch(block);
}

// What one thread frees another may get: the heap orders the two.
void* lk_malloc(unsigned long size) {
    leave_if_stopped();
    if (!current()) return malloc(size);
    void* memory = heap_allocate(size);
    lk_acquire(memory);
    if (memory && checker()) fill_unset(memory, size);
    return memory;
}

void lk_free(void* pointer) {
    if (!pointer) return;
    if (!current() && !in_heap(pointer)) return free(pointer);
    if (current()) lk_release(pointer);
    if (heap_release(pointer) || !current()) return;
    Block& block = enter_runtime();
    FindingRecord finding = make_finding(block, FindingKind::illegal_address);
    finding.address = reinterpret_cast<u64>(pointer);
    block.launch->findings.report(finding);
    stop_launch(block);
}
