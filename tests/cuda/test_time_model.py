"""The model of a kernel's time: its parts against theory, its direction of change, and what it says about itself."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from mlsys_labkit import cuda, specs
from mlsys_labkit.cuda.counters import Counters, LineCount, RequestSample
from mlsys_labkit.cuda.nvidia.occupancy import LIMITS
from mlsys_labkit.cuda.time_model import gpus, launch as launches
from mlsys_labkit.cuda.time_model.estimate import CountedLaunch, estimate
from mlsys_labkit.cuda.time_model.machine_code import Executed, executed, from_counters
from mlsys_labkit.cuda.time_model.requests import passes, request_cycles
from mlsys_labkit.errors import MissingExtraError
from tests.conftest import ROOT
from tests.cuda.nvrtc_helpers import NEEDS_NVRTC

H100 = gpus.modelled("h100-sxm")
EVERY_GPU = [gpus.modelled(key) for key in gpus.known()]
KERNEL = """\
__global__ void scale(const float* x, float* y, int n) {
  __shared__ float part[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = 2.0f * part[255 - threadIdx.x];
}
"""


def access(line: int, op: str, requests: int, lanes: Sequence[int]) -> tuple[LineCount, RequestSample]:
    """Return an access to global memory by whole warps, each of which goes where ``lanes`` says, and a sample of it."""
    sectors = requests * len({lane // 32 for lane in lanes})
    count = LineCount(line, "k", "global", op, 4, requests, 32 * requests, sectors, 0, 4 * requests, 0, 32, 32)
    return count, RequestSample(line, "global", op, 4, (0, 0, 0), 0, tuple(lanes), "x")


def counted(blocks: int, warps: int, *accesses: tuple[LineCount, RequestSample], moved: int = 0) -> Counters:
    return Counters(
        kernel="k",
        source="",
        grid=(blocks, 1, 1),
        block=(32 * warps, 1, 1),
        shared_bytes=0,
        lines=tuple(count for count, _ in accesses),
        samples=tuple(sample for _, sample in accesses),
        blocks_run=blocks,
        blocks_total=blocks,
        bytes_read=moved // 2,
        bytes_written=moved // 2,
    )


def copy_launch(blocks: int, registers: int = 16, stride: int = 4) -> CountedLaunch:
    """Return a copy: every warp of 8 per block loads and stores 32 floats, ``stride`` bytes apart."""
    lanes = range(0, 32 * stride, stride)
    each = 8 * blocks
    counters = counted(blocks, 8, access(1, "load", each, lanes), access(2, "store", each, lanes), moved=256 * each)
    return CountedLaunch(counters, 256 * 8, 0, registers, 0, from_counters(counters))


def arithmetic_launch(blocks: int, fmas: float, warps: int = 8) -> CountedLaunch:
    """Return a launch whose warps do nothing but independent FMAs."""
    total = fmas * blocks * warps
    instructions = Executed(slots=total, pipes={"float32": total}, requests={}, widths={}, waits={})
    return CountedLaunch(counted(blocks, warps), 0, 0, 32, 0, instructions)


# --- theory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", EVERY_GPU, ids=lambda gpu: gpu.spec.key)
def test_copy_takes_its_bytes_over_the_bandwidth(gpu: gpus.ModelledGpu) -> None:
    blocks = 1 << 17
    time = estimate(copy_launch(blocks), gpu)
    assert time.bound == "DRAM"
    assert time.seconds == pytest.approx(256 * 8 * blocks / (gpu.dram_share * gpu.spec.bandwidth()))


@pytest.mark.parametrize("gpu", EVERY_GPU, ids=lambda gpu: gpu.spec.key)
def test_independent_fmas_take_their_flops_over_the_peak(gpu: gpus.ModelledGpu) -> None:
    blocks = 100 * gpu.spec.sms
    time = estimate(arithmetic_launch(blocks, 10_000), gpu)
    assert time.bound == "arithmetic"
    assert time.seconds == pytest.approx(2 * 32 * 10_000 * 8 * blocks / gpu.spec.peak("float32"), rel=0.05)


def test_chain_of_loads_by_one_warp_takes_their_latencies() -> None:
    """1,000 dependent loads of bytes that are read once: at least 1,000 latencies of DRAM."""
    counters = counted(1, 1, access(1, "load", 1000, range(0, 128, 4)), moved=200 << 20)
    chain = replace(from_counters(counters), slots=2000.0, waits={"global": 1000.0})
    time = estimate(CountedLaunch(counters, 200 << 20, 0, 16, 0, chain), H100)
    assert time.parts["latency"] == pytest.approx((1000 * H100.dram_latency + 2000) / H100.spec.clock_hz, rel=0.01)
    assert time.seconds >= time.parts["latency"]


def test_one_block_more_than_there_are_sms_doubles_the_arithmetic() -> None:
    even = estimate(arithmetic_launch(H100.spec.sms, 100_000), H100)
    uneven = estimate(arithmetic_launch(H100.spec.sms + 1, 100_000), H100)
    assert uneven.parts["arithmetic"] == pytest.approx(2 * even.parts["arithmetic"])
    assert even.tail == pytest.approx(1)
    assert uneven.tail == pytest.approx(2 * H100.spec.sms / (H100.spec.sms + 1))


@pytest.mark.parametrize(
    ("lanes", "width", "expected"),
    [
        ([4 * lane for lane in range(32)], 4, 1),
        ([0] * 32, 4, 1),  # one word for all
        ([8 * lane for lane in range(32)], 4, 2),
        ([128 * lane for lane in range(32)], 4, 32),  # one bank
        ([132 * lane for lane in range(32)], 4, 1),  # a padded row
        ([8 * lane for lane in range(32)], 8, 2),
        ([0] * 32, 8, 1),
        ([16 * lane for lane in range(32)], 16, 4),
        ([0] * 32, 16, 2),
        ([16 * (lane // 2) for lane in range(32)], 16, 2),  # pairs of lanes
        ([32 * (lane % 16) for lane in range(32)], 16, 8),  # every other 16 bytes
        ([*range(0, 64, 4), *[None] * 16], 4, 1),
        ([None] * 32, 4, 0),
    ],
)
def test_passes_equal_the_rule_of_banks(lanes: list[int | None], width: int, expected: int) -> None:
    assert passes(lanes, width) == expected


@pytest.mark.parametrize(
    ("gpu", "lanes", "expected"),
    [
        ("a100-sxm-40gb", [132 * lane for lane in range(32)], 0.735 + 0.265 * 33),  # 33 lines in 32 banks
        ("a100-sxm-40gb", [4 * lane for lane in range(32)], 1),
        ("rtx-a6000", [4 * lane for lane in range(32)], 2),  # 16 lanes a clock
        ("rtx-a6000", [4096 * lane for lane in range(32)], 32),  # one bank
    ],
)
def test_requests_to_the_l1_cache_cost_what_was_measured(gpu: str, lanes: list[int], expected: float) -> None:
    count, sample = access(1, "load", 1, lanes)
    cycles = request_cycles(("global", "load", 1), counted(1, 1, (count, sample)), 0, gpus.modelled(gpu))
    assert cycles == pytest.approx(expected, rel=0.05)


def test_merged_loads_cost_passes_of_their_own_width() -> None:
    """Four loads of one word for all lanes, merged to 16 bytes: two passes; if half are merged, 1.5."""
    count, sample = access(1, "load", 1, [0] * 32)
    shared = replace(count, space="shared"), replace(sample, space="shared")
    for width, expected in ((4, 1), (10, 1.5), (16, 2)):
        found = request_cycles(("shared", "load", 1), counted(1, 1, shared), width, H100)
        assert found == pytest.approx(expected), width


def test_data_that_fit_in_l2_are_read_from_dram_once() -> None:
    """1,024 blocks read the same 1 MiB, or the same 1 GiB: then the square root of the resident blocks share a byte."""
    for shared_bytes, shares in ((1 << 20, None), (1 << 30, math.sqrt(8 * 132))):
        count, sample = access(1, "load", 1 << 40, range(0, 128, 4))
        counters = replace(counted(1 << 14, 8, (count, sample)), bytes_read=shared_bytes)
        launch = replace(copy_launch(8), counters=counters, block_bytes=shared_bytes)
        time = estimate(launch, H100)
        assert time.l2_bytes == shared_bytes << 14
        assert time.dram_bytes == pytest.approx(time.l2_bytes / shares if shares else shared_bytes)


def test_tensor_flops_take_their_share_of_the_peak() -> None:
    launch = arithmetic_launch(1320, 0)
    launch = replace(launch, counters=replace(launch.counters, instructions={"tensor": 10**15}))
    assert estimate(launch, H100).seconds == pytest.approx(1e15 / H100.spec.peak("float16"))


# --- direction -------------------------------------------------------------------------------------------------------


def test_more_sectors_are_never_faster() -> None:
    times = [estimate(copy_launch(4096, stride=4 * step), H100).seconds for step in (1, 2, 4, 8, 16, 32)]
    assert times == sorted(times)
    assert times[-1] > 3 * times[0]


def test_lower_occupancy_is_never_faster() -> None:
    estimates = [estimate(copy_launch(1 << 14, registers=registers), H100) for registers in (16, 40, 64, 128, 255)]
    warps = [time.occupancy.warps for time in estimates]
    times = [time.seconds for time in estimates]
    assert warps == sorted(warps, reverse=True)
    assert warps[-1] < warps[0]
    assert times == sorted(times)
    assert estimates[-1].bound == "latency"


def test_sampled_launch_is_scaled_to_its_grid() -> None:
    whole = copy_launch(1 << 16)
    part = copy_launch(1 << 8)
    sampled = replace(part, counters=replace(part.counters, grid=(1 << 16, 1, 1), blocks_total=1 << 16))
    for name, seconds in estimate(whole, H100).parts.items():
        assert estimate(sampled, H100).parts[name] == pytest.approx(seconds), name


# --- machine code ----------------------------------------------------------------------------------------------------

LOOP = """\
.text.k:
	//## File "/kernel.cu", line 1
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/              @!P0 BRA `(.L_x_1) ;
.L_x_0:
	//## File "/kernel.cu", line 7
        /*0020*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0030*/                   LDG.E.128 R8, desc[UR4][R2.64+0x10] ;
	//## File "/kernel.cu", line 8
        /*0040*/                   FFMA R0, R4, R5, R0 ;
        /*0050*/                   FFMA R0, R6, R7, R0 ;
        /*0060*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0070*/                   ISETP.NE.AND P1, PT, R10, RZ, PT ;
        /*0080*/               @P1 BRA `(.L_x_0) ;
.L_x_1:
        /*0090*/                   EXIT ;
        /*00a0*/                   NOP;
"""


def test_instructions_follow_from_bytes_and_machine_code() -> None:
    """800 warp-wide loads of 4 bytes are 100 rounds of a loop that loads twice 16 bytes."""
    count, sample = access(7, "load", 800, range(0, 128, 4))
    counters = replace(counted(1, 1, (count, sample)), barriers=100, instructions={"float32": 100 * 2 * 2 * 32})
    found = executed(LOOP, counters)
    assert found.slots == pytest.approx(100 * 7)
    assert found.pipes["float32"] == pytest.approx(200)
    assert found.pipes["integer"] == pytest.approx(100)
    assert found.requests == pytest.approx({("global", "load", 7): 200})
    assert found.widths == pytest.approx({("global", "load", 7): 16})
    assert found.waits == pytest.approx({"global": 100, "shared": 0})


def test_loads_that_only_gcc_repeats_do_not_count() -> None:
    """g++ counts four times as many loads as the FLOPs and the barriers need: three of four stay in registers."""
    count, sample = access(7, "load", 3200, range(0, 128, 4))
    counters = replace(counted(1, 1, (count, sample)), barriers=100, instructions={"float32": 100 * 2 * 2 * 32})
    assert executed(LOOP, counters).waits["global"] == pytest.approx(100, rel=0.1)


def test_code_without_floats_runs_as_often_as_its_line() -> None:
    """A loop of integers, on line 5 of the source: 6,400 lanes passed it, so 200 warps did."""
    listing = LOOP.replace("line 7", "line 5").replace("line 8", "line 5")
    for name in ("LDG.E.128", "FFMA", "BAR.SYNC.DEFER_BLOCKING"):
        listing = listing.replace(name, "IADD3")
    line = LineCount(5, "k", "", "", 0, 0, 0, 0, 0, 0, 0, 0, 6400)
    counters = replace(counted(1, 1), lines=(line,))
    assert executed(listing, counters).pipes["integer"] == pytest.approx(200 * 6)


def test_accesses_that_inlining_moved_to_another_line_are_found() -> None:
    count, sample = access(3, "load", 800, range(0, 128, 4))
    assert executed(LOOP, counted(1, 1, (count, sample))).waits["global"] == pytest.approx(100)


# --- what a user sees ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scale() -> cuda.Kernel:
    return cuda.compile(KERNEL, backend="simulator")


def check_estimate(time: object, said: str) -> None:
    assert "model, not a measurement" in str(time)
    assert "model, not a measurement" in repr(time)
    assert "model, not a measurement" in time._repr_html_()  # type: ignore[attr-defined]
    assert said in str(time)


@NEEDS_NVRTC
def test_model_estimates_a_launch_and_leaves_its_arrays_alone(scale: cuda.Kernel) -> None:
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    time = scale.model("h100-sxm")[16, 256](x, y, 4096)
    assert not y.any()
    assert time.low < time.seconds < time.high
    assert time.seconds > 0
    assert time.occupancy.warps == 64
    check_estimate(time, "% on 24 published kernels")
    few = scale.model("h100-sxm").sampled(2)[16, 256](cuda.to_device(x), cuda.to_device(y), 4096)
    assert few.seconds == pytest.approx(time.seconds, rel=0.05)


def test_model_without_the_compiler_says_what_it_assumes(scale: cuda.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise MissingExtraError("not installed")

    monkeypatch.setattr(scale, "_compiled", missing)
    x, y = np.ones(512, np.float32), np.zeros(512, np.float32)
    time = scale.model("a100-sxm-40gb")[2, 256](x, y, 512)
    check_estimate(time, "NVIDIA's compiler is not installed")
    assert time.errors == gpus.published_errors(compiled=False)


@pytest.mark.parametrize("name", ["h100", "H100-SXM", "mi300x", "epyc-9654", "v100-sxm2-16gb", ""])
def test_unknown_gpus_are_refused_with_a_list(scale: cuda.Kernel, name: str) -> None:
    with pytest.raises(cuda.CudaError, match=r"no model of a GPU '.*'; choose one of .*h100-sxm"):
        scale.model(name)


def test_kernel_with_a_finding_has_no_time(scale: cuda.Kernel) -> None:
    with pytest.raises(cuda.CudaKernelError, match=r"out of bounds|outside|beyond"):
        scale.model("h100-sxm")[2, 256](np.ones(512, np.float32), np.zeros(8, np.float32), 512)


def test_block_that_does_not_fit_has_no_time() -> None:
    with pytest.raises(cuda.CudaLaunchError, match="no time to estimate on NVIDIA GeForce RTX 4090"):
        estimate(replace(copy_launch(8), shared_bytes=120 << 10), gpus.modelled("rtx4090"))


def test_one_array_for_two_parameters_stays_one() -> None:
    x = np.ones(3)
    first, second, number = launches.copies((x, x, 3))
    assert first is second
    assert first is not x
    assert number == 3


# --- the figures -----------------------------------------------------------------------------------------------------


def test_figures_have_sources_and_every_architecture_is_known() -> None:
    path = Path(gpus.__file__).with_name("gpus.toml")
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    for source in table["sources"].values():
        assert source["url"].startswith("https://")
        assert date.fromisoformat(source["date"]) <= date.today()
    for arch, row in table["architectures"].items():
        assert set(row["source"]) <= set(table["sources"])
        assert arch in LIMITS
        assert row["l1_latency"] < row["l2_latency"] < row["dram_latency"]
        assert 0.5 < row["dram_share"] < 1


def test_models_exist_of_the_gpus_of_the_course() -> None:
    assert {"h100-sxm", "h200", "a100-sxm-40gb", "a100-sxm-80gb", "rtx-a6000", "rtx4090", "l40s"} <= set(gpus.known())
    for gpu in EVERY_GPU:
        assert gpu.float32_lanes in (64, 128)
        assert gpu.l2_bandwidth > gpu.spec.bandwidth()
        assert specs.get(gpu.spec.key) is gpu.spec


def test_errors_are_those_that_the_benchmark_found() -> None:
    recorded = json.loads((ROOT / "benchmarks/results/cuda_model.json").read_text(encoding="utf-8"))["result"]
    for name, found in recorded["errors"].items():
        assert gpus.published_errors(name == "compiled") == gpus.PublishedErrors(**found)
    assert recorded["overlap"] == gpus.fitted_overlap()
    assert recorded["errors"]["compiled"]["median_error"] <= 0.25
    pairs = {gpu: ladder["pairs_in_order"] for gpu, ladder in recorded["ladders"].items()}
    assert pairs.pop("rtx-a6000") == math.comb(8, 2)
    assert min(pairs.values()) >= math.comb(8, 2) - 1  # two published steps are 1 % apart
