"""``run_program``: a textbook ``.cu`` file with a main of its own, unedited."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal

from mlsys_labkit.cuda.cache import Cache
from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.gcc.flags import Build
from mlsys_labkit.cuda.kernel.gcc.toolchain import find_toolchain
from mlsys_labkit.cuda.kernel.unset_findings import unset_findings, with_unset
from mlsys_labkit.cuda.nvidia.exact_arch import exact_arch
from mlsys_labkit.cuda.program import libraries
from mlsys_labkit.cuda.program.build import CompiledProgram, ProgramSource, compile_program, runner, sample_headers
from mlsys_labkit.cuda.program.records import read_story
from mlsys_labkit.cuda.program.result import ProgramResult
from mlsys_labkit.cuda.source.volatile import has_volatile_accesses
from mlsys_labkit.cuda.source.warp_steps import warp_steps

OUTPUT_BYTES = 1 << 20  # of stdout, and of stderr: what a notebook can show
_STOPPED = 124
_LIBRARY = re.compile(
    r"^\s*#\s*include\s*<(cublas|cublasLt|curand|cufft|cusparse)(?:_v2)?\.h>", re.MULTILINE
)  # nvcc links none
_GRACE_SECONDS = 2.0  # the time limit of a kernel is shorter, and its error names the line


def run_program(
    path_or_source: str | os.PathLike[str],
    args: Sequence[object] = (),
    *,
    defines: Mapping[str, object] | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    include: Sequence[str | os.PathLike[str]] = (),
    check: bool = False,
    profile: bool = False,
    launch_limit: int | None = None,
    timeout: float = 60.0,
    backend: Literal["auto", "simulator", "gpu"] = "auto",
    echo: bool = False,
) -> ProgramResult:
    """Compile and run a whole CUDA program: its main, its allocations, its launches.

    It runs in a process of its own, in the file's folder, with empty standard input. Times measured by its events are
    those of the simulator.

    Args:
        path_or_source: a ``.cu`` file, or its text.
        args: what main finds in argv, after the program's name.
        defines: sizes in place of the source's: ``{"N": 1024}`` over ``#define N (1 << 24)`` or ``const int N = 99``.
        sources: further files of the program, each compiled by itself, such as ``["reference.cpp"]``.
        include: folders for headers, as ``nvcc -I`` has them.
        check: report races, accesses out of bounds, and similar errors in every launch.
        profile: count the memory traffic of every launch (the first 100 launches).
        launch_limit: end the program before it launches more often. The simulator counts launches, a GPU does not.
        timeout: seconds for the whole program.
        backend: "gpu" compiles with nvcc and runs on the GPU, without check, profile and launch_limit; "auto" does so
            where both are and none of these is asked for.
        echo: show the output while the program runs.

    Raises CudaCompileError for a source that does not compile or uses what the simulator leaves out, CudaError where
    the machine cannot run it or a GPU is asked for what only the simulator does, ValueError for check and profile
    together.

    Example:
        >>> result = run_program('''
        ... #include <cstdio>
        ... __global__ void hello() { printf("thread %d\\\\n", threadIdx.x); }
        ... int main() { hello<<<1, 2>>>(); cudaDeviceSynchronize(); }''')
        >>> print(result.stdout, end="")
        thread 0
        thread 1

    Reference: NVIDIA, "CUDA C++ Programming Guide", chapter 3, "Programming Interface".
    """
    if check and profile:
        raise ValueError("check and profile are two runs; ask for one of them at a time")
    simulated = check or profile or launch_limit is not None
    if simulated and backend == "gpu":
        raise CudaError("check, profile and launch_limit need the simulator; leave out them or backend='gpu'")
    source = ProgramSource.read(path_or_source, defines, sources, include)
    if backend == "gpu" or (backend == "auto" and not simulated and _gpu_is_here()):
        return _run_on_gpu(source, args, timeout, echo)
    toolchain, cache = find_toolchain(), Cache()
    in_step = any(has_volatile_accesses(one) for _, one in source.files)
    build = Build.INSTRUMENTED if check or profile or in_step else Build.FAST
    if echo and not cache.has_any("runner-"):
        print(
            "labkit: the first program compiles the simulator too: 10 to 30 seconds, once", file=sys.stderr, flush=True
        )
    program = compile_program(source, build, toolchain, cache)
    mode = "check" if check else "profile" if profile else "run"
    with tempfile.TemporaryDirectory(prefix="labkit-program-") as folder:
        records = Path(folder) / "records"
        environment = {
            **os.environ,
            **libraries.environment(),
            "LK_RECORDS": os.fspath(records),
            "LK_MODE": mode,
            "LK_SECONDS": str(timeout),
            **({"LK_LAUNCH_LIMIT": str(launch_limit)} if launch_limit is not None else {}),
        }
        name = f"./{Path(source.name).stem}"
        command = [
            os.fspath(runner(toolchain, cache)),
            os.fspath(program.path),
            str(os.getpid()),
            name,
            *map(str, args),
        ]
        finished = _watch(command, source.folder, environment, timeout + _GRACE_SECONDS, echo)
        result = _result(finished, records, program, launch_limit, timeout)
    unset = unset_findings(source.main.text, {one.kernel for one in result.launches}) if check else ()
    idle = tuple(f"-D {name}: the program has no constant {name} to replace" for name in source.unused_defines())
    steps = () if check or in_step else _warp_steps(source, {one.kernel.split("<")[0] for one in result.launches})
    return replace(result, findings=tuple(with_unset(unset, result.findings)), notes=(*idle, *steps, *result.notes))


def _warp_steps(source: ProgramSource, launched: set[str]) -> tuple[str, ...]:
    """Return a note for each kernel that was launched and counts on lanes in step: its result may be wrong here."""
    return tuple(
        f"{name}:{step.line}: a lane reads {step.array} where another lane of its warp wrote in line {step.written}, "
        "and no __syncwarp() stands between: lanes need not be in step, and here they are not; check shows which"
        for name, one in source.files
        for step in warp_steps(one)
        if step.kernel in launched
    )


class _Finished:
    """A process that has ended: its code, what it said, and whether its time was up."""

    def __init__(self, returncode: int, stdout: str, stderr: str, timed_out: bool) -> None:
        self.returncode, self.stdout, self.stderr, self.timed_out = returncode, stdout, stderr, timed_out


def _result(
    finished: _Finished, records: Path, program: CompiledProgram, launch_limit: int | None, timeout: float
) -> ProgramResult:
    story = read_story(records, program)
    stopped, stderr = "", finished.stderr
    # A kernel that is cut off is an error to the program, which may go on, or crash of what the kernel did not compute.
    out_of_time = finished.timed_out or any(one.error == "cudaErrorLaunchTimeout" for one in story.launches)
    if out_of_time:
        stopped = f"stopped after {timeout:g} s; pass timeout=, or smaller sizes with defines="
    elif launch_limit is not None and finished.returncode == _STOPPED and len(story.launches) >= launch_limit:
        stopped = f"stopped after {launch_limit} launches"
    elif finished.returncode < 0 or story.crash:
        stopped = story.crash or f"ended by {signal.Signals(-finished.returncode).name}"
    if stopped and stopped not in stderr:
        stderr += f"labkit: {stopped}\n"
    return ProgramResult(
        returncode=_STOPPED if out_of_time else finished.returncode,
        stdout=finished.stdout,
        stderr=stderr,
        launches=story.launches,
        findings=story.findings,
        profiles=story.profiles,
        notes=story.notes,
        stopped=stopped,
    )


def _watch(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    echo: bool,
) -> _Finished:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches this process only, which then ends the program and its children
    )
    assert process.stdout
    assert process.stderr
    streams: dict[IO[bytes], _Capture] = {
        process.stdout: _Capture(sys.stdout if echo else None),
        process.stderr: _Capture(sys.stderr if echo else None),
    }
    try:
        timed_out = not _drain(streams, time.monotonic() + seconds)
        if not timed_out:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        returncode = process.wait()
        for stream in streams:
            stream.close()
    stdout, stderr = (capture.text() for capture in streams.values())
    return _Finished(returncode, stdout, stderr, timed_out)


class _Capture:
    """The output of one stream, up to a limit; the rest is read and counted."""

    def __init__(self, echo: IO[str] | None) -> None:
        self._kept = bytearray()
        self._dropped = 0
        self._echo = echo

    def add(self, data: bytes) -> None:
        room = OUTPUT_BYTES - len(self._kept)
        self._kept += data[:room]
        self._dropped += max(0, len(data) - room)
        if self._echo and room > 0:
            self._echo.write(data[:room].decode("utf-8", "replace"))
            self._echo.flush()

    def text(self) -> str:
        text = self._kept.decode("utf-8", "replace")
        return text + (f"\n[labkit: {self._dropped:,} more bytes]\n" if self._dropped else "")


def _drain(streams: Mapping[IO[bytes], _Capture], end: float) -> bool:
    """Read until both streams end (True) or the time does (False)."""
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                return False
            for key, _ in selector.select(min(left, 0.25)):
                data = os.read(key.fd, 1 << 16)
                if data:
                    streams[key.fileobj].add(data)  # type: ignore[index]
                else:
                    selector.unregister(key.fileobj)
    return True


def _gpu_is_here() -> bool:
    return shutil.which("nvcc") is not None and Path("/dev/nvidia0").exists()


def _for_this_gpu(*texts: str) -> str:
    """Return nvcc's option for the GPU here: ``native`` leaves out wgmma, and ``-arch=sm_90a`` adds PTX without it."""
    asked = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        known = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    except OSError:
        known = []
    arch = f"sm_{known[0].replace('.', '')}" if known else ""
    exact = exact_arch(arch, *texts)
    return "-arch=native" if exact == arch else f"-gencode=arch={exact.replace('sm', 'compute')},code={exact}"


def _run_on_gpu(source: ProgramSource, args: Sequence[object], timeout: float, echo: bool) -> ProgramResult:
    """Compile and run with nvcc, which also finds the kit's headers of samples and textbooks, behind the program's own.

    Sizes are replaced in the text, as for the simulator; nothing else is.
    """
    nvcc = shutil.which("nvcc")
    if nvcc is None or not _gpu_is_here():
        missing = "nvcc is not installed" if nvcc is None else "there is no NVIDIA GPU"
        raise CudaError(f"backend='gpu' needs nvcc and a GPU, and {missing}; leave backend away to use the simulator")
    with tempfile.TemporaryDirectory(prefix="labkit-program-") as folder:
        text = source.replaced()
        (Path(folder) / source.name).write_text(text, encoding="utf-8", errors="surrogateescape")
        texts = "\n".join(one.text for _, one in source.files)
        libraries = sorted({f"-l{name}" for name in _LIBRARY.findall(texts)})
        headers = Path(folder) / "headers"
        headers.mkdir()
        for path in sample_headers():
            shutil.copy(path, headers)
        folders = [f"-I{source.folder}", *(f"-I{source.folder / one}" for one in source.include), f"-I{headers}"]
        files = [source.name, *(os.fspath(source.folder / one) for one in source.units)]
        command = [nvcc, "-O2", _for_this_gpu(text, texts), *folders, "-o", "program", *files, *libraries]
        built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if built.returncode:
            raise CudaError(f"nvcc refuses {source.name}:\n{built.stderr.strip()[-2000:]}")
        program = [os.path.join(folder, "program"), *map(str, args)]
        finished = _watch(program, source.folder, os.environ, timeout, echo)
    stopped = f"stopped after {timeout:g} s" if finished.timed_out else ""
    code = _STOPPED if finished.timed_out else finished.returncode
    return ProgramResult(code, finished.stdout, finished.stderr, stopped=stopped, backend="gpu")
