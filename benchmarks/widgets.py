"""Redraws per second while every slider and picture of the widgets is dragged in Chromium.

    python benchmarks/widgets.py [--seconds 0.8] [--rounds 3] [--only NAME ...]

Each widget stands alone in a page without a kernel, as in an exported lab, with as much in it as a lab shows. A mouse
goes to and fro over each control, faster than the screen is drawn. On two cores, drawn by software: no GPU.

    frames    frames a second while the control is dragged; at least 50
    redraws   those in which the widget's picture or words changed, which an observer of mutations counts: fewer where
              the control has few steps. A part that is no handle has none
    ms        processor time of the page's thread per frame, which other programs on the machine hardly change
    empty     frames a second of an empty page under the same hand: the ceiling of this browser on this machine
    plotly    a roofline of the same lines by plotly.js, redrawn by Plotly.react at every move: what a page without our
              widgets would do

Others use the machine, so a control below the bar is tried again, and its best round counts. The widget's figures are
those of its slowest control. Prints a table and writes results/widgets.json; the exit status is the number of widgets
below the bar.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from record import write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from mlsys_labkit import widgets
from mlsys_labkit.ranks import Link, pipeline_programs, schedule, simulate
from mlsys_labkit.work import Work
from tests.conftest import CHROMIUM, QUIET
from tests.labkit import every_widget

BAR = 50.0  # frames a second
CORES = 2
SWEEP_SECONDS = 0.5  # from one end of a control to the other
MOVES_PER_SECOND = 240

WATCH = """(selector) => {
  const seen = { frames: [], redraws: 0, changed: false };
  window.seen = seen;
  const target = document.querySelector(selector) || document.body;
  new MutationObserver(() => { seen.changed = true; }).observe(target,
    { childList: true, subtree: true, characterData: true, attributes: true });
  const tick = (now) => {
    if (seen.on) { seen.frames.push(now); seen.redraws += seen.changed; }
    seen.changed = false;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}"""
START = "() => { Object.assign(window.seen, { frames: [], redraws: 0, on: true }); }"
STOP = "() => { window.seen.on = false; return window.seen; }"
# The parts of a widget that a mouse can drag, as [kind, steps, index within its kind].
HANDLES = """(pictures) => {
  const all = (selector, least = 40) => [...document.querySelectorAll(selector)].map((node, i) => [node, i])
    .filter(([node]) => node.getBoundingClientRect().width > least && node.checkVisibility());
  const steps = (node) => (node.max - node.min) / (node.step || 1), label = (node) => node.getAttribute("aria-label");
  return [
    ...all("section.lk input[type=range]").map(([node, i]) => ({ name: label(node), steps: steps(node), i })),
    ...all("section.lk .lk-grip[data-axis^=x]", 20).map(([node, i]) =>
      ({ name: label(node), steps: node.ariaValueMax - node.ariaValueMin, i, grip: true })),
    ...all(pictures).map(([, i]) => ({ name: `picture ${i}`, steps: null, i })),
  ];
}"""
GRIPS = "section.lk .lk-grip[data-axis^=x]"  # those that move from side to side
REACH = 300.0  # pixels that a handle is dragged
PICTURES = "section.lk svg[role], section.lk .lk-code, section.lk .lk-tensor"


def large() -> dict[str, Any]:
    """Return widgets with as much data as the labs show."""
    rng = every_widget.test_widgets.np.random.default_rng(0)
    sizes = rng.integers(1, 1 << 20, 300).tolist()
    events = [{"tensor": str(i), "bytes": size, "category": "activations"} for i, size in enumerate(sizes)]
    events += [{**event, "bytes": -event["bytes"]} for event in reversed(events)]
    programs = pipeline_programs(
        schedule("1f1b", 8, 16), forward_seconds=1e-3, backward_seconds=2e-3, message_bytes=100_000, prefetch=False
    )
    works = [Work(flops=2e6 * 4**i, bytes_read=8e6 * 2**i, name=f"work {i}") for i in range(8)]
    return {
        "strides": lambda: widgets.strides((4, 8, 8)),
        "roofline": lambda: widgets.roofline(["h100-sxm", "t4"], works=works),
        "memory": lambda: widgets.memory_timeline({"events": events}),
        "pca": lambda: widgets.pca(rng.normal(size=(300, 3)) @ rng.normal(size=(3, 3))),
        "tiles": lambda: widgets.tile_walk(1024, 16, register=2),
        "timeline": lambda: widgets.rank_timeline(simulate(programs, Link(2e-4, 1e9))),
        "interleaved": lambda: widgets.pipeline_gantt(8, 32, "interleaved", chunks=4),
    }


async def drag(page: Any, box: dict[str, float], seconds: float) -> dict[str, Any]:
    """Move the mouse to and fro within ``box`` for ``seconds``; return the frames and redraws that the page counted."""
    inset = min(8.0, box["width"] / 10)
    left, right, y = box["x"] + inset, box["x"] + box["width"] - inset, box["y"] + box["height"] / 2
    client = await page.context.new_cdp_session(page)

    def send(kind: str, x: float) -> asyncio.Task[Any]:
        mouse = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
        mouse["buttons"] = int(kind != "mouseReleased")
        return asyncio.ensure_future(client.send("Input.dispatchMouseEvent", mouse))

    await send("mousePressed", left)
    await client.send("Performance.enable", {"timeDomain": "threadTicks"})
    busy = await _task_seconds(client)
    await page.evaluate(START)
    start, moves = time.perf_counter(), []
    while (now := time.perf_counter() - start) < seconds:
        part = (now / SWEEP_SECONDS) % 2
        moves.append(send("mouseMoved", left + (right - left) * (part if part < 1 else 2 - part)))
        await asyncio.sleep(1 / MOVES_PER_SECOND)
    seen = await page.evaluate(STOP)
    await asyncio.gather(*moves)
    busy = await _task_seconds(client) - busy
    await send("mouseReleased", left)
    await client.detach()
    frames = seen["frames"]
    gaps = sorted(b - a for a, b in pairwise(frames)) or [seconds * 1000]
    spent = (frames[-1] - frames[0]) / 1000 if len(frames) > 1 else seconds
    return {
        "frames_per_second": round((len(frames) - 1) / spent, 1),
        "redraws_per_second": round(max(0, seen["redraws"] - 1) / spent, 1),
        "processor_ms_per_frame": round(1000 * busy / max(1, len(frames) - 1), 1),
        "frame_median_ms": round(median(gaps), 1),
        "frame_worst_ms": round(gaps[-1], 1),
        "moves_per_second": round(len(moves) / seconds),
    }


async def _task_seconds(client: Any) -> float:
    metrics = (await client.send("Performance.getMetrics"))["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


async def best(page: Any, box: dict[str, float], arguments: argparse.Namespace) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    while len(runs) < arguments.rounds and not any(run["frames_per_second"] >= BAR for run in runs):
        runs.append(await drag(page, box, arguments.seconds))
    return max(runs, key=lambda run: run["frames_per_second"])


async def measure(browser: Any, name: str, fragment: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure every control of one widget."""
    page = await browser.new_page(viewport={"width": 1000, "height": 900})
    await page.set_content(f"<!doctype html><title>t</title><main>{fragment}</main>")
    await page.wait_for_selector("section.lk")
    await page.evaluate("document.querySelectorAll('.lk-fold').forEach((fold) => { fold.open = true; })")
    await page.evaluate(WATCH, "section.lk")
    found = {}
    for handle in await page.evaluate(HANDLES, PICTURES):
        grip = "grip" in handle
        selector = GRIPS if grip else PICTURES if handle["steps"] is None else "section.lk input[type=range]"
        node = page.locator(selector).nth(handle["i"])
        await node.scroll_into_view_if_needed()
        if grip:
            await node.press("Home")
        box = await node.bounding_box()
        if grip:  # pressed in its middle, at the left end of its way
            box = {**box, "x": box["x"] + box["width"] / 2 - 8, "width": REACH}
        found[handle["name"]] = {"steps": handle["steps"], **await best(page, box, arguments)}
    await page.close()
    return found


async def peers(browser: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    page = await browser.new_page(viewport={"width": 1000, "height": 900})
    await page.set_content("<!doctype html><title>t</title><main style='height: 800px'></main>")
    await page.evaluate(WATCH, "main")
    empty = await best(page, {"x": 20, "y": 20, "width": 800, "height": 400}, arguments)
    await page.close()
    page = await browser.new_page(viewport={"width": 1000, "height": 900})
    script = files("plotly").joinpath("package_data/plotly.min.js").read_text("utf-8")
    await page.set_content(f"<!doctype html><title>t</title><script>{script}</script>{PLOTLY_PAGE}")
    await page.wait_for_selector(".main-svg")
    await page.evaluate(WATCH, "#plot")
    drawn = await best(page, await page.locator("input").bounding_box(), arguments)
    await page.close()
    return {"empty page": empty, "plotly.js, Plotly.react": drawn}


# Two roofs, eight points and one that moves, as in the roofline explorer; a table of numbers is not drawn.
PLOTLY_PAGE = """<input type=range min=0 max=320 style="width: 800px">
<div id=plot style="width: 820px; height: 440px"></div>
<script>
const axis = { type: "log" }, layout = { xaxis: axis, yaxis: axis, margin: { t: 20 } }, works = [...Array(8).keys()];
const roof = (peak, band) => ({ x: [0.01, peak / band, 1e4], y: [0.01 * band, peak, peak], mode: "lines" });
const own = { x: works.map((i) => 0.25 * 2 ** i), y: works.map((i) => 8e11 * 1.5 ** i), mode: "markers" };
const at = (x) => ({ x: [x], y: [Math.min(6.7e13, x * 3.35e12)], mode: "markers", marker: { size: 16 } });
const draw = (x) => Plotly.react("plot", [roof(6.7e13, 3.35e12), roof(8.1e12, 3.2e11), own, at(x)], layout);
document.querySelector("input").addEventListener("input", (event) => draw(10 ** (event.target.value / 54 - 2)));
draw(1);
</script>"""


def judge(controls: dict[str, Any]) -> dict[str, Any]:
    """Return a widget's figures: those of its slowest control, and the most processor time of any."""
    if not controls:
        return {"control": None, "meets": True}
    name = min(controls, key=lambda each: controls[each]["frames_per_second"])
    slowest = controls[name]
    return {
        "control": name,
        "redraws_per_second": slowest["redraws_per_second"],
        "frames_per_second": slowest["frames_per_second"],
        "processor_ms_per_frame": max(one["processor_ms_per_frame"] for one in controls.values()),
        "frame_worst_ms": max(one["frame_worst_ms"] for one in controls.values()),
        "meets": slowest["frames_per_second"] >= BAR,
    }


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    from playwright.async_api import async_playwright

    chosen = {**every_widget.every(), **large()}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        beside = await peers(browser, arguments)
        for name, one in beside.items():
            print(f"{name:<24} {one['redraws_per_second']:>6} redraws/s {one['frames_per_second']:>6} frames/s, {one}")
        found = {}
        for name, make in chosen.items():
            if not arguments.only or name in arguments.only:
                controls = await measure(browser, name, make().html(), arguments)
                found[name] = {**judge(controls), "controls": controls}
                show(name, found[name])
        version = browser.version
        await browser.close()
    return {
        "browser": f"Chromium {version}, headless, drawn by software",
        "cores": CORES,
        "bar_frames_per_second": BAR,
        "peers": beside,
        "widgets": found,
    }


def show(name: str, one: dict[str, Any]) -> None:
    if one["control"] is None:
        print(f"{name:<20} nothing to drag", flush=True)
        return
    print(
        f"{name:<20} {one['frames_per_second']:>6} frames/s {one['redraws_per_second']:>6} redraws/s "
        f"{one['processor_ms_per_frame']:>5} ms  worst {one['frame_worst_ms']} ms  {one['control']}"
        f"{'' if one['meets'] else '   BELOW'}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Do the widgets follow the hand?")
    parser.add_argument("--seconds", type=float, default=0.8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="these widgets alone; writes nothing")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])  # the browser inherits it
    result = asyncio.run(run(arguments))
    if not arguments.only:
        write_result("widgets", result)
    return sum(not one["meets"] for one in result["widgets"].values())


if __name__ == "__main__":
    raise SystemExit(main())
