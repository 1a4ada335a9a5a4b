"""Wheels for a GPU machine without a network, fetched on a machine with one: ``make wheelhouse``.

    python -m benchmarks.gpu.wheelhouse [--for 3.12] [name ...]     further names, such as cuda-core

Fills build/wheelhouse with the wheels of wheels.txt, in the versions of constraints.txt, writes their checksums, and
prints whether they can travel together with the working tree. Exits with 1 where they cannot.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.carry import LIMIT, load
from benchmarks.gpu.manifest import write_manifest

ROOT = Path(__file__).resolve().parents[2]
WHEELHOUSE = ROOT / "build" / "wheelhouse"
NAMES = Path(__file__).with_name("wheels.txt")
# pip matches the version of glibc in a wheel's name exactly; the GPU machine has 2.35 or newer.
GLIBC = ("2_35", "2_34", "2_31", "2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="packages to fetch beside those of wheels.txt")
    parser.add_argument("--for", dest="version", default="3.12", help="Python of the GPU machine (default 3.12)")
    options = parser.parse_args(words)
    if not re.fullmatch(r"3\.\d+", options.version):
        print(f"wheelhouse: {options.version!r} is no version of Python; give one such as 3.12", file=sys.stderr)
        return 2
    part = WHEELHOUSE.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    fetched = subprocess.run(download(part, options.version, options.names), capture_output=True, text=True)
    if fetched.returncode:
        reason = next(
            (line for line in fetched.stderr.splitlines() if line.startswith("ERROR:")), fetched.stderr[-300:]
        )
        print(f"wheelhouse: pip could not fetch the wheels: {reason.strip()}", file=sys.stderr)
        return 1
    write_manifest(part)
    shutil.rmtree(WHEELHOUSE, ignore_errors=True)
    part.rename(WHEELHOUSE)
    whole = load(ROOT, WHEELHOUSE)
    print(f"{WHEELHOUSE.relative_to(ROOT)}: {whole}")
    if not whole.fits:
        over = (whole.tree + whole.wheels - LIMIT) / 2**20
        print(f"too large to travel by {over:.1f} MiB: take names out of {NAMES.relative_to(ROOT)}", file=sys.stderr)
        return 1
    print("They can travel together. On the GPU machine: make gpu")
    return 0


def download(to: Path, version: str, more: list[str]) -> list[str]:
    """Return the call of pip that fetches the wheels of x86-64 Linux for one version of Python."""
    platforms = [*(f"manylinux_{glibc}_x86_64" for glibc in GLIBC), "manylinux2014_x86_64", "manylinux2010_x86_64"]
    abis = (f"cp{version.replace('.', '')}", "abi3", "none")
    return [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps",
        "--only-binary=:all:", "--python-version", version, "--implementation", "cp",
        *(word for abi in abis for word in ("--abi", abi)),
        *(word for platform in [*platforms, "manylinux1_x86_64"] for word in ("--platform", platform)),
        "-c", str(ROOT / "constraints.txt"), "-d", str(to), "-r", str(NAMES), *more,
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
