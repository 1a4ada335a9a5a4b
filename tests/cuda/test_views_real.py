"""The views of real profiles: the costs of the recorded requests equal the counts of the profile's lines."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import mlsys_labkit as lk
from mlsys_labkit import widgets
from mlsys_labkit.widgets.warp_access import model as warp
from tests.labkit.test_widgets import Page, state

SOURCE = """
__global__ void walk(const float* a, const double* d, const float4* v, const unsigned char* bytes, float* out, int k)
{
    __shared__ float tile[32][32];
    __shared__ double pairs[64];
    __shared__ int bins[4];
    int t = threadIdx.x;
    bins[t % 4] = 0;
    tile[t][0] = a[t * k];
    pairs[t * 2] = d[t];
    __syncwarp();
    atomicAdd(&bins[t % 4], 1);
    if (t < 20) out[t] = tile[t][0] + float(pairs[t * 2]);
    out[32 + t] = v[t].x + bytes[t] + float(bins[t / 8]);
    atomicAdd(&out[64 + t % 8], 1.0f);
}
"""


@pytest.fixture(scope="module")
def profile() -> Any:
    """Profile a launch of one warp, so that every request is among the recorded samples."""
    arrays = [np.ones(32 * 5, np.float32), np.ones(32), np.ones(4 * 32, np.float32), np.ones(32, np.uint8)]
    return lk.cuda.compile(SOURCE).profile[1, 32](*arrays, np.zeros(72, np.float32), 5)


def test_recorded_requests_cost_what_their_lines_count(profile: Any) -> None:
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for sample in profile.samples:
        lanes, size, atomic = sample.lanes, sample.bytes_per_lane, sample.op == "atomic"
        waves = warp.wavefronts(lanes, size, atomic)
        costs = [
            1,
            sum(at is not None for at in lanes),
            len(warp.sectors(lanes, size)),
            warp.ideal_sectors(lanes, size),
        ]
        if sample.space == "shared":
            costs[2:] = [sum(waves), sum(wave > 0 for wave in waves)]
        key = (sample.line, sample.space, sample.op, size)
        sums[key] = [a + b for a, b in zip(sums[key], costs, strict=True)]
    counted = {}
    for line in profile.lines:
        if line.requests:
            moved = (line.sectors, line.ideal_sectors)
            if line.space == "shared":
                moved = (line.wavefronts, line.ideal_wavefronts)
            counted[line.line, line.space, line.op, line.bytes_per_lane] = [line.requests, line.lanes, *moved]
    assert dict(sums) == counted
    assert counted[9, "global", "load", 4] == [1, 32, 20, 4]  # a stride of 20 bytes: 620 + 4 bytes are 20 sectors
    assert counted[9, "shared", "store", 4] == [1, 32, 32, 1]  # a column of the tile
    assert counted[12, "shared", "atomic", 4] == [1, 32, 8, 1]  # eight lanes on each of four bins


def test_a_profile_and_its_findings_open_in_one_call(profile: Any) -> None:
    source = widgets.annotated_source(profile)
    carried = state(source)
    assert carried["line"] == 9  # 31 wavefronts too many
    assert carried["heat"] == "wavefronts"
    assert carried["title"] == "walk, grid 1, block 32"
    assert "tile[t][0] = a[t * k];" in Page(source.html()).text
    assert "source-level model" in Page(source.html()).text.lower()
    access = widgets.warp_access(profile, line=12)
    assert "Line 12, atomic of bins, block (0, 0, 0), warp 0" in Page(access.html()).text


def test_a_sampled_profile_states_it_under_its_source() -> None:
    fill = lk.cuda.compile("__global__ void fill(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1; }")
    sampled = fill.profile.sampled(2)[8, 32](np.zeros(256, np.float32))
    assert "2 of 8 blocks were run" in Page(widgets.annotated_source(sampled).html()).text
