"""A whole program that sets attributes on libraries, also through files that are not beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from mlsys_labkit import ranks

PATCHES = """
import rlcompleter  # which nothing else imports
import torch, torch.distributed as dist
from torch import nn
import beside
from on_the_path import hooks

dist.init_process_group("gloo")
rank = dist.get_rank()
hooks.install()
dist.barrier()
dist.all_reduce(torch.ones(1))
assert hooks.calls == ["all_reduce"] and len(hooks.log.handlers) == 1, (hooks.calls, hooks.log.handlers)
nn.Linear.forward = lambda self, x: x + rank
rlcompleter.Completer.own_rank = rank
beside.patch(nn.Bilinear)
dist.barrier()
values = [int(nn.Linear(1, 1)(torch.zeros(1))), rlcompleter.Completer.own_rank, nn.Bilinear.own_rank]
assert values == [rank] * 3, values
"""


HOOKS = """
import logging
import torch.distributed as dist
from torch import nn

calls, real, log = [], dist.all_reduce, logging.getLogger("student")
def counted(*given, **named):
    calls.append("all_reduce")
    return real(*given, **named)

def install():
    for name in ("own_rank", "own_size"):
        setattr(nn.Embedding, name, dist.get_rank())
    log.addHandler(logging.NullHandler())
    dist.all_reduce = counted
    dist.barrier()
    assert nn.Embedding.own_rank == nn.Embedding.own_size == dist.get_rank()
"""


def test_what_a_program_sets_on_libraries_is_each_ranks_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "else/where/on_the_path").mkdir(parents=True)
    (tmp_path / "else/where/on_the_path/hooks.py").write_text(HOOKS)
    monkeypatch.syspath_prepend(str(tmp_path / "else/where"))
    (tmp_path / "program.py").write_text(PATCHES)
    beside = "import torch.distributed as dist\ndef patch(kind):\n    kind.own_rank = dist.get_rank()\n"
    (tmp_path / "beside.py").write_text(beside)
    sys.modules.pop("rlcompleter", None)
    before = torch.nn.Linear.forward
    ranks.run_program(tmp_path / "program.py", 3, "local", quiet=True)
    assert torch.nn.Linear.forward is before
    assert not hasattr(torch.nn.Bilinear, "own_rank")
