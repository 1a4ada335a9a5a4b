"""bench on a GPU made of Python: what its events time, the caches, and the clocks of the chip."""

from __future__ import annotations

import itertools
import random
import sys
import time
import types

import pytest

from mlsys_labkit.timing import bench
from mlsys_labkit.timing.bench import calls_per_sample, measure
from mlsys_labkit.timing.clock import CpuClock, CudaClock
from mlsys_labkit.timing.compare import measure_pairs


class FakeCuda:
    """Enough of torch.cuda to time by events: a host that queues operations, and a GPU that does them in order.

    A launch takes the host ``launch_seconds``. What was overwritten and not read over since is written back by the next
    kernel, which takes ``WRITE_BACK_SECONDS`` more.
    """

    int32 = "int32"
    WRITE_BACK_SECONDS = 10e-6

    def __init__(self, l2_bytes=50 * 2**20, launch_seconds=30e-6):
        self.host, self.gpu, self.dirty, self.log, fake = 0.0, 0.0, False, [], self
        self.launch_seconds = launch_seconds

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = fake.gpu = max(fake.gpu, fake.host)

            def query(self):
                return self.at <= fake.host

            def elapsed_time(self, other):
                return (other.at - self.at) * 1e3

        class Buffer:
            def __init__(self, size):
                self.size = size

            def zero_(self):
                fake.run("zero", self.size, 2e-6 if self.size == 1 else 40e-6)
                fake.dirty = self.size > 1

            def amax(self):
                fake.run("read", self.size, 40e-6)
                fake.dirty = False

        self.empty = self.zeros = lambda size, **kwargs: Buffer(size)
        properties = types.SimpleNamespace(L2_cache_size=l2_bytes, uuid="1234")
        self.cuda = types.SimpleNamespace(
            Event=Event,
            synchronize=self.synchronize,
            current_device=lambda: 0,
            get_device_properties=lambda _: properties,
            _sleep=lambda cycles: self.run("spin", cycles, cycles / 2e9),
        )

    def synchronize(self):
        self.host = max(self.host, self.gpu)

    def run(self, what, amount, seconds):
        self.log.append((what, amount))
        self.host += self.launch_seconds
        self.gpu = max(self.gpu, self.host) + seconds

    def kernel(self, seconds):
        def launch():
            self.run("kernel", seconds, seconds + self.dirty * self.WRITE_BACK_SECONDS)

        return launch


class FakeNvml:
    NVMLError = type("NVMLError", (Exception,), {})

    def __init__(self, reasons=(0,), found=True):
        self.reasons, self.found = itertools.chain(reasons, itertools.repeat(0)), found

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):
        assert uuid == "GPU-1234"
        if not self.found:
            raise self.NVMLError
        return "handle"

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return next(self.reasons)


FLUSH = ("read", 2 * 50 * 2**20 // 4)  # in elements of four bytes: twice the L2


@pytest.mark.parametrize("cold", [True, False])
def test_cuda_events_time_the_kernel_and_neither_the_flush_nor_the_launch(cold):
    gpu = FakeCuda()
    clock = CudaClock(cold=cold, torch=gpu, nvml=FakeNvml())
    assert clock.time(gpu.kernel(5e-6), 3) == pytest.approx(5e-6)
    assert gpu.log == [*[FLUSH] * cold, ("spin", 200_000), ("kernel", 5e-6)] * 3
    assert not clock.waits


def test_a_slow_launch_gets_a_longer_spin():
    gpu = FakeCuda(launch_seconds=1e-3)
    clock = CudaClock(torch=gpu, nvml=FakeNvml())
    assert clock.time(gpu.kernel(5e-6), 2) == pytest.approx(5e-6)
    assert [amount for what, amount in gpu.log if what == "spin"] == [200_000, 800_000, 3_200_000, 3_200_000]
    assert not clock.waits


def test_a_call_that_waits_for_the_gpu_is_timed_with_its_launch_and_says_so():
    gpu = FakeCuda()
    clock, launch = CudaClock(cold=False, torch=gpu, nvml=FakeNvml()), gpu.kernel(5e-6)

    def call():
        launch()
        gpu.synchronize()

    assert clock.time(call, 1) == pytest.approx(35e-6)
    timing = measure(call, clock, 1.0, 1e-3, None, "f")
    assert "The call waits for the GPU itself, so that its time includes the host's launches" in timing.advice


def test_the_record_states_the_cache():
    gpu = FakeCuda()
    for cold, words in ((True, "cuda with a cold L2 cache"), (False, "cuda with a warm L2 cache")):
        clock = CudaClock(cold=cold, torch=gpu, nvml=FakeNvml())
        timing = measure(gpu.kernel(5e-6), clock, 1.0, 1e-3, None, "f")
        assert words in str(timing)
        pair = measure_pairs((gpu.kernel(5e-6),) * 2, clock, 1e-3, 0.05, ("a", "b"), random.Random(0))
        assert words in str(pair)
    assert "cache" not in str(bench(sum, [], seconds=0.01))


def test_launch_overhead_is_the_time_of_an_empty_kernel_and_leaves_the_flush_on():
    gpu = FakeCuda()
    clock = CudaClock(torch=gpu, nvml=FakeNvml())
    assert clock.launch_overhead_seconds() == pytest.approx(2e-6)
    clock.time(gpu.kernel(1e-6), 1)
    assert gpu.log[-3] == FLUSH


def test_an_initialised_gpu_slows_no_sample_of_a_cpu_function(monkeypatch):
    """Every sample ends with a wait for the GPU, 8 us here; samples are so long that it is below 1 %."""
    now = [0]

    def take(nanoseconds):
        now[0] += nanoseconds
        return now[0]

    cuda = types.SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: take(8_000))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    ticking = types.SimpleNamespace(perf_counter_ns=lambda: take(50), get_clock_info=time.get_clock_info)
    monkeypatch.setattr("mlsys_labkit.timing.clock.time", ticking)
    clock = CpuClock()

    def call():
        take(10_000)

    assert clock.time(call, calls_per_sample(call, clock)) == pytest.approx(10e-6, rel=0.011)


@pytest.mark.gpu
def test_a_real_gpu_is_still_spinning_when_a_small_call_is_queued():
    torch = pytest.importorskip("torch")
    one = torch.ones(1, device="cuda")
    clock = CudaClock()
    assert clock.time(lambda: one.add_(1), 20) > 0
    assert not clock.waits
    assert clock.time(lambda: one.add_(1).item(), 1) > 0
    assert clock.waits


def test_clock_reasons_seen_during_the_run_are_named_and_the_power_cap_is_not_one():
    gpu = FakeCuda()
    clock = CudaClock(torch=gpu, nvml=FakeNvml([0, 0x40 | 0x4, 0]))
    for _ in range(3):
        clock.time(gpu.kernel(1e-6), 1)
    assert clock.throttled() == "the GPU lowered its clock (hardware thermal)"
    quiet = CudaClock(torch=gpu, nvml=FakeNvml([0x4] * 9))
    quiet.time(gpu.kernel(1e-6), 1)
    assert quiet.throttled() == ""


def test_without_nvml_nothing_is_claimed_about_clocks():
    gpu = FakeCuda()
    clock = CudaClock(torch=gpu, nvml=FakeNvml(found=False))
    clock.time(gpu.kernel(1e-6), 1)
    assert clock.throttled() == ""
