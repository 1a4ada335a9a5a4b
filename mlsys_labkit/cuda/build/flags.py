"""How the two builds of a kernel are compiled, and why each flag is there."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from mlsys_labkit.cuda.build.toolchain import Toolchain

__all__ = ["INCLUDE", "Build", "compile_flags", "link_flags"]

INCLUDE = Path(__file__).parent.parent / "native" / "include"
RUNTIME = Path(__file__).parent.parent / "native" / "runtime"

_BOTH = (
    "-std=gnu++17",
    "-fPIC",
    "-w",  # nvcc does not know g++'s warnings, and a student does not need them
    "-g1",  # lines and inlined calls, no variables
    "-fno-extern-tls-init",  # a thread-local array that is declared extern is plain memory, with no initialiser to call
    "-fno-gnu-unique",  # templates' __shared__ arrays: of this module alone, and the module can be unloaded
    "-fno-exceptions",
    "-fno-math-errno",
    "-fno-strict-aliasing",  # kernels read floats as float4 and as int, and nvcc lets them
    "-fwrapv",  # as ptxas does
    "-fno-builtin-printf",  # it is bound to the simulator's, which puts would not be
    "-U_FORTIFY_SOURCE",
    "-fdiagnostics-color=never",
    "-fno-diagnostics-show-caret",
    "-fmax-errors=30",
)
_FAST = (
    "-O2",
    "-march=native",
    "-fno-trapping-math",
)
# gcc's calls to __tsan_* are the hooks. Passes that merge or copy code, or that speculate, would count accesses that
# the source does not make, or move them to lines that did not make them.
_INSTRUMENTED = (
    "-O2",
    "-fsanitize=thread",
    "-fsanitize-coverage=trace-pc",
    "--param=tsan-instrument-func-entry-exit=0",
    "-fno-code-hoisting",
    "-fno-tree-dominator-opts",
    "-fno-thread-jumps",
    "-fno-crossjumping",
    "-fno-reorder-blocks",
    "-fno-reorder-blocks-and-partition",
)


class Build(Enum):
    """``FAST`` is what a plain launch runs; ``INSTRUMENTED`` calls the hooks and serves ``check`` and ``profile``."""

    FAST = "fast"
    INSTRUMENTED = "instrumented"


def compile_flags(build: Build, toolchain: Toolchain) -> tuple[str, ...]:
    """Flags of one build. The precompiled header needs the very same."""
    own = _FAST if build is Build.FAST else _INSTRUMENTED
    return (*_BOTH, *own, f"-I{INCLUDE}", f"-I{RUNTIME}")


def link_flags() -> tuple[str, ...]:
    """Of a module. What it calls in the worker is open until it is loaded; anything else that is open is warned of."""
    return ("-shared", "-Wl,-z,now", "-Wl,--build-id=none", "-Wl,-z,defs", "-Wl,--warn-unresolved-symbols")
