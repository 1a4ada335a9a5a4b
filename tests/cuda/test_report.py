"""The text and HTML of profiles, and the text of findings."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
from IPython.lib.pretty import pretty

from mlsys_labkit import cuda
from mlsys_labkit._base.light_dark_colours import COLOURS
from mlsys_labkit.cuda.counters import LineCount
from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.profile import Profile

SOURCE = """__global__ void swap(const float* in, float* out) {
    __shared__ float tile[32][32];
    tile[threadIdx.y][threadIdx.x] = in[0 < 1];  // <b>
    __syncthreads();
    out[threadIdx.y] = tile[threadIdx.x][threadIdx.y];
}
"""
PROFILE = Profile(
    kernel="swap",
    source=SOURCE,
    grid=(2, 1, 1),
    block=(32, 8, 1),
    shared_bytes=0,
    lines=(
        LineCount(3, "swap", "global", "load", 4, 16, 512, 64, 0, 64, 0, 4, 512),
        LineCount(3, "swap", "shared", "store", 4, 16, 512, 0, 16, 0, 16, 1, 512),
        LineCount(4, "swap", "", "", 0, 0, 0, 0, 0, 0, 0, 0, 512),
        LineCount(5, "swap", "shared", "load", 4, 16, 512, 0, 512, 0, 16, 32, 512),
        LineCount(5, "swap", "global", "store", 4, 16, 512, 512, 0, 64, 0, 32, 512),
    ),
    barriers=2,
    steps=32,
    active_lanes=1024,
    blocks_run=2,
    blocks_total=2,
    flops=1024,
    bytes_read=2048,
    bytes_written=2048,
)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_text_has_a_row_for_each_access() -> None:
    assert rows(str(PROFILE))[2][:9] == ["3", "global", "load", "4", "16", "32", "4", "4", "4"]
    store = next(row for row in rows(str(PROFILE)) if row[:3] == ["5", "global", "store"])
    assert store[4:9] == ["16", "32", "32", "4", "32"]  # requests, lanes, sectors, least, worst
    load = next(row for row in rows(str(PROFILE)) if row[:3] == ["5", "shared", "load"])
    assert load[4:9] == ["16", "32", "32", "1", "32"]


def test_text_ends_in_the_totals_and_what_they_are() -> None:
    text = str(PROFILE)
    assert "18.4 kB in sectors (4 a load, 32 a store)" in text  # 576 sectors
    assert "496 of them bank conflicts, worst 32-way" in text
    assert "2 block barriers; SIMT efficiency 100.0 %" in text
    assert text.splitlines()[-1].startswith("source-level model")
    assert "not measured on a GPU" in text
    assert "blocks were run" not in text
    assert "1 of 2 blocks were run" in str(replace(PROFILE, blocks_run=1))


def test_an_empty_profile_is_no_error() -> None:
    text = str(Profile("f", "", (1, 1, 1), (1, 1, 1), 0, ()))
    assert text.splitlines()[0] == "f, grid 1, block 1"
    assert Profile("f", "", (1, 1, 1), (1, 1, 1), 0, ())._repr_html_()


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_whole_escaped_and_without_script() -> None:
    html = PROFILE._repr_html_()
    tags = Tags(html)
    assert tags.open == []
    assert "script" not in tags.names
    assert "in[0 < 1];  // <b>" in tags.text
    assert tags.names.count("b") == 1  # the title's own
    assert not re.search(r"\bon\w+=|https?:", html)


def test_html_leaves_the_colours_of_text_and_paper_to_the_page() -> None:
    """The page's colours are right in light and in dark; the bar's colour is visible on both."""
    style = re.search(r"<style>(.*?)</style>", PROFILE._repr_html_(), re.DOTALL)
    assert style
    assert re.findall(r"(?<![-\w])color:", style[1]) == []
    assert set(re.findall(r"background:([^;}]+)", style[1])) == {"none", COLOURS["orange"].figure}


def test_work_is_what_the_sectors_move() -> None:
    work = PROFILE.work
    assert (work.flops, work.bytes_read, work.bytes_written) == (1024, 64 * 32, 512 * 32)
    assert PROFILE.bank_conflicts == 512 + 16 - 32


def test_finding_shows_both_lines_once() -> None:
    finding = KernelFinding("shared_race", "no order", 3, "  a = b;", other_line=5, other_source_line=" c = d;")
    assert str(finding) == "shared race: no order\n  line 3: a = b;\n  line 5: c = d;"
    assert str(replace(finding, other_line=3)).count("line 3") == 1


MESSAGES = {
    "out_of_bounds": (
        "a[i + 9] = 0;",
        "thread (24, 0, 0) of block (0, 0, 0) writes a[33], and a has 33 elements of 4 bytes",
    ),
    "division_by_zero": ("a[0] = i / (i - i % 32);", "divides an integer by zero"),
    "assertion": ("assert(i < 7);", "thread (7, 0, 0) of block (0, 0, 0) fails assert(i < 7)"),
    "trap": ("if (i == 3) __trap();", "thread (3, 0, 0) of block (0, 0, 0) calls __trap()"),
}


def test_a_notebook_shows_a_list_of_findings_as_sentences() -> None:
    lines = {"line": 4, "source_line": "x = s[t + 1];", "other_line": 5, "other_source_line": "s[t] = x;"}
    found = KernelFinding("shared_race", "s[1] is read and written", **lines)  # type: ignore[arg-type]
    first, *others = "shared race: s[1] is read and written\n  line 4: x = s[t + 1];\n  line 5: s[t] = x;".splitlines()
    assert pretty(found) == "\n".join([first, *others])
    assert pretty([found]) == "[" + "\n ".join([first, *others]) + "]"
    assert pretty([]) == "[]"


def test_out_of_bounds_tells_how_far_a_wide_access_reaches() -> None:
    source = "__global__ void f(int* a) { int4* p = (int4*)a + threadIdx.x; int4 v = *p; v.x *= 3; *p = v; }"
    found = cuda.compile(source, backend="simulator").check[1, 9](np.zeros(33, np.int32))
    assert "thread (8, 0, 0) of block (0, 0, 0) reads 16 bytes at a[32], and a has 33 elements" in str(found[0])


def test_messages_name_thread_and_place() -> None:
    for kind, (statement, expected) in MESSAGES.items():
        source = f"#include <cassert>\n__global__ void f(int* a) {{\n    int i = threadIdx.x;\n    {statement}\n}}\n"
        found = cuda.compile(source, backend="simulator").check[1, 32](np.zeros(33, np.int32))
        (finding,) = [each for each in found if each.kind == kind]
        assert expected in finding.message
        assert (finding.line, finding.source_line.strip()) == (4, statement)
