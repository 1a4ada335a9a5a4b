"""The cache of compiled files, shared by processes that know nothing of each other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

CODE = """
import sys
from pathlib import Path
from mlsys_labkit.cuda.build.cache import Cache

def fill(folder):
    (folder / "file").write_bytes(bytes(1000))

cache = Cache(Path(sys.argv[1]), limit_bytes=10_000)
for number in range(60):
    cache.fetch(f"{sys.argv[2]}-{number}", fill)
"""


def test_processes_that_drop_old_entries_at_once_do_not_trip_over_each_other(tmp_path: Path) -> None:
    long_ago = time.time() - 86_400
    for number in range(2000):
        entry = tmp_path / f"old-{number}"
        entry.mkdir()
        (entry / "file").write_bytes(bytes(1000))
        os.utime(entry, (long_ago, long_ago))
    running = [
        subprocess.Popen([sys.executable, "-c", CODE, str(tmp_path), name], stderr=subprocess.PIPE, text=True)
        for name in ("a", "b", "c")
    ]
    for process in running:
        said = process.communicate()[1]
        assert process.returncode == 0, said
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith("old-")]
    assert len(list(tmp_path.iterdir())) == 180, "what was made just now stays"
