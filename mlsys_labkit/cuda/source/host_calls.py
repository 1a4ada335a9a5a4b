"""Calls of the host's libraries inside kernels, which g++ would let pass and nvcc refuses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mlsys_labkit.cuda.errors import Diagnostic
from mlsys_labkit.cuda.source.functions import device_functions
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.tokens import Token

_HEADERS = Path(__file__).parent.parent / "program" / "native" / "include" / "lk" / "host"
_DECLARED = re.compile(r"\b(?:cuda|cublas|curand)[A-Z]\w*(?=\()")
# Declared __device__ as well (cuda_device_runtime_api.h): nvcc takes them, and here they return cudaErrorNotSupported.
_DEVICES_TOO = re.compile(
    r"cuda(?:Malloc|Free|Get(?:Device|DeviceCount|LastError|ErrorName|ErrorString|ParameterBuffer(?:V2)?)|PeekAtLastError"
    r"|DeviceGet(?:Attribute|Limit|CacheConfig|SharedMemConfig)|RuntimeGetVersion|FuncGetAttributes|LaunchDevice(?:V2)?"
    r"|Mem(?:cpy|set)(?:2D|3D)?Async|Stream(?:CreateWithFlags|Destroy|WaitEvent)"
    r"|Event(?:CreateWithFlags|Destroy|Record|RecordWithFlags)|OccupancyMaxActiveBlocksPerMultiprocessor(?:WithFlags)?"
    r"|GridDependencySynchronize|TriggerProgrammaticLaunchCompletion|CG\w+|Graph\w+|GetCurrentGraphExec)"
)


def host_calls(source: Source, file: str = "") -> list[Diagnostic]:
    """Return each call of a function of CUDA's libraries for the host, in a kernel or a ``__device__`` function.

    Nothing is reported for a body with an ``#if``, because a part of it may be for the host, or for a ``__host__
    __device__`` function, for which nvcc only warns.

    Example:
        >>> print(host_calls(Source("__global__ void k(int* p) { cudaMemcpy(p, p, 4, cudaMemcpyDefault); }"))[0].text)
        calling a __host__ function("cudaMemcpy") from a __global__ function("k") is not allowed

    Reference: CUDA C++ programming guide, "Function execution space specifiers" and "Device-side runtime".
    """
    code = source.code
    found = []
    for function in device_functions(source):
        if function.has_conditions or function.is_hosts_too:
            continue
        for index in range(function.opening + 1, function.closing):
            if _is_host_call(code, index):
                line, called = code[index].line, code[index].text
                caller = f'{function.kind} function("{function.name}")'
                what = f'calling a __host__ function("{called}") from a {caller} is not allowed'
                found.append(Diagnostic(line, 0, what, source.lines[line - 1].strip(), file))
    return found


@cache
def _host_functions() -> frozenset[str]:
    names = {name for path in _HEADERS.glob("*.h") for name in _DECLARED.findall(path.read_text(encoding="utf-8"))}
    return frozenset(name for name in names if not _DEVICES_TOO.fullmatch(name))


def _is_host_call(code: Sequence[Token], index: int) -> bool:
    if code[index].text not in _host_functions() or code[index + 1].text != "(":
        return False
    before = code[index - 1]  # after these it is a declaration, a member or a name of a namespace
    return before.text not in (".", "->", "::", "*", "&") and (before.kind != "identifier" or before.text == "return")
