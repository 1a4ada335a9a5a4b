"""A compiled kernel written by hand, x[0] += f(x[0]), so that tests of its views need no compiler."""

from __future__ import annotations

from mlsys_labkit.triton_trace.compile.compiled import Compiled
from mlsys_labkit.triton_trace.recorder import Line
from mlsys_labkit.triton_trace.source import Function, KernelSource

OPEN = "</script><b>"  # a text that would break a page that does not escape it
MAIN = f"def main(x):\n    a = tl.load(x)\n    # {OPEN}\n    tl.store(x, a + half(a))\n"
HALF = "def half(v):\n    return v / 2\n"
MULTIPLICATIONS = 500


def _at(**numbers: tuple[int, ...]) -> dict[Line, tuple[int, ...]]:
    names = {"load": Line("In[3]", 11), "store": Line("In[3]", 13), "half": Line("In[2]", 5)}
    return {names[name]: lines for name, lines in numbers.items()}


def compiled() -> Compiled:
    """Build a kernel whose line 13 of In[3] calls line 5 of In[2].

    In PTX the division is 500 multiplications and the load is gone.
    """
    functions = (
        Function("main:10", "main", MAIN, "In[3]", 10, (), {}),
        Function("half:4", "half", HALF, "In[2]", 4, (), {}),
    )
    operations = ("%a = tt.load %x", "%b = arith.divf %a, %two", "tt.store %x, %b")
    ttir = "\n".join([*(f"{one} loc(#loc1)" for one in operations), '#loc1 = loc("In[3]":11:4)'])
    llir = "; a comment\n%1 = load, !dbg !7\n%2 = fdiv, !dbg !8\nstore, !dbg !9\n!7 = !DILocation(line: 11)"
    body = [f"\tmul.f32 \t%f{i}, %f1, 0f3F000000;" for i in range(MULTIPLICATIONS)]
    ptx = "\n".join(
        ["// a comment", ".target sm_90", "\t.loc\t1 5 0", *body, "\tst.global.b32 [%rd1], %f2;", "\t.section\t.debug"]
    )
    everywhere = _at(load=(1,), half=(2,), store=(2, 3))
    after = 4 + MULTIPLICATIONS
    return Compiled(
        kernel="main",
        target="sm_90",
        triton_version="3.6.0",
        source=KernelSource("main:10", functions),
        ttir=ttir,
        ttgir=ttir,
        llir=llir,
        ptx=ptx,
        registers=32,
        spill_store_bytes=0,
        spill_load_bytes=0,
        shared_bytes=1024,
        barriers=1,
        num_warps=4,
        lines={
            "ttir": everywhere,
            "ttgir": everywhere,
            "llir": _at(load=(2,), half=(3,), store=(3, 4)),
            "ptx": _at(half=tuple(range(4, after)), store=tuple(range(4, after + 1))),
        },
        cubin=b"",
    )
