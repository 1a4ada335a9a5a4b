"""trace_memory on torch: against counting by hand, PyTorch's own MemTracker, and the same code on fake tensors."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from mlsys_labkit.memory import CATEGORIES, MemoryTrace, TracedTensor, trace_memory

pytestmark = pytest.mark.usefixtures("small_heap")

F32 = 4


def mlp(width: int, hidden: int, blocks: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(blocks):
        layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)]
    return nn.Sequential(*layers)


def parameter_bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def most(trace: MemoryTrace, category: str) -> int:
    return int(trace.timeline()[category].max())


def test_the_published_figure_of_an_mlp_with_adam():
    model = mlp(1024, 4096, 2)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(16, 1024)

    def step():
        model(x).square().mean().backward()
        optimizer.step()

    trace = trace_memory(step)
    assert most(trace, "parameters") == 67_149_824
    assert most(trace, "gradients") == 67_149_824
    steps = 8 * F32  # one scalar for each of 8 parameters
    assert most(trace, "optimizer") == 134_299_648 + steps
    assert trace.timeline()["optimizer"][-1] == 134_299_648 + steps
    # Saved per block: the hidden layer after ReLU twice (its input goes at once in place of nothing), and the output.
    assert most(trace, "activations") >= 2 * 16 * 4096 * F32
    again = trace_memory(step)  # optimizer state from before is there from the first event
    assert again.timeline()["optimizer"].min() >= 0
    assert sum(t.bytes for t in again.tensors if t.before and t.category == "optimizer") == 134_299_648 + steps


def test_trace_of_a_forward_pass_matches_a_hand_count():
    n, d, h = 3, 5, 7
    first, second, x = nn.Linear(d, h), nn.Linear(h, 2), torch.randn(n, d)
    trace = trace_memory(lambda: second(torch.relu(first(x))))
    # before: weights, biases, x; then z, relu(z) (z is freed: relu keeps its result), and the output
    before = (h * d + h + 2 * h + 2) * F32 + n * d * F32
    assert trace.peak_by_category["parameters"] == (h * d + h + 2 * h + 2) * F32
    assert trace.peak_by_category["other"] == n * d * F32
    assert trace.peak_by_category["activations"] == max(n * h + n * h, n * h + n * 2) * F32
    assert trace.peak_bytes == before + 2 * n * h * F32
    assert trace.peak_new_bytes == 2 * n * h * F32


def test_trace_of_arithmetic_matches_a_hand_count():
    n = 1000

    def chain():
        a = torch.ones(n)  # n
        b = a + 1  # 2n
        del a  # n
        c = b * b  # 2n
        c.add_(1)
        d = c[::2]  # a view: nothing
        return d.clone()  # 2.5 n

    trace = trace_memory(chain)
    assert trace.timeline()["other"].tolist() == [k * n * F32 // 2 for k in (2, 4, 2, 4, 5, *trailing(trace, n))]
    assert trace.peak_bytes == 5 * n * F32 // 2
    assert [t.bytes for t in trace.peak_tensors] == [n * F32, n * F32, n * F32 // 2]


def trailing(trace: MemoryTrace, n: int) -> list[int]:
    """Return the memory at the end, as the frames drop b and c in no fixed order, and then the result."""
    return [int(x) * 2 // (n * F32) for x in trace.timeline()["other"][5:]]


def test_trace_ends_with_nothing_alive():
    trace = trace_memory(lambda: torch.ones(10) + torch.ones(10))
    assert sum(event.bytes for event in trace.events) in (0, 40)  # the result may outlive the block by a moment
    with trace_memory() as trace:
        kept = torch.ones(10)
    assert sum(event.bytes for event in trace.events) == 40
    del kept
    assert sum(event.bytes for event in trace.events) == 40  # the trace is over


OPTIMIZERS = [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop]


@settings(max_examples=4, deadline=None)
@given(
    width=st.integers(1, 9),
    hidden=st.integers(1, 9),
    blocks=st.integers(1, 3),
    batch=st.integers(1, 5),
    optimizer=st.sampled_from(OPTIMIZERS),
    twice=st.booleans(),
)
def test_fake_tensors_give_the_same_stream(width, hidden, blocks, batch, optimizer, twice):
    """Trace torch alone: to follow numpy from line to line takes five times as long where tensors are fake."""

    from mlsys_labkit.memory.torch_tracer import TorchTracer  # two seconds: it imports torch's compiler

    def train() -> MemoryTrace:
        trace = MemoryTrace()
        gc.collect()
        with TorchTracer(trace):
            model = mlp(width, hidden, blocks)
            steps = optimizer(model.parameters(), lr=0.1)
            for _ in range(1 + twice):
                x = torch.ones(batch, width)
                model(x).square().mean().backward()
                steps.step()
                steps.zero_grad()
        return trace

    real = train()
    with FakeTensorMode():
        fake = train()
    assert [(e.bytes, e.category) for e in fake.events] == [(e.bytes, e.category) for e in real.events]
    assert fake.peak_bytes == real.peak_bytes
    assert fake.peak_by_category == real.peak_by_category
    assert most(real, "gradients") == most(real, "parameters") == parameter_bytes(mlp(width, hidden, blocks))


def test_fake_tensors_on_a_gpu_that_is_not_there():
    with FakeTensorMode(), trace_memory() as trace:
        a = torch.empty(8, 8, device="cuda")
        b = a @ a
        c = b.cpu()
    assert trace.devices == ("cuda:0", "cpu")
    assert trace.on("cuda").peak_bytes == 2 * 64 * F32
    assert trace.on("cpu").peak_bytes == 64 * F32
    assert trace.peak_bytes == 3 * 64 * F32
    del b, c


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_the_peak_is_that_of_torchs_own_tracker(make):
    def training():
        torch.manual_seed(0)
        model, x = mlp(32, 64, 2), torch.randn(8, 32)
        return model, make(model.parameters(), lr=0.1), x

    def step(model, optimizer, x):
        model(x).square().sum().backward()
        optimizer.step()

    things = training()
    from torch.distributed._tools.mem_tracker import MemTracker

    oracle = MemTracker()
    oracle.track_external(*things)
    with oracle:
        step(*things)
    expected = oracle.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    del things
    gc.collect()
    assert trace_memory(step, *training()).peak_bytes == expected


def test_checkpointing_holds_fewer_activations():
    model, x = mlp(64, 256, 4), torch.randn(32, 64)
    plain = trace_memory(lambda: model(x).sum().backward())

    def rematerialized():
        y = x
        for block in range(4):
            y = checkpoint(model[3 * block : 3 * block + 3], y, use_reentrant=False)
        y.sum().backward()

    lean = trace_memory(rematerialized)
    hidden, out = 32 * 256 * F32, 32 * 64 * F32
    # The last block's hidden layer before and after ReLU, beside what backward needs of the blocks before.
    assert most(plain, "activations") == 2 * hidden + 3 * (hidden + out)
    assert most(lean, "activations") <= 2 * hidden + 4 * out + 2 * F32  # the loss and its gradient


def test_inference_has_activations_but_keeps_none():
    model, x = mlp(16, 32, 3), torch.randn(4, 16)
    with torch.no_grad():
        trace = trace_memory(model, x)
    assert most(trace, "activations") == 2 * 4 * 32 * F32  # a hidden layer before and after ReLU
    assert most(trace, "gradients") == 0


def test_categories_without_modules():
    w = torch.randn(4, 4, requires_grad=True)
    x = torch.randn(2, 4)
    with trace_memory() as trace:
        hidden = x @ w
        hidden.sum().backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
    by = {t.category: t for t in trace.tensors}
    assert by["gradients"].bytes == 64
    assert by["activations"].shape in ((2, 4), ())
    assert any(t.category == "other" and t.bytes == 64 and not t.before for t in trace.tensors)  # 0.1 * grad
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    trace = trace_memory(optimizer.step)
    assert {t.category for t in trace.tensors} >= {"parameters", "gradients", "optimizer"}


def test_in_place_errors_of_autograd_are_still_raised():
    def broken():
        y = torch.ones(3, requires_grad=True) * 2
        z = y * y
        y.add_(1)
        z.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        trace_memory(broken)


def test_trace_removes_its_hooks():
    model = nn.Linear(2, 2)
    trace_memory(lambda: model(torch.ones(1, 2)).sum().backward())
    for parameter in model.parameters():
        assert not parameter._post_accumulate_grad_hooks
    from torch.optim import optimizer

    assert not optimizer._global_optimizer_pre_hooks
    assert not optimizer._global_optimizer_post_hooks


def test_trace_names_the_allocating_line():
    with trace_memory() as trace:
        big = torch.zeros(1000, 10)
        small = torch.zeros(3)
    largest = trace.peak_tensors[0]
    assert (largest.shape, largest.dtype, largest.device) == ((1000, 10), "float32", "cpu")
    assert largest.line.startswith("test_memory.py:")
    assert largest.code == "big = torch.zeros(1000, 10)"
    lines = [int(t.line.split(":")[1]) for t in trace.tensors]
    assert lines[1] == lines[0] + 1
    del big, small


def test_backward_is_charged_to_the_call_of_backward():
    model, x = nn.Linear(4, 4), torch.ones(1, 4)
    loss = model(x).sum()
    with trace_memory() as trace:
        loss.backward()
    assert {t.code for t in trace.tensors if t.category == "gradients"} == {"loss.backward()"}


def test_memory_lent_by_numpy_is_counted_once():
    with trace_memory() as trace:
        a = np.ones(1000)
        t = torch.from_numpy(a)
        t.add_(1)
    assert 8000 <= trace.peak_bytes < 8100
    del t


def test_a_resized_storage_changes_size():
    def grow():
        t = torch.ones(10)
        t.resize_(1000)
        t.fill_(0)
        return t

    trace = trace_memory(grow)
    assert trace.peak_bytes == 4000
    assert [e.bytes for e in trace.events][:3] == [40, -40, 4000]


def test_a_storage_emptied_and_filled_again_without_an_operation():
    """FSDP keeps a layer's whole weights in such a storage: empty, and full for a moment."""
    resize = torch.UntypedStorage.resize_
    whole = torch.ones(1000)
    whole.untyped_storage().resize_(0)

    def gather():
        whole.untyped_storage().resize_(4000)
        whole.fill_(1)
        whole.untyped_storage().resize_(0)
        return torch.ones(10) + 1

    trace = trace_memory(gather)
    assert trace.peak_bytes == 4000
    assert [event.bytes for event in trace.events][:2] == [4000, -4000]
    assert torch.UntypedStorage.resize_ is resize


def test_tensors_of_before_that_are_not_used_do_not_count():
    bystander = torch.ones(10_000)
    x = torch.ones(10)
    trace = trace_memory(lambda: x + 1)
    assert trace.peak_bytes == 80
    assert [t.before for t in trace.tensors] == [True, False]
    assert trace.tensors[0].line == ""
    del bystander


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from(CATEGORIES), st.booleans(), st.booleans()), max_size=12))
def test_trace_properties_agree_with_each_other(things):
    trace = MemoryTrace()
    new: dict[int, int] = {}
    all_: dict[int, int] = {
        i: size for i, (size, _, before, _) in enumerate(sorted(things, key=lambda t: not t[2])) if before
    }
    peak, peak_new = sum(all_.values()), 0
    for i, (size, category, before, dies) in enumerate(sorted(things, key=lambda t: not t[2])):
        index = trace.allocate(TracedTensor(size, "float32", (size,), "cpu", category, "", "", before))
        if not before:
            all_[i] = new[i] = size
        peak, peak_new = max(peak, sum(all_.values())), max(peak_new, sum(new.values()))
        if dies:
            trace.free(index)
            all_.pop(i), new.pop(i, None)
    assert trace.peak_bytes == peak == sum(t.bytes for t in trace.peak_tensors)
    assert trace.peak_new_bytes == peak_new
    assert sum(trace.peak_by_category.values()) == peak
    assert all(len(column) == len(trace.events) for column in trace.timeline().values())
    assert trace.on("cpu").peak_bytes == peak


def test_report_as_text_and_html():
    model = nn.Linear(1000, 1000, bias=False)
    with trace_memory() as trace:
        out = model(torch.ones(1, 1000))
    text = str(trace)
    place = f"event {trace.peak_event + 1} of {len(trace.events)}"  # numbered from 1, as in the timeline
    assert text.startswith(f"peak 4.01 MB after {place}\n")  # weights 4 MB, input and output 4 kB each
    assert "parameters" in text
    assert "float32 (1000, 1000)" in text
    html = trace._repr_html_()
    assert "<script" not in html
    assert "float32 (1000, 1000)" in html
    assert len(html) < 4096
    assert "before" in html
    empty = MemoryTrace()
    assert empty.peak_bytes == 0
    assert empty.peak_tensors == ()
    assert str(empty).startswith("peak 0 B")
    assert empty._repr_html_()
    del out


def test_user_code_is_escaped_in_html():
    trace = MemoryTrace()
    trace.allocate(TracedTensor(8, "float32", (2,), "cpu", "other", "a.py:1", "x = a<b or '<script>'"))
    assert "<script>" not in trace._repr_html_()


@pytest.mark.gpu
def test_cuda_gives_the_live_bytes_of_the_cpu_and_the_allocators_figures():
    def run(device: str) -> MemoryTrace:
        model, x = mlp(64, 128, 2).to(device), torch.ones(8, 64, device=device)
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)

        def step():
            model(x).square().mean().backward()
            optimizer.step()

        return trace_memory(step)

    cpu, cuda = run("cpu"), run("cuda")
    assert cuda.peak_bytes == cpu.peak_bytes
    assert cuda.peak_by_category == cpu.peak_by_category
    assert cuda.cuda is not None
    assert cuda.cuda["peak_allocated"] >= cuda.on("cuda").peak_bytes
