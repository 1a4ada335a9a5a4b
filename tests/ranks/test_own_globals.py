"""Ranks of the local backend keep globals, caches and everything else that a process has once, each its own.

What a rank returns is what a process of its own returns: its number. The table runs on gloo, too.
"""

from __future__ import annotations

import builtins
import functools
import gc
import importlib
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

from mlsys_labkit import ranks
from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.local import program
from tests.ranks import programs_with_state
from tests.ranks.programs_that_change_libraries import CHANGING
from tests.ranks.programs_that_hide_state import HIDDEN
from tests.ranks.programs_that_patch_libraries import PATCHED, PATCHING, libraries_as_they_were
from tests.ranks.programs_with_state import TABLE
from tests.ranks.run_helpers import gloo, line_of, local


@pytest.fixture(autouse=True, scope="module")
def model() -> None:
    programs_with_state.make_model()


@pytest.mark.parametrize("program", TABLE + HIDDEN + PATCHING + CHANGING, ids=lambda program: program.__name__)
def test_each_rank_sees_only_what_it_has_set(program: Callable[[], Any]) -> None:
    before = _state()
    for _ in range(2):  # a run leaves nothing for the next
        assert local(program, 3).values == [0, 1, 2]
    assert _state() == before


def _state() -> list[Any]:
    kept = programs_with_state
    values = [dict(vars(kept)), dict(vars(kept.Config)), list(kept.SEEN), kept.WEIGHT.item(), kept.MODEL.weight.item()]
    process = [dict(os.environ), list(sys.argv), sys.stdout, sys.stderr, print, dist.all_reduce, F.relu, gc.isenabled()]
    settings = [torch.get_default_dtype(), torch.get_float32_matmul_precision(), list(warnings.filters)]
    patched = [dict(vars(one)) for one in PATCHED]
    return [*values, *process, *settings, *patched, len(logging.getLogger("programs_that_hide_state").handlers)]


def _alone(program: Callable[[], Any]) -> Any:
    exchanged = (builtins, "print"), (F, "relu"), (dist, "all_reduce")
    before = [getattr(*one) for one in exchanged]
    try:
        return program()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        for one, value in zip(exchanged, before, strict=True):
            setattr(*one, value)


def all_of_the_table() -> list[Any]:
    programs_with_state.make_model()
    with libraries_as_they_were():
        return [_alone(program) for program in TABLE + HIDDEN + PATCHING + CHANGING]


def test_processes_of_their_own_return_the_same() -> None:
    assert gloo(all_of_the_table, 3).values == [[rank] * len(TABLE + HIDDEN + PATCHING + CHANGING) for rank in range(3)]


def test_variables_of_an_enclosing_function() -> None:
    count, seen = -1, []

    def keep() -> tuple[int, list[int]]:
        nonlocal count
        count = dist.get_rank()
        seen.append(count)
        dist.barrier()
        return count, seen

    assert local(keep, 3).values == [(rank, [rank]) for rank in range(3)]
    assert (count, seen) == (-1, [])


@pytest.mark.parametrize("kind", ["method", "partial", "object"])
def test_an_object_that_is_called_is_each_ranks_own(kind: str) -> None:
    class Called(programs_with_state.Config):
        def __call__(self) -> int:
            return self.keep()

    own = Called()
    fn = {"method": own.keep, "partial": functools.partial(Called.keep, own), "object": own}[kind]
    assert local(fn, 3).values == [0, 1, 2]
    assert own.own == -1


MODULE = """
import functools
import torch.distributed as dist
RANK, SEEN = -1, []
class Group:
    rank = -1
def set_rank():
    global RANK
    RANK = dist.get_rank()
@functools.cache
def rank():
    return dist.get_rank()
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder on the path with a module and a package of a student."""
    (tmp_path / "student_parallel.py").write_text(MODULE)
    (tmp_path / "student_package").mkdir()
    (tmp_path / "student_package/__init__.py").write_text("")
    (tmp_path / "student_package/state.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def use(module: Any) -> list[int]:
    module.RANK = dist.get_rank()
    module.SEEN.append(dist.get_rank())
    module.Group.rank = dist.get_rank()
    dist.barrier()
    set_by_attribute = module.RANK
    module.set_rank()
    dist.barrier()
    return [set_by_attribute, module.RANK, sum(module.SEEN), module.Group.rank, module.rank()]


def test_modules_of_the_program(files: Path) -> None:
    module = importlib.import_module("student_parallel")

    def by_name() -> list[int]:
        return use(module)

    for _ in range(2):
        assert local(by_name, 3).values == [[rank] * 5 for rank in range(3)]
    assert (module.RANK, module.SEEN, module.Group.rank, module.rank.cache_info().currsize) == (-1, [], -1, 0)


def test_modules_that_the_ranks_import(files: Path) -> None:
    def imports() -> list[list[int]]:
        import student_package.state  # type: ignore[import-not-found]
        import student_parallel  # type: ignore[import-not-found]

        return [use(student_parallel), use(student_package.state), use(sys.modules["student_package.state"])]

    for _ in range(2):
        assert local(imports, 3).values == [
            [[rank] * 5, [rank] * 5, [rank, rank, 2 * rank, rank, rank]] for rank in range(3)
        ]
    assert not {"student_parallel", "student_package", "student_package.state"} & set(sys.modules)


def test_other_modules_are_no_part_of_the_program() -> None:
    """Load one that nobody names, whose variables have the names of the program's attributes."""
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    unrelated = ModuleType("unrelated")
    unrelated.barrier = unrelated.get_rank = deep  # type: ignore[attr-defined]
    sys.modules["unrelated"] = unrelated
    try:
        assert local(programs_with_state.rebound_global, 3).values == [0, 1, 2]
        with pytest.raises(RanksError, match="'barrier' is too large or too deeply nested"):
            local(lambda: (unrelated.get_rank, dist.barrier()), 3)
    finally:
        del sys.modules["unrelated"]
        while deep:
            deep = deep[0]  # Python frees no list of this depth at once


def test_current_folder(tmp_path: Path) -> None:
    def changes() -> str:
        folder = tmp_path / str(dist.get_rank())
        folder.mkdir()
        os.chdir(folder)
        dist.barrier()
        return Path.cwd().name

    before = Path.cwd()
    assert local(changes, 3).values == ["0", "1", "2"]
    assert Path.cwd() == before


def test_state_is_restored_after_a_failure() -> None:
    def fails() -> None:
        programs_with_state.rebound_global()
        programs_with_state.list_in_a_global()
        if dist.get_rank() == 2:
            raise ValueError
        dist.barrier()

    def waits() -> None:
        programs_with_state.rebound_global()
        dist.recv(torch.zeros(1), 1 - dist.get_rank())

    for run, size, error in ((fails, 3, ranks.RankError), (waits, 2, ranks.DeadlockError)):
        with pytest.raises(error):
            local(run, size)
        assert (programs_with_state.RANK, programs_with_state.SEEN) == (-1, [])


def test_an_iterator_for_all_ranks_is_refused_by_name() -> None:
    def takes() -> int:
        return next(programs_with_state.ITEMS)

    with pytest.raises(RanksError, match=r"'ITEMS' is one generator for all ranks.*make it on the ranks"):
        local(takes, 2)
    assert next(programs_with_state.ITEMS) == 0


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_default_arguments_of_torch_hold_no_ranks_group() -> None:
    """Run the call that hung, and left a wrong result for the run after it."""
    sys.modules.pop("torch.distributed.nn.functional", None)
    sys.modules.pop("torch.distributed.nn", None)

    def late() -> float:
        import torch.distributed.nn.functional as nf

        return float(nf.all_reduce(torch.ones(1)).item())

    for _ in range(2):
        assert local(late, 4).values == [4.0] * 4


def test_a_group_of_another_rank_or_run_is_named() -> None:
    """Leave a group in torch under a name that the code does not have, so that all ranks share it."""

    def name() -> str:
        return "leaked"[:4]

    def uses(makes: bool) -> None:
        if makes and dist.get_rank() == 0:
            vars(torch)[name()] = dist.group.WORLD
        dist.barrier()
        dist.all_reduce(torch.ones(1), group=vars(torch)[name()])

    try:
        for makes in (True, False):
            with pytest.raises(ranks.RankError, match="uses a group that rank 0 of this or an earlier run") as caught:
                local(uses, 3, makes)
            assert caught.value.line == line_of(uses, "all_reduce")
    finally:
        del vars(torch)[name()]
    assert local(dist.get_rank, 3).values == [0, 1, 2]


def test_a_mesh_is_of_its_rank() -> None:
    """Shard unevenly twice: torch keeps the steps between layouts for each mesh, and they differ by rank."""

    def steps() -> list[int]:
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # a second, for every worker

        mesh = init_device_mesh("cpu", (2, 2))
        shards = distribute_tensor(torch.arange(35.0).view(5, 7), mesh, [Shard(0), Shard(0)])
        return [int(shards.to_local().sum()), int(shards.redistribute(placements=[Shard(0), Replicate()]).sum())]

    assert local(steps, 4).values == gloo(steps, 4).values


def test_a_thread_that_runs_on_is_named() -> None:
    """One that has ended, or waits in a library for work, sees nobody's globals."""

    def leaves_one_running() -> None:
        over = threading.Event()

        def looks() -> None:
            while not over.is_set():
                time.sleep(0.001)  # asks

        thread = threading.Thread(target=looks)
        thread.start()
        dist.barrier()
        over.set()
        thread.join()

    def leaves_none() -> int:
        with ThreadPoolExecutor(1) as pool:
            number = pool.submit(dist.get_rank).result()
            dist.barrier()
        return number

    (finding,) = local(leaves_one_running, 2).trace.findings  # rank 1 comes last and does not stop at the barrier
    assert finding.startswith("a thread of rank 0 runs on while other ranks have their turn")
    assert "while not over.is_set()" in finding or "# asks" in finding
    run = local(leaves_none, 3)
    assert (run.values, run.trace.findings) == ([0, 1, 2], ())


def test_a_class_that_nobody_can_change_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cython keeps its generators' class in a module without a file, which looks like one of a program."""
    honest = program.belongs
    monkeypatch.setattr(program, "belongs", lambda module: module.__name__ == "builtins" or honest(module))
    held, own = type(iter([])), type("Own", (), {"count": 0})

    def use() -> object:
        return held, own

    found = program.find_program(use, [])
    assert held not in found.classes
    assert own in found.classes
