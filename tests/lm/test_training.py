"""Tests of training: a stopped run resumes exactly, and the stated figures of the shipped weights are true."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path

import pytest
import torch

from mlsys_labkit import lm
from mlsys_labkit.lm import corpus, train
from mlsys_labkit.lm.checkpoint import WEIGHTS

STATED = json.loads((WEIGHTS / "training.json").read_text(encoding="utf-8"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        corpus.Document(f"help/{n}", f"line {n} of a text that repeats, repeats and repeats\n" * 40) for n in range(80)
    ]
    monkeypatch.setattr(corpus, "documents", lambda: texts)
    config = lm.Config(vocabulary=300, width=16, layers=1, heads=2, kv_heads=1, head_width=8, hidden=24, context=32)
    monkeypatch.setattr(train, "CONFIG", config)
    monkeypatch.setattr(train, "_EVERY", 2)


def test_resumed_run_equals_an_uninterrupted_one(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--steps", "8", "--batch", "2"]
    assert train.main(["--out", str(tmp_path / "unbroken"), *arguments]) == 0

    class Stopped(train._Interrupted):
        steps = 0

        @property
        def now(self) -> bool:
            Stopped.steps += 1
            return Stopped.steps >= 10

        @now.setter
        def now(self, value: bool) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(train, "_Interrupted", Stopped)
        assert train.main(["--out", str(tmp_path / "stopped"), *arguments]) == 130
    assert not (tmp_path / "stopped/model.safetensors").exists(), "nothing half-written"
    assert "goes on from here" in capsys.readouterr().out
    assert train.main(["--out", str(tmp_path / "stopped"), *arguments]) == 0
    once, twice = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("unbroken", "stopped"))
    assert once == twice
    assert lm.load(tmp_path / "stopped")[0].config == train.CONFIG


def test_training_lowers_the_loss(small: None, tmp_path: Path) -> None:
    train.main(["--out", str(tmp_path), "--steps", "60", "--batch", "4", "--rate", "0.01"])
    log = json.loads((tmp_path / "training.json").read_text())["log"]
    assert log[0]["loss"] > 5.0  # nearly ln 300 = 5.7, where it began
    assert log[-1]["loss"] < 3.5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "Ctrl-C is the notebook's again"


@pytest.mark.parametrize(
    ("windows", "within"), [(24, 0.5), pytest.param(None, 2e-3, marks=pytest.mark.soak)], ids=["a fifth", "whole"]
)
def test_stated_loss_equals_loss_of_shipped_weights(windows: int | None, within: float) -> None:
    model, tokenizer = lm.load()
    tokens = torch.tensor(tokenizer.encode(lm.held_out()))
    assert len(tokens) == STATED["held_out_tokens"]
    assert model.config.parameters == STATED["parameters"]
    loss = lm.nats_per_token(model, tokens[: windows and 512 * windows])
    assert loss == pytest.approx(STATED["held_out_nats_per_token"], abs=within)
    assert loss < math.log(2048) / 2, "far better than any token being as likely"


def test_generated_text_looks_like_python() -> None:
    model, tokenizer = lm.load()
    tokens = list(lm.generate(model, tokenizer.encode("\nclass "), 120))
    text = tokenizer.decode(tokens)
    assert "self" in text or "def " in text
    again = list(lm.generate(model, tokenizer.encode("\nclass "), 120))
    assert tokens == again


def test_sampling_follows_the_seed_and_the_distribution() -> None:
    model, tokenizer = lm.load()
    prompt = tokenizer.encode("for i in range(")
    drawn = [next(lm.generate(model, prompt, 1, temperature=1.0, seed=seed)) for seed in range(400)]
    with torch.no_grad():
        expected = model(torch.tensor([prompt]))[0, -1].softmax(-1)
    likeliest = int(expected.argmax())
    p = float(expected[likeliest])
    assert abs(drawn.count(likeliest) / 400 - p) < 5 * math.sqrt(p * (1 - p) / 400)
    best = set(expected.topk(3).indices.tolist())
    assert {next(lm.generate(model, prompt, 1, temperature=1.5, top_k=3, seed=seed)) for seed in range(100)} <= best


def test_held_out_text_was_not_trained_on() -> None:
    trained, held_out = corpus.split(corpus.documents())
    names = {document.name for document in trained}
    assert held_out
    assert not names & {document.name for document in held_out}


def test_the_shipped_files_are_small() -> None:
    assert sum(file.stat().st_size for file in Path(str(WEIGHTS)).iterdir()) < 8e6
