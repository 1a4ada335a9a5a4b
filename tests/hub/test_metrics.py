"""Tests of the metrics: scraped by HTTP from a real Hub and read by prometheus_client's own parser.

Also of the files beside them: every query of the dashboard and the alert rules names only metrics that the Hub gave.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from mlsys_grading.hub.backup import back_up
from mlsys_grading.hub.monitoring import counts
from mlsys_grading.hub.settings import read_settings
from tests.hub.hub_process import PATIENCE_SECONDS, Hub, free_ports, needs_hub, until

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "grading/mlsys_grading/hub/monitoring"
pytestmark = [needs_hub, pytest.mark.xdist_group("own-hub"), pytest.mark.timeout(900)]

PROFILES = """
[quota]
home_gib = 1.5
[[profile]]
slug = "plain"
title = "Plain"
[[profile]]
slug = "gpu"
title = "One GPU"
gpus = 1
device = "gpu"
"""
# A driver with one device, and measurements each second.
CONFIG = """
import mlsys_grading.hub.devices as devices
from mlsys_grading.gpu.devices import DeviceUsage, GpuDevice
devices.visible_devices = lambda: [GpuDevice("GPU-0", "NVIDIA H100", 0, 80 << 30)]
devices.usage = lambda device: DeviceUsage((), 0)
import mlsys_grading.hub.monitoring.collector as collector
collector.HOMES_SECONDS = collector.DEVICES_SECONDS = 1.0
c = get_config()
"""
LAB = "lab99_metrics"


class Scrape(dict[tuple[str, frozenset[tuple[str, str]]], float]):
    """Samples of one answer, by name and labels."""

    def of(self, name: str, **labels: str) -> float:
        """Return the value of one sample; a sample that is not there is an error."""
        return self[f"mlsys_hub_{name}", frozenset(labels.items())]


def scrape(hub: Hub) -> Scrape:
    token = (hub.state / "prometheus_token").read_text()
    headers = {"Authorization": f"Bearer {token}"}
    answer = requests.get(f"{hub.url}/hub/metrics", headers=headers, timeout=PATIENCE_SECONDS)
    answer.raise_for_status()
    assert not any(name in answer.text for name in ("ada", "bob", "grace"))
    families = text_string_to_metric_families(answer.text)
    return Scrape({(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples})


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    if os.geteuid() != 0:
        pytest.skip("`labkit hub` checks the machine first and finds no GPU")
    with Hub(tmp_path_factory.mktemp("measured"), more=PROFILES, config=CONFIG) as hub:
        (hub.state / "course/source" / LAB).mkdir()
        yield hub


def test_metrics_need_a_token(measured: Hub) -> None:
    assert requests.get(f"{measured.url}/hub/metrics", timeout=PATIENCE_SECONDS).status_code == 403
    ada = measured.log_in("ada")
    assert ada.session.get(f"{measured.url}/hub/metrics", timeout=PATIENCE_SECONDS).status_code == 403
    headers = {"Authorization": f"Bearer {(measured.state / 'prometheus_token').read_text()}"}
    # The token reads metrics, and nothing else.
    answer = requests.get(f"{measured.url}/hub/api/users", headers=headers, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 403
    assert (measured.state / "prometheus_token").stat().st_mode & 0o777 == 0o600


def test_starts_leases_and_kernels_are_counted(measured: Hub) -> None:
    before = scrape(measured)
    assert before.of("servers", profile="gpu") == before.of("kernels") == 0
    for outcome in ("started", "no_device", "refused", "failed"):
        assert before.of("server_start_seconds_count", profile="gpu", outcome=outcome) == 0
    until("a free GPU", lambda: scrape(measured).get(("mlsys_hub_devices", device("free"))) == 1)

    ada, bob = measured.log_in("ada"), measured.log_in("bob")
    ada.start_server(profile="gpu")
    data = {"profile": "gpu", "_xsrf": bob.token("/hub/")}
    bob.session.post(f"{measured.url}/hub/spawn/bob", data=data, timeout=PATIENCE_SECONDS)  # ada has the only one
    counted = until("bob's refusal", lambda: refusals(measured))
    assert counted.of("server_start_seconds_count", profile="gpu", outcome="started") == 1
    assert counted.of("server_start_seconds_sum", profile="gpu", outcome="started") > 0
    assert counted.of("server_start_seconds_count", profile="plain", outcome="started") == 0
    assert counted.of("servers", profile="gpu") == 1
    assert counted.of("servers", profile="plain") == 0
    assert counted.of("people_waiting", **{"for": "server"}) == 0
    until("a held GPU", lambda: scrape(measured).get(("mlsys_hub_devices", device("held"))) == 1)

    assert ada.run("print(1)") == "1\n"
    kernel = ada.request("POST", "api/kernels", json={"name": "python3"}).json()["id"]
    until("one kernel", lambda: scrape(measured).of("kernels") == 1)
    ada.request("DELETE", f"api/kernels/{kernel}")
    until("no kernel", lambda: scrape(measured).of("kernels") == 0)

    ada.stop_server()
    until("a free GPU", lambda: scrape(measured).get(("mlsys_hub_devices", device("free"))) == 1)
    assert scrape(measured).of("servers", profile="gpu") == 0


def device(state: str) -> frozenset[tuple[str, str]]:
    return frozenset({"device": "gpu", "state": state}.items())


def refusals(hub: Hub) -> Scrape | None:
    found = scrape(hub)
    return found if found.of("server_start_seconds_count", profile="gpu", outcome="no_device") == 1 else None


def test_submissions_feedback_homes_and_backups_are_counted(measured: Hub) -> None:
    from nbgrader.api import Gradebook

    lab, state = LAB, measured.state
    inbound = state / "exchange/mlsys/inbound"
    for n, name in enumerate(("ada", "ada", "bob")):  # ada handed in twice
        folder = inbound / f"{name}+{lab}+2026-01-0{n + 1} 00:00:00 UTC+random"
        folder.mkdir()
        os.chown(folder, 1_900_000_100 + (name == "bob"), -1)
    (inbound / "ada+no lab of the course+2026-01-01 00:00:00 UTC+random").mkdir()
    for name in ("ada", "bob"):
        (state / "course/submitted" / name / lab).mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(os.sys.executable).parent}", prepend=os.pathsep)  # nbgrader calls alembic
        with Gradebook(f"sqlite:///{state}/course/gradebook.db", "mlsys") as book:
            book.add_assignment(lab)
            book.add_student("ada")
            book.add_submission(lab, "ada")
    counted = scrape(measured)
    states = {
        each: counted.of("submissions", lab=lab, state=each) for each in ("submitted", "collected", "graded", "failed")
    }
    assert states == {"submitted": 2, "collected": 2, "graded": 1, "failed": 0}
    results = state / "course/.mlsys-grading/results" / lab
    results.mkdir(parents=True)
    (results / "ada.json").write_text("{}")  # a grading that came after bob's submission and left it out
    os.utime(results / "ada.json", (4e9, 4e9))
    assert scrape(measured).of("submissions", lab=lab, state="failed") == 1
    assert not any("no lab" in str(labels) for _, labels in scrape(measured))

    (state / "exchange/mlsys/feedback/0123abcd.html").write_text("feedback")
    assert scrape(measured).of("feedback_released") == 1

    assert scrape(measured).of("home_limit_bytes") == 3 * 2**29
    home = state / "homes/large"
    home.mkdir()
    (home / "file").write_bytes(os.urandom(30 << 20))
    until("a large home", lambda: scrape(measured).of("home_largest_bytes") >= 30 << 20)
    assert scrape(measured).of("homes_bytes") >= 30 << 20

    assert scrape(measured).of("backup_timestamp_seconds") == scrape(measured).of("backups") == 0
    settings = read_settings(measured.settings)
    made = back_up(settings, settings.backup_folder)
    counted = scrape(measured)
    assert counted.of("backups") == 1
    assert abs(counted.of("backup_timestamp_seconds") - made.stat().st_ctime) < PATIENCE_SECONDS
    assert counted.of("backup_bytes") == sum(path.stat().st_size for path in made.iterdir())
    assert counted.of("disk_free_bytes", folder="backup") <= counted.of("disk_size_bytes", folder="backup")


def test_kernels_of_another_hub_are_not_counted(tmp_path: Path) -> None:
    kernel, server = b"python\0-m\0ipykernel_launcher\0-f\0x.json\0", b"python\0jupyterhub-singleuser\0"
    for pid, (words, home) in enumerate(
        [(kernel, "/a/homes/ada"), (kernel, "/a/homes/bob"), (kernel, "/b/homes/ada"), (server, "/a/homes/ada")]
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(words)
        (tmp_path / str(pid) / "environ").write_bytes(f"HOME={home}\0OTHER=HOME=/a/homes/\0".encode())
    (tmp_path / "9").mkdir()  # it ended while this was read
    (tmp_path / "self").mkdir()
    assert counts.kernels(Path("/a/homes"), tmp_path) == 2
    assert counts.kernels(Path("/b/homes"), tmp_path) == 1


# ---------------------------------------------------------------------------------------------------------------------
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
WORDS = re.compile(r"\b((?:mlsys_hub|jupyterhub|process)_\w+)")


def expressions() -> list[str]:
    """Return every query of the dashboard, with its variables replaced."""
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return [query.replace("$__rate_interval", "5m").replace("$job", "mlsys-hub") for query in queries]


def test_queries_name_only_metrics_that_the_hub_has(measured: Hub) -> None:
    given = {name for name, _ in scrape(measured)}
    rules = (MONITORING / "alerts.yml").read_text()
    asked = {
        name
        for text in [*expressions(), *re.findall(r"expr: (.*(?:\n {10,}.*)*)", rules)]
        for name in WORDS.findall(text)
    }
    assert len(asked) > 15
    assert asked <= given


def test_each_panel_says_what_it_shows() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert panel["title"], panel
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        assert all('job="$job"' in target["expr"] for target in panel["targets"]), panel["title"]
    cells = [(x, y) for p in DASHBOARD["panels"] for x, y in area(p["gridPos"])]
    assert len(cells) == len(set(cells)), "two panels overlap"
    assert max(x for x, _ in cells) < 24


def area(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool; apt install prometheus")


@needs_promtool
def test_prometheus_accepts_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(expressions())]
    path = tmp_path / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    promtool("check", "rules", path)
    promtool("check", "config", "--syntax-only", MONITORING / "prometheus.yml")


@needs_promtool
def test_alert_rules_fire_when_they_should() -> None:
    promtool("check", "rules", MONITORING / "alerts.yml")
    promtool("test", "rules", Path(__file__).with_name("alerts_test.yml"))


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus; apt install prometheus")
def test_prometheus_scrapes_the_hub_and_answers_each_panel(measured: Hub, tmp_path: Path) -> None:
    text = (MONITORING / "prometheus.yml").read_text()
    for told, here in {
        "127.0.0.1:8000": f"127.0.0.1:{measured.port}",
        "/etc/prometheus/mlsys-hub-token": str(measured.state / "prometheus_token"),
        "/etc/prometheus/mlsys-hub-alerts.yml": str(MONITORING / "alerts.yml"),
        "30s": "1s",
    }.items():
        assert told in text
        text = text.replace(told, here)
    (tmp_path / "prometheus.yml").write_text(text)
    [port] = free_ports(1)
    words = [f"--web.listen-address=127.0.0.1:{port}", f"--config.file={tmp_path}/prometheus.yml"]
    words += [f"--storage.tsdb.path={tmp_path}/data"]

    def ask(what: str, **parameters: str) -> Any:
        try:
            url = f"http://127.0.0.1:{port}/api/v1/{what}"
            answer = requests.get(url, params=parameters, timeout=PATIENCE_SECONDS).json()
        except requests.RequestException:
            return {}
        assert answer["status"] == "success", answer
        return answer["data"]

    with open(tmp_path / "log", "wb") as log:
        prometheus = subprocess.Popen(["prometheus", *words], stdout=log, stderr=log)
    try:
        up = 'up{job="mlsys-hub"} == 1'
        until("a scrape of the Hub", lambda: ask("query", query=up).get("result"))
        for panel in PANELS:
            for target in panel["targets"]:
                query = target["expr"].replace("$__rate_interval", "5m").replace("$job", "mlsys-hub")
                # A rate needs two scrapes.
                until(panel["title"], lambda query=query: ask("query", query=query).get("result"))
        [group] = ask("rules")["groups"]
        assert len(group["rules"]) == (MONITORING / "alerts.yml").read_text().count("- alert:")
    finally:
        prometheus.terminate()
        prometheus.wait(PATIENCE_SECONDS)


def promtool(*words: object) -> None:
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
