"""Tests of binder/hub/course.yaml: the pod in which instructors grade, its volumes, and their fit with values.yaml.

No cluster runs here. Kubernetes' own models check the keys. A real server runs with the container's environment, behind
a real Hub that admits instructors and refuses students.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from traitlets.config import Config

from mlsys_grading.hub.accounts import uid_of
from tests.hub.cluster import COURSE, HUB, VALUES, course_pod, unknown_keys
from tests.hub.hub_process import PATIENCE_SECONDS, free_ports, until

KINDS = {
    "PersistentVolume": "V1PersistentVolume",
    "PersistentVolumeClaim": "V1PersistentVolumeClaim",
    "Service": "V1Service",
    "Deployment": "V1Deployment",
    "NetworkPolicy": "V1NetworkPolicy",
}


@pytest.mark.parametrize("thing", COURSE, ids=lambda thing: f"{thing['kind']}-{thing['metadata']['name']}")
def test_kubernetes_knows_every_key(thing):
    assert unknown_keys(thing, KINDS[thing["kind"]], thing["kind"]) == []


def test_unknown_keys_finds_mistakes():
    wrong = copy.deepcopy(next(t for t in COURSE if t["kind"] == "Deployment"))
    wrong["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    wrong["spec"]["replicas"] = "1"
    assert len(unknown_keys(wrong, "V1Deployment", "")) == 2


def test_course_has_a_uid_of_its_own():
    spec = course_pod()["spec"]
    uid = spec["securityContext"]["runAsUser"]
    assert uid < 100_000, "no student's: accounts.py"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "install -d -o 99999" in (HUB / "course.yaml").read_text(encoding="utf-8")
    assert uid == 99_999


def test_course_objects_refer_to_each_other():
    by_kind = {t["kind"]: t for t in COURSE}
    labels = course_pod()["metadata"]["labels"]
    for selector in (
        by_kind["Service"]["spec"]["selector"],
        by_kind["Deployment"]["spec"]["selector"]["matchLabels"],
        by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    url = VALUES["hub"]["services"]["mlsys"]["url"]
    assert url == f"http://{by_kind['Service']['metadata']['name']}:{by_kind['Service']['spec']['ports'][0]['port']}"
    claims = {t["metadata"]["name"] for t in COURSE if t["kind"] == "PersistentVolumeClaim"}
    used = {
        v["persistentVolumeClaim"]["claimName"] for v in course_pod()["spec"]["volumes"] if "persistentVolumeClaim" in v
    }
    assert used == claims == {"course", "nbgrader-exchange"}


@pytest.fixture
def open_folder():
    """Make a folder outside of pytest's own, which pytest closes to others whenever another run begins."""
    with tempfile.TemporaryDirectory(prefix="course-") as made:
        os.chmod(made, 0o755)
        yield Path(made)


def test_course_prepares_its_folders_without_root(open_folder):
    code = course_pod()["spec"]["initContainers"][0]["command"][2]
    for there, here in (
        ("/srv/course", "course"),
        ("/srv/nbgrader/exchange", "exchange"),
        ("/opt/mlsys", "repository"),
    ):
        code = code.replace(there, str(open_folder / here))
    source = open_folder / "repository/build/source/lab01"
    source.mkdir(parents=True)
    (source / "lab01.ipynb").write_text("{}", encoding="utf-8")
    for name in ("course", "exchange"):
        (open_folder / name).mkdir()
    # The course's uid may not read this machine's Python, so the modules are loaded before the change of user.
    # The image's JupyterHub has the version of the chart, which lacks names that the local Hub imports.
    become = "import sys; sys.modules['jupyterhub'] = None; import mlsys_grading.hub.course"
    if os.geteuid() == 0:
        become += ", os; os.setgroups([]); os.setgid(100); os.setuid(99_999)"
        for name in ("course", "exchange"):
            os.chown(open_folder / name, 99_999, 100)
    done = subprocess.run([sys.executable, "-c", f"{become}\n{code}"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    inbound = open_folder / "exchange/mlsys/inbound"
    assert inbound.stat().st_mode & 0o777 == 0o733, "students write there and list nothing"
    assert (open_folder / "course/source/lab01/lab01.ipynb").exists()
    assert (open_folder / "course").stat().st_mode & 0o077 == 0


def test_course_collects_only_from_the_uid_of_the_name(tmp_path, monkeypatch):
    from nbgrader.coursedir import CourseDirectory

    from mlsys_grading.hub import collect

    config = Config()
    config.CourseDirectory.root = str(tmp_path / "course")
    config.CourseDirectory.course_id = "mlsys"
    config.CourseDirectory.assignment_id = "lab01"
    config.Exchange.root = str(tmp_path / "exchange")
    for name in ("ada", "bob"):  # this process, with ada's uid, also writes bob's folder
        folder = tmp_path / f"exchange/mlsys/inbound/{name}+lab01+2026-01-01 00:00:00.000000 UTC+x"
        folder.mkdir(parents=True)
        (folder / "lab01.ipynb").write_text("{}")
    [variable] = [e for e in course_pod()["spec"]["containers"][0]["env"] if e["name"] == "MLSYS_HUB_UIDS"]
    monkeypatch.setenv("MLSYS_HUB_UIDS", variable["value"])
    monkeypatch.setattr(collect, "uid_of", lambda name: os.getuid() if name == "ada" else uid_of(name))
    collect.Collect(coursedir=CourseDirectory(config=config), config=config).start()
    assert [p.name for p in (tmp_path / "course/submitted").iterdir()] == ["ada"]


# ---------------------------------------------------------------------------------------------------------------------
# A real Hub with the services, roles and groups of values.yaml, and the server that course.yaml starts. There is no
# proxy: the browser below sends each path to the right port.
HUB_CONFIG = """
import json
from jupyterhub.proxy import Proxy

class NoProxy(Proxy):
    should_start = False
    async def add_route(self, routespec, target, data): pass
    async def delete_route(self, routespec): pass
    async def get_all_routes(self): return {{}}

c = get_config()
given = json.loads({given!r})
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "a password of this test"
c.Authenticator.allow_all = given["config"]["Authenticator"]["allow_all"]
c.Authenticator.admin_users = set(given["config"]["Authenticator"]["admin_users"])
c.JupyterHub.load_groups = given["config"]["JupyterHub"]["load_groups"]
c.JupyterHub.load_roles = [{{"name": name, **role}} for name, role in given["loadRoles"].items()]
c.JupyterHub.services = [{{"name": name, **service}} for name, service in given["services"].items()]
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.bind_url = "http://127.0.0.1:{port}/"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie"
"""


class Browser:
    """A person who has logged in and follows redirects from the Hub to the course and back."""

    def __init__(self, ports: dict[str, int], name: str) -> None:
        self.ports, self.session = ports, requests.Session()
        self.get("/hub/login")
        form = {"username": name, "password": "a password of this test", "_xsrf": self.session.cookies["_xsrf"]}
        assert self._ask("POST", "/hub/login", data=form).status_code == 302

    def get(self, path: str) -> requests.Response:
        for _ in range(10):
            response = self._ask("GET", path)
            if response.status_code != 302:
                return response
            to = urlsplit(response.headers["location"])
            path = f"{to.path}?{to.query}"
        raise AssertionError(f"it goes round in circles: {path}")

    def _ask(self, method: str, path: str, **more: Any) -> requests.Response:
        port = self.ports["/services/mlsys/" if path.startswith("/services/mlsys") else "/"]
        address = f"http://127.0.0.1:{port}{path}"
        return self.session.request(method, address, allow_redirects=False, timeout=PATIENCE_SECONDS, **more)


def answers(port: int, path: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def ask() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        try:
            requests.get(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS, allow_redirects=False)
        except requests.RequestException:
            return False
        return True

    until(f"an answer from {path}", ask)


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    hub_port, course_port = free_ports(2)
    given = copy.deepcopy(VALUES["hub"])
    given["services"]["mlsys"] |= {"url": f"http://127.0.0.1:{course_port}", "api_token": "the chart makes a token"}
    text = HUB_CONFIG.format(given=json.dumps(given), port=hub_port, folder=folder)
    (folder / "jupyterhub_config.py").write_text(text, encoding="utf-8")
    container = course_pod()["spec"]["containers"][0]
    environment = {e["name"]: e.get("value", "the chart makes a token") for e in container["env"]}
    there = {"http://hub:8081": f"http://127.0.0.1:{hub_port}", "0.0.0.0:8888": f"127.0.0.1:{course_port}"}
    for name, value in environment.items():
        environment[name] = next((value.replace(far, near) for far, near in there.items() if far in value), value)
    environment |= {"HOME": str(folder), "MLSYS_HUB_EXCHANGE": str(folder / "exchange")}
    dockerfile = (HUB.parent / "images/course.Dockerfile").read_text(encoding="utf-8")
    [config_path] = re.findall(r"JUPYTER_CONFIG_PATH=(\S+)", dockerfile)
    environment["JUPYTER_CONFIG_PATH"] = config_path.replace("/opt/mlsys/jupyter", str(HUB / "singleuser"))
    base = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ} | {"HOME": str(folder)}
    python = Path(sys.executable).parent
    base["PATH"] = f"{python}{os.pathsep}{base['PATH']}"
    (folder / "course").mkdir()
    logs = [folder / "hub.log", folder / "course.log"]
    hub = [sys.executable, "-m", "jupyterhub", "-f", str(folder / "jupyterhub_config.py")]
    course = [str(python / container["command"][0]), "--allow-root"]
    processes = []
    try:
        with open(logs[0], "wb") as log:
            processes.append(subprocess.Popen(hub, cwd=folder, env=base, stdout=log, stderr=log))
        answers(hub_port, "/hub/health", processes[0], logs[0])
        with open(logs[1], "wb") as log:
            told = base | environment
            processes.append(subprocess.Popen(course, cwd=folder / "course", env=told, stdout=log, stderr=log))
        answers(course_port, "/services/mlsys/api", processes[1], logs[1])
        yield {"/": hub_port, "/services/mlsys/": course_port}
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.mark.xdist_group("hub")
@pytest.mark.timeout(900)
def test_an_instructor_opens_formgrader(ports):
    [instructor] = VALUES["hub"]["config"]["JupyterHub"]["load_groups"]["formgrade-mlsys"]["users"]
    grace = Browser(ports, instructor)
    page = grace.get("/services/mlsys/formgrader/manage_assignments")
    assert page.status_code == 200, page.text[:2000]
    assert "formgrader" in page.text
    assert grace.get("/services/mlsys/api/status").json()["kernels"] == 0


@pytest.mark.xdist_group("hub")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", ["formgrader/manage_assignments", "api/status", "api/contents", "lab"])
def test_student_is_refused_the_course(ports, path):
    assert Browser(ports, "ada").get(f"/services/mlsys/{path}").status_code == 403
