"""Ways to read, write and keep data that gcc or a library hides from the hooks: counted all the same, or an error.

Every kernel has each thread read the whole of x, 256 floats, and store one number. How many requests that takes depends
on their width; that all 1,024 bytes are read does not.
"""

# ruff: noqa: E501 - a route reads best on one line

from __future__ import annotations

import numpy as np
import pytest

from mlsys_labkit import cuda

pytestmark = pytest.mark.usefixtures("checked_kernels")

SUM = "float s = 0; for (int j = 0; j < 256; ++j) s += b[j]; y[threadIdx.x] = s;"
BIG = "struct Big { float v[256]; };\n"
SUM_OF = "{ float s = 0; for (float each : a.v) s += each; return s; }\n"

# name, what stands before the kernel, its body, requests for a warp's loads
ROUTES = [
    ("memcpy", "", "float b[256]; memcpy(b, x, 1024); " + SUM, 64),
    ("memmove", "", "float b[256]; memmove(b, x, 1024); " + SUM, 64),
    ("std::copy", "#include <algorithm>\n", "float b[256]; std::copy(x, x + 256, b); " + SUM, 64),
    (
        "short std::copy",
        "#include <algorithm>\n",
        "float b[256]; for (int j = 0; j < 256; j += 8) std::copy(x + j, x + j + 8, b + j); " + SUM,
        64,
    ),
    ("std::copy_backward", "#include <algorithm>\n", "float b[256]; std::copy_backward(x, x + 256, b + 256); " + SUM, 64),
    ("struct", BIG, "Big c = *(const Big*)x; float* b = c.v; " + SUM, 256),
    ("struct by value", BIG + "__device__ float sum(Big a) " + SUM_OF, "y[threadIdx.x] = sum(*(const Big*)x);", 256),
    ("struct returned", BIG + "__device__ Big get(const Big* a) { return *a; }\n", "Big c = get((const Big*)x); float* b = c.v; " + SUM, 256),
    ("captured", BIG, "auto sum = [a = *(const Big*)x] " + SUM_OF + " ; y[threadIdx.x] = sum();", 256),
    ("memcmp", "", "float b = 1; int c = 0; for (int j = 0; j < 256; ++j) c += memcmp(x + j, &b, 4) == 0; y[threadIdx.x] = c;", 256),
    ("std::equal", "#include <algorithm>\n", "const int* p = (const int*)x; y[threadIdx.x] = 256 * std::equal(p, p + 128, p + 128);", 64),
]  # fmt: skip
KERNEL = "__global__ void k(const float* x, float* y) {{ {0} }}"


@pytest.mark.parametrize(
    ("before", "body", "requests"), [route[1:] for route in ROUTES], ids=[route[0] for route in ROUTES]
)
def test_whichever_way_it_reads_is_counted(before: str, body: str, requests: int) -> None:
    kernel = cuda.compile(before + KERNEL.format(body), backend="simulator", graded=True)
    x, y = np.ones(256, np.float32), np.zeros(32, np.float32)
    profile = kernel.profile[1, 32](x, y)
    assert y.tolist() == [256] * 32
    assert (profile.bytes_read, profile.global_load_requests) == (1024, requests)
    assert (profile.bytes_written, profile.global_store_requests) == (128, 1)


def test_constant_memory_is_no_scratch_memory() -> None:
    """Its loads are not counted, so only the host may store there."""
    source = "__constant__ float c[256];\n" + KERNEL.format(
        "\n float* b = (float*)c; for (int j = threadIdx.x; j < 256; j += 32)\n b[j] = x[j];\n __syncthreads(); " + SUM
    )
    kernel = cuda.compile(source, backend="simulator", graded=True)
    arguments = np.ones(256, np.float32), np.zeros(32, np.float32)
    with pytest.raises(cuda.CudaKernelError) as caught:
        kernel.profile[1, 32](*arguments)
    for finding in (caught.value.findings[0], kernel.check[1, 32](*arguments)[0]):
        assert (finding.kind, finding.line) == ("out_of_bounds", 4)
        assert "__constant__ is read only" in finding.message


def test_the_pointer_to_a_virtual_table_is_stored() -> None:
    source = """struct One { virtual int get() { return 1; } };
    struct Two : One { int get() override { return 2; } };
    __global__ void k(const float* x, float* y) {
        __shared__ alignas(8) char room[32 * 8];
        void* at = room + 8 * threadIdx.x;
        if (x[0] > 0) new (at) One; else new (at) Two;
        __syncthreads();
        y[threadIdx.x] = ((One*)(room + 8 * (31 - threadIdx.x)))->get();
    }"""
    kernel = cuda.compile(source, backend="simulator")
    x, y = np.ones(1, np.float32), np.zeros(32, np.float32)
    profile = kernel.profile[1, 32](x, y)
    assert y.tolist() == [1] * 32
    assert (profile.total("shared", "store", "requests"), profile.total("shared", "load", "requests")) == (1, 1)
    assert kernel.check[1, 32](x, y) == []
    assert kernel.check[1, 32](-x, y) == []


# Messages about a pointer outside every array

WILD = [
    ("float* p = nullptr; p[threadIdx.x] = x[0];", "the pointer is null"),
    ("float* p = (float*)0x123456789000; y[0] = p[0];", "address 0x123456789000, where there is no memory"),
    ("y[threadIdx.x * 50000 * 50000] = 1;", "elements of 4 bytes"),
]


@pytest.mark.parametrize(("body", "said"), WILD, ids=["null", "no array", "an int that overflowed"])
def test_an_address_far_from_every_array_is_not_an_index(body: str, said: str) -> None:
    kernel = cuda.compile(KERNEL.format(body), backend="simulator")
    findings = kernel.check[1, 32](np.zeros(256, np.float32), np.zeros(32, np.float32))
    assert findings[0].kind == "out_of_bounds"
    assert said in findings[0].message


def test_an_index_that_is_far_out_is_the_launchs_own_beside_another_array() -> None:
    """Arrays lie 8 GiB apart, and this index leads 10 GB on from y: behind an array that the launch does not get."""
    pages = (41, 43, 47)  # no other test has such sizes, so that the three follow each other
    x, y, other = (cuda.zeros(1024 * count) for count in pages)
    kernel = cuda.compile(KERNEL.format("y[threadIdx.x * 50000 * 50000] = 1;"), backend="simulator")
    findings = kernel.check[1, 32](x, y)
    assert "elements of 4 bytes" in findings[0].message
    assert other.numpy().max() == 0


def test_a_misaligned_access_is_the_only_finding() -> None:
    """The processor faults on it, too, but cannot name line and element."""
    kernel = cuda.compile(KERNEL.format("float4 v = *(const float4*)(x + 1); y[0] = v.x;"), backend="simulator")
    (finding,) = kernel.check[1, 1](np.zeros(256, np.float32), np.zeros(32, np.float32))
    assert (finding.kind, finding.array, finding.offset) == ("misaligned", "x", 4)


def test_a_misaligned_copy_to_shared_memory_is_not_said_to_be_global() -> None:
    copy = "int at = threadIdx.x + 2; __pipeline_memcpy_async(tile + at, x, 16); __pipeline_commit();"
    body = "__shared__ alignas(16) float tile[64]; " + copy + " __pipeline_wait_prior(0); y[0] = tile[2];"
    kernel = cuda.compile("#include <cuda_pipeline.h>\n" + KERNEL.format(body), backend="simulator")
    (finding,) = kernel.check[1, 1](np.zeros(256, np.float32), np.zeros(32, np.float32))
    assert finding.kind == "misaligned"
    assert finding.message.endswith("writes 16 bytes at byte 8 of tile, an address that is not a multiple of 16")
