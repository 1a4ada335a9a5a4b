"""Loop of a course on a real Hub, in a real browser: release, log in, work, hand in, collect, grade, read feedback.

An instructor and two students, each a user of the machine; ada solves lab 01, bob half of it. What they do by hand is
done by mouse and keyboard in the pages that they would have before them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from nbgrader.api import Gradebook
from websocket import create_connection

from mlsys_grading.build.notebook import dumps, source_notebook
from mlsys_grading.lab import Lab, read_lab
from mlsys_grading.sandbox.confine import refusal
from tests.conftest import ROOT
from tests.hub.hub_process import Hub, Person, needs_hub, until
from tests.hub.test_what_is_left import of_hubs
from tests.labkit.jupyterlab import ALL_RUN

pytestmark = [
    needs_hub,
    pytest.mark.skipif(bool(refusal()), reason="this machine allows no sandbox"),
    pytest.mark.browser,
    pytest.mark.xdist_group("loop"),
    pytest.mark.timeout(900),
]
LAB = "lab01_linear_algebra"
NOTEBOOK = f"mlsys/{LAB}/{LAB}.ipynb"
BOBS = 7  # how many tasks bob solves, the first ones, for 50 points


@pytest.fixture(scope="module")
def lab() -> Lab:
    return read_lab(ROOT, LAB)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, lab: Lab) -> Iterator[Hub]:
    """Start a Hub whose course has lab 01 alone, with pages that give tests access to JupyterLab's state."""
    folder = tmp_path_factory.mktemp("loop")
    source = folder / "build" / "source" / LAB
    source.mkdir(parents=True)
    (source / f"{LAB}.ipynb").write_text(dumps(source_notebook(lab)), encoding="utf-8")
    (folder / "no-labs").mkdir()  # nothing is handed out beside the exchange
    made = Hub(folder, labs=folder / "no-labs")
    with open(folder / "singleuser" / "jupyter_server_config.py", "a") as settings:
        settings.write("c.LabApp.expose_app_in_browser = True\n")
    with made as hub:
        yield hub
    until("nothing of the Hub is left", lambda: not of_hubs("tests/hub/test_loop.py", [folder]))


@pytest.fixture(scope="module")
def bob(hub: Hub) -> Person:
    person = hub.log_in("bob")
    person.start_server()
    return person


@pytest.fixture(scope="module")
def ada(hub: Hub) -> Person:
    person = hub.log_in("ada")
    person.start_server()
    return person


# --- what people do --------------------------------------------------------------------------------------------------


def in_lab(page: Any, command: str, **arguments: Any) -> None:
    """Execute a command of JupyterLab, as its menus do."""
    page.wait_for_function("() => window.jupyterapp?.commands")
    page.evaluate("([name, args]) => void window.jupyterapp.commands.execute(name, args)", [command, arguments])


def formgrader(page: Any) -> Any:
    """Return the frame with formgrader in the course's Lab, once its list of assignments is drawn."""
    frame = page.frame_locator("iframe[src*='formgrader']")
    frame.locator("tr", has_text=LAB).first.wait_for()
    return frame


def press(frame: Any, column: str) -> None:
    """Press a button in formgrader's line of our lab, and wait for its report of success."""
    frame.locator("tr", has_text=LAB).locator(f".{column} a").click()
    done = frame.locator(".modal.in", has_text=re.compile("Success|Error"))
    done.wait_for()
    assert "Success" in done.inner_text(), done.inner_text()
    done.locator("button", has_text="OK").click()
    done.wait_for(state="detached")


def assignments(page: Any, place: str) -> Any:
    """Open nbgrader's list of assignments; return our lab's line in ``place``: released, fetched or submitted."""
    page.locator(".lm-MenuBar-item", has_text="Nbgrader").click()
    page.locator(".lm-Menu-item", has_text="Assignment List").click()
    return page.locator(f"#{place}_assignments_list .list_item", has_text=LAB)


def open_notebook(page: Any) -> None:
    in_lab(page, "docmanager:open", path=NOTEBOOK)
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    )


def write_answers(person: Person, lab: Lab, count: int | None = None) -> None:
    """Put the solutions of the first ``count`` tasks into the student's notebook, through the contents API."""
    solutions = {task.name: task.solution.source for task in lab.tasks[:count]}
    model = person.get(f"api/contents/{NOTEBOOK}").json()
    for cell in model["content"]["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id")
        cell["source"] = solutions.get(name, cell["source"])
    saved = {"type": "notebook", "format": "json", "content": model["content"]}
    person.request("PUT", f"api/contents/{NOTEBOOK}", json=saved).raise_for_status()


def scroll_to(page: Any, wanted: Any) -> None:
    """Turn the wheel over the notebook until ``wanted`` is there: JupyterLab draws only what is in view."""
    panel = page.locator(".jp-WindowedPanel-outer:visible").first
    panel.hover()
    panel.evaluate("node => node.scrollTo(0, 0)")

    def found() -> bool:
        page.mouse.wheel(0, 300)
        return bool(wanted.count())

    until("the widget", found)
    wanted.scroll_into_view_if_needed()


def in_terminal(hub: Hub, person: Person, command: str) -> str:
    """Run ``command`` in a terminal of the course's service, opened by ``person``, and return its output."""
    service = f"{hub.url}/services/mlsys/"
    person.session.get(f"{service}lab", timeout=300).raise_for_status()
    headers = {"X-XSRFToken": person.token("/services/mlsys/")}
    made = person.session.post(f"{service}api/terminals", headers=headers, timeout=300)
    made.raise_for_status()
    cookies = "; ".join(f"{c.name}={c.value}" for c in person.session.cookies if c.path in ("/", "/services/mlsys/"))
    address = f"{service.replace('http', 'ws', 1)}terminals/websocket/{made.json()['name']}"
    link = create_connection(address, cookie=cookies, origin=hub.url, timeout=300)
    try:
        link.send(json.dumps(["stdin", f"{command}; echo code=$?=\r"]))
        said = ""
        while not (ended := re.search(r"code=(\d+)=", said)):
            kind, *text = json.loads(link.recv())
            said += text[0] if kind == "stdout" else ""
        assert ended[1] == "0", said
        return said
    finally:
        link.close()


# --- the loop --------------------------------------------------------------------------------------------------------


def test_from_release_to_feedback(hub: Hub, browser: Any, lab: Lab) -> None:
    course = hub.open_page(browser, "grace")
    release(hub, course)
    ada = hub.open_page(browser, "ada")
    work(hub, ada, lab)
    bob = hub.log_in("bob")
    bob.start_server()
    half = bob_hands_in_half(bob, lab)
    press(formgrader(course), "collect")
    said = in_terminal(hub, hub.log_in("grace"), f"labkit grade {LAB}")
    assert "2 graded" in said
    marks = {"ada": 100.0, "bob": half}
    assert scores(hub) == marks
    shown_by_formgrader(hub, course, marks)
    read_feedback(ada, bob, half)


def release(hub: Hub, page: Any) -> None:
    """Generate the students' version and release it, as the instructor."""
    page.click("text=Services")
    page.click("a[href='/services/mlsys/']")
    frame = formgrader(page)
    press(frame, "assign")
    press(frame, "release")
    released = (hub.state / "exchange" / "mlsys" / "outbound" / LAB / f"{LAB}.ipynb").read_text()
    assert "BEGIN SOLUTION" not in released
    assert "BEGIN HIDDEN TESTS" not in released


def work(hub: Hub, page: Any, lab: Lab) -> None:
    """Fetch the lab, solve it, use its widget, validate it and hand it in, as ada."""
    page.click("#start")
    page.wait_for_url("**/user/ada/lab**")
    assignments(page, "released").locator("button", has_text="Fetch").click()
    assignments(page, "fetched").locator("button", has_text="Submit").wait_for()

    person = hub.log_in("ada")
    person.start_server()  # runs already: this gets the cookies of a second browser
    write_answers(person, lab)
    open_notebook(page)
    in_lab(page, "notebook:run-all-cells")
    page.wait_for_function(ALL_RUN)
    play(page)
    in_lab(page, "docmanager:save")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    assert len(person.get(f"api/contents/{NOTEBOOK}").content) < 1_000_000

    page.locator(".jp-NotebookPanel-toolbar").get_by_text("Validate").click()
    results = page.locator(".jp-Dialog")
    results.locator("text=Validation Results").wait_for()
    results.get_by_text("Success! Your notebook passes all the tests.").wait_for()
    results.locator("button", has_text="Ok").click()

    assignments(page, "fetched").locator("button", has_text="Submit").click()
    assignments(page, "submitted").first.wait_for()


def play(page: Any) -> None:
    """Use the stride viewer: transpose the matrix with the mouse, and move through it with the arrow keys."""
    from playwright.sync_api import expect

    viewer = page.locator("section.lk", has=page.get_by_role("button", name="Transpose"))
    scroll_to(page, viewer)
    formula = viewer.locator(".lk-formula")
    cell = viewer.locator(".lk-cell")
    cell.nth(1).hover()
    expect(formula).to_have_text("[0, 1] → 0 + 0·4 + 1·1 = 1 → byte 8, cache line 0")
    viewer.get_by_role("button", name="Transpose").click()
    expect(viewer.get_by_label("Shape")).to_have_value("4, 3")
    cell.first.focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    expect(formula).to_have_text("[1, 1] → 0 + 1·1 + 1·4 = 5 → byte 40, cache line 0")


def bob_hands_in_half(bob: Person, lab: Lab) -> float:
    """Hand in half of the tasks by the addresses that the pages use. Return their points."""
    assignment = {"course_id": "mlsys", "assignment_id": LAB}
    bob.request("POST", "assignments/fetch", json=assignment).raise_for_status()
    write_answers(bob, lab, BOBS)
    answer = bob.request("POST", "assignments/submit", json=assignment).json()
    assert answer["success"], answer
    return sum(test.points for task in lab.tasks[:BOBS] for test in task.tests)


def scores(hub: Hub) -> dict[str, float]:
    with Gradebook(f"sqlite:///{hub.state / 'course' / 'gradebook.db'}", "mlsys") as book:
        return {each.student.id: each.score for each in book.assignment_submissions(LAB)}


def shown_by_formgrader(hub: Hub, page: Any, marks: dict[str, float]) -> None:
    """Check the marks in formgrader, and release the feedback, as the instructor."""
    from playwright.sync_api import expect

    page.goto(f"{hub.url}/services/mlsys/formgrader/manage_submissions/{LAB}")
    for student, points in marks.items():
        expect(page.locator("tr", has_text=student)).to_contain_text(f"{points:g} / 100")
    page.goto(f"{hub.url}/services/mlsys/formgrader/manage_assignments")
    for column in ("generate-feedback", "release-feedback"):
        press(page, column)


def read_feedback(ada: Any, bob: Person, half: float) -> None:
    """Read the feedback: ada's through the list of assignments, bob's by its address."""
    assignments(ada, "submitted").first.locator("button", has_text="Fetch Feedback").first.click()
    ada.locator("a", has_text="view feedback").first.click()
    page = ada.locator(".jp-DirListing-item", has_text=f"{LAB}.html")
    page.dblclick()
    frame = ada.frame_locator("iframe[srcdoc], iframe[src^='blob:'], .jp-HTMLViewer iframe").first
    until("ada's feedback", lambda: "100 of 100 points" in " ".join(frame.locator("body").inner_text().split()))

    listed = bob.request("POST", "assignments/fetch_feedback", json={"course_id": "mlsys", "assignment_id": LAB}).json()
    (submission,) = (each for entry in listed["value"] for each in entry.get("submissions", ()))
    told = bob.get(f"files/{submission['local_feedback_path']}/{LAB}.html").text
    assert f"{half:g} of 100 points" in " ".join(re.sub(r"<[^>]*>", " ", told).split())
    assert "BEGIN HIDDEN TESTS" not in told


def test_memory_and_gpu_extensions_answer(ada: Person) -> None:
    assert ada.get("api/metrics/v1").json()["pss"] > 10_000_000
    assert set(ada.get("nvdashboard/accelerators/check").json()) >= {"has_gpu", "ngpus"}, "without a GPU, too"


# --- what is forbidden ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["lab", "formgrader/manage_assignments", "api/contents", "formgrader/api/students"])
def test_a_student_is_refused_the_graders_pages(hub: Hub, bob: Person, path: str) -> None:
    assert bob.session.get(f"{hub.url}/services/mlsys/{path}", timeout=300).status_code == 403


@pytest.mark.parametrize("path", ["lab", "api/contents", "api/kernels", "assignments?course_id=mlsys"])
def test_a_student_is_refused_anothers_server(ada: Person, bob: Person, path: str) -> None:
    assert ada.get(path).ok, "it is there"
    assert bob.request("GET", path, whose="ada").status_code in (403, 404)


@pytest.mark.parametrize("path", ["users/ada", "users/ada/tokens", "users/ada/server", "groups/formgrade-mlsys"])
def test_student_is_refused_the_hubs_records_of_others(hub: Hub, bob: Person, path: str) -> None:
    headers = {"X-XSRFToken": bob.token("/hub/"), "Referer": f"{hub.url}/hub/home"}
    for verb in ("GET", "POST", "DELETE"):
        answer = bob.session.request(verb, f"{hub.url}/hub/api/{path}", headers=headers, timeout=300)
        assert answer.status_code in (403, 404, 405), verb


def test_server_token_reads_no_other_user(bob: Person) -> None:
    code = """
import os, requests_unixsocket
def ask(path):
    headers = {"Authorization": "token " + os.environ["JUPYTERHUB_API_TOKEN"]}
    return requests_unixsocket.get(os.environ["JUPYTERHUB_API_URL"] + path, headers=headers).status_code
print([ask(path) for path in ("/users/bob", "/users/ada", "/users", "/groups", "/services", "/proxy")])
"""
    own, *others = json.loads(bob.run(code))
    assert own == 200
    assert set(others) <= {403, 404}


def test_a_student_reads_no_file_of_the_course_or_of_another(hub: Hub, ada: Person, bob: Person) -> None:
    hidden = ["course", "course/gradebook.db", f"course/source/{LAB}/{LAB}.ipynb", "homes/ada", "jupyterhub.sqlite"]
    hidden += ["cookie_secret", "proxy_token", "course.entry", "exchange/mlsys/inbound", "exchange/mlsys/feedback"]
    code = f"""
import os, pathlib
for name in {hidden}:
    path = pathlib.Path({str(hub.state)!r}, name)
    try:
        print(name, len(os.listdir(path)) if path.is_dir() else path.read_bytes())
    except OSError:
        pass
"""
    assert all((hub.state / name).exists() for name in hidden if name != "course/gradebook.db")
    assert bob.run(code) == ""


def test_forged_submissions_are_not_collected(hub: Hub, ada: Person, bob: Person) -> None:
    """Put three folders of bob's into the exchange: in ada's name, with a link to the solution, with an old date."""
    solution = hub.state / "course" / "source" / LAB / f"{LAB}.ipynb"
    code = f"""
import os, pathlib
inbound = pathlib.Path({str(hub.state / "exchange" / "mlsys" / "inbound")!r})
def put(name):
    folder = inbound / name
    folder.mkdir()
    (folder / "submission_secret.txt").write_text("x")
    return folder / {LAB + ".ipynb"!r}
put("ada+{LAB}+2099-01-01 00:00:00.000000 UTC+x").write_text("forged")
put("bob+{LAB}+2099-01-02 00:00:00.000000 UTC+x").symlink_to({str(solution)!r})
put("bob+{LAB}+2001-01-01 00:00:00.000000 UTC+x").write_text("early")
"""
    bob.run(code)
    submitted = hub.state / "course" / "submitted"
    before = {path: path.read_bytes() for path in submitted.glob("ada/*/*")}
    grace = hub.log_in("grace")
    address = f"{hub.url}/services/mlsys/formgrader/"
    grace.session.get(f"{address}manage_assignments", timeout=300).raise_for_status()
    headers = {"X-XSRFToken": grace.token("/services/mlsys/")}
    answer = grace.session.post(f"{address}api/assignment/{LAB}/collect", headers=headers, timeout=300).json()
    assert answer["success"], answer
    assert {path: path.read_bytes() for path in submitted.glob("ada/*/*")} == before
    assert (submitted / "bob" / LAB / f"{LAB}.ipynb").read_text() == "early"
    assert not (submitted / "bob" / LAB / "timestamp.txt").read_text().startswith("2001")
    for why in ("bob handed it in, not ada", "is a link or a device"):
        assert why in answer["log"]


def test_former_instructor_loses_the_course(hub: Hub) -> None:
    """Restart the Hub with grace among the students. This test has to be the last of the module."""
    hub.end()
    told = hub.settings.read_text()
    for old, new in (("['grace']", "['hopper']"), ("['ada', 'bob']", "['ada', 'bob', 'grace']")):
        assert old in told
        told = told.replace(old, new)
    hub.settings.write_text(told)
    hub.instructors = ("hopper",)
    hub.start()
    for name, status in (("hopper", 200), ("grace", 403)):
        person = hub.log_in(name)
        assert person.session.get(f"{hub.url}/services/mlsys/lab", timeout=300).status_code == status
    headers = {"X-XSRFToken": person.token("/hub/"), "Referer": f"{hub.url}/hub/home"}
    assert person.session.get(f"{hub.url}/hub/api/users", headers=headers, timeout=300).status_code == 403
