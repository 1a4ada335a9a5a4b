"""Ends of a program run by ``run_program``: exit codes, crashes, limits and Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlsys_labkit.cuda import run_program
from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.program.build import sample_headers
from tests.cuda.program_helpers import HELLO, run


def test_the_program_is_ended_before_one_launch_too_many() -> None:
    result = run(HELLO, launch_limit=3)
    assert (len(result.launches), result.returncode) == (3, 124)
    assert "stopped after 3 launches" in result.stopped
    assert "stopped after 3 launches" in result.stderr


def test_a_program_that_does_not_end_is_ended() -> None:
    result = run("int main() { for (volatile int i = 0;; ++i) {} }", timeout=1)
    assert "stopped after 1 s" in result.stopped
    assert result.returncode == 124


@pytest.mark.parametrize("mode", ["run", "check", "profile"])
def test_a_kernel_that_does_not_end_is_a_cuda_error_and_a_finding(mode: str) -> None:
    source = """#include <cstdio>
__global__ void spin(volatile int* p) {
  while (*p == 0) {
  }
}
int main() {
  int* d;
  cudaMalloc(&d, 4);
  cudaMemset(d, 0, 4);
  spin<<<1, 1>>>(d);
  std::puts(cudaGetErrorName(cudaDeviceSynchronize()));
}"""
    result = run(source, timeout=1.5, check=mode == "check", profile=mode == "profile")
    assert result.stdout == "cudaErrorLaunchTimeout\n"
    assert "stopped after 1.5 s; pass timeout=" in result.stopped
    assert result.returncode == 124, "the program returned 0, but of a kernel that was cut off"
    assert result.stopped in result.stderr
    assert [finding.kind for finding in result.findings] == ["timeout"]
    assert result.findings[0].line in (2, 3)


GRID = """__global__ void work(volatile float* p, int stuck) {
  float sum = 0;
  for (int i = 0; i < 20000; ++i) {
    sum += p[threadIdx.x];
  }
  while (blockIdx.x == stuck && p[0] == 0) {
  }
  p[32 + threadIdx.x] = sum;
}
int main(int count, char** arguments) {
  float* p;
  cudaMalloc(&p, 256);
  cudaMemset(p, 0, 256);
  work<<<1 << 22, 32>>>(p, STUCK);
  cudaDeviceSynchronize();
}"""


@pytest.mark.parametrize("check", [False, True])
def test_a_grid_that_only_needs_longer_is_no_finding(check: bool) -> None:
    result = run(
        GRID.replace("STUCK", "-1").replace("20000", "200").replace("p[32 + threadIdx.x] = sum;", ""),
        check=check,
        timeout=3,
    )
    assert ("stopped after 3 s" in result.stopped, result.returncode) == (True, 124)
    assert [finding.kind for finding in result.findings] == []
    assert any("of its 4194304 blocks: it was slow, not stuck" in note for note in result.notes)


def test_one_block_that_is_stuck_is_a_finding_although_others_end() -> None:
    source = GRID.replace("STUCK", "3").replace("1 << 22", "200").replace("20000", "2")
    result = run(source, timeout=3)
    assert [finding.kind for finding in result.findings] == ["timeout"]
    assert result.findings[0].line in (6, 7)


def test_a_kernel_that_the_host_calls_as_a_function_is_named() -> None:
    source = """template <class F, class... A> void timed(F f, A... a) { f(a...); }
__global__ void scale(float* p) {
  p[0] *= 2;
}
int main() {
  float* d;
  cudaMalloc(&d, 4);
  timed(scale, d);
}"""
    result = run(source)
    assert result.returncode == -signal.SIGSEGV
    assert result.stopped.startswith("program.cu:3: the host calls the kernel scale as a function")


def test_host_code_that_follows_a_device_pointer_crashes_with_its_line() -> None:
    source = "#include <cstdio>\nint main() {\n  float* d;\n  cudaMalloc(&d, 400);\n  d[3] = 1;\n}"
    result = run(source)
    assert result.returncode == -signal.SIGSEGV
    assert result.stopped.startswith("program.cu:5: host code follows a pointer to device memory")


def test_the_line_is_reported_when_a_library_function_follows_it() -> None:
    body = "char h[64], *d;\n  cudaMalloc(&d, 64);\n  std::memcpy(h, d, 64);\n  return h[0];"
    source = f"#include <cstring>\nint main() {{ {body} }}"
    assert "device memory" in run(source).stopped


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("int* p = nullptr; *p = 1;", "SIGSEGV"),
        ("std::abort();", "SIGABRT"),
        ("throw 1;", "SIGABRT"),
        ("volatile int z = 0, y = 5; y = y / z;", "SIGFPE"),
    ],
)
def test_a_crash_of_host_code_is_one_line(body: str, words: str) -> None:
    result = run(f"#include <cstdlib>\nint main() {{ {body} }}")
    assert words in result.stopped
    assert "\n" not in result.stopped
    assert result.returncode < 0


def test_a_function_without_its_return_does_not_crash() -> None:
    source = "int setup(int n) { if (n > 5) return 1; }\nint main() { setup(1); setup(2); return 3; }"
    assert run(source).returncode == 3


def test_exit_codes_and_exit_calls_pass_through() -> None:
    assert run("int main() { return 7; }").returncode == 7
    assert run("#include <cstdlib>\n__global__ void k() {}\nint main() { k<<<1, 1>>>(); exit(9); }").returncode == 9


def test_output_beyond_the_limit_is_counted_not_kept() -> None:
    source = "#include <cstdio>\nint main() { for (int i = 0; i < 3000000; ++i) std::putchar('x'); }"
    result = run(source)
    assert len(result.stdout) < 1_100_000
    assert "more bytes" in result.stdout
    assert result.returncode == 0


def test_standard_input_is_empty_and_the_folder_is_the_files_own(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("42")
    program = tmp_path / "reader.cu"
    program.write_text(
        '#include <cstdio>\nint main() { int n = 0; FILE* f = fopen("data.txt", "r"); fscanf(f, "%d", &n);\n'
        'printf("%d %d %s", n, getchar(), __FILE__); }'
    )
    assert run_program(program, backend="simulator").stdout == f"42 {-1} reader.cu"


def test_ctrl_c_ends_the_program(tmp_path: Path) -> None:
    running = tmp_path / "running"
    program = f'#include <cstdio>\nint main() {{ fopen("{running}", "w"); for (volatile int i = 0;; ++i) {{}} }}'
    code = f"from mlsys_labkit.cuda import run_program\nrun_program({program!r}, backend='simulator', timeout=600)"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    while not running.exists():
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert b"KeyboardInterrupt" in said


def test_no_process_is_left_behind() -> None:
    result = run(
        '#include <cstdio>\n#include <unistd.h>\nint main() { if (fork() == 0) sleep(600); printf("%d", getpid()); }',
        timeout=2,
    )
    assert not Path(f"/proc/{result.stdout or 0}").exists() or result.stdout == ""


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which a stand-in for nvcc notes its arguments; what it builds prints "on the GPU"."""
    tool, noted = tmp_path / "nvcc", tmp_path / "arguments"
    program = "#!/bin/sh\\necho on the GPU"
    tool.write_text(f"#!/bin/sh\necho \"$@\" > {noted}\nprintf '{program}' > program\nchmod +x program\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("mlsys_labkit.cuda.program.run._gpu_is_here", lambda: True)
    return noted


def test_nvcc_links_the_libraries_whose_headers_a_program_includes(nvcc: Path) -> None:
    source = "#include <curand.h>\n# include <cublas_v2.h>\n#include <curand_kernel.h>\nint main() {}"
    assert run_program(source).stdout == "on the GPU\n"
    assert nvcc.read_text().split()[-2:] == ["-lcublas", "-lcurand"]
    run_program("#include <curand_kernel.h>\nint main() {}")
    assert not any(word.startswith("-l") for word in nvcc.read_text().split())


@pytest.mark.parametrize(("capability", "option"), [("9.0", "-gencode=arch=compute_90a,code=sm_90a"), ("8.0", "")])
def test_nvcc_compiles_wgmma_for_hopper_alone(nvcc: Path, capability: str, option: str) -> None:
    """Plain sm_90, which is native on an H100, has no wgmma."""
    smi = nvcc.with_name("nvidia-smi")
    smi.write_text(f"#!/bin/sh\necho {capability}")
    smi.chmod(0o755)
    run_program('__global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }\nint main() {}')
    assert (option or "-arch=native") in nvcc.read_text().split()
    run_program("int main() {}")
    assert "-arch=native" in nvcc.read_text().split()


def test_nvcc_finds_the_headers_of_samples_behind_those_of_the_program(nvcc: Path, tmp_path: Path) -> None:
    """On an H100 nvcc refused a program that the simulator runs: ``helper_cuda.h`` is in no toolkit."""
    tool = nvcc.with_name("nvcc")
    tool.write_text(tool.read_text().replace("printf", f"cp -r headers {tmp_path}/seen\nprintf", 1))
    run_program("#include <helper_cuda.h>\nint main() {}")
    folders = [word for word in nvcc.read_text().split() if word.startswith("-I")]
    assert folders[-1].endswith("/headers")
    assert {"helper_cuda.h", "helper_math.h", "book.h"} <= {path.name for path in (tmp_path / "seen").iterdir()}


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("step", [1, -1], ids=["in order", "in reverse"])
def test_nvcc_takes_every_header_of_samples(step: int, tmp_path: Path) -> None:
    """Compile all in one file, in both orders: in one of them a header comes before another that it may need."""
    headers = sample_headers()[::step]
    source = tmp_path / "all.cu"
    source.write_text("".join(f'#undef CHECK\n#include "{path}"\n' for path in headers) + "int main() {}")
    folders = [f"-I{folder}" for folder in sorted({path.parent for path in headers})]
    built = subprocess.run(
        ["nvcc", "-std=c++17", *folders, "-c", "-o", "all.o", source], cwd=tmp_path, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr[:500]


def test_a_limit_of_launches_is_kept_by_the_simulator(nvcc: Path) -> None:
    source = """#include <cstdio>
    __global__ void k() {}
    int main() { for (;;) { printf("."); k<<<1, 1>>>(); } }"""
    assert run_program(source, launch_limit=3).stopped == "stopped after 3 launches"
    assert not nvcc.exists()
    with pytest.raises(CudaError, match="launch_limit need the simulator"):
        run_program(source, launch_limit=3, backend="gpu")


def test_stacks_of_one_cpu_serve_another_in_the_next_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LK_CUDA_THREADS", "2")
    monkeypatch.setenv("LK_CUDA_STACKS", "20000")
    # Whoever takes block 0 is held up by it, so that the other CPU has 17 blocks at the barrier: 17,408 stacks.
    source = """#include <cooperative_groups.h>
#include <cstdio>
__global__ void meet(int* p) {
  for (int i = 0; blockIdx.x == 0 && i < 3000; i++) atomicAdd(p, 1);
  cooperative_groups::this_grid().sync();
}
int main() {
  int* p; cudaMalloc(&p, 4);
  void* arguments[] = {&p};
  for (int i = 0; i < 6; i++) cudaLaunchCooperativeKernel((void*)meet, dim3(18), dim3(1024), arguments, 0, 0);
  std::puts(cudaGetErrorName(cudaDeviceSynchronize()));
}"""
    result = run(source)
    assert (result.stdout, result.notes) == ("cudaSuccess\n", ())


def test_the_first_program_says_why_it_takes_so_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> None:
        raise CudaError("not compiled here")

    monkeypatch.setenv("LABKIT_CUDA_CACHE", str(tmp_path))
    monkeypatch.setattr("mlsys_labkit.cuda.program.run.compile_program", refused)
    (tmp_path / "runner-0.lock").touch()
    with pytest.raises(CudaError):
        run_program(HELLO, echo=True)
    assert "compiles the simulator too" in capsys.readouterr().err
    (tmp_path / "runner-0").mkdir()
    with pytest.raises(CudaError):
        run_program(HELLO, echo=True)
    assert capsys.readouterr().err == ""
