"""The stand-in for ``flash_attn``: torch's attention by plain products and a softmax, and its autograd, tell."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from mlsys_labkit import ranks
from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks import flash_attention

# Rows, columns, heads, heads of keys, causal, window.
CASES: list[tuple[int, int, int, int, bool, tuple[int, int]]] = [
    (5, 5, 4, 4, False, (-1, -1)),
    (5, 5, 4, 2, True, (-1, -1)),
    (3, 7, 4, 1, True, (-1, -1)),
    (6, 6, 2, 2, True, (2, -1)),
    (4, 9, 2, 2, False, (1, 3)),
]


def visible(rows: int, columns: int, causal: bool, window: tuple[int, int]) -> Tensor:
    """Write the package's rule down pair by pair: the last row belongs to the last column."""
    left, right = window[0], 0 if causal else window[1]
    pairs = [[column - (row + columns - rows) for column in range(columns)] for row in range(rows)]
    return torch.tensor([[(left < 0 or -left <= off) and (right < 0 or off <= right) for off in row] for row in pairs])


def by_torch(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    attend: Any = torch.nn.functional.scaled_dot_product_attention
    with sdpa_kernel(SDPBackend.MATH):  # the default is the operator behind the stand-in
        return attend(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2)  # type: ignore[no-any-return]


def inputs(rows: int, columns: int, heads: int, key_heads: int) -> tuple[list[Tensor], Tensor]:
    draw = torch.Generator().manual_seed(rows + columns)
    shapes = ((2, rows, heads, 8), *((2, columns, key_heads, 8),) * 2)
    qkv = [torch.randn(shape, generator=draw, requires_grad=True) for shape in shapes]
    return qkv, torch.randn(shapes[0], generator=draw)


@pytest.mark.parametrize("case", CASES)
def test_attention_and_gradients_are_torchs(case: tuple[int, int, int, int, bool, tuple[int, int]]) -> None:
    rows, columns, heads, key_heads, causal, window = case
    qkv, gradient = inputs(rows, columns, heads, key_heads)
    out, lse, _ = flash_attention.flash_attn_func(*qkv, causal=causal, window_size=window, return_attn_probs=True)
    mask = visible(rows, columns, causal, window)
    expected = by_torch(*qkv, mask)
    torch.testing.assert_close(out, expected)
    for ours, theirs in zip(
        torch.autograd.grad(out, qkv, gradient), torch.autograd.grad(expected, qkv, gradient), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
    keys = qkv[1].repeat_interleave(heads // key_heads, 2)
    scores = torch.einsum("bihd,bjhd->bhij", qkv[0], keys) / math.sqrt(8)
    torch.testing.assert_close(lse, scores.masked_fill(~mask, -math.inf).logsumexp(-1))


def test_blocks_with_the_denominator_of_all_give_the_whole_gradient() -> None:
    """As ring attention does: forward and backward on halves of the keys, put together by the logarithms."""
    (q, k, v), gradient = inputs(5, 8, 4, 2)
    halves = list(zip(k.chunk(2, 1), v.chunk(2, 1), strict=True))
    scale = 1 / math.sqrt(8)
    parts = [flash_attention._flash_attn_forward(q, *half, 0.0, scale, False)[:2] for half in halves]
    lse = torch.logaddexp(parts[0][1], parts[1][1])
    out = sum(part * torch.exp(one - lse).transpose(1, 2)[..., None] for part, one in parts)
    expected = by_torch(q, k, v, visible(5, 8, False, (-1, -1)))
    torch.testing.assert_close(out, expected)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for (k_half, v_half), dk_half, dv_half in zip(halves, dk.chunk(2, 1), dv.chunk(2, 1), strict=True):
        dq_part = torch.empty_like(q)
        flash_attention._flash_attn_backward(
            gradient, q, k_half, v_half, out, lse, dq_part, dk_half, dv_half, 0.0, scale, False
        )
        dq += dq_part
    for ours, theirs in zip((dq, dk, dv), torch.autograd.grad(expected, (q, k, v), gradient), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_sequences_one_after_the_other() -> None:
    q, k, v = (one[0].detach().requires_grad_() for one in inputs(9, 9, 2, 2)[0])
    gradient = inputs(9, 9, 2, 2)[1][0]
    starts = torch.tensor([0, 2, 2, 3, 9], dtype=torch.int32)  # the second one is empty
    out, lse, _ = flash_attention.flash_attn_varlen_func(
        q, k, v, starts, starts, 6, 6, causal=True, return_attn_probs=True
    )
    ends = list(zip(starts.tolist(), starts.tolist()[1:], strict=False))
    alone = [flash_attention.flash_attn_func(*(one[None, a:b] for one in (q, k, v)), causal=True)[0] for a, b in ends]
    torch.testing.assert_close(out, torch.cat(alone))
    expected = torch.autograd.grad(torch.cat(alone), (q, k, v), gradient)
    for ours, theirs in zip(torch.autograd.grad(out, (q, k, v), gradient), expected, strict=True):
        torch.testing.assert_close(ours, theirs)

    scale, found = 1 / math.sqrt(8), [torch.empty_like(one) for one in (q, k, v)]
    inner = flash_attention._flash_attn_varlen_forward(q, k, v, starts, starts, 6, 6, 0.0, scale, True)
    torch.testing.assert_close(inner[:2], (out, lse))
    flash_attention._flash_attn_varlen_backward(
        gradient, q, k, v, out, lse, *found, starts, starts, 6, 6, 0.0, scale, True
    )
    torch.testing.assert_close(found, [*expected])


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, 0), (0, 0)])
def test_attention_without_queries_or_keys(rows: int, columns: int) -> None:
    """Of no key comes an output of 0, as in the package; nothing follows from a sequence without a query."""
    q, k, v = (torch.ones(1, length, 2, 8, requires_grad=True) for length in (rows, columns, columns))
    out, lse, _ = flash_attention.flash_attn_func(q, k, v, return_attn_probs=True)
    torch.testing.assert_close(out, torch.zeros(1, rows, 2, 8))
    torch.testing.assert_close(lse, torch.full((1, 2, rows), math.inf))
    for gradient, one in zip(torch.autograd.grad(out, (q, k, v), torch.ones_like(out)), (q, k, v), strict=True):
        torch.testing.assert_close(gradient, torch.zeros_like(one))


def test_packed_tensors() -> None:
    (q, k, v), _ = inputs(5, 5, 2, 2)
    expected = flash_attention.flash_attn_func(q, k, v, causal=True)
    torch.testing.assert_close(
        flash_attention.flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), causal=True), expected
    )
    torch.testing.assert_close(
        flash_attention.flash_attn_kvpacked_func(q, torch.stack([k, v], 2), causal=True), expected
    )


def test_a_row_without_keys_is_zero() -> None:
    (q, k, v), gradient = inputs(5, 3, 2, 2)
    out, lse, _ = flash_attention.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert not out[:, :2].any()
    assert lse[:, :, :2].isposinf().all()
    assert all(one.isfinite().all() for one in torch.autograd.grad(out, (q, k, v), gradient))


@pytest.mark.parametrize("option", [{"dropout_p": 0.1}, {"softcap": 30.0}, {"alibi_slopes": torch.ones(2)}])
def test_what_the_stand_in_lacks_is_named(option: dict[str, Any]) -> None:
    (q, k, v), _ = inputs(5, 5, 2, 2)
    with pytest.raises(
        RanksError, match=f"flash_attn is not installed here, and its stand-in has no {next(iter(option))}"
    ):
        flash_attention.flash_attn_func(q, k, v, **option)


def test_a_program_finds_the_package_and_the_notebook_does_not(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "import torch, flash_attn\n"
        "from flash_attn.flash_attn_interface import _flash_attn_forward, flash_attn_func\n"
        "from flash_attn.layers.rotary import apply_rotary_emb\n"
        "assert flash_attn.flash_attn_func is flash_attn_func\n"
        "q = torch.ones(1, 2, 1, 4, device='cuda', dtype=torch.bfloat16)\n"
        "print(flash_attn_func(q, q, q, causal=True).sum().item())\n"
        "apply_rotary_emb(q, q, q)\n"
    )
    with pytest.raises(ranks.RankError, match=r"its stand-in has no flash_attn\.layers\.rotary\.apply_rotary_emb"):
        ranks.run_program(file, 2, "local", quiet=True)
    file.write_text(file.read_text().rpartition("apply")[0])
    run = ranks.run_program(file, 2, "local", quiet=True)
    assert run.outputs[1] == "8.0\n"
    assert "flash_attn" not in sys.modules
