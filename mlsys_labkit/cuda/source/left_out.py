"""Features that the simulator leaves out on purpose, by name, and code that g++ takes and CUDA does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from mlsys_labkit.cuda.errors import Diagnostic
from mlsys_labkit.cuda.source.kernels import kernel_headers
from mlsys_labkit.cuda.source.shared import initialized_shared
from mlsys_labkit.cuda.source.source import Source

_LEFT_OUT = ": left out of the simulator"
_FEATURES = (
    (r"\bcuda\w*Mipmapped\w*", "mipmapped arrays"),
    (r"\bcudaGraph(?:Conditional|Cond|SetConditional)\w*", "conditional nodes of CUDA graphs"),
    (r"\bcudaGraphDevice\w+|\bcudaGraphInstantiateFlagDeviceLaunch\b", "CUDA graphs launched by a kernel"),
    (r"\bcudaGraphNodeParams\b|\bcudaGraphAddNode\b", "nodes of CUDA graphs made by cudaGraphAddNode"),
    (
        r"\bcu(?:Module\w+|LaunchKernel\w*|Link\w+|Library\w+|Mem(?:Create|Map|Unmap|SetAccess|Address\w+)|Array\w+)\s*\(",
        "the driver API's modules, arrays and virtual memory",
    ),
    (r"\bnvrtc\w+\s*\(", "NVRTC"),
    (r"\bcudaIpc\w+\s*\(", "sharing memory between processes"),
    (r"\bcudaMemcpy3DPeer\w*", "several GPUs"),
    (r"\bcuda(?:Graphics|GL|EGL|Import|External)\w+", "graphics interoperability"),
    (
        r"\bcuTensorMapEncodeIm2col\w*|\bPFN_cuTensorMapEncodeIm2col\w*|\bCU_TENSOR_MAP_IM2COL_\w+"
        r"|\bcp_async_bulk_tensor_im2col\w*|\btensormap_(?:replace|cp_fenceproxy)\w*",
        "tensor maps of im2col, and those that a kernel changes",
    ),
    (
        r"\bPFN_cu(?!TensorMap(?:EncodeTiled|ReplaceAddress)|GetError(?:String|Name)|GetProcAddress)\w+",
        "the driver API's entry points",
    ),
    (
        r"\bcu(?:Tex|Surf)(?:Object|Ref)\w+\s*\(|\bCUDA_(?:RESOURCE|TEXTURE)\w*_DESC\w*|\bCUtexref\b",
        "the driver API's textures",
    ),
    (
        r"\bcurandState(?:Scrambled)?Sobol\w+|\bcurandDirectionVectors\w+|\bcurandGet(?:Direction|Scramble)\w+"
        r"|\bCURAND_(?:SCRAMBLED_)?DIRECTION_\w+",
        "cuRAND's Sobol generators",
    ),
    (r"\bcusparseSpGEMM\w*|\bCUSPARSE_SPGEMM_\w+", "cuSPARSE's products of two sparse matrices (SpGEMM)"),
    (r"\bcufftXt\w+|\bcuda(?:Lib)?XtDesc\w*|\bCUFFT_(?:XT|CB)_\w+", "cuFFT's callbacks and several GPUs (cufftXt)"),
)
# What a kernel or a program can use in place of a feature, where that runs here.
_INSTEAD = {
    "inline PTX wgmma.": "wgmma.mma_async of dense matrices of 8, 16 and 32 bits",
    "inline PTX tcgen05.": "wgmma.mma_async, mma.sync, or nvcuda::wmma",
    "inline PTX cp.async.bulk.tensor": "cp.async.bulk.tensor with .tile",
    "tensor maps of im2col": "cuTensorMapEncodeTiled",
    "the driver API's textures": "cudaCreateTextureObject, whose objects are the same",
    "cuRAND's Sobol generators": "curandState or curandStatePhilox4_32_10_t",
    "cuSPARSE's products of two sparse matrices (SpGEMM)": "a product with a dense matrix (cusparseSpMM)",
    "cuFFT's callbacks and several GPUs (cufftXt)": "a plan of cufft.h, and kernels before and behind it",
}
_REMOVED = (
    (
        r"\btexture\s*<|\bcuda(?:Unb|B)indTexture\w*|\btextureReference\b",
        "texture references are no longer in CUDA (since 12); make an object with cudaCreateTextureObject",
    ),
    (
        r"\bsurface\s*<|\bcudaBindSurface\w*|\bsurfaceReference\b",
        "surface references are no longer in CUDA (since 12); make an object with cudaCreateSurfaceObject",
    ),
)
_OF_PROGRAMS = (
    (
        "<<<",
        "kernels of this source are launched from Python, kernel[grid, block](...); "
        "a program that launches its own is for run_program or %%cu",
    ),
    (
        r"\b(?:cuda(?:Texture|Surface)Object_t|CU(?:tex|surf)Object)\b"
        r"|\btex(?:[123]D|Cube)\w*\s*[<(]|\bsurf(?:[123]D|Cube)\w+\s*[<(]",
        "textures and surfaces are for whole programs, which make them: run_program or %%cu",
    ),
)
_HEADERS = (
    (r"cufft(?!\.h|Xt\.h)", "cuFFT's part beyond cufft.h"),
    (r"cusparse(?!(?:_v2)?\.h)", "cuSPARSE's part beyond cusparse.h"),
    (r"cusolver", "cuSOLVER"),
    (r"cudnn", "cuDNN"),
    (r"cutlass|cute/", "CUTLASS"),
    (r"nccl", "NCCL"),
    (r"npp", "NPP"),
    (r"nvml", "NVML"),
    (r"mpi\.h", "MPI"),
    (r"GL/|GLFW|glut|glew|cuda_gl_interop", "OpenGL"),
    (r"opencv", "OpenCV"),
    (r"torch/|ATen/", "PyTorch's C++ API"),
    (r"nvrtc", "NVRTC"),
)
_A_SLIP = 0.8  # how alike a name and the one that g++ suggests are; others are only the nearest there is
_NAMES = (
    r"(?:cu|cuda|cublas|cufft|curand|cusparse|cusolver|cudnn|nccl|nvml)[A-Z]\w*"
    r"|CU(?:DA|BLAS|BLASLT|FFT|RAND|SPARSE|SOLVER|DNN)?_\w+"
)
_UNKNOWN = re.compile(
    rf"'({_NAMES}|(?:cub|thrust)::\w+)' (?:was not|has not been|does not) (?:declared|name)"
    r"|'(\w+)' is not a member of '(cub|thrust)'"
)
_NO_HEADER = re.compile(r"(\w*(?:cuda/|cub|thrust|cublas|cufft|curand|cusparse|cusolver)[\w/.]*): No such file")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
_RESULTS = ("int", "unsigned", "char", "bool", "short", "long", "float", "double", "size_t", "half", "__half")


def said(what: str) -> str:
    """Return the sentence that says of a feature, or of an instruction of PTX, that it is left out, and what is not."""
    other = next((other for name, other in _INSTEAD.items() if what.startswith(name)), "")
    return f"{what}{_LEFT_OUT}; a GPU is needed" + (f"; what runs here: {other}" if other else "")


def left_out(source: Source, file: str = "") -> list[Diagnostic]:
    """Return each use of something left out, with its line, for a source that did not compile.

    Example:
        >>> [str(one) for one in left_out(Source("nvrtcCreateProgram(&p);"))]
        ['line 1: NVRTC: left out of the simulator; a GPU is needed: nvrtcCreateProgram(&p);']
    """
    return [Diagnostic(line, 0, what, shown, file) for line, what, shown in sorted(_uses(source))]


def of_programs(source: Source) -> list[Diagnostic]:
    """Return what only whole programs may have, for a source of kernels alone that did not compile.

    Example:
        >>> [one.line for one in of_programs(Source("int main() {\\n  k<<<1, 32>>>();\\n}"))]
        [2]
    """
    lines = enumerate(source.masked.split("\n"), 1)
    found = [(number, what) for number, line in lines for word, what in _OF_PROGRAMS if re.search(word, line)]
    return [Diagnostic(number, 0, what, source.lines[number - 1].strip()) for number, what in found]


def shared_values(source: Source, file: str = "") -> list[Diagnostic]:
    """Return the shared variables that are given a value as they are declared, which g++ would let pass.

    Example:
        >>> [one.line for one in shared_values(Source("__shared__ int n = 0;"))]
        [1]
    """
    what = "a __shared__ variable has no initializer; let one thread assign it, then __syncthreads()"
    lines = initialized_shared(source)
    return [Diagnostic(line, 0, what, source.lines[line - 1].strip(), file) for line in lines]


def kernel_results(source: Source, file: str = "") -> list[Diagnostic]:
    """Return the kernels that are declared to return something, which a launch could not receive.

    Example:
        >>> [str(one) for one in kernel_results(Source("__global__ int k() { return 1; }"))]
        ['line 1: a __global__ function must have a void return type: __global__ int k() { return 1; }']

    Reference: CUDA C++ programming guide, "__global__".
    """
    code, found = source.code, []
    for index, name, _ in kernel_headers(code, source.closing):
        first = index
        while first and code[first - 1].text not in (";", "{", "}", ">"):
            first -= 1
        words = [one.text for one in code[first:name]]
        if "void" not in words and "auto" not in words and any(word in _RESULTS for word in words):
            line = code[name].line
            what = "a __global__ function must have a void return type"
            found.append(Diagnostic(line, 0, what, source.lines[line - 1].strip(), file))
    return found


def explained(known: Sequence[Diagnostic], complaints: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return why the compiler complains: only what is left out, once each, where that is on a line of a complaint.

    Otherwise it is what is known, and then the complaints about other lines. The compiler stops at a header that is not
    there, so that behind it nothing can be compared.

    Example:
        >>> words = "'{}' was not declared in this scope"
        >>> complaints = [Diagnostic(1, 0, words.format("cudaMipmappedArray_t")), Diagnostic(2, 0, words.format("m"))]
        >>> told = explained(left_out(Source("cudaMipmappedArray_t m;\\ng(&m);")), complaints)
        >>> [(one.line, one.text[:11]) for one in told]
        [(1, 'mipmapped a')]
    """
    places = {(one.file, one.line) for one in complaints}
    has_stopped = any("No such file" in one.text for one in complaints)
    # A header that is there, or in a part that an #if leaves out, is no cause.
    known = [one for one in known if (one.file, one.line) in places or not one.source_line.startswith("#")]
    causes = [one for one in known if has_stopped or (one.file, one.line) in places]
    causes = [one for one in causes if is_left_out(one)]
    told = [_of_library(one) for one in complaints if (one.file, one.line) not in {(c.file, c.line) for c in causes}]
    causes += [one for one in told if is_left_out(one)]
    if causes:
        return _first_uses(causes)
    lines = {(one.file, one.line) for one in known}
    return [*known[:3], *(one for one in told if (one.file, one.line) not in lines)]


def is_left_out(one: Diagnostic) -> bool:
    """Return whether the diagnostic is about a feature that cannot work here, whatever else the source says."""
    return any(words in one.text for words in (_LEFT_OUT, "no longer in CUDA", "are for whole programs"))


def _first_uses(causes: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return the first use of each feature, with the lines of its other uses in the same file."""
    first: dict[str, Diagnostic] = {}
    others: dict[str, dict[int, None]] = {}
    for one in causes:
        feature = _family(one.text)
        if feature not in first:
            first[feature], others[feature] = one, {}
        elif one.file == first[feature].file and one.line != first[feature].line:
            others[feature][one.line] = None
    return [replace(one, text=one.text + _also(list(others[feature]))) for feature, one in first.items()]


def _also(lines: Sequence[int]) -> str:
    if not lines:
        return ""
    shown = ", ".join(map(str, lines[:4])) + (", ..." if len(lines) > 4 else "")
    return f" (also in line{'s' * (len(lines) > 1)} {shown})"


def _family(text: str) -> str:
    instruction = re.match(r"inline PTX (wgmma|tcgen05|cp\.async\.bulk\.tensor)\b", text)
    return instruction[1] if instruction else text


def _of_library(complaint: Diagnostic) -> Diagnostic:
    """Return a complaint about a name of a library that has a stand-in without this name, as something left out."""
    unknown = _UNKNOWN.search(complaint.text)
    header = _NO_HEADER.search(complaint.text)
    meant = re.search(r"'(\w+)' was .*did you mean '(\w+)'", complaint.text)
    if (not unknown and not header) or (meant and SequenceMatcher(None, meant[1], meant[2]).ratio() > _A_SLIP):
        return complaint
    name = f"<{header[1]}>" if header else unknown[1] or f"{unknown[3]}::{unknown[2]}" if unknown else ""
    return replace(complaint, text=f"{name}{_LEFT_OUT}'s stand-ins for libraries; a GPU is needed")


def _uses(source: Source) -> Iterator[tuple[int, str, str]]:
    text, code = source.text, source.masked

    def at(position: int) -> tuple[int, str]:
        line = text.count("\n", 0, position) + 1
        return line, source.lines[line - 1].strip()

    seen = set()
    features = [(pattern, said(what)) for pattern, what in _FEATURES]
    for pattern, what in (*_REMOVED, *features):
        for found in re.finditer(pattern, code):
            line, shown = at(found.start())
            if (line, what) not in seen:
                seen.add((line, what))
                yield line, what, shown
    for included in _INCLUDE.finditer(text):
        for pattern, what in _HEADERS:
            if re.match(pattern, included[1]):
                line, shown = at(included.start())
                yield line, said(what), shown
