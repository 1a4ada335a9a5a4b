"""bench on machines whose time is simulated, and on this machine."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.timing import Comparison, Timing, TimingError, bench, compare
from mlsys_labkit.timing.clock import CpuClock
from mlsys_labkit.timing.record import duration
from mlsys_labkit.work import Work
from tests.labkit.simulated_clock import SimulatedClock, run


def test_a_quiet_machine_gives_a_stable_verdict_and_the_true_time():
    timing = run(SimulatedClock())
    assert timing.verdict == "stable"
    assert timing.median == pytest.approx(1e-3, rel=0.01)
    assert timing.ci_low <= timing.median <= timing.ci_high
    assert timing.first_call_seconds == 0.5
    assert timing.advice == ""


def test_sampling_stops_early_when_the_interval_is_narrow_but_not_at_once():
    clock = SimulatedClock()
    run(clock)
    assert 0.2 <= clock.seconds < 0.5


def test_noise_uses_the_whole_budget_and_is_called_noisy():
    clock = SimulatedClock(spread=0.8)
    timing = run(clock, cost=20e-3)
    assert clock.seconds >= 1.0
    assert timing.verdict == "noisy"
    assert "more seconds" in timing.advice


def test_two_speeds_are_called_noisy_even_when_the_median_is_certain():
    rng = np.random.default_rng(0)
    timing = run(SimulatedClock(lambda t: 1.0 if rng.random() < 0.6 else 2.0))
    assert timing.verdict == "noisy"
    assert ".samples" in timing.advice


def test_there_are_never_fewer_than_ten_samples():
    timing = run(SimulatedClock(), cost=5.0, seconds=0.01)
    assert timing.n >= 10


def test_warmup_is_dropped_counted_and_leaves_no_trace_in_the_median():
    clock = SimulatedClock(lambda t: 3.0 if t < 0.1 else 1.0)
    timing = run(clock)
    assert timing.warmup_dropped >= 30
    assert timing.median == pytest.approx(1e-3, rel=0.01)
    assert timing.verdict == "stable"


def test_a_ramp_is_drifting_and_a_late_step_up_is_throttled():
    assert run(SimulatedClock(lambda t: 1 + t, spread=0.1), seconds=2, target=1e-4).verdict == "drifting"
    stepped = run(SimulatedClock(lambda t: 1.0 if t < 1.2 else 1.5), seconds=2, target=1e-4)
    assert stepped.verdict == "throttled"
    assert "slower" in stepped.advice


def test_what_the_machine_says_of_its_clock_comes_before_what_samples_look_like():
    clock = SimulatedClock()
    clock.why = "the GPU lowered its clock (hardware thermal)"
    timing = run(clock)
    assert timing.verdict == "throttled"
    assert "hardware thermal" in timing.advice


def test_short_functions_are_batched_well_above_the_resolution():
    timing = run(SimulatedClock(), cost=100e-9)
    assert timing.calls_per_sample * 100e-9 >= 80e-6
    assert timing.verdict == "stable"
    assert timing.median == pytest.approx(100e-9, rel=0.02)


def test_a_crowded_host_is_named_even_when_the_samples_are_steady():
    clock = SimulatedClock()
    clock.busy = 1000.0
    timing = run(clock)
    assert timing.verdict == "stable"
    assert "Load 1000.0" in timing.advice
    assert "load 1000.0" in str(timing)


def test_a_kernel_as_short_as_a_launch_is_too_short():
    clock = SimulatedClock(device="cuda")
    clock.sample_seconds, clock.overhead = 0.0, 4e-6
    timing = run(clock, cost=5e-6, seconds=0.01)
    assert timing.verdict == "too_short"
    assert "4.00 µs" in timing.advice
    assert "empty kernel 4.00 µs" in str(timing)


def test_a_coarse_clock_is_too_short_when_batching_cannot_help(monkeypatch):
    import importlib

    # the package's attribute `bench` is the function
    monkeypatch.setattr(importlib.import_module("mlsys_labkit.timing.bench"), "_MOST_CALLS", 4)
    assert run(SimulatedClock(resolution=1e-3), cost=1e-6, seconds=0.001).verdict == "too_short"


def test_the_interval_narrows_to_the_target_asked_for():
    timing = run(SimulatedClock(spread=0.1), target=0.005, seconds=20)
    assert (timing.ci_high - timing.ci_low) / 2 / timing.median <= 0.005


def test_attaching_a_timing_to_work_gives_a_measured_rate():
    timing = Timing("f", (1e-3,) * 10, 1e-3, 1e-3, 1.0, "stable", "")
    work = timing.work(Work(flops=2e6, how={"flops": "counted"}))
    assert work.flops_per_second == pytest.approx(2e9)
    assert work.how == {"flops": "counted", "seconds": "measured"}


# --- the real clock, without asserting on its time --------------------------------------------------------------------


def test_bench_calls_the_function_with_its_arguments_and_restores_the_collector():
    seen = set()
    timing = bench(lambda *args: seen.add(args), 1, "x", seconds=0.01)
    assert seen == {(1, "x")}
    assert timing.n >= 10
    assert timing.device == "cpu"
    assert gc.isenabled()


def test_compare_calls_both():
    counts = [0, 0]

    def count(which):
        counts[which] += 1

    result = compare(lambda: count(0), lambda: count(1), seconds=0.02)
    assert min(counts) >= result.pairs >= 10
    assert result.verdict in ("faster", "slower", "same", "undecided")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bench(3), "pass fn itself"),
        (lambda: bench(sum, [], seconds=0), "positive time budget"),
        (lambda: bench(sum, [], target=-1), "positive fraction"),
        (lambda: compare(sum, None), "pass b itself"),
        (lambda: bench(sum, [], device="gpu"), "expected 'cpu' or 'cuda'"),
        (lambda: compare(sum, sum, [], margin=2), "margin is 2"),
    ],
)
def test_what_cannot_be_timed_is_refused_in_one_line(call, message):
    with pytest.raises(TimingError, match=message) as caught:
        call()
    assert isinstance(caught.value, LabkitError)
    assert "\n" not in str(caught.value)


def test_asking_for_a_gpu_where_there_is_none_says_so(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TimingError, match="no CUDA GPU here"):
        bench(sum, [], device="cuda")


def test_an_error_of_the_function_passes_through():
    with pytest.raises(ZeroDivisionError):
        bench(lambda: 1 / 0)
    assert gc.isenabled()


def test_a_cpu_quota_that_bites_is_reported(tmp_path):
    stat = tmp_path / "cpu.stat"
    stat.write_text("nr_periods 10\nnr_throttled 3\n")
    clock = CpuClock(cpu_stat=stat)
    assert clock.throttled() == ""
    stat.write_text("nr_periods 20\nnr_throttled 9\n")
    assert "6 times" in clock.throttled()
    assert CpuClock(cpu_stat=tmp_path / "none").throttled() == ""


# --- what a person sees ---------------------------------------------------------------------------------------------


def test_timing_reads_as_two_lines_with_everything_stated():
    samples = tuple(np.linspace(1e-3, 1.1e-3, 21))
    timing = Timing("f<x>", samples, 1.02e-3, 1.08e-3, 0.5, "stable", "", 4, 8, threads=2, load=1.25)
    text = str(timing)
    assert text.splitlines()[0] == "f<x> 1.05 ms (95 % CI 1.02 ms – 1.08 ms): stable"
    assert len(text.splitlines()) == 2
    for stated in ("n = 21 × 8 calls", "min 1.00 ms", "first call 500 ms", "4 warm-up", "2 torch threads", "load 1.2"):
        assert stated in text
    assert (timing.p10, timing.p90) == (pytest.approx(1.01e-3), pytest.approx(1.09e-3))
    assert timing.iqr == pytest.approx(0.05e-3)


@pytest.mark.parametrize(
    ("ratio", "verdict", "sentence"),
    [
        (0.5, "faster", "vector is 2.00× faster than loop"),
        (1.1, "slower", "vector is 1.10× slower than loop"),
        (1.0, "same", "vector takes the same time as loop, within 5 %"),
        (1.05, "undecided", "undecided whether vector is faster or slower than loop"),
    ],
)
def test_a_comparison_is_a_sentence_about_b(ratio, verdict, sentence):
    a_seconds = 2e-3
    b_seconds = ratio * a_seconds
    result = Comparison(ratio, ratio - 0.02, ratio + 0.03, verdict, 0.05, 100, a_seconds, b_seconds, "loop", "vector")
    first, second = str(result).splitlines()
    assert first == sentence
    assert sentence in result._repr_html_()
    assert second.startswith(f"  time of vector / time of loop = {ratio:.3f} (95 % CI {ratio - 0.02:.3f} – ")
    assert "loop 2.00 ms" in second


def test_compare_names_the_second_function_as_the_subject():
    def little():
        return sum(range(10))

    def much():
        return sum(range(10_000))

    assert str(compare(little, much, seconds=0.02)).splitlines()[0].startswith("much is ")
    assert "slower than little" in str(compare(little, much, seconds=0.02))
    assert "b is " in str(compare(lambda: little(), lambda: much(), seconds=0.02))


def test_html_escapes_names_and_takes_its_colours_from_the_page():
    timing = Timing("<b>", (1.0,) * 10, 1.0, 1.0, 1.0, "noisy", "do <this>")
    comparison = Comparison(1, 1, 1, "same", 0.05, 10, 1, 1, "<i>", "b")
    for page in (timing._repr_html_(), comparison._repr_html_()):
        assert "<this>" not in page
        assert "<i>" not in page
        assert "color:inherit" in page
        assert "background:transparent" in page


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 ns"),
        (1.5e-9, "1.50 ns"),
        (999.9e-9, "1.00 µs"),
        (12.34e-6, "12.3 µs"),
        (0.1234, "123 ms"),
        (75, "75.0 s"),
    ],
)
def test_durations_have_three_digits_and_a_unit(seconds, text):
    assert duration(seconds) == text


def test_a_machine_that_hides_its_load_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden() -> None:
        raise OSError("Load averages are unobtainable")

    monkeypatch.setattr("os.getloadavg", hidden)
    assert CpuClock().load() is None
    assert bench(sum, (1, 2), seconds=0.01).n >= 10
    monkeypatch.delattr("os.getloadavg")
    assert CpuClock().load() is None
