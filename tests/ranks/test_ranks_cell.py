"""``%%ranks``: cells that run on every rank, in a real IPython shell."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from mlsys_labkit import ranks
from mlsys_labkit.ranks import cell


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "mlsys_labkit")
    shell.run_cell("import torch\nimport torch.distributed as dist\nfrom mlsys_labkit import ranks")
    cell._spaces.clear()
    cell._last.clear()
    yield shell
    shell.run_line_magic("unload_ext", "mlsys_labkit")


BACKENDS = [
    "local",
    pytest.param("gloo", marks=pytest.mark.xdist_group("rank-processes")),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_variables_outlive_the_cell_on_each_rank(shell: InteractiveShell, backend: str) -> None:
    def ranks_cell(line: str, body: str) -> None:
        shell.run_cell_magic("ranks", f"2 {line} --backend {backend}", body)

    shell.user_ns["w"] = torch.ones(2)
    shell.run_cell("def double(x):\n    return 2 * x + offset\noffset = 0")
    ranks_cell(
        "out",
        "x = double(w) * rank\n"
        "w.add_(1)\n"  # its own copy
        "model = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters())\n"
        "def scaled():\n"
        "    return w * scale\n"
        "scale = 3\n"
        "class Box:\n"
        "    pass\n"
        "box = Box()\n",
    )
    assert [x.tolist() for x in shell.user_ns["out"]["x"]] == [[0, 0], [2, 2]]
    assert shell.user_ns["w"].tolist() == [1, 1]

    shell.run_cell("def double(x):\n    return 2 * x + 100\nw = torch.full((2,), 5.0)")
    ranks_cell(
        "",
        "x += world_size\n"
        "scale += rank\n"
        "seen = (double(x), scaled(), isinstance(box, Box), model.weight is optimizer.param_groups[0]['params'][0])\n",
    )
    for rank, (doubled, scaled, same_class, same_weight) in enumerate(ranks.pull("seen")):
        assert doubled.tolist() == [2 * (2 * rank + 2) + 100] * 2, "the notebook's function as it is now"
        assert scaled.tolist() == [5.0 * (3 + rank)] * 2, "an earlier cell's function sees the names of today"
        assert (same_class, same_weight) == (True, True)
    assert not {"w", "rank"} & shell.user_ns["out"].values[0].keys()


@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_and_methods_of_earlier_cells_see_the_names_of_today(shell: InteractiveShell, backend: str) -> None:
    def ranks_cell(body: str) -> None:
        shell.run_cell_magic("ranks", f"2 --backend {backend}", body)

    shell.run_cell("late = 10")
    ranks_cell(
        "scale = 1\n"
        "def f():\n"
        "    return scale\n"
        "f.tag = 5\n"
        "class A:\n"
        "    def m(self):\n"
        "        return scale\n"
        "    @property\n"
        "    def p(self):\n"
        "        return late\n"
        "    @staticmethod\n"
        "    def s():\n"
        "        return late\n"
        "made = A()\n"
    )
    ranks_cell("x = 1")
    ranks_cell("scale = 3 + rank")
    shell.run_cell("late = 20")
    ranks_cell("seen = f(), f.tag, A().m(), made.m(), made.p, A.s()")
    assert ranks.pull("seen") == [(3, 5, 3, 3, 20, 20), (4, 5, 4, 4, 20, 20)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_cell_reads_variables_that_ranks_assigned(shell: InteractiveShell, backend: str) -> None:
    shell.run_cell("z = 5\ndef which():\n    return 'notebook'")
    shell.run_cell_magic("ranks", f"2 --backend {backend}", "z = z + rank\ndef which():\n    return 'rank'\n")
    shell.run_cell("z = 100\ndef which():\n    return 'notebook again'")
    shell.run_cell_magic("ranks", f"2 --backend {backend}", "seen = (z, which())")
    assert ranks.pull("seen") == [(5, "rank"), (6, "rank")]
    assert shell.user_ns["z"] == 100


@pytest.mark.parametrize("backend", BACKENDS)
def test_cell_errors_name_the_cells_own_lines(shell: InteractiveShell, backend: str) -> None:
    with pytest.raises(ranks.RankError, match=r"rank 1 raised ValueError: no .*:4: raise ValueError\('no'\)"):
        shell.run_cell_magic("ranks", f"2 --backend {backend}", "y = 1\nif rank == 1:\n    raise ValueError('no')\n")
    with pytest.raises(ranks.DeadlockError) as caught:
        shell.run_cell_magic("ranks", f"2 --backend {backend}", "t = torch.ones(1)\ndist.send(t, 1 - rank)\n")
    assert str(caught.value).count(":3: dist.send(t, 1 - rank)") == 2
    with pytest.raises(SyntaxError) as broken:
        shell.run_cell_magic("ranks", f"2 --backend {backend}", "x = 1\ny = = 2\n")
    assert broken.value.lineno == 3


def test_the_cell_in_messages_is_the_one_that_ran(shell: InteractiveShell) -> None:
    shell.run_cell("1 + 1", store_history=True)
    number = shell.execution_count
    result = shell.run_cell("%%ranks 2 --backend local\n1 / 0", store_history=True)
    error = result.error_in_exec
    assert isinstance(error, ranks.RankError)
    assert error.line is not None
    assert shell.compile.format_code_name(error.line[0]) == ("Cell", f"In[{number}]")
    assert error.line[1] == 2


def test_cell_with_another_world_size_starts_fresh(shell: InteractiveShell) -> None:
    shell.run_cell_magic("ranks", "2 --backend local", "x = rank")
    with pytest.raises(ranks.RankError, match="name 'x' is not defined"):
        shell.run_cell_magic("ranks", "3 --backend local", "y = x")
    shell.run_cell_magic("ranks", "2 --backend local", "y = x")
    assert ranks.pull("y") == [0, 1]


def test_cell_shows_its_last_expression(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("ranks", "2 run --backend local", "x = 7 + rank\nx\n")
    assert shell.user_ns["run"].outputs == ["7\n", "8\n"]
    assert "7" in capsys.readouterr().out


def test_a_cell_that_fails_keeps_nothing_new(shell: InteractiveShell) -> None:
    shell.user_ns["z"] = 5
    with pytest.raises(ranks.RankError):
        shell.run_cell_magic("ranks", "2 --backend local", "1 / 0\nz = 6")
    shell.run_cell_magic("ranks", "2 --backend local", "seen = z")
    assert ranks.pull("seen") == [5, 5]


@pytest.mark.xdist_group("rank-processes")
def test_cell_names_a_variable_that_could_not_be_kept(shell: InteractiveShell) -> None:
    shell.run_cell_magic("ranks", "2 --backend gloo", "numbers = (n for n in [1])\nx = 1")
    assert ranks.pull("x") == [1, 1]
    with pytest.raises(ranks.RanksError, match="numbers of an earlier %%ranks cell could not be kept"):
        shell.run_cell_magic("ranks", "2 --backend gloo", "next(numbers)")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "required: world_size"),
        ("two", "invalid int value: 'two'"),
        ("0", "at least 1; got 0"),
        ("2 not-a-name", "'not-a-name' is not one"),
        ("2 --wait 3", "unrecognized arguments: --wait"),
        ("2 --timeout -1", "must be positive"),
        ("2 --backend mpi", "no backend 'mpi'"),
        ("2 'x", "No closing quotation"),
        ("2 class", "'class' is not one"),
    ],
)
def test_cell_refuses_unknown_options(shell: InteractiveShell, line: str, complaint: str) -> None:
    with pytest.raises(ranks.RanksError, match=complaint):
        shell.run_cell_magic("ranks", line, "ran = 1")


@pytest.mark.parametrize("source", ["%time x = 1", "!ls", "%%time\nx = 1"])
def test_cell_refuses_magics(shell: InteractiveShell, source: str) -> None:
    with pytest.raises(ranks.RanksError, match="no magics and no ! commands"):
        shell.run_cell_magic("ranks", "2", source)


@pytest.mark.filterwarnings("error::FutureWarning")  # torch warns on access to dist.reduce_op
def test_all_of_torch_distributed_can_be_imported_by_name(shell: InteractiveShell) -> None:
    shell.run_cell_magic(
        "ranks", "2 --backend local", "from torch.distributed import *\nx = torch.ones(1)\nall_reduce(x)"
    )
    shell.run_cell_magic("ranks", "2 --backend local", "all_reduce(x)")
    assert [float(x) for x in ranks.pull("x")] == [4.0, 4.0]


def test_pull_refuses_a_missing_cell_or_variable(shell: InteractiveShell) -> None:
    with pytest.raises(ranks.RanksError, match="there was none"):
        ranks.pull("x")
    shell.run_cell_magic("ranks", "2 --backend local", "x = 1")
    with pytest.raises(ranks.RanksError, match="rank 0 has no variable 'y'; it has x"):
        ranks.pull("y")
    with pytest.raises(ranks.RanksError, match=r"of a function use run\.values"):
        ranks.run(lambda: 1, 1, "local")["x"]


def test_functions_and_modules_of_the_notebook_are_each_ranks_own(shell: InteractiveShell) -> None:
    module = types.ModuleType("student_parallel")
    module.RANK, module.SEEN = -1, []  # type: ignore[attr-defined]
    shell.user_ns["sp"] = sys.modules["student_parallel"] = module
    try:
        shell.run_cell("LAST = []\ndef keep(x):\n    LAST.append(x)\n    return LAST")
        cell = "sp.RANK = rank\nsp.SEEN.append(rank)\nkeep(rank)\ndist.barrier()\nfound = [sp.RANK, sp.SEEN, keep(9)]"
        shell.run_cell_magic("ranks", "3 run --backend local", cell)
    finally:
        del sys.modules["student_parallel"]
    assert shell.user_ns["run"]["found"] == [[rank, [rank], [rank, 9]] for rank in range(3)]
    assert (module.RANK, module.SEEN, shell.user_ns["LAST"]) == (-1, [], [])  # type: ignore[attr-defined]
