"""End of unused kernels: a busy kernel stays. The last user of the shared Hub, because it changes the settings."""

from __future__ import annotations

import concurrent.futures

import pytest

from tests.hub.hub_process import Hub, needs_hub, until

pytestmark = [needs_hub, pytest.mark.xdist_group("hub"), pytest.mark.timeout(900)]


def test_idle_kernel_ends_and_busy_kernel_stays(hub: Hub) -> None:
    """Restart the Hub with other settings and run two kernels."""
    hub.kill()
    hub.settings.write_text(hub.settings.read_text() + "[idle]\nminutes = 0.2\ncheck_minutes = 0.02\n")
    hub.start()
    ada = hub.log_in("ada")
    if ada.server:
        ada.stop_server()
    ada.start_server()
    home = hub.state / "homes" / "ada"

    def new_kernel() -> str:
        return str(ada.request("POST", "api/kernels", json={"name": "python3"}).json()["id"])

    def kernels() -> set[str]:
        return {each["id"] for each in ada.get("api/kernels").json()}

    # The busy kernel computes in silence until the idle one, which started later, has ended.
    wait = "while not os.path.exists('go'): time.sleep(0.1)"
    code = f"import os, time; open('at-work', 'w').close()\n{wait}\nprint('done')"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        told = pool.submit(ada.run_in, new_kernel(), code)
        try:
            until("a cell runs", lambda: (home / "at-work").exists() or told.done())
            idle = new_kernel()
            until("the idle kernel has ended", lambda: idle not in kernels() or told.done())
        finally:
            (home / "go").touch()
        assert told.result().strip() == "done"
