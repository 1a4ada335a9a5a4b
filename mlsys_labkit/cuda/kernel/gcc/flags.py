"""Compiler and linker flags of the two builds of a kernel, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from mlsys_labkit.cuda.kernel.gcc.toolchain import Toolchain

_ROOM = Path(__file__).parents[2]
NATIVE = (_ROOM / "kernel" / "native", _ROOM / "program" / "native")
"""The kit's own C++: of kernels, and of whole programs."""
INCLUDES = tuple(folder / "include" for folder in NATIVE)
"""What ``#include <...>`` finds of the kit's: CUDA's headers, and stand-ins for the libraries that programs use."""
RUNTIME = NATIVE[0] / "runtime"

_BOTH = (
    "-std=gnu++17",
    "-fPIC",
    "-w",  # nvcc does not have g++'s warnings, and students do not need them
    "-g1",  # lines and inlined calls, no variables
    "-gdwarf-4",  # in version 5, addr2line of binutils 2.40 takes the first file of a header's code for the source
    "-fno-extern-tls-init",  # a thread-local array that is declared extern is plain memory, with no initialiser to call
    "-fno-semantic-interposition",  # so that g++ also inlines __device__ functions that are neither static nor inline
    "-fno-gnu-unique",  # templates' __shared__ arrays: of this module alone, and the module can be unloaded
    "-fno-exceptions",
    "-fno-math-errno",
    "-fno-strict-aliasing",  # kernels read floats as float4 and as int, which nvcc allows
    "-fwrapv",  # as ptxas does
    "-fno-builtin-printf",  # g++ would turn printf into puts, and only printf is the simulator's
    "-fno-crossjumping",  # lanes that call __activemask on two sides of an if are not together
    "-fno-tree-tail-merge",
    "-fno-finite-loops",  # a loop that never ends is not left out, but reported
    "-fno-optimize-sibling-calls",  # the return address identifies the caller of a barrier or a hook
    "-fstack-clash-protection",  # a large frame touches each page, so that it meets the guard below its stack
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
# gcc's calls to __tsan_* are the hooks. They go in after inlining and the elimination of (partial) redundancies
# (which keep the loads that CUDA's own compiler would keep) and before vectorisation. Each flag stops a pass that would
# break one of three promises.
_INSTRUMENTED = (
    "-O2",
    "-fsanitize=thread",
    "-fsanitize-coverage=trace-pc",
    "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",  # lanes of a warp are in step at volatile accesses
    # An access is counted on the line that makes it, and only if it is made.
    "-fno-tree-sink",  # moves a load that is made too early into the if that needs it
    "-fno-hoist-adjacent-loads",  # loads both sides of an if, whichever is taken
    "-fno-code-hoisting",  # merges equal code of different lines
    "-fno-ipa-icf",  # the same for equal functions
    "-fno-builtin-memset",  # short ones would become stores without a hook; calls of them are recorded
    "-fno-builtin-memcpy",
    "-fno-builtin-memmove",
    "-fno-builtin-memcmp",
    # A basic block of the source is one basic block, and a later one has a higher address: lanes meet by that.
    "-fno-thread-jumps",
    "-fno-tree-dominator-opts",  # threads jumps too
    "-fno-partial-inlining",
    "-fno-reorder-blocks",
    "-fno-reorder-blocks-and-partition",
    "-fno-schedule-insns",  # runs on aarch64, and takes a line's instructions into the block before
    # A basic block's floating-point instructions are those of its source.
    "-ffp-contract=off",
    "-fno-tree-vectorize",
    # An index beyond a local array, or so far beyond another one that it hits a third. gcc adds it after the hooks.
    "-fsanitize=bounds",
    # A value that nobody set is none that happens to be right.
    "-ftrivial-auto-var-init=pattern",
    # Says in the assembly how memory is aligned, for the parts of a struct's copy (gcc/copies.py).
    "-dP",
)

_AARCH64 = (
    "-fsanitize=integer-divide-by-zero",  # the processor does not trap: gcc's own check calls the hook that reports it
    "-fsigned-char",  # as on x86-64: one kernel, one result
    "-fno-section-anchors",  # arrays would be found by their distance from the first, which red zones change
    "-mno-outline-atomics",  # atomics are instructions, not calls of a library that asks the system for its processor
)
_X86_64 = (
    # Else a function that passes an argument aligned to more than 16 bytes keeps the end of its caller's stack among
    # its variables, which graded kernels may not (gcc/graded.py).
    "-maccumulate-outgoing-args",
)


class Build(Enum):
    """The two builds: a plain launch runs ``FAST``; ``INSTRUMENTED`` calls the hooks, for ``check`` and ``profile``."""

    FAST = "fast"
    INSTRUMENTED = "instrumented"


def compile_flags(build: Build, toolchain: Toolchain) -> tuple[str, ...]:
    """Return the flags of one build. Its precompiled header needs the same ones."""
    own = _FAST if build is Build.FAST else _INSTRUMENTED
    machine = _AARCH64 if toolchain.machine == "aarch64" else _X86_64
    return (*_BOTH, *own, *machine, *(f"-I{folder}" for folder in (*INCLUDES, RUNTIME)))


def hosted_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """Return the flags for kernels in a source that keeps its host code; the linker drops what is not used."""
    own = ("-ffunction-sections", "-fdata-sections", "-fvisibility=hidden")
    return (*(flag for flag in flags if flag != "-fno-exceptions"), *own)


def graded_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """Return the flags for graded kernels.

    A switch is no table of places, so every computed jump is the source's. A frame pointer lies beside each return
    address, where the worker looks for it (``guard.cpp``).
    """
    return (*flags, "-fno-jump-tables", "-fno-omit-frame-pointer")


def link_flags() -> tuple[str, ...]:
    """Return the linker's flags for a module.

    Its calls into the worker are bound when it is loaded, and read-only from then on; the linker warns of every other
    undefined symbol. A variable is the module's own, also if the C library has one of that name (``step``).
    """
    bound = ("-Wl,-z,relro,-z,now", "-Wl,-z,defs", "-Wl,-Bsymbolic", "-Wl,--warn-unresolved-symbols")
    return ("-shared", *bound, "-Wl,--build-id=none")
