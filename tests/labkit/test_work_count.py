"""The counters against closed formulas, published numbers, each other, and FLOPs of torch's own counter."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mlsys_labkit.work import UncountedWarning, WorkError, count_work, counting_work

torch = pytest.importorskip("torch")
F = torch.nn.functional
sizes = st.integers(1, 9)


@pytest.fixture(autouse=True)
def _no_operation_goes_uncounted():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncountedWarning)
        yield


def amounts(work):
    return int(work.flops), int(work.bytes_read), int(work.bytes_written), work.dtype


def array(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


# --- formulas -------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(sizes, sizes, sizes, st.sampled_from([np.float32, np.float64]))
def test_matmul_is_2mnk_and_reads_each_operand_once(m, n, k, dtype):
    a, b = array(m, k, dtype=dtype), array(k, n, dtype=dtype, seed=1)
    item = a.itemsize
    expected = (2 * m * n * k, (m * k + k * n) * item, m * n * item, np.dtype(dtype).name)
    products = [np.matmul, np.dot, lambda x, y: x @ y, lambda x, y: x.dot(y), lambda x, y: np.einsum("ij,jk", x, y)]
    products.append(lambda x, y: np.tensordot(x, y, 1))
    for product in products:
        assert amounts(count_work(product, a, b)) == expected
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    products = [torch.mm, torch.matmul]
    if k > 1:  # torch's einsum multiplies elementwise when there is nothing to sum over
        products.append(lambda x, y: torch.einsum("ij,jk", x, y))
    for product in products:
        assert amounts(count_work(product, ta, tb)) == expected


def test_a_transformer_forward_is_the_published_24bsd2_plus_4bs2d():
    """Narayanan et al., "Efficient large-scale language model training", arXiv:2104.04473, appendix: per layer forward
    24·B·s·h² + 4·B·s²·h for the matrix products."""
    b, s, h, heads = 2, 16, 32, 4
    qkv, proj = torch.nn.Linear(h, 3 * h, bias=False), torch.nn.Linear(h, h, bias=False)
    up, down = torch.nn.Linear(h, 4 * h, bias=False), torch.nn.Linear(4 * h, h, bias=False)

    def layer(x):
        q, k, v = qkv(x).view(b, s, 3, heads, h // heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, h)
        return down(up(proj(attended)))

    assert count_work(layer, torch.randn(b, s, h)).flops == 24 * b * s * h * h + 4 * b * s * s * h


def test_resnet50_is_the_published_4_1_billion_multiply_adds():
    """He et al., arXiv:1512.03385, table 1: 3.8e9 with its strides; 4.09e9 with the stride on the 3x3 (torchvision)."""

    class Bottleneck(torch.nn.Module):
        def __init__(self, inside, width, stride):
            super().__init__()
            conv = torch.nn.Conv2d
            self.convs = torch.nn.Sequential(
                conv(inside, width, 1, bias=False),
                conv(width, width, 3, stride, 1, bias=False),
                conv(width, 4 * width, 1, bias=False),
            )
            fits = stride == 1 and inside == 4 * width
            self.skip = torch.nn.Identity() if fits else conv(inside, 4 * width, 1, stride, bias=False)

        def forward(self, x):
            return self.convs(x) + self.skip(x)

    with torch.device("meta"):
        layers, inside = [torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.MaxPool2d(3, 2, 1)], 64
        for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for index in range(depth):
                layers.append(Bottleneck(inside, width, stride if index == 0 else 1))
                inside = 4 * width
        model = torch.nn.Sequential(
            *layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(2048, 1000)
        )
        work = count_work(model, torch.empty(1, 3, 224, 224))
    assert work.flops / 2 == pytest.approx(4.09e9, rel=0.01)


def test_linear_with_bias_counts_the_bias():
    m, k, n = 5, 8, 4
    work = count_work(torch.nn.Linear(k, n), torch.randn(m, k))
    assert amounts(work) == (2 * m * k * n + m * n, 4 * (m * k + k * n + n), 4 * m * n, "float32")


def test_backward_of_a_linear_layer_is_twice_its_forward():
    m, k, n = 5, 8, 4
    layer, x = torch.nn.Linear(k, n, bias=False), torch.randn(m, k, requires_grad=True)
    out = layer(x)
    with counting_work() as counter:
        out.backward(torch.randn(m, n))
    assert counter.work.flops == 2 * (2 * m * k * n)


@pytest.mark.parametrize("context", ["eager", "no_grad", "inference"])
def test_matmul_flops_equal_torchs_own_counter(context):
    from torch.utils.flop_counter import FlopCounterMode

    scope = {"eager": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}[context]
    a, b = torch.randn(3, 4, 5), torch.randn(3, 5, 6)
    with scope():
        with FlopCounterMode(display=False) as theirs:
            torch.matmul(a, b)
        assert count_work(torch.matmul, a, b).flops == theirs.get_total_flops() == 2 * 3 * 4 * 5 * 6


# --- numpy and torch agree ------------------------------------------------------------------------------------------


def softmax_numpy(x, y):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def softmax_torch(x, y):
    e = torch.exp(x - torch.amax(x, dim=1, keepdim=True))
    return e / e.sum(dim=1, keepdim=True)


def in_place(x, y):
    x += y
    x[0] *= 3
    x[:, 0] = y[:, 0]
    return x


BOTH = {
    "dot": (lambda x, y: (x * y).sum(),) * 2,
    "mv": (lambda x, y: x @ y[0],) * 2,
    "mm": (lambda x, y: x @ y.T,) * 2,
    "axpy": (lambda x, y: 3 * x + y,) * 2,
    "square": (lambda x, y: x * x,) * 2,
    "outer": (lambda x, y: x[:, None] * y[:, :, None],) * 2,
    "broadcast row": (lambda x, y: x + y[0],) * 2,
    "differences": (lambda x, y: x[1:] - x[:-1],) * 2,
    "in place": (in_place, in_place),
    "mean": (lambda x, y: x.mean(0),) * 2,
    "centre": (lambda x, y: x - x.mean(0),) * 2,
    "softmax": (softmax_numpy, softmax_torch),
    "relu": (lambda x, y: np.maximum(x, y), lambda x, y: torch.maximum(x, y)),
    "compare and select": (lambda x, y: np.where(x > y, x, y), lambda x, y: torch.where(x > y, x, y)),
    "transcendental": (lambda x, y: np.tanh(np.exp(x)), lambda x, y: torch.tanh(torch.exp(x))),
    "gather": (lambda x, y: x[np.array([0, 0])], lambda x, y: x[torch.tensor([0, 0])]),
    "transpose and copy": (lambda x, y: x.T.copy(), lambda x, y: x.T.contiguous()),
    "concatenate": (lambda x, y: np.concatenate([x, y]), lambda x, y: torch.cat([x, y])),
    "einsum": (lambda x, y: np.einsum("ij,ij->i", x, y), lambda x, y: torch.einsum("ij,ij->i", x, y)),
    "variance": (lambda x, y: x.var(0), lambda x, y: x.var(0, correction=0)),
    "norm": (lambda x, y: np.linalg.norm(x), lambda x, y: torch.linalg.vector_norm(x)),
    "svd": (lambda x, y: np.linalg.svd(x), lambda x, y: torch.linalg.svd(x)),
    "cumsum": (lambda x, y: np.cumsum(x, 0), lambda x, y: torch.cumsum(x, 0)),
    "new memory": (lambda x, y: np.zeros_like(x), lambda x, y: torch.zeros_like(x)),
}


@pytest.mark.parametrize("name", BOTH)
@given(rows=st.integers(2, 7), columns=st.integers(2, 7), dtype=st.sampled_from([np.float32, np.float64]))
@settings(max_examples=15, deadline=None)
def test_the_same_code_has_the_same_work_in_numpy_and_torch(name, rows, columns, dtype):
    in_numpy, in_torch = BOTH[name]
    x, y = array(rows, columns, dtype=dtype), array(rows, columns, dtype=dtype, seed=1)
    tx, ty = torch.from_numpy(x.copy()), torch.from_numpy(y.copy())
    left, right = amounts(count_work(in_numpy, x, y)), amounts(count_work(in_torch, tx, ty))
    if name == "gather":  # the index itself is made and read: int64 in both, but torch.tensor's fill is not dispatched
        left, right = left[:2], right[:2]
    assert left == right


# --- bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_views_are_free_and_expanded_operands_read_their_distinct_elements(kind):
    x = array(6, 8) if kind == "numpy" else torch.randn(6, 8)
    assert count_work(lambda v: v.T[2:, ::2][None], x).bytes_moved == 0
    work = count_work(lambda v: v.T, x)
    assert work.bytes_moved == 0
    expand = (lambda v: np.broadcast_to(v[:1], (100, 8))) if kind == "numpy" else (lambda v: v[:1].expand(100, 8))
    work = count_work(lambda v: expand(v) * 2, x)
    assert (work.bytes_read, work.bytes_written) == (8 * 4, 800 * 4)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_overlapping_operands_read_no_more_than_the_memory_there_is(kind):
    x = array(10) if kind == "numpy" else torch.randn(10)
    assert count_work(lambda v: v[1:] - v[:-1], x).bytes_read == 10 * 4
    assert count_work(lambda v: v[:3] * v[5:8], x).bytes_read == 6 * 4


def test_an_embedding_reads_its_rows_and_not_the_table():
    table, indices = torch.nn.Embedding(1000, 16), torch.tensor([3, 3, 999])
    work = count_work(table, indices)
    assert (work.bytes_read, work.bytes_written, work.flops) == (3 * 16 * 4 + 3 * 8, 3 * 16 * 4, 0)


def test_writing_one_row_writes_one_row():
    cache, row = torch.zeros(1000, 16), torch.randn(1, 16)
    work = count_work(lambda c, r: c.index_copy_(0, torch.tensor([7]), r), cache, row)
    assert (work.bytes_written, work.bytes_read) == (16 * 4, 16 * 4 + 8)  # the row; the row and its index


def test_half_precision_moves_half_the_bytes_and_names_its_dtype():
    a = torch.randn(16, 16)
    full, half = count_work(torch.mm, a, a.clone()), count_work(torch.mm, a.bfloat16(), a.bfloat16())
    assert half.dtype == "bfloat16"
    assert half.bytes_moved * 2 == full.bytes_moved


def test_dtype_is_that_of_most_flops():
    a, b = torch.randn(16, 16).bfloat16(), torch.randn(16, 16).bfloat16()
    assert count_work(lambda: (a.float() + 1).sum() + (a @ b).sum()).dtype == "bfloat16"


# --- fake tensors ---------------------------------------------------------------------------------------------------


def test_fake_and_meta_tensors_have_the_work_of_real_ones():
    from torch._subclasses.fake_tensor import FakeTensorMode

    def train():
        model = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)
        )
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.randn(8, 16)
        with counting_work() as counter:
            model(x).square().mean().backward()
            optimizer.step()
        return counter.work

    real = train()
    with FakeTensorMode():
        fake = train()
    assert real.flops == fake.flops > 0
    assert real.bytes_moved == fake.bytes_moved > 0


# --- element by element ---------------------------------------------------------------------------------------------


def dot_loop(x, y):
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


def matmul_loop(a, b):
    c = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] += a[i, k] * b[k, j]
    return c


@settings(deadline=None)
@given(sizes)
def test_a_loop_reads_each_element_when_it_is_used(n):
    x, y = array(n), array(n, seed=1)
    assert amounts(count_work(dot_loop, x, y))[:3] == (2 * n, 2 * n * 4, 0)
    assert dot_loop(x, y) == pytest.approx(float(np.dot(x, y)), rel=1e-4, abs=1e-4)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
@settings(deadline=None)
def test_a_matmul_loop_moves_four_words_a_multiply_add(m, n, k):
    work = count_work(matmul_loop, array(m, k), array(k, n))
    assert work.flops == 2 * m * n * k
    assert work.bytes_read == 3 * m * n * k * 4
    assert work.bytes_written == m * n * k * 4 + m * n * 4  # np.zeros wrote once as well


def test_counted_code_computes_what_it_computes_without_counting():
    a, b = array(3, 4), array(4, 5)
    with counting_work() as counter:
        ours = matmul_loop(counter.wrap(a), counter.wrap(b))
    np.testing.assert_allclose(np.asarray(ours), a @ b, rtol=1e-5)
    assert np.zeros(3).__class__ is np.ndarray, "numpy must be as it was"


def test_a_value_read_from_an_array_behaves_as_a_number():
    def probe(x):
        first = x[0]
        same = first
        same += 1
        assert first == 5.0, "+= on a value must not change the value it came from"
        assert x[0] == 5.0
        assert {first: "a"}[5.0] == "a"
        assert f"{first:.1f}" == "5.0"
        assert [10, 20][np.array([1])[0]] == 20
        return max(first, 2.0)

    count_work(probe, np.array([5.0, 6.0]))


def test_in_place_functions_change_the_callers_array():
    x = np.zeros(3)
    count_work(lambda v: np.add(v, 1, out=v), x)
    assert x.tolist() == [1, 1, 1]


def test_nothing_is_counted_after_the_block():
    with counting_work() as counter:
        x = counter.wrap(np.ones(4))
    _ = x + x
    assert counter.work.flops == 0


def test_numpys_inner_steps_are_not_counted_twice():
    d, n = 3, 10
    assert count_work(np.cov, array(d, n)).flops == 2 * d * n + d + 2 * d * d * n + d * d


# --- refusals -------------------------------------------------------------------------------------------------------


def test_multi_dot_counts_the_products_in_the_order_it_chose():
    x, a, b = array(4, 512), array(512, 8), array(8, 768)
    work = count_work(np.linalg.multi_dot, [x, a, b])
    assert work.flops == 2 * 4 * 8 * (512 + 768)  # a b first would take 2 * 512 * 768 * (8 + 4)
    assert work == dataclasses.replace(count_work(lambda x, a, b: x.dot(a).dot(b), x, a, b), name=work.name)


def test_an_operation_without_a_rule_warns_and_leaves_flops_unproven():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work = count_work(np.linalg.matrix_power, np.eye(3), 3)
    assert any(issubclass(warning.category, UncountedWarning) for warning in caught)
    assert "flops" not in work.how
    assert work.how["bytes_read"] == "counted"


def test_complex_numbers_are_refused():
    with pytest.raises(WorkError, match="complex"):
        count_work(lambda x: x * 2, np.ones(3, dtype=np.complex128))


def test_count_work_refuses_a_result_instead_of_a_function():
    with pytest.raises(WorkError, match=r"pass fn, not fn\(...\)"):
        count_work(np.ones(3))


def test_counting_work_refuses_reads_inside_the_block():
    with counting_work() as counter, pytest.raises(WorkError, match="after the with block"):
        _ = counter.work


def test_an_error_inside_passes_through_and_numpy_is_restored():
    with pytest.raises(ZeroDivisionError):
        count_work(lambda: 1 / 0)
    assert type(np.array([1])) is np.ndarray


def test_first_use_of_numpy_random_counts_no_import() -> None:
    """In a new interpreter, because numpy imports numpy.random once, when something asks for it."""
    code = (
        "import numpy as np; from mlsys_labkit.work import count_work; "
        "print(int(count_work(lambda x: x + 1 if np.random else x, np.ones(4)).bytes_moved))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "64"
