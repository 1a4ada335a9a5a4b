"""A stand-in for the package ``flash_attn``, whose kernels need a GPU: torch computes the same attention anywhere.

Whole programs import its names, and ring attention its inner forward and backward, which take and give the logarithm of
the softmax's denominator. Programs read the signatures, too, which are the package's. Dropout, ALiBi, soft caps and
paged tables are refused by name.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.recording import torch_private

# Programs import these, and often call none of them.
_REFUSED = {
    "flash_attn.layers.rotary": ("apply_rotary_emb", "RotaryEmbedding"),
    "flash_attn.ops.triton.layer_norm": ("layer_norm_fn", "rms_norm_fn"),
    "flash_attn.bert_padding": ("index_first_axis", "pad_input", "unpad_input"),
}


@contextmanager
def flash_attn_by_torch() -> Iterator[None]:
    """Let ``import flash_attn`` find the stand-in where there is no GPU and the package is not installed."""
    if torch.cuda.is_available() or "flash_attn" in sys.modules or importlib.util.find_spec("flash_attn") is not None:
        yield
        return
    public = {one.__name__: one for one in _PUBLIC}
    members: dict[str, dict[str, Any]] = {
        "flash_attn": public | {"__version__": "2.7.4"},
        "flash_attn.flash_attn_interface": public | {one.__name__: one for one in _INNER},
        **{name: {} for name in ("flash_attn.layers", "flash_attn.ops", "flash_attn.ops.triton")},
        **{place: {name: _refused(f"{place}.{name}") for name in names} for place, names in _REFUSED.items()},
    }
    modules = {name: _module(name, held) for name, held in members.items()}
    for name, module in modules.items():
        above, _, last = name.rpartition(".")
        if above:
            setattr(modules[above], last, module)
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Return softmax(q k^T) v of (batch, length, heads, width); fewer heads of k and v are shared.

    With ``return_attn_probs`` also the logarithm of each denominator, (batch, heads, length), and None.

    Raises RanksError for dropout, ALiBi and soft caps.

    Example:
        >>> q = torch.ones(1, 3, 2, 4)
        >>> flash_attn_func(q, q, q, causal=True).shape
        torch.Size([1, 3, 2, 4])

    Reference: T. Dao, "FlashAttention-2", 2023; https://github.com/Dao-AILab/flash-attention
    """
    _refuse(dropout_p=dropout_p, softcap=softcap, alibi_slopes=alibi_slopes)
    out, lse = _attend(q, k, v, _Attention(softmax_scale, causal, window_size))
    return (out, lse, None) if return_attn_probs else out


def flash_attn_qkvpacked_func(qkv: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Call ``flash_attn_func`` with the parts of (batch, length, 3, heads, width)."""
    q, k, v = qkv.unbind(2)
    return flash_attn_func(q, k, v, *args, **kwargs)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Call ``flash_attn_func`` with the parts of (batch, length, 2, heads, width)."""
    k, v = kv.unbind(2)
    return flash_attn_func(q, k, v, *args, **kwargs)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Any:
    """Return the attention of sequences that lie one after the other in (tokens, heads, width).

    ``cu_seqlens`` are where they begin, and the end. With ``return_attn_probs`` also the logarithm of each denominator,
    (heads, tokens), and None. Raises RanksError as ``flash_attn_func`` does.
    """
    _refuse(dropout_p=dropout_p, softcap=softcap, alibi_slopes=alibi_slopes, block_table=block_table)
    how = _Attention(softmax_scale, causal, window_size)
    parts = [_attend(q_, k_, v_, how) for q_, k_, v_ in _sequences((q,), (k, v), cu_seqlens_q, cu_seqlens_k)]
    out = torch.cat([each[0] for each, _ in parts])
    return (out, torch.cat([each[0] for _, each in parts], 1), None) if return_attn_probs else out


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *args: Any, **kwargs: Any
) -> Any:
    """Call ``flash_attn_varlen_func`` with the parts of (tokens, 3, heads, width)."""
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *args, **kwargs)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Call ``flash_attn_varlen_func`` with the parts of (tokens, 2, heads, width)."""
    k, v = kv.unbind(1)
    return flash_attn_varlen_func(q, k, v, *args, **kwargs)


def _flash_attn_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
) -> tuple[Tensor, Tensor, None, None]:
    """Return the output, the logarithm of each denominator, and nothing in place of dropout's mask and seed."""
    _refuse(dropout_p=dropout_p, softcap=softcap, alibi_slopes=alibi_slopes)
    with torch.no_grad():
        out, lse = _attend(q, k, v, _Attention(softmax_scale, causal, (window_size_left, window_size_right)))
    return out, lse, None, None


def _flash_attn_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    rng_state: Tensor | None = None,
) -> Tensor:
    """Write the gradients into ``dq``, ``dk`` and ``dv``, and return the sum of dout times out in each row."""
    _refuse(dropout_p=dropout_p, softcap=softcap, alibi_slopes=alibi_slopes)
    how = _Attention(softmax_scale, causal, (window_size_left, window_size_right))
    *found, row_sums = _backward(dout, (q, k, v), out, softmax_lse, how)
    for given, one in zip((dq, dk, dv), found, strict=True):
        if given is not None:
            given.copy_(one)
    return row_sums


def _flash_attn_varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
    block_table: Tensor | None = None,
) -> tuple[Tensor, Tensor, None, None]:
    """Do as ``_flash_attn_forward`` for sequences one after the other; the logarithms are (heads, tokens)."""
    _refuse(dropout_p=dropout_p, softcap=softcap, alibi_slopes=alibi_slopes, block_table=block_table)
    how = _Attention(softmax_scale, causal, (window_size_left, window_size_right))
    with torch.no_grad():
        parts = [_attend(q_, k_, v_, how) for q_, k_, v_ in _sequences((q,), (k, v), cu_seqlens_q, cu_seqlens_k)]
    return torch.cat([out[0] for out, _ in parts]), torch.cat([lse[0] for _, lse in parts], 1), None, None


def _flash_attn_varlen_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    rng_state: Tensor | None = None,
) -> Tensor:
    """Do as ``_flash_attn_backward`` for sequences one after the other."""
    _refuse(dropout_p=dropout_p, softcap=softcap, alibi_slopes=alibi_slopes)
    how = _Attention(softmax_scale, causal, (window_size_left, window_size_right))
    lse = softmax_lse.t().unsqueeze(-1)
    parts = [
        _backward(dout_, (q_, k_, v_), out_, lse_[..., 0].transpose(1, 2), how)
        for q_, dout_, out_, lse_, k_, v_ in _sequences((q, dout, out, lse), (k, v), cu_seqlens_q, cu_seqlens_k)
    ]
    for given, found in zip((dq, dk, dv), zip(*(each[:3] for each in parts), strict=True), strict=True):
        if given is not None:
            given.copy_(torch.cat([each[0] for each in found]))
    return torch.cat([each[3][0] for each in parts], 1)


@dataclass(frozen=True)
class _Attention:
    """Scale of the scores, and which keys a query sees: causal, a window of (left, right), -1 for no end."""

    scale: float | None
    causal: bool
    window: tuple[int, int]

    def hidden(self, rows: int, columns: int) -> Tensor | None:
        """Return a mask [rows, columns], True where a query may not see a key; the last ones of both are aligned."""
        left, right = self.window[0], 0 if self.causal else self.window[1]
        if left < 0 and right < 0:
            return None
        ahead = torch.arange(columns) - torch.arange(rows)[:, None] - (columns - rows)
        none = torch.zeros_like(ahead, dtype=torch.bool)
        return (ahead > right if right >= 0 else none) | (ahead < -left if left >= 0 else none)


def _attend(q: Tensor, k: Tensor, v: Tensor, how: _Attention) -> tuple[Tensor, Tensor]:
    """Return the output and the logarithm of each denominator, (batch, heads, length); of an empty row 0 and inf."""
    if not q.numel() or not k.numel():  # torch's operator divides by the length
        batch, rows, heads, _ = q.shape
        nothing_q, nothing_k, nothing_v = (one.masked_fill(torch.tensor(True), 0.0) for one in (q, k, v))
        return nothing_q + nothing_k.sum() + nothing_v.sum(), q.new_full(
            (batch, heads, rows), math.inf, dtype=torch.float32
        )
    hidden = how.hidden(q.shape[1], k.shape[1])
    out, lse = torch_private.attention(_by_head(q, k, v), _bias(hidden, q), how.scale)
    out = out.transpose(1, 2).contiguous()
    return out, lse if hidden is None else lse.masked_fill(hidden.all(1), math.inf)


@torch.no_grad()
def _backward(
    dout: Tensor, qkv: tuple[Tensor, Tensor, Tensor], out: Tensor, lse: Tensor, how: _Attention
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients and the row sums of dout times out; ``lse`` may be that of more keys than these."""
    q, k, v = qkv
    if not q.numel() or not k.numel():
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), torch.zeros_like(lse)
    bias = _bias(how.hidden(q.shape[1], k.shape[1]), q)
    found = torch_private.attention_backward(*_by_head(dout), *_by_head(q, k, v), *_by_head(out), lse, bias, how.scale)
    dq, dk, dv = (each.transpose(1, 2) for each in found)
    dk, dv = (each.reshape(*k.shape[:3], -1, each.shape[3]).sum(3) for each in (dk, dv))  # of the heads that share one
    return dq, dk, dv, (dout.float() * out.float()).sum(-1).transpose(1, 2)


def _by_head(*given: Tensor) -> list[Tensor]:
    """Exchange length and heads, and repeat heads up to the number of the first."""
    heads = given[0].shape[2]
    return [one.repeat_interleave(heads // one.shape[2], 2).transpose(1, 2) for one in given]


def _bias(hidden: Tensor | None, q: Tensor) -> Tensor | None:
    return None if hidden is None else torch.zeros(hidden.shape, dtype=q.dtype).masked_fill(hidden, -math.inf)


def _sequences(
    of_queries: tuple[Tensor, ...], of_keys: tuple[Tensor, ...], starts_q: Tensor, starts_k: Tensor
) -> Iterator[list[Tensor]]:
    """Yield each sequence's parts, with a batch of 1."""
    q, k = starts_q.tolist(), starts_k.tolist()
    for q0, q1, k0, k1 in zip(q, q[1:], k, k[1:], strict=False):
        yield [*(each[None, q0:q1] for each in of_queries), *(each[None, k0:k1] for each in of_keys)]


def _refuse(**options: Any) -> None:
    for name, value in options.items():
        if value is not None and not (isinstance(value, (int, float)) and value == 0):
            raise RanksError(f"flash_attn is not installed here, and its stand-in has no {name}; leave it out")


def _refused(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> None:
        raise RanksError(f"flash_attn is not installed here, and its stand-in has no {name}")

    return refuse


def _module(name: str, members: dict[str, Any]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(members, __spec__=ModuleSpec(name, None), __path__=[])
    return module


_PUBLIC = (
    flash_attn_func,
    flash_attn_qkvpacked_func,
    flash_attn_kvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_varlen_kvpacked_func,
)
_INNER = (_flash_attn_forward, _flash_attn_backward, _flash_attn_varlen_forward, _flash_attn_varlen_backward)
