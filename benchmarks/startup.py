"""Time until the kit is usable: its import, and the command's help.

    python benchmarks/startup.py [--runs 15]

Prints a table and writes results/startup.json. Each figure is a whole process; the pairs alternate.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from record import write_result


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    base, kit = [sys.executable, "-c", "import numpy"], [sys.executable, "-c", "import numpy, mlsys_labkit"]
    help_ = [str(Path(sys.executable).parent / "labkit"), "--help"]
    for command in (base, kit, help_):
        seconds(command)  # the first run reads the files from disk
    pairs = [(seconds(base), seconds(kit)) for _ in range(runs)]
    result = {
        "runs": runs,
        "import_numpy_ms": median(a for a, _ in pairs) * 1e3,
        "import_mlsys_labkit_beyond_numpy_ms": median(b - a for a, b in pairs) * 1e3,
        "labkit_help_ms": median(seconds(help_) for _ in range(runs)) * 1e3,
    }
    for name, value in result.items():
        print(f"{name:<40}{value:10.1f}")
    write_result("startup", result)


if __name__ == "__main__":
    main()
