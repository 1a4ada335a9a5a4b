"""Textures and surfaces in whole programs: how they address, filter and convert, against values worked out by hand."""

from __future__ import annotations

import pytest

from mlsys_labkit.cuda import CudaCompileError
from tests.cuda.program_helpers import run

# Prints f(texture, i) for i = 0 ... 9. The texture holds 10, 20, 30, 40 in each of three rows, plus the
# row's number, and 100 for each layer.
PROGRAM = """#include <cstdio>
#define CHECK(call) do { if (cudaError_t e = (call)) std::printf("%s ", cudaGetErrorName(e)); } while (0)
__global__ void look(float* out, cudaTextureObject_t t) { int i = threadIdx.x; out[i] = FETCH; }
int main() {
  const int width = 4, height = 3, layers = 2;
  TYPE h[layers][height][width];
  for (int l = 0; l < layers; l++) for (int y = 0; y < height; y++)
    for (int x = 0; x < width; x++) h[l][y][x] = 10 * (x + 1) + y + 100 * l;
  cudaTextureDesc how = {};
  for (auto& mode : how.addressMode) mode = cudaAddressModeClamp;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<TYPE>();
  cudaResourceDesc from = {};
  cudaTextureObject_t texture = 0;
  cudaArray_t array = nullptr; void* memory = nullptr;
  HOW
  CHECK(cudaCreateTextureObject(&texture, &from, &how, nullptr));
  float *d, out[10];
  cudaMalloc(&d, sizeof out);
  look<<<1, 10>>>(d, texture);
  CHECK(cudaMemcpy(out, d, sizeof out, cudaMemcpyDeviceToHost));
  for (float one : out) std::printf("%g ", one);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(d)); CHECK(cudaFree(memory)); CHECK(cudaFreeArray(array));
}
"""
ARRAY = """CHECK(cudaMallocArray(&array, &format, width, height));
  CHECK(cudaMemcpy2DToArray(array, 0, 0, h, sizeof h[0][0], sizeof h[0][0], height, cudaMemcpyHostToDevice));
  from.resType = cudaResourceTypeArray; from.res.array.array = array; """
LAYERS = """CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(width, height, layers), FLAGS));
  cudaMemcpy3DParms copy = {}; copy.srcPtr = make_cudaPitchedPtr(h, sizeof h[0][0], width, height);
  copy.dstArray = array; copy.extent = make_cudaExtent(width, height, layers); copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&copy)); from.resType = cudaResourceTypeArray; from.res.array.array = array; """
BOX, LAYERED = LAYERS.replace("FLAGS", "0"), LAYERS.replace("FLAGS", "cudaArrayLayered")
LINEAR = """CHECK(cudaMalloc(&memory, sizeof h[0])); cudaMemcpy(memory, h, sizeof h[0], cudaMemcpyHostToDevice);
  from.resType = cudaResourceTypeLinear; from.res.linear.devPtr = memory; from.res.linear.desc = format;
  from.res.linear.sizeInBytes = 6 * sizeof(TYPE); """
PITCHED = """size_t pitch; CHECK(cudaMallocPitch(&memory, &pitch, sizeof h[0][0], height));
  cudaMemcpy2D(memory, pitch, h, sizeof h[0][0], sizeof h[0][0], height, cudaMemcpyHostToDevice);
  from.resType = cudaResourceTypePitch2D; from.res.pitch2D.devPtr = memory; from.res.pitch2D.desc = format;
  from.res.pitch2D.width = width; from.res.pitch2D.height = height; from.res.pitch2D.pitchInBytes = pitch; """
FLAT = ARRAY.replace("width, height)", "width, 0)").replace("sizeof h[0][0], height,", "sizeof h[0][0], 1,")
SMOOTH = "how.filterMode = cudaFilterModeLinear; "
UNIT = "how.normalizedCoords = 1; "


def _values(fetch: str, how: str, kind: str = "float") -> list[float]:
    source = PROGRAM.replace("FETCH", fetch).replace("HOW", how).replace("TYPE", kind)
    result = run(source, check=True)
    assert (result.findings, result.notes, result.stopped) == ((), (), "")
    return [float(word) for word in result.stdout.split()]


@pytest.mark.parametrize(
    ("fetch", "how", "expected"),
    [
        ("tex1Dfetch<float>(t, i - 1)", LINEAR, [0, 10, 20, 30, 40, 11, 21, 0, 0, 0]),
        ("tex1D<float>(t, i - 2)", FLAT, [10, 10, 10, 20, 30, 40, 40, 40, 40, 40]),
        ("tex1D<float>(t, 0.5f + i * 0.25f)", FLAT + SMOOTH, [10, 12.5, 15, 17.5, 20, 22.5, 25, 27.5, 30, 32.5]),
        ("tex2D<float>(t, i % 4, i / 4)", ARRAY, [10, 20, 30, 40, 11, 21, 31, 41, 12, 22]),
        ("tex2D<float>(t, i % 4, i / 4)", PITCHED, [10, 20, 30, 40, 11, 21, 31, 41, 12, 22]),
        ("tex2D<float>(t, 1, i * 0.25f)", PITCHED + SMOOTH, [15, 15, 15, 15.25, 15.5, 15.75, 16, 16.25, 16.5, 16.75]),
        ("tex3D<float>(t, i % 4, i % 3, i / 5)", BOX, [10, 21, 32, 40, 11, 122, 130, 141, 112, 120]),
        ("tex3D<float>(t, 1, 0.5f, i * 0.2f)", BOX + SMOOTH, None),
        ("tex2DLayered<float>(t, i % 4, 1, i / 4)", LAYERED,
         [11, 21, 31, 41, 111, 121, 131, 141, 111, 121]),
        ("tex2Dgather<float4>(t, 2, 1).x * 1e4f + tex2Dgather<float4>(t, 2, 1).z", ARRAY, [210030] * 10),
    ],
)  # fmt: skip
def test_fetches(fetch: str, how: str, expected: list[float] | None) -> None:
    between = [15 + 100 * min(max(round((0.2 * i - 0.5) * 256) / 256, 0), 1) for i in range(10)]
    assert _values(fetch, how) == pytest.approx(expected or between, rel=1e-5)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("Wrap", [30, 40, 10, 20, 30, 40, 10, 20, 30, 40]),
        ("Mirror", [20, 10, 10, 20, 30, 40, 40, 30, 20, 10]),
        ("Clamp", [10, 10, 10, 20, 30, 40, 40, 40, 40, 40]),
        ("Border", [0, 0, 10, 20, 30, 40, 0, 0, 0, 0]),
    ],
)
def test_modes_of_addressing(mode: str, expected: list[float]) -> None:
    how = f"{FLAT}{UNIT} how.addressMode[0] = cudaAddressMode{mode}; "
    assert _values("tex1D<float>(t, (i - 2 + 0.5f) / 4)", how) == expected


def test_fractions_of_a_filter_have_eight_bits() -> None:
    values = _values("tex1D<float>(t, 0.5f + i / 1024.0f)", FLAT + SMOOTH)
    assert values == pytest.approx([10 + 10 * int(i / 4 + 0.5) / 256 for i in range(10)], rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "most"), [("unsigned char", 255), ("signed char", 127), ("short", 32767), ("unsigned short", 65535)]
)
def test_integers_are_read_as_they_are_or_as_fractions(kind: str, most: int) -> None:
    assert _values(f"tex1D<{kind}>(t, i)", FLAT, kind)[:4] == [10, 20, 30, 40]
    scaled = _values("tex1D<float>(t, i)", f"{FLAT} how.readMode = cudaReadModeNormalizedFloat;", kind)
    assert scaled[:4] == pytest.approx([value / most for value in (10, 20, 30, 40)], rel=1e-5)


def test_a_cube_map_is_read_by_direction() -> None:
    source = """#include <cstdio>
__global__ void look(float* out, cudaTextureObject_t t) {
  const float d[7][3] = {{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}, {3, 2, -2}};
  int i = threadIdx.x; out[i] = texCubemap<float>(t, d[i][0], d[i][1], d[i][2]);
}
int main() {
  float h[6][2][2], *d, out[7];
  for (int i = 0; i < 24; i++) (&h[0][0][0])[i] = 10 * (i / 4) + i % 4;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>(); cudaArray_t array;
  cudaMalloc3DArray(&array, &format, make_cudaExtent(2, 2, 6), cudaArrayCubemap);
  cudaMemcpy3DParms copy = {}; copy.srcPtr = make_cudaPitchedPtr(h, 8, 2, 2); copy.dstArray = array;
  copy.extent = make_cudaExtent(2, 2, 6); copy.kind = cudaMemcpyHostToDevice; cudaMemcpy3D(&copy);
  cudaResourceDesc from = {}; from.resType = cudaResourceTypeArray; from.res.array.array = array;
  cudaTextureDesc how = {}; how.normalizedCoords = 1; cudaTextureObject_t texture;
  cudaCreateTextureObject(&texture, &from, &how, nullptr); cudaMalloc(&d, sizeof out);
  look<<<1, 7>>>(d, texture); cudaMemcpy(out, d, sizeof out, cudaMemcpyDeviceToHost);
  for (float one : out) std::printf("%g ", one);
}"""
    # The middle of a face is where its four elements meet, at (1, 1).
    # (3, 2, -2): s = 2 / 3 right, t = -2 / 3 up, so (1, 0).
    assert run(source).stdout.split() == ["3", "13", "23", "33", "43", "53", "1"]


SURFACE = """#include <cstdio>
__global__ void put(cudaSurfaceObject_t s) {
  int x = threadIdx.x % 4, y = threadIdx.x / 4;
  surf2Dwrite(10 * x + y, s, x * int(sizeof(int)), y BOUNDARY);
}
__global__ void take(cudaSurfaceObject_t s, int* out) {
  int x = threadIdx.x % 4, y = threadIdx.x / 4;
  surf2Dread(out + threadIdx.x, s, x * 4, y, cudaBoundaryModeZero);
}
int main() {
  cudaChannelFormatDesc format = cudaCreateChannelDesc<int>(); cudaArray_t array;
  cudaMallocArray(&array, &format, 4, 3, cudaArraySurfaceLoadStore);
  cudaResourceDesc from = {}; from.resType = cudaResourceTypeArray; from.res.array.array = array;
  cudaSurfaceObject_t s; if (cudaCreateSurfaceObject(&s, &from)) std::puts("no surface");
  int *d, out[16]; cudaMalloc(&d, sizeof out);
  PUT take<<<1, 16>>>(s, d);
  std::printf("%s ", cudaGetErrorName(cudaMemcpy(out, d, sizeof out, cudaMemcpyDeviceToHost)));
  for (int one : out) std::printf("%d ", one);
  cudaDestroySurfaceObject(s); cudaFreeArray(array); cudaFree(d);
}"""


def test_surfaces_are_written_and_read() -> None:
    result = run(SURFACE.replace("BOUNDARY", "").replace("PUT", "put<<<1, 12>>>(s);"), check=True)
    assert not result.findings
    assert result.stdout == "cudaSuccess 0 10 20 30 1 11 21 31 2 12 22 32 0 0 0 0 "


@pytest.mark.parametrize(
    ("boundary", "put", "kinds"),
    [
        ("", "put<<<1, 13>>>(s);", {"trap"}),
        (", cudaBoundaryModeZero", "put<<<1, 13>>>(s);", set()),
        ("", "", {"uninitialized_global"}),
        ("", "put<<<2, 12>>>(s);", set()),
        ("* 0", "put<<<1, 12>>>(s);", {"global_race", "uninitialized_global"}),
    ],
)
def test_mistakes_with_surfaces_are_found(boundary: str, put: str, kinds: set[str]) -> None:
    result = run(SURFACE.replace("BOUNDARY", boundary).replace("PUT", put), check=True)
    assert {one.kind for one in result.findings} == kinds


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (FLAT.replace("TYPE", "int") + SMOOTH, "cudaErrorInvalidFilterSetting"),
        (FLAT + "how.readMode = cudaReadModeNormalizedFloat;", "cudaErrorInvalidNormSetting"),
        (PITCHED + "from.res.pitch2D.pitchInBytes = 40;", "cudaErrorInvalidValue"),
        (LINEAR + "from.res.linear.devPtr = h;", "cudaErrorInvalidValue"),
        (ARRAY.replace("0, 0, h", "4, 0, h"), "cudaErrorInvalidValue"),
    ],
)
def test_a_texture_that_cannot_be_is_refused(how: str, said: str) -> None:
    result = run(PROGRAM.replace("FETCH", "0").replace("HOW", how).replace("TYPE", "int"))
    assert result.stdout.split()[0] == said


def test_texture_references_are_refused_by_name() -> None:
    with pytest.raises(CudaCompileError, match=r"line 1: texture references are no longer in CUDA \(since 12\)"):
        run("texture<float, 2> t;\nint main() {}")
