"""Errors of NVIDIA's compiler: complaints at a student's line, and a compiler that is missing or fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlsys_labkit.cuda.errors import CudaCompileError, CudaError
from mlsys_labkit.cuda.nvidia import libraries, nvrtc
from mlsys_labkit.cuda.nvidia.diagnostics import read_log
from mlsys_labkit.errors import MissingExtraError
from tests.cuda.nvrtc_helpers import NEEDS_NVRTC, ONE, complaints

pytestmark = [NEEDS_NVRTC, pytest.mark.usefixtures("nvrtc_cache")]


def test_a_complaint_points_at_the_students_line_and_column() -> None:
    (found,) = nvrtc.check("__global__ void k(float* a) {\n\t a[0] = 1;\n  a[1] = missing;\n}", "k")
    assert (found.line, found.column) == (3, 10)
    assert found.source_line == "  a[1] = missing;"
    assert found.text == 'identifier "missing" is undefined'
    assert str(found) == 'line 3: identifier "missing" is undefined: a[1] = missing;'


@pytest.mark.parametrize(
    ("line", "column", "text"),
    [
        ("\ta[0] = y;", 9, 'identifier "y" is undefined'),  # a tab counts one, as in an editor's column
        ("a[0] = 1", 1, 'expected a ";", here or on the line above'),  # on the next line, where it is missed
        ("# a remark", None, "unrecognized preprocessing directive; a comment in C++ begins with //"),
        ("/* 中文 é */ a[0] = y;", 19, 'identifier "y" is undefined'),  # characters, not bytes
        ("a.x = 3;", 1, 'expression must have class type but it has type "float *"'),
        ("host_only();", 1, 'identifier "host_only" is undefined'),
        ("std::vector<int> v;", None, None),
        ("throw 3;", None, None),
    ],
)
def test_where_complaints_point(line: str, column: int | None, text: str | None) -> None:
    found = complaints(f"__global__ void k(float* a) {{\n{line}\n}}", "k")
    assert found
    assert all(2 <= at <= 3 for at, _, _ in found)
    if column is not None:
        assert found[0][1] == column
    if text is not None:
        assert found[0][2] == text


def test_complaints_are_in_the_order_of_the_lines() -> None:
    found = complaints("__global__ void k(float* a) {\n a[0] = u;\n a[1] = 2;\n int unused;\n a[2] = v;\n}", "k")
    assert [line for line, _, _ in found] == [2, 5]  # and no word about the unused variable: it compiles


def test_an_open_bracket_is_reported_at_the_last_line() -> None:
    (found,) = nvrtc.check("__global__ void k(float* a) {\n  a[0] = 1;\n", "k")
    assert found.line == 3
    assert found.text == 'expected a "}"'


def test_too_much_shared_memory_is_the_assemblers_complaint() -> None:
    source = "__global__ void k(float* a) { __shared__ float s[20000]; s[threadIdx.x] = a[0]; a[1] = s[5]; }"
    (found,) = nvrtc.check(source, "k")
    assert found.line == 0
    assert "uses too much shared data (0x13880 bytes, 0xc000 max)" in found.text


def test_an_unknown_kernel_name_is_reported_without_a_line() -> None:
    found = nvrtc.check(ONE, "two")
    assert found[0].line == 0
    assert 'identifier "two" is undefined' in found[0].text


def test_the_error_shows_the_first_complaints_and_carries_all() -> None:
    wrong = "\n".join(f"x[{index}] = missing{index};" for index in range(8))
    with pytest.raises(
        CudaCompileError, match=r'(?s)^line 2: identifier "missing0" is undefined.*and 3 more$'
    ) as caught:
        nvrtc.compile(f"__global__ void k(float* x) {{\n{wrong}\n}}", "k")
    assert len(caught.value.diagnostics) == 8
    assert len(str(caught.value).splitlines()) == 6


def test_a_log_with_a_header_keeps_its_name() -> None:
    log = 'cuda_fp16.hpp(12): error: no instance of "f"\n    f(x);\n    ^\n\n1 error detected.\n'
    (one,) = read_log(log, "kernel.cu", ONE)
    assert (one.diagnostic.file, one.diagnostic.line, one.diagnostic.column) == ("cuda_fp16.hpp", 12, 3)


# --- When something is missing ------------------------------------------------------------------------------------


def test_an_unknown_architecture_lists_the_known() -> None:
    with pytest.raises(CudaError, match=r"does not compile for 'sm_70'; it knows sm_75, .*sm_90"):
        nvrtc.compile(ONE, "one", "sm_70")
    with pytest.raises(CudaError, match="does not compile for 'h100'"):
        nvrtc.compile(ONE, "one", "h100")


def test_without_nvrtc_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_wheel_folders", lambda kind: iter(()))
    monkeypatch.setattr(libraries, "_toolkit_folders", lambda *kinds: iter(()))
    monkeypatch.setenv("PATH", "")
    assert not nvrtc.available()
    with pytest.raises(
        MissingExtraError, match=r"^NVRTC, .* is not installed; run: pip install 'mlsys-labkit\[cuda\]'"
    ):
        nvrtc.check(ONE)
    with pytest.raises(MissingExtraError, match=r"^nvdisasm, .* run: pip install 'mlsys-labkit\[cuda\]'"):
        libraries.find_nvdisasm()


def test_the_newest_copy_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, folder in (("libnvrtc.so.12", "cuda_nvrtc"), ("libnvrtc.so.13", "cu13"), ("libnvrtc.alt.so.13", "cu13")):
        (tmp_path / "nvidia" / folder / "lib").mkdir(parents=True, exist_ok=True)
        (tmp_path / "nvidia" / folder / "lib" / name).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert libraries.find_nvrtc().library.name == "libnvrtc.so.13"
    assert libraries.find_nvrtc().builtins is None


def test_headers_come_from_a_folder_that_has_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchs, toolkit = tmp_path / "nvidia/cu13/include", tmp_path / "toolkit/include"
    for path in (torchs / "cuda_fp16.h", *(toolkit / name for name in ("cuda_fp16.h", "crt/mma.h", "cccl/nv/target"))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(libraries, "_toolkit_folders", lambda *kinds: iter((toolkit,)))
    assert libraries.toolkit_headers() == (toolkit, toolkit / "cccl")
    (toolkit / "crt/mma.h").unlink()
    assert libraries.toolkit_headers() == ()


def test_a_compiler_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_CUDA_COMPILE_SECONDS", "0.001")
    with pytest.raises(CudaCompileError, match=r"did not finish within 0\.001 s and was stopped"):
        nvrtc.compile("// a source of its own\n" + ONE, "one")


def test_a_compiler_that_crashes_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(CudaError, match=r"^NVRTC \(.*libnvrtc\.so\.13\) ended with 1: OSError: .*") as caught:
        nvrtc.compile(ONE, "one")
    assert "\n" not in str(caught.value)


def test_the_notebook_never_loads_the_compiler() -> None:
    """The compiler runs in a child process, so that its crash on a student's source leaves the notebook alive."""
    code = (
        "import sys; from mlsys_labkit.cuda.nvidia import nvrtc;"
        f"nvrtc.check({ONE!r}); maps = open('/proc/self/maps').read(); print('nvrtc' in maps)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert ran.stdout.strip() == "False"


def test_the_process_answers_without_the_kit(tmp_path: Path) -> None:
    found = libraries.find_nvrtc()
    request = {"library": str(found.library), "builtins": str(found.builtins) if found.builtins else None}
    command = [sys.executable, "-I", "-S", str(Path(libraries.__file__).with_name("nvrtc_process.py"))]
    ran = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "sm_90" in json.loads(ran.stdout)["architectures"]
