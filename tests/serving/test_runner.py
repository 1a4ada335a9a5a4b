"""Tests of logits over pages against transformers and the contiguous cache, for any block order and chunking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from mlsys_labkit import lm
from mlsys_labkit.lm.model import RMSNorm
from mlsys_labkit.serving import Chunk, PagedCache, Runner
from mlsys_labkit.serving.attention import groups_of, order_of
from mlsys_labkit.serving.packed import linear
from tests.lm.test_model import SHAPES, random_llama

CONFIG = lm.Config(vocabulary=50, width=24, layers=2, heads=4, kv_heads=2, head_width=6, hidden=32, context=80)


def scattered(lengths: list[int], block_size: int, blocks: int, seed: int) -> list[list[int]]:
    """Return block tables for sequences of these lengths, with blocks from anywhere in the pool."""
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(seed)).tolist()
    return [[order.pop() for _ in range(-(-length // block_size))] for length in lengths]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("packed", [True, False])
def test_paged_logits_equal_those_of_transformers(tmp_path: Path, shape: dict[str, Any], packed: bool) -> None:
    theirs = random_llama(tmp_path, **shape)
    model, _ = lm.load(tmp_path)
    lengths = [40, 1, 17, 16, 33]
    texts = [torch.randint(97, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in lengths]
    tables = scattered(lengths, 16, 20, seed=0)
    runner = Runner(model, PagedCache(model.config, 20, 16), packed)
    runner.cache.pages.fill_(7.0)  # what others left behind
    half = [Chunk(t[: len(t) // 2], 0, b, 0) for t, b in zip(texts, tables, strict=True) if len(t) > 1]
    assert runner.run(half).shape == (0, 97)
    rest = [Chunk(t[len(t) // 2 :], len(t) // 2, b, len(t) - len(t) // 2) for t, b in zip(texts, tables, strict=True)]
    actual = runner.run(rest)
    with torch.no_grad():
        expected = torch.cat([theirs(torch.tensor([t])).logits[0, len(t) // 2 :] for t in texts])
    assert expected.std() > 0.5, "weights too small to tell anything"
    assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max()


@given(
    pieces=st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=4), min_size=1, max_size=6),
    block_size=st.sampled_from([1, 2, 3, 8, 16]),
    kv_heads=st.sampled_from([1, 2, 4]),
    packed=st.booleans(),
)
@settings(max_examples=40)
def test_ragged_batches_equal_the_contiguous_cache(
    pieces: list[list[int]], block_size: int, kv_heads: int, packed: bool
) -> None:
    """Each sequence comes in pieces: the first pieces of all sequences form one batch, then the second ones."""
    torch.manual_seed(0)
    config = lm.Config(50, 24, 2, 4, kv_heads, 6, 32, context=80)
    model = lm.LanguageModel(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    totals = [sum(cut) for cut in pieces]
    tables = scattered(totals, block_size, sum(totals) + 3, seed=len(pieces))
    texts = [torch.randint(50, (total,)).tolist() for total in totals]
    runner = Runner(model, PagedCache(config, sum(totals) + 3, block_size), packed)
    caches = [lm.KVCache(config) for _ in pieces]
    for turn in range(max(map(len, pieces))):
        active = [at for at, cut in enumerate(pieces) if turn < len(cut)]
        starts = [sum(pieces[at][:turn]) for at in active]
        tokens = [texts[at][start : start + pieces[at][turn]] for at, start in zip(active, starts, strict=True)]
        chunks = [Chunk(own, past, tables[at], len(own)) for at, past, own in zip(active, starts, tokens, strict=True)]
        actual = runner.run(chunks)
        with torch.no_grad():
            each = [model(torch.tensor([own]), caches[at])[0] for at, own in zip(active, tokens, strict=True)]
        expected = torch.cat(each)
        assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max().clamp(min=1)


def test_tiny_model_over_pages_equals_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.LlamaForCausalLM.from_pretrained(str(lm.checkpoint.WEIGHTS), dtype=torch.float32)
    model, tokenizer = lm.load()
    text = tokenizer.encode(lm.held_out())[:200]
    runner = Runner(model, PagedCache(model.config, 40))
    tables = scattered([200, 150], 16, 40, seed=1)
    actual = runner.run([Chunk(text, 0, tables[0], 200), Chunk(text[50:], 0, tables[1], 150)])
    with torch.no_grad():
        expected = torch.cat([theirs(torch.tensor([own])).logits[0] for own in (text, text[50:])])
    assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_half_precision_logits_stay_close() -> None:
    model, tokenizer = lm.load(dtype=torch.bfloat16)
    text = tokenizer.encode(lm.held_out())[:64]
    runner = Runner(model, PagedCache(model.config, 8, dtype=torch.bfloat16))
    actual = runner.run([Chunk(text[:40], 0, [3, 1, 0, 7], 0), Chunk(text[:9], 0, [5], 1)])
    actual = runner.run([Chunk(text[40:], 40, [3, 1, 0, 7], 24)])
    expected = model(torch.tensor([text]))[0, 40:]
    assert actual.dtype == torch.bfloat16
    assert (actual - expected).abs().mean() < 0.05 * expected.float().std(), "rounded in another order, no more"


def test_a_packed_norm_is_on_the_device_of_its_weights() -> None:
    """Serve a model on the CPU in a notebook whose default is a GPU; "meta" stands for it."""
    layer, norm, x = torch.nn.Linear(4, 2, bias=False), RMSNorm(4, 1e-6), torch.randn(3, 4)
    with torch.device("meta"):
        actual = linear([layer], packed=True, norm=norm)(x)
    assert torch.allclose(actual, layer(norm(x)))


def test_products_of_large_weights_keep_kernels_for_few_numbers_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch.nn.Linear(512, 1024, bias=False)
    given, real = set(), torch.ops.mkldnn._linear_pointwise

    def counted(x: torch.Tensor, *rest: Any) -> Any:
        given.add(len(x))
        return real(x, *rest)

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", counted)
    product = linear([layer], packed=True)
    with torch.no_grad():
        for rows in (*range(1, 20), *range(20, 130, 3)):
            x = torch.randn(rows, 512)
            assert torch.allclose(product(x), layer(x), atol=1e-5), rows
    assert given == {*range(1, 17), 32, 64, 96, 128}


def test_groups_pad_less_than_double_and_mask_the_future() -> None:
    import numpy as np

    random = np.random.default_rng(0)
    counts = np.array([1] * 12 + random.integers(2, 90, 9).tolist())
    pasts = random.integers(0, 300, len(counts))
    order = order_of(counts, pasts)
    counts, pasts = counts[order], pasts[order]
    width = int(-(-(counts + pasts).max() // 16))
    page = torch.zeros(50, 4, 16, 6)
    groups = groups_of(counts, pasts, np.zeros((len(counts), width), dtype=np.int64), page, heads=4)
    assert [group.start for group in groups][1:] == [group.end for group in groups][:-1]
    assert groups[-1].end == counts.sum()
    row = 0
    for group in groups:
        sequences = group.mask.shape[0]
        own, past = counts[row : row + sequences], pasts[row : row + sequences]
        row += sequences
        assert group.queries < 2 * own.min() or group.queries == 1
        visible = (
            (group.mask == 0).sum(-1).view(sequences, 2, group.queries)
        )  # [sequence, query heads a kv head, query]
        for at in range(sequences):
            expected = [past[at] + min(query, own[at] - 1) + 1 for query in range(group.queries)]
            assert visible[at].tolist() == [expected] * 2


def test_cache_copies_and_swaps_blocks() -> None:
    cache = PagedCache(CONFIG, blocks=6, block_size=4)
    cache.pages.copy_(torch.rand_like(cache.pages))
    before = cache.pages.clone()
    cache.copy([(1, 4), (0, 2)])
    assert torch.equal(cache.pages[:, 4], before[:, 1])
    assert torch.equal(cache.pages[:, 2], before[:, 0])
    saved = cache.swap_out([3, 5])
    cache.pages[:, [3, 5]] = 0
    cache.swap_in(saved, [5, 1])
    assert torch.equal(cache.pages[:, 5], before[:, 3])
    assert torch.equal(cache.pages[:, 1], before[:, 5])
    assert cache.block_bytes == 4 * CONFIG.cache_bytes_per_token(4)
    cache.copy([])
