"""Shares of the machine on a real Hub: a kernel above its memory limit, and two GPUs that exist only in a list."""

from __future__ import annotations

import os
from typing import Any

import pytest

from mlsys_grading.hub.devices import Devices
from mlsys_grading.hub.limits import enforcement
from mlsys_grading.processes import birth
from tests.hub.hub_process import PATIENCE_SECONDS, Hub, Person, needs_hub, until

pytestmark = [
    needs_hub,
    pytest.mark.skipif(os.geteuid() != 0, reason="the Hub of an ordinary user would look for the listed GPUs"),
    pytest.mark.xdist_group("hub"),
    pytest.mark.timeout(900),
]
SEEN = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['MEM_LIMIT'], os.environ['CPU_LIMIT'])"


def test_two_people_see_two_devices_and_their_own_limits(ada: Person, bob: Person) -> None:
    told = [person.run(SEEN).split() for person in (ada, bob)]
    assert {device for device, *_ in told} == {"GPU-0", "GPU-1"}
    assert {tuple(limits) for _, *limits in told} == {(str(768 << 20), "1.0")}


def test_third_person_gets_a_freed_device(hub: Hub, ada: Person, bob: Person) -> None:
    cleo = hub.log_in("cleo")
    cleo.session.get(f"{hub.url}/hub/spawn/cleo", timeout=PATIENCE_SECONDS)  # any page
    until("the refusal", lambda: "no gpu is free" in _refusal(cleo))
    told = _refusal(cleo)
    assert "ada has one since" in told
    assert "bob has one since" in told
    hub.kill()  # a new Hub reads the leases from the file
    hub.start()
    assert {lease.owner for lease in Devices(hub.state, list).held().values()} == {"ada", "bob"}
    bob.stop_server()
    cleo.start_server()
    assert cleo.run(SEEN).split()[0] != ada.run(SEEN).split()[0]
    cleo.stop_server()


def _refusal(person: Person) -> str:
    """Return the Hub's message when the server does not start."""
    address = f"{person.hub.url}/hub/api/users/{person.name}/server"
    headers = {"X-XSRFToken": person.token("/hub/"), "Referer": f"{person.hub.url}/hub/home"}
    answer = person.session.post(address, headers=headers, timeout=PATIENCE_SECONDS)
    return str(answer.json().get("message", ""))


@pytest.mark.browser
def test_kernel_over_the_limit_is_ended_and_explained(hub: Hub, ada: Person, bob: Person, browser: Any) -> None:
    """Run the kernel in JupyterLab, as a student does."""
    neighbour = bob.request("POST", "api/kernels", json={"name": "python3"}).json()["id"]
    assert bob.run_in(neighbour, "kept = 42; print(kept)") == "42\n"
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "id": "too-much"}
    cell |= {"source": "held = bytearray(2 << 30)\nprint('had it all')"}
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": _PYTHON, "cells": [cell]}
    saved = {"type": "notebook", "format": "json", "content": notebook}
    ada.request("PUT", "api/contents/too-much.ipynb", json=saved).raise_for_status()
    page = hub.open_page(browser, "ada")
    page.goto(f"{hub.url}/user/ada/lab/tree/too-much.ipynb")
    page.wait_for_function(
        "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    )
    page.locator(".jp-Notebook .cm-content").first.click()
    page.keyboard.press("Control+Enter")
    line = page.locator(".jp-OutputArea-output", has_text="more memory than the 0.8 GiB")
    line.wait_for()
    assert line.inner_text().startswith(("The kernel was ended", "The kernel was killed"))
    assert not page.locator(".jp-OutputArea-output", has_text="had it all").count()
    page.context.close()
    assert ada.get("api/status").status_code == 200
    assert ada.run("print('again')") == "again\n"
    assert bob.run_in(neighbour, "print(kept)") == "42\n"
    bob.request("DELETE", f"api/kernels/{neighbour}")


_PYTHON = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def test_leases_and_groups_end_with_their_servers(hub: Hub, ada: Person, bob: Person) -> None:
    servers = [lease.pid for lease in Devices(hub.state, list).held().values()]
    assert len(servers) == 2
    groups = [folder / f"labkit-server-{pid}" for folder in enforcement().folders.values() for pid in servers]
    assert all(group.is_dir() for group in groups)
    for person in (ada, bob):
        person.stop_server()
    assert Devices(hub.state, list).held() == {}
    assert not any(group.exists() for group in groups)
    assert not any(map(birth, servers))
