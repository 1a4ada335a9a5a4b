"""Command line of the campaign.

    python -m benchmarks.gpu [--budget 540] [--out build/gpu] [step | step/pattern ...]

Runs the steps in order of value until the budget of seconds is spent, and goes on there in the next call. Each case
runs in a process of its own step, which is ended if it hangs. Its outcome is written to OUT/STEP.json at once, beside
the machine, its driver and its versions. Nothing here changes a setting of the GPU.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from benchmarks.gpu.campaign import Campaign, Settings
from benchmarks.gpu.carry import load
from benchmarks.gpu.cases import ROOT
from benchmarks.gpu.machine import machine
from benchmarks.gpu.plan import STEPS, Step, chosen_steps
from benchmarks.gpu.progress import minutes

KEPT = ROOT / "build" / "gpu"


def main(words: list[str] | None = None) -> int:
    options = _parser().parse_args(words)
    try:
        steps = chosen_steps(options.steps)
        if options.dry_run:
            print(planned(steps))
            return 0
        options.out.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = Settings(
        options.out, (KEPT, *options.before), options.python, options.budget, again=options.again,
        stand_in=options.stand_in,
    )  # fmt: skip
    here = machine(options.python) | ({"gpu": "stand-in in host memory"} if options.stand_in else {})
    print(f"{here['gpu']}, driver {here['driver'] or 'none'}, torch {here.get('torch') or 'none'}, ", end="")
    print(f"triton {here.get('triton') or 'none'}, Python {here.get('python')}", flush=True)
    campaign, code = Campaign(settings, here), 0
    try:
        campaign.run(steps)
    except (ValueError, OSError) as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; outcomes so far are kept, and the next call goes on from here", flush=True)
        code = 130
    if campaign.bad:
        print(f"bad: {', '.join(campaign.bad)[:2000]}")
    print(f"to do: {' '.join(campaign.left) or 'nothing'}; results in {options.out}")
    return code


def planned(steps: tuple[Step, ...]) -> str:
    """Return the plan: each step with its limit, and the bytes to carry."""
    lines = [f"{step.name:10s} {minutes(step.seconds):>6s}  {step.answers}" for step in steps]
    whole = load(ROOT, ROOT / "build" / "wheelhouse")
    verdict = "they can travel together" if whole.fits else "too large to travel together"
    return "\n".join([*lines, f"at most {minutes(sum(step.seconds for step in steps))}", f"{whole}; {verdict}"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "steps", nargs="*", help="default: all, in this order: " + ", ".join(step.name for step in STEPS)
    )
    parser.add_argument("--budget", type=_seconds, default=540.0, help="seconds for the whole call (default 540)")
    parser.add_argument("--out", type=Path, default=KEPT, help="folder of the results (default build/gpu)")
    parser.add_argument("--before", type=Path, action="append", default=[], help="folder with results of earlier calls")
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs the cases")
    parser.add_argument("--again", action="store_true", help="run failed cases and those not measured again")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and the bytes to carry")
    parser.add_argument("--stand-in", action="store_true", help="try the campaign over a driver in host memory")
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds; give one such as 540")
    return value


if __name__ == "__main__":
    sys.exit(main())
