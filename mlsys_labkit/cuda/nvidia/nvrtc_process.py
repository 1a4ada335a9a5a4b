"""One call of NVRTC in a process of its own, which may crash, hang or be stopped without harm to the notebook.

    python -I -S nvrtc_process.py < request.json > reply.json

It is a script and imports nothing of the kit, to start in milliseconds. ``nvrtc.py`` writes the request.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

SUCCESS = 0


class Library:
    """The functions of libnvrtc that are used here."""

    def __init__(self, path: str, builtins: str | None) -> None:
        if builtins:
            ctypes.CDLL(builtins, ctypes.RTLD_GLOBAL)  # NVRTC opens it by its bare name
        self.calls = ctypes.CDLL(path)
        self.calls.nvrtcGetErrorString.restype = ctypes.c_char_p

    def check(self, status: int) -> None:
        if status != SUCCESS:
            raise RuntimeError(self.calls.nvrtcGetErrorString(status).decode())

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.check(self.calls.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return f"{major.value}.{minor.value}"

    def architectures(self) -> list[str]:
        count = ctypes.c_int()
        self.check(self.calls.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        numbers = (ctypes.c_int * count.value)()
        self.check(self.calls.nvrtcGetSupportedArchs(numbers))
        return [f"sm_{number}" for number in numbers]

    def install_headers(self, folder: str) -> bool:
        """Unpack the CUDA headers that NVRTC carries from 13.3 on."""
        if not hasattr(self.calls, "nvrtcInstallBundledHeaders"):
            return False
        return bool(self.calls.nvrtcInstallBundledHeaders(folder.encode(), 0, None) == SUCCESS)

    def fetch(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self.check(getattr(self.calls, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self.check(getattr(self.calls, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        program = ctypes.c_void_p()
        headers = request["headers"]
        texts = (ctypes.c_char_p * len(headers))(*(text.encode() for text in headers.values()))
        names = (ctypes.c_char_p * len(headers))(*(name.encode() for name in headers))
        source, file = request["source"].encode(errors="surrogateescape"), request["file"].encode()
        self.check(
            self.calls.nvrtcCreateProgram(ctypes.byref(program), source, file, len(headers), texts, names),
        )
        expressions = [name.encode() for name in request["names"]]
        for expression in expressions:
            self.check(self.calls.nvrtcAddNameExpression(program, expression))
        options = (ctypes.c_char_p * len(request["options"]))(*(option.encode() for option in request["options"]))
        status = self.calls.nvrtcCompileProgram(program, len(options), options)
        reply: dict[str, Any] = {"status": self.calls.nvrtcGetErrorString(status).decode()}
        reply["log"] = self.fetch(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status == SUCCESS:
            folder = Path(request["folder"])
            folder.joinpath("kernel.ptx").write_bytes(self.fetch(program, "PTX").rstrip(b"\0"))
            folder.joinpath("kernel.cubin").write_bytes(self.fetch(program, "CUBIN"))
            reply["symbols"] = [self.symbol(program, expression) for expression in expressions]
        return reply

    def symbol(self, program: ctypes.c_void_p, expression: bytes) -> str:
        name = ctypes.c_char_p()
        self.check(self.calls.nvrtcGetLoweredName(program, expression, ctypes.byref(name)))
        return (name.value or b"").decode()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    library = Library(request["library"], request["builtins"])
    reply: dict[str, Any] = {"version": library.version(), "architectures": library.architectures()}
    if "headers_folder" in request:
        reply["installed"] = library.install_headers(request["headers_folder"])
    if "source" in request:
        reply |= library.compile(request)
    return reply


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
