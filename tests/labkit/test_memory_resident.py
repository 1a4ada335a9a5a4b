"""The resident set of a traced process, by which graders count memory."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import python

F32 = 4

GROWING_BUFFERS = """
import torch
from mlsys_labkit.memory import call_traced
from mlsys_labkit.memory.process import resident_bytes

def growth():
    before, most, kept = resident_bytes(), 0, []
    for turn in range(400):
        whole = torch.ones(65536 + 2048 * turn)
        twice = whole * 2
        kept.append([float(twice[0])])
        del whole, twice
        most = max(most, resident_bytes() - before)
    return most

torch.set_num_threads(1)
large = torch.ones(1 << 20) * 2
del large  # glibc now keeps buffers of 4 MB on the heap
most, trace = call_traced(growth)
print(most, trace.peak_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_buffers_leave_the_process_while_it_is_traced():
    """The resident set, by which graders count, grows by what is alive; a heap would keep what was freed, too."""
    done = python(GROWING_BUFFERS)
    most, peak = map(int, done.stdout.split())
    assert peak == 2 * F32 * (65536 + 2048 * 399)
    assert most < 2 * peak
