"""Message in the notebook when its kernel was ended for lack of memory; JupyterLab alone says "restarting".

For a Jupyter server's configuration, on a Hub, on Binder or on a laptop::

    c.ServerApp.kernel_websocket_connection_class = "mlsys_labkit._frontends.kernel_ended.Connection"

The message appears under the cell that ran. It names memory as the reason if a control group counted a kill. Without
that count, on a server with a limit, it says only that the limit is the usual reason for a kill.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from jupyter_server.services.kernels.connection.base import deserialize_binary_message, deserialize_msg_from_ws_v1
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from mlsys_labkit._base import limits

_ADVICE = (
    "What it held in memory is gone; the notebook is not. Use smaller arrays, or shut down other kernels, and run "
    "again from the first cell."
)


def why_ended(code: int | None, kills: int, limit_bytes: int | None) -> str:
    """Return the message, or "" if JupyterLab's own message is enough.

    Args:
        code: the kernel's exit status as in ``subprocess``: -9 if it was killed.
        kills: processes ended for memory since the cell began, as far as a control group counts them.
        limit_bytes: the server's memory limit.

    Example:
        >>> why_ended(-9, 1, 4 << 30).partition(". ")[0]
        'The kernel was ended: this server held more memory than the 4.0 GiB that it may use'
    """
    if code != -signal.SIGKILL or not (kills or limit_bytes):
        return ""
    limit = f"the {limit_bytes / 2**30:.1f} GiB" if limit_bytes else "all"
    if kills:
        return f"The kernel was ended: this server held more memory than {limit} that it may use. {_ADVICE}"
    return f"The kernel was killed, as happens when a server holds more memory than {limit} that it may use. {_ADVICE}"


class Connection(ZMQChannelsWebsocketConnection):
    """Jupyter's own connection, with a message before the status "restarting"."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unfinished: dict[str, dict[str, Any]] = {}  # headers of the cells asked for, the running one first
        self._kills = 0

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Record the cell that the browser asks for, and pass the message on.

        A kernel that is killed at once may not announce the cell itself.
        """
        if (header := self._incoming_header(incoming_msg)).get("msg_type") == "execute_request":
            if not self._unfinished:
                self._kills = limits.memory_kills()
            self._unfinished[header["msg_id"]] = header
        super().handle_incoming_message(incoming_msg)

    def handle_outgoing_message(self, stream: Any, outgoing_msg: list[Any]) -> None:
        """Record which cell begins and which is done, and pass the message on."""
        if getattr(stream, "channel", stream) == "iopub":
            _, parts = self.session.feed_identities(outgoing_msg)
            kind = self.session.unpack(parts[1])["msg_type"]
            if kind == "execute_input":
                self._kills = limits.memory_kills()
            elif kind == "status" and self.session.unpack(parts[4])["execution_state"] == "idle":
                self._unfinished.pop(self.session.unpack(parts[2]).get("msg_id"), None)
        super().handle_outgoing_message(stream, outgoing_msg)

    def on_kernel_restarted(self) -> None:
        """Write the reason under the cell that ran."""
        process = getattr(self.kernel_manager.provisioner, "process", None)
        kills = limits.memory_kills() - self._kills
        running = next(iter(self._unfinished.values()), None)
        if running and (line := why_ended(process.poll() if process else None, kills, _limit_bytes())):
            self.write_stderr(line, running)  # type: ignore[no-untyped-call]
        self._unfinished.clear()
        super().on_kernel_restarted()  # type: ignore[no-untyped-call]

    def _incoming_header(self, message: Any) -> dict[str, Any]:
        if self.subprotocol == "v1.kernel.websocket.jupyter.org":
            _, parts = deserialize_msg_from_ws_v1(message)  # type: ignore[no-untyped-call]
            return dict(self.session.unpack(parts[0]))
        plain = deserialize_binary_message(message) if isinstance(message, bytes) else json.loads(message)  # type: ignore[no-untyped-call]
        return dict(plain["header"])


def _limit_bytes() -> int | None:
    """Return the limit that the Hub sets in MEM_LIMIT; None where it is not set, as on a laptop."""
    given = os.environ.get("MEM_LIMIT", "")
    return int(given) if given.isdigit() and int(given) else None
