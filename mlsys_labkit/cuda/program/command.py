"""``labkit cu file.cu`` and ``%%cu``, which take the same options."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NoReturn

from mlsys_labkit.errors import LabkitError

FAILED = 1
_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c")


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``cu`` to the ``labkit`` command."""
    parser = verbs.add_parser("cu", help="run a whole CUDA program (a .cu file with main), with or without a GPU")
    parser.add_argument("file", help="the .cu file; further .cu and .cpp files of the program may follow")
    _add_options(parser)
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="arguments", help="arguments of the program; write -- before them"
    )
    parser.set_defaults(run=_run)


def run_cell(line: str, cell: str) -> Any:
    """Run a ``%%cu [options] [arguments]`` cell, a whole program, and return its result unless it has nothing to show.

    The first line of the source stands for the magic's own, so that line numbers are the cell's.

    Raises LabkitError for a line that cannot be read, and whatever ``run_program`` raises.

    Example:
        >>> run_cell("-D N=3", "#include <cstdio>\\n#define N 1000\\nint main() { std::printf(\\"%d\\\\n\\", N); }")
        3
    """
    from mlsys_labkit.cuda.program.run import run_program

    chosen, arguments = _read(shlex.split(line), argparse.Namespace(), _CellParser)
    result = run_program(f"// %%cu {line}\n{cell}", arguments, **_keywords(chosen), echo=True)
    silent = result.returncode == 0 and not (result.findings or result.profiles or result.stopped)
    return None if silent else result


def _run(chosen: argparse.Namespace) -> int:
    from pathlib import Path

    from mlsys_labkit.cuda.program.run import run_program

    chosen, arguments = _read(chosen.rest, chosen, argparse.ArgumentParser)
    sources = [word for word in chosen.words if Path(word).suffix in _SUFFIXES and Path(word).is_file()]
    own = [word for word in chosen.words if word not in sources] + arguments[len(chosen.words) :]
    result = run_program(Path(chosen.file), own, sources=sources, **_keywords(chosen), echo=True)
    for note in result.notes:
        if note.startswith("-D "):
            print(f"labkit: {note}")
    if result.stopped:
        print(f"labkit: {result.stopped}")
    if chosen.check or chosen.profile or result.findings:
        print(result)
    return FAILED if result.findings and chosen.check else result.returncode


def _keywords(chosen: argparse.Namespace) -> dict[str, Any]:
    return {
        "defines": dict(pair.split("=", 1) if "=" in pair else (pair, "1") for pair in chosen.define),
        "include": chosen.include,
        "check": chosen.check,
        "profile": chosen.profile,
        "launch_limit": chosen.limit,
        "timeout": chosen.timeout,
        "backend": chosen.backend,
    }


def _read(
    words: list[str], chosen: argparse.Namespace, make: type[argparse.ArgumentParser]
) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the program's own arguments: all plain words, and everything behind --."""
    cut = words.index("--") if "--" in words else len(words)
    parser = make(prog="labkit cu" if make is argparse.ArgumentParser else "%%cu", add_help=False, allow_abbrev=False)
    _add_options(parser)
    parser.add_argument("words", nargs="*")
    parser.parse_intermixed_args(words[:cut], chosen)
    return chosen, [*chosen.words, *words[cut + 1 :]]


def _add_options(parser: argparse.ArgumentParser) -> None:
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="report races, accesses out of bounds, and similar errors")
    mode.add_argument("--profile", action="store_true", help="count the memory traffic of every launch")
    parser.add_argument(
        "-D",
        "--define",
        action="append",
        default=[],
        metavar="N=1024",
        help="replace the value of a constant, such as a size",
    )
    parser.add_argument(
        "-I", "--include", action="append", default=[], metavar="FOLDER", help="look for headers in this folder, too"
    )
    parser.add_argument("--limit", type=int, metavar="LAUNCHES", help="stop after this many launches")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="time limit of the whole program (default: 60)"
    )
    parser.add_argument("--backend", choices=("auto", "simulator", "gpu"), default="auto")


class _CellParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise LabkitError(
            f"%%cu: {message}; write "
            "%%cu [--check | --profile] [-D N=1024] [-I FOLDER] [--limit LAUNCHES] [--timeout SECONDS] [arguments]"
        )
