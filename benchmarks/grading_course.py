"""The class that benchmarks/grading.py grades: a notebook of 24 code cells on torch, and any number of submissions.

Two locked cells (imports, a helper), then eleven tasks of a solution cell and a test cell. No two submissions are
alike: each answers every task rightly or wrongly as the bits of its number say, and signs its first answer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["LAB", "TASKS", "Task", "answers_of", "notebook", "write_course"]

LAB = "layers"
IMPORTS = "import math\n\nimport numpy as np\nimport torch"
HELPER = """\
def sample(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator)"""


@dataclass(frozen=True)
class Task:
    """One task: the right answer, a wrong one (a text to replace and its replacement), and what tests it."""

    name: str
    solution: str
    wrong: tuple[str, str]
    test: str


TASKS = (
    Task(
        "softmax",
        """\
def softmax(scores):
    shifted = scores - scores.max(dim=-1, keepdim=True).values
    weights = shifted.exp()
    return weights / weights.sum(dim=-1, keepdim=True)""",
        ("scores - scores.max(dim=-1, keepdim=True).values", "scores"),
        """\
scores = sample(64, 128)
assert torch.allclose(softmax(scores), torch.softmax(scores, -1), atol=1e-6)
assert torch.allclose(softmax(scores + 1e4).sum(-1), torch.ones(64), atol=1e-5)""",
    ),
    Task(
        "layer_norm",
        """\
def layer_norm(x, weight, bias, eps=1e-5):
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, unbiased=False, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias""",
        ("unbiased=False", "unbiased=True"),
        """\
x, weight, bias = sample(32, 16), sample(16, seed=1), sample(16, seed=2)
expected = torch.nn.functional.layer_norm(x, (16,), weight, bias)
assert torch.allclose(layer_norm(x, weight, bias), expected, atol=1e-5)""",
    ),
    Task(
        "gelu",
        """\
def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))""",
        ("math.sqrt(2)", "2"),
        """\
x = torch.linspace(-4, 4, 1001)
assert torch.allclose(gelu(x), torch.nn.functional.gelu(x), atol=1e-6)""",
    ),
    Task(
        "attention",
        """\
def attention(q, k, v, causal=False):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return torch.softmax(scores, -1) @ v""",
        ("triu(1)", "triu(0)"),
        """\
q, k, v = (sample(4, 2, 32, 16, seed=seed) for seed in range(3))
reference = torch.nn.functional.scaled_dot_product_attention
for causal in (False, True):
    assert torch.allclose(attention(q, k, v, causal), reference(q, k, v, is_causal=causal), atol=1e-5)""",
    ),
    Task(
        "rotary",
        """\
def rotary(x, positions, base=10_000.0):
    half = x.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions[:, None] * frequencies
    first, second = x[..., :half], x[..., half:]
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)""",
        ("+ second * cosine", "- second * cosine"),
        """\
x, positions = sample(24, 32), torch.arange(24.0)
turned = rotary(x, positions)
assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), atol=1e-4)
assert torch.allclose(turned[0], x[0])
dots = [float(rotary(x[:1], torch.tensor([p + 3.0]))[0] @ rotary(x[1:2], torch.tensor([p]))[0]) for p in (0.0, 9.0)]
assert abs(dots[0] - dots[1]) < 1e-3""",
    ),
    Task(
        "cross_entropy",
        """\
def cross_entropy(logits, targets):
    logs = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    return -logs[torch.arange(len(targets)), targets].mean()""",
        (".mean()", ".sum()"),
        """\
logits, targets = sample(256, 50), torch.arange(256) % 50
assert torch.allclose(cross_entropy(logits, targets), torch.nn.functional.cross_entropy(logits, targets), atol=1e-5)""",
    ),
    Task(
        "sgd",
        """\
class Momentum:
    def __init__(self, size, rate=0.1, momentum=0.9):
        self.rate, self.momentum = rate, momentum
        self.speed = torch.zeros(size)

    def step(self, weights, gradient):
        self.speed = self.momentum * self.speed + gradient
        return weights - self.rate * self.speed""",
        ("self.momentum * self.speed + gradient", "gradient"),
        """\
mine, weights = Momentum(8), sample(8)
theirs = weights.clone().requires_grad_()
optimizer = torch.optim.SGD([theirs], lr=0.1, momentum=0.9)
for step in range(10):
    gradient = sample(8, seed=step)
    weights, theirs.grad = mine.step(weights, gradient), gradient
    optimizer.step()
assert torch.allclose(weights, theirs.detach(), atol=1e-5)""",
    ),
    Task(
        "convolution",
        """\
def convolution(image, kernel):
    size = kernel.shape[0]
    windows = image.unfold(0, size, 1).unfold(1, size, 1)
    return torch.einsum("ijkl,kl->ij", windows, kernel)""",
        ("windows, kernel", "windows, kernel.flip(0, 1)"),
        """\
image, kernel = sample(40, 50), sample(3, 3, seed=1)
expected = torch.nn.functional.conv2d(image[None, None], kernel[None, None])[0, 0]
assert torch.allclose(convolution(image, kernel), expected, atol=1e-4)""",
    ),
    Task(
        "quantize",
        """\
def quantize(x, bits=8):
    top = 2 ** (bits - 1) - 1
    scale = float(x.abs().max()) / top
    return torch.clamp(torch.round(x / scale), -top, top).to(torch.int8), scale""",
        ("torch.round(x / scale)", "torch.floor(x / scale)"),
        """\
x = sample(1000)
codes, scale = quantize(x)
assert codes.dtype == torch.int8
assert float((codes.float() * scale - x).abs().max()) <= scale / 2 + 1e-6""",
    ),
    Task(
        "top_p",
        """\
def top_p(probabilities, p):
    ordered, order = probabilities.sort(descending=True)
    before = ordered.cumsum(0) - ordered
    kept = torch.zeros_like(probabilities)
    kept[order[before < p]] = ordered[before < p]
    return kept / kept.sum()""",
        ("ordered.cumsum(0) - ordered", "ordered.cumsum(0)"),
        """\
probabilities = torch.tensor([0.1, 0.5, 0.15, 0.25])
assert torch.allclose(top_p(probabilities, 0.7), torch.tensor([0.0, 2 / 3, 0.0, 1 / 3]))
assert torch.allclose(top_p(probabilities, 0.4), torch.tensor([0.0, 1.0, 0.0, 0.0]))""",
    ),
    Task(
        "train",
        """\
def train(x, y, steps=60, rate=0.3):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    losses = []
    for _ in range(steps):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= rate * weight.grad
        losses.append(float(loss.detach()))
    return losses""",
        ("weight -= rate", "weight += rate"),
        """\
x = sample(200, 2)
losses = train(x, (x[:, 0] + x[:, 1] > 0).float())
assert len(losses) == 60
assert losses[-1] < 0.5 * losses[0]""",
    ),
)


def _cell(at: int, source: str, **nbgrader: Any) -> dict[str, Any]:
    metadata = {"schema_version": 3, "grade": False, "solution": False, "locked": False, "task": False, **nbgrader}
    return {
        "cell_type": "code",
        "id": f"cell{at:02d}",
        "metadata": {"nbgrader": metadata},
        "execution_count": None,
        "outputs": [],
        "source": source,
    }


def notebook(answers: list[str] | None = None) -> dict[str, Any]:
    """Build the submission with these answers, in the order of TASKS; without any, the instructor's source."""
    solved = answers or [f"### BEGIN SOLUTION\n{task.solution}\n### END SOLUTION" for task in TASKS]
    cells = [_cell(0, IMPORTS, grade_id="imports", locked=True), _cell(1, HELPER, grade_id="sample", locked=True)]
    for task, answer in zip(TASKS, solved, strict=True):
        cells.append(_cell(len(cells), answer, grade_id=task.name, solution=True))
        graded = {"grade_id": f"{task.name}_test", "grade": True, "locked": True, "points": 2}
        cells.append(_cell(len(cells), task.test, **graded))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


def answers_of(number: int) -> list[str]:
    """Draw the answers of one student: about three in four are right, and no two students hand in the same text."""
    draw = random.Random(number)
    answers = [task.solution if draw.random() < 0.75 else task.solution.replace(*task.wrong) for task in TASKS]
    return [f"# Handed in by student {number}\n{answers[0]}", *answers[1:]]


def write_course(root: Path, students: Iterable[int]) -> None:
    """Write ``source/`` and ``submitted/`` of an nbgrader course, and the configuration that instructors use."""
    source = root / "source" / LAB
    source.mkdir(parents=True)
    (source / f"{LAB}.ipynb").write_text(json.dumps(notebook()))
    config = Path(__file__).resolve().parents[1] / "grading" / "nbgrader_config.py"
    (root / config.name).write_bytes(config.read_bytes())
    for number in students:
        folder = root / "submitted" / f"student{number:05d}" / LAB
        folder.mkdir(parents=True)
        (folder / f"{LAB}.ipynb").write_text(json.dumps(notebook(answers_of(number))))
