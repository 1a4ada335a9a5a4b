"""The modifiers of PTX instructions that the emulation honours, or that change no result here."""

from __future__ import annotations

from mlsys_labkit.cuda.source.ptx_operands import TYPES
from mlsys_labkit.cuda.source.ptx_text import Instruction

_ROUNDING = ("rn", "rz", "rm", "rp")
_FLOAT = (*_ROUNDING, "ftz", "sat", "approx")
_COMPARISON = (
    *(
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "lo",
        "ls",
        "hi",
        "hs",
        "equ",
        "neu",
        "ltu",
        "leu",
        "gtu",
        "geu",
        "num",
        "nan",
    ),
    *("and", "or", "xor", "ftz"),
)
_SPACE = ("global", "shared", "shared::cta", "shared::cluster", "const", "local", "param")
_ACCESS = (
    *_SPACE,
    *("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "cluster", "gpu", "sys"),
    *("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "v2", "v4"),
)
_ATOMIC = (*_ACCESS, "add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec", "noftz")
_PRODUCT = (*_FLOAT, "lo", "hi", "wide")
_HONOURED = {
    **dict.fromkeys(("add", "sub"), (*_FLOAT, "cc")),
    "div": (*_FLOAT, "full"),
    **dict.fromkeys(("min", "max"), ("ftz", "NaN")),
    **dict.fromkeys(("abs", "neg", "sin", "cos", "ex2", "lg2", "tanh", "rcp", "sqrt", "rsqrt"), _FLOAT),
    **dict.fromkeys(("rem", "and", "or", "xor", "shl", "shr", "not", "cnot", "copysign", "popc", "clz", "brev"), ()),
    **dict.fromkeys(("lop3", "bfe", "bfi", "sad", "fns", "bfind", "selp", "mov"), ()),
    **dict.fromkeys(("mul", "mad", "fma"), _PRODUCT),
    **dict.fromkeys(("addc", "subc"), ("cc",)),
    "shf": ("l", "r", "wrap", "clamp"),
    **dict.fromkeys(("setp", "set"), _COMPARISON),
    "cvt": (*_FLOAT, "rna", "rni", "rzi", "rmi", "rpi"),
    "bra": ("uni",),
    **dict.fromkeys(("ld", "ldu", "st"), _ACCESS),
    **dict.fromkeys(("atom", "red"), _ATOMIC),
    **dict.fromkeys(("cvta", "isspacep"), (*_SPACE, "to")),
    "redux": ("sync", "add", "min", "max", "and", "or", "xor"),
}


def unknown_modifiers(one: Instruction) -> list[str]:
    """Return the modifiers that would change the result on a GPU and would be lost here.

    Example:
        >>> from mlsys_labkit.cuda.source.ptx_text import parse
        >>> unknown_modifiers(parse("bfind.shiftamt.u32 %0, %1;").items[0])
        ['shiftamt']

    Reference: PTX ISA.
    """
    honoured = _HONOURED.get(one.opcode)
    if honoured is None:
        return []  # the translator reads them all
    return [
        part
        for part in one.modifiers
        if part not in TYPES and part not in honoured and part[:4] not in ("L1::", "L2::")
    ]
