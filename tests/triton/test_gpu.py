"""Tests of tensors on a GPU, with a fake GPU: what is timed, what is interpreted, and what the result reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from mlsys_labkit.triton_trace import trace, tracing  # noqa: E402
from mlsys_labkit.triton_trace.errors import TritonArgumentError, TritonUnsolvedError  # noqa: E402
from mlsys_labkit.triton_trace.launch import gpu, launcher  # noqa: E402
from tests.triton import kernels  # noqa: E402


class OnGpu:
    """A tensor whose device claims to be a GPU."""

    device = SimpleNamespace(type="cuda")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.dtype, self.shape, self.stride = tensor.dtype, tensor.shape, tensor.stride
        self.data_ptr, self.storage_offset = tensor.data_ptr, tensor.storage_offset

    def untyped_storage(self) -> Any:
        storage = self.tensor.untyped_storage()
        return SimpleNamespace(data_ptr=storage.data_ptr, nbytes=storage.nbytes, cpu=storage.clone, clone=storage.clone)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return the launches of the fake GPU, whose only kernel adds."""
    ran: list[tuple[Any, ...]] = []

    def launch(arguments: gpu.LaunchArguments, kernel: Any, grid: Any) -> None:
        x, y, out, n = (getattr(one, "tensor", one) for one in arguments.args)
        assert launcher._through.get() is None
        out += x + y  # a second launch changes the result, as real launches may
        ran.append((kernel, grid, n))

    def bench(call: Any, *, device: str, name: str) -> Any:
        assert (device, name) == ("cuda", "add")
        for _ in range(5):
            call()
        return SimpleNamespace(median=2e-6)

    monkeypatch.setattr(gpu.LaunchArguments, "launch", launch)
    monkeypatch.setattr(gpu, "bench", bench)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a fake")
    return ran


def arguments(n: int) -> tuple[Any, ...]:
    whole = torch.ones(2 * n)
    return OnGpu(whole[:n]), OnGpu(whole[n:]), OnGpu(torch.zeros(n)), n


def test_trace_times_on_gpu_and_counts_by_interpreting(launched: list[tuple[Any, ...]]) -> None:
    x, y, out, n = arguments(100)
    traced = trace(kernels.add)[(2,)](x, y, out, n, BLOCK=64)
    assert launched == [(kernels.add, (2,), 100)] * 6
    assert (out.tensor == 2).all()  # launched once on the caller's own; the interpreter had copies of their own
    assert (traced.gpu, traced.seconds, traced.reduced) == ("a fake", 2e-6, False)
    assert traced.work.bytes_per_second == 1200 / 2e-6
    assert traced.arrays["y"].loaded_bytes == 400
    assert traced.arrays["x"].distinct_loaded_bytes == 400  # two halves of one allocation stay two
    assert "copies; the launch took 2.00 µs on a fake, measured by events" in str(traced)


def test_trace_counts_the_reduced_launch(launched: list[tuple[Any, ...]]) -> None:
    large = arguments(5 << 20)
    small = (np.ones(10, np.float32), np.ones(10, np.float32), np.zeros(10, np.float32), 10)
    traced = trace(kernels.add, reduced=((1,), small, {"BLOCK": 16}))[(1 << 15,)](*large, BLOCK=1024)
    assert {grid for _, grid, _ in launched} == {(1 << 15,)}
    assert (traced.programs, traced.reduced, traced.seconds) == (1, True, 2e-6)
    assert traced.work.seconds is None
    assert "a smaller launch; the whole one took 2.00 µs" in str(traced)


def test_trace_refuses_large_arguments_before_anything_runs(launched: list[tuple[Any, ...]]) -> None:
    with pytest.raises(TritonArgumentError, match=r"96 MiB of arguments.*reduced="):
        trace(kernels.add)[(1,)](*arguments(8 << 20), BLOCK=1024)
    assert launched == []


def test_tracing_times_launches_on_gpu(launched: list[tuple[Any, ...]]) -> None:
    with tracing() as traces:
        kernels.add[(2,)](*arguments(100), BLOCK=64)
    assert [one.gpu for one in traces] == ["a fake"]
    assert len(launched) == 6


def test_a_launch_goes_where_its_arrays_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a GPU, arrays in the CPU's memory are interpreted; Triton itself gets the others."""
    monkeypatch.setattr(launcher, "has_gpu", lambda: True)
    for ones in (torch.ones(100), np.ones(100, np.float32)):
        out = ones * 0
        kernels.add[(2,)](ones, ones, out, 100, BLOCK=64)
        assert (out == 2).all()
    with pytest.raises(TritonArgumentError, match="a tensor on the CPU"):
        kernels.add[(2,)](*arguments(100), BLOCK=64)


def test_an_access_outside_the_arrays_is_found_before_the_gpu_runs_it(launched: list[tuple[Any, ...]]) -> None:
    x, y, out, _ = arguments(100)
    traced = trace(kernels.add)[(2,)](x, y, out, 120, BLOCK=64)  # masks 120 elements of 100
    assert launched == []
    assert (traced.gpu, traced.seconds) == ("a fake", None)
    assert [one.array for one in traced.findings if one.kind == "out_of_bounds"] == ["x", "y", "out"]
    assert "not run on a fake, because it leaves its arrays" in str(traced)
    assert (out.tensor == 0).all()


def test_counts_are_those_of_the_configuration_that_the_autotuner_chose(
    launched: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch on the GPU decides it; the interpreter then counts once more, on the arguments as they were."""
    tuned = triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 128})], key=["n"])(kernels.add)
    launch = gpu.LaunchArguments.launch

    def choose(given: gpu.LaunchArguments, kernel: Any, grid: Any) -> None:
        tuned.best_config = tuned.configs[1]
        launch(given, kernel, grid)

    monkeypatch.setattr(gpu.LaunchArguments, "launch", choose)
    monkeypatch.setattr(gpu, "bench", lambda call, **options: call() or SimpleNamespace(median=2e-6))
    traced = trace(tuned)[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](*arguments(100))
    assert (traced.programs, traced.seconds) == (1, 2e-6)


@pytest.mark.gpu
def test_a_real_gpu_survives_the_trace_of_a_launch_out_of_bounds() -> None:
    x = torch.ones(100, device="cuda")
    traced = trace(kernels.add)[(2,)](x, x, torch.zeros_like(x), 1 << 30, BLOCK=64)
    assert traced.seconds is None
    out = torch.zeros_like(x)
    assert trace(kernels.add)[(2,)](x, x, out, 100, BLOCK=64).seconds
    assert (out.cpu() == 2).all()


@pytest.mark.parametrize("copies", ["on_cpu", "cloned"])
def test_copies_keep_strides_and_shared_storage(copies: str) -> None:
    whole = torch.arange(40.0).reshape(5, 8)
    left, right = whole[:, :3], whole[1:, 4::2]
    given = gpu.LaunchArguments((OnGpu(left), 7), {"y": (OnGpu(right), "name")})
    made = getattr(given, copies)()
    x, (y, name) = made.args[0], made.kwargs["y"]
    assert (made.args[1], name, given.bytes) == (7, "name", 160)
    assert (x.stride(), y.stride()) == (left.stride(), right.stride())
    assert torch.equal(x, left)
    assert torch.equal(y, right)
    assert x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()


@triton.jit
def _stub(x):
    raise NotImplementedError()


def test_a_stub_on_the_gpu_is_unsolved_as_it_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H100 the cells of unsolved notebooks that time kernels ended with an error of Triton's compiler."""
    monkeypatch.setattr(launcher, "has_gpu", lambda: True)
    monkeypatch.setattr(type(_stub), "run", lambda *_, **__: 1 / 0)
    with pytest.raises(TritonUnsolvedError, match="_stub is not written yet"):
        _stub[(1,)](OnGpu(torch.ones(4)))
    with pytest.raises(ZeroDivisionError):  # any other error stays what it is
        kernels.add[(1,)](OnGpu(torch.ones(4)))
