"""CUDA's headers, compiled once for all submissions: seconds and a hundred megabytes for each otherwise.

Only headers are lent. Compiled kernels are not: the lab's own solution would be among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mlsys_labkit.errors import LabkitError

_HIDDEN = ("/tmp", "/dev", "/proc", "/sandbox", "/mnt")  # a sandbox has its own of these
_CUDA = "mlsys_labkit.cuda"


def lent_headers(modules: Sequence[str]) -> Path | None:
    """Return a folder of compiled headers that any user may read; None for a lab without CUDA.

    None as well where there is no compiler, or the user's cache is in a folder that a sandbox has its own of: then
    every submission compiles for itself.
    """
    if not any(name == _CUDA or name.startswith(f"{_CUDA}.") for name in modules):
        return None
    return _made()


@cache
def _made() -> Path | None:
    from mlsys_labkit.cuda.cache import Cache
    from mlsys_labkit.cuda.kernel.gcc.flags import Build
    from mlsys_labkit.cuda.kernel.gcc.headers import precompiled
    from mlsys_labkit.cuda.kernel.gcc.toolchain import find_toolchain

    folder = Cache().folder.resolve().with_name("cuda-lent")
    if any(folder.is_relative_to(hidden) for hidden in _HIDDEN):
        return None
    try:
        toolchain = find_toolchain()
        for build in Build:
            entry = precompiled(build, toolchain, Cache(folder)).parent
            for path in (*entry.iterdir(), entry, folder):
                path.chmod(0o755)
    except (LabkitError, OSError):
        return None  # the lab's own cells will report what is missing
    return folder
