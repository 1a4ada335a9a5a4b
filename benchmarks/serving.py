"""Benchmark of batching over pages on the tiny model: the engine against one request at a time, and transformers.

    python benchmarks/serving.py [--threads 1] [--rounds 3]

    alike     16 requests, all with 100 new tokens behind prompts of 20 to 100: nothing but the step counts
              at least 5 times the tokens a second of one request at a time over the contiguous cache
    trace     64 requests, prompts of 200 tokens on average and answers of 64, both with long tails, 16 at a time
              at least 2 times the tokens a second of transformers' generate, 16 a batch in the order of arrival
    decode    on a GPU, the Triton kernel at batch 32 over 4,096 tokens each: at least 85 % of a copy's bandwidth
    waste     the same lengths arriving at random, virtual time: under 4 % of the slots in used blocks unfilled

Only tokens that were asked for count; a padded batch goes on until its longest answer is done. transformers gets the
fastest of its attentions and caches, chosen in a short run, and beside the order of arrival an order that no server can
know, by length of the answer. With one thread the clock is the process's own, because others on the machine do not
show there. Each figure is the best of the rounds, in which all take turns. Prints a table and writes
results/serving.json; the exit status is the number of bars missed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from record import write_result
from triton_kernels import Copies, copy_rates, on_gpu

from mlsys_labkit import lm, serving
from mlsys_labkit.lm.checkpoint import WEIGHTS
from mlsys_labkit.serving import Engine, Limits, Request, StepCost

BATCH, BLOCK_SIZE = 16, 16
LAUNCHES = list(itertools.product((32, 64), (1, 2), (3,), (1, 2)))  # slots a tile, warps, stages, splits
Texts = dict[str, list[int]]
MODEL, TOKENIZER = lm.load()
ATTENTIONS, CACHES = ("sdpa", "eager"), ("dynamic", "static")


def alike() -> list[Request]:
    drawn = serving.request_trace(BATCH, 1.0, prompt_tokens=list(range(20, 101)), output_tokens=100)
    return [Request(each.id, each.prompt, each.max_new_tokens) for each in drawn]


def trace(rate_per_second: float = 1.0) -> tuple[Request, ...]:
    """Draw requests of 264 tokens on average, without stop tokens, so that all peers give equally many."""
    prompts = serving.log_normal(200, 0.6, least=16, most=360)
    answers = serving.log_normal(64, 0.8, least=4, most=150)
    return serving.request_trace(64, rate_per_second, prompt_tokens=prompts, output_tokens=answers)


def by_engine(requests: Sequence[Request]) -> Texts:
    limits = Limits(running=BATCH, tokens=512, reuse_prefixes=False)
    engine = Engine(MODEL, blocks=BATCH * 512 // BLOCK_SIZE, block_size=BLOCK_SIZE, limits=limits)
    texts: Texts = {request.id: [] for request in requests}
    for request in requests:
        engine.add(Request(request.id, request.prompt, request.max_new_tokens))  # all are there at once
    for output in engine.finish():
        texts[output.request_id].append(output.token)
    return texts


def one_by_one(requests: Sequence[Request]) -> Texts:
    return {each.id: list(lm.generate(MODEL, each.prompt, each.max_new_tokens)) for each in requests}


class Transformers:
    """The peer: ``generate`` of transformers on the same weights, padded on the left, 16 requests per batch."""

    def __init__(self) -> None:
        self.model = transformers.AutoModelForCausalLM.from_pretrained(str(WEIGHTS), dtype=torch.float32).eval()
        self.settings = ATTENTIONS[0], CACHES[0]

    def choose(self, requests: Sequence[Request], clock: Callable[[], float]) -> dict[str, float]:
        """Return the seconds of the fastest settings."""
        seconds = {}
        for settings in [(attention, cache) for attention in ATTENTIONS for cache in CACHES]:
            self.settings = settings
            self(requests)  # warm
            start = clock()
            self(requests)
            seconds[settings] = clock() - start
        self.settings = min(seconds, key=lambda each: seconds[each])
        return {" ".join(settings): value for settings, value in seconds.items()}

    def __call__(self, requests: Sequence[Request]) -> Texts:
        texts: Texts = {}
        self.model.set_attn_implementation(self.settings[0])
        for start in range(0, len(requests), BATCH):
            batch = requests[start : start + BATCH]
            width, new = max(len(each.prompt) for each in batch), max(each.max_new_tokens for each in batch)
            padding = [width - len(each.prompt) for each in batch]
            tokens = [[0] * pad + list(each.prompt) for pad, each in zip(padding, batch, strict=True)]
            mask = [[0] * pad + [1] * (width - pad) for pad in padding]
            cache = {"cache_implementation": self.settings[1]} if self.settings[1] == "static" else {}
            with torch.inference_mode():
                out = self.model.generate(
                    input_ids=torch.tensor(tokens), attention_mask=torch.tensor(mask), do_sample=False,
                    max_new_tokens=new, min_new_tokens=new, pad_token_id=0, **cache,
                )  # fmt: skip
            for each, row in zip(batch, out[:, width:].tolist(), strict=True):
                texts[each.id] = row[: each.max_new_tokens]
        return texts


def race(
    requests: Sequence[Request], peers: dict[str, Callable[[], Texts]], rounds: int, clock: Callable[[], float]
) -> dict[str, Any]:
    """Return tokens per second of each peer, and the number of texts equal to one request at a time."""
    best: dict[str, float] = {}
    texts: dict[str, Texts] = {}
    for _ in range(rounds):
        for name, peer in peers.items():
            start = clock()
            texts[name] = peer()
            best[name] = min(best.get(name, float("inf")), clock() - start)
    asked = sum(each.max_new_tokens for each in requests)
    for name, own in texts.items():
        assert sum(map(len, own.values())) == asked, f"{name} gave another number of tokens"
    reference = texts["one by one"]
    return {
        name: {
            "seconds": seconds,
            "tokens_per_second": asked / seconds,
            "engine_times_as_fast": seconds / best["engine"],
            "texts_equal_to_one_by_one": sum(texts[name][each.id] == reference[each.id] for each in requests),
        }
        for name, seconds in best.items()
    }


def waste() -> dict[str, Any]:
    """Run the trace on a virtual clock: 5 ms per step and 0.1 ms per token, at the rate that keeps 10 running."""
    cost = StepCost(seconds_per_step=5e-3, seconds_per_token=1e-4)
    engine = Engine(MODEL, blocks=BATCH * 512 // BLOCK_SIZE, block_size=BLOCK_SIZE, cost=cost, limits=Limits(BATCH))
    run = engine.run(trace(rate_per_second=20))
    reserved = filled = running = 0
    for step in run.steps:
        reserved += sum(map(len, step.block_tables.values())) * BLOCK_SIZE
        filled += sum(step.held_tokens.values())
        running += len(step.block_tables)
    held = [sum(step.held_tokens.values()) / len(step.held_tokens) for step in run.steps if step.held_tokens]
    return {
        "waste_percent": 100 * (1 - filled / reserved),
        "waste_percent_of_contiguous": 100 * (1 - filled / (running * MODEL.config.context)),
        "mean_running": running / len(run.steps),
        "mean_held_tokens": sum(held) / len(held),
        "steps": len(run.steps),
    }


def decode_on_gpu(
    place: str = "cuda",
    clock: Callable[..., Any] = on_gpu,
    length: int = 4096,
    shape: tuple[int, int, int, int] = (32, 32, 8, 128),
    launches: Sequence[tuple[int, ...]] = LAUNCHES,
    copies: Copies = copy_rates,
) -> dict[str, Any]:
    """Measure bytes of keys and values per second, in the shapes of an 8-billion-parameter Llama, and of copies."""
    from mlsys_labkit.serving.decode_kernel import decode

    batch, heads, kv_heads, width = shape
    torch.manual_seed(0)
    blocks = batch * length // BLOCK_SIZE
    page = torch.randn(blocks, 2 * kv_heads, BLOCK_SIZE, width, device=place).bfloat16()
    tables = torch.randperm(blocks).view(batch, -1).to(place)
    lengths = torch.full((batch,), length, device=place)
    queries = torch.randn(batch, heads, width, device=place).bfloat16()
    own = page[tables[0]].transpose(0, 1).flatten(1, 2)  # what one sequence attends to, gathered
    keys, values = (part.float().repeat_interleave(heads // kv_heads, 0) for part in own.split(kv_heads))
    expected = torch.nn.functional.scaled_dot_product_attention(queries[0].float()[:, None], keys, values).flatten()
    rates = copies(page.nbytes)
    figures: dict[str, Any] = {"copy_gb_per_s": max(rates.values()), "copies": rates, "configurations": {}}
    for tile, warps, stages, splits in launches:
        launch = {"TILE": tile, "num_warps": warps, "num_stages": stages}
        actual = decode(queries, page, tables, lengths, splits, **launch)
        torch.testing.assert_close(actual[0].float(), expected, rtol=2e-2, atol=2e-2)
        seconds = clock(lambda: decode(queries, page, tables, lengths, splits, **launch), "decode", 0.3).median  # noqa: B023
        figures["configurations"][f"{launch} splits={splits}"] = page.nbytes / seconds / 1e9
    figures["gb_per_s"] = max(figures["configurations"].values())
    figures["percent_of_copy"] = 100 * figures["gb_per_s"] / figures["copy_gb_per_s"]
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch, the same for all")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    theirs = Transformers()
    result: dict[str, Any] = {"threads": options.threads, "torch": torch.__version__}
    result["transformers"] = transformers.__version__
    result["transformers_settings_seconds"] = theirs.choose(alike(), clock)
    result["transformers_settings"] = " ".join(theirs.settings)
    for name, requests in (("alike", alike()), ("trace", list(trace()))):
        informed = sorted(requests, key=lambda each: each.max_new_tokens)
        peers: dict[str, Callable[[], Texts]] = {
            "engine": lambda own=requests: by_engine(own),
            "transformers": lambda own=requests: theirs(own),
            "transformers, sorted by answer": lambda own=informed: theirs(own),
            "one by one": lambda own=requests: one_by_one(own),
        }
        if name == "alike":
            del peers["transformers, sorted by answer"]
        result[name] = race(requests, peers, options.rounds, clock)
        for peer, figures in result[name].items():
            print(f"{name:8s}{peer:32s}{figures['tokens_per_second']:8.0f} tokens/s", end="")
            print(
                f"{figures['engine_times_as_fast']:8.2f}   {figures['texts_equal_to_one_by_one']} texts equal",
                flush=True,
            )
    result["waste"] = waste()
    bars = {
        "alike, one by one": (result["alike"]["one by one"]["engine_times_as_fast"], 5.0),
        "alike, transformers": (result["alike"]["transformers"]["engine_times_as_fast"], 2.0),
        "trace, transformers": (result["trace"]["transformers"]["engine_times_as_fast"], 2.0),
        "waste, %": (-result["waste"]["waste_percent"], -4.0),
    }
    result["decode_on_gpu"] = "not measured"
    if torch.version.cuda and torch.cuda.is_available():
        result["decode_on_gpu"] = decode_on_gpu()
        bars["decode, % of a copy"] = (result["decode_on_gpu"]["percent_of_copy"], 85.0)
    else:
        print("decode on a GPU         not measured: no NVIDIA GPU here")
    for name, (figure, bar) in bars.items():
        print(f"{name:24s}{abs(figure):8.2f}   bar {abs(bar):.0f}   {'held' if figure >= bar else 'MISSED'}")
    write_result("serving", result)
    return sum(figure < bar for figure, bar in bars.values())


if __name__ == "__main__":
    sys.exit(main())
