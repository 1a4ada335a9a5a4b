"""Soak tests of values.yaml with the chart itself: Helm renders it, and the Hub's settings that it ships start pods.

They need helm, and in MLSYS_CHART the chart of the version that values.yaml names, a folder or an archive.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import types
from typing import Any

import pytest
import yaml

pytest.importorskip("kubespawner")
pytest.importorskip("jupyterhub")

from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from tests.hub import run
from tests.hub.cluster import HUB, TRAITS, VALUES, kubespawner_config, unknown_keys
from tests.hub.kube_api import NODE_OF, start_and_stop

CHART = os.environ.get("MLSYS_CHART", "")
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not (CHART and shutil.which("helm")),
        reason="needs helm, and in MLSYS_CHART the chart that OPERATORS.md tells to pull",
    ),
]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Render the chart with values.yaml for Kubernetes 1.32."""
    command = ["helm", "template", "mlsys", CHART, "--namespace", "mlsys", "--kube-version", "1.32.0"]
    command += ["--values", str(HUB / "values.yaml"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def rendered() -> list[dict[str, Any]]:
    """Return the objects that `helm upgrade` would send to the cluster."""
    done = helm()
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def test_kubernetes_knows_every_key_that_helm_renders(rendered):
    assert {"Deployment", "Secret", "NetworkPolicy", "DaemonSet"} <= {each["kind"] for each in rendered}
    slips = [unknown_keys(each, f"V1{each['kind']}", each["metadata"]["name"]) for each in rendered]
    assert [slip for found in slips for slip in found] == []


def test_helm_lays_the_values_of_ngshare_over_the_others():
    done = helm("--values", str(HUB / "values-ngshare.yaml"))
    assert done.returncode == 0, done.stderr


def test_the_schema_of_the_chart_refuses_an_unknown_key():
    done = helm("--set", "cull.timout=3600")
    assert done.returncode != 0
    assert "timout" in done.stderr


@pytest.fixture
def config(rendered, tmp_path, monkeypatch) -> Config:
    """Execute the Hub's settings that the chart ships, on the Secret and the ConfigMap that Helm rendered."""
    import tornado.simple_httpclient

    [secret] = [each["data"] for each in rendered if each["kind"] == "Secret" and each["metadata"]["name"] == "hub"]
    [files] = [each["data"] for each in rendered if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "hub"]
    for folder, contents in (("secret", secret), ("config", files)):
        (tmp_path / folder).mkdir()
        for name, text in contents.items():
            data = base64.b64decode(text) if folder == "secret" else text.encode()
            (tmp_path / folder / name).write_bytes(data)
    for name in (name for name in files if name.endswith(".py")):
        (tmp_path / name).write_text(files[name].replace("/usr/local/etc/jupyterhub", str(tmp_path)), encoding="utf-8")
    for service in (each["metadata"]["name"] for each in rendered if each["kind"] == "Service"):
        monkeypatch.setenv(service.upper().replace("-", "_") + "_SERVICE_PORT", "80")
    monkeypatch.setenv("POD_NAMESPACE", "mlsys")
    curl = types.ModuleType("tornado.curl_httpclient")  # the chart's choice; it would need the package pycurl
    vars(curl)["CurlAsyncHTTPClient"] = tornado.simple_httpclient.SimpleAsyncHTTPClient
    monkeypatch.setitem(sys.modules, curl.__name__, curl)
    monkeypatch.setattr(tornado, "curl_httpclient", curl, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "z2jh", raising=False)
    loaded = PyFileConfigLoader("jupyterhub_config.py", path=str(tmp_path)).load_config()
    del sys.modules["z2jh"]
    return loaded


def test_the_chart_sets_what_the_other_tests_set(config):
    ours, chart = kubespawner_config(VALUES).KubeSpawner, {**config.Spawner, **config.KubeSpawner}
    traits = [*TRAITS.values(), "image", "storage_pvc_ensure", "gid"]
    assert {trait: chart[trait] for trait in traits} == {trait: ours[trait] for trait in traits}
    for each in ("uid", "pre_spawn_hook"):
        assert chart[each].__code__.co_names == ours[each].__code__.co_names


@pytest.mark.parametrize("slug", NODE_OF)
def test_the_settings_of_the_chart_start_each_profile(config, monkeypatch, slug):
    monkeypatch.setattr("kubespawner.spawner.load_config", lambda **_: None)
    pod, _ = run(start_and_stop(slug, config))
    container = pod["spec"]["containers"][0]
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    files = {each["mountPath"] for each in VALUES["singleuser"]["extraFiles"].values()}
    assert mounts == files | {"/home/jovyan", "/dev/shm", "/srv/nbgrader/exchange"}
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["block-cloud-metadata"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment.get("NVIDIA_VISIBLE_DEVICES") == ("void" if slug == "cpu" else None)
