"""The cache of compiled kernels: shared between processes, on a full disk, with files removed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.cache import Cache
from mlsys_labkit.cuda.kernel.backends import module
from mlsys_labkit.cuda.kernel.gcc.flags import Build
from mlsys_labkit.cuda.kernel.gcc.headers import precompiled
from mlsys_labkit.cuda.kernel.gcc.module import CompiledModule, compile_module
from mlsys_labkit.cuda.kernel.gcc.toolchain import find_toolchain
from mlsys_labkit.cuda.kernel.gcc.unit import Unit
from mlsys_labkit.cuda.kernel.simulator import runtime
from tests.cuda.compile_helpers import FILL, fake_compiler, version

RACE = """
import os, sys
from mlsys_labkit import cuda
import numpy as np
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        kernel = cuda.compile(sys.argv[1], backend="simulator", graded=True)
        x = np.zeros(4, np.int32)
        assert kernel.check[1, 4](x, 7) == [] and (x == 7).all(), x
        sys.exit()
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
"""


@pytest.mark.parametrize("made", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["kernel", "runtime too"])
def test_processes_that_compile_the_same_never_collide(tmp_path: Path, made: bool) -> None:
    """The processes compile a kernel at the same time, and the simulator's runtime, which takes 15 CPU seconds."""
    environment = {**os.environ, "LABKIT_CUDA_CACHE": str(tmp_path)}
    # Without the headers that every test uses, which take seconds: entries that processes make at once have test_cache.
    header = precompiled(Build.INSTRUMENTED, find_toolchain(), Cache()).parent
    for entry in (header, runtime.worker().parent) if made else (header,):
        shutil.copytree(entry, tmp_path / entry.name)
    command = [sys.executable, "-c", RACE, FILL]  # the processes fork: they need not import all again
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    names = [path.name for path in tmp_path.iterdir()]
    assert not [name for name in names if "making" in name or name.endswith(".lock")]
    assert len([name for name in names if name.startswith("kernel-")]) == 1  # a graded kernel needs one build


def test_graded_kernel_compiles_its_fast_build_only_for_a_plain_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    builds: set[Build] = set()

    def recorded(unit: Unit, build: Build, *rest: Any, **options: Any) -> CompiledModule:
        builds.add(build)
        return compile_module(unit, build, *rest, **options)

    monkeypatch.setattr(module, "compile_module", recorded)
    kernel = cuda.compile(FILL + "// graded", backend="simulator", graded=True)
    x = np.zeros(4, np.int32)
    assert kernel.check[1, 4](x, 7) == []
    assert kernel.profile[1, 4](x, 7).bytes_written == 16
    assert builds == {Build.INSTRUMENTED}
    kernel[1, 4](x, 8)
    assert (x == 8).all()
    assert builds == {Build.INSTRUMENTED, Build.FAST}


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "No space left on device"),
        (errno.EROFS, "Read-only file system"),
        (errno.EACCES, "Permission denied"),
    ],
)
def test_a_disk_that_cannot_be_written(number: int, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A patched system call that fails, because root can write to every folder."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setenv("LABKIT_CUDA_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(cuda.CudaError) as caught:
        cuda.compile(FILL + "// elsewhere", backend="simulator")
    assert f"cannot be kept in {tmp_path / 'kernels'}: {said}; free some space there" in str(caught.value)
    assert "LABKIT_CUDA_CACHE" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_disk_that_fills_up_while_g_plus_plus_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_compiler(
        tmp_path / "bin",
        "g++",
        version("12.2.0") + '\necho "fatal error: closing /tmp/x: No space left on device"; exit 1',
    )
    monkeypatch.setenv("CXX", str(tmp_path / "bin" / "g++"))
    monkeypatch.setenv("LABKIT_CUDA_CACHE", str(tmp_path / "kernels"))
    with pytest.raises(cuda.CudaError, match="No space left on device"):
        cuda.compile(FILL, strict=False, backend="simulator")


def test_a_kernel_whose_file_was_cleaned_away_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = cuda.compile(FILL + "// cleaned away", backend="simulator")
    x = np.zeros(4, np.int32)
    kernel[1, 4](x, 1)
    for path in Cache().folder.glob("kernel-*/kernel.cu"):
        if "cleaned away" in path.read_text():
            (path.parent / "kernel.so").unlink()
            path.unlink()
            path.parent.rename(path.parent.with_name("gone"))
            subprocess.run(["rm", "-r", str(path.parent.with_name("gone"))], check=True)
    with pytest.raises(cuda.CudaError):
        cuda.compile("__global__ void f() { abort(); }", backend="simulator")[1, 1]()
    monkeypatch.setattr("mlsys_labkit.cuda.kernel.backends.module._LOOK_SECONDS", 0.0)
    kernel[1, 4](x, 2)
    np.testing.assert_array_equal(x, [2] * 4)
