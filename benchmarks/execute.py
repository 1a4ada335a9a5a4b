"""``labkit run`` against the papermill command line, one notebook after another: the same twelve notebooks, one run.

    python benchmarks/execute.py            # three rounds of each, alternating; writes results/execute.json
    python benchmarks/execute.py --quick    # one round of four notebooks; writes nothing

The notebooks are copies of the labs' solutions where the checkout has labs, in turn until there are twelve, else
generated ones that import numpy and torch and compute for a few seconds. Bars: at least 3x on 4 cores, each lab under
2 GiB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from record import write_result

from mlsys_labkit._base.limits import usable_cores

RATIO_BAR = 3.0
PEAK_BAR_BYTES = 2 * 2**30
COUNT = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="four notebooks, one round, no result file")
    parser.add_argument("--generated", action="store_true", help="generated notebooks even where there are labs")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    count, rounds = (4, 1) if arguments.quick else (COUNT, arguments.rounds)
    with tempfile.TemporaryDirectory(prefix="execute-") as name:
        folder = Path(name)
        kind = make_notebooks(folder / "set", count, labs=not arguments.generated)
        record = measure(folder, rounds, count)
    record = {"notebooks": count, "kind": kind, **record}
    report(record)
    if not arguments.quick:
        write_result("execute", record)
    return 0 if record["ratio"] >= RATIO_BAR and record["largest_peak_bytes"] < PEAK_BAR_BYTES else 1


def measure(folder: Path, rounds: int, count: int) -> dict[str, Any]:
    """Time both programs in turn, because a machine's speed drifts; the ratio is the median of the rounds' ratios."""
    ours, theirs, peaks = [], [], {}
    for number in range(rounds):
        order = [("labkit", ours), ("papermill", theirs)]
        for who, seconds in order if number % 2 == 0 else reversed(order):
            started = time.perf_counter()
            if who == "labkit":
                peaks = run_labkit(folder)
            else:
                run_papermill(folder)
            seconds.append(time.perf_counter() - started)
            print(f"round {number + 1} of {rounds}: {who:<9} {seconds[-1]:7.1f} s for {count} notebooks", flush=True)
    return {
        "ratio": statistics.median(b / a for a, b in zip(ours, theirs, strict=True)),
        "labkit_seconds": ours,
        "papermill_seconds": theirs,
        "largest_peak_bytes": max(peaks.values()),
        "peak_bytes": peaks,
        "order": "alternating, labkit first",
    }


def run_labkit(folder: Path) -> dict[str, int]:
    """Run ``labkit run`` with its report, without the roofline, for which papermill has no counterpart."""
    out = folder / "report"
    command = [tool("labkit"), "run", "--notebooks", str(folder / "set"), "--out", str(out), "--no-roofline"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    notebooks = json.loads((out / "report.json").read_text("utf-8"))["notebooks"]
    return {notebook["name"]: notebook["peak_bytes"] for notebook in notebooks}


def run_papermill(folder: Path) -> None:
    """Run the notebooks with papermill one after the other, with its default of one thread per core."""
    (folder / "executed").mkdir(exist_ok=True)
    for notebook in sorted((folder / "set").glob("*.ipynb")):
        command = [tool("papermill"), "--no-progress-bar", str(notebook), str(folder / "executed" / notebook.name)]
        subprocess.run([*command, "--cwd", str(folder / "set")], check=True, stderr=subprocess.DEVNULL)


def tool(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name


def make_notebooks(folder: Path, count: int, labs: bool) -> str:
    """Write the notebooks into ``folder``, and return a description of them."""
    folder.mkdir()
    sources = lab_notebooks() if labs else {}
    names = sorted(sources)
    for number in range(count):
        if names:
            name = names[number % len(names)]
            nbformat.write(sources[name], folder / f"{number:02d}_{name}.ipynb")
        else:
            nbformat.write(generated(number), folder / f"{number:02d}_generated.ipynb")
    return f"solutions of {', '.join(names)}, in turn" if names else "generated: numpy, torch, a few seconds of cells"


def lab_notebooks() -> dict[str, Any]:
    """Return the labs' solutions by name; an empty mapping outside a checkout."""
    import jupytext

    from mlsys_grading.lab import find_root, read_labs
    from mlsys_labkit.errors import LabkitError

    try:
        return {lab.name: jupytext.read(lab.path, fmt="py:percent") for lab in read_labs(find_root())}
    except LabkitError:
        return {}


def generated(number: int) -> Any:
    """Build a notebook like a lab's: imports, many small cells, a few that compute for a moment, text between them."""
    cells = [
        nbformat.v4.new_markdown_cell(f"# Generated lab {number}"),
        nbformat.v4.new_code_cell("smoke = False\nseed = 0", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("import numpy as np\nimport torch\nrng = np.random.default_rng(seed)"),
    ]
    for step in range(12):
        cells += [
            nbformat.v4.new_markdown_cell(f"## Step {step}\nThe intensity is $I = 2 n^3 / (3 n^2 \\cdot 4)$."),
            nbformat.v4.new_code_cell(f"x = rng.normal(size=(400, 400))\nprint(np.linalg.norm(x), {step})"),
            nbformat.v4.new_code_cell("s = sum(i * i for i in range(600_000))\nassert s > 0"),
            nbformat.v4.new_code_cell(
                "t = torch.from_numpy(x)\nassert torch.allclose(t @ torch.eye(400, dtype=t.dtype), t)"
            ),
        ]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def report(record: dict[str, Any]) -> None:
    ratio, peak = record["ratio"], record["largest_peak_bytes"]
    print(f"{record['notebooks']} notebooks ({record['kind']}) on {usable_cores():g} cores")
    print(f"labkit run is {ratio:.2f}x as fast as papermill one after another (bar: {RATIO_BAR:g}x on 4 cores)")
    for name, size in record["peak_bytes"].items():
        print(f"  {name:<32} peak {size / 2**20:7.0f} MiB")
    print(f"largest peak {peak / 2**20:.0f} MiB (bar: under {PEAK_BAR_BYTES / 2**20:.0f} MiB)")


if __name__ == "__main__":
    sys.exit(main())
