"""Training of the tiny language model: ``python -m mlsys_labkit.lm.train``.

The command learns a tokenizer and a model from the running Python's standard library and prints loss and remaining
time. The state is saved regularly, and a new start resumes from it. The result is a folder that ``lm.load`` reads.

Reference: Hoffmann et al., "Training Compute-Optimal Large Language Models", arXiv:2203.15556 (how long to train);
Loshchilov and Hutter, "Decoupled Weight Decay Regularization", arXiv:1711.05101.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from mlsys_labkit.lm import checkpoint, corpus
from mlsys_labkit.lm.config import Config
from mlsys_labkit.lm.model import LanguageModel
from mlsys_labkit.lm.text import nats_per_token
from mlsys_labkit.lm.tokenizer import Tokenizer

CONFIG = Config(vocabulary=2048, width=256, layers=4, heads=8, kv_heads=4, head_width=32, hidden=704)
_HELD_OUT_BYTES_A_DOCUMENT = 8_000
_EVERY = 100  # steps between a line of the log, a measurement on held-out text, a saved state


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    trained, held_out = corpus.split(corpus.documents())
    tokenizer = _tokenizer(options.out, trained)
    heard = _tokens(tokenizer, [document.text for document in trained])
    excerpt = "".join(_excerpt(document) for document in held_out)
    unheard = torch.tensor(tokenizer.encode(excerpt))
    print(
        f"{len(heard):,} tokens to learn from, {len(unheard):,} held out, {CONFIG.parameters:,} parameters", flush=True
    )

    torch.manual_seed(options.seed)
    model = _initialise(LanguageModel(CONFIG))
    optimizer = _optimizer(model)
    state = options.out / "state.pt"
    log: list[dict[str, float]] = []
    if state.is_file():
        saved = torch.load(state, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        log = saved["log"]
        print(f"going on after step {log[-1]['step']:.0f}", flush=True)
    first = int(log[-1]["step"]) if log else 0
    started = time.monotonic()
    losses: list[float] = []
    with _Interrupted() as interrupted:
        for step in range(first + 1, options.steps + 1):
            losses.append(_step(model, optimizer, heard, step, options))
            if step % _EVERY == 0 or step == options.steps or interrupted.now:
                kept = nats_per_token(model, unheard[: 16 * 512]) if step % (5 * _EVERY) == 0 else math.nan
                elapsed = time.monotonic() - started
                log.append(
                    {"step": step, "loss": float(np.mean(losses[-_EVERY:])), "held_out": kept, "seconds": elapsed}
                )
                remaining = elapsed / (step - first) * (options.steps - step)
                print(f"step {step}/{options.steps}  loss {log[-1]['loss']:.3f}  held out {kept:.3f}  "
                      f"{elapsed / 60:.1f} min, {remaining / 60:.1f} min to go", flush=True)  # fmt: skip
                _keep(state, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "log": log})
            if interrupted.now:
                print("stopped; the same command goes on from here")
                return 130
    _finish(model, tokenizer, excerpt, heard=len(heard), log=log, options=options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mlsys_labkit.lm.train", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("build/lm"), help="folder of the result and of the state on the way"
    )
    parser.add_argument("--steps", type=int, default=6000, help="updates of the weights")
    parser.add_argument("--batch", type=int, default=8, help="windows of 512 tokens an update")
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="threads of torch; 0 leaves torch's own choice")
    return parser


def _step(
    model: LanguageModel, optimizer: torch.optim.Optimizer, heard: torch.Tensor, step: int, options: argparse.Namespace
) -> float:
    """Update the weights on random windows, which depend on seed and step only: a resumed run sees the same ones."""
    generator = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
    window = model.config.context + 1
    starts = torch.randint(len(heard) - window, (options.batch,), generator=generator)
    batch = torch.stack([heard[start : start + window] for start in starts]).long()
    for group in optimizer.param_groups:
        group["lr"] = _rate(step, options)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(batch[:, :-1])
    loss = functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def _rate(step: int, options: argparse.Namespace) -> float:
    """Return the learning rate: up for the first fiftieth, then down along a cosine to a twentieth of the highest."""
    warm = max(1, options.steps // 50)
    if step < warm:
        return float(options.rate * step / warm)
    progress = (step - warm) / max(1, options.steps - warm)
    return float(options.rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))))


def _initialise(model: LanguageModel) -> LanguageModel:
    """Draw normal weights of deviation 0.02, smaller by sqrt(2·layers) where they write into the residual stream."""
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            writes = name.endswith(("o_proj.weight", "down_proj.weight"))
            torch.nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * model.config.layers) if writes else 1))
    return model


def _optimizer(model: LanguageModel) -> torch.optim.Optimizer:
    matrices = [weight for weight in model.parameters() if weight.ndim == 2]
    scales = [weight for weight in model.parameters() if weight.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": scales, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), fused=True)


def _tokenizer(out: Path, trained: list[corpus.Document]) -> Tokenizer:
    path = out / "tokenizer.json"
    if not path.is_file():
        print("learning the tokenizer ...", flush=True)
        Tokenizer.train((document.text for document in trained), CONFIG.vocabulary).save(path)
    return Tokenizer.load(path)


def _tokens(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    """Return all documents in an order shuffled once, each closed by the end token."""
    order = np.random.default_rng(0).permutation(len(texts))
    return torch.tensor(
        np.concatenate([np.array([*tokenizer.encode(texts[each]), tokenizer.end], dtype=np.int16) for each in order])
    )


def _excerpt(document: corpus.Document) -> str:
    text = document.text[:_HELD_OUT_BYTES_A_DOCUMENT]
    return text[: text.rfind("\n") + 1]


def _keep(path: Path, state: dict[str, Any]) -> None:
    partial = path.with_suffix(".part")
    torch.save(state, partial)
    partial.replace(path)


class _Interrupted:
    """A context in which Ctrl-C and SIGTERM end the run after the current step, with its state saved."""

    def __init__(self) -> None:
        self.now = False

    def __enter__(self) -> _Interrupted:
        self._before = {name: signal.signal(name, self._remember) for name in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)

    def _remember(self, *_: object) -> None:
        self.now = True


def _finish(
    model: LanguageModel, tokenizer: Tokenizer, excerpt: str, *, heard: int, log: list[Any], options: argparse.Namespace
) -> None:
    unheard = torch.tensor(tokenizer.encode(excerpt))
    model.eval()
    checkpoint.save(model, tokenizer, options.out)
    (options.out / "held_out.txt").write_text(excerpt, encoding="utf-8")
    stored, _ = checkpoint.load(options.out)  # what was saved is in bfloat16, and that is what is stated
    loss = nats_per_token(stored, unheard)
    record = {
        "held_out_nats_per_token": round(loss, 4),
        "held_out_bits_per_byte": round(loss / math.log(2) * len(unheard) / len(excerpt.encode()), 4),
        "held_out_tokens": len(unheard),
        "trained_on_tokens": heard,
        "tokens_seen": options.steps * options.batch * CONFIG.context,
        "parameters": CONFIG.parameters,
        "settings": {name: value for name, value in vars(options).items() if name != "out"},
        "config": asdict(CONFIG),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "log": [{name: None if math.isnan(value) else round(value, 4) for name, value in line.items()} for line in log],
    }
    (options.out / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(
        f"held-out loss {loss:.3f} nats a token, {record['held_out_bits_per_byte']} bits a byte; saved in {options.out}"
    )


if __name__ == "__main__":
    sys.exit(main())
