"""Checks of a graded kernel: of its text with macros expanded, and of the compiled module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlsys_labkit.cuda.errors import Diagnostic, GradedError
from mlsys_labkit.cuda.kernel.gcc import compiler
from mlsys_labkit.cuda.kernel.gcc.indirect import computed_calls
from mlsys_labkit.cuda.kernel.gcc.symbols import demangle, read_symbols
from mlsys_labkit.cuda.kernel.gcc.toolchain import Toolchain
from mlsys_labkit.cuda.kernel.gcc.unit import Unit
from mlsys_labkit.cuda.source.graded_rules import violations
from mlsys_labkit.cuda.source.source import Source

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.MULTILINE)
_MARKER = re.compile(r'^# (\d+) "([^"]*)"')
_OURS = re.compile(r"lk_(?:run_\d+|describe_\d+|cluster_\d+|kernel_count|shared_anchor|dynamic_shared)")
_RESERVED = re.compile(r"_*(?:lk|tsan|ubsan|sanitizer|sancov)_|__(?:cyg_profile|mcount|fentry)|_start$|main$")
# Symbols that a module may import: the simulator, the loader, the mathematical functions that take and return
# numbers, and what gcc itself calls for arithmetic and for copies of structs (their accesses are recorded before).
_LOADER = r"_DYNAMIC|_GLOBAL_OFFSET_TABLE_|_ITM_\w+|__gmon_start__|__cxa_finalize|__cxa_atexit|__dso_handle"
_COMPILER = (
    r"__tls_get_addr|_TLS_MODULE_BASE_|__stack_chk_fail|_Unwind_Resume|abort"
    r"|__gxx_personality_v0|__cxa_pure_virtual|mem(?:cpy|set|move|cmp)|_ZSt\d+__throw_\w+"
    r"|__(?:trunc|extend|float|fix)\w+|__(?:u?div|u?mod|mul|add|sub|neg|ashl|ashr|lshr|popcount|clz|ctz)[a-z]*[sdt][ifc][23]"
    r"|__(?:mul|div|pow)[hsdx][ci][23i]?|_ZNSt8ios_base4InitC1Ev|_ZNSt8ios_base4InitD1Ev"
)
_MATH_NAMES = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 exp10 expm1 fabs fdim floor fma
fmax fmin fmod hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround nearbyint
nextafter pow remainder rint round scalbn scalbln sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn roundeven
"""
_MATH = rf"(?:{'|'.join(_MATH_NAMES.split())})[fl]?"
_HOOKS = r"lk_\w+|__tsan_\w+|__sanitizer_cov_trace_pc|__ubsan_handle_(?:divrem_overflow|out_of_bounds)"
_WANTED = re.compile(rf"{_HOOKS}|{_LOADER}|{_COMPILER}|{_MATH}")
# g++ keeps where the caller's stack ends among the variables, which a kernel may write. Because of
# -maccumulate-outgoing-args it does so only for a stack that grows while the function runs.
_STACK_FROM_MEMORY = re.compile(r"^\s+leaq\s+-8\(%r10\), %rsp", re.MULTILINE)
_INITIALISER = re.compile(
    r"^\s*\.section\s+\.(?:init_array|ctors|preinit_array)[^\n]*\n(?:\s*\.(?!quad|xword|dword)[^\n]*\n)*"
    r"\s*\.(?:quad|xword|dword)\s+([\w.$]+)",
    re.MULTILINE,
)


def check_text(unit: Unit, toolchain: Toolchain, folder: Path) -> None:
    """Raise GradedError for what a graded kernel may not contain, as it stands and with its macros expanded."""
    found = [(1, one.reason) for one in violations(Source(_defines(unit)))]  # line 1 is the cell's first
    found += [(one.line, one.reason) for one in violations(unit.source)]
    if not found:
        found = [(one.line, one.reason) for one in violations(Source(_expanded(unit, toolchain, folder)))]
    if found:
        raise _refused([Diagnostic(line, 0, reason, unit.source.lines[line - 1]) for line, reason in found])


def check_module(path: Path, assembly: str) -> None:
    """Raise GradedError for a kernel.so that calls more than arithmetic, or that runs code when it is loaded."""
    undefined, defined = set(), set()
    for symbol in read_symbols(path):
        name = symbol.name.split("@")[0]
        if not name:
            continue
        if not symbol.is_defined:
            undefined.add(name)
        elif _RESERVED.match(name) and not _OURS.fullmatch(name):
            defined.add(name)
    unwanted = sorted(name for name in undefined if not _WANTED.fullmatch(name))
    found = [f"{name}: a graded kernel calls nothing outside of itself but arithmetic" for name in demangle(unwanted)]
    found += [f"{name}: this name belongs to the simulator" for name in sorted(defined)]
    if any(not name.startswith("_sub_I_00099") for name in _INITIALISER.findall(assembly)):
        found.append("a variable whose initial value has to be computed: it would run code before any kernel does")
    found += [f"{name}{rest}" for name, rest in _readable(computed_calls(assembly))]
    if _STACK_FROM_MEMORY.search(assembly):
        found.append("an array of variable size beside one aligned to more than 16 bytes: give one of them up")
    if found:
        raise _refused([Diagnostic(0, 0, text) for text in found])


def _readable(told: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Split each finding into the name that it begins with, as its author wrote it, and the rest."""
    parts = [each.partition(":") for each in told]
    return zip(demangle(name for name, _, _ in parts), (colon + rest for _, colon, rest in parts), strict=True)


def _expanded(unit: Unit, toolchain: Toolchain, folder: Path) -> str:
    """Return the source with its macros expanded, except CUDA's own. Line numbers stay the same."""
    before = f"{_defines(unit)}#define __CUDA_ARCH__ 900\n"
    text = f'{before}#line 1 "{unit.name}"\n' + _INCLUDE.sub("", unit.source.text)
    (folder / "expand.cpp").write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    try:
        compiler.run(toolchain, ["-std=gnu++17", "-E", "-w", "expand.cpp", "-o", "expand.ii"], folder)
    except compiler.CompilerFailed:
        return ""  # the compilation itself will fail with a better message
    lines: dict[int, str] = {}
    number, mine = 0, False
    for line in (folder / "expand.ii").read_text(encoding="utf-8", errors="surrogateescape").split("\n"):
        if marker := _MARKER.match(line):
            number, mine = int(marker[1]), marker[2] == unit.name
        else:
            if mine and not line.startswith("#pragma"):
                lines[number] = lines.get(number, "") + line
            number += 1
    return "\n".join(lines.get(at, "") for at in range(1, max(lines, default=0) + 1))


def _defines(unit: Unit) -> str:
    return "".join(f"#define {name} {value}\n" for name, value in unit.defines)


def _refused(diagnostics: Sequence[Diagnostic]) -> GradedError:
    return GradedError(
        "\n".join(["this kernel is graded, and graded kernels may not do this:", *map(str, diagnostics[:5])]),
        tuple(diagnostics),
    )
