"""``compile_for``: compiles a kernel with Triton for a GPU that need not be present."""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mlsys_labkit.cuda.cache import Cache, digest
from mlsys_labkit.cuda.nvidia.occupancy import Occupancy, limits_of, occupancy
from mlsys_labkit.cuda.nvidia.ptxas import disassemble, read_report
from mlsys_labkit.triton_trace.compile.signature import arguments_of
from mlsys_labkit.triton_trace.compile.stages import Lines, lines_of
from mlsys_labkit.triton_trace.errors import RefusedSourceError, TritonCompileError, TritonTraceError
from mlsys_labkit.triton_trace.launch.client import require_triton
from mlsys_labkit.triton_trace.recorder import Line
from mlsys_labkit.triton_trace.rules import check_compiled, require_solved
from mlsys_labkit.triton_trace.source import KernelSource

Stage = Literal["ttir", "ttgir", "llir", "ptx"]
_PROCESS = Path(__file__).with_name("process.py")
_ERROR = re.compile(r"^(?P<file>.+?):(?P<line>\d+):\d+: error: (?P<reason>.*)$", re.MULTILINE)
_WRAPPED = re.compile(r"^\w+Error\((['\"])(?P<reason>.*)\1\)$", re.DOTALL)
_UNKNOWN = re.compile(r"'(?P<name>\w+)' is not defined for option 'gpu-name'")
_REPORT = re.compile(r"^(?=ptxas\S*\s+info)", re.MULTILINE)
_WARP_THREADS = 32


@dataclass(frozen=True)
class Compiled:
    """A kernel compiled for one GPU.

    Attributes:
        kernel: its name. target: such as "sm_90". triton_version: of the compiler.
        ttir: Triton's IR, on blocks without threads.
        ttgir: the same with layouts: the elements of each thread, and the use of shared memory.
        llir: LLVM IR of one thread. ptx: NVIDIA's assembly of it.
        registers: 32-bit registers per thread.
        spill_store_bytes, spill_load_bytes: of the instructions that move registers to the stack and back.
        shared_bytes: shared memory per block. barriers: hardware barriers per block.
        num_warps: warps per block, with those that the compiler adds by warp specialisation.
        lines: by stage, the lines of its text, counted from 1, by the student's line that they come from.
        cubin: the machine code.
    """

    kernel: str
    target: str
    triton_version: str
    source: KernelSource = field(repr=False)
    ttir: str = field(repr=False)
    ttgir: str = field(repr=False)
    llir: str = field(repr=False)
    ptx: str = field(repr=False)
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    barriers: int
    num_warps: int
    lines: Mapping[Stage, Lines] = field(repr=False)
    cubin: bytes = field(repr=False)

    @property
    def spills(self) -> int:
        """Return the bytes of spill stores and spill loads together."""
        return self.spill_store_bytes + self.spill_load_bytes

    @property
    def occupancy(self) -> Occupancy:
        """Return the resident programs and warps on one SM, and the limiting resource."""
        threads = self.num_warps * _WARP_THREADS
        return occupancy(self.target, threads, self.registers, self.shared_bytes, barriers=self.barriers)

    @property
    def sass(self) -> str:
        """Return the GPU's own instructions. Raises MissingExtraError without NVIDIA's disassembler."""
        return disassemble(self.cubin, self.kernel)

    def lines_at(self, stage: Stage, number: int, place: str | None = None) -> str:
        """Return a stage's lines for line ``number`` of the kernel's cell or file, or of ``place``; "" for none."""
        text = getattr(self, stage).splitlines()
        found = self.lines[stage].get(Line(self.source.entry.place if place is None else place, number), ())
        return "\n".join(text[at - 1] for at in found)

    def __str__(self) -> str:
        spills = f"{self.spills} bytes of spills" if self.spills else "no spills"
        return (
            f"{self.kernel} on {self.target}: {self.registers} registers a thread, {spills}, {self.shared_bytes} bytes "
            f"of shared memory, {self.num_warps} warps"
        )


def compile_for(
    kernel: Any,
    target: str,
    *args: Any,
    signature: Mapping[str, str] | None = None,
    config: Any = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    timeout_s: float = 120.0,
    **kwargs: Any,
) -> Compiled:
    """Compile a ``@triton.jit`` kernel for ``target``; no GPU and no driver is needed, only Linux.

    Triton compiles a kernel anew for other types, for pointers and integers that 16 divides, and for the integer 1.
    These are taken from the arguments, as in a launch, or named in ``signature``.

    Args:
        kernel: under ``@triton.jit``; what ``@triton.autotune`` and ``@triton.heuristics`` add is added here, too.
        target: "sm_80", "sm_90", "sm_100", ...: what the installed Triton compiles for.
        args, kwargs: as in ``kernel[grid](*args, **kwargs)``. Of tensors and arrays only type and alignment count:
            ``torch.empty(..., device="meta")`` will do. Triton's other options (maxnreg, ...) are taken, too.
        signature: parameter -> type in the words of Triton's ahead-of-time compiler, instead of an argument:
            ``{"x": "*fp16:16", "n": "i32"}`` are a pointer that 16 divides and an integer that it need not divide.
        config: the ``triton.Config`` to take under ``@triton.autotune``; the first by default.
        timeout_s: seconds after which the compiler is stopped.

    Raises:
        TritonUnsolvedError: the kernel still says ``raise NotImplementedError``.
        TritonCompileError: the compiler refuses the kernel; it names the line.
        RefusedSourceError: the kernel's source cannot be read, or names what a kernel cannot use.
        TritonArgumentError: an argument that does not fit the parameters.
        CudaError: no such target.
        MissingExtraError: Triton is not installed.

    Example:
        >>> import triton, triton.language as tl
        >>> @triton.jit
        ... def double(x, BLOCK: tl.constexpr):
        ...     i = tl.arange(0, BLOCK)
        ...     tl.store(x + i, 2 * tl.load(x + i))
        >>> compiled = compile_for(double, "sm_90", signature={"x": "*fp32:16"}, BLOCK=512)
        >>> print(compiled.occupancy)
        16 blocks, 64 of 64 warps (100 %) an SM on sm_90: warps allow no more
        >>> "ld.global.v4.b32" in compiled.lines_at("ptx", 4)  # 16 bytes per lane
        True

    Reference: Triton, "Ahead-of-Time compilation"; NVIDIA, "PTX ISA".
    """
    require_triton()
    limits_of(target)
    arch = re.sub(r"\D", "", target)
    source = KernelSource.of(kernel)
    require_solved(source)
    _require_names(source)
    check_compiled(source)
    chosen = {"num_warps": num_warps, "num_stages": num_stages}
    given = kwargs | {name: value for name, value in chosen.items() if value is not None}
    arguments, options = arguments_of(kernel, source.entry, args, given, signature=signature, config=config)
    request = {
        "source": source.to_json(),
        "arguments": arguments,
        "options": options,
        "arch": int(arch),
        "jit": _jit_options(kernel),
    }
    text = json.dumps(request, sort_keys=True)
    entry = Cache().fetch(
        f"triton-{digest(text, _compiler())}", functools.partial(_compile_into, source, target, text, timeout_s)
    )
    return _read(json.loads((entry / "answer.json").read_text()), source, f"sm_{arch}")


def _read(answer: dict[str, Any], source: KernelSource, target: str) -> Compiled:
    printed, report = _REPORT.split(answer["said"], maxsplit=1)
    sys.stdout.write(printed)  # by tl.static_print
    usage = read_report(report)[answer["name"]]
    texts = answer["texts"]
    return Compiled(
        kernel=answer["name"],
        target=target,
        triton_version=answer["version"],
        source=source,
        **texts,
        registers=usage.registers,
        spill_store_bytes=usage.spill_store_bytes,
        spill_load_bytes=usage.spill_load_bytes,
        shared_bytes=answer["shared_bytes"] + usage.shared_bytes,
        barriers=usage.barriers,
        num_warps=answer["num_warps"],
        lines={stage: lines_of(stage, text, answer["files"]) for stage, text in texts.items()},
        cubin=base64.b64decode(answer["cubin"]),
    )


def _compile_into(source: KernelSource, target: str, request: str, timeout_s: float, folder: Path) -> None:
    answer, said = _ask(request, timeout_s)
    if "broken" in answer and (match := _ERROR.search(said)):
        answer = {"refused": match["reason"], "place": match["file"].rstrip("'"), "line": int(match["line"])}
    if "refused" in answer:
        raise _refusal(source, answer)
    if "broken" in answer:
        if _UNKNOWN.search(answer["broken"]):
            raise TritonCompileError(
                f"the installed Triton {answer['version']} does not compile for {target}; name another"
            )
        raise TritonCompileError(
            f"Triton does not compile {source.entry.name} for {target}: {_short(answer['broken'])}"
        )
    (folder / "answer.json").write_text(json.dumps(answer))


def _refusal(source: KernelSource, answer: dict[str, Any]) -> TritonCompileError:
    place, line = answer["place"], answer["line"]
    where = f"{Line(place, line)}: " if line else ""
    shown = source.line_text(place, line)
    reason = answer["refused"]
    if match := _WRAPPED.match(reason):  # Triton before 3.8 passes on the text of another error
        reason = match["reason"]
    return TritonCompileError(f"{where}{_short(reason)}{f'  [{shown}]' if shown else ''}", place, line)


def _short(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= 400 else text[:399] + "…"


def _ask(request: str, timeout_s: float) -> tuple[dict[str, Any], str]:
    """Return the answer of the compiling process, and its stderr."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    process = subprocess.Popen(
        [sys.executable, "-P", str(_PROCESS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that ptxas, its child, can be stopped with it
        env=environment | {"TRITON_DUMP_PTXAS_LOG": "1"},
    )
    try:
        answer, said = process.communicate(request, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise TritonCompileError(
            f"Triton's compiler was stopped after {timeout_s:g} s; take smaller blocks, fewer num_stages or fewer "
            "tl.static_range steps, or raise timeout_s"
        ) from None
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        lines = said.strip().splitlines() or ["nothing"]
        status = process.returncode
        how = f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        raise TritonTraceError(f'the process for Triton\'s compiler {how} and said "{_short(lines[-1])}"')
    return json.loads(answer), said


def _require_names(source: KernelSource) -> None:
    for function in source.functions:
        for name, meaning in function.names.items():
            if meaning.kind == "refused":
                lines = enumerate(function.text.splitlines(), function.first_line)
                line = next((at for at, text in lines if re.search(rf"\b{name}\b", text)), function.first_line)
                raise RefusedSourceError(f"{Line(function.place, line)}: {meaning.value}")


def _jit_options(kernel: Any) -> dict[str, Any]:
    """Return the options of ``@triton.jit(...)`` that change the code."""
    layer = kernel
    while hasattr(getattr(layer, "fn", None), "fn"):
        layer = layer.fn
    told = {**getattr(layer, "kwargs", {}), **vars(layer)}
    names = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug")
    return {name: told[name] for name in names if told.get(name)}


@functools.cache
def _compiler() -> str:
    """Return a text that changes with the installed Triton."""
    spec = importlib.util.find_spec("triton")
    assert spec
    assert spec.origin
    state = Path(spec.origin).stat()
    return f"{spec.origin} {state.st_size} {state.st_mtime_ns} {_PROCESS.read_text()}"
