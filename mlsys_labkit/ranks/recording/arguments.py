"""One record for the arguments of all methods of a process group: inputs, outputs, root or peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.ranks.recording.torch_private import op_name

ROOTED = ("broadcast", "reduce", "gather", "scatter")

Tensors = list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Exchange:
    """The tensors that one rank sends and receives in one communication.

    ``gives`` and ``gets`` have one tensor for each other end where each end has a part of its own (all_to_all both,
    all_gather ``gets``, reduce_scatter ``gives``, gather and scatter at the root), else one.
    """

    gives: Tensors
    gets: Tensors


@dataclass(frozen=True, slots=True)
class Arguments:
    """One call of a group's method.

    Attributes:
        name: the standard name, such as "all_gather" for torch's allgather, all_gather_single, ...
        tensor: the one whose shape and dtype describe the call.
        root, peer: group ranks; peer None: any.
        reduction: the ReduceOp.
        exchanges: the parts, made when asked for, given the group's size: one exchange, or several of a coalesced call.
    """

    name: str
    tensor: torch.Tensor | None
    exchanges: Callable[[int], list[Exchange]]
    root: int = -1
    peer: int | None = None
    tag: int = 0
    reduction: Any = None
    asynchronous: bool = True
    inputs: Sequence[torch.Tensor] = ()
    outputs: Sequence[torch.Tensor] = ()
    coalesced: bool = False

    @property
    def operation(self) -> str:
        return "" if self.reduction is None else op_name(self.reduction)

    def bytes(self, size: int) -> int:
        """Return the payload in bytes as nccl-tests counts it (see ``Event``)."""
        if self.name in ("all_gather", "recv"):
            return sum(one.nbytes for one in self.outputs)
        if self.name == "gather":
            return size * sum(one.nbytes for one in self.inputs)
        if self.name == "scatter":
            return size * sum(one.nbytes for one in self.outputs)
        return sum(one.nbytes for one in self.inputs)


def arguments(method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Arguments:
    """Read a call ``group.method(*args, **kwargs)``. ``method``: its newest name (``torch_private.METHODS``)."""
    values = (*args, *kwargs.values())
    tensors = [one for one in values if isinstance(one, (torch.Tensor, list, tuple))]
    options: Any = next((one for one in values if hasattr(one, "asyncOp")), None)
    chosen: dict[str, Any] = {"asynchronous": getattr(options, "asyncOp", True), "coalesced": "coalesced" in method}
    if method.startswith(("broadcast", "reduce", "gather", "scatter")) and not method.startswith("reduce_scatter"):
        numbers = (one for one in values if isinstance(one, int))
        chosen["root"] = options.rootRank if options else next(numbers, 0)
    if "reduce" in method:
        reductions = (one for one in values if isinstance(one, (dist.ReduceOp, dist.ReduceOp.RedOpType)))
        chosen["reduction"] = options.reduceOp if options else next(reductions, dist.ReduceOp.SUM)
    name, read = _READ[method.removesuffix("_coalesced")]
    return read(name, method, tensors, list(args), chosen)


def _in_place(name: str, method: str, tensors: list[Any], args: list[Any], chosen: dict[str, Any]) -> Arguments:
    ours = _listed(tensors[0])
    return Arguments(name, ours[0], lambda _: [Exchange([x], [x]) for x in ours], inputs=ours, outputs=ours, **chosen)


def _lists(name: str, method: str, tensors: list[Any], args: list[Any], chosen: dict[str, Any]) -> Arguments:
    """Read (outputs, inputs) where the parts of the ranks are a list within the list."""
    gets, gives = _parts(tensors[0]), _parts(tensors[1])
    if method == "allgather_coalesced":  # [rank][tensor] there, [tensor][rank] everywhere else
        gets = [list(row) for row in zip(*gets, strict=True)]
    if method == "alltoall":
        gets, gives = [list(tensors[0])], [list(tensors[1])]
    outputs, inputs = [x for row in gets for x in row], [x for row in gives for x in row]

    def exchanges(size: int) -> list[Exchange]:
        count = max(len(gets), len(gives))
        return [Exchange(*pair) for pair in zip(gives or [[]] * count, gets or [[]] * count, strict=True)]

    return Arguments(name, (inputs or outputs)[0], exchanges, inputs=inputs, outputs=outputs, **chosen)


def _single(name: str, method: str, tensors: list[Any], args: list[Any], chosen: dict[str, Any]) -> Arguments:
    """Read (output, input), or lists of them, where all parts lie one after the other in one tensor."""
    outputs, inputs = _listed(tensors[0]), _listed(tensors[1])

    def exchange(out: torch.Tensor, given: torch.Tensor, size: int) -> Exchange:
        if name == "all_gather":
            return Exchange([given], _equal_parts(out, size))
        if name == "reduce_scatter":
            return Exchange(_equal_parts(given, size), [out])
        splits = [list(one) for one in tensors[2:4]] + [[], []]
        return Exchange(_split(given, splits[1], size), _split(out, splits[0], size))

    def exchanges(size: int) -> list[Exchange]:
        return [exchange(out, given, size) for out, given in zip(outputs, inputs, strict=True)]

    return Arguments(name, inputs[0], exchanges, inputs=inputs, outputs=outputs, **chosen)


def _message(name: str, method: str, tensors: list[Any], args: list[Any], chosen: dict[str, Any]) -> Arguments:
    ours = _listed(tensors[0])
    numbers = [one for one in args if isinstance(one, int)]
    ends: dict[str, Any] = {"tag": numbers[-1], "peer": None if method == "recv_anysource" else numbers[0]}
    gives, gets = (ours, []) if name == "send" else ([], ours)
    return Arguments(name, ours[0], lambda _: [Exchange(gives, gets)], inputs=gives, outputs=gets, **ends, **chosen)


def _barrier(name: str, method: str, tensors: list[Any], args: list[Any], chosen: dict[str, Any]) -> Arguments:
    return Arguments(name, None, lambda _: [Exchange([], [])], **chosen)


# Standard name and reader of each method; a coalesced one is read as the plain one.
_READ: dict[str, tuple[str, Callable[..., Arguments]]] = {
    "allreduce": ("all_reduce", _in_place),
    "broadcast": ("broadcast", _in_place),
    "reduce": ("reduce", _in_place),
    "allgather": ("all_gather", _lists),
    "reduce_scatter": ("reduce_scatter", _lists),
    "gather": ("gather", _lists),
    "scatter": ("scatter", _lists),
    "alltoall": ("all_to_all", _lists),
    "all_gather_single": ("all_gather", _single),
    "reduce_scatter_single": ("reduce_scatter", _single),
    "all_to_all_single": ("all_to_all", _single),
    "send": ("send", _message),
    "recv": ("recv", _message),
    "recv_anysource": ("recv", _message),
    "barrier": ("barrier", _barrier),
}


def _listed(one: Any) -> Tensors:
    return [one] if isinstance(one, torch.Tensor) else list(one)


def _parts(rows: Any) -> list[Tensors]:
    """Return [[x, y]] or [x, y] (one part in each of several calls) as rows."""
    return [_listed(row) for row in _listed(rows)]


def _equal_parts(whole: torch.Tensor, size: int) -> Tensors:
    """Cut a tensor's memory into ``size`` equal pieces, whatever its shape (a stack or a concatenation)."""
    if whole.numel() % size:
        raise LabkitError(f"a tensor of {whole.numel()} elements does not divide among {size} ranks")
    return list(whole.view(-1).chunk(size)) if whole.numel() else [whole.view(-1)] * size


def _split(whole: torch.Tensor, sizes: list[int], size: int) -> Tensors:
    if sizes:
        if len(sizes) != size or sum(sizes) != whole.shape[0]:
            raise LabkitError(f"split sizes {sizes} do not cut {whole.shape[0]} rows among {size} ranks")
        return list(torch.split(whole, sizes))
    if whole.shape[0] % size:
        raise LabkitError(f"{whole.shape[0]} rows cannot be cut for {size} ranks: pass split sizes, or a row for each")
    return list(torch.split(whole, whole.shape[0] // size)) if whole.shape[0] else [whole] * size
