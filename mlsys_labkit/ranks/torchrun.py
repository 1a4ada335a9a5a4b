"""``labkit torchrun --nproc-per-node 4 train.py arguments``: torchrun's command line, on any machine."""

from __future__ import annotations

import argparse

from mlsys_labkit._base.arguments import count
from mlsys_labkit._base.limits import usable_cores

FAILED = 1
# Options of torchrun that one machine without a rendezvous needs no answer to.
_UNUSED = (
    *("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--max-restarts", "--monitor-interval"),
    *("--master-addr", "--master-port", "--node-rank", "--start-method", "--log-dir", "--role", "--local-addr"),
    *("--redirects", "--tee", "--local-ranks-filter", "--logs-specs", "--log-line-prefix-template", "--numa-binding"),
    *("--event-log-handler", "--signals-to-handle"),
)


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``torchrun`` to the ``labkit`` command."""
    parser = verbs.add_parser("torchrun", help="run a torch.distributed program on many ranks, with or without GPUs")
    parser.add_argument(
        "--nproc-per-node", "--nproc_per_node", "--nproc", type=_ranks, default=2, metavar="N",
        help="number of ranks, or gpu, cpu, auto: one for each GPU or core (default: 2)",
    )  # fmt: skip
    parser.add_argument(
        "--backend", choices=("auto", "local", "gloo", "nccl"), default="auto",
        help="local: ranks of one process, the same every time; gloo: a process each; nccl: a GPU each (default: auto)",
    )  # fmt: skip
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="time limit (default: 600)")
    parser.add_argument(
        "--trace", action="store_true", help="print what each rank sent, received and called at the end"
    )
    parser.add_argument("--nnodes", default="1", help=argparse.SUPPRESS)
    parser.add_argument("--standalone", action="store_true", help=argparse.SUPPRESS)
    for name in _UNUSED:
        parser.add_argument(name, name[:2] + name[2:].replace("-", "_"), help=argparse.SUPPRESS)
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module, such as package.train")
    parser.add_argument("file", help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    parser.set_defaults(run=_run)


def _ranks(text: str) -> int:
    """Return the number of ranks: a number, or torchrun's words for one rank for each GPU or core."""
    if text not in ("gpu", "cpu", "auto"):
        return count(text)
    import torch

    gpus = 0 if text == "cpu" else torch.cuda.device_count()
    if text == "gpu" and not gpus:
        raise argparse.ArgumentTypeError("torch sees no GPU here; give a number, or auto")
    return gpus or max(1, int(usable_cores()))


def _run(chosen: argparse.Namespace) -> int:
    from mlsys_labkit.errors import RanksError
    from mlsys_labkit.ranks.whole_program import run_program

    if set(chosen.nnodes.split(":")) != {"1"}:  # or a range, such as 1:1
        raise RanksError(f"--nnodes {chosen.nnodes}: all ranks run on this machine; give --nproc-per-node instead")
    try:
        run = run_program(
            chosen.file,
            chosen.nproc_per_node,
            chosen.backend,
            args=chosen.arguments,
            timeout_seconds=chosen.timeout,
            module=chosen.module,
        )
    except SyntaxError as error:
        raise RanksError(f"{error.filename}, line {error.lineno}: {error.msg}") from None
    for finding in run.trace.findings:
        print(f"labkit: {finding}")
    if chosen.trace:
        print(run.trace)
    return FAILED if run.trace.findings else 0
