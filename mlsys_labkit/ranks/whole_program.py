"""``run_program``: a file that was written for torchrun, on many ranks, as it stands."""

from __future__ import annotations

import builtins
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.machinery import PathFinder
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from mlsys_labkit.errors import RanksError, require
from mlsys_labkit.ranks.launch import BackendName, run
from mlsys_labkit.ranks.result import Run


def run_program(
    file: str | PathLike[str],
    world_size: int,
    backend: BackendName = "auto",
    *,
    args: Sequence[object] = (),
    timeout_seconds: float = 600.0,
    module: bool = False,
    memory: bool = False,
    quiet: bool = False,
) -> Run:
    """Run a Python file on ``world_size`` ranks, as ``torchrun --nproc-per-node`` does. The file needs no change.

    Each rank runs the file as ``__main__`` with ``sys.argv`` and with torchrun's environment variables (RANK,
    LOCAL_RANK, WORLD_SIZE, ...), and imports the modules beside the file for itself. ``init_process_group`` finds the
    run's group, whatever backend it asks for. What the program leaves to ``atexit`` runs when its rank ends.
    ``run.values`` is 0 for each rank.

    Args:
        file: the program; with ``module``, as ``torchrun -m`` has it, a module's name, such as ``"package.train"``,
            seen from the working folder.
        world_size, backend, timeout_seconds, memory, quiet: as for ``ranks.run``.
        args: the program's arguments.

    Raises RanksError for a file that cannot be read, and what ``ranks.run`` raises; a SyntaxError of the file names its
    line, before any rank starts.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "train.py"
        >>> _ = file.write_text(
        ...     "import torch.distributed as dist\\n"
        ...     "dist.init_process_group('nccl')\\n"
        ...     "print('rank', dist.get_rank(), 'of', dist.get_world_size())\\n"
        ... )
        >>> run_program(file, 2, "local", quiet=True).outputs
        ['rank 0 of 2\\n', 'rank 1 of 2\\n']

    Reference: PyTorch, "torchrun (Elastic Launch)", https://docs.pytorch.org/docs/stable/elastic/run.html
    """
    path, package = _find(str(file)) if module else (Path(file).absolute(), None)
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (OSError, ValueError) as error:
        raise RanksError(f"{file} cannot be run as a program: {error}") from None
    words = [str(word) for word in args]
    whole = {"timeout_seconds": timeout_seconds, "memory": memory, "quiet": quiet}
    with on_this_machine():
        return run(run_file, world_size, backend, args=(path, words, package), **whole)  # type: ignore[arg-type]


@contextmanager
def on_this_machine() -> Iterator[None]:
    """Let CUDA calls act on the CPU where there is no GPU, and let a process that a program starts be its rank."""
    require("torch", "torch")
    from mlsys_labkit.ranks.at_exit import registered_by_rank
    from mlsys_labkit.ranks.cuda_on_cpu import cuda_on_cpu
    from mlsys_labkit.ranks.flash_attention import flash_attn_by_torch
    from mlsys_labkit.ranks.spawning import ranks_are_processes

    with cuda_on_cpu(), flash_attn_by_torch(), ranks_are_processes(), registered_by_rank():
        yield


def _find(module: str) -> tuple[Path, str]:
    """Find a module's file and its package, without importing packages: each rank has to do that for itself."""
    places: Sequence[str] | None = [os.getcwd(), *sys.path]
    name, spec = "", None
    for part in [*module.split("."), "__main__"]:
        if name and places is None:
            break
        name = f"{name}.{part}".lstrip(".")
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            raise RanksError(f"there is no module {name} in {os.getcwd()}, or among those that are installed")
        places = spec.submodule_search_locations
    if spec is None or spec.origin is None:
        raise RanksError(f"{module} is no module with a file; name one, such as package.train")
    return Path(spec.origin), name.rpartition(".")[0]


def run_file(file: Path, arguments: list[str], package: str | None = None) -> int:
    """Run ``file`` as this process's main program. Return 0; raise SystemExit for another status.

    ``package`` is that of a program which was named as a module; None for a file.
    """
    import torch

    from mlsys_labkit.ranks.at_exit import run_at_end
    from mlsys_labkit.ranks.cuda_on_cpu import TensorsOnCpu

    path, main = str(file), ModuleType("__main__")
    about: dict[str, Any] = {"__file__": path, "__builtins__": builtins, "__annotations__": {}}
    about |= {} if package is None else {"__package__": package}
    vars(main).update(about)
    sys.modules["__main__"] = main
    sys.argv[:] = [path, *arguments]
    sys.path.insert(0, str(file.parent) if package is None else os.getcwd())
    code = compile(file.read_bytes(), path, "exec", dont_inherit=True)
    try:
        with on_this_machine(), nullcontext() if torch.cuda.is_available() else TensorsOnCpu(), run_at_end():
            if package:
                importlib.import_module(package)
            exec(code, vars(main))
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    except (AssertionError, RuntimeError) as error:
        if not torch.cuda.is_available() and any(word in str(error) for word in ("CUDA", "NVIDIA", "dummy base class")):
            why = "this machine has no GPU, and this call no stand-in; skip it where torch.cuda.is_available() is False"
            error.args = (f"{error} ({why})",)
        raise
    return 0
