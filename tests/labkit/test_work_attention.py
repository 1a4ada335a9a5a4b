"""FLOPs of attention, counted for torch's kernels on a CPU and on a GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # its usual name

from mlsys_labkit.work import count_work, counting_work


@pytest.mark.parametrize(("b", "h", "q", "k", "d"), [(1, 1, 4, 4, 8), (2, 3, 16, 16, 8), (2, 4, 1, 33, 16)])
def test_attention_is_4bhqkd_forward_and_2_and_a_half_times_that_backward(b, h, q, k, d):
    query = torch.randn(b, h, q, d, requires_grad=True)
    key, value = (torch.randn(b, h, k, d, requires_grad=True) for _ in range(2))
    forward = 4 * b * h * q * k * d
    assert count_work(F.scaled_dot_product_attention, query, key, value).flops == forward
    with counting_work() as counter:
        out = F.scaled_dot_product_attention(query, key, value)
        out.backward(torch.ones_like(out))
    # ones_like writes and counts nothing; the backward pass recomputes the scores: five products instead of two
    assert counter.work.flops == forward * 3.5


@pytest.mark.parametrize("kernel", ["flash", "efficient", "cudnn"])
def test_attention_kernels_of_a_gpu_count_grouped_heads(kernel: str) -> None:
    """Each of the 8 query heads meets 33 keys twice, whether 8 heads have keys or 2. Meta tensors need no GPU."""
    query, shared = (torch.empty(2, heads, 16, 64, device="meta", dtype=torch.float16) for heads in (8, 2))
    key = value = shared[:, :, :1].expand(2, 2, 33, 64)
    attend = getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}_attention")
    more = {"flash": (), "efficient": (None, False), "cudnn": (None, False)}[kernel]
    with counting_work() as counter:
        attend(query, key, value, *more)
    assert counter.work.flops == 4 * 2 * 8 * 16 * 33 * 64
