"""A counter of what torch dispatches: every aten operation, forward and backward, on real, meta and fake tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from mlsys_labkit.work import conventions
from mlsys_labkit.work.record import WorkError
from mlsys_labkit.work.tally import Region, Tally, distinct_bytes, instances

_ALLOCATIONS = frozenset(
    ["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize", "set", "lift_fresh"]
)
_OVERWRITES = frozenset(
    {"copy", "fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential", "log_normal"}
    | {"cauchy", "geometric"}
)
_GATHERS = frozenset(["index", "index_select", "gather", "embedding", "take", "take_along_dim", "masked_select"])
_SCATTERS = frozenset(
    ["index_put", "index_put_impl", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill"]
)
_SCATTER_ADDS = frozenset(["scatter_add", "scatter_reduce", "index_add"])


class TorchCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that adds each operation to a tally."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tally = tally

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        __tracebackhide__ = True  # an error of fn shows the student's frames, not this one
        kwargs = kwargs or {}
        name = canonical_name(func)
        if not _has_own_formula(name, func) and func.namespace == "aten":
            # Inference mode dispatches composite operations whole; their parts are what we have rules for.
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        count(self._tally, name, func, args, kwargs, result)
        return result


def count(tally: Tally, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Add one dispatched operation to the tally."""
    if name in _ALLOCATIONS or func.namespace == "prim":
        return
    reads, writes = _operands(func, name, args, kwargs)
    known = {_allocation(tensor) for tensor in _tensors((args, kwargs))}
    results = list(_tensors(result))
    fresh = [tensor for tensor in results if _allocation(tensor) not in known]
    if not fresh and not writes and (results or name not in ("local_scalar_dense", "equal")):
        return  # a view, or a question about metadata
    if name == "copy" and _region(args[0]) == _region(args[1]):
        return  # the copy at the end of `x[i] += 1`: torch skips it, because source and target are the same
    outputs = fresh + writes
    read, written = distinct_bytes(map(_region, reads)), distinct_bytes(map(_region, outputs))
    if name in _GATHERS:
        source, selected = reads[0], sum(tensor.numel() for tensor in fresh)
        rest = distinct_bytes(map(_region, reads[1:]))
        read = rest + min(_region(source).distinct_bytes, selected * source.element_size())
    elif name in _SCATTERS and writes:
        target, others = writes[0], [tensor for tensor in reads if tensor is not writes[0]]
        written = min(written, max((tensor.numel() for tensor in others), default=0) * target.element_size())
        adds = name in _SCATTER_ADDS or _accumulates(args, kwargs)
        read = distinct_bytes(map(_region, others)) + (written if adds else 0)
    operands = list(_tensors((args, kwargs)))
    flops = _flops(func, args, kwargs, result, operands=operands, outputs=outputs)
    tally.add(f"torch {name}", flops, _dtype(operands, outputs), read, written)


def canonical_name(func: Any) -> str:
    """Return the plain name: ``aten::_foreach_add_`` -> ``add``; ``aten::_linalg_eigh`` -> ``eigh``."""
    name: str = func._schema.name.split("::")[1].strip("_")
    return name.removeprefix("foreach_").removeprefix("linalg_").removesuffix("_ex")


def _sdpa(args: Any, out: Any) -> float:
    query, key, value = (tensor.shape for tensor in args[:3])
    return float(2 * math.prod(query[:3]) * key[2] * (query[3] + value[3]))


def _sdpa_backward(args: Any, out: Any) -> float:
    """Count five products: the scores again, then the gradients of values, weights, queries and keys."""
    _, query, key, value = (tensor.shape for tensor in args[:4])
    return float(2 * math.prod(query[:3]) * key[2] * (3 * query[3] + 2 * value[3]))


# On a CPU torch's registry counts no attention, and torch 2.11 refuses grouped heads, whose keys have fewer heads.
_ATTENTION = (
    "flash_attention",
    "flash_attention_for_cpu",
    "efficient_attention",
    "cudnn_attention",
    "fused_attention_overrideable",
)
_OWN: dict[str, Callable[..., float]] = {
    # Matrix products that torch's registry leaves out, or counts without the bias.
    "dot": lambda args, out: 2 * args[0].numel(),
    "vdot": lambda args, out: 2 * args[0].numel(),
    "mv": lambda args, out: 2 * args[0].numel(),
    "addmv": lambda args, out: 2 * args[1].numel() + out.numel(),
    "addmm": lambda args, out: 2 * args[1].shape[-1] * out.numel() + out.numel(),
    "addmm_activation": lambda args, out: 2 * args[1].shape[-1] * out.numel() + 2 * out.numel(),
    "baddbmm": lambda args, out: 2 * args[1].shape[-1] * out.numel() + out.numel(),
    "addbmm": lambda args, out: 2 * args[1].numel() * args[2].shape[-1] + out.numel(),
    "addr": lambda args, out: 2 * out.numel(),
    "int_mm": lambda args, out: 2 * args[0].shape[-1] * out.numel(),
    **{f"scaled_dot_product_{name}": _sdpa for name in _ATTENTION},
    **{f"scaled_dot_product_{name}_backward": _sdpa_backward for name in _ATTENTION},
    "scaled_dot_product_attention_math_for_mps": _sdpa,
    "max_pool2d_with_indices": lambda args, out: math.prod(args[1]) * out.numel(),
    "avg_pool2d": lambda args, out: (math.prod(args[1]) + 1) * out.numel(),
    "embedding_dense_backward": lambda args, out: args[0].numel(),
    "scatter_add": lambda args, out: args[2].numel(),
    "index_add": lambda args, out: args[3].numel(),
}


def _has_own_formula(name: str, func: Any) -> bool:
    return name in _OWN or func._overloadpacket in flop_registry


def _flops(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, *, operands: Any, outputs: Any
) -> float | None:
    name = canonical_name(func)
    first = next(_tensors(result), None)
    if name in _OWN:
        return _OWN[name](args, first)
    if func._overloadpacket in flop_registry:
        return float(flop_registry[func._overloadpacket](*args, **kwargs, out_val=result))
    elements_in = max((tensor.numel() for tensor in operands), default=0)
    elements_out = sum(tensor.numel() for tensor in outputs)
    if name == "index_put" and _accumulates(args, kwargs):
        return float(args[2].numel())
    if name in conventions.FACTORISATIONS:
        is_vector = name == "solve" and args[1].dim() == args[0].dim() - 1
        columns = (1 if is_vector else args[1].shape[-1]) if name == "solve" else 0
        return conventions.factorisation_flops(name, tuple(args[0].shape), columns)
    if name in ("max", "min") and len(operands) == 2:
        return float(elements_out)  # max(x, y) is elementwise; max(x, dim) reduces
    if name == "clamp":
        return float(elements_out * sum(bound is not None for bound in (*args[1:3], *kwargs.values())))
    flops = conventions.flops_of(name, elements_in, elements_out)
    if flops is None and (torch.Tag.pointwise in func.tags or func._schema.name.startswith("aten::_foreach_")):
        flops = elements_out
    if flops is not None and flops and name in ("add", "sub", "rsub") and kwargs.get("alpha", 1) != 1:
        flops += elements_out
    if flops is not None and name in ("addcmul", "addcdiv") and kwargs.get("value", 1) != 1:
        flops += elements_out
    return flops


def _operands(
    func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the tensors that an operation reads and those that it writes, by its schema."""
    reads: list[torch.Tensor] = []
    writes: list[torch.Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        tensors = list(_tensors(value))
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written:
            writes += tensors
        if not (is_written and (argument.is_out or name in _OVERWRITES)) and not _reads_metadata_only(name, position):
            reads += tensors
    return reads, writes


def _reads_metadata_only(name: str, position: int) -> bool:
    return position == 0 and (name.endswith("_like") or name in ("new_zeros", "new_ones", "new_full"))


def _accumulates(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return kwargs.get("accumulate", False) is True or (len(args) > 3 and args[3] is True)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return instances(value, torch.Tensor)


def _allocation(tensor: torch.Tensor) -> int:
    if tensor.layout != torch.strided:
        raise WorkError(f"a tensor has layout {tensor.layout}, expected torch.strided; state its work by a formula")
    return int(tensor.untyped_storage()._cdata)


def _region(tensor: torch.Tensor) -> Region:
    return Region(
        allocation=_allocation(tensor),
        allocation_bytes=int(tensor.untyped_storage().nbytes()),
        offset=int(tensor.storage_offset()) * tensor.element_size(),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        item_bytes=tensor.element_size(),
    )


def _dtype(operands: list[torch.Tensor], outputs: list[torch.Tensor]) -> str:
    floating = [tensor for tensor in operands if tensor.dtype.is_floating_point]
    tensors = floating or operands or outputs
    return str(tensors[0].dtype).removeprefix("torch.") if tensors else "float32"
