"""What the simulator leaves out on purpose, by name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlsys_labkit.cuda.errors import Diagnostic
from mlsys_labkit.cuda.program.mask import mask
from mlsys_labkit.cuda.program.rewrite import device_launches

__all__ = ["left_out", "no_dynamic_parallelism"]

_FEATURES = (
    (
        r"\btexture\s*<|\bcudaTextureObject_t\b|\bcudaBindTexture\w*|\btex[123]D\w*\s*[<(]|\bcudaTextureDesc\b",
        "textures",
    ),
    (r"\bsurface\s*<|\bcudaSurfaceObject_t\b|\bsurf[123]D(?:read|write)\b", "surfaces"),
    (r"\bcudaArray_t\b|\bcudaMallocArray\b|\bcudaMalloc3DArray\b|\bcudaMemcpy3D\w*\b", "CUDA arrays"),
    (r"\bcudaGraph\w+|\bcudaStream(?:Begin|End)Capture\b", "CUDA graphs"),
    (
        r"\bcu(?:Init|DeviceGet\w*|Ctx\w+|Module\w+|LaunchKernel\w*|Mem(?:Alloc|Free|cpy)\w*|Link\w+)\s*\(",
        "the driver API",
    ),
    (r"\bnvrtc\w+\s*\(", "NVRTC"),
    (r"\bcudaIpc\w+\s*\(", "sharing memory between processes"),
    (r"\bcudaMemcpyPeer\w*|\bcudaMemcpy3DPeer\w*", "several GPUs"),
    (r"\bcudaMemPoolCreate\b|\bcudaMallocFromPoolAsync\b", "memory pools of one's own"),
    (r"\bcuda(?:Graphics|GL|EGL|Import|External)\w+", "graphics interoperability"),
    (r"\b__cluster_dims__\b|\bcudaLaunchKernelEx\w*|\bcluster_group\b", "thread block clusters"),
)
_HEADERS = (
    (r"cub/", "CUB"),
    (r"cufft", "cuFFT"),
    (r"cusparse", "cuSPARSE"),
    (r"cusolver", "cuSOLVER"),
    (r"cudnn", "cuDNN"),
    (r"cutlass|cute/", "CUTLASS"),
    (r"cublasLt", "cuBLASLt"),
    (r"nccl", "NCCL"),
    (r"npp", "NPP"),
    (r"nvml", "NVML"),
    (r"mpi\.h", "MPI"),
    (r"GL/|GLFW|glut|glew|cuda_gl_interop", "OpenGL"),
    (r"opencv", "OpenCV"),
    (r"torch/|ATen/", "PyTorch's C++ API"),
    (r"nvrtc", "NVRTC"),
)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
_ASM = re.compile(r"\basm\b\s*(?:volatile|__volatile__)?\s*\(")
_TENSOR = re.compile(r"mma\.sync|wgmma|tcgen05|ldmatrix|cp\.async\.bulk")


def left_out(text: str, file: str = "") -> list[Diagnostic]:
    """Each use of something left out, with its line, for a program that did not compile.

    Example:
        >>> [str(one) for one in left_out("cudaGraph_t graph;")]
        ['line 1: CUDA graphs: left out of the simulator; a GPU is needed: cudaGraph_t graph;']
    """
    return [
        Diagnostic(
            line,
            0,
            f"{what}: left out of the simulator; a GPU is needed",
            shown,
            file,
        )
        for line, what, shown in sorted(_uses(text))
    ]


def no_dynamic_parallelism(text: str, file: str = "") -> list[Diagnostic]:
    """Launches inside kernels, which would compile here and not run as on a GPU."""
    what = "a kernel launched by a kernel (dynamic parallelism) is left out of the simulator"
    return [Diagnostic(launch.line, 0, what, launch.text, file) for launch in device_launches(text)]


def _uses(text: str) -> Iterator[tuple[int, str, str]]:
    code = mask(text)
    lines = text.splitlines()

    def at(position: int) -> tuple[int, str]:
        line = text.count("\n", 0, position) + 1
        return line, lines[line - 1].strip()

    seen = set()
    for pattern, what in _FEATURES:
        for found in re.finditer(pattern, code):
            line, shown = at(found.start())
            if (line, what) not in seen:
                seen.add((line, what))
                yield line, what, shown
    for included in _INCLUDE.finditer(text):
        for pattern, what in _HEADERS:
            if re.match(pattern, included[1]):
                line, shown = at(included.start())
                yield line, what, shown
    for assembly in _ASM.finditer(code):
        line, shown = at(assembly.start())
        tensor = _TENSOR.search(text, assembly.start(), assembly.start() + 400)
        yield line, f"inline PTX ({tensor[0]})" if tensor else "inline PTX", shown
