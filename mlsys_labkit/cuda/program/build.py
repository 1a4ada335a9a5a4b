"""A whole program: its text made C++, compiled into a shared object, and the process that runs such objects."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlsys_labkit.cuda.cache import Cache, digest
from mlsys_labkit.cuda.errors import CudaCompileError, CudaError
from mlsys_labkit.cuda.kernel.gcc import compiler
from mlsys_labkit.cuda.kernel.gcc.copies import with_copy_parts
from mlsys_labkit.cuda.kernel.gcc.diagnostics import compile_error, linker_diagnostics, read_diagnostics
from mlsys_labkit.cuda.kernel.gcc.flags import INCLUDES, RUNTIME, Build, compile_flags, link_flags
from mlsys_labkit.cuda.kernel.gcc.headers import PROGRAM_PRELUDE, headers_identity, included_first, precompile
from mlsys_labkit.cuda.kernel.gcc.red_zones import with_red_zones
from mlsys_labkit.cuda.kernel.gcc.toolchain import Toolchain
from mlsys_labkit.cuda.kernel.gcc.unit import EXPORTS, module_exports
from mlsys_labkit.cuda.kernel.gcc.units import compile_units
from mlsys_labkit.cuda.kernel.gcc.vectors import with_vectors
from mlsys_labkit.cuda.kernel.simulator import runtime
from mlsys_labkit.cuda.program import libraries
from mlsys_labkit.cuda.program.rewrite import find_kernels, rewrite
from mlsys_labkit.cuda.program.sizes import declares, with_defines
from mlsys_labkit.cuda.source.clusters import registered_clusters
from mlsys_labkit.cuda.source.functions import device_functions
from mlsys_labkit.cuda.source.host_calls import host_calls
from mlsys_labkit.cuda.source.host_variables import host_variables
from mlsys_labkit.cuda.source.includes import headers_beside, redirected
from mlsys_labkit.cuda.source.left_out import explained, kernel_results, left_out, shared_values
from mlsys_labkit.cuda.source.rewrite import rewrite as rewrite_for_gcc
from mlsys_labkit.cuda.source.shared import dynamic_arrays
from mlsys_labkit.cuda.source.source import Source

_HOST = Path(__file__).parent / "native" / "host"
_TEXTBOOK = _HOST.parent / "include" / "textbook"  # headers of textbooks: programs copied from a book come without them
_RUNNER_FLAGS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-pthread", *(f"-I{folder}" for folder in (*INCLUDES, RUNTIME)))
# They take about as long as each other.
_RUNNER_UNITS = {
    "graphs": ("capture", "graph", "graph_exec_api", "graphs_api", "streams_api"),
    "memory": ("arrays_api", "heap", "memory_api", "textures_api", "transfers", "work"),
    "launches": (),
}
_OPENMP = re.compile(r"#[ \t]*pragma[ \t]+omp\b|#[ \t]*include[ \t]*<omp\.h>")


def sample_headers() -> list[Path]:
    """Return the kit's headers of NVIDIA's samples and of textbooks, which programs include and no toolkit brings."""
    return [*_TEXTBOOK.parent.glob("helper_*.h"), *_TEXTBOOK.iterdir()]


@dataclass(frozen=True)
class ProgramSource:
    """A program and the headers beside it.

    Attributes:
        files: name and source of the main file, then of each header in quotes that is there, seen from its folder.
        folder: of the main file; where the program runs.
        defines: sizes that replace the source's own.
        units: names of the further files that are compiled, as nvcc compiles several.
        include: folders for headers, seen from ``folder``.
    """

    files: tuple[tuple[str, Source], ...]
    folder: Path
    defines: tuple[tuple[str, str], ...] = ()
    units: tuple[str, ...] = ()
    include: tuple[str, ...] = ()

    @classmethod
    def read(
        cls,
        path_or_source: str | os.PathLike[str],
        defines: Mapping[str, object] | None = None,
        more: Sequence[str | os.PathLike[str]] = (),
        include: Sequence[str | os.PathLike[str]] = (),
    ) -> ProgramSource:
        """Read a program from a file, or from the text itself (anything with a line break or a brace is text).

        Raises CudaError when there is no such file.
        """
        given = os.fspath(path_or_source)
        chosen = tuple((name, str(value)) for name, value in (defines or {}).items())
        if isinstance(path_or_source, str) and re.search(r"[\n{;]", given):
            main, folder, text = "program.cu", Path.cwd(), given
        else:
            path = Path(given).expanduser()
            main, folder, text = path.name, path.resolve().parent, _read(path)
        folders = tuple(os.path.relpath(one, folder) for one in include)
        files = {main: Source(text)}
        units = {os.path.relpath(one, folder): Source(_read(Path(one).expanduser())) for one in more}
        for name, one in {main: Source(text), **units}.items():
            files |= {name: one} | headers_beside(one.text, folder, folders, Path(name).parent)
        return cls(tuple(files.items()), folder, chosen, tuple(units), folders)

    def unused_defines(self) -> list[str]:
        """Return the sizes that replace nothing: the program has only variables or parameters of these names."""
        sources = [one for _, one in self.files]
        return [
            name
            for name, value in self.defines
            if all(with_defines(one, {name: value}) == one for one in sources)
            and any(declares(one, name) for one in sources)
        ]

    @property
    def name(self) -> str:
        """The main file's name, as ``__FILE__`` and errors have it."""
        return self.files[0][0]

    @property
    def main(self) -> Source:
        """The main file."""
        return self.files[0][1]

    def replaced(self) -> str:
        """Return the main file with the sizes replaced, for a compiler that takes CUDA as it is."""
        return with_defines(self.main, dict(self.defines)).text


@dataclass(frozen=True)
class CompiledProgram:
    """A program's shared object. ``path`` lies in the cache."""

    path: Path
    source: ProgramSource
    build: Build


def compile_program(source: ProgramSource, build: Build, toolchain: Toolchain, cache: Cache) -> CompiledProgram:
    """Return the compiled program, from the cache if it is there.

    Raises CudaCompileError for a source that g++ refuses or that uses what is left out, CudaError when the machine
    fails.
    """
    flags = _flags(source, build, toolchain)
    files = _files(source)
    parts = [part for pair in files.items() for part in pair]
    parts += [libraries.identity(), toolchain.identity, toolchain.cpu, headers_identity(), *flags]
    name = f"program-{digest(*parts)}"

    def make(folder: Path) -> None:
        with compiler.threads(1) as pool:
            ready = pool.submit(runner, toolchain, cache)
            _compile(source, files, flags, folder, toolchain, cache)
            known = _defined_in(compiler.result(ready))
            assembly = "".join(_text(unit) for unit in folder.glob("*.s"))
            objects = libraries.objects(libraries.needed(assembly), toolchain, cache)
            _link(source, flags, objects, folder, toolchain, known)

    entry = cache.fetch(name, make)
    return CompiledProgram(entry / "program.so", source, build)


def runner(toolchain: Toolchain, cache: Cache) -> Path:
    """Return the executable that loads a program and calls its main.

    Raises CudaError when it cannot be compiled.
    """
    library = runtime.library()
    files = sorted(_HOST.glob("*.h")) + sorted(_HOST.glob("*.cpp"))
    content = [part for file in files for part in (file.name, file.read_bytes())]
    content += [headers_identity(), *_RUNNER_FLAGS, repr(_RUNNER_UNITS)]
    name = f"runner-{digest(toolchain.identity, os.fspath(library), *content)}"
    return cache.fetch(name, lambda folder: _build_runner(folder, toolchain, library)) / "runner"


def _build_runner(folder: Path, toolchain: Toolchain, library: Path) -> None:
    try:
        objects = compile_units(_HOST, _RUNNER_UNITS, _RUNNER_FLAGS, folder, toolchain)
        whole: list[str | Path] = ["-Wl,--whole-archive", library, "-Wl,--no-whole-archive"]
        linked: list[str | Path] = ["-pthread", "-rdynamic", *objects.values(), *whole, "-ldl", "-o", "runner"]
        compiler.run(toolchain, linked, folder)
    except compiler.CompilerFailed as failed:
        first = next((line for line in failed.text.splitlines() if "error" in line or "undefined" in line), "")
        raise CudaError(f"the runner of programs does not compile with g++ {toolchain.version}: {first}") from None
    for target in objects.values():
        target.unlink()


def _flags(source: ProgramSource, build: Build, toolchain: Toolchain) -> list[str]:
    flags = [flag for flag in compile_flags(build, toolchain) if flag != "-fno-exceptions"]
    # With this sanitizer asked for, gcc leaves a function alone that ends without its return. -O0 forgives it; -O2
    # would run into whatever code stands behind it.
    flags.append("-fsanitize=unreachable")
    return [*flags, "-fopenmp"] if any(_OPENMP.search(one.text) for _, one in source.files) else flags


def _compile(
    source: ProgramSource, files: Mapping[str, str], flags: list[str], folder: Path, toolchain: Toolchain, cache: Cache
) -> None:
    looks = (shared_values, kernel_results)
    named = [("", source.main), *source.files[1:]]
    refused = [found for name, one in named for look in looks for found in look(one, name)]
    headers = [one for name, one in source.files[1:] if name not in source.units]  # a unit sees no other unit
    refused += [found for name, one in named for found in host_calls(one, name, headers)]
    refused += [found for name, one in named for found in host_variables(one, name, headers)]
    if refused:
        raise compile_error(refused, "")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    identity = digest(toolchain.identity, toolchain.cpu, headers_identity(), PROGRAM_PRELUDE, *flags)
    header = precompile(f"program-prelude-{identity}", PROGRAM_PRELUDE, flags, toolchain, cache)
    before = ["-include", os.fspath(header), f"-iquote{source.folder}", f"-ffile-prefix-map={folder}=."]
    before += [f"-I{source.folder / one}" for one in source.include]  # for headers that a macro names
    try:
        units = [name for name in files if name.endswith(".cpp")]
        for unit in units:
            compiler.run(toolchain, [*flags, *before, "-S", unit], folder)
    except compiler.CompilerFailed as failed:
        raise _refused(source, failed.text) from None
    if "-fsanitize=thread" in flags:
        for unit in units:
            assembly = folder / f"{unit[:-4]}.s"
            text = with_red_zones(with_copy_parts(with_vectors(_text(assembly))))
            assembly.write_text(text, encoding="utf-8", errors="surrogateescape")


def _text(assembly: Path) -> str:
    return assembly.read_text(encoding="utf-8", errors="surrogateescape")


def _link(
    source: ProgramSource,
    flags: list[str],
    objects: list[Path],
    folder: Path,
    toolchain: Toolchain,
    known: frozenset[str],
) -> None:
    openmp = [flag for flag in flags if flag == "-fopenmp"]
    units = sorted(path.name for path in folder.glob("*.s"))
    command: list[str | Path] = [*link_flags(), *openmp, *units, *objects, "-o", "program.so"]
    try:
        said = _linked(source, command, folder, toolchain)
    except compiler.CompilerFailed as failed:
        said = failed.text
        raise (compile_error(found, said) if (found := linker_diagnostics(said)) else _refused(source, said)) from None
    finally:
        for unit in units:
            (folder / unit).unlink(missing_ok=True)
    missing = [one for one in linker_diagnostics(said) if one.text.split()[0].split("(")[0] not in known]
    if missing:
        raise compile_error(missing, said)


def _linked(source: ProgramSource, command: Sequence[str | Path], folder: Path, toolchain: Toolchain) -> str:
    try:
        return compiler.run(toolchain, command, folder)
    except compiler.CompilerFailed as failed:
        # nvcc keeps each file's device functions to that file, so that two files may include one header with them.
        twice = re.findall(r"multiple definition of [`']([\w:]+)", failed.text)
        own = {function.name for _, one in source.files for function in device_functions(one)}
        if not source.units or not twice or any(name.split("::")[-1] not in own for name in twice):
            raise
        return compiler.run(toolchain, [*command, "-Wl,-z,muldefs"], folder)


def _refused(source: ProgramSource, said: str) -> CudaCompileError:
    """Return the compiler's complaints, replaced where the source uses what the simulator leaves out."""
    known = [found for name, one in [("", source.main), *source.files[1:]] for found in left_out(one, name)]
    headers = {name: one.text for name, one in source.files[1:]}
    complaints = read_diagnostics(said, source.name, source.main.text, headers)
    return compile_error(explained(known, complaints), said)


def _files(source: ProgramSource) -> dict[str, str]:
    """Return the files that g++ reads: the main file first, and the headers."""
    names = {name: f"header{number}.h" for number, (name, _) in enumerate(source.files[1:])}
    sources = [one for _, one in source.files]
    kernels = find_kernels(sources)
    defines = dict(source.defines)
    own = {name for name, value in defines.items() if all(with_defines(one, {name: value}) == one for one in sources)}
    own -= set(source.unused_defines())
    written = []
    for name, one in source.files:
        changed = rewrite_for_gcc(rewrite(with_defines(one, defines), kernels))
        written.append((name, redirected(changed, Path(name).parent, names, (_TEXTBOOK, *INCLUDES), source.include)))
    lines = [*included_first(sources), *(f"#define {name} {defines[name]}" for name in sorted(own))]
    before = "".join(f"{line}\n" for line in lines)
    main_name, main_text = written[0]
    dynamic = dict.fromkeys(name for one in sources for name in dynamic_arrays(one))
    exports = [*module_exports((), tuple(dynamic)), *registered_clusters(sources)]
    behind = f'\n#line 1 "{EXPORTS}"\n' + "\n".join(exports) + "\n"
    files = {"program.cpp": f'{before}#line 1 "{main_name}"\n{main_text}{behind}'}
    units = {name: f"unit{number}.cpp" for number, name in enumerate(source.units)}
    files |= {units[name]: f'{before}#line 1 "{name}"\n{text}\n' for name, text in written[1:] if name in units}
    return files | {names[name]: f'#line 1 "{name}"\n{text}\n' for name, text in written[1:]}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise CudaError(f"{path} cannot be read: {error.strerror}; pass the path of a .cu file, or its text") from None


@functools.lru_cache(maxsize=4)
def _defined_in(executable: Path) -> frozenset[str]:
    try:
        said = subprocess.run(
            ["nm", "-DC", "--defined-only", os.fspath(executable)], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        raise CudaError("nm is not there or fails; it comes with g++: sudo apt install binutils") from None
    names = (line.split(maxsplit=2)[2] for line in said.splitlines() if len(line.split(maxsplit=2)) == 3)
    return frozenset(name.split("(")[0] for name in names)
