"""Turn a CUDA program into C++ that g++ takes, by inserting text only: no line moves.

``kernel<<<grid, block>>>(a, n)`` becomes ``lk_launch("kernel", kernel, lk_configure(grid, block))(a, n)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mlsys_labkit.cuda.source.mask import mask

_KERNEL = re.compile(r"\b__global__\b")
_DEVICE = re.compile(r"\b(?:__global__|__device__)\b")
_ATTRIBUTE = re.compile(r"(?:__launch_bounds__|__cluster_dims__|__maxnreg__|__attribute__|alignas|__align__)\s*\(")
_BEFORE_PARAMETERS = re.compile(r"([A-Za-z_]\w*)\s*(<[^;{}()]*>)?\s*\(")
_LAUNCH = re.compile(r"<<[ \t]*<")  # some editors write << <
_END_OF_CONFIGURATION = re.compile(r">>[ \t]*>")
_CAST = re.compile(r"\b(cudaLaunch(?:Cooperative)?Kernel)\s*\(\s*(\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)\s*)")
_REINTERPRET = re.compile(
    r"\b(cudaLaunch(?:Cooperative)?Kernel)\s*\(\s*((?:reinterpret|static)_cast\s*<\s*(?:const\s+)?void\s*\*\s*>)"
)
_NULL = re.compile(r"\bNULL\b")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?![\w(])", re.MULTILINE)
# Both end with a declarator, the first of its declaration or behind a comma.
_CONSTANT = (
    r"\b(?:const|constexpr)\b(?:[^;(){}]|\([^;(){}]*\))*?(?<=[\s,*])NAME\s*=(?!=)((?:[^;,(){}]|\([^;(){}]*\))*)(?=[;,])"
)
_VARIABLE = (
    r"\b(?:int|unsigned|long|short|size_t|u?int\d+_t|float|double)\b(?:[^;(){}]|\([^;(){}]*\))*?(?<=[\s,])NAME\s*="
    r"(\s*[\d(](?:[\s\d.eEfFuUlLxXa-fA-F'()<>*/+%-])*)(?=[;,])"
)


@dataclass(frozen=True)
class KernelNames:
    """What a launch must know of the kernels around it, to choose how it is written."""

    template_parameters: Mapping[str, int]  # of each kernel template: how many there are
    call_only: frozenset[str]  # overloaded, or with default arguments: only a call can choose
    parameters: Mapping[str, str]  # the text between each kernel's parentheses

    def needs_call(self, name: str, written: int) -> bool:
        """Whether `name` (with `written` template arguments after it) is no single function yet."""
        return name in self.call_only or (
            name in self.template_parameters and self.template_parameters[name] != written
        )


@dataclass(frozen=True)
class DeviceLaunch:
    """A launch inside a kernel (dynamic parallelism), which the simulator leaves out."""

    line: int
    text: str


def find_kernels(texts: Iterable[str]) -> KernelNames:
    """Read the kernels' headers in all files of a program.

    Example:
        >>> names = find_kernels(["template <class T> __global__ void fill(T* p);  __global__ void go(int n = 1);"])
        >>> dict(names.template_parameters), sorted(names.call_only)
        ({'fill': 1}, ['go'])
    """
    templates: dict[str, int] = {}
    texts_of: dict[str, str] = {}
    signatures: dict[str, set[str]] = {}
    call_only: set[str] = set()
    for text in texts:
        code = mask(text)
        for found in _KERNEL.finditer(code):
            header = _header(code, found.end())
            if header is None:
                continue
            name, parameters = header
            texts_of[name] = parameters
            before = code[_statement_start(code, found.start()) : found.start()]
            if "template" in before:
                templates[name] = max(templates.get(name, 0), _template_arity(before))
            signatures.setdefault(name, set()).add(_parameter_types(parameters))
            if "=" in parameters:
                call_only.add(name)
    call_only |= {name for name, seen in signatures.items() if len(seen) > 1}
    return KernelNames(templates, frozenset(call_only), texts_of)


def rewrite(text: str, kernels: KernelNames, defines: Mapping[str, object] | None = None) -> str:
    """The program's text with launches written as calls and sizes replaced; as many lines as before.

    Example:
        >>> rewrite("go<<<1, n>>>(p, NULL);", find_kernels(["__global__ void go(int* p, int* q) {}"]))
        'lk_launch("go", go, lk_configure(1, n))(p, NULL);'
    """
    text = with_defines(text, defines or {})
    code = mask(text)
    edits = [*_launch_edits(code, kernels), *_cast_edits(code)]
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def device_launches(text: str) -> list[DeviceLaunch]:
    """Launches inside kernels or device functions.

    Example:
        >>> device_launches("__global__ void a() {\\n  b<<<1, 1>>>();\\n}")
        [DeviceLaunch(line=2, text='b<<<1, 1>>>();')]
    """
    code = mask(text)
    bodies = list(_device_bodies(code))
    lines = text.splitlines()
    found = []
    for launch in _LAUNCH.finditer(code):
        if any(start < launch.start() < end for start, end in bodies):
            line = code.count("\n", 0, launch.start()) + 1
            found.append(DeviceLaunch(line, lines[line - 1].strip()))
    return found


def _launch_edits(code: str, kernels: KernelNames) -> Iterator[tuple[int, int, str]]:
    done = 0
    for found in _LAUNCH.finditer(code):
        start = found.start()
        closing = _configuration_end(code, found.end())
        if closing is None:
            continue
        close, behind = closing
        parenthesis = _skip_space(code, behind)
        if code[parenthesis : parenthesis + 1] != "(":
            continue
        begin, end = _kernel_expression(code, start)
        if begin == end or close < done:
            continue  # no launch, whatever it is: the compiler will say so
        done = behind
        expression = code[begin:end]
        arguments_end = matching(code, parenthesis)
        label = "" if _in_directive(code, begin) else " ".join(re.sub(r'["\\\\]', " ", expression).split())
        if _chosen_by_call(expression, kernels):
            yield begin, begin, f'lk_launch("{label}", [=](auto... lk_a) LK_UNRECORDED {{ '
            yield end, found.end(), code[end : found.end() - len(found[0])] + "(lk_a...); }, lk_configure("
            for null in _NULL.finditer(code, parenthesis, arguments_end):
                yield null.start(), null.end(), "nullptr"
        else:
            yield begin, begin, f'lk_launch("{label}", '
            yield start, found.end(), ", lk_configure("
        yield close, behind, "))"


def _cast_edits(code: str) -> Iterator[tuple[int, int, str]]:
    """cudaLaunchKernel((void*)kernel, ...): without the cast the kernel's parameters are known."""
    for pattern in (_CAST, _REINTERPRET):
        for found in pattern.finditer(code):
            yield found.start(2), found.end(2), ""


def _chosen_by_call(expression: str, kernels: KernelNames) -> bool:
    parts = re.match(r"(?s)(.*?)(<.*>)?\s*$", expression.strip())
    assert parts  # the pattern takes any text
    plain = re.search(r"(\w+)\s*$", parts[1])
    if not plain:
        return False  # an expression in brackets or parentheses: a pointer, or a name that must stand for one function
    arguments = _split_arguments(parts[2][1:-1]) if parts[2] else []
    return kernels.needs_call(plain[1], len(arguments))


def _kernel_expression(code: str, launch: int) -> tuple[int, int]:
    """Where the kernel's name begins and ends, read backwards from <<<."""
    end = launch
    while end > 0 and (code[end - 1].isspace() or code[end - 1] == "\\"):
        end -= 1
    begin = end
    while begin > 0:
        last = code[begin - 1]
        if last in ")]>":
            opening = _matching_back(code, begin - 1)
            if opening is None:
                break
            begin = opening
            before = begin
            while before > 0 and code[before - 1] in " \t":
                before -= 1
            if last != ")" and before > 0 and (code[before - 1].isalnum() or code[before - 1] == "_"):
                begin = before
                continue
            if before > 0 and (code[before - 1].isalnum() or code[before - 1] == "_") and last == ")":
                word = re.search(r"\w+$", code[:before])
                if word and word[0] not in {"if", "for", "while", "else", "return", "switch", "do"}:
                    begin = before
                    continue
            break
        if last.isalnum() or last == "_":
            while begin > 0 and (code[begin - 1].isalnum() or code[begin - 1] == "_"):
                begin -= 1
            if code[:begin].endswith(("::", "->", ".")):
                begin -= 1 if code[begin - 1] == "." else 2
                continue
            break
        break
    return begin, end


def _configuration_end(code: str, start: int) -> tuple[int, int] | None:
    """Where >>> begins and ends."""
    depth = 0
    for at in range(start, len(code)):
        if code[at] in "([{":
            depth += 1
        elif code[at] in ")]}":
            depth -= 1
            if depth < 0:
                return None
        elif depth == 0 and (found := _END_OF_CONFIGURATION.match(code, at)):
            return at, found.end()
    return None


def matching(code: str, at: int) -> int:
    """The position of the bracket that closes the one at `at`; the text's end when none does."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    opening, closing = code[at], pairs[code[at]]
    depth = 0
    for position in range(at, len(code)):
        if code[position] == opening:
            depth += 1
        elif code[position] == closing:
            depth -= 1
            if depth == 0:
                return position
    return len(code)


def _matching_back(code: str, at: int) -> int | None:
    pairs = {")": "(", "]": "[", ">": "<"}
    closing, opening = code[at], pairs[code[at]]
    depth = 0
    inside = 0
    for position in range(at, -1, -1):
        each = code[position]
        if closing == ">" and each in ")]":
            inside += 1
        elif closing == ">" and each in "([":
            inside -= 1
            if inside < 0:
                return None
        elif inside == 0 and each == closing:
            depth += 1
        elif inside == 0 and each == opening:
            depth -= 1
            if depth == 0:
                return position
        elif closing == ">" and each in ";{}":
            return None
    return None


def _header(code: str, at: int) -> tuple[str, str] | None:
    """Name and parameters of the function whose header goes on at `at`."""
    while True:
        attribute = _ATTRIBUTE.search(code, at)
        named = _BEFORE_PARAMETERS.search(code, at)
        if not named:
            return None
        if attribute and attribute.start() <= named.start():
            at = matching(code, attribute.end() - 1) + 1
            continue
        if any(stop in code[at : named.start()] for stop in ";{}"):
            return None
        return named[1], code[named.end() : matching(code, named.end() - 1)]


def _device_bodies(code: str) -> Iterator[tuple[int, int]]:
    for found in _DEVICE.finditer(code):
        header = re.compile(r"[;{=]").search(code, found.end())
        if header and header[0] == "{":
            yield header.start(), matching(code, header.start())


def _statement_start(code: str, at: int) -> int:
    boundary = max(code.rfind(stop, 0, at) for stop in ";{}")
    start = boundary + 1
    for directive in re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\)*$", re.MULTILINE).finditer(code, start, at):
        start = directive.end()
    return start


def _template_arity(before: str) -> int:
    opening = before.find("<", before.find("template"))
    depth = 0
    for at in range(opening, len(before)):
        depth += {"<": 1, ">": -1}.get(before[at], 0)
        if depth == 0:
            return len(_split_arguments(before[opening + 1 : at]))
    return 1


def _split_arguments(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for each in text:
        depth += {"<": 1, "(": 1, "[": 1, "{": 1, ">": -1, ")": -1, "]": -1, "}": -1}.get(each, 0)
        if each == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += each
    return [part for part in [*parts, current] if part.strip()]


def _parameter_types(parameters: str) -> str:
    """The parameter list without names, so that a prototype and its definition look the same."""
    types = []
    for parameter in _split_arguments(parameters):
        plain = re.sub(r"\b(?:const|__restrict__|restrict|__restrict|struct)\b", " ", parameter)
        plain = re.sub(r"\[[^\]]*\]", "*", plain)
        words = re.findall(r"[\w:<>]+|\*", plain)
        named = len([word for word in words if word != "*"]) > 1 and words[-1] != "*"
        types.append(" ".join(words[:-1] if named else words))
    return ",".join(types)


def with_defines(text: str, defines: Mapping[str, object]) -> str:
    """Replace the source's own sizes: `#define N ...`, `const int N = ...`, or else `int N = 1 << 20`, a variable's.

    Example:
        >>> with_defines("const int w = 64, h = f(1, 2); int n = 1 << 20;", {"h": 8, "n": 5})
        'const int w = 64, h = 8; int n = 5;'
    """
    if not defines:
        return text
    code = mask(text)
    edits = []
    for name, value in defines.items():
        for start, end in _definitions(code, name) or _values(_CONSTANT, code, name) or _values(_VARIABLE, code, name):
            edits.append((start, end, f" {value}" + "\n" * code.count("\n", start, end)))
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def _definitions(code: str, name: str) -> list[tuple[int, int]]:
    """What stands behind each `#define name`, with the lines that go on with it."""
    places = []
    for found in _DEFINE.finditer(code):
        if found[1] != name:
            continue
        end = found.end()
        while (newline := code.find("\n", end)) >= 0 and code[end:newline].rstrip().endswith("\\"):
            end = newline + 1
        places.append((found.end(), len(code) if newline < 0 else newline))
    return places


def _values(declaration: str, code: str, name: str) -> list[tuple[int, int]]:
    """What `name` is given in each declaration of its kind."""
    return [found.span(1) for found in re.finditer(declaration.replace("NAME", re.escape(name)), code)]


def _in_directive(code: str, at: int) -> bool:
    start = code.rfind("\n", 0, at) + 1
    while start > 1 and code[: start - 1].endswith("\\"):
        start = code.rfind("\n", 0, start - 1) + 1
    return code[start:at].lstrip().startswith("#")


def _skip_space(code: str, at: int) -> int:
    while at < len(code) and (code[at].isspace() or code[at] == "\\"):
        at += 1
    return at
