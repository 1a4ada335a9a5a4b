"""Inline PTX, written as C++ that calls the simulator's emulation of each instruction; no line moves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlsys_labkit.cuda.source.conditions import conditional_variants
from mlsys_labkit.cuda.source.ptx_text import PtxText, parse
from mlsys_labkit.cuda.source.ptx_translation import KNOWN, refusal, translate
from mlsys_labkit.cuda.source.source import Edit, Source
from mlsys_labkit.cuda.source.tokens import Token, closing_brackets

ASSEMBLY = ("asm", "__asm__", "__asm")
_QUALIFIERS = ("volatile", "__volatile__", "__volatile")
_TYPES = {
    "r": "unsigned", "l": "unsigned long long", "h": "unsigned short", "f": "float", "d": "double",
    "n": "long long", "i": "long long",
}  # fmt: skip
_OF_PTX_ALONE = ("f", "h", "l")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", '"': '"', "'": "'", "\\": "\\", "\n": ""}
_OPERAND = re.compile(r"%(?:(\d+)|\[(\w+)\]|(%))")


@dataclass(frozen=True)
class Operand:
    """One operand of an assembly statement: its name, constraint and C++ expression."""

    name: str
    constraint: str
    expression: str

    @property
    def letter(self) -> str:
        return self.constraint.strip("=+&%")


def assembly_edits(source: Source) -> Iterator[Edit]:
    """Yield edits that write each ``asm`` statement of PTX as C++. Other assembly stays as it is.

    Example:
        >>> source = Source('asm("mov.u32 %0, %%laneid;" : "=r"(lane));')
        >>> source.edited(assembly_edits(source)).replace("lk::ptx::", "")
        'do { unsigned lk_p0; set(lk_p0, get<unsigned>(lk_lane())); output((lane), lk_p0); } while (0);'

    Reference: PTX ISA; "Inline PTX Assembly in CUDA".
    """
    code = source.words
    closing = closing_brackets(code)
    for index, token in enumerate(code):
        if token.text not in ASSEMBLY or token.kind != "identifier":
            continue
        opening = index + 1
        while opening < len(code) and code[opening].text in _QUALIFIERS:
            opening += 1
        if opening >= len(code) or code[opening].text != "(":
            continue
        inside = code[opening + 1 : closing[opening]]
        begin, end = token.start, code[closing[opening]].end
        text = source.text[begin:end]
        branches = conditional_variants(text)
        if branches and (chosen := _one_of(branches, text.count("\n"))):
            yield begin, end, chosen
            continue
        written = _statement(inside)
        if written:
            line_end = "\\\n" if source.is_in_directive(begin) else "\n"
            yield begin, end, written + line_end * text.count("\n")


def _one_of(branches: Sequence[tuple[str, str]], line_breaks: int) -> str:
    """Return the C++ for a statement with conditions inside; "" if it has too few lines for them, or is no PTX."""
    lines = []
    for directive, text in branches:
        variant = Source(text)
        written = variant.edited(assembly_edits(variant)).rstrip("\n")
        if written == text:
            return ""
        lines += [directive, written]
    chosen = "\n".join(["", *lines, "#endif"])
    padding = line_breaks - chosen.count("\n")
    return chosen + "\n" * padding if padding > 0 else ""


def _statement(inside: Sequence[Token]) -> str:
    """Return the C++ for what stands between the parentheses; "" for what is no PTX."""
    parts = _parts(inside)
    strings = [token for token in parts[0] if token.kind == "string"]
    if not strings:
        return ""
    template = "".join(_decoded(token.text) for token in strings)
    if len(strings) != len(parts[0]):
        named = next(token.text for token in parts[0] if token.kind != "string")
        return refusal(f"inline PTX that {named} is a part of") if _is_ptx(template) else ""
    operands = [_operands(part) for part in [*parts[1:3], [], []][:2]]
    held = [one.letter for one in (*operands[0], *operands[1])]
    if not template.strip() and ("r" in held[: len(operands[0])] or any(letter in _OF_PTX_ALONE for letter in held)):
        return 'do { __asm__ volatile("" ::: "memory"); } while (0)'  # registers that the compiler shall not move
    if not _is_ptx(template):
        return ""
    return _written(template, operands[0], operands[1], plain=len(parts) == 1)


def _is_ptx(template: str) -> bool:
    """Return whether the first instruction is PTX, and not an instruction of the host's processor."""
    words = re.sub(r"//[^\n]*|/\*.*?\*/", " ", template, flags=re.DOTALL)
    first = re.match(r"[\s{;]*(?:\.reg\b|(?:@!?[%\w]+\s+)?(?P<opcode>[a-z][\w]*)(?P<dot>\.)?)", words)
    if not first or not first[0].strip(" {;\n\t"):
        return False
    return first["opcode"] is None or bool(first["dot"]) or first["opcode"] in KNOWN


def _written(template: str, outputs: list[Operand], inputs: list[Operand], *, plain: bool) -> str:
    operands = [*outputs, *inputs]
    names: dict[str, str] = {}
    declared: list[str] = []
    multiplies = "wgmma.mma_async" in template  # which reads and writes its sums when it likes
    for number, operand in enumerate(operands):
        variable = f"lk_p{number}"
        if operand.letter.isdigit() and int(operand.letter) < len(outputs):
            variable = f"lk_p{operand.letter}"
            kind = _TYPES.get(outputs[int(operand.letter)].letter, "unsigned")
            declared.append(f"{variable} = lk::ptx::input<{kind}>({operand.expression});")
        elif operand.letter not in _TYPES:
            return refusal(f'inline PTX with the constraint "{operand.constraint}"')
        else:
            kind = _TYPES[operand.letter]
            has_value = number >= len(outputs) or operand.constraint.startswith("+")
            taken = "LK_SUM_INPUT" if multiplies and number < len(outputs) else "lk::ptx::input"
            value = f" = {taken}<{kind}>({operand.expression})" if has_value else ""
            declared.append(f"{kind} {variable}{value};")
        names[str(number)] = variable
        if operand.name:
            names[operand.name] = variable

    def variable_of(found: re.Match[str]) -> str:
        return "%" if found[3] else f" ${names.get(found[1] or found[2], 'lk_p_unknown')} "

    body: PtxText = parse(template if plain else _OPERAND.sub(variable_of, template))
    kinds = {f"lk_p{number}": _TYPES.get(one.letter, "unsigned") for number, one in enumerate(operands)}
    statements = translate(body, kinds)
    given = "LK_SUM_OUTPUT" if multiplies else "lk::ptx::output"
    written = [f"{given}(({one.expression}), lk_p{number});" for number, one in enumerate(outputs)]
    if multiplies:  # before a commit or a wait of the same statement
        last = max((at for at, text in enumerate(statements) if "warpgroup_multiply" in text), default=len(statements))
        pending = ", ".join(f"({one.expression})" for one in outputs)
        statements.insert(last + 1, f"LK_PENDING_SUMS({pending});")
    if any("lk_carry" in statement for statement in statements):
        declared.append("unsigned lk_carry = 0;")
    labels = [f"__label__ {', '.join(f'lk_l_{name}' for name in body.labels)};"] if body.labels else []
    return " ".join(["do {", *labels, *declared, *statements, *written, "} while (0)"])


def _operands(part: Sequence[Token]) -> list[Operand]:
    """Return the operands ``[name] "constraint" (expression), ...`` of one section."""
    found = []
    at = 0
    closing = closing_brackets(part)
    while at < len(part):
        name = ""
        if part[at].text == "[" and at + 3 < len(part):
            name, at = part[at + 1].text, at + 3
        if part[at].kind == "string" and at + 1 < len(part) and part[at + 1].text == "(":
            expression = " ".join(token.text for token in part[at + 2 : closing[at + 1]])
            found.append(Operand(name, _decoded(part[at].text), expression))
            at = closing[at + 1]
        at += 1
    return found


def _parts(inside: Sequence[Token]) -> list[list[Token]]:
    """Return the tokens between the colons outside of brackets; ``::`` is two of them."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in inside:
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if depth == 0 and token.text in (":", "::"):
            parts += [[] for _ in token.text]
        else:
            parts[-1].append(token)
    return parts


def _decoded(literal: str) -> str:
    """Return the characters of a string literal."""
    raw = re.fullmatch(r'(?:u8|[uUL])?R"([^()\\\s"]{0,16})\((.*)\)\1"', literal, re.DOTALL)
    if raw:
        return raw[2]
    plain = re.sub(r"\\[ \t\r]*\n", "", literal[literal.index('"') + 1 : -1])
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), plain, flags=re.DOTALL)
