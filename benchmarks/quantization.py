"""Benchmark of quantization on the tiny language model: lab 06's solution on all of the held-out text.

    python benchmarks/quantization.py

Prints perplexities beside their bars, times nothing, and writes results/quantization.json. GPTQ looks at as much text
as in its paper, 262,144 tokens, of what the model learnt from, and at none of the text that judges.

Reference: Frantar et al., "GPTQ", arXiv:2210.17323, sec. 4 (128 segments of 2,048 tokens, 1 % damping).
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from record import write_result

from mlsys_labkit import lm
from mlsys_labkit.lm import corpus

SOURCE = Path(__file__).parent.parent / "solutions/lab06_quantization/lab06_quantization.py"
WINDOW, LOOKED_AT = 512, 128 * 2048
Replacement = Callable[[str, torch.Tensor], torch.Tensor]


def solution(*names: str) -> dict[str, Any]:
    """Return the functions of the lab's solution, as its cells define them."""
    cells = re.split(r"^# %%.*$", SOURCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    home: dict[str, Any] = {"torch": torch}
    for name in names:
        exec(next(cell for cell in cells if f"\ndef {name}(" in cell), home)
    return home


class Trial:
    """The model, the evaluation text, and the calibration text."""

    def __init__(self) -> None:
        self.model, tokenizer = lm.load()
        tokens = torch.tensor(tokenizer.encode(lm.held_out()))
        self.judged = tokens[: len(tokens) // WINDOW * WINDOW]
        learnt, _ = corpus.split(corpus.documents())
        drawn = random.Random(0).sample(learnt, len(learnt))
        texts = itertools.chain.from_iterable([*tokenizer.encode(each.text[:20_000]), tokenizer.end] for each in drawn)
        self.seen = torch.tensor(list(itertools.islice(texts, LOOKED_AT))).view(-1, WINDOW)
        layers = self.model.named_modules()
        self.layers = {name: m for name, m in layers if isinstance(m, torch.nn.Linear) and name != "lm_head"}
        self.weights = {name: layer.weight.clone() for name, layer in self.layers.items()}
        self.baseline = lm.perplexity(self.model, self.judged)

    def worse_percent(self, replacement: Replacement) -> float:
        """Return the rise of the perplexity in per cent with every layer's weight replaced."""
        for name, layer in self.layers.items():
            layer.weight.data = replacement(name, self.weights[name].clone()).float()
        try:
            return 100 * (lm.perplexity(self.model, self.judged) / self.baseline - 1)
        finally:
            for name, layer in self.layers.items():
                layer.weight.data = self.weights[name].clone()

    @torch.no_grad()
    def hessians(self, names: list[str]) -> dict[str, torch.Tensor]:
        """Return XᵀX of some layers' inputs in the model's present state, in float64."""
        found = {
            name: torch.zeros(self.layers[name].in_features, self.layers[name].in_features).double() for name in names
        }

        def add(name: str) -> Callable[..., None]:
            def hook(_: Any, given: tuple[torch.Tensor, ...]) -> None:
                x = given[0].flatten(0, -2).double()
                found[name] += x.T @ x

            return hook

        handles = [self.layers[name].register_forward_pre_hook(add(name)) for name in names]
        for part in self.seen.split(8):
            self.model(part)
        for handle in handles:
            handle.remove()
        return found


def quantized_in_order(
    trial: Trial, gptq: Callable[..., Any], dequantize: Callable[..., Any], bits: int
) -> Replacement:
    """Run GPTQ as in its paper: each block sees inputs from the blocks quantized before it."""
    done: dict[str, torch.Tensor] = {}
    for block in range(trial.model.config.layers):
        prefix = f"model.layers.{block}."
        for part in (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",)):
            names = [name for name in trial.layers if name.startswith(prefix) and name.endswith(part)]
            for name, hessian in trial.hessians(names).items():
                done[name] = dequantize(*gptq(trial.weights[name], hessian, bits, 64))
                trial.layers[name].weight.data = done[name].float()
    return lambda name, _: done[name]


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    trial = Trial()
    home = solution("quantize_groups", "dequantize_groups", "gptq")
    groups, dequantize, gptq = home["quantize_groups"], home["dequantize_groups"], home["gptq"]
    looked_at = trial.hessians(list(trial.layers))

    def nearest(bits: int, group: int | None) -> Replacement:
        return lambda _, weight: dequantize(*groups(weight, bits, group or weight.shape[1]))

    def careful(bits: int) -> Replacement:
        return lambda name, weight: dequantize(*gptq(weight, looked_at[name], bits, 64))

    print(f"perplexity {trial.baseline:.3f} on {len(trial.judged):,} tokens; changes in per cent")
    result: dict[str, Any] = {"perplexity": trial.baseline, "tokens": len(trial.judged)}

    def tell(name: str, change: float, bar: str = "") -> float:
        result[name] = change
        print(f"{name:52s} {change:8.2f}   {bar}", flush=True)
        return change

    tell("int8, a scale a row", trial.worse_percent(nearest(8, None)), "bar: within 0.5")
    for bits in (4, 3):
        rounded = tell(
            f"int{bits}, groups of 64, to nearest", trial.worse_percent(nearest(bits, 64)), "bar: 1 to 15" * (bits == 4)
        )
        bar = "bar: 40" * (bits == 4)
        once = tell(f"int{bits}, groups of 64, GPTQ, inputs as they were", trial.worse_percent(careful(bits)))
        tell(f"int{bits}, of the gap won back, %", 100 * (1 - once / rounded), bar)
        ordered = trial.worse_percent(quantized_in_order(trial, gptq, dequantize, bits))
        tell(f"int{bits}, groups of 64, GPTQ, block after block", ordered)
        tell(f"int{bits}, of the gap won back, block after block, %", 100 * (1 - ordered / rounded), bar)
    write_result("quantization", result)


if __name__ == "__main__":
    main()
