"""Programs that start their ranks themselves. The oracle is the same file run by plain Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlsys_labkit import ranks
from mlsys_labkit._frontends.cli import main as labkit

TRAIN = """
import os, sys
import torch, torch.distributed as dist
import torch.multiprocessing as mp
from torch.multiprocessing import Process, spawn

def work(rank, size, answer):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/{answer}", rank=rank, world_size=size)
    total = torch.full((2,), rank + 1.0)
    dist.all_reduce(total)
    with open(f"{answer}-{rank}", "w") as file:
        print(total.tolist(), size, file=file)
    dist.destroy_process_group()

def by_spawn():
    spawn(work, (2, "spawn"), nprocs=2)
    context = mp.spawn(work, args=(2, "context"), nprocs=2, join=False)
    while not context.join():
        pass

def by_processes():
    mp.set_start_method("spawn", force=True)
    processes = [Process(target=work, args=(rank, 2, "process")) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]

if __name__ == "__main__":
    for way in sys.argv[1:]:
        {"spawn": by_spawn, "process": by_processes}[way]()
"""


@pytest.mark.xdist_group("rank-processes")
def test_a_program_that_starts_its_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, ways, answers = [], ("spawn", "process"), ("spawn", "context", "process")
    for runner in ("python", "local", "gloo"):
        folder = tmp_path / runner
        folder.mkdir()
        monkeypatch.chdir(folder)
        file = folder / "train.py"
        file.write_text(TRAIN)
        if runner == "python":
            ended = subprocess.run([sys.executable, file, *ways], capture_output=True, text=True)
            assert ended.returncode == 0, ended.stderr
        else:
            run = ranks.run_program(file, 2, runner, args=ways, quiet=True)  # type: ignore[arg-type]
            assert run.trace.collectives(0)["all_reduce"] == len(answers)
        found.append(
            {name: (folder / name).read_text() for answer in answers for name in (f"{answer}-0", f"{answer}-1")}
        )
    assert found[0] == found[1] == found[2]
    assert set(found[0].values()) == {"[3.0, 3.0] 2\n"}


WRONG = {
    "mp.spawn(work, nprocs=3)": "the program starts 3 processes of its own, and this run has 2 ranks",
    "p = mp.Process(target=work, args=(0,)); p.start(); p.join()": "the program starts 1 processes of its own",
    "mp.spawn(work, (mp.get_context('spawn').SimpleQueue(),), nprocs=2)": "the program's processes share a SimpleQueue",
    "mp.spawn(work, (torch.zeros(1).share_memory_(),), nprocs=2)": "the program's processes share a Tensor",
    "mp.spawn(raises, nprocs=2)": "rank 0 raised ValueError: as a student",
}


@pytest.mark.parametrize("call", WRONG)
def test_what_a_run_has_no_processes_for_is_named(call: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import torch\nimport torch.multiprocessing as mp\ndef work(rank, *args): pass\n"
        f"def raises(rank): raise ValueError('as a student')\n{call}\n"
    )
    assert labkit(["torchrun", "--nproc", "2", "--backend", "local", str(file)]) == 2
    assert WRONG[call] in capfd.readouterr().err


def test_other_processes_are_started(tmp_path: Path) -> None:
    """A data loader's workers are numbered, too; and a process without a rank is one."""
    file = tmp_path / "train.py"
    file.write_text(
        "import multiprocessing, os, torch\n"
        "def other(number, queue): queue.put(os.getpid())\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, at): return os.getpid()\n"
        "torch.distributed.init_process_group()\n"
        "if int(os.environ['RANK']) == 0:\n"
        "    context = multiprocessing.get_context('fork')\n"
        "    queue = context.SimpleQueue()\n"
        "    process = context.Process(target=other, args=(0, queue))\n"
        "    process.start()\n"
        "    process.join()\n"
        "    assert queue.get() != os.getpid() and process.exitcode == 0\n"
        "    loader = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context='fork')\n"
        "    assert os.getpid() not in [int(batch) for batch in loader]\n"
    )
    assert ranks.run_program(file, 2, "local", quiet=True).values == [0, 0]
