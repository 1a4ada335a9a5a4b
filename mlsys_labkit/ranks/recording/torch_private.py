"""All private names of torch that the ranks use, in one file, so that a new torch breaks only this file.

torch 2.13 renamed the tensor collectives of a process group and kept the old names beside the new ones.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh, distributed_c10d as c10d
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

_RAW: Any = torch._C._distributed_c10d

RENAMED = {
    "all_gather_single": "_allgather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "all_to_all_single": "alltoall_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
_REDUCTIONS = ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter")
_COPIES = ("broadcast", "allgather", "allgather_coalesced", "alltoall", "gather", "scatter")
_UNCHANGED = _REDUCTIONS + _COPIES + ("barrier", "send", "recv", "recv_anysource")

METHODS: dict[str, str] = {
    name: newest
    for newest, names in (
        {name: (name,) for name in _UNCHANGED} | {new: (new, old) for new, old in RENAMED.items()}
    ).items()
    for name in names
    if hasattr(dist.ProcessGroup, name)
}
"""Method of ``dist.ProcessGroup`` to override -> its newest name."""


def register(name: str, create: Callable[[Any, Any], dist.ProcessGroup]) -> None:
    """Make ``name`` a backend of ``dist.init_process_group``; ``create(options, backend_options)`` makes its groups.

    ``options`` has store, group_rank, group_size, timeout, group_id, and global_ranks_in_group (empty: all ranks).
    """
    if name.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(name, create, extended_api=True, devices=["cpu", "cuda"])
        if hasattr(torch._C, "_ensureCUDADeviceGuardSet") and not torch.cuda.is_available():
            torch._C._ensureCUDADeviceGuardSet()  # in torch 2.11 a first call by a rank's thread, in DTensor, crashes


def attach(group: dist.ProcessGroup, device: str, kind: str, backend: Any) -> None:
    """Let ``group``'s C++ methods use ``backend`` (ProcessGroupGloo, ProcessGroupNCCL) for tensors on ``device``."""
    type_ = getattr(dist.ProcessGroup.BackendType, kind.upper())
    group._register_backend(torch.device(device), type_, backend)
    group._set_default_backend(type_)


def arrived(value: Any) -> Any:
    """Wait for the functional collectives in ``value`` and return it with their results in place."""
    functional = sys.modules.get("torch.distributed._functional_collectives")
    if functional is None:
        return value
    kind = functional.AsyncCollectiveTensor
    return tree_map(lambda leaf: leaf.wait() if issubclass(type(leaf), kind) else leaf, value)


def op_name(operation: Any) -> str:
    """Return the name of a ``dist.ReduceOp``: "sum", "max", ..."""
    return str(getattr(operation, "op", operation)).rsplit(".", 1)[-1].lower()


class RankWorld(c10d._World):
    """A copy of torch's module-global registry of groups, for one of several ranks in this process."""

    pg_map: Any = None
    pg_names: Any = None
    pg_group_ranks: Any = None
    pg_backend_config: Any = None
    tags_to_pg: Any = None
    pg_to_tag: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.pg_map, self.pg_names, self.pg_group_ranks, self.pg_backend_config = {}, {}, {}, {}
        self.tags_to_pg, self.pg_to_tag, self._made = {}, {}, 0

    @property
    def group_count(self) -> int:
        """The number of groups made so far: it names them, so it never goes back, as torch's own does."""
        return self._made

    @group_count.setter
    def group_count(self, count: int) -> None:
        self._made = max(self._made, count)


def enter_world(world: Any) -> None:
    """Make ``world`` the world that ``dist`` uses."""
    c10d._world = world


@contextmanager
def many_worlds(backend: str, hear: Callable[[str, tuple[int, ...]], None]) -> Iterator[None]:
    """Run several ranks in this process: each thread gets its own registry of groups, all on ``backend``.

    ``hear`` is called with name and members of each group that a rank makes. After the block torch is as it was
    before.
    """
    world, hook = c10d._world, sys.excepthook
    globals_ = {name: getattr(c10d, name) for name in ("_backend", "_default_pg_init_method")}

    mesh_class: Any = device_mesh.DeviceMesh
    make_mesh = mesh_class.__init__

    def of_this_rank(mesh: Any, *args: Any, **kwargs: Any) -> None:
        make_mesh(mesh, *args, **kwargs)
        if dist.is_initialized():
            mesh._thread_id, mesh._hash = dist.get_rank(), None  # or torch's caches give it another rank's shards

    _RAW._set_thread_isolation_mode(True)
    mesh_class.__init__ = of_this_rank
    try:
        with all_groups_on(backend, hear):
            yield
    finally:
        mesh_class.__init__ = make_mesh
        _RAW._set_thread_isolation_mode(False)
        c10d._world, sys.excepthook = world, hook
        for name, value in globals_.items():
            setattr(c10d, name, value)


@contextmanager
def all_groups_on(backend: str, hear: Callable[[str, tuple[int, ...]], None] = lambda *_: None) -> Iterator[None]:
    """Make each new group on ``backend``, also ``new_group(backend="gloo")``, which nobody would record.

    ``hear`` is called with name and members of each.
    """
    helper = c10d._new_process_group_helper

    def on_this_backend(*args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(helper).bind(*args, **kwargs)
        hear(bound.arguments["group_name"], tuple(bound.arguments["global_ranks_in_group"]))
        bound.arguments["backend"] = dist.Backend(backend)
        return helper(*bound.args, **bound.kwargs)

    c10d._new_process_group_helper = on_this_backend
    try:
        yield
    finally:
        c10d._new_process_group_helper = helper


@contextmanager
def init_finds_group(join_again: Callable[[Callable[..., None], int], None]) -> Iterator[None]:
    """Let the first ``dist.init_process_group`` of a rank return the group that the kit has made for it.

    After ``destroy_process_group``, ``join_again(init, number)`` makes the rank's next group with torch's own ``init``.
    The function is exchanged behind its decorators, for the programs that have imported it by name.
    """
    outermost: Any = dist.init_process_group
    cell = outermost.__closure__[outermost.__code__.co_freevars.index("func")]
    original = cell.cell_contents

    def find_or_make(*args: Any, **kwargs: Any) -> None:
        world: Any = c10d._world
        joined, there = vars(world).get("joined", 0), dist.is_initialized()
        if (there and vars(world).get("found", False)) or not (there or joined):
            original(*args, **kwargs)  # it refuses a second group; or the caller is the kit
            world.joined = 1
            return
        if not there:
            join_again(original, joined)
            world.joined = joined + 1
        world.found = True
        asked = inspect.signature(original).bind(*args, **kwargs).arguments
        for name, here in (("world_size", dist.get_world_size()), ("rank", dist.get_rank())):
            if asked.get(name, -1) not in (-1, here):
                raise ValueError(f"init_process_group got {name}={asked[name]}; on this rank it is {here}")

    if dist.is_initialized():
        c10d._world.joined = 1  # type: ignore[attr-defined]
    cell.cell_contents = find_or_make
    try:
        yield
    finally:
        cell.cell_contents = original


def has_its_group() -> bool:
    """Return whether the program of this rank has called ``init_process_group``, and not destroyed the group since."""
    return dist.is_initialized() and vars(c10d._world).get("found", False)


def forget_groups() -> None:
    """Empty this thread's registry of groups, because a later thread may get its number and find them there."""
    _RAW._unregister_all_process_groups()


def unseen() -> AbstractContextManager[Any]:
    """Hide operations inside the block from dispatch modes: copies that stand for a network are no rank's memory."""
    return _disable_current_modes()


def premultiplier(operation: Any) -> Any:
    """Return the factor of a PREMUL_SUM."""
    return operation.factor


def attention(
    qkv: Sequence[torch.Tensor], bias: torch.Tensor | None, scale: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the CPU's attention of (batch, heads, length, width) each, and each row's logarithm of its denominator."""
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = operator(*qkv, 0.0, False, attn_mask=bias, scale=scale)
    return out, lse


def attention_backward(*given: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of q, k, v by (dout, q, k, v, out, logarithms, bias, scale) of ``attention``."""
    *tensors, bias, scale = given
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    dq, dk, dv = operator(*tensors, 0.0, False, attn_mask=bias, scale=scale)
    return dq, dk, dv
