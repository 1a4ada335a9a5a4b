"""Unusual answers of one Triton task: a softmax of rows, ``KERNEL(x, out, N, BLOCK)``, program r takes row r.

``KERNEL`` stands for a name that the test gives each answer. ``own`` is a cell of the student's before the answer,
``after`` one between the answer and its test.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REFUSED", "RIGHT", "WRONG", "TritonAnswer"]

_HEAD = "@triton.jit\ndef KERNEL(x, out, N, BLOCK: tl.constexpr):\n"
_LANES = "    at = tl.arange(0, BLOCK)\n    row = tl.program_id(0) * N\n"
_LOAD = _LANES + "    v = tl.load(x + row + at, mask=at < N, other=-float('inf'))\n"
_RAISED = "tl.exp(v - tl.max(v, 0))"
_STORE = "    tl.store(out + row + at, p / tl.sum(p, 0), mask=at < N)\n"
_PLAIN = _LOAD + "    p = tl.exp(v - tl.max(v, 0))\n" + _STORE


@dataclass(frozen=True)
class TritonAnswer:
    """One answer.

    Attributes:
        says: a part of the reason why the graders give no points.
        shell: the answer passes in the student's notebook.
    """

    answer: str
    own: str = ""
    after: str = ""
    says: str = ""
    shell: bool = True


def _with(before: str, powers: str, own: str = "", after: str = "", says: str = "", shell: bool = True) -> TritonAnswer:
    return TritonAnswer(f"{before}\n{_HEAD}{_LOAD}    p = {powers}\n{_STORE}", own, after, says, shell)


RIGHT = {
    "a helper": _with("@triton.jit\ndef stable(v):\n    return tl.exp(v - tl.max(v, 0))\n", "stable(v)"),
    "a helper below the kernel": TritonAnswer(
        f"{_HEAD}{_LOAD}    p = lifted(v)\n{_STORE}\n@triton.jit\ndef lifted(v):\n    return tl.exp(v - tl.max(v, 0))\n"
    ),
    "helpers that call helpers": _with(
        "@triton.jit\ndef largest(v):\n    return tl.max(v, axis=0)\n\n"
        "@triton.jit\ndef lowered(v):\n    return v - largest(v)\n\n"
        "@triton.jit\ndef raised(v):\n    return tl.exp(lowered(v))\n",
        "raised(v)",
    ),
    "a helper in a cell before": _with("", "early(v)", own=f"@triton.jit\ndef early(v):\n    return {_RAISED}"),
    "a helper in a cell after": _with("", "late(v)", after=f"@triton.jit\ndef late(v):\n    return {_RAISED}"),
    "a helper without tl": _with(
        "@triton.jit\ndef gap(a, b):\n    return a - b\n", "tl.exp(gap(v, tl.max(v, 0)))"
    ),
    "a helper with a default": _with(
        "SCALE = tl.constexpr(1.0)\n@triton.jit\ndef scaled(v, by: tl.constexpr = SCALE):\n    return v * by\n",
        "tl.exp(scaled(v) - tl.max(v, 0))",
    ),
    "a helper that returns a tuple": _with(
        "@triton.jit\ndef both(v):\n    m = tl.max(v, 0)\n    return m, tl.exp(v - m)\n", "both(v)[1]"
    ),
    "combiners": _with(
        "@triton.jit\ndef larger(a, b):\n    return tl.maximum(a, b)\n", "tl.exp(v - tl.reduce(v, 0, larger))"
    ),
    "a combiner of a scan": TritonAnswer(
        "@triton.jit\ndef plus(a, b):\n    return a + b\n\n"
        + _HEAD + _LOAD
        + "    p = tl.exp(v - tl.max(v, 0))\n    total = tl.max(tl.associative_scan(p, 0, plus), 0)\n"
        + "    tl.store(out + row + at, p / total, mask=at < N)\n"
    ),
    "a constexpr": _with("LOG2E = tl.constexpr(1.4426950408889634)\n", "tl.exp2((v - tl.max(v, 0)) * LOG2E)"),
    "a computed constexpr": _with(
        "import math\nBASE = 2\nRATIO = tl.constexpr(1 / math.log(BASE))\n", "tl.exp2((v - tl.max(v, 0)) * RATIO)"
    ),
    "constexprs of constexprs": _with(
        "TWO, HALF = tl.constexpr(2.0), tl.constexpr(0.5)\nONE = TWO * HALF\n", "tl.exp((v - tl.max(v, 0)) * ONE)"
    ),
    "a constexpr of a cell before": _with("", "tl.exp((v - tl.max(v, 0)) * UNIT)", "UNIT = tl.constexpr(float('1'))"),
    "a type under a name": _with("ACC = tl.float32\n", "tl.exp(v.to(ACC) - tl.max(v, 0))"),
    "an alias of tl": TritonAnswer(
        "import triton.language as tl2\n@triton.jit\ndef KERNEL(x, out, N, BLOCK: tl2.constexpr):\n"
        + _PLAIN.replace("tl.", "tl2.")
    ),
    "names from tl": TritonAnswer(
        "from triton import jit\nfrom triton.language import arange, constexpr as const, load, store\n"
        "@jit\ndef KERNEL(x, out, N, BLOCK: const):\n"
        + _PLAIN.replace("tl.arange", "arange").replace("tl.load", "load").replace("tl.store", "store")
    ),
    "an annotation as text": TritonAnswer((_HEAD + _PLAIN).replace(": tl.constexpr", ': "tl.constexpr"')),
    "jit as a call": TritonAnswer(
        f"def plain(x, out, N, BLOCK: tl.constexpr):\n{_PLAIN}\nKERNEL = triton.jit(plain)\n"
    ),
    "jit with options": TritonAnswer((_HEAD + _PLAIN).replace("@triton.jit", '@triton.jit(do_not_specialize=["N"])')),
    "autotune": TritonAnswer(
        '@triton.autotune(configs=[triton.Config({}, num_warps=w) for w in (4, 8)], key=["N"])\n' + _HEAD + _PLAIN
    ),
    "autotune over a list by a function": TritonAnswer(
        "WARPS = [2**i for i in range(3)]\ndef choices(warps):\n    '''All of them.'''\n"
        "    return [triton.Config({}, num_warps=w, num_stages=s) for w in warps for s in (1, 2) if w > s]\n"
        '@triton.autotune(choices(WARPS), ["N"])\n' + _HEAD + _PLAIN
    ),
    "autotune of a constant": TritonAnswer(
        '@triton.autotune([triton.Config({"UNIT1": 1}), triton.Config({"UNIT1": 1}, num_warps=8)], key=[])\n'
        + (_HEAD + _PLAIN).replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, UNIT1: tl.constexpr")
    ),
    "heuristics": TritonAnswer(
        '@triton.heuristics({"EVEN": lambda args: args["N"] % args["BLOCK"] == 0, "WIDE": lambda a: a["x"].shape[1]})\n'
        "@triton.jit\ndef KERNEL(x, out, N, BLOCK: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr):\n"
        "    tl.static_assert(WIDE > 0)\n" + _PLAIN.replace("mask=at < N)\n", "mask=None if EVEN else at < N)\n")
    ),
    "min and len of Python": _with(
        "@triton.jit\ndef first(parts):\n    return parts[min(0, len(parts) - 1)]\n",
        "tl.exp(v - max(first((tl.max(v, 0), 1)), -1e30))",
    ),
    "a block pointer": TritonAnswer(
        _HEAD
        + "    row = tl.program_id(0) * N\n"
        + "    here = tl.make_block_ptr(x + row, (N,), (1,), (0,), (BLOCK,), (0,))\n"
        + "    there = tl.make_block_ptr(out + row, (N,), (1,), (0,), (BLOCK,), (0,))\n"
        + "    v = tl.load(here, boundary_check=(0,))\n    at = tl.arange(0, BLOCK)\n"
        + "    v = tl.where(at < N, v, -float('inf'))\n    p = tl.exp(v - tl.max(v, 0))\n"
        + "    tl.store(there, p / tl.sum(p, 0), boundary_check=(0,))\n"
    ),
    "a loop over parts of a row": TritonAnswer(
        _HEAD + "    row = tl.program_id(0) * N\n    at = tl.arange(0, BLOCK)\n"
        "    m = tl.full([1], -float('inf'), tl.float32)\n    s = tl.zeros([1], tl.float32)\n"
        "    for i in range(0, N, BLOCK):\n"
        "        v = tl.load(x + row + i + at, mask=i + at < N, other=-float('inf'))\n"
        "        now = tl.maximum(m, tl.max(v, 0))\n"
        "        s = s * tl.exp(m - now) + tl.sum(tl.exp(v - now), 0)\n        m = now\n"
        "    for i in range(0, N, BLOCK):\n"
        "        v = tl.load(x + row + i + at, mask=i + at < N)\n"
        "        tl.store(out + row + i + at, tl.exp(v - m) / s, mask=i + at < N)\n"
    ),
    "an if around the definition": TritonAnswer(
        "if torch.__version__:\n" + "".join(f"    {line}\n" for line in (_HEAD + _PLAIN).splitlines())
    ),
    "a kernel from a function": TritonAnswer(
        f"def make():\n    'Make it.'\n{''.join(f'    {line}' + chr(10) for line in (_HEAD + _PLAIN).splitlines())}"
        "    return KERNEL\nKERNEL = make()\n"
    ),
    "under %%capture": TritonAnswer("%%capture\n" + _HEAD + _PLAIN),
    "under %%time and %%capture": TritonAnswer("\n%%time\n%%capture out\n" + _HEAD + _PLAIN),
}  # fmt: skip

REFUSED = {
    "a kernel from a function that is told a size": TritonAnswer(
        f"def make(size):\n{''.join(f'    {line}' + chr(10) for line in (_HEAD + _PLAIN).splitlines())}"
        "    return KERNEL\nKERNEL = make(64)\n",
        says="KERNEL = make(64): the tests take kernels as text and run no other Python",
    ),
    "a constant that Python computes": _with(
        "import os\nCOUNT = tl.constexpr(len(os.listdir('/')) * 0 + 1)\n",
        "tl.exp((v - tl.max(v, 0)) * COUNT)",
        says="write the value: COUNT = tl.constexpr(...)",
    ),
    "a configuration with a hook": TritonAnswer(
        "@triton.autotune([triton.Config({}, pre_hook=lambda given: None)], key=[])\n" + _HEAD + _PLAIN,
        says="write constants in its decorators, not lambda given: None",
    ),
}

WRONG = {
    "a plain function as a helper": _with(
        "def nearly(v):\n    return tl.exp(v)\n",
        "nearly(v)",
        says="nearly is a function of Python; write @triton.jit above its def",
        shell=False,
    ),
    "a global number": _with(
        "FACTOR = 1.0\n",
        "tl.exp((v - tl.max(v, 0)) * FACTOR)",
        says="FACTOR is a global variable; write FACTOR = tl.constexpr(1.0)",
        shell=False,
    ),
    "a helper that imports": _with(
        "@triton.jit\ndef evil(v):\n    import os\n    return v\n", "tl.exp(evil(v))", says="import", shell=False
    ),
    "no maximum subtracted": _with(
        "@triton.jit\ndef bare(v):\n    return tl.exp(v)\n", "bare(v)", says="softmax", shell=False
    ),
    "a loop that changes a type": TritonAnswer(
        _HEAD
        + _LOAD
        + "    s = 0.0\n    for _ in range(N):\n        s += tl.exp(v - tl.max(v, 0))\n"
        + "    tl.store(out + row + at, s / tl.sum(s, 0), mask=at < N)\n",
        says="s is one tl.float32 before the loop and a block of shape [64] of tl.float32 after a turn",
        shell=False,
    ),
    "branches of two types": TritonAnswer(
        _HEAD
        + _LOAD
        + "    if N > 64:\n        m = 0.0\n    else:\n        m = tl.max(v, 0) + tl.zeros([BLOCK], tl.float32)\n"
        + "    p = tl.exp(v - m)\n"
        + _STORE,
        says="m is one tl.float32 in the first branch of the if and a block of shape [64] of tl.float32 in the second",
        shell=False,
    ),
    "a sum over what a mask leaves out": TritonAnswer(
        (_HEAD + _PLAIN).replace(", other=-float('inf')", ""),
        says="stores a value that depends on a lane which tl.load masks off",
        shell=False,
    ),
    "pointers with brackets": TritonAnswer(
        _HEAD + _LANES + "    out[row + at] = x[row + at]\n",
        says="a pointer has no []; store with tl.store(out + (row + at), value, mask=...), and load with tl.load",
        shell=False,
    ),
    "an offset that overflows": TritonAnswer(
        (_HEAD + _PLAIN).replace(
            "tl.arange(0, BLOCK)", "(tl.arange(0, BLOCK) - 64).to(tl.int8) * 4 + 3 * tl.arange(0, BLOCK) // 3"
        ),
        says="overflowed int8 on the way",
        shell=False,
    ),
    "no kernel": TritonAnswer("KERNEL = 3\n", says="KERNEL is no function under @triton.jit", shell=False),
}
