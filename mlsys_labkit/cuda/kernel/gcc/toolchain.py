"""The C++ compiler that compiles kernels for the CPU: g++ 12 or newer, on Linux."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from mlsys_labkit.cuda.errors import CudaError

OLDEST = 12  # the first whose C++ has _Float16 on x86-64, and the oldest the counters are tested with
_NAMES = ("g++", "g++-14", "g++-13", "g++-12", "g++-15", "g++-16")
_MACHINES = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Toolchain:
    """A compiler and the machine it compiles for.

    Attributes:
        command: how to call it, such as ``("/usr/bin/g++",)``.
        version: such as ``"12.2.0"``.
        machine: ``"x86_64"`` or ``"aarch64"``.
        cpu: names the instruction set: machines that share a home differ in what ``-march=native`` means.
    """

    command: tuple[str, ...]
    version: str
    machine: str
    cpu: str

    @property
    def identity(self) -> str:
        """Text that differs between compilers whose output differs, for the names of cache entries."""
        return " ".join((*self.command, self.version, self.machine))


def find_toolchain() -> Toolchain:
    """Return the compiler named by ``CXX``, else the first of g++, g++-14, -13, -12, -15 and -16 that is new enough.

    Raises CudaError where kernels cannot be compiled on this machine, with the command that mends it.
    """
    return _find(os.environ.get("CXX", "").strip(), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _find(chosen: str, path: str) -> Toolchain:
    system = platform.system()
    if system != "Linux":
        way = "install WSL (wsl --install) and run Jupyter there" if system == "Windows" else "open the lab on Binder"
        raise CudaError(f"kernels run on Linux, and this is {system}; {way}, or use a machine with Linux")
    machine = platform.machine()
    if machine not in _MACHINES:
        raise CudaError(f"kernels run on x86-64 and aarch64, and this machine is {machine}; open the lab on Binder")
    refused = []
    for command in [tuple(chosen.split())] if chosen else [(name,) for name in _NAMES]:
        located = shutil.which(command[-1], path=path)
        version = _version((*command[:-1], located)) if located else None
        if located is None:
            refused.append(f"{command[-1]} is not there")
        elif version is None:
            refused.append(f"{command[-1]} is not GNU g++")
        elif int(version.split(".")[0]) < OLDEST:
            refused.append(f"{command[-1]} is version {version}")
        else:
            return Toolchain((*command[:-1], located), version, machine, _cpu())
    what = f"CXX={chosen} does not do: {refused[0]}" if chosen else _summary(refused)
    raise CudaError(
        f"a kernel needs g++ {OLDEST} or newer, and {what}; "
        "run: sudo apt install g++ (or: conda install -c conda-forge gxx binutils), or set CXX to one"
    )


def _summary(refused: list[str]) -> str:
    return next((one for one in refused if "not there" not in one), "no g++ is installed")


def _version(command: tuple[str, ...]) -> str | None:
    """Return the version of a GNU compiler, None for any other: clang may be called g++, but lacks this option."""
    try:
        said = subprocess.run([*command, "-dumpfullversion"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    version = said.stdout.strip()
    return version if re.fullmatch(r"\d+(\.\d+)*", version) else None


@functools.cache
def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return " ".join(sorted(found[1].split())) if found else platform.processor()
