"""People of a crowd on one Hub: what each of them does, how long it took, and faults in the middle of their work."""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import requests

from mlsys_grading.hub.accounts import Accounts
from mlsys_grading.processes import tree_memory_bytes
from mlsys_labkit._base.limits import usable_cores
from tests.hub.hub_process import PATIENCE_SECONDS, Hub, Person, until

LAB = "lab00_your_machine"
NOTEBOOK = f"mlsys/{LAB}/{LAB}.ipynb"
CELLS = "window.jupyterapp.shell.currentWidget.content"
IS_CODE = "cell => cell.model.type === 'code'"
CHOOSE = f"() => {{ {CELLS}.activeCellIndex = {CELLS}.widgets.findIndex({IS_CODE}) }}"
RAN = f"() => !!{CELLS}.widgets.find({IS_CODE})?.model.executionCount"
ANSWER = f"text => {CELLS}.widgets.find({IS_CODE}).model.sharedModel.setSource(text)"
KERNEL_IS_IDLE = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"


@dataclass
class Crowd:
    """Requests of people to the Hub, how long each took, and what became of their work."""

    hub: Hub
    up: threading.Event = field(default_factory=threading.Event)
    away: list[tuple[str, float, float]] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    saved: dict[str, list[str]] = field(default_factory=dict)
    handed_in: list[str] = field(default_factory=list)
    servers: list[int] = field(default_factory=list)
    server_bytes: list[float] = field(default_factory=list)

    def ask(self, name: str, what: str, request: Callable[[], Any]) -> Any:
        """Make a request. Repeat it only if it failed while a part of the Hub was away."""
        while True:
            self.up.wait()
            began = time.monotonic()
            try:
                answer = request()
            except Exception as error:
                if not self._was_away(began):
                    self.failed.append(f"{name}, {what}: {error!r}")
                    raise
                self.again.append(what)
                continue
            self.took(what, began)
            return answer

    def took(self, what: str, began: float) -> None:
        self.seconds.setdefault(what, []).append(time.monotonic() - began)

    def _was_away(self, since: float) -> bool:
        return not self.up.is_set() or any(ended >= since for _, _, ended in self.away)

    @contextmanager
    def without(self, what: str) -> Iterator[None]:
        """Let people wait with their next request until the end of the block."""
        self.up.clear()
        began = time.monotonic()
        try:
            yield
        finally:
            self.away.append((what, began, time.monotonic() + 1.0))  # a request may just have been refused
            self.up.set()

    def kill_all_parts(self) -> None:
        """Send SIGKILL to the Hub, the proxy and the course's service, one after another, and wait for each."""
        hub = self.hub
        with self.without("hub"):
            before = servers(hub)
            hub.kill()
            hub.start()
            assert before.items() <= (servers(hub).items() | _ended(before)), "a restart of the Hub ended a server"
        with self.without("proxy"):
            proxy = psutil.Process(int((hub.state / "proxy.pid").read_text()))
            proxy.kill()
            proxy.wait(PATIENCE_SECONDS)
            until("a login page and the course", lambda: _answers(f"{hub.url}/hub/login"))
            until("a route to each server", lambda: all(_answers(f"{hub.url}/user/{n}/api") for n in servers(hub)))
        with self.without("course"):
            (course,) = (each for each in hub.servers() if each.environ()["HOME"].endswith("/homes/grader-mlsys"))
            course.kill()
            until("the course", hub._is_up)


def _answers(address: str) -> bool:
    with suppress(requests.RequestException):
        return requests.get(address, timeout=30).ok
    return False


def _ended(pids: dict[str, int]) -> set[tuple[str, int]]:
    return {(name, pid) for name, pid in pids.items() if not psutil.pid_exists(pid)}


def servers(hub: Hub) -> dict[str, int]:
    """Return the outermost process of each student's server."""
    found = {}
    for process in hub.servers():
        with suppress(psutil.Error):
            found[Path(process.environ()["HOME"]).name] = process.pid
    return {name: pid for name, pid in found.items() if name.startswith("student")}


# --- one person ------------------------------------------------------------------------------------------------------


def work(crowd: Crowd, name: str, neighbour: str, wave: int) -> None:
    """Do the work of one student by HTTP, from the login to the end of the server.

    Everyone keeps the server until ``wave`` people have handed in: those who began together, and those before them.
    """
    hub = crowd.hub
    person: Person = crowd.ask(name, "log in", lambda: log_in(hub, name))
    clicked = time.monotonic()
    crowd.ask(name, "server", lambda: start(person))
    opened = time.monotonic()
    content = crowd.ask(name, "notebook", lambda: open_notebook(person))
    kernel = crowd.ask(name, "kernel", lambda: start_kernel(person))
    first, second, *_ = ("".join(each["source"]) for each in content["cells"] if each["cell_type"] == "code")
    crowd.ask(name, "cell", lambda: person.run_in(kernel, first))
    crowd.took("from the click to the first cell", clicked)
    crowd.took("from Lab to the first cell", opened)
    crowd.ask(name, "imports", lambda: person.run_in(kernel, second.replace("%load_ext mlsys_labkit", "")))
    told = crowd.ask(name, "name", lambda: person.run_in(kernel, "import os; print(os.environ['USER'], os.getuid())"))
    assert told.split() == [name, str(Accounts(hub.state).person(name).uid)]
    refused = crowd.ask(name, "neighbour", lambda: person.request("GET", "api/contents", whose=neighbour))
    assert not refused.ok, f"{name} reads the files of {neighbour}"
    crowd.saved[name] = crowd.ask(name, "save", lambda: save(person, content))
    crowd.ask(name, "submit", lambda: submit(person))
    crowd.handed_in.append(name)
    until("all of the wave have handed in", lambda: len(crowd.handed_in) >= wave or crowd.failed, 4 * 3600)
    crowd.ask(name, "stop", person.stop_server)


def log_in(hub: Hub, name: str) -> Person:
    person = hub.log_in(name)
    assert person.answer is not None
    person.answer.raise_for_status()
    assert person.answer.url.endswith("/hub/home"), person.answer.url
    return person


def start(person: Person) -> None:
    """Click the button that starts the server, follow the progress as its page does, and open JupyterLab."""
    hub, session = person.hub, person.session
    session.get(f"{hub.url}/hub/spawn/{person.name}", timeout=PATIENCE_SECONDS).raise_for_status()
    until("a server", lambda: _is_ready(person), 4 * 3600)
    lab = session.get(f"{hub.url}/user/{person.name}/lab", timeout=PATIENCE_SECONDS)
    assert lab.status_code == 200, lab.url


def _is_ready(person: Person) -> bool:
    """Follow the progress of a start. After a restart, the Hub first looks for its servers and tells of none."""
    if person.server.get("ready"):
        return True
    hub = person.hub
    headers = {"X-XSRFToken": person.token("/hub/"), "Referer": f"{hub.url}/hub/home"}
    address = f"{hub.url}/hub/api/users/{person.name}/server/progress"
    with person.session.get(address, headers=headers, stream=True, timeout=PATIENCE_SECONDS) as progress:
        events = [json.loads(line[6:]) for line in progress.iter_lines() if line.startswith(b"data: ")]
    assert not (events and events[-1].get("failed")), f"{events[-1]}\n{person.log[-2000:]}\n{hub.log[-2000:]}"
    return bool(events and events[-1].get("ready"))


def open_notebook(person: Person) -> Any:
    """List the labs, and open the notebook."""
    listed = person.get("api/contents/mlsys")
    listed.raise_for_status()
    assert LAB in {each["name"] for each in listed.json()["content"]}
    model = person.get(f"api/contents/{NOTEBOOK}")
    model.raise_for_status()
    return model.json()["content"]


def start_kernel(person: Person) -> str:
    wanted = {"path": NOTEBOOK, "type": "notebook", "name": NOTEBOOK, "kernel": {"name": "python3"}}
    made = person.request("POST", "api/sessions", json=wanted)
    made.raise_for_status()
    return str(made.json()["kernel"]["id"])


def save(person: Person, content: Any) -> list[str]:
    """Save the notebook with a line of this person's; return its sources."""
    for cell in content["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            cell["source"] = f"# {answer(person.name)}\n"
    saved = {"type": "notebook", "format": "json", "content": content}
    person.request("PUT", f"api/contents/{NOTEBOOK}", json=saved).raise_for_status()
    return ["".join(cell["source"]) for cell in content["cells"]]


def answer(name: str) -> str:
    return f"answer of {name}"


def submit(person: Person) -> None:
    address = f"{person.hub.url}/user/{person.name}/assignments/submit"
    headers = {"X-XSRFToken": person.token(f"/user/{person.name}/")}
    data = {"assignment_id": LAB, "course_id": "mlsys"}
    sent = person.session.post(address, data=data, headers=headers, timeout=PATIENCE_SECONDS)
    sent.raise_for_status()
    assert sent.json()["success"], sent.text


def open_in_browser(crowd: Crowd, page: Any) -> None:
    """Wait for the real JupyterLab of a server that is being started, and run the first cell."""
    page.wait_for_selector(".jp-DirListing-item", state="visible", timeout=1e3 * 3600)
    # After a fault JupyterLab says, in front of everything else, that the server cannot be reached.
    page.add_locator_handler(page.locator(".jp-Dialog"), lambda said: said.locator("button").last.click())
    opened = time.monotonic()
    in_lab(page, "docmanager:open", path=NOTEBOOK)
    page.wait_for_function(KERNEL_IS_IDLE)
    page.evaluate(CHOOSE)
    in_lab(page, "notebook:run-cell")
    page.wait_for_function(RAN)
    crowd.took("from Lab to the first cell, in a browser", opened)


def finish_in_browser(crowd: Crowd, page: Any, name: str) -> None:
    """Change the notebook, save it and hand it in, in the page that was open all the time."""
    page.evaluate(ANSWER, f"# {answer(name)}")
    in_lab(page, "docmanager:save")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    page.locator(".lm-MenuBar-item", has_text="Nbgrader").click()
    page.locator(".lm-Menu-item", has_text="Assignment List").click()
    fetched = page.locator("#fetched_assignments_list .list_item", has_text=LAB)
    fetched.locator("button", has_text="Submit").click()
    page.locator("#submitted_assignments_list .list_item", has_text=LAB).first.wait_for()
    crowd.saved[name] = sources(crowd.hub.state / "homes" / name / NOTEBOOK)
    assert f"# {answer(name)}" in crowd.saved[name]
    crowd.handed_in.append(name)


def in_lab(page: Any, command: str, **arguments: Any) -> None:
    """Execute a command of JupyterLab, as its menus do."""
    page.wait_for_function("() => window.jupyterapp?.commands")
    page.evaluate("([name, args]) => void window.jupyterapp.commands.execute(name, args)", [command, arguments])


def sources(notebook: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"]]


# --- figures ---------------------------------------------------------------------------------------------------------


def watch(crowd: Crowd, done: threading.Event) -> None:
    """Open the login page every second, and every ten seconds count the servers and measure their memory."""
    turn = 0
    while not done.wait(1.0):
        with suppress(requests.RequestException):
            crowd.up.wait()
            began = time.monotonic()
            if requests.get(f"{crowd.hub.url}/hub/login", timeout=PATIENCE_SECONDS).ok:
                crowd.took("login page", began)
        turn += 1
        if turn % 10 == 0 and (running := servers(crowd.hub)):
            crowd.servers.append(len(running))
            crowd.server_bytes.append(sum(map(tree_memory_bytes, running.values())) / len(running))
            crowd.seconds.setdefault("(load of the machine)", []).append(os.getloadavg()[0])


def report(crowd: Crowd, seconds: float) -> None:
    """Print figures for the reader of the output: median, 95 % and longest of each kind of request."""
    assert crowd.hub.process is not None
    hub = psutil.Process(crowd.hub.process.pid)
    figures: dict[str, Any] = {
        "students": len(crowd.saved),
        "most_servers_at_once": max(crowd.servers, default=0),
        "cores": usable_cores(),
        "seconds": round(seconds),
        "failed": len(crowd.failed),
        "asked_again_while_a_part_was_away": len(crowd.again),
        "seconds_away": {what: round(ended - began - 1.0, 1) for what, began, ended in crowd.away},
        "handed_in": len(crowd.handed_in),
        "hub_mib": hub.memory_info().rss >> 20,
        "hub_processor_seconds_since_its_restart": round(sum(hub.cpu_times()[:2])),
        "server_mib_mean_in_a_sample": {
            "median": round(statistics.median(crowd.server_bytes or [0]) / 2**20),
            "largest": round(max(crowd.server_bytes, default=0) / 2**20),
        },
        "median_95_max": {what: _spread(took) for what, took in sorted(crowd.seconds.items())},
    }
    print(json.dumps(figures, indent=2), file=sys.stderr)
    if path := os.environ.get("LABKIT_SOAK_FIGURES"):
        Path(path).write_text(json.dumps(figures, indent=2))


def _spread(values: list[float]) -> list[float]:
    ordered = sorted(values)
    return [round(each, 2) for each in (statistics.median(ordered), ordered[int(0.95 * len(ordered))], ordered[-1])]
