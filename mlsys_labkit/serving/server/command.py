"""``labkit serve``: the command, its options, and the model and cache that they describe."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlsys_labkit._base.arguments import count
from mlsys_labkit.errors import LabkitError, require
from mlsys_labkit.serving.server.load import KEY_VARIABLE

if TYPE_CHECKING:
    from mlsys_labkit.serving.engine import Engine
    from mlsys_labkit.serving.server.job import Served

TINY = "mlsys-tiny"
LEAKED = 1
DEFAULT_CACHE_BYTES = 256 << 20
LEAST_STEP_TOKENS = 512
GUESSES = 4
_DTYPES = ("float32", "bfloat16", "float16")
_UNITS = {"": 1, "B": 1} | {
    prefix + unit: base**power for power, prefix in enumerate("kMGT", 1) for unit, base in (("B", 1000), ("iB", 1024))
}


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``serve`` to the ``labkit`` command."""
    parser = verbs.add_parser("serve", help="serve a language model over HTTP with OpenAI's completions API")
    parser.add_argument("model", nargs="?", help="folder of a Llama checkpoint; without one, the kit's own tiny model")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1, this machine only)"
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="port (default: 8000); 0 chooses a free port and prints it"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--blocks", type=count, metavar="N", help="blocks of the key-value cache")
    size.add_argument("--memory", type=_size, metavar="1GiB", help="size of the key-value cache (default: 256MiB)")
    parser.add_argument("--block-size", type=count, default=16, metavar="TOKENS", help="tokens per block (default: 16)")
    parser.add_argument(
        "--max-batch", type=count, default=16, metavar="N", help="sequences per batch, at most (default: 16)"
    )
    parser.add_argument(
        "--dtype", choices=_DTYPES, default="float32", help="format of weights and cache (default: float32)"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (cpu)")
    parser.add_argument(
        "--threads", type=count, metavar="N", help="CPU threads per step (default: by the size of the model)"
    )
    parser.add_argument("--speculate", choices=("ngram",), help="propose tokens from the text so far, and verify them")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="record every step, and write the record to FILE at the end"
    )
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        help=f"serve only clients that send this key; better in the variable {KEY_VARIABLE}, since other users of the "
        "machine can read a command's options",
    )
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    require("tornado", "labs")
    require("prometheus_client", "labs")
    require("torch", "torch")
    from mlsys_labkit.serving.server.run import allow_open_files, bind, is_loopback

    if chosen.record and not chosen.record.absolute().parent.is_dir():
        raise LabkitError(f"--record: there is no folder {chosen.record.absolute().parent}; make it first")
    key = chosen.api_key if chosen.api_key is not None else os.environ.pop(KEY_VARIABLE, None)
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
        raise LabkitError("an API key is one line of ASCII letters, without blanks at its ends; choose another")
    allow_open_files()
    sockets = bind(chosen.host, chosen.port)  # first, since a model takes longer to load than a port to be taken
    try:
        engine, served, told = _load(chosen)
        host, port = chosen.host, sockets[0].getsockname()[1]
        print(f"labkit: {told}", flush=True)
        if not is_loopback(host) and not key:
            print(f"labkit: warning: {host} can be reached from other machines, and there is no --api-key", flush=True)
        print(f"labkit: ready at http://{f'[{host}]' if ':' in host else host}:{port}/v1 (Ctrl-C ends it)", flush=True)
        asyncio.run(_serve(engine, served, sockets, key))
    finally:
        for each in sockets:
            each.close()
    if chosen.record:
        recording = engine.recording
        recording.save(chosen.record)
        print(f"labkit: {len(recording.steps)} steps are kept in {chosen.record}", flush=True)
    kept = engine.pool.size - engine.pool.free
    print(f"labkit: ended; {kept or 'no'} blocks are left in use", flush=True)
    return LEAKED if kept else 0


async def _serve(engine: Engine, served: Served, sockets: list[socket.socket], key: str | None) -> None:
    from mlsys_labkit.serving.server.run import DRAIN_SECONDS, Stop, serve, stop_on_signals

    stop = Stop()
    restore = stop_on_signals(stop)

    async def tell() -> None:
        await stop.asked.wait()
        print(f"labkit: finishing what runs, for {DRAIN_SECONDS:g} s at most; once more ends it now", flush=True)

    telling = asyncio.ensure_future(tell())
    try:
        await serve(engine, served, sockets, stop, key)
    finally:
        telling.cancel()
        restore()


def _load(chosen: argparse.Namespace) -> tuple[Engine, Served, str]:
    import torch

    from mlsys_labkit import lm
    from mlsys_labkit._base.units import si
    from mlsys_labkit.lm.checkpoint import end_tokens
    from mlsys_labkit.serving.engine import Engine
    from mlsys_labkit.serving.scheduler import Limits
    from mlsys_labkit.serving.server.job import Served
    from mlsys_labkit.serving.server.template import TemplateProcess, find_template
    from mlsys_labkit.serving.speculative import NgramDraft

    dtype: torch.dtype = getattr(torch, chosen.dtype)
    device = _device(chosen.device)
    folder = Path(chosen.model).expanduser().resolve() if chosen.model else None
    if folder and not folder.is_dir():
        raise LabkitError(
            f"there is no folder {chosen.model}; name one with config.json, *.safetensors, tokenizer.json"
        )
    model, codec = lm.load(folder, dtype=dtype, device=device)
    config, name = model.config, folder.name if folder else TINY
    block_bytes = config.cache_bytes_per_token(dtype.itemsize) * chosen.block_size
    blocks = chosen.blocks or _blocks(chosen.memory, block_bytes, -(-config.context // chosen.block_size))
    _check_memory(blocks * block_bytes, device.type)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)  # an engine only ever lowers the number
    draft = NgramDraft(GUESSES) if chosen.speculate else None
    step_tokens = max(LEAST_STEP_TOKENS, chosen.max_batch * (1 + (GUESSES if draft else 0)))
    engine = Engine(
        model,
        blocks=blocks,
        block_size=chosen.block_size,
        limits=Limits(running=chosen.max_batch, tokens=step_tokens),
        draft=draft,
        threads=chosen.threads,
        record=chosen.record is not None,
    )
    told = (
        f"{name}, {si(config.parameters, 'parameters')}, {chosen.dtype} on {device}; cache of "
        f"{blocks * chosen.block_size:,} tokens ({blocks:,} blocks of {chosen.block_size}, "
        f"{si(blocks * block_bytes, 'B')}), batches of up to {chosen.max_batch}"
        + (f", CPU threads: {min(engine.threads, torch.get_num_threads())}" if engine.threads else "")
    )
    served = Served(name, codec, config.context, config.vocabulary, slots=blocks * chosen.block_size)
    if folder:
        served = replace(served, ends=end_tokens(folder, codec))
        if template := find_template(folder):
            require("jinja2", "labs")
            served = replace(served, template=TemplateProcess(template))
            told += "; with the folder's chat template"
    return engine, served, told


def _blocks(memory_bytes: int | None, block_bytes: int, context_blocks: int) -> int:
    if memory_bytes is None:
        return max(context_blocks, DEFAULT_CACHE_BYTES // block_bytes)
    if memory_bytes < block_bytes:
        raise LabkitError(f"--memory {memory_bytes} bytes hold no block of {block_bytes} bytes; give more")
    return memory_bytes // block_bytes


def _check_memory(wanted_bytes: int, device: str) -> None:
    from mlsys_labkit._base.limits import memory_free_bytes
    from mlsys_labkit._base.units import si

    free = memory_free_bytes() if device == "cpu" else None
    if free is not None and wanted_bytes > free:
        raise LabkitError(
            f"the cache would take {si(wanted_bytes, 'B')} and {si(free, 'B')} are free; "
            "give fewer --blocks or less --memory"
        )


def _device(name: str) -> Any:
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise LabkitError(f"--device {name} cannot be used here ({reason}); try cpu") from None
    return device


def _size(text: str) -> int:
    """Return the bytes of "1GiB", "500 MB", "1.5GB" or "1048576"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMGT]?i?B?)", text)
    if not match or match[2] not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 1GiB, 500MB or a number of bytes")
    return int(float(match[1]) * _UNITS[match[2]])
