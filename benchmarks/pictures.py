"""The README's moving pictures, taken from the real thing in Chromium: pages, and cells in JupyterLab.

    python benchmarks/pictures.py [--site build/site] [--out course/_static] [--only NAME ...]

    roofline    a dot dragged along the roofs on the site's home page
    race        `check` names the two lines of a race, and the barrier that was missing ends it
    deadlock    four ranks that wait for each other are named, and the mended ring is drawn in time
    report      a class's marks in a lab, its hardest task, and the misconception that did it

Each is an animated WebP of less than 1 MB. `make site` builds the page first.
"""

from __future__ import annotations

import argparse
import io
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image

from mlsys_grading.lab import read_lab

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.conftest import ROOT, chromium, settle
from tests.labkit.jupyterlab import serving

MOST_BYTES = 1_000_000
STEP_SECONDS, LOOK_SECONDS = 0.08, 2.5
NOTEBOOK_WINDOW = {"width": 900, "height": 640}
GRADED_LAB, STUDENTS = "lab02_pca", 30
LABKIT = Path(sys.executable).with_name("labkit")

RACE = (
    "import numpy as np\n%load_ext mlsys_labkit\nx, out = np.ones(1024, 'f4'), np.zeros(4, 'f4')",
    """%%cuda sums
__global__ void sums(const float* x, float* out) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 256 + t];
    for (int step = 128; step > 0; step /= 2) {
        if (t < step) s[t] += s[t + step];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}""",
    "sums[4, 256](x, out)\nout                  # 256 ones are 256",
    "sums.check[4, 256](x, out)",
)
DEADLOCK = (
    "import torch, torch.distributed as dist\nimport mlsys_labkit as lk",
    """def ring(x):
    me, n = dist.get_rank(), dist.get_world_size()
    dist.send(x, (me + 1) % n)
    dist.recv(y := torch.empty_like(x), (me - 1) % n)
    return y

run = lk.ranks.run(ring, 4, args=(torch.ones(1 << 20),))""",
    """def ring(x):
    me, n = dist.get_rank(), dist.get_world_size()
    sent = dist.isend(x, (me + 1) % n)
    dist.recv(y := torch.empty_like(x), (me - 1) % n)
    sent.wait()
    return y

run = lk.ranks.run(ring, 4, args=(torch.ones(1 << 20),))
nvlink = lk.ranks.Link(2e-6, 450e9)
lk.widgets.rank_timeline(lk.ranks.replay(run.trace, nvlink))""",
)
RUN_CELL = """async (index) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = index;
  await window.jupyterapp.commands.execute('notebook:run-cell');
}"""
BARE = """async () => {
  for (const side of ['left', 'right']) {
    if (!document.querySelector(`#jp-${side}-stack`)?.classList.contains('lm-mod-hidden'))
      await window.jupyterapp.commands.execute(`application:toggle-${side}-area`);
  }
}"""
TO_OUTPUT = """async (at) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  await notebook.scrollToItem(at, 'end');
}"""


@dataclass
class Film:
    """Frames of one part of a page, each with the seconds that it stays."""

    page: Any
    box: dict[str, float]
    frames: list[bytes] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def take(self, seconds: float) -> None:
        """Add what the page shows now."""
        settle(self.page)
        self.frames.append(self.page.screenshot(clip=self.box))
        self.seconds.append(seconds)

    def animation(self) -> bytes:
        """Return the frames as one animated WebP that repeats."""
        first, *rest = (Image.open(io.BytesIO(frame)).convert("RGB") for frame in self.frames)
        durations = [round(1000 * one) for one in self.seconds]
        made = io.BytesIO()
        first.save(made, "WEBP", save_all=True, append_images=rest, duration=durations, loop=0, quality=70, method=6)
        return made.getvalue()


def roofline(browser: Any, site: Path) -> Film:
    """Drag the dot of the home page to where memory no longer limits it, and back."""
    page = browser.new_page(viewport={"width": 900, "height": 1200})
    page.goto((site / "index.html").resolve().as_uri())
    page.evaluate("() => document.fonts.ready.then(() => null)")
    film = Film(page, page.locator("section.lk").first.bounding_box())
    dot = page.locator(".lk .lk-grip").first.bounding_box()
    x, y = dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    film.take(1.0)
    for step in [*range(1, 21), *range(19, -9, -1), *range(-7, 1)]:
        page.mouse.move(x + 9 * step, y - 4 * step)
        film.take(LOOK_SECONDS if step == 20 else STEP_SECONDS)
    page.mouse.up()
    return film


def cells(browser: Any, sources: Sequence[str]) -> Film:
    """Run a notebook of ``sources`` in JupyterLab, cell by cell, from the second on in sight."""
    with tempfile.TemporaryDirectory(prefix="labkit-pictures-") as folder:
        notebooks = Path(folder, "notebooks")
        notebooks.mkdir()
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
        book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(book, notebooks / "ring.ipynb")
        with serving(notebooks, Path(folder, "home")) as lab:
            page = lab.open(browser.new_page(viewport=NOTEBOOK_WINDOW), notebooks / "ring.ipynb")
            page.evaluate(BARE)
            film = Film(page, page.locator(".jp-NotebookPanel-notebook").bounding_box())
            for at in range(len(sources)):
                film.take(LOOK_SECONDS if at else 1.0)
                page.evaluate(RUN_CELL, at)
                page.wait_for_function(
                    "(at) => window.jupyterapp.shell.currentWidget.content.widgets[at].model.executionCount", arg=at
                )
                page.wait_for_timeout(1500)  # a widget draws itself after its cell has ended
                page.evaluate(TO_OUTPUT, at)
                film.take(LOOK_SECONDS)
            page.close()
            return film


def write_class(course: Path) -> None:
    """Write submissions of the lab's own answers: of each task two of three students know the right one."""
    subprocess.run([LABKIT, "build", GRADED_LAB], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    source = ROOT / "build/source" / GRADED_LAB
    (course / "source").mkdir()
    (course / "source" / GRADED_LAB).symlink_to(source)
    lab, chance = read_lab(ROOT, GRADED_LAB), random.Random(0)
    for student in range(STUDENTS):
        book = nbformat.read(source / f"{GRADED_LAB}.ipynb", as_version=4)
        for cell in book.cells:
            wrong = lab.wrong_for(cell.metadata.get("nbgrader", {}).get("grade_id", ""))
            if wrong and chance.random() < 1 / 3:  # the first wrong answers are the most frequent
                cell.source = wrong[min(int(chance.expovariate(1)), len(wrong) - 1)].source
        folder = course / "submitted" / f"s{student:02}" / GRADED_LAB
        folder.mkdir(parents=True)
        nbformat.write(book, folder / f"{GRADED_LAB}.ipynb")


def report(browser: Any, site: Path) -> Film:
    """Read a class report: the marks, then what did it in the hardest task."""
    with tempfile.TemporaryDirectory(prefix="labkit-pictures-") as folder:
        course = Path(folder)
        write_class(course)
        subprocess.run([LABKIT, "grade", GRADED_LAB], cwd=course, check=True, stdout=subprocess.DEVNULL)
        page_of = [LABKIT, "report", GRADED_LAB, "--code-only", "--root", str(ROOT)]
        subprocess.run(page_of, cwd=course, check=True, stdout=subprocess.DEVNULL)
        page = browser.new_page(viewport=NOTEBOOK_WINDOW)
        page.goto(next((course / "report").rglob("*.html")).as_uri())
        film = Film(page, {"x": 0, "y": 0, **NOTEBOOK_WINDOW})
        film.take(LOOK_SECONDS)
        task = page.locator(".lead a").get_attribute("href")
        page.locator(".lead a").click(no_wait_after=True)
        for _ in range(25):  # the page scrolls by itself
            film.take(STEP_SECONDS)
        page.locator(f"{task} .found").first.scroll_into_view_if_needed()
        page.wait_for_timeout(1000)
        film.take(3 * LOOK_SECONDS)
        page.close()
        return film


def main() -> None:
    """Take the pictures that were asked for, and say what each weighs."""
    films: dict[str, Callable[[Any, Path], Film]] = {
        "roofline": roofline,
        "race": lambda browser, site: cells(browser, RACE),
        "deadlock": lambda browser, site: cells(browser, DEADLOCK),
        "report": report,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", type=Path, default=ROOT / "build/site")
    parser.add_argument("--out", type=Path, default=ROOT / "course/_static")
    parser.add_argument("--only", nargs="+", choices=films, default=[*films], metavar="NAME")
    given = parser.parse_args()
    if not (given.site / "index.html").exists():
        raise SystemExit(f"pictures: no index.html in {given.site}; build the site first: make site")
    with chromium() as browser:
        for name in given.only:
            film = films[name](browser, given.site)
            made = film.animation()
            if len(made) > MOST_BYTES:
                raise SystemExit(f"pictures: {name}.webp would have {len(made):,} bytes; at most {MOST_BYTES:,}")
            (given.out / f"{name}.webp").write_bytes(made)
            seconds, kilobytes = sum(film.seconds), len(made) / 1e3
            print(f"{name}.webp: {len(film.frames)} frames, {seconds:.0f} s, {kilobytes:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
