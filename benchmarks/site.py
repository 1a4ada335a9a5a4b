"""Build time of the course's site on two cores: from nothing, and after one sentence was changed.

    python benchmarks/site.py [--cores 2]

The peer in the same run is the same build with no cell executed: the time of Sphinx itself. The bars are 120 s
from nothing and 10 s after a change. Prints a table and writes results/site.json.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import write_result

ROOT = Path(__file__).resolve().parents[1]


def build(course: Path, out: Path, *options: str) -> float:
    start = time.perf_counter()
    command = [sys.executable, "-m", "sphinx", "-j", "2", "-W", "-q", "-b", "html", "-d", out / "doctrees", *options]
    subprocess.run([*command, course, out / "html"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=2)
    cores = parser.parse_args().cores
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    with tempfile.TemporaryDirectory(prefix="labkit-site-") as folder:
        place = Path(folder)
        for part in ("course", "labs"):
            shutil.copytree(ROOT / part, place / part)
        course = place / "course"
        result = {"cores": cores, "chapters": len(list(course.glob("chapters/*.md")))}
        result["from_nothing_seconds"] = build(course, place / "first")
        chapter = course / "chapters/05_roofline.md"
        chapter.write_text(
            chapter.read_text("utf-8").replace("## Takeaways", "One sentence more.\n\n## Takeaways"), "utf-8"
        )
        result["after_a_sentence_seconds"] = build(course, place / "first")
        result["without_execution_seconds"] = build(course, place / "second", "-D", "nb_execution_mode=off")
        pages = list((place / "first/html").rglob("*.html"))
        result["heaviest_page_bytes"] = max(path.stat().st_size for path in pages)
        result["site_bytes"] = sum(path.stat().st_size for path in (place / "first/html").rglob("*") if path.is_file())
    for name, value in result.items():
        print(f"{name:<32}{value:14,.1f}")
    write_result("site", result)


if __name__ == "__main__":
    main()
