// abi.h: what a compiled kernel calls in the worker, and what the worker calls in a kernel. Plain C names, no other header.
//
// The two builds of a kernel call the same functions. In the instrumented one gcc adds calls to __tsan_* before loads and
// stores and to __sanitizer_cov_trace_pc at the start of every basic block (hooks.cpp).
#pragma once

extern "C" {

struct lk_uint3 {
    unsigned x, y, z;
};

// The builtin variables themselves. Defined by the worker, which writes them when it enters a thread, a block, a launch; a
// kernel declares them const, since no thread ever sees its own change, and gcc then keeps them in registers.
#ifdef LK_WORKER
extern thread_local lk_uint3 lk_thread_index, lk_block_index, lk_block_extent, lk_grid_extent;
#else
extern const thread_local lk_uint3 lk_thread_index __attribute__((tls_model("initial-exec")));
extern const thread_local lk_uint3 lk_block_index __attribute__((tls_model("initial-exec")));
extern const thread_local lk_uint3 lk_block_extent __attribute__((tls_model("initial-exec")));
extern const thread_local lk_uint3 lk_grid_extent __attribute__((tls_model("initial-exec")));
#endif
unsigned lk_lane() __attribute__((const));
// The thread that ran has ended: true when the caller shall go on with the next one of its block, whose index is set.
int lk_next_thread();
unsigned lk_smid() __attribute__((const));
int lk_is_shared(const void* address) __attribute__((const));

// Block barriers. `site` says which barrier of the source this is: the line in the low 20 bits, the column above. gcc may
// copy a call, so its address says nothing.
void lk_block_barrier(int site);
enum { lk_reduce_count = 0, lk_reduce_and = 1, lk_reduce_or = 2 };
int lk_block_barrier_reduce(int reduction, int predicate, int site);
void lk_grid_barrier();
// bar.sync and bar.arrive of some threads of the block: opens when so many have come.
void lk_named_barrier(unsigned name, unsigned threads, int waits);

// Waits while *word == value; other threads of the block, then other blocks, run meanwhile. What cuda::barrier and named
// barriers are made of. lk_yield lets others run once (__nanosleep, a spin loop's body).
void lk_wait_while_equal(const unsigned* word, unsigned value);
void lk_yield();
// What happened before a release of `object` happened before whatever follows an acquire of it.
void lk_release(const void* object);
void lk_acquire(const void* object);

// Barriers of Hopper's kind (mbarrier), in shared memory of the cluster. An arrival returns the number of the phase under way,
// which a wait takes. may_give_up: try_wait, which returns 0 when nothing else in the cluster can go on.
void lk_mbarrier_init(void* at, unsigned arrivals);
void lk_mbarrier_invalidate(void* at);
unsigned lk_mbarrier_arrive(void* at, unsigned arrivals, unsigned long long bytes, int drops);
unsigned lk_mbarrier_phase(const void* at);
void lk_mbarrier_expect(void* at, unsigned long long bytes);
void lk_mbarrier_complete(void* at, unsigned long long bytes);
int lk_mbarrier_wait(const void* at, unsigned phase, int may_give_up);
int lk_mbarrier_wait_parity(const void* at, unsigned parity, int may_give_up);

// Bulk copies (TMA). A load goes to shared memory of the cluster, from global memory or from the block's own shared memory, and
// tells the mbarrier there; a store belongs to a bulk group of its thread. combine: a reduction in place of a copy.
void lk_bulk_load(void* to, const void* from, unsigned long bytes, void* barrier);
void lk_bulk_multicast(void* to, const void* from, unsigned long bytes, void* barrier, unsigned ranks);
void lk_bulk_store(void* to, const void* from, unsigned long bytes, void (*combine)(char*, const char*, unsigned long));
// The same for a box of a tensor: `map` is a CUtensorMap, `at` has a coordinate for each of its dimensions, the innermost first.
// ranks: the blocks of the cluster that get it; 0: the one whose shared memory `to` lies in.
void lk_bulk_tensor_load(void* to, const void* map, const int* at, unsigned rank, void* barrier, unsigned ranks);
void lk_bulk_tensor_store(const void* map, const int* at, unsigned rank, const void* from, int reduction);
void lk_bulk_commit();
void lk_bulk_wait(unsigned left);
void lk_proxy_fence();

// Blocks of a cluster.
unsigned lk_cluster_rank();
unsigned lk_cluster_size();
struct lk_uint3 lk_cluster_extent();
void* lk_cluster_map(const void* address, unsigned rank);
unsigned lk_cluster_rank_of(const void* address);
void* lk_cluster_address(unsigned low);  // of 32 bits of it
void lk_cluster_arrive();
void lk_cluster_wait();

// Warp operations. Lanes named in mask that have not exited must all call the same one with the same mask.
void lk_warp_barrier(unsigned mask);
unsigned lk_ballot(unsigned mask, int predicate);
enum { lk_shuffle_index = 0, lk_shuffle_up = 1, lk_shuffle_down = 2, lk_shuffle_xor = 3 };
// A lane that reads a lane that is not there gets zeros, and there is a finding. `size` bytes; width a power of two to 32.
void lk_shuffle(unsigned mask, const void* value, void* result, int size, int mode, int argument, int width);
// The lanes of mask whose value has the same bytes as the caller's.
unsigned lk_match(unsigned mask, const void* value, int size);
// values: room for 32 x size bytes; lane i's value is copied to place i, zeros for lanes that are not there. Returns the
// lanes that are. What reductions, scans and tensor-core operations are made of.
unsigned lk_gather(unsigned mask, const void* value, void* values, int size);
// The lanes that are at this call together.
unsigned lk_active_mask();

// Called in the instrumented build only (__SANITIZE_THREAD__): accesses that the compiler's own calls do not show.
void lk_atomic(void* address, int size);
void lk_atomic_store(void* address, int size);
void lk_exchange(void* address, int size);
void lk_compare(void* address, int size);  // an atomic that may leave the word as it is: compare-and-swap, minimum, maximum
void lk_read(const void* address, unsigned long size);
void lk_write(void* address, unsigned long size);
void lk_local(void* array, unsigned long size, int is_set);  // an array that a GPU keeps in local memory; set: with values
void lk_atomic_load(void* address, int size);
constexpr unsigned kUnsetWord = 0x9D5BC6E3;
// A look at a value of a local variable that was declared without one, or at a number computed from it (local_value.h).
void lk_local_value(unsigned long long bits, int size, int in_array, const char* name, int declared);
void lk_local_float(unsigned bits, const char* name, int declared);
void lk_local_double(unsigned long long bits, const char* name, int declared);

// Called in the instrumented build only: asynchronous copies into shared memory, made when they are started. Nobody may touch
// the destination until the thread has waited for its batch, or has waited for the barrier's phase to end.
void lk_copy_started(const void* to, unsigned long bytes, const void* barrier, unsigned phase);  // no barrier: the open batch
void lk_copies_committed();
void lk_copies_awaited(unsigned batches_left);
void lk_barrier_awaited(const void* barrier, unsigned phase);

// Products of a warpgroup (wgmma), as each thread asks for its part. Returns 0 where not all lanes of the warp have come.
enum lk_wgmma_type { lk_wgmma_f16, lk_wgmma_bf16, lk_wgmma_tf32, lk_wgmma_e4m3, lk_wgmma_e5m2, lk_wgmma_s8, lk_wgmma_u8 };
enum lk_wgmma_sums { lk_wgmma_floats, lk_wgmma_halves, lk_wgmma_integers };
struct lk_wgmma {
    unsigned columns;
    unsigned char type, right_type, sums_are;
    unsigned char adds;  // to what the sums were
    unsigned char negates_left, negates_right, turns_left, turns_right;
    unsigned char saturates, from_registers;  // the left operand
    unsigned left[4];
    unsigned long long left_descriptor, right_descriptor;
    void* sums;
};
int lk_wgmma_multiply(const lk_wgmma* asked);
void lk_wgmma_commit();
void lk_wgmma_wait(unsigned left);
// Called in the instrumented build only: the variables that get the results.
void lk_wgmma_results(void* const* variables, unsigned count, unsigned bytes);

// The C library as a kernel sees it. Outside a kernel (host code of a whole program) they are the C library's own.
int lk_printf(const char* format, ...) __attribute__((format(printf, 1, 2)));
long lk_clock();
long long lk_clock64();
long long lk_global_timer();  // ns
void* lk_memcpy(void* to, const void* from, unsigned long size);
void* lk_memmove(void* to, const void* from, unsigned long size);
int lk_memcmp(const void* left, const void* right, unsigned long size);
void* lk_memset(void* to, int byte, unsigned long size);
float lk_modff(float number, float* whole);
double lk_modf(double number, double* whole);
float lk_frexpf(float number, int* exponent);
double lk_frexp(double number, int* exponent);
float lk_remquof(float dividend, float divisor, int* quotient);
double lk_remquo(double dividend, double divisor, int* quotient);
void lk_sincosf(float angle, float* sine, float* cosine);
void lk_sincos(double angle, double* sine, double* cosine);
void* lk_malloc(unsigned long size);
void lk_free(void* pointer);
void lk_assert_fail(const char* expression, const char* file, unsigned line, const char* function) __attribute__((noreturn));
void lk_trap() __attribute__((noreturn));
// Takes the five words of a XORWOW generator count * 2^exponent steps further.
void lk_xorwow_jump(unsigned* words, unsigned long count, int exponent);

// Exported by every kernel.so.
//   int lk_kernel_count();
//   void lk_run_<i>(void** arguments);           runs one thread, then others as long as lk_next_thread() says so
//   const char* lk_describe_<i>();               its parameters, one a line
//   char* lk_shared_anchor();                    the calling OS thread's dynamic shared memory
}
