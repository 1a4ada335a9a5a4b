"""Numbers that drawings compute: a swizzle without conflicts, barriers that hold, bytes that match the formulas."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from pathlib import Path

import pytest

from mlsys_labkit import drawings
from mlsys_labkit.drawings import schedules
from mlsys_labkit.drawings.exchanges import node_limited_experts, sequence_bytes
from mlsys_labkit.drawings.hopper import Mbarrier, WarpPlan, swizzle_128
from mlsys_labkit.planner.transformer import Transformer

CHUNK, ROW, TILE = 16, 128, 1024  # bytes of a chunk, of a row, and of the eight rows after which the swizzle repeats


@pytest.mark.parametrize("chunk", range(8))
def test_chunks_of_a_column_lie_in_eight_groups_of_banks(chunk: int) -> None:
    def groups(of: range) -> set[int]:
        return {swizzle_128(ROW * row + CHUNK * chunk) % ROW // CHUNK for row in of}

    assert groups(range(8)) == groups(range(8, 16)) == set(range(8))


def test_swizzle_permutes_the_chunks_of_each_row_and_no_byte_of_a_chunk() -> None:
    for row in range(16):
        base = ROW * row
        assert sorted(map(swizzle_128, range(base, base + ROW))) == [*range(base, base + ROW)]
    assert all(swizzle_128(at + 1) == swizzle_128(at) + 1 for at in range(2 * TILE) if at % CHUNK < CHUNK - 1)


@pytest.mark.parametrize(
    "plan",
    [WarpPlan(), WarpPlan(stages=1), WarpPlan(stages=5, steps=2, tiles=4), WarpPlan(copy=9), WarpPlan(epilogue=40)],
)
def test_warps_meet_at_their_barriers(plan: WarpPlan) -> None:
    spans = {
        event.name: (float(event.start_seconds or 0), float(event.end_seconds or 0))
        for event in plan.trace()
        if event.kind == "compute"
    }
    total = plan.steps * plan.tiles
    assert len(spans) == 2 * total + plan.tiles
    copies, products = ([spans[f"{kind} {k}"] for k in range(total)] for kind in ("copy", "product"))
    assert all(copy[1] <= product[0] for copy, product in zip(copies, products, strict=True)), "full"
    assert all(product[1] <= copy[0] for product, copy in zip(products, copies[plan.stages :], strict=False)), "empty"
    assert all(one[1] <= two[0] for one, two in pairwise(products)), "the tensor core does one product at a time"
    for tile in range(plan.tiles):
        assert products[plan.steps * (tile + 1) - 1][1] <= spans[f"epilogue {tile}"][0]
    for tile in range(plan.tiles - 2):
        assert spans[f"epilogue {tile}"][1] <= products[plan.steps * (tile + 2)][0], "one warp does one thing at a time"


def test_epilogues_of_the_drawn_plan_cost_the_tensor_core_no_time() -> None:
    plan = WarpPlan()
    products = [event for event in plan.trace() if event.name.startswith("product")]
    begin, end = min(float(p.start_seconds or 0) for p in products), max(float(p.end_seconds or 0) for p in products)
    assert end - begin == plan.product * plan.steps * plan.tiles


def test_phase_ends_when_neither_arrivals_nor_bytes_are_missing() -> None:
    barrier, seen = Mbarrier(2, 2), []
    for step in (32, -32, 32, -32, 32, 32, -32, -32):
        barrier = barrier.arrive_expect(step) if step > 0 else barrier.landed(-step)
        seen.append((barrier.arrivals, barrier.transactions, barrier.parity))
    first = [(1, 32, 0), (1, 0, 0), (0, 32, 0), (2, 0, 1)]
    assert seen == [*first, (1, 32, 1), (0, 64, 1), (0, 32, 1), (2, 0, 0)]
    assert [Mbarrier(1, 1).passes(parity) for parity in (0, 1)] == [False, True]
    assert Mbarrier(1, 1).arrive_expect(0) == Mbarrier(1, 1, parity=1)


def test_node_limit_bounds_the_nodes_of_every_token() -> None:
    draw = random.Random(0)
    for _ in range(50):
        scores = [draw.random() for _ in range(256)]
        chosen = node_limited_experts(scores, nodes=8, limit=4, chosen=8)
        nodes = {expert // 32 for expert in chosen}
        assert len(set(chosen)) == 8
        assert len(nodes) <= 4
        left_out = [score for expert, score in enumerate(scores) if expert // 32 in nodes and expert not in chosen]
        assert min(scores[expert] for expert in chosen) >= max(left_out)


def test_ulysses_and_the_ring_send_equally_much_at_five_ranks() -> None:
    model = Transformer.named("llama-3-8b")
    swapped, ring = sequence_bytes(model, 131_072, 5)
    assert swapped == pytest.approx(ring)
    swapped, ring = sequence_bytes(model, 131_072, 8)
    assert (round(swapped / 1e6), round(ring / 1e6)) == (294, 470)


def test_steps_of_the_placements_take_what_the_formulas_say() -> None:
    """Chapter 10: G + T together, G/x + T/(1 - x) split, and max(G/x, T/(1 - x)) asynchronously."""
    paces = []
    for placement in schedules.placements():
        ends = [float(event.end_seconds or 0) for event in placement.trace() if event.name == "train"]
        paces.append({round(after - before, 6) for before, after in pairwise(ends)})
    x, reward, weights = 0.6, 1, 0.5
    split = 4 / x + 2 / (1 - x) + reward + weights
    assert paces == [{4 + 2 + reward + weights}, {round(split, 6)}, {max(3 / x, 2 / (1 - x))}]


def test_rates_of_links_and_memories_are_read_from_the_tables() -> None:
    folder = Path(drawings.__file__).parent
    written = {path.name: re.findall(r"\d+ ?[GT]B/s", path.read_text(encoding="utf-8")) for path in folder.glob("*.py")}
    assert {name: rates for name, rates in written.items() if rates} == {}
