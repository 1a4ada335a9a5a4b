"""Kernels that some threads leave early: what these threads do not reach, they need not take part in."""

from __future__ import annotations

from mlsys_labkit.cuda.source.functions import device_functions
from mlsys_labkit.cuda.source.source import Source

_LOOPS = ("for", "while", "do")


def may_have_returned(source: Source, kernel: str, line: int) -> bool:
    """Return whether a thread may have left the kernel by a ``return`` when others are at ``line``.

    Example:
        >>> text = "__global__ void k(int n) {\\n  if (threadIdx.x >= n) return;\\n  __syncwarp();\\n}"
        >>> may_have_returned(Source(text), "k", 3), may_have_returned(Source(text), "k", 1)
        (True, False)
        >>> may_have_returned(Source("MAKE_KERNEL(k)"), "k", 1)
        True
    """
    name = kernel.split("<")[0].split("::")[-1].strip("() ")
    macros = {macro for macro, body in _macros(source) if "return" in body}
    code, known = source.code, False
    for function in device_functions(source):
        if function.name != name:
            continue
        known = True
        returns = [
            index
            for index in range(function.opening, function.closing)
            if code[index].text == "return" or code[index].text in macros
        ]
        if not code[function.opening].line <= line <= code[function.closing].line:
            if returns:
                return True
        elif any(code[index].line <= line or _in_one_loop(source, function.opening, index, line) for index in returns):
            return True
    return not known


def _macros(source: Source) -> list[tuple[str, list[str]]]:
    """Return the name of each macro and the words of its text."""
    found = []
    for token in source.tokens:
        words = token.text.replace("(", " ( ").replace(";", " ").split() if token.kind == "directive" else []
        if words[:1] == ["#define"]:
            found.append((words[1], words[2:]))
    return found


def _in_one_loop(source: Source, first: int, index: int, line: int) -> bool:
    """Return whether a loop of the function that begins at ``first`` holds both the token ``index`` and ``line``."""
    code = source.code
    for at in range(first, index):
        if code[at].text in _LOOPS and code[at].line <= line:
            body = at + 1 if code[at].text == "do" else source.closing[at + 1] + 1
            end = source.closing[body] if code[body].text == "{" else body
            if end > index:
                return True
    return False
