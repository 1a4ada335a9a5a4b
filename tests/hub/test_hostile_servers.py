"""Servers whose person has replaced what they do: none of them reaches the Hub or another person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.hub_process import Hub, Person, needs_hub, until

pytestmark = [needs_hub, pytest.mark.xdist_group("hub"), pytest.mark.timeout(900)]


@pytest.fixture
def bob_config(bob: Person) -> Iterator[Path]:
    """The file that bob's server executes when it starts."""
    path = bob.hub.state / "homes/bob/.jupyter/jupyter_server_config.py"
    bob.run("import os; os.makedirs(os.path.expanduser('~/.jupyter'), exist_ok=True)")
    bob.stop_server()
    yield path
    path.unlink()


def test_a_large_log_does_not_fill_the_memory_of_the_hub(hub: Hub, bob: Person, bob_config: Path) -> None:
    bob_config.write_text(
        "import os\nos.ftruncate(1, 512 << 20)\nos.lseek(2, 0, 2)\nos.write(2, b'<b>the end</b>')\nos._exit(1)\n"
    )
    before = _peak_bytes(hub)
    page = bob.session.get(f"{hub.url}/hub/spawn/bob", timeout=300)
    until("the start has failed", lambda: not bob.server)
    assert _peak_bytes(hub) - before < 100 << 20
    log = hub.state / "logs" / "bob.log"
    assert log.stat().st_size > 512 << 20, page.text
    assert log.stat().st_uid == (hub.state / "homes/bob").stat().st_uid, "it counts against bob's quota"


def _peak_bytes(hub: Hub) -> int:
    assert hub.process is not None
    status = Path(f"/proc/{hub.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def test_a_start_that_fails_says_why(hub: Hub, bob: Person, bob_config: Path) -> None:
    bob_config.write_text("raise SystemExit('my own mistake')\n")
    bob.session.get(f"{hub.url}/hub/spawn/bob", timeout=300)
    until("the start has failed", lambda: not bob.server)
    headers = {"X-XSRFToken": bob.token("/hub/"), "Referer": f"{hub.url}/hub/home"}
    told = bob.session.get(f"{hub.url}/hub/api/users/bob/server/progress", headers=headers, timeout=300).text
    assert "Spawn failed: the server ended while it started: my own mistake" in told
