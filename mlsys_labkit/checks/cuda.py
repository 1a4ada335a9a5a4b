"""``expect_clean`` and ``expect_counters``: errors of a CUDA kernel, and its counters against theory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlsys_labkit.checks.counts import Excess, first_finding, off, read_bounds, require_type, too_few
from mlsys_labkit.checks.message import CheckError, count, failure
from mlsys_labkit.checks.passed import note_pass
from mlsys_labkit.checks.plain import type_name

if TYPE_CHECKING:
    from mlsys_labkit.cuda.counters import LineCount
    from mlsys_labkit.cuda.finding import KernelFinding
    from mlsys_labkit.cuda.kernel.kernel import Kernel
    from mlsys_labkit.cuda.profile import Profile


@dataclass(frozen=True)
class _Counter:
    """The description of a counter, and the lines of a profile that make it up. Without ``field`` no line is named."""

    meaning: str
    next_step: str
    field: str = ""
    space: str = ""
    ops: tuple[str, ...] = ()


_OPS = ("load", "store", "atomic")
_SECTORS = (
    "32 neighbouring floats are 4 sectors, a column of a matrix 32",
    "threadIdx.x should step through neighbouring elements: which index does it appear in?",
)
_REQUESTS = (
    "one request is one warp passing one access once",
    "count warps times the accesses that each of them passes, equal loads that the compiler merges as one; which is "
    "made more often than it has to be?",
)
_WAVEFRONTS = (
    "lanes of one request asked the same bank for different words",
    "take the words that the 32 lanes ask for modulo 32: let neighbouring lanes take neighbouring words, or pad the "
    "rows of the shared tile, until no two agree",
)
_TOO_FEW = (
    "fewer accesses than this exact count: some were left out, or wider ones took their place",
    "does every element get its load and its store, in accesses of the width that the task names?",
)
_BARRIER = "which barrier orders nothing?"
_BYTES = "distinct bytes of global memory"
_PLAIN: dict[str, _Counter] = {
    "bank_conflicts": _Counter(*_WAVEFRONTS, "conflicts", "shared", _OPS),
    "worst_bank_conflict": _Counter(*_WAVEFRONTS, "worst", "shared", _OPS),
    "barriers": _Counter("each block counts once for every __syncthreads() it passes", _BARRIER),
    "warp_barriers": _Counter("each warp counts once for every __syncwarp() it passes", _BARRIER),
    "bulk_copies": _Counter("bulk copies that were started", "one thread starts each copy: which threads do?"),
    "bulk_bytes_in_flight": _Counter(
        "the most bytes that a block had started to copy and no thread had waited for",
        "start the copies of later tiles before you wait for this one",
    ),
    "simt_efficiency": _Counter("lanes stand idle while others of their warp work", "branch by warp and not by lane"),
    "flops": _Counter("a multiply-add is two operations", "count loop iterations times operations in each"),
    "bytes_read": _Counter(_BYTES, "is every input element read?", "sectors", "global", ("load",)),
    "bytes_written": _Counter(_BYTES, "is every output element written?", "sectors", "global", ("store",)),
}


def _known() -> dict[str, _Counter]:
    names = dict(_PLAIN)
    for op in _OPS:
        for space, field, words in (("global", "sectors", _SECTORS), ("shared", "wavefronts", _WAVEFRONTS)):
            per = f"{field}_per_{op}_request" if space == "global" else f"{field}_per_shared_{op}"
            names[f"{space}_{op}_requests"] = _Counter(*_REQUESTS, "requests", space, (op,))
            names[f"{space}_{op}_{field}"] = names[per] = _Counter(*words, field, space, (op,))
    return names


COUNTERS = _known()


def graded_kernel(kernel: object, name: str | None = None) -> Kernel:
    """Compile the kernel again from its source, under the rules for graded kernels, for the simulator.

    Marks depend on counters. Therefore a test measures only what is compiled from the student's text, and a source that
    could bypass the counters (attributes, pragmas other than unroll, assembly, foreign headers) is refused. ``name``
    picks a kernel of a cell that has several.

    Raises NotImplementedError for a kernel that is still a stub, CudaCompileError for a source that does not compile or
    is refused, and CheckError for an object that is not a kernel.

    Example:
        >>> from mlsys_labkit import cuda
        >>> graded_kernel(cuda.compile("__global__ void f(float* x) { x[threadIdx.x] = 1.0f; }")).name
        'f'
    """
    from mlsys_labkit.cuda.kernel.absent import AbsentKernel
    from mlsys_labkit.cuda.kernel.compilation import Kernels, compile
    from mlsys_labkit.cuda.kernel.kernel import Kernel

    chosen = next(iter(kernel.values()), None) if type(kernel) is Kernels else kernel
    if type(chosen) is AbsentKernel:
        chosen.fail(name)
    if type(chosen) is not Kernel:
        raise failure(
            f"{name or 'the kernel'}: not a kernel",
            expected="what %%cuda or lk.cuda.compile(...) makes",
            actual=type_name(kernel),
            next_step="run the %%cuda cell of this task again",
        )
    defines = dict(chosen._defines)
    return compile(chosen.source, name or chosen.name, backend="simulator", graded=True, defines=defines)


def expect_clean(kernel: object, *launches: tuple[Any, ...], name: str = "") -> None:
    """Check that ``kernel`` runs without a finding: no race, no access out of bounds, no barrier that a thread misses.

    A launch is ``(grid, block, arguments)`` or ``(grid, block, shared_bytes, arguments)``, with ``arguments`` a tuple;
    arrays are written as in any launch. Raises CheckError with the first finding in plain words, and whatever the
    launch raises; a kernel that is still a stub raises NotImplementedError.

    Example:
        >>> import numpy as np
        >>> from mlsys_labkit import cuda
        >>> twice = cuda.compile("__global__ void twice(float* x) { x[threadIdx.x] *= 2; }")
        >>> expect_clean(twice, (1, 4, (np.ones(4, np.float32),)))
    """
    from mlsys_labkit.cuda.kernel.absent import AbsentKernel
    from mlsys_labkit.cuda.kernel.kernel import Kernel

    if type(kernel) is not Kernel and type(kernel) is not AbsentKernel:
        raise failure(
            f"{name or 'the kernel'}: not a kernel",
            expected="what lk.cuda.compile(...) or %%cuda makes",
            actual=type_name(kernel),
            next_step="pass the kernel itself, not its source or its result",
        )
    for launch in launches:
        grid, block, *shared_bytes, arguments = launch
        findings = kernel.check[(grid, block, *shared_bytes)](*arguments)
        if findings:
            raise _unclean(findings, f"{name or kernel.name}, grid {grid}, block {block}")
    if launches:
        note_pass(f"{name or kernel.name} runs without a finding")


def _unclean(findings: Sequence[KernelFinding], name: str) -> CheckError:
    first = findings[0]
    where = f"line {first.line}: {first.source_line.strip()}" if first.line else ""
    if first.other_line and first.other_line != first.line:
        where += f"  and line {first.other_line}: {first.other_source_line.strip()}"
    return first_finding(
        findings, name, where, "run kernel.check[grid, block](...) on this launch, and mend the first finding first"
    )


def expect_counters(profile: object, *, name: str = "", rtol: float = 0.0, **bounds: float) -> None:
    """Check counters of a ``Profile``: each exact up to ``rtol``, or within bounds.

    A keyword is a counter (see ``COUNTERS``: ``global_load_sectors``, ``sectors_per_load_request``, ``bank_conflicts``,
    ``barriers``, ...) for an exact count, or one with ``at_most_`` or ``at_least_`` before it. ``at_least_`` is a
    minimum that every correct kernel needs: a smaller count raises ImpossibleCountError, before all other checks.
    Otherwise raises CheckError that names the counter, the ratio and the line that counted most.

    Example:
        >>> import numpy as np
        >>> from mlsys_labkit import cuda
        >>> twice = cuda.compile("__global__ void twice(float* x) { x[threadIdx.x] *= 2; }")
        >>> profile = twice.profile[1, 32](np.ones(32, np.float32))
        >>> expect_counters(profile, sectors_per_load_request=4, at_least_global_store_sectors=4, barriers=0)

    Reference: NVIDIA, "Nsight Compute" documentation, memory tables: requests, sectors and wavefronts.
    """
    from mlsys_labkit.cuda.profile import Profile

    asked = read_bounds("expect_counters", "counter", COUNTERS, bounds)
    read = require_type(
        profile,
        Profile,
        f"{name or 'the profile'}: not a profile",
        expected="what kernel.profile[grid, block](...) returns",
        next_step="pass the profile, not the kernel",
    )
    for how, counter, wanted in sorted(asked, key=lambda one: one[0] != "at_least"):
        came = value(read, counter)
        slack = rtol * abs(wanted)
        over, under = came > wanted + slack, came < wanted - slack
        head = f"{name or read.kernel}: {counter.replace('_', ' ')}"
        if how == "at_least" and under:
            raise too_few(
                f"{head}: fewer than any kernel needs for this work",
                came,
                f"at least {count(wanted)}{_extent(read)}",
                "some elements were never touched, or something kept accesses from being counted",
                "read every input and write every output through the kernel's own pointers, in plain C++",
            )
        if (how != "at_least" and over) or (how == "" and under):
            known = COUNTERS[counter]
            why = Excess(known.meaning, _heaviest(read, known), known.next_step) if came > wanted else _shortage(known)
            raise off(head, came, wanted, ("at most " if how else "") + count(wanted) + _extent(read), why)
    note_pass(f"the counters of {name or read.kernel}")


def _shortage(known: _Counter) -> Excess:
    """Return the explanation of a count that is too small."""
    if known.field in ("requests", "sectors", "wavefronts"):
        return Excess(_TOO_FEW[0], "", _TOO_FEW[1])
    return Excess(known.meaning, "", known.next_step)


def value(profile: Profile, counter: str) -> float:
    """Return one counter of a profile; those per request are ratios, 0 where there was no request."""
    if counter in _PLAIN:
        return float(getattr(profile, counter))
    found = COUNTERS[counter]
    (op,) = found.ops
    amount, requests = (profile.total(found.space, op, name) for name in (found.field, "requests"))
    return amount / max(1, requests) if "_per_" in counter else float(amount)


def _amount(line: LineCount, field: str) -> int:
    """Return what a line adds to a counter; for conflicts, its wavefronts beyond the least that it needs."""
    return line.wavefronts - line.ideal_wavefronts if field == "conflicts" else int(getattr(line, field))


def _extent(profile: Profile) -> str:
    """Return how many of the blocks ran, because every total counts only these; "" where all ran."""
    return f" in {count(profile.blocks_run)} of {count(profile.blocks_total)} blocks" if profile.sampled else ""


def _heaviest(profile: Profile, counter: _Counter) -> str:
    """Describe the line that adds most to a counter."""
    lines = [line for line in profile.lines if line.space == counter.space and line.op in counter.ops]
    if not lines:
        return ""
    most = max(lines, key=lambda line: (_amount(line, counter.field), -line.line))
    if most.file:
        return f"most at {most.file}:{most.line}"
    text = profile.source.splitlines()[most.line - 1].strip() if profile.source else ""
    return f"most at line {most.line}: {text}"
