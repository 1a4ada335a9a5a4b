"""IPython's kernel as a notebook meets it: ``get_ipython().kernel``, comms and widgets, input, a running event loop.

What it would send to a front end it drops. It runs cells by ``do_execute``, as a front end's request does; input is
refused as nbclient has it. Pictures are not drawn: ``labkit run`` does that, and here they would only cost time.

Reference: Messaging in Jupyter, https://jupyter-client.readthedocs.io/en/stable/messaging.html
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import tempfile
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # otherwise ipykernel's debugger writes to stderr

from ipykernel import displayhook, zmqshell
from ipykernel.ipkernel import IPythonKernel
from IPython.core.compilerop import CachingCompiler
from IPython.core.formatters import DisplayFormatter
from IPython.core.profiledir import ProfileDir
from jupyter_client.session import Session
from tornado.ioloop import IOLoop
from traitlets import Instance, Type, default, observe
from traitlets.config import Config

from mlsys_grading.kernel.transformers import QuickTransformers, may_await
from mlsys_grading.processes import thread_variables

_INLINE = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
_PICTURES = frozenset({"image/png", "image/jpeg", "image/svg+xml", "application/pdf"})
_TEXT_LIMIT = 4000


class _Mute(Session):
    """A session that makes messages and sends them nowhere."""

    def send(self, stream: Any, msg_or_type: Any, content: Any = None, parent: Any = None, *_: Any, **more: Any) -> Any:
        return msg_or_type if isinstance(msg_or_type, dict) else self.msg(msg_or_type, content, parent)


class _Profile(ProfileDir):
    """The profile folder of IPython, made on first use."""

    @default("location")
    def _at_home(self) -> str:
        return str(Path.home() / ".ipython" / "profile_default")

    @observe("location")
    def _location_changed(self, change: Any) -> None:
        pass


class _Compiler(CachingCompiler):
    """A compiler that names cells as files, as ipykernel does, but by a checksum that is not computed in Python."""

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        folder = os.path.join(tempfile.gettempdir(), f"ipykernel_{os.getpid()}")
        return os.path.join(folder, f"{zlib.crc32(f'{number} {raw_code}'.encode('utf-8', 'replace'))}.py")


class _Formatter(DisplayFormatter):
    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        found: tuple[dict[str, Any], dict[str, Any]] = super().format(obj, include, _PICTURES.union(exclude or ()))
        return found


class ZMQShellDisplayHook(displayhook.ZMQShellDisplayHook):
    """``Out[n]`` of a test cell: nbgrader reads a number there as partial credit."""

    shell: ZMQInteractiveShell

    def write_format_data(self, format_dict: Mapping[str, Any], md_dict: Any = None) -> None:
        super().write_format_data(format_dict, md_dict)
        if self.shell.keeps_values:
            text = str(format_dict.get("text/plain", ""))[:_TEXT_LIMIT]
            self.shell.taken.append(
                {
                    "output_type": "execute_result",
                    "data": {"text/plain": text},
                    "metadata": {},
                    "execution_count": None,
                }
            )


class ZMQInteractiveShell(zmqshell.ZMQInteractiveShell):
    """A shell that keeps what a grader reads. Its name is its parent's, by which libraries detect a notebook.

    Attributes:
        result: of the cell that ran last.
        unshown: the error in showing a cell's last value, which a notebook shows as the cell's own.
        keeps_values: whether values that cells end in are kept in ``taken``.
    """

    displayhook_class = Type(ZMQShellDisplayHook)
    input_transformer_manager = Instance(QuickTransformers, ())

    def __init__(self, **kwargs: Any) -> None:
        self.taken: list[dict[str, Any]] = []
        self.keeps_values = False
        self.result: Any = None
        self.unshown: BaseException | None = None
        self._transformed: tuple[str, str] | None = None
        super().__init__(**kwargs)
        self.events.register("post_run_cell", self._note)

    def _note(self, result: Any) -> None:
        self.result = result

    def init_display_formatter(self) -> None:
        self.display_formatter = _Formatter(parent=self)
        self.configurables.append(self.display_formatter)  # type: ignore[arg-type]

    def transform_cell(self, raw_cell: str) -> str:
        """Transform a cell once. IPython calls this twice per cell: to see whether it awaits, and to run it."""
        if self._transformed and self._transformed[0] == raw_cell:
            (_, known), self._transformed = self._transformed, None
            return known
        text: str = super().transform_cell(raw_cell)
        self._transformed = (raw_cell, text)
        return text

    def should_run_async(self, raw_cell: str, *, transformed_cell: str | None = None, **given: Any) -> bool:
        """Return whether a cell awaits. IPython compiles each cell twice to find that out."""
        if transformed_cell is not None and not may_await(transformed_cell):
            return False
        return bool(super().should_run_async(raw_cell, transformed_cell=transformed_cell, **given))

    def showtraceback(self, exc_tuple: Any = None, *_: Any, **__: Any) -> None:
        """Keep the error only: no one reads the traceback, and making it is the largest cost of a failing cell."""
        _, error, _ = self._get_exc_info(exc_tuple)  # %debug and %tb read these, too
        if getattr(self.displayhook, "msg", None) is not None:
            self.unshown = error

    def showsyntaxerror(self, *args: Any, **kwargs: Any) -> None:
        pass

    def _format_exception_for_storage(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {}  # the history is not stored, and this would read the source of every frame

    def enable_gui(self, gui: Any = None) -> None:
        self.active_eventloop = gui

    def ask_exit(self) -> None:
        """Ignore ``quit``, because a submission is graded to its end."""


class _MainThread:
    """Stand-in for the thread that reads requests: cells run in the main thread instead."""

    @property
    def parent_thread(self) -> threading.Thread:
        return threading.main_thread()


class CellKernel(IPythonKernel):
    """A kernel driven by function calls. There is one in a process; it can be made before the fork or after."""

    shell_class = Type(ZMQInteractiveShell)
    compiler_class = Type(_Compiler)  # type: ignore[assignment]
    shell: ZMQInteractiveShell
    session: Session

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shell_channel_thread = _MainThread()
        extensions: Any = self.shell.extension_manager
        extensions.load_extension("storemagic")
        self._forward_input(allow_stdin=False)  # permanently: a test may call what a cell defined

    @property
    def io_loop(self) -> IOLoop:  # type: ignore[override]
        return IOLoop.current()

    def enter(self) -> None:
        """Make this process the notebook's: its variables, its imports, and its own IPython folder."""
        self.shell.init_environment()
        for name, value in {**thread_variables(1), **_INLINE}.items():  # for programs that cells start
            os.environ.setdefault(name, value)
        sys.path[:0] = [""] if "" not in sys.path else []
        self.shell.profile_dir = _Profile()

    async def execute(self, source: str, in_history: bool = True) -> BaseException | None:
        """Run one cell; returns the error that it ended in. A cell that is not ``in_history`` gets no number."""
        request = self.session.msg("execute_request", {"code": source, "allow_stdin": False}) | {"buffers": []}
        self.set_parent([], request)
        self.shell.result = self.shell.unshown = self.shell._transformed = None
        try:
            await self.do_execute(source, silent=False, store_history=in_history, allow_stdin=False)
        except (Exception, asyncio.CancelledError) as error:  # an error of the kernel, which the cell has broken
            return error
        result = self.shell.result
        found: BaseException | None = result.error_before_exec or result.error_in_exec or self.shell.unshown
        return found


def kernel_of_this_process() -> CellKernel:
    """Return the kernel, made at the first call. No thread and no descriptor comes with it."""
    if CellKernel.initialized():
        return CellKernel.instance()
    config = Config()
    config.HistoryManager.enabled = False  # its thread would make every later fork unsafe
    config.InteractiveShell.colors = "nocolor"
    os.environ.update(_INLINE)
    kernel: CellKernel = CellKernel.instance(
        config=config, session=_Mute(), profile_dir=_Profile(), log=logging.getLogger(__name__)
    )
    return kernel
