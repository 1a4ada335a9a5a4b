// hooks.cpp: what gcc calls in the instrumented build: before every load and store, and at the start of every basic block.
#include "hooks.h"

#include <signal.h>
#include <stdio.h>

#include <algorithm>

namespace lk {

void (*access_outside_kernels)(u64 address, u64 bytes, bool writes, u64 pc) = nullptr;

namespace {

// The widest access of a GPU.
constexpr u64 kWidest = 16;

// The parts in which a GPU would make an access of this size, aligned as its address, its size and its type allow.
u64 part_of(u64 address, u64 bytes, u64 alignment) {
    u64 largest = kWidest | address | bytes | alignment;
    return largest & (~largest + 1);
}

bool counting() {
    Block* block = current();
    return block && block->trace;
}

}  // namespace

void record_range(u64 address, u64 bytes, Op op, u64 pc, u64 alignment) {
    Block* block = current();
    if (!block || !bytes) return;
    u64 part = part_of(address, bytes, block->trace ? alignment : kWidest);
    for (u64 end = address + bytes; address < end; address += part) record_access(*block, address, u8(part), op, pc);
}

// So many bytes of a struct that is aligned to fewer.
static void record_parts(void* address, u8 bytes, u64 part, Op op, u64 pc) {
    Block* block = current();
    if (block && block->trace) record_range(reinterpret_cast<u64>(address), bytes, op, pc, part);
    else record_here(address, bytes, op, pc);
}

void end_turn(Block& block, u64 pc, u64 frame) {
    block.thread->pc = pc;
    block.thread->frame = u32(frame);
    if (stopped(block)) stop_launch(block);
    pause(block);
}

}  // namespace lk

using namespace lk;

#define HOOK_PC reinterpret_cast<u64>(__builtin_return_address(0))

extern "C" {

void __sanitizer_cov_trace_pc() {
    Block* block = current();
    if (!block) return;
    u64 pc = HOOK_PC;
    const u64 frame = reinterpret_cast<u64>(__builtin_frame_address(0));
    if (LaneTrace* trace = block->trace) {
        while (!trace->has_room()) {
            end_turn(*block, pc, frame);
            trace = block->trace;
        }
        u32 offset = u32(pc - block->launch->module->text.begin);
        Fiber& fiber = *block->thread->fiber;
        const u64 depth = reinterpret_cast<u64>(fiber.top) - frame;
        fiber.lowest = std::min(fiber.lowest, frame);
        trace->push({place_rank(depth, offset), offset, 0, Op::load, Kind::step});
    } else if (--block->countdown == 0) {
        block->warp_budget = 0;
        end_turn(*block, pc, frame);
    }
}

#define ACCESS_HOOKS(bytes)                                                                                            \
    void __tsan_read##bytes(void* address) { record_here(address, bytes, Op::load, HOOK_PC); }                        \
    void __tsan_write##bytes(void* address) { record_here(address, bytes, Op::store, HOOK_PC); }                      \
    void __tsan_unaligned_read##bytes(void* at) { record_range(reinterpret_cast<u64>(at), bytes, Op::load, HOOK_PC); }    \
    void __tsan_unaligned_write##bytes(void* at) { record_range(reinterpret_cast<u64>(at), bytes, Op::store, HOOK_PC); }  \
    void __tsan_volatile_read##bytes(void* address) { record_volatile(address, bytes, Op::volatile_load, HOOK_PC); }  \
    void __tsan_volatile_write##bytes(void* address) { record_volatile(address, bytes, Op::volatile_store, HOOK_PC); }

ACCESS_HOOKS(1)
ACCESS_HOOKS(2)
ACCESS_HOOKS(4)
ACCESS_HOOKS(8)
ACCESS_HOOKS(16)

void __tsan_read_range(void* address, unsigned long bytes) {
    record_range(reinterpret_cast<u64>(address), bytes, Op::load, HOOK_PC);
}

void __tsan_write_range(void* address, unsigned long bytes) {
    record_range(reinterpret_cast<u64>(address), bytes, Op::store, HOOK_PC);
}

// width: of the vector that is counted, 0 for none.
static void record_member(void* address, u8 bytes, u8 width, Op op, u64 pc) {
    Block* block = current();
    if (!block || !block->trace) record_here(address, bytes, op, pc);
    else if (width) record_access(*block, reinterpret_cast<u64>(address), width, op, pc);
}

// Copies of structs whose types are aligned to so many bytes: nvcc copies as many at once (kernel/gcc/copies.py).
#define COPY_HOOKS(bytes, part)                                                                                        \
    void __tsan_read##bytes##_by##part(void* address) { record_parts(address, bytes, part, Op::load, HOOK_PC); }       \
    void __tsan_write##bytes##_by##part(void* address) { record_parts(address, bytes, part, Op::store, HOOK_PC); }

#define RANGE_HOOKS(part)                                                                                              \
    void __tsan_read_range_by##part(void* address, unsigned long bytes) {                                              \
        record_range(reinterpret_cast<u64>(address), bytes, Op::load, HOOK_PC, part);                                  \
    }                                                                                                                  \
    void __tsan_write_range_by##part(void* address, unsigned long bytes) {                                             \
        record_range(reinterpret_cast<u64>(address), bytes, Op::store, HOOK_PC, part);                                 \
    }

COPY_HOOKS(16, 8)
COPY_HOOKS(16, 4)
COPY_HOOKS(16, 2)
COPY_HOOKS(16, 1)
COPY_HOOKS(8, 4)
COPY_HOOKS(8, 2)
COPY_HOOKS(8, 1)
COPY_HOOKS(4, 2)
COPY_HOOKS(4, 1)
COPY_HOOKS(2, 1)
RANGE_HOOKS(8)
RANGE_HOOKS(4)
RANGE_HOOKS(2)
RANGE_HOOKS(1)

// Members of a struct that nvcc loads or stores at once: one stands for all of them, if they are counted (gcc/vectors.py).
#define MEMBER_HOOKS(bytes)                                                                                            \
    void __tsan_read##bytes##_joined(void* address) { record_member(address, bytes, 0, Op::load, HOOK_PC); }           \
    void __tsan_write##bytes##_joined(void* address) { record_member(address, bytes, 0, Op::store, HOOK_PC); }

#define VECTOR_HOOKS(bytes, width)                                                                                     \
    void __tsan_read##bytes##_in##width(void* address) { record_member(address, bytes, width, Op::load, HOOK_PC); }    \
    void __tsan_write##bytes##_in##width(void* address) { record_member(address, bytes, width, Op::store, HOOK_PC); }

MEMBER_HOOKS(1)
MEMBER_HOOKS(2)
MEMBER_HOOKS(4)
MEMBER_HOOKS(8)
VECTOR_HOOKS(1, 2)
VECTOR_HOOKS(1, 4)
VECTOR_HOOKS(1, 8)
VECTOR_HOOKS(1, 16)
VECTOR_HOOKS(2, 4)
VECTOR_HOOKS(2, 8)
VECTOR_HOOKS(2, 16)
VECTOR_HOOKS(4, 8)
VECTOR_HOOKS(4, 16)
VECTOR_HOOKS(8, 16)

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** pointer, void*) { record_here(pointer, sizeof *pointer, Op::store, HOOK_PC); }
void __tsan_vptr_read(void**) {}

// Atomic operations that the source spells in C++'s own way.
#define ATOMIC_HOOKS(bits, Word)                                                                                       \
    Word __tsan_atomic##bits##_load(const volatile Word* address, int) {                                               \
        record_here(const_cast<Word*>(address), sizeof(Word), counting() ? Op::load : Op::atomic, HOOK_PC);            \
        return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                             \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile Word* address, Word value, int) {                                        \
        record_here(const_cast<Word*>(address), sizeof(Word), counting() ? Op::store : Op::atomic_store, HOOK_PC);     \
        __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                            \
    }                                                                                                                  \
    Word __tsan_atomic##bits##_exchange(volatile Word* address, Word value, int) {                                     \
        record_here(const_cast<Word*>(address), sizeof(Word), Op::exchange, HOOK_PC);                                  \
        return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                                                  \
    COMPARE_HOOK(bits, Word, strong)                                                                                   \
    COMPARE_HOOK(bits, Word, weak)                                                                                     \
    Word __tsan_atomic##bits##_compare_exchange_val(volatile Word* address, Word expected, Word value, int, int) {     \
        record_here(const_cast<Word*>(address), sizeof(Word), Op::compare, HOOK_PC);                                   \
        __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);             \
        return expected;                                                                                               \
    }                                                                                                                  \
    FETCH_HOOK(bits, Word, add)                                                                                        \
    FETCH_HOOK(bits, Word, sub)                                                                                        \
    FETCH_HOOK(bits, Word, and)                                                                                        \
    FETCH_HOOK(bits, Word, or)                                                                                         \
    FETCH_HOOK(bits, Word, xor)                                                                                        \
    FETCH_HOOK(bits, Word, nand)

#define COMPARE_HOOK(bits, Word, kind)                                                                              \
    int __tsan_atomic##bits##_compare_exchange_##kind(volatile Word* address, Word* expected, Word value, int, int) { \
        record_here(const_cast<Word*>(address), sizeof(Word), Op::compare, HOOK_PC);                                \
        return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
    }

#define FETCH_HOOK(bits, Word, operation)                                                          \
    Word __tsan_atomic##bits##_fetch_##operation(volatile Word* address, Word value, int) {        \
        record_here(const_cast<Word*>(address), sizeof(Word), Op::atomic, HOOK_PC);                \
        return __atomic_fetch_##operation(address, value, __ATOMIC_SEQ_CST);                       \
    }

ATOMIC_HOOKS(8, u8)
ATOMIC_HOOKS(16, u16)
ATOMIC_HOOKS(32, u32)
ATOMIC_HOOKS(64, u64)

void __tsan_atomic_thread_fence(int) {
    if (Recorder* recorder = checker()) recorder->fence(current()->thread_number);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void __tsan_atomic_signal_fence(int) {}

// What headers say of accesses that the compiler's own calls do not show.
void lk_atomic(void* address, int bytes) { record_range(reinterpret_cast<u64>(address), u64(bytes), Op::atomic, HOOK_PC); }

// A load or a store on a GPU, too, and counted as one.
void lk_atomic_load(void* address, int bytes) {
    record_range(reinterpret_cast<u64>(address), u64(bytes), counting() ? Op::load : Op::compare, HOOK_PC);
}

void lk_atomic_store(void* address, int bytes) {
    record_range(reinterpret_cast<u64>(address), u64(bytes), counting() ? Op::store : Op::atomic_store, HOOK_PC);
}

void lk_exchange(void* address, int bytes) { record_range(reinterpret_cast<u64>(address), u64(bytes), Op::exchange, HOOK_PC); }

void lk_compare(void* address, int bytes) { record_range(reinterpret_cast<u64>(address), u64(bytes), Op::compare, HOOK_PC); }

void lk_read(const void* address, unsigned long bytes) {
    record_range(reinterpret_cast<u64>(address), bytes, Op::load, HOOK_PC);
}

void lk_write(void* address, unsigned long bytes) {
    record_range(reinterpret_cast<u64>(address), bytes, Op::store, HOOK_PC);
}

void lk_local(void* array, unsigned long bytes, int is_set) {
    Block* block = current();
    if (!block || !block->trace) return;
    const u64 begin = reinterpret_cast<u64>(array);
    auto& arrays = block->thread->local_arrays;
    const auto overlaps = [&](const AddressRange& other) { return begin < other.end && other.begin < begin + bytes; };
    arrays.erase(std::remove_if(arrays.begin(), arrays.end(), overlaps), arrays.end());
    arrays.push_back({begin, begin + bytes});
    if (is_set) record_range(begin, bytes, Op::store, HOOK_PC);
}

static void unset_variable(const char* name, int declared, u64 pc) {
    Block* block = current();
    if (!block || block->mode != Mode::check) return;
    FindingRecord finding = make_finding(*block, FindingKind::uninitialized_variable, block->thread_number, pc);
    finding.values[0] = u32(declared);
    snprintf(finding.text, sizeof finding.text, "%s", name);
    block->launch->findings.report(finding);
}

static constexpr u64 kUnsetWords = u64{kUnsetWord} << 32 | kUnsetWord;
// The bytes of -ftrivial-auto-var-init=pattern, which arrays in local memory have in place of it.
static constexpr u64 kPattern = 0xFEFEFEFEFEFEFEFE;

void lk_local_value(unsigned long long bits, int size, int in_array, const char* name, int declared) {
    const int unused = 64 - 8 * size;
    if (bits == kUnsetWords >> unused || (in_array && bits == kPattern >> unused)) unset_variable(name, declared, HOOK_PC);
}

// The NaN of local_value.h, whatever its sign; it knows its line itself. An array in local memory has the pattern.
void lk_local_float(unsigned bits, const char* name, int declared) {
    if (*name && bits == u32(kPattern)) unset_variable(name, declared, HOOK_PC);
    if ((bits >> 12 & 0x7FFFF) == (0x7FC00u | 0x2A5u)) unset_variable(name, int(bits & 0xFFF), HOOK_PC);
}

void lk_local_double(unsigned long long bits, const char* name, int declared) {
    if (*name && bits == kPattern) unset_variable(name, declared, HOOK_PC);
    const u64 payload = bits >> 29 & 0x3FFFFF;
    const bool marked = (bits >> 51 & 0xFFF) == 0xFFF && payload >> 12 == 0x2A5 && !(bits & 0x1FFFFFFF);
    if (marked) unset_variable(name, int(payload & 0xFFF), HOOK_PC);
}

void lk_copy_started(const void* to, unsigned long bytes, const void* barrier, unsigned phase) {
    Recorder* recorder = checker();
    if (!recorder) return;
    u64 at = reinterpret_cast<u64>(to);
    u64 part = part_of(at, bytes, kWidest);
    for (u64 end = at + bytes; at < end; at += part) {
        recorder->copy_started(current()->thread_number, at, u32(part), HOOK_PC, reinterpret_cast<u64>(barrier), phase);
    }
}

void lk_copies_committed() {
    if (Recorder* recorder = checker()) recorder->copies_committed(current()->thread_number);
}

void lk_copies_awaited(unsigned batches_left) {
    if (Recorder* recorder = checker()) recorder->copies_awaited(current()->thread_number, batches_left);
}

void lk_barrier_awaited(const void* barrier, unsigned phase) {
    if (Recorder* recorder = checker()) recorder->barrier_awaited(reinterpret_cast<u64>(barrier), phase);
}

// -fsanitize=integer-divide-by-zero, where the processor does not fault by itself (aarch64).
[[noreturn]] static void division_by_zero(u64 pc) {
    Block* block = current();
    if (!block) {  // host code: as on x86-64
        raise(SIGFPE);
        __builtin_trap();
    }
    block->launch->findings.report(make_finding(*block, FindingKind::division_by_zero, block->thread_number, pc));
    stop_launch(*block);
}
void __ubsan_handle_divrem_overflow(void*, void*, void*) { division_by_zero(HOOK_PC); }
void __ubsan_handle_divrem_overflow_abort(void*, void*, void*) { division_by_zero(HOOK_PC); }

// -fsanitize=bounds: what gcc tells of an index, in the layout of its libubsan.
struct IndexType {
    u16 kind;
    u16 info;
    char name[1];
};
struct IndexPlace {
    const char* file;
    u32 line;
    u32 column;
    const IndexType* array;
    const IndexType* index;
};
// The access is made: a shared array's hook says more of it, and a local one's neighbours are the kernel's own.
static void index_out_of_bounds(const IndexPlace& place, u64 index, u64 pc) {
    Block* block = current();
    if (!block || block->mode != Mode::check) return;
    FindingRecord finding = make_finding(*block, FindingKind::index_out_of_bounds, block->thread_number, pc);
    finding.address = index;
    finding.bytes = place.column;
    snprintf(finding.text, sizeof finding.text, "%s", place.array->name);
    block->launch->findings.report(finding);
}
void __ubsan_handle_out_of_bounds(void* place, u64 index) {
    index_out_of_bounds(*static_cast<const IndexPlace*>(place), index, HOOK_PC);
}
void __ubsan_handle_out_of_bounds_abort(void* place, u64 index) {
    index_out_of_bounds(*static_cast<const IndexPlace*>(place), index, HOOK_PC);
}

// -fsanitize=unreachable, of whole programs.
[[noreturn]] void __ubsan_handle_builtin_unreachable(void*) { __builtin_trap(); }
}
