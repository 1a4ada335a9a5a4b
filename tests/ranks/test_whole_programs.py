"""Whole programs on many ranks: the same files under torchrun itself, which is the oracle, and under the kit."""

from __future__ import annotations

import atexit
import gc
import signal
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import init_process_group
from torch.nn.parallel import DistributedDataParallel

from mlsys_labkit import ranks
from mlsys_labkit._frontends.cli import main as labkit
from mlsys_labkit.errors import RanksError
from tests.ranks.run_helpers import gloo, local

TRAIN = """
import argparse, os, sys
import torch, torch.distributed as dist
from torch.distributed import init_process_group
from torch.nn.parallel import DistributedDataParallel
import student_state

RANK = None
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)

def main():
    global RANK
    steps = parser.parse_args().steps
    init_process_group("gloo")
    RANK = student_state.RANK = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(RANK)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE")
    print(RANK, student_state.rank(), f"{loss.item():.5f}", f"{sum(p.sum().item() for p in model.parameters()):.5f}")
    print([os.environ[name] for name in names], dist.is_torchelastic_launched(), os.path.basename(sys.argv[0]))
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""

MESH = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
torch.manual_seed(mesh.get_rank())
for _ in range(3):
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"{sum(p.full_tensor().double().sum().item() for p in model.parameters()):.5f}")
dist.destroy_process_group()
"""


# What programs for GPUs say, whether they ask first or not. Its numbers are those of MESH and TRAIN.
CUDA = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["LOCAL_RANK"])
device = f"cuda:{rank}"
torch.cuda.set_device(device)
dist.init_process_group("nccl")
assert torch.cuda.device_count() == torch.accelerator.device_count() == 2
assert (torch.cuda.current_device(), torch.accelerator.is_available()) == (rank, True)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1).to(rank), device_ids=[rank])
torch.manual_seed(rank)
for data in (torch.randn(8, 4).cuda(), torch.randn(8, 4).pin_memory().to(device, non_blocking=True)):
    model(data).square().mean().backward()
dist.all_reduce(torch.zeros(1, device=torch.device("cuda", rank)))
dist.all_reduce(torch.zeros(1, device=rank))
stream, begin, end = torch.cuda.Stream(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
begin.record()
with torch.cuda.stream(stream), torch.cuda.nvtx.range("reduce"), torch.autocast("cuda", dtype=torch.bfloat16):
    stream.wait_stream(torch.cuda.current_stream())
    assert model.module(torch.ones(1, 4, device=device)).dtype == torch.bfloat16
    torch.ones(1, device=device).record_stream(stream)
end.record(stream)
assert end.query() and begin.elapsed_time(end) > 0
torch.save(model.state_dict(), f"{rank}.pt")
dist.barrier()
kept = torch.load("0.pt", map_location={"cuda:0": device})
torch.cuda.synchronize()
mesh = dist.init_device_mesh("cuda", (2,))
print(f"{model.module.weight.grad.sum().item() + kept['module.bias'].item():.5f} {mesh.size()}")
dist.destroy_process_group()
"""

PACKAGE = """
import atexit, os, sys
import torch, torch.distributed as dist
from . import state

@atexit.register
def last():
    print("last", state.RANK, dist.is_initialized())

def told(*given, end):
    print("told", *given, end)

dist.init_process_group("gloo")
state.RANK = dist.get_rank()
atexit.register(dist.destroy_process_group)
atexit.register(told, state.RANK, end="!")
atexit.register(print, "never")
atexit.unregister(print)
total = torch.tensor([1.0 + state.RANK])
dist.all_reduce(total)
print(state.__name__, __name__, __package__, total.item(), sys.argv[1:], os.path.basename(sys.argv[0]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("student_package", "student_package/inner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "state.py").write_text("RANK = None\n")
    (tmp_path / "student_package" / "train.py").write_text(PACKAGE)
    (tmp_path / "student_package" / "inner" / "__main__.py").write_text(PACKAGE)
    (tmp_path / "student_state.py").write_text("RANK = None\ndef rank():\n    return RANK\n")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "mesh.py").write_text(MESH)
    return tmp_path


@pytest.mark.xdist_group("rank-processes")
@pytest.mark.parametrize(
    ("file", "size", "arguments"),
    [
        ("train.py", 2, ("--steps", "4")),
        ("mesh.py", 2, ()),
        ("student_package.train", 2, ("a", "--b")),
        ("student_package.inner", 1, ()),
        ("student_package.inner.__main__", 1, ()),
    ],
)
def test_a_program_prints_what_it_prints_under_torchrun(
    folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, size: int, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(folder)
    from torch.distributed.run import main as torchrun  # the command, without an interpreter that imports torch again

    module = not file.endswith(".py")
    words = ["--standalone", "--nproc-per-node", str(size), "--redirects", "1", "--log-dir", str(folder / "logs")]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # torchrun sets it
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        torchrun([*words, *(["-m"] if module else []), file, *arguments])
    finally:  # torchrun's own stay
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
    expected = [path.read_text() for path in sorted(folder.glob("logs/*/attempt_0/*/stdout.log"))]
    assert len(expected) == size
    for backend in ("local", "gloo"):
        run = ranks.run_program(file, size, backend, args=arguments, module=module, quiet=True)  # type: ignore[arg-type]
        assert run.outputs == expected
        assert run.values == [0] * size
    assert run.trace.collectives(0)["all_reduce"] + run.trace.collectives(0)["reduce_scatter"] > 0


def test_what_a_rank_left_to_its_end_runs_once_and_raises_to_nobody(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("import atexit\natexit.register(print, 'last')\natexit.register(lambda: 1 / 0)\n")
    kept = atexit.register, atexit._ncallbacks()
    run = ranks.run_program(file, 2, "local", quiet=True)
    assert all("ZeroDivisionError" in text and text.endswith("\nlast\n") for text in run.outputs)
    assert (atexit.register, atexit._ncallbacks()) == kept
    left = tmp_path / "left"
    touch = f"import atexit, pathlib\natexit.register(pathlib.Path({str(left)!r}).touch)\n"
    file.write_text(f"{touch}raise ValueError('mine')")
    with pytest.raises(ranks.RankError, match="mine"):
        ranks.run_program(file, 2, "local", quiet=True)
    assert left.exists()


@pytest.mark.parametrize(
    ("module", "said"),
    [("nothing", "there is no module nothing in"), ("student_package", "there is no module student_package.__main__")],
)
def test_a_module_that_is_none_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: str, said: str
) -> None:
    monkeypatch.chdir(folder)
    assert labkit(["torchrun", "-m", module]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("call", ["torch.ones(1, device='cuda')", "torch.ones(1).cuda()", "torch.ones(1).to('cuda:0')"])
def test_a_line_says_that_cuda_is_the_cpu(call: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"import torch\nprint({call}.device)")
    run = ranks.run_program(tmp_path / "program.py", 2, "local", quiet=True)
    assert run.outputs[0].splitlines() == [
        "labkit: no GPU here; what the program puts on CUDA is on the CPU",
        "cpu",
    ]
    assert run.outputs[1] == "cpu\n"


def test_the_notebook_is_as_before(folder: Path) -> None:
    before = sys.modules["__main__"], list(sys.argv), list(sys.path), set(sys.modules)
    ranks.run_program(folder / "train.py", 3, "local", args=("--steps", 1), quiet=True)
    assert (sys.modules["__main__"], sys.argv, sys.path) == before[:3]
    assert "student_state" not in sys.modules


def test_modules_of_the_ranks_are_freed(folder: Path) -> None:
    (folder / "student_tensor.py").write_text("import torch\nHELD = torch.zeros(7)\n")
    (folder / "program.py").write_text("import student_tensor\nprint(id(student_tensor.HELD))\n")
    run = ranks.run_program(folder / "program.py", 2, "local", quiet=True)
    gc.collect()
    left = {id(one) for one in gc.get_objects() if type(one) is torch.Tensor and one.shape == (7,)}
    assert not left & {int(text) for text in run.outputs}


def test_init_process_group_finds_the_group_of_the_run() -> None:
    def program() -> int:
        init_process_group("nccl")  # by name, from the time before the run
        return dist.get_rank()

    for run in (local, gloo):
        assert run(program, 2).values == [0, 1]
    with pytest.raises(ranks.RankError, match="world_size=8; on this rank it is 2"):
        local(lambda: dist.init_process_group("gloo", rank=0, world_size=8), 2)
    with pytest.raises(ranks.RankError, match="twice"):
        local(lambda: [dist.init_process_group("gloo") for _ in range(2)], 2)


@pytest.mark.xdist_group("rank-processes")
def test_a_destroyed_group_can_be_made_again() -> None:
    """A message of an earlier group, which nobody received, belongs to no later one."""

    def program() -> list[float]:
        rank, found = dist.get_rank(), []
        for number in range(3):
            dist.init_process_group("gloo", rank=rank, world_size=3)
            pair = dist.new_group([0, 1])
            value = torch.tensor([float(rank + number)])
            dist.all_reduce(value)
            if rank < 2:
                dist.all_reduce(value, group=pair)
            if rank == 0:
                sent = dist.isend(torch.tensor([float(number)]), 1)
            if number == 2:  # gloo drops what is on its way when a handle or a group ends
                if rank == 0:
                    sent.wait()
                elif rank == 1:
                    dist.recv(value, 0)
                dist.barrier()
            found.append(value.item())
            dist.destroy_process_group()
        return found

    assert local(program, 3).values == [[6.0, 12.0, 18.0], [6.0, 12.0, 2.0], [3.0, 6.0, 9.0]]
    assert gloo(program, 3).values[2] == [3.0, 6.0, 9.0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.xdist_group("rank-processes")
def test_a_program_for_gpus_runs_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "program.py"
    file.write_text(CUDA)
    functions = torch.cuda.set_device, torch.load, DistributedDataParallel.__init__, torch.nn.Module.to
    shown = [ranks.run_program(file, 2, backend, quiet=True).outputs for backend in ("local", "gloo")]  # type: ignore[arg-type]
    assert shown[0] == shown[1]
    assert "no GPU here; what the program puts on CUDA is on the CPU" in shown[0][0]

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    for rank in range(2):
        torch.manual_seed(rank)
        for data in (torch.randn(8, 4), torch.randn(8, 4)):
            (model(data).square().mean() / 2).backward()
    expected = model.weight.grad.sum().item() + model.bias.item()  # type: ignore[union-attr]
    assert [float(text.split()[-2]) for text in shown[0]] == pytest.approx([expected] * 2, abs=2e-5)
    assert not torch.cuda.is_available()
    assert (torch.cuda.set_device, torch.load, DistributedDataParallel.__init__, torch.nn.Module.to) == functions


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nproc-per-node=2", "--tee", "3", "--local-ranks-filter=0"],
        ["--nproc_per_node", "2", "--standalone", "--nnodes=1"],
    ],
)
def test_the_command_takes_torchruns_options(
    folder: Path, arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["torchrun", "--backend", "local", "--trace", *arguments, str(folder / "train.py"), "--steps", "1"]
    assert labkit(words) == 0
    shown = capfd.readouterr().out
    assert "0 0 " in shown
    assert "all_reduce x1" in shown


ERRORS = {
    "def f(:": "program.py, line 1: invalid syntax",
    "import sys\nsys.exit(3)": "rank 0 called sys.exit(3)",
    "import torch, torch.distributed as dist\ndist.recv(torch.ones(1), 1 - dist.get_rank())":
    "rank 0 waits for rank 1 to send (program.py:2",
    "import apex": "No module named 'apex'",
    "import torch\ntorch.cuda.CUDAGraph()": "this machine has no GPU, and this call no stand-in",
}  # fmt: skip


@pytest.mark.parametrize("source", ERRORS, ids=["syntax", "exit", "deadlock", "import", "cuda"])
def test_a_program_that_fails_ends_in_a_line(source: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if "cuda" in source and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    file = tmp_path / "program.py"
    file.write_text(source)
    assert labkit(["torchrun", "--nproc", "2", "--backend", "local", str(file)]) == 2
    assert ERRORS[source] in capfd.readouterr().err


def test_messages_that_nobody_received_make_the_command_fail(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "import torch, torch.distributed as dist\ndist.init_process_group()\n"
        "if dist.get_rank() == 0:\n    dist.isend(torch.ones(1), 1)\n"
    )
    assert labkit(["torchrun", "--backend", "local", str(file)]) == 1
    assert "rank 0 sends to rank 1, which never receives it" in capfd.readouterr().out


def test_what_cannot_be_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RanksError, match=r"none\.py cannot be run as a program: .*No such file"):
        ranks.run_program(tmp_path / "none.py", 2)
    file = tmp_path / "program.py"
    file.touch()
    assert labkit(["torchrun", "--nnodes", "2", str(file)]) == 2
    assert "all ranks run on this machine" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        labkit(["torchrun", "--nproc", "many", str(file)])
    assert "expected a whole number from 1, got 'many'" in capsys.readouterr().err
