"""The memory of a graded kernel while it is counted: device memory, shared memory and its variables, nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.kernel.simulator.client import Simulator

SOURCE = """
__global__ void volatile_of_another(const float* x, float* y)
{
    __shared__ const volatile float* shared;
    float mine[32];
    for (int j = 0; j < 32; ++j) mine[j] = x[j];
    if (threadIdx.x == 0) shared = mine;
    __syncthreads();
    y[threadIdx.x] = shared[threadIdx.x];
}
__global__ void below(const float* x, float* y)
{
    char here[4] = {};
    float* deep = (float*)(((unsigned long)here & ~4095ul) - 65536);
    if (blockIdx.x == 0) deep[0] = x[0];
    y[blockIdx.x] = deep[0] + here[y[0] < 0];
}
__global__ void above(const float* x, float* y)
{
    long here[2] = {1, 2};
    const long* words = (const long*)((long)here & ~7l);
    long sum = 0;
    for (int j = 0; j < 64; ++j) sum += words[j * (int)x[0]];
    y[0] = sum;
}
__device__ __noinline__ float function(float* x, long n)
{
    long here[2] = {n, n};
    long* words = (long*)((long)here & ~7l);
    for (int j = 0; j < n; ++j) words[j] = words[j] + (long)x[1] - 1;
    return here[0];
}
__global__ void return_address(const float* x, float* y) { y[0] = function((float*)x, 16 * x[0]); }
__global__ void from_nowhere(const float* x, float* y)
{
    long* word = (long*)((long)&threadIdx - 4096 * (long)x[0]);
    *word = 1;
    y[0] = 1;
}
__global__ void between_variables(const float* x, float* y)
{
    alignas(4096) float own[8];
    if (blockIdx.x == 0) own[64 * (int)x[0]] = x[0];
    y[blockIdx.x] = own[64 * (int)x[0]];
}
__global__ void shared_of_another_block(const float* x, float* y)
{
    __shared__ float fixed[64];
    extern __shared__ float given[];
    if (blockIdx.x == 0) fixed[threadIdx.x] = given[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[blockIdx.x] = fixed[0] == 1 || given[0] == 1;
}
__global__ void beyond_what_is_given(const float* x, float* y)
{
    extern __shared__ float given[];
    given[threadIdx.x + 128 * (int)x[0]] = 1;
    y[0] = given[0];
}
struct Big { float v[32]; };
__device__ __noinline__ float sum_of(Big b, int at)
{
    b.v[at & 31] += 1;
    float sum = 0;
    for (float each : b.v) sum += each;
    return sum;
}
__device__ float fibonacci(int n, float* out)
{
    float two[2];
    if (n < 2) return *out = n;
    fibonacci(n - 1, two);
    fibonacci(n - 2, two + 1);
    return *out = two[0] + two[1];
}
__global__ void ordinary(const float* x, float* y)
{
    int n = 8 * x[threadIdx.x];
    float turned[16], many[n], last;
    for (int j = 0; j < 16; ++j) turned[j] = x[j];
    for (int j = 0; j < n; ++j) many[j] = x[j];
    volatile float kept = turned[n & 15];
    float sine, cosine;
    sincosf(kept, &sine, &cosine);
    y[threadIdx.x] = sum_of(*(const Big*)x, n) + fibonacci(n, &last) + many[n - 1] + sine * sine + cosine * cosine;
}
"""


@pytest.fixture(scope="module")
def kernels() -> cuda.Kernels:
    return cuda.compile_all(SOURCE, graded=True, backend="simulator")


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.ones(64, np.float32), np.zeros(64, np.float32)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("volatile_of_another", "reads a local variable of another thread"),
        ("below", "its own stack outside of its variables"),  # block 0 writes, block 1 reads: either may be first
        ("above", "reads its own stack outside of its variables"),
        ("return_address", "writes its own stack outside of its variables"),
        ("beyond_what_is_given", "the launch gives 256 bytes of dynamic shared memory"),
        ("from_nowhere", "no array that a kernel may write"),
    ],
)
def test_an_access_of_none_of_its_memory_ends_the_launch(kernels: cuda.Kernels, name: str, said: str) -> None:
    with pytest.raises(cuda.CudaKernelError, match=said):
        kernels[name].profile[2, 32, 256](*arrays())
    assert said in "\n".join(map(str, kernels[name].check[2, 32, 256](*arrays())))


def test_a_thread_finds_nothing_of_another_one_on_its_stack(kernels: cuda.Kernels) -> None:
    x, y = arrays()
    kernels.between_variables.profile[64, 1](x, y)
    assert y[0] == 1
    assert not y[1:].any()


def test_a_block_finds_nothing_of_another_one_in_shared_memory(kernels: cuda.Kernels) -> None:
    x, y = arrays()
    kernels.shared_of_another_block.profile[64, 32, 256](x, y)
    assert y[0] == 1
    assert not y[1:].any()


def test_ordinary_kernels_use_their_stack(kernels: cuda.Kernels) -> None:
    x, y = arrays()
    kernels.ordinary.profile[1, 32](x, y)
    assert y[:32] == pytest.approx([33 + 21 + 1 + 1] * 32)
    assert [str(each) for each in kernels.ordinary.check[1, 32](x, y)] == []


def test_plain_launches_have_another_process_than_counted_ones(kernels: cuda.Kernels) -> None:
    """Nothing watches a plain launch: what it breaks or keeps must not be there when accesses are counted."""
    kernels.ordinary[1, 32](*arrays())
    kernels.ordinary.profile[1, 32](*arrays())
    workers = Simulator.current()._workers
    assert workers["graded"].process.pid != workers["counted"].process.pid


HEAP = """
struct Node { int value; Node* next; };
__global__ void build(Node** head)
{
    for (int j = 0; j < 4; ++j) {
        Node* node = (Node*)malloc(sizeof(Node));
        *node = {j, *head};
        *head = node;
    }
}
__global__ void walk(Node* const* head, float* y)
{
    float sum = 0;
    for (const Node* node = *head; node; node = node->next) sum += node->value;
    y[threadIdx.x] = sum;
}
__global__ void take_away(Node** head)
{
    for (Node* node = *head; node;) {
        Node* next = node->next;
        free(node);
        node = next;
    }
}
__global__ void spoil(long* at, long next, long used)
{
    if (at[0] == 0) at[0] = (long)malloc(16);
    free((void*)at[0]);
    *(long*)at[0] = next;
    if (used) *(long*)(at[0] - 16 - (64 << 10)) = used;
}
__global__ void allocate(long* at, int n)
{
    for (int j = 0; j < n; ++j) at[j] = (long)malloc(16);
}
"""


@pytest.fixture
def heap() -> Iterator[cuda.Kernels]:
    Simulator.current().close()
    yield cuda.compile_all(HEAP, graded=True, backend="simulator")
    Simulator.current().close()


def test_what_a_kernel_allocates_is_there_in_plain_and_in_counted_launches(heap: cuda.Kernels) -> None:
    for build, others in (
        (heap.build, (heap.walk.profile, heap.walk.check)),
        (heap.build.profile, (heap.walk, heap.walk.check)),
    ):
        head = np.zeros(1, np.int64)
        build[1, 1](head)
        for walk in others:
            y = np.zeros(4, np.float32)
            walk[1, 4](head, y)
            assert y.tolist() == [6, 6, 6, 6]
        heap.take_away.profile[1, 1](head)
    again = np.zeros(4, np.int64)
    heap.allocate[1, 1](again, 4)
    assert head[0] in again


@pytest.mark.parametrize("wild", [8, 4096, 1 << 40, -16, "arena"])
def test_a_counted_launch_trusts_nothing_that_a_plain_one_left_in_the_heap(heap: cuda.Kernels, wild: int | str) -> None:
    at, found = np.zeros(1, np.int64), np.zeros(3, np.int64)
    heap.spoil[1, 1](at, Simulator.current().arena_address if wild == "arena" else wild, 0)
    profile = heap.allocate.profile[1, 1](found, 3)
    assert profile.global_store_requests == 3
    assert ((found - at[0] >= 0) & (found - at[0] < 64 << 20)).all()
    heap.spoil[1, 1](at, 0, -16 if wild == "arena" else 16 * int(wild) + (1 << 30))
    heap.allocate.profile[1, 1](found, 3)
    assert found[1:].tolist() == [0, 0]


def test_a_kernel_cannot_touch_what_is_kept_about_the_heap(heap: cuda.Kernels) -> None:
    with pytest.raises(cuda.CudaKernelError):
        heap.spoil.profile[1, 1](np.zeros(1, np.int64), 0, 1)
