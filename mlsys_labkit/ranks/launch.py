"""``run``: the same function on many ranks, on a suitable backend."""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat

from mlsys_labkit.errors import RanksError, require
from mlsys_labkit.ranks.result import Run

if TYPE_CHECKING:
    from mlsys_labkit.ranks.random_state import RandomState

_MOST = {"local": 256, "gloo": 64, "nccl": 64}

Chosen = Literal["local", "gloo", "nccl"]
BackendName = Literal["auto"] | Chosen


@dataclass(frozen=True)
class Each:
    """One value per rank; made by ``each``."""

    values: tuple[Any, ...]


def each(values: Sequence[Any]) -> Each:
    """Mark an argument of ``run``: rank r gets its r-th item. Raises RanksError for an argument without items.

    Example:
        >>> each([10, 20]).values
        (10, 20)

    Reference: R. Gerbessiotis and L. Valiant, "Direct Bulk-Synchronous Parallel Algorithms", JPDC 22(2), 1994.
    """
    if not isinstance(values, Iterable):
        raise RanksError(f"each() takes one item a rank, such as each([10, 20]); got {values!r}")
    return Each(tuple(values))


def run(
    fn: Callable[..., Any],
    world_size: int,
    backend: BackendName = "auto",
    *,
    args: Sequence[Any] = (),
    timeout_seconds: float = 60.0,
    memory: bool = False,
    quiet: bool = False,
) -> Run:
    """Call ``fn(*args)`` on ``world_size`` ranks at once. Inside, ``torch.distributed`` works as in any program.

    Args:
        world_size: at most 256 on "local", else 64, and as many as the memory holds.
        backend: "local": threads of this process that take turns, so that a run is the same every time and a missing
            wait or receive shows every time. "gloo": a process per rank. "nccl": a GPU per rank. "auto": "nccl" if
            there is a GPU for each rank, else "local". On each of them a rank has the globals of the program, and all
            that they hold, to itself, with what its code sets on libraries, and the notebook's stay as they are.
            "local" shares what installed packages keep for themselves that do not use ``torch.distributed``, and what
            cannot be copied: open files, sockets, handles of libraries. Its ranks can have no handlers of signals.
            A thread that a rank starts there sees the globals of the rank whose turn it is; a finding names it.
        args: each rank gets a copy of them; of one made by ``each``, its own item.
        memory: trace the tensors that each rank makes and holds (``run.memory``).
        quiet: do not show what the ranks print; it is kept in ``run.outputs`` anyway.

    Raises RankError (a rank raised, exited or did not end within ``timeout_seconds``), DeadlockError, MismatchError,
    and RanksError for what cannot be run; ``.trace`` of each is what had been recorded by then.

    Example:
        >>> import torch, torch.distributed as dist
        >>> def total(x):
        ...     dist.all_reduce(x)
        ...     return x.item()
        >>> run(total, 3, "local", args=(each([torch.tensor(1.0), torch.tensor(2.0), torch.tensor(4.0)]),)).values
        [7.0, 7.0, 7.0]

    Reference: S. Li et al., "PyTorch Distributed", VLDB 2020; MPI Forum, "MPI: A Message-Passing Interface Standard".
    """
    chosen, size = chosen_backend(backend, world_size)
    _check(fn, timeout_seconds)
    given = _for_each(args, size)
    if chosen == "local":
        given = [copied(own, "an argument") for own in given]
    return start(fn, given, chosen, timeout_seconds, memory, quiet)


def start(
    fn: Callable[..., Any],
    given: Sequence[Sequence[Any]],
    backend: Chosen,
    timeout_seconds: float,
    memory: bool,
    quiet: bool,
) -> Run:
    """Run ``fn(*given[rank])`` on every rank of a backend that has been chosen and checked."""
    from mlsys_labkit.ranks.random_state import RandomState

    if backend == "local":
        from mlsys_labkit.ranks.local.run import run_local

        return run_local(fn, given, timeout_seconds, memory, quiet)
    from mlsys_labkit.ranks.processes.session import run_in_processes

    state = RandomState.capture()
    seeded = [(state, fn, *own) for own in given]
    return run_in_processes(_with_state, seeded, backend, timeout_seconds, memory, quiet)


def _with_state(state: RandomState, fn: Callable[..., Any], *args: Any) -> Any:
    state.restore()
    return fn(*args)


def chosen_backend(backend: str, world_size: object) -> tuple[Chosen, int]:
    """Return the backend and the number of ranks. Raises RanksError for a choice that cannot run here."""
    torch = require("torch", "torch")
    from mlsys_labkit.ranks.recording.recorder import running

    size = _world_size(world_size)
    chosen = _backend(torch, backend, size)
    if size > _MOST[chosen]:
        raise RanksError(
            f"{size} ranks are too many for the {chosen} backend, which takes at most {_MOST[chosen]}; "
            f"take fewer, up to {_MOST['local']} with backend='local'"
        )
    if running():
        raise RanksError("ranks.run was called on a rank of another run; call it outside, once for each run")
    return chosen, size


def _check(fn: Any, timeout_seconds: Any) -> None:
    if not callable(fn):
        raise RanksError(f"ranks.run takes a function to call on each rank, not a {type(fn).__name__}")
    if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
        raise RanksError(
            f"{fn.__name__} has yield or async in it, so that a call of it runs nothing; take a plain function"
        )
    if not isinstance(timeout_seconds, SupportsFloat) or not float(timeout_seconds) > 0:
        raise RanksError(f"timeout_seconds must be a positive number, got {timeout_seconds!r}")


def _world_size(world_size: Any) -> int:
    try:
        size = operator.index(world_size)
    except TypeError:
        raise RanksError(f"world_size is a number of ranks, such as 4; got {world_size!r}") from None
    if isinstance(world_size, bool) or size < 1:
        raise RanksError(f"world_size is a number of ranks, at least 1; got {world_size!r}")
    return size


def _backend(torch: Any, backend: str, size: int) -> Chosen:
    if backend == "auto":
        enough = torch.cuda.is_available() and torch.cuda.device_count() >= size
        return "nccl" if enough and torch.distributed.is_nccl_available() else "local"
    if backend not in ("local", "gloo", "nccl"):
        raise RanksError(f"there is no backend {backend!r}; choose auto, local, gloo or nccl")
    if backend == "nccl" and torch.cuda.device_count() < size:
        raise RanksError(f"nccl needs a GPU a rank: {size} ranks, {torch.cuda.device_count()} GPUs; use backend='gloo'")
    chosen: Chosen = backend  # type: ignore[assignment]
    return chosen


def _for_each(args: Sequence[Any], size: int) -> list[list[Any]]:
    if not isinstance(args, (list, tuple)):
        raise RanksError(f"args is a tuple of arguments, args=(x,) for one; got a {type(args).__name__}")
    for position, one in enumerate(args):
        if isinstance(one, Each) and len(one.values) != size:
            raise RanksError(f"argument {position}: each() has {len(one.values)} items for {size} ranks")
    return [[one.values[rank] if isinstance(one, Each) else one for one in args] for rank in range(size)]


def copied(own: Any, what: str) -> Any:
    """Return a deep copy, as another process would have it. Raises RanksError if ``own`` cannot be copied."""
    try:
        return copy.deepcopy(own)
    except Exception as error:
        raise RanksError(f"{what} cannot be copied for each rank ({error}); make it on the ranks") from error
