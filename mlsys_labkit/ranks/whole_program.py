"""``run_program``: a file that was written for torchrun, on many ranks, as it stands."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
    memory: bool = False,
    quiet: bool = False,
) -> Run:
    """Run a Python file on ``world_size`` ranks, as ``torchrun --nproc-per-node`` does. The file needs no change.

    Each rank runs the file as ``__main__`` with ``sys.argv`` and with torchrun's environment variables (RANK,
    LOCAL_RANK, WORLD_SIZE, ...), and imports the modules beside the file for itself. ``init_process_group`` finds the
    run's group, whatever backend it asks for. ``run.values`` is 0 for each rank.

    Args:
        file: the program.
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
    path = Path(file).absolute()
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (OSError, ValueError) as error:
        raise RanksError(f"{file} cannot be run as a program: {error}") from None
    words = [str(word) for word in args]
    whole = {"timeout_seconds": timeout_seconds, "memory": memory, "quiet": quiet}
    with on_this_machine():
        return run(run_file, world_size, backend, args=(str(path), words), **whole)  # type: ignore[arg-type]


@contextmanager
def on_this_machine() -> Iterator[None]:
    """Let CUDA calls act on the CPU where there is no GPU, and let a process that a program starts be its rank."""
    require("torch", "torch")
    from mlsys_labkit.ranks.cuda_on_cpu import cuda_on_cpu
    from mlsys_labkit.ranks.flash_attention import flash_attn_by_torch
    from mlsys_labkit.ranks.spawning import ranks_are_processes

    with cuda_on_cpu(), flash_attn_by_torch(), ranks_are_processes():
        yield


def run_file(path: str, arguments: list[str]) -> int:
    """Run ``path`` as this process's main program. Return 0; raise SystemExit for another status."""
    import torch

    from mlsys_labkit.ranks.cuda_on_cpu import TensorsOnCpu

    main = ModuleType("__main__")
    about: dict[str, Any] = {"__file__": path, "__builtins__": builtins, "__annotations__": {}}
    vars(main).update(about)
    sys.modules["__main__"] = main
    sys.argv[:] = [path, *arguments]
    sys.path.insert(0, str(Path(path).parent))
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    try:
        with on_this_machine(), nullcontext() if torch.cuda.is_available() else TensorsOnCpu():
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
