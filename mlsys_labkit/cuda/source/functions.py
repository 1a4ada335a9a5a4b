"""The functions with a body that run on the device: kernels, and what is marked ``__device__``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mlsys_labkit.cuda.source.source import Source

_CONDITION = re.compile(r"#[ \t]*(?:if|el|endif)")


@dataclass(frozen=True)
class DeviceFunction:
    """A function that runs on the device.

    Attributes:
        kind: ``"__global__"`` or ``"__device__"``.
        name: without its namespace.
        opening, closing: the indices of its braces in ``Source.code``.
        is_hosts_too: whether it is ``__host__`` as well.
        has_conditions: whether an ``#if`` stands inside, so that a part of the body may never be compiled.
    """

    kind: str
    name: str
    opening: int
    closing: int
    is_hosts_too: bool
    has_conditions: bool


def device_functions(source: Source) -> Iterator[DeviceFunction]:
    """Yield each function for the device, in the order of the lines.

    Example:
        >>> [(one.kind, one.name) for one in device_functions(Source("__device__ int f() { return 1; }  int g() {}"))]
        [('__device__', 'f')]
    """
    conditions = [one.start for one in source.tokens if one.kind == "directive" and _CONDITION.match(one.text)]
    code, index = source.code, 0
    while index < len(code):
        kind = code[index].text
        if kind in ("__global__", "__device__"):
            head = index
            while head and code[head - 1].text not in (";", "{", "}"):
                head -= 1
            name, at = "", index
            while at < len(code) and code[at].text not in (";", "{", "=", "}"):
                if code[at].text == "(":
                    if code[at - 1].kind == "identifier" and not code[at - 1].text.startswith("__"):
                        name = name or code[at - 1].text
                    at = source.closing[at]
                at += 1
            if at < len(code) and code[at].text == "{" and name:
                closing = source.closing[at]
                yield DeviceFunction(
                    kind,
                    name,
                    at,
                    closing,
                    any(token.text == "__host__" for token in code[head:at]),
                    any(code[at].start < place < code[closing].start for place in conditions),
                )
                index = closing
            else:
                index = at
        index += 1
