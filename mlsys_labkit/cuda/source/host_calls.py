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

_NOT_ONLY_HOSTS = frozenset(
    [
        "__device__",
        "__global__",
        "constexpr",
        "consteval",
        "auto",
        "struct",
        "class",
        "union",
        "enum",
        "using",
        "typedef",
        "template",
        "friend",
        "extern",
    ]
)
_HEADERS = Path(__file__).parent.parent / "program" / "native" / "include" / "lk" / "host"
_DEVICE_MACRO = re.compile(r"#[ \t]*define[ \t]+(\w+)\b.*\b__(?:device|global)__", re.DOTALL)
_DECLARED = re.compile(r"\b(?:cuda|cublas|cufft|curand|cusparse)[A-Z]\w*(?=[(,])")
# Declared __device__ as well (cuda_device_runtime_api.h): nvcc takes them, and here they return cudaErrorNotSupported.
_DEVICES_TOO = re.compile(
    r"cuda(?:Malloc|Free|Get(?:Device|DeviceCount|LastError|ErrorName|ErrorString|ParameterBuffer(?:V2)?)|PeekAtLastError"
    r"|DeviceGet(?:Attribute|Limit|CacheConfig|SharedMemConfig)|RuntimeGetVersion|FuncGetAttributes|LaunchDevice(?:V2)?"
    r"|Mem(?:cpy|set)(?:2D|3D)?Async|Stream(?:CreateWithFlags|Destroy|WaitEvent)"
    r"|Event(?:CreateWithFlags|Destroy|Record|RecordWithFlags)|OccupancyMaxActiveBlocksPerMultiprocessor(?:WithFlags)?"
    r"|GridDependencySynchronize|TriggerProgrammaticLaunchCompletion|CG\w+|Graph\w+|GetCurrentGraphExec)"
)


# Of the standard library, and neither constexpr in C++17 nor known to nvcc on the device.
_STANDARD = frozenset(
    [
        "vector",
        "string",
        "map",
        "set",
        "list",
        "deque",
        "unordered_map",
        "unordered_set",
        "multimap",
        "stack",
        "queue",
        "priority_queue",
        "sort",
        "stable_sort",
        "partial_sort",
        "nth_element",
        "reverse",
        "rotate",
        "shuffle",
        "accumulate",
        "partial_sum",
        "iota",
        "cout",
        "cerr",
        "endl",
        "to_string",
        "stoi",
        "stof",
        "getline",
        "thread",
        "mutex",
        "lock_guard",
        "async",
        "shared_ptr",
        "unique_ptr",
        "make_shared",
        "make_unique",
        "function",
        "mt19937",
        "random_device",
        "uniform_int_distribution",
        "uniform_real_distribution",
        "normal_distribution",
        "ifstream",
        "ofstream",
        "stringstream",
    ]
)


def host_calls(source: Source, file: str = "", others: Sequence[Source] = ()) -> list[Diagnostic]:
    """Return each use of what only the host has, in a kernel or a ``__device__`` function.

    That is a function of CUDA's libraries for the host, a function of the program that is marked for neither and is not
    constexpr, and what the standard library has for the host alone. ``others`` are the other files of the program.

    Nothing is reported for a body with an ``#if``, because a part of it may be for the host, or for a ``__host__
    __device__`` function, for which nvcc only warns.

    Example:
        >>> print(host_calls(Source("__global__ void k(int* p) { cudaMemcpy(p, p, 4, cudaMemcpyDefault); }"))[0].text)
        calling a __host__ function("cudaMemcpy") from a __global__ function("k") is not allowed

    Reference: CUDA C++ programming guide, "Function execution space specifiers" and "Device-side runtime".
    """
    code = source.code
    own = _own_host_functions([source, *others])
    found = []
    for function in device_functions(source):
        if function.has_conditions or function.is_hosts_too:
            continue
        for index in range(function.opening + 1, function.closing):
            standard = _is_standard(code, index)
            if standard or (_is_host_call(code, index, own) and not _is_redeclared(code, function.opening, index)):
                line, called = code[index].line, "std::" * standard + code[index].text
                caller = f'{function.kind} function("{function.name}")'
                what = f'calling a __host__ function("{called}") from a {caller} is not allowed'
                found.append(Diagnostic(line, 0, what, source.lines[line - 1].strip(), file))
    return found


@cache
def _host_functions() -> frozenset[str]:
    names = {name for path in _HEADERS.glob("*.h") for name in _DECLARED.findall(path.read_text(encoding="utf-8"))}
    return frozenset(name for name in names if not _DEVICES_TOO.fullmatch(name))


def _own_host_functions(sources: Sequence[Source]) -> frozenset[str]:
    """Return the names of functions of which every declaration is for the host; a macro's name is none."""
    host: set[str] = set()
    other: set[str] = set()
    not_only_hosts = _NOT_ONLY_HOSTS.union(*map(_device_macros, sources))
    for source in sources:
        other |= source.macros
        code, index, first = source.code, 0, 0
        while index < len(code):
            text = code[index].text
            if text == "{":
                words = {token.text for token in code[first:index]}
                if words & {"namespace", "extern"} and "(" not in words:
                    first = index + 1
                else:
                    index = source.closing[index]
                    first = index + 1
            elif text in (";", "}"):
                first = index + 1
            elif text == "(":
                behind = source.closing[index] + 1
                has_body = behind < len(code) and code[behind].text == "{"
                words = {token.text for token in code[first:index]}
                is_host = has_body and index - first > 1 and not words & not_only_hosts
                (host if is_host and code[index - 1].kind == "identifier" else other).add(code[index - 1].text)
                index = source.closing[index]
            index += 1
    return frozenset(host - other)


def _device_macros(source: Source) -> set[str]:
    """Return the macros that stand for ``__device__``, such as one for ``__host__ __device__ inline``."""
    found = (_DEVICE_MACRO.match(one.text) for one in source.tokens if one.kind == "directive")
    return {one[1] for one in found if one}


def _is_redeclared(code: Sequence[Token], begin: int, index: int) -> bool:
    """Return whether the function's body declares a variable, such as a lambda, with the name at ``index``."""
    name = code[index].text
    return any(
        code[at].text == name
        and (code[at - 1].kind == "identifier" or code[at - 1].text in ("&", "*", ">"))
        and code[at - 1].text not in ("return", "else", "do")
        and code[at + 1].text in ("=", "{", ";", ",")
        for at in range(begin, index)
    )


def _is_standard(code: Sequence[Token], index: int) -> bool:
    before = [token.text for token in code[index - 2 : index]]
    return code[index].text in _STANDARD and before == ["std", "::"] and code[index - 3].text not in ("::", "<", ",")


def _is_host_call(code: Sequence[Token], index: int, own: frozenset[str]) -> bool:
    if (code[index].text not in own and code[index].text not in _host_functions()) or code[index + 1].text != "(":
        return False
    before = code[index - 1]  # after these it is a declaration, a member or a name of a namespace
    return before.text not in (".", "->", "::", "*", "&") and (before.kind != "identifier" or before.text == "return")
