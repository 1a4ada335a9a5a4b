"""Tests of step ``counters`` without a GPU: its launches, rows of ncu, verdicts, and a run beside a program for ncu."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import ncu
from benchmarks.gpu.launches import GROUPS, Launch, arguments, kernel_of, launches, of_group
from benchmarks.gpu.steps import counters
from mlsys_labkit.cuda.profile import Profile

NCU = """==PROF== Connected to process 7
"ID","Kernel Name","l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum","launch__registers_per_thread"
"","","","register/thread"
"0","vector_add(const float *, int)","1,064","16"
==PROF== Disconnected
"""
METRICS = tuple(counters.METRICS.values())
# Writes a row for each launch that is asked for, but for saxpy of lab 03, as ncu does where it loses one.
PROGRAM = """#!{python}
import json, sys
log = sys.argv[sys.argv.index("--log-file") + 1]
metrics = sys.argv[sys.argv.index("--metrics") + 1].split(",")
group, report = eval(sys.argv[-1].split("launch_all")[-1])
from benchmarks.gpu.launches import of_group
with open(log, "w") as out, open(report, "w") as ends:
    print('"ID","Kernel Name","Grid Size",' + ",".join(f'"{{each}}"' for each in metrics), file=out)
    print('"","",""', file=out)
    for launch in of_group(group):
        error = "CudaLaunchError: it hangs" if launch.name == "clamp" else ""
        print(json.dumps([launch.name, error]), file=ends)
        if launch.name not in ("saxpy", "clamp"):
            row = [f"void {{launch.function}}<float>(int)", str(launch.grid), *(["7"] * len(metrics))]
            print('"0",' + ",".join(f'"{{each}}"' for each in row), file=out)
"""


# --- The launches ----------------------------------------------------------------------------------------------------


def test_launches_are_many_and_each_is_told_from_the_others() -> None:
    keys = [(launch.group, launch.function, launch.grid) for launch in launches().values()]
    assert len(keys) >= 48
    assert len(set(keys)) == len(keys), "rows of one run are told apart by name and grid"
    assert {launch.group for launch in launches().values()} == set(GROUPS)
    assert set(counters.EXPLAINED) <= set(launches())
    assert [case.name for case in counters.cases()] == [*launches(), "total"]


def test_arguments_are_the_same_on_both_sides() -> None:
    def raw(name: str) -> list[Any]:
        return [each.tobytes() if hasattr(each, "tobytes") else each for each in launches()[name].make()]

    assert raw("stencil") == raw("stencil")
    assert raw("matrix/matvec") == raw("matrix/matvec")
    assert len(arguments("flash_wmma")) == 6


def test_kernels_take_their_arguments() -> None:
    """One of each origin; the rest cost seconds of compilation each."""
    for name in ("clamp", "elementwise/scale_vec<float, 4>"):
        launch = launches()[name]
        profile = kernel_of(name, "simulator").profile[launch.shape](*launch.make())
        assert profile.blocks_run == profile.blocks_total
        assert profile.global_load_requests > 0


# --- Rows of Nsight Compute ------------------------------------------------------------------------------------------


def test_ncu_page_is_read_behind_its_units() -> None:
    (row,) = ncu.rows(NCU)
    assert row["Kernel Name"] == "vector_add(const float *, int)"
    assert ncu.number(row[counters.METRICS["global_load_requests"]]) == 1064
    assert ncu.number("n/a") is None
    assert ncu.rows("==ERROR== no permission") == []
    assert ncu.rows('"some text in quotes"\n"more"\n"and more"') == []


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("vector_add(const float *, const float *, float *, int)", "vector_add"),
        ("void scale_vec<float, (int)4>(T1 *, T1, int)", "scale_vec"),
        ("void folded<Largest, (int)777>(const int *, int *)", "folded"),
        ("(anonymous namespace)::reverse_in_place(float *, int)", "reverse_in_place"),
        ("ns::inner::join(const cuda::barrier<(cuda::thread_scope)2> *)", "join"),
        ("saxpy", "saxpy"),
        ("", ""),
    ],
)
def test_function_is_read_from_a_demangled_name(said: str, name: str) -> None:
    assert ncu.function_name(said) == name


def launch(name: str, kernel: str, grid: int = 1) -> Launch:
    return Launch(name, "labs", "lab00", kernel, (grid, 32), tuple)


def row(kernel: str, grid: str = "", mark: str = "") -> dict[str, str]:
    return {"Kernel Name": f"{kernel}(int)", "Grid Size": grid, "mark": mark}


def test_rows_are_matched_by_name_and_one_that_is_missing_costs_itself() -> None:
    wanted = [launch("first", "a"), launch("second", "cell.b"), launch("third", "c<4>"), launch("fourth", "a", 3)]
    found = [row("a"), row("void c<4>"), row("a")]
    assert [*ncu.matched(wanted, found)] == ["first", "third", "fourth"]
    assert [*ncu.matched(wanted, [row("probe"), row("b"), row("spin"), row("c")])] == ["second", "third"]
    assert [*ncu.matched(wanted, [row("a", "(3, 1, 1)")])] == ["fourth"], "the grid tells them apart"
    assert ncu.matched(wanted, []) == {}
    again = ncu.matched(wanted, [row("a", "(1, 1, 1)", "one"), row("a", "(3, 1, 1)", "two")])
    assert [(name, each["mark"]) for name, each in again.items()] == [("first", "one"), ("fourth", "two")]


def test_a_launch_that_fails_is_reported_and_the_next_ones_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def within(self, seconds: float) -> Kernel:
            return self

        def __getitem__(self, shape: Any) -> Any:
            return self.run

        def run(self, *arguments: Any) -> None:
            if self.name == "second":
                raise RuntimeError("an illegal address\nmore")

    three = [launch(name, "k") for name in ("first", "second", "third")]
    monkeypatch.setattr(ncu, "of_group", lambda group: three)
    monkeypatch.setattr(ncu, "kernel_of", lambda name, backend: Kernel(name))
    monkeypatch.setattr(ncu, "_leave_gpu", lambda: None)
    ncu.launch_all("labs", str(tmp_path / "report"))
    text = (tmp_path / "report").read_text()
    assert ncu._ends(text + '["cut') == {"first": "", "second": "RuntimeError: an illegal address", "third": ""}


# --- Verdicts --------------------------------------------------------------------------------------------------------


def test_counters_are_attributes_of_a_profile() -> None:
    missing = {name for name in counters.METRICS if not hasattr(Profile, name)}
    assert missing == {"lanes_per_instruction", "dram_bytes_read", "registers"}, "from simt_efficiency; the GPU's alone"


def test_difference_of_counters_is_a_miss_unless_machine_code_explains_it() -> None:
    mine = {"global_load_requests": 32, "shared_load_requests": 8, "lanes_per_instruction": 30.0}
    theirs: dict[str, Any] = {"global_load_requests": 16.0, "shared_load_requests": 8.0, "lanes_per_instruction": 29.0}
    found = counters.compared("alternate_slow", mine, theirs | {"registers": 12.0})
    assert (found["ok"], found["verdict"]) == (True, "explained")
    assert found["differ"] == {"global_load_requests": [32, 16.0]}
    assert "ptxas joins the loads" in found["explanation"]
    assert found["gpu_alone"] == {"registers": 12.0}
    assert counters.compared("alternate", mine, theirs)["verdict"] == "missed"
    assert not counters.compared("alternate_slow", mine, theirs | {"shared_load_requests": 4.0})["ok"]
    nothing = counters.compared("alternate", mine, dict.fromkeys(theirs))
    assert (nothing["ok"], nothing["verdict"]) == (False, "no figures")


@pytest.mark.parametrize(
    ("mine", "theirs", "verdict"),
    [(100, 100.0, "equal"), (98, 100.0, "within 2 %"), (97, 100.0, "missed"), (0, 0.0, "equal"), (1, 0.0, "missed")],
)
def test_two_percent_of_the_gpus_figure_is_near(mine: int, theirs: float, verdict: str) -> None:
    found = counters.compared("alternate", {"global_load_sectors": mine}, {"global_load_sectors": theirs})
    assert (found["verdict"], found["ok"]) == (verdict, verdict != "missed")


def test_wavefronts_are_judged_beside_the_bar() -> None:
    mine = {"shared_load_requests": 8, "shared_load_wavefronts": 8}
    found = counters.compared("alternate", mine, {"shared_load_requests": 8.0, "shared_load_wavefronts": 16.0})
    assert (found["ok"], found["verdict"]) == (True, "equal")
    assert found["wavefronts"] == {"ok": False, "differ": {"shared_load_wavefronts": [8, 16.0]}}


def test_instructions_with_a_false_predicate_explain_more_requests_only_where_wavefronts_agree() -> None:
    mine = {"shared_load_requests": 100, "shared_load_wavefronts": 100}
    more: dict[str, float | None] = {"shared_load_requests": 544.0, "shared_load_wavefronts": 100.0}

    def verdict(theirs: dict[str, float | None], code: dict[str, int]) -> str:
        found = counters.explained_by_code(counters.compared("block_sum", mine, theirs), code)
        assert found["ok"] is (found["verdict"] == "explained")
        assert found["sass"] == code
        return str(found["verdict"])

    assert verdict(more, {"@LDS": 16}) == "explained"
    assert verdict(more, {"LDS": 16, "@STS": 3}) == "missed"
    assert verdict(more | {"shared_load_wavefronts": 200.0}, {"@LDS": 16}) == "missed"
    assert verdict(more | {"shared_load_requests": 50.0}, {"@LDS": 16}) == "missed"


def test_total_has_the_bar() -> None:
    names = [f"k{number}" for number in range(40)]
    good = {"equal": names[:30], "within 2 %": names[30:36], "explained": names[36:]}
    found = counters.summed(good)
    assert found["ok"]
    assert (found["measured"], found["exact"], found["within_2_percent"], found["explained"]) == (40, 30, 36, 4)
    assert found["others"] == {"explained": names[36:]}
    assert not counters.summed({**good, "missed": ["k40"]})["ok"]
    assert not counters.summed({"equal": names[:39], "not measured: no row": ["k39"]})["ok"]
    assert not counters.summed({"equal": names[:30], "explained": names[30:]})["ok"]


def test_memory_instructions_are_counted_by_opcode_and_width() -> None:
    listing = """.text.k:
        /*0070*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0080*/              @!P0 LDS.128 R8, [R1] ;
        /*0090*/                   LDS.128 R8, [R1+0x10] ;
        /*00a0*/                   STG.E desc[UR4][R2.64], R4 ;
        /*00b0*/                   FFMA R1, R2, R3, R4 ;
        /*00c0*/                   LDC R1, c[0x0][0x28] ;
    """
    assert counters.opcodes(listing) == {"LDG.128": 1, "@LDS.128": 1, "LDS.128": 1, "STG": 1}


# --- A run -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a program called ncu on the path, which launches nothing."""
    path = tmp_path / "ncu"
    path.write_text(PROGRAM.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(ncu.ROOT))
    monkeypatch.setattr(ncu, "_compile_ahead", lambda wanted: None)
    ncu.measure.cache_clear()
    yield path
    ncu.measure.cache_clear()


def test_a_run_has_a_row_or_a_reason_for_each_launch(program: Path) -> None:
    found = ncu.measure("labs", METRICS)
    assert len(found.rows) == len(of_group("labs")) - 2
    assert found.row("vector_add")[METRICS[0]] == "7"
    with pytest.raises(RuntimeError, match="no row for this launch"):
        found.row("saxpy")
    with pytest.raises(RuntimeError, match="it hangs"):
        found.row("clamp")
    assert ncu.measure("labs", METRICS) is found


def test_an_ncu_that_fails_says_why_once_for_each_launch(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program.write_text("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM'\nexit 1\n")
    found = ncu.measure("labs", METRICS)
    with pytest.raises(RuntimeError, match="never launched: ==ERROR== ERR_NVGPUCTRPERM"):
        found.row("saxpy")
    ncu.measure.cache_clear()
    program.write_text("#!/bin/sh\nsleep 60\n")
    monkeypatch.setattr(ncu, "SECONDS", 0.3)
    with pytest.raises(RuntimeError, match=r"ncu still ran after 0.3 s and was ended"):
        ncu.measure("labs", METRICS).row("saxpy")
