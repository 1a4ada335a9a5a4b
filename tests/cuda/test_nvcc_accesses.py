"""Loads and stores that the simulator counts, beside those that NVIDIA's compiler emits: by line, space and width.

Each kernel of the corpus is profiled, and compiled to PTX with line numbers. The two have to name the same kinds of
access on the same statements. What nvcc's optimiser changes beyond that is listed, so that each new difference fails.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from types import SimpleNamespace

import pytest

from mlsys_labkit.cuda.counters import LineCount
from mlsys_labkit.cuda.nvidia import nvrtc
from mlsys_labkit.cuda.profile import Profile
from mlsys_labkit.cuda.source.source import Source
from tests.cuda import ptx_accesses
from tests.cuda.nvrtc_helpers import NEEDS_NVRTC
from tests.cuda.ptx_accesses import Access
from tests.cuda.test_corpus import CASES, CORPUS, FILES, fresh, kernels

# Kernels whose accesses nvcc's optimiser moves or joins, and what it does.
DIFFERENT = {
    ("elementwise", "polynomial"): "the load of x[i] leaves the unrolled loop for the line before it",
    ("irregular", "odd_even_sort_block"): "a pair of neighbours is loaded and stored at once, and not loaded again",
    ("unusual", "lookback_packed"): "a word of shared memory that was read stays in a register",
}


@cache
def ptx(file: str, name: str) -> dict[str, ptx_accesses.Function]:
    source = (CORPUS / f"{file}.cu").read_text()
    compiled = nvrtc.compile(source, name or None, options=("-lineinfo",))
    return ptx_accesses.read(compiled.ptx, "kernel.cu")


@cache
def statements(source: str) -> dict[int, int]:
    """Return the first line of the statement that each line with code belongs to."""
    starts = [0, *(at + 1 for at, character in enumerate(source) if character == "\n")]
    first: int | None = None
    depth, found = 0, dict[int, int]()
    for token in Source(source).code:
        line = bisect_right(starts, token.start)
        first = first or line
        found.setdefault(line, first)
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if token.text in ("{", "}") or (token.text == ";" and depth == 0):
            first = None
    return found


def emitted(file: str, name: str) -> set[Access]:
    """Return the accesses in nvcc's code for a kernel; spaces are those of memory that it shares."""
    plain, is_template = name.split("<")[0], "<" in name
    functions = ptx(file, name if is_template else "")
    mangled = f"_Z{len(plain)}{plain}" + "I" * is_template
    (symbol,) = (one for one in functions if one == plain or one.startswith(mangled))
    lines = ["", *(CORPUS / f"{file}.cu").read_text().splitlines()]
    found = {one for one in ptx_accesses.kernel(functions, symbol) if one.line and one.space != "const"}
    return {one for one in found if one.space != "local" or has_local_array(lines[one.line])}


def has_local_array(line: str) -> bool:
    """Return whether local memory may be the source's: sincosf has an array of its own, and printf one of arguments."""
    return "[" in line and not re.search(r"\bprintf\s*\(", line)


def differences(profile: Profile | SimpleNamespace, theirs: set[Access], source: str) -> set[Access]:
    """Return the accesses of executed statements that only one side has; a generic address may be in any space."""
    first = statements(source)
    counted = {
        Access(first.get(one.line, one.line), one.space, one.op, one.bytes_per_lane)
        for one in profile.lines
        if one.requests and one.space != "constant" and not one.file
    }
    ran = {first.get(one.line, one.line) for one in profile.lines}
    theirs = {one._replace(line=first.get(one.line, one.line)) for one in theirs}
    theirs = {one for one in theirs if one.line in ran}
    unstated = {one for one in theirs if not one.bytes_per_lane}
    loads_tiles = {one for one in counted for tile in unstated if _is_of_tile(one, tile)}
    missing = {tile for tile in unstated if not any(_is_of_tile(one, tile) for one in counted)}
    theirs, counted = theirs - unstated, counted - loads_tiles
    generic = {one for one in counted if one._replace(space="") in theirs}
    named = {one for one in theirs if one.space} - generic
    answered = {one._replace(space="") for one in generic}
    return (counted - generic) ^ named | ({one for one in theirs if not one.space} - answered) | missing


def _is_of_tile(one: Access, tile: Access) -> bool:
    """Return whether an access may be one of those that ``wmma.load`` stands for, of which PTX names no width."""
    return (one.line, one.op) == (tile.line, tile.op) and tile.space in ("", one.space)


@NEEDS_NVRTC
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(path.stem, marks=() if path.stem == "elementwise" else pytest.mark.soak, id=path.stem)
        for path in FILES
    ],
)
def test_simulator_counts_the_accesses_that_nvcc_emits(file: str) -> None:
    """CPU seconds: 5 to 20 a file, for g++ and NVRTC; one file runs with every test run."""
    source = (CORPUS / f"{file}.cu").read_text()
    found = {}
    for each, name in CASES:
        if each == file:
            case = CASES[each, name]
            profile = kernels(file)(name).profile[case.shape](*fresh(case))
            if different := differences(profile, emitted(file, name), source):
                found[file, name] = different
    assert found.keys() == {key for key in DIFFERENT if key[0] == file}, found


def test_the_share_of_kernels_that_agree_is_at_least_95_percent() -> None:
    assert len(DIFFERENT) <= 0.05 * len(CASES)


def test_local_memory_of_printf_is_not_the_sources() -> None:
    assert has_local_array("int t[4]; t[i] = x[i];")
    assert not has_local_array('printf("x[%d] = %f", i, x[i]);')
    assert not has_local_array("sincosf(x, &s, &c);")


def test_an_access_that_one_side_lacks_is_a_difference() -> None:
    source = "__global__ void k(float4* x) {\n  x[0] =\n    x[1];\n}\n"
    assert statements(source) == {1: 1, 2: 2, 3: 2, 4: 4}
    text = """.visible .entry k(
.loc 1 3 5
ld.global.v4.f32 {a, b, c, d}, [x];
.loc 2 90 1, function_name f, inlined_at 1 3 5
@%p1 st.shared.u8 [c], d;
.loc 1 4 1
ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r2}, [%r3];
@p cp.async.cg.shared.global.L2::128B [%r1], [%rd2], 16, %r5;}
cp.async.commit_group;
.loc 1 5 1
{ atom.add.noftz.f16x2 %r1,[%rd1],%r2; }
mbarrier.init.shared.b64 [%r1], %r2;
mbarrier.arrive.shared.b64 %rd1, [%r1];
mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;
.file 1 "kernel.cu"
.file 2 "header.h"
"""
    assert set(ptx_accesses.kernel(ptx_accesses.read(text, "kernel.cu"), "k")) == {
        Access(3, "global", "load", 16),
        Access(3, "shared", "store", 1),
        Access(4, "shared", "load", 16),
        Access(4, "global", "load", 16),
        Access(4, "shared", "store", 16),
        Access(5, "", "atomic", 4),
        Access(5, "shared", "store", 8),
        Access(5, "shared", "atomic", 8),
    }


def test_a_tile_has_the_width_that_the_simulator_counts() -> None:
    source = "__global__ void k(half* x) {\n  load_matrix_sync(tile, x, 16);\n}\n"
    count = LineCount(2, "k", "global", "load", 4, 1, 32, 8, 0, 8, 0, 8, 32)
    profile = SimpleNamespace(lines=(count,))
    assert differences(profile, {Access(2, "", "load", 0)}, source) == set()
    assert differences(profile, {Access(2, "shared", "load", 0)}, source) != set()
    assert differences(profile, {Access(2, "", "store", 0)}, source) != set()
