"""Message under the cell of a killed kernel, on a real Jupyter server, in both protocols of its websocket."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1
from websocket import ABNF, create_connection

from mlsys_grading.hub import limits
from mlsys_grading.processes import kill_tree
from mlsys_labkit._frontends.kernel_ended import why_ended
from tests.hub.hub_process import PATIENCE_SECONDS, free_ports, until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a Hub runs on Linux"),
    pytest.mark.xdist_group("hub"),
    pytest.mark.timeout(900),
]
V1 = "v1.kernel.websocket.jupyter.org"
TOKEN = "token-of-this-test"
GIB = 1 << 30


@dataclass
class Server:
    """A Jupyter server with the connection class that the Hub's servers have."""

    port: int
    pid: int

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"token {TOKEN}"

    def is_up(self) -> bool:
        try:
            return self.session.get(f"{self.url}/api", timeout=30).ok
        except requests.RequestException:
            return False

    def run(self, *cells: str, protocol: str) -> list[dict[str, Any]]:
        """Run ``cells`` in a new kernel; return the messages that a browser gets while the last one runs.

        The messages end with the end of the cell or with the kernel's restart. The output "kill me, PID" makes this
        method kill the process.
        """
        made = self.session.post(f"{self.url}/api/kernels", json={"name": "python3"}, timeout=PATIENCE_SECONDS).json()[
            "id"
        ]
        address = f"ws://127.0.0.1:{self.port}/api/kernels/{made}/channels?token={TOKEN}"
        link = create_connection(address, subprotocols=[protocol] if protocol else None, timeout=PATIENCE_SECONDS)
        try:
            for code in cells:
                asked, seen = _ask(link, code, protocol), []
                for each in _until_restarted(link, asked, bool(protocol)):
                    seen.append(each)
                    if match := re.fullmatch(r"kill me, (\d+)\n", str(each.get("text", ""))):
                        os.kill(int(match[1]), signal.SIGKILL)
            return seen
        finally:
            link.close()
            self.session.delete(f"{self.url}/api/kernels/{made}", timeout=PATIENCE_SECONDS)


def _ask(link: Any, code: str, protocol: str) -> str:
    """Ask the kernel to run ``code`` and return the message's id."""
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "version": "5.3", "session": "test"}
    content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
    if protocol:
        parts = [json.dumps(message[name]).encode() for name in message]
        link.send(serialize_msg_to_ws_v1(parts, "shell"), ABNF.OPCODE_BINARY)
    else:
        link.send(json.dumps(message | {"channel": "shell"}))
    return header["msg_id"]


def _until_restarted(link: Any, asked: str, v1: bool) -> Iterator[dict[str, Any]]:
    while True:
        received = link.recv()
        if v1:
            channel, parts = deserialize_msg_from_ws_v1(received)
            header, parent, _, content = (json.loads(part) for part in parts[:4])
        else:
            plain = json.loads(received)
            channel, header, parent, content = (plain[n] for n in ("channel", "header", "parent_header", "content"))
        if channel != "iopub":
            continue
        yield {"kind": header["msg_type"], "mine": parent.get("msg_id") == asked, **content}
        state = content.get("execution_state")
        if state in ("restarting", "dead") or (state == "idle" and parent.get("msg_id") == asked):
            return


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    """Start a server with the MEM_LIMIT in ``request.param``."""
    (port,), tmp_path = free_ports(1), tmp_path_factory.mktemp("server")
    environment = os.environ | {"JUPYTER_CONFIG_DIR": str(tmp_path), "MEM_LIMIT": getattr(request, "param", "")}
    command = [sys.executable, "-m", "jupyter_server", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={tmp_path}", "--allow-root", "--no-browser"]
    command += ["--ServerApp.kernel_websocket_connection_class=mlsys_labkit._frontends.kernel_ended.Connection"]
    with (
        open(tmp_path / "log", "w") as log,
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            made = Server(port, process.pid)
            until("a server", made.is_up)
            yield made
        finally:
            kill_tree(process.pid)


KILLED = "import os, signal; print('kill me,', os.getpid(), flush=True); signal.pause()"


@pytest.mark.parametrize("protocol", ["", V1], ids=["json", "v1"])
@pytest.mark.parametrize("server", [str(4 * GIB)], indirect=True)
def test_killed_kernel_is_explained_before_its_restart(server: Server, protocol: str) -> None:
    seen = server.run(KILLED, protocol=protocol)
    streams = [(each["name"], each["mine"]) for each in seen if each["kind"] == "stream"]
    assert streams == [("stdout", True), ("stderr", True)]
    (line,) = (each["text"] for each in seen if each.get("name") == "stderr")
    assert line.startswith("The kernel was killed, as happens when a server holds more memory than the 4.0 GiB")
    assert seen[-1]["execution_state"] == "restarting"
    assert seen[-2]["kind"] == "stream"


ANNOUNCES_NO_CELL = "get_ipython().kernel._publish_execute_input = lambda *_: None"
KILLED_AT_ONCE = "import os; os.kill(os.getpid(), 9)"


@pytest.mark.parametrize("protocol", ["", V1], ids=["json", "v1"])
@pytest.mark.parametrize("server", [str(4 * GIB)], indirect=True)
def test_kernel_killed_before_it_announced_its_cell_is_explained(server: Server, protocol: str) -> None:
    seen = server.run(ANNOUNCES_NO_CELL, KILLED_AT_ONCE, protocol=protocol)
    assert "execute_input" not in [each["kind"] for each in seen]
    assert [each["mine"] for each in seen if each.get("name") == "stderr"] == [True]


@pytest.mark.parametrize("server", [""], indirect=True)
def test_no_message_without_a_limit(server: Server) -> None:
    assert not [each for each in server.run(KILLED, protocol=V1) if each.get("name") == "stderr"]


@pytest.mark.parametrize("server", [str(4 * GIB)], indirect=True)
@pytest.mark.parametrize("code", ["import os; os._exit(1)", "import os; os.kill(os.getpid(), 11)", "print('well')"])
def test_no_message_for_other_ends(server: Server, code: str) -> None:
    assert not [each for each in server.run(code, protocol=V1) if each.get("name") == "stderr"]


@pytest.mark.parametrize("server", [str(300 << 20)], indirect=True)
def test_counted_kill_names_memory(server: Server) -> None:
    limits._prepared.cache_clear()
    if "memory" not in limits.enforcement().folders:
        pytest.skip(f"no control group is ours to divide: {limits.enforcement()}")
    limits.confine(server.pid, limits.ServerLimits(memory_bytes=300 << 20))
    try:
        seen = server.run("held = bytearray(900 << 20)", protocol=V1)
        (line,) = (each["text"] for each in seen if each.get("name") == "stderr")
        assert line.startswith("The kernel was ended: this server held more memory than the 0.3 GiB")
        assert server.is_up()
        until(
            "a cell that fits", lambda: any(each.get("text") == "42\n" for each in server.run("print(42)", protocol=V1))
        )
    finally:
        limits.release(server.pid)


@pytest.mark.parametrize(
    ("code", "kills", "limit", "beginning"),
    [
        (-9, 1, 4 * GIB, "The kernel was ended: this server held more memory than the 4.0 GiB"),
        (-9, 1, None, "The kernel was ended: this server held more memory than all that it may use"),
        (-9, 0, 4 * GIB, "The kernel was killed, as happens"),
        (-9, 0, None, ""),
        (1, 1, 4 * GIB, ""),
        (None, 1, 4 * GIB, ""),
        (-11, 0, 4 * GIB, ""),
    ],
)
def test_why_ended_names_the_reason(code: int | None, kills: int, limit: int | None, beginning: str) -> None:
    line = why_ended(code, kills, limit)
    assert line.startswith(beginning)
    assert bool(line) == bool(beginning)
    assert "\n" not in line
