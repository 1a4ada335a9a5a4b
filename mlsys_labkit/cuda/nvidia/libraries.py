"""NVIDIA's compiler libraries, found in the wheels that pip installs, beside torch, or in a CUDA toolkit."""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlsys_labkit.errors import MissingExtraError


@dataclass(frozen=True)
class Nvrtc:
    """A copy of NVRTC.

    Attributes:
        library: libnvrtc itself. builtins: the library it opens by name, which the system's linker may not find; None
            where it lies nowhere near.
    """

    library: Path
    builtins: Path | None

    @property
    def identity(self) -> str:
        """Text that changes when the library does."""
        state = self.library.stat()
        return f"{self.library} {state.st_size} {state.st_mtime_ns}"


def find_nvrtc() -> Nvrtc:
    """Return the newest NVRTC among the installed wheels (torch for GPUs brings one), else the toolkit's.

    Raises MissingExtraError when there is none.
    """
    for folders in (_wheel_folders("lib"), _toolkit_folders("lib64", "lib")):
        found = [path for folder in folders for path in folder.glob("libnvrtc.so*") if _version(path)]
        if found:
            library = max(found, key=_version).resolve()
            return Nvrtc(library, next(library.parent.glob("libnvrtc-builtins.so*"), None))
    raise MissingExtraError(
        "NVRTC, NVIDIA's run-time compiler, is not installed; run: pip install 'mlsys-labkit[cuda]' "
        "(it needs Linux, and no GPU)"
    )


def find_nvdisasm() -> Path:
    """Return NVIDIA's disassembler. Raises MissingExtraError when there is none."""
    folders = [*_wheel_folders("bin"), *_toolkit_folders("bin")]
    for folder in folders:
        if (folder / "nvdisasm").exists():
            return folder / "nvdisasm"
    if on_path := shutil.which("nvdisasm"):
        return Path(on_path)
    raise MissingExtraError(
        "nvdisasm, NVIDIA's disassembler, is not installed; run: pip install 'mlsys-labkit[cuda]' (it needs no GPU)"
    )


def toolkit_headers() -> tuple[Path, ...]:
    """Return include folders with CUDA's headers, for an NVRTC that brings none; empty when there are none.

    A folder counts only if it is complete. The wheels that torch installs have cuda_fp16.h, and lack what it includes.
    """
    for folder in (*_wheel_folders("include"), *_toolkit_folders("include")):
        both = [path for path in (folder, folder / "cccl") if path.is_dir()]
        if all(any((path / name).exists() for path in both) for name in ("cuda_fp16.h", "nv/target", "crt/mma.h")):
            return tuple(both)
    return ()


def _wheel_folders(kind: str) -> Iterator[Path]:
    """Yield ``site-packages/nvidia/cu13/lib`` and, for CUDA 12, ``site-packages/nvidia/cuda_nvrtc/lib``."""
    for entry in sys.path:
        yield from sorted(Path(entry or ".").glob(f"nvidia/*/{kind}"))


def _toolkit_folders(*kinds: str) -> Iterator[Path]:
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for root in filter(None, roots):
        yield from (Path(root) / kind for kind in kinds if (Path(root) / kind).is_dir())
    if "lib" in kinds and (name := ctypes.util.find_library("nvrtc")):
        yield from (path for path in _system_folders() if (path / name).exists())


def _system_folders() -> Iterator[Path]:
    for name in (f"{os.uname().machine}-linux-gnu", ""):
        yield from (Path(root) / name for root in ("/usr/lib", "/lib", "/usr/lib64"))


def _version(path: Path) -> tuple[int, ...]:
    """Return (13,) of libnvrtc.so.13, and nothing for a link without a number or for the variant libnvrtc.alt."""
    return tuple(int(part) for part in re.sub(r"^libnvrtc\.so\.?", "", path.name).split(".") if part.isdigit())
