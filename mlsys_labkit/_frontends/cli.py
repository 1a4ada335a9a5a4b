"""The ``labkit`` command. Verbs of other distributions join by the entry-point group ``mlsys_labkit.commands``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

from mlsys_labkit import __version__
from mlsys_labkit._frontends import doctor, facts
from mlsys_labkit._frontends.progress import command as progress_command
from mlsys_labkit.cuda.program import command as program_command
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.ranks import torchrun
from mlsys_labkit.serving.server import command as serve_command, load as load_command

GROUP = "mlsys_labkit.commands"
INTERRUPTED = 130
FAILED = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Exit code: 0 done, 1 the verb found problems, 2 it could not run, 130 interrupted."""
    parser, verbs = _build()
    words = list(sys.argv[1:] if argv is None else argv)
    if " ".join(words[:2]) in verbs.choices:  # a verb of two words, such as "hub backup"
        words[:2] = [" ".join(words[:2])]
    arguments = parser.parse_args(words)
    if not hasattr(arguments, "run"):
        parser.print_help()
        return 0
    try:
        return int(arguments.run(arguments) or 0)
    except KeyboardInterrupt:
        sys.stdout.flush()  # otherwise, in a pipe, the verb's last output would come after this line
        print("\nlabkit: interrupted; what was finished is kept", file=sys.stderr)
        return INTERRUPTED
    except LabkitError as error:
        print(f"labkit: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the pipe (head, less) has ended
        return FAILED
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(f"labkit: {error.strerror or error}{where}", file=sys.stderr)
        return FAILED


def _build() -> tuple[argparse.ArgumentParser, argparse._SubParsersAction[argparse.ArgumentParser]]:
    """Build the parser with every installed verb. A verb that fails to import is listed with the reason."""
    parser = argparse.ArgumentParser(
        prog="labkit",
        description="Commands for labs on machine-learning systems.",
    )
    parser.add_argument("--version", action="version", version=f"labkit {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    doctor.add_parser(verbs)
    facts.add_parser(verbs)
    progress_command.add_parser(verbs)
    program_command.add_parser(verbs)
    torchrun.add_parser(verbs)
    serve_command.add_parser(verbs)
    load_command.add_parser(verbs)
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            point.load()(verbs)
        except ImportError as error:
            _add_broken(verbs, point.name, error)
    return parser, verbs


def _add_broken(verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, error: ImportError) -> None:
    def fail(_: argparse.Namespace) -> int:
        raise LabkitError(f"the verb {name!r} could not be loaded ({error}); run: pip install --upgrade mlsys-grading")

    # No character starts an option here, so that the verb parses everything after it and reports its own errors.
    parser = verbs.add_parser(name, help=f"not available: {error}", prefix_chars="\0", add_help=False)
    parser.add_argument("rest", nargs="*")
    parser.set_defaults(run=fail)
