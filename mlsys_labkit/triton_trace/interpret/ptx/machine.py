"""``Machine``: runs inline assembly on many lanes at once. What it does not know, it refuses by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.ptx import conversion
from mlsys_labkit.triton_trace.interpret.ptx.arithmetic import (
    CALCULATIONS,
    COUNTS,
    compared,
    exists,
    flushed,
    saturated,
)
from mlsys_labkit.triton_trace.interpret.ptx.assembly import Assembly, PtxInstruction
from mlsys_labkit.triton_trace.interpret.ptx.types import Type, type_of
from mlsys_labkit.triton_trace.interpret.run import InterpreterRun, Refused

Array = NDArray[Any]
_U32 = Type("u", 32)
_PREDICATE = Type("pred", 8)
_NUMBER = re.compile(r"(?P<sign>-?)(?:0[fF](?P<single>[0-9a-fA-F]{8})|0[dD](?P<double>[0-9a-fA-F]{16})"
                     r"|(?P<whole>0[xX][0-9a-fA-F]+|\d+)U?|(?P<decimal>\d*\.\d*(?:[eE][+-]?\d+)?))")  # fmt: skip
_ADDRESS = re.compile(r"\[\s*([\w$%]+)\s*(?:\+\s*(-?\w+))?\s*\]")
_OF_MEMORY = frozenset(("global", "volatile", "weak", "relaxed", "acquire", "release", "cta", "cluster", "gpu", "sys",
                        "ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "v2", "v4"))  # fmt: skip
_ORDERED = frozenset(("relaxed", "acquire", "release", "volatile"))


class Machine:
    """The registers of all lanes: 64 bits each, of which an instruction uses those of its type.

    Args:
        run: the launch, for memory and counts. known: names of registers. given: registers that have a value.
    """

    def __init__(self, run: InterpreterRun, lanes: int, known: frozenset[str], given: dict[str, Array]) -> None:
        self._run = run
        self._lanes = lanes
        self._known = known
        self._registers = dict(given)
        self._active: Array | None = None

    def execute(self, assembly: Assembly) -> None:
        """Run all instructions. Raises Refused for what is not interpreted."""
        families: dict[str, Callable[[PtxInstruction, list[Type], tuple[str, ...]], None]] = {
            "mov": self._move,
            "cvt": self._convert,
            "setp": self._set_predicate,
            "selp": self._select,
            "ld": self._load,
            "st": self._store,
            **dict.fromkeys(CALCULATIONS, self._calculate),
        }
        for one in assembly.instructions:
            types = [kind for each in one.modifiers if (kind := type_of(each))]
            others = tuple(each for each in one.modifiers if not type_of(each))
            if one.opcode not in families or not types:
                raise self._refusal(one)
            self._active = None
            if one.guard:
                self._active = self.register(one.guard.lstrip("!")).astype(np.bool_) ^ one.guard.startswith("!")
            families[one.opcode](one, types, others)

    def register(self, name: str) -> Array:
        """Return the bits of a register in all lanes. Raises Refused for one without a value."""
        if name in self._registers:
            return self._registers[name]
        reason = "has no value yet" if name in self._known else "is no register that it declares, and not interpreted"
        raise Refused(f"{name} in tl.inline_asm_elementwise {reason}")

    def _refusal(self, one: PtxInstruction) -> Refused:
        return Refused(f"{one} in tl.inline_asm_elementwise is not interpreted")

    def _require(self, fits: bool, one: PtxInstruction) -> None:
        if not fits:
            raise self._refusal(one)

    def _write(self, name: str, bits: Array) -> None:
        if name == "_":
            return
        if name not in self._known:
            raise Refused(f"{name} in tl.inline_asm_elementwise is no register that it declares")
        if self._active is not None:
            bits = np.where(self._active, bits, self._registers.get(name, np.uint64(0)))
        self._registers[name] = np.broadcast_to(bits, (self._lanes,))

    def _read(self, operand: str, kind: Type) -> Array:
        """Return the numbers of a register or a literal."""
        if match := _NUMBER.fullmatch(operand):
            if kind.floats == bool(match["whole"]):
                raise Refused(f"{operand} in tl.inline_asm_elementwise is no number of the type of its instruction")
            bits = self._literal(match, kind)
            if match["sign"]:
                bits = kind.register(-kind.numbers(bits))
        elif kind.letter == "pred" and operand.startswith("!"):
            return np.asarray(self.register(operand[1:]) == 0)
        else:
            bits = self.register(operand)
        return kind.numbers(np.broadcast_to(bits, (self._lanes,)))

    def _literal(self, match: re.Match[str], kind: Type) -> Array:
        if match["single"]:
            return kind.register(np.array([int(match["single"], 16)], np.uint32).view(np.float32))
        if match["double"]:
            return kind.register(np.array([int(match["double"], 16)], np.uint64).view(np.float64))
        if match["decimal"]:
            return kind.register(np.array([float(match["decimal"])]))
        return np.array([int(match["whole"], 0) & (1 << 64) - 1], np.uint64)

    def _move(self, one: PtxInstruction, types: list[Type], modifiers: tuple[str, ...]) -> None:
        """Copy a register; ``{a, b}`` are the parts of one, the lowest first."""
        self._require(len(types) == 1 and not modifiers and len(one.operands) == 2, one)
        target, source = one.operands
        bits = types[0].bits
        if target.startswith("{"):
            parts = _parts(target)
            whole, width = self.register(source), np.uint64(bits // len(parts))
            for i, name in enumerate(parts):
                self._write(name, whole >> np.uint64(i) * width & (np.uint64(1) << width) - np.uint64(1))
        elif source.startswith("{"):
            parts = _parts(source)
            each, total = Type("u", bits // len(parts)), np.zeros(self._lanes, np.uint64)
            for i, name in enumerate(parts):
                total = total | self._read(name, each).astype(np.uint64) << np.uint64(i * each.bits)
            self._write(target, total)
        else:
            self._write(target, types[0].register(self._read(source, types[0])))

    def _convert(self, one: PtxInstruction, types: list[Type], modifiers: tuple[str, ...]) -> None:
        self._require(len(types) == 2 and conversion.exists(types[0], types[1], modifiers), one)
        target, source = types
        name, *operands = one.operands
        numbers = [self._read(each, source) for each in operands]
        if target.count == 2 and source.count == 1:
            self._require(len(numbers) == 2, one)
            values = np.stack([numbers[1], numbers[0]])  # the first operand becomes the upper half
        else:
            self._require(len(numbers) == 1 and target.count == source.count, one)
            values = numbers[0]
        self._write(name, conversion.converted(target, source, modifiers, values))

    def _set_predicate(self, one: PtxInstruction, types: list[Type], modifiers: tuple[str, ...]) -> None:
        """Compare; ``p|q`` are the truth and its opposite, or the truths of two numbers."""
        how = [each for each in modifiers if each != "ftz"]
        self._require(len(types) == 1 and len(how) in (1, 2) and len(one.operands) == 2 + len(how), one)
        kind = types[0]
        a, b = (self._read(each, kind) for each in one.operands[1:3])
        truth = compared(how[0], kind, a, b)
        if truth is None:
            raise self._refusal(one)
        first, _, second = one.operands[0].partition("|")
        pair = (truth[0], truth[1]) if kind.count == 2 else (truth, ~truth)
        if len(how) == 2:
            joined = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.get(how[1])
            if joined is None:
                raise self._refusal(one)
            with_it = self._read(one.operands[3], _PREDICATE)
            pair = (joined(pair[0], with_it), joined(pair[1], with_it))
        self._write(first.strip(), pair[0].astype(np.uint64))
        if second:
            self._write(second.strip(), pair[1].astype(np.uint64))

    def _select(self, one: PtxInstruction, types: list[Type], modifiers: tuple[str, ...]) -> None:
        self._require(len(types) == 1 and not modifiers and len(one.operands) == 4, one)
        kind = types[0]
        a, b = (kind.register(self._read(each, kind)) for each in one.operands[1:3])
        self._write(one.operands[0], np.where(self._read(one.operands[3], _PREDICATE), a, b))

    def _calculate(self, one: PtxInstruction, types: list[Type], modifiers: tuple[str, ...]) -> None:
        kind, floats = types[0], types[0].floats
        self._require(len(types) == 1 and exists(one.opcode, kind, modifiers), one)
        wide = "wide" in modifiers
        operands = list(one.operands[1:])
        counts = COUNTS.get(one.opcode, ())
        numbers = [self._read(each, _U32 if i in counts else kind) for i, each in enumerate(operands)]
        result = kind
        if wide:
            result = Type(kind.letter, 2 * kind.bits)
            numbers = [each.astype(result.storage) for each in numbers[:2]]
            numbers += [self._read(each, result) for each in operands[2:]]
        if "ftz" in modifiers:
            numbers = [flushed(each) for each in numbers]
        try:
            found = CALCULATIONS[one.opcode](kind, modifiers, *numbers)
        except TypeError:
            raise self._refusal(one) from None
        if "sat" in modifiers:
            found = saturated(found)
        if "ftz" in modifiers:
            found = flushed(found)
        if floats:
            name = {"bf": "bf16"}.get(kind.letter, f"fp{kind.bits}")
            self._run.arithmetic(name, self._lanes * kind.count * (1 + (one.opcode in ("fma", "mad"))))
        self._write(one.operands[0], (_U32 if one.opcode in ("popc", "clz") else result).register(found))

    def _place(self, one: PtxInstruction, operand: str, modifiers: tuple[str, ...]) -> Array:
        """Return the addresses of ``[register + bytes]``."""
        match = _ADDRESS.fullmatch(operand)
        plain = _OF_MEMORY.union(each for each in modifiers if each.startswith(("L1::", "L2::")))
        if not match or not plain.issuperset(modifiers):
            raise self._refusal(one)
        return self.register(match[1]) + np.array(int(match[2] or "0", 0), np.int64).view(np.uint64)

    def _load(self, one: PtxInstruction, types: list[Type], modifiers: tuple[str, ...]) -> None:
        self._require(len(types) == 1 and types[0].count == 1 and len(one.operands) == 2, one)
        kind = types[0]
        place = self._place(one, one.operands[1], modifiers)
        for i, name in enumerate(_parts(one.operands[0])):
            at, nothing = place + np.uint64(i * kind.bits // 8), np.zeros(1, f"u{kind.bits // 8}")
            way: Any = "atomic" if _ORDERED.intersection(modifiers) else "load"
            loaded = self._run.load(at, self._active, nothing, None, way)
            self._write(name, kind.register(loaded.view(kind.storage)) if not kind.floats else loaded.astype(np.uint64))

    def _store(self, one: PtxInstruction, types: list[Type], modifiers: tuple[str, ...]) -> None:
        self._require(len(types) == 1 and types[0].count == 1 and len(one.operands) == 2, one)
        kind = types[0]
        place = self._place(one, one.operands[0], modifiers)
        for i, name in enumerate(_parts(one.operands[1])):
            bits = kind.register(self._read(name, kind)).astype(f"u{kind.bits // 8}")
            way: Any = "atomic" if _ORDERED.intersection(modifiers) else "store"
            self._run.store(place + np.uint64(i * kind.bits // 8), self._active, bits, way)


def _parts(operand: str) -> list[str]:
    """Return the registers of ``{a, b}``, or the one register."""
    return [one.strip() for one in operand.strip("{}").split(",")]
