"""The columns of ranks' output: a reader sees everything that was printed, unchanged."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit.ranks import output_columns as module
from mlsys_labkit.ranks.output_columns import Columns


def test_columns_put_narrow_lines_side_by_side_and_wide_ones_below(capsys: pytest.CaptureFixture[str]) -> None:
    columns = Columns(2, width=43)
    columns.write(0, "a\nb\n")
    columns.write(1, "c\n")
    columns.refresh()
    columns.write(1, "a line of more than twenty characters\n")
    columns.write(0, "d\n")
    columns.close()
    assert capsys.readouterr().out.splitlines() == [
        "rank 0               | rank 1",
        "a                    | c",
        "b                    |",
        "[rank 0] d",
        "[rank 1] a line of more than twenty characters",
    ]


def test_columns_of_many_ranks_become_prefixed_lines(capsys: pytest.CaptureFixture[str]) -> None:
    columns = Columns(8, width=80)
    columns.write(3, "x\n")
    columns.close()
    assert capsys.readouterr().out == "[rank 3] x\n"


def test_columns_show_each_complete_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    columns = Columns(1, width=80)
    columns.write(0, "half")
    columns.refresh()
    assert capsys.readouterr().out == ""
    columns.write(0, " a line")
    columns.close()
    assert capsys.readouterr().out == "[rank 0] half a line\n"
    assert columns.outputs == ["half a line"]


def test_columns_keep_a_progress_bars_last_state_without_colours() -> None:
    columns = Columns(1, width=80)
    columns.write(0, "\r 10 %\r 50 %\r100 %\n\x1b[31mred\x1b[0m\n")
    assert columns.text() == "[rank 0] 100 %\n[rank 0] red\n"


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=("C",)), max_size=30), max_size=8))
def test_html_holds_every_line_and_no_markup_of_the_ranks(lines: list[str]) -> None:
    columns = Columns(2, width=80)
    text = "".join(f"{line}\n" for line in lines)
    columns.write(1, text)
    page = columns.html()
    cells = re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    assert [html.unescape(cell) for cell in cells] == ["", "\n".join(text.split("\n")[:-1])]
    assert page.count("<section>") == 2


def test_html_names_its_parts_and_takes_the_pages_colours() -> None:
    columns = Columns(2, width=80)
    page = columns.html()
    labels = re.findall(r'aria-labelledby="([^"]+)"', page)
    assert labels == re.findall(r'<b id="([^"]+)"', page)
    assert len(set(labels)) == 2
    assert page.count('tabindex="0"') == 2  # what scrolls must be reachable by keyboard
    assert not re.search(r"color:(?!inherit)|#[0-9a-f]{3,6}\b|rgb", page.replace("currentColor", ""))


@pytest.mark.parametrize("pieces", [1, 7])
def test_columns_keep_the_beginning_and_end_of_a_long_output(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_CHARACTERS", 1000)
    monkeypatch.setattr(module, "SHOWN_CHARACTERS", 200)
    columns = Columns(1, width=80)
    text = "".join(f"{number:06d}\n" for number in range(3000))
    size = -(-len(text) // pieces)
    for start in range(0, len(text), size):
        columns.write(0, text[start : start + size])
    (kept,) = columns.outputs
    assert kept.startswith("000000\n000001\n")
    assert kept.endswith("002999\n")
    assert len(kept) < 2000
    left_out = int(re.search(r"\[\.\.\. ([\d,]+) characters \.\.\.\]", kept)[1].replace(",", ""))  # type: ignore[index]
    assert left_out + len(re.sub(r"\n\[\.\.\. .* \.\.\.\]\n", "", kept)) == len(text)
    assert len(columns.html()) < 1200


def test_a_quiet_display_keeps_all_and_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    columns = Columns(2, width=80, quiet=True)
    columns.write(1, "a line\n")
    columns.refresh()
    columns.close()
    assert (capsys.readouterr().out, columns.outputs) == ("", ["", "a line\n"])
    assert not any(columns._pending), "nobody will ever take it from there"
