"""Tests that KubeSpawner, set by binder/hub/values.yaml, starts and stops pods by HTTP.

A stand-in for Kubernetes' API server answers (kube_api.py).
"""

from __future__ import annotations

import asyncio

import pytest

from mlsys_grading.hub.accounts import uid_of

pytest.importorskip("kubespawner")
pytest.importorskip("jupyterhub")

from tests.hub import run
from tests.hub.cluster import VALUES, kubespawner_config, spawner
from tests.hub.kube_api import NODE_OF, PLAIN, cluster, start_and_stop


@pytest.fixture(autouse=True)
def _no_other_cluster(monkeypatch):
    monkeypatch.setattr("kubespawner.spawner.load_config", lambda **_: None)


@pytest.mark.parametrize("slug", NODE_OF)
def test_each_profile_starts_and_stops_a_pod_on_its_node(slug):
    pod, claim = run(start_and_stop(slug, kubespawner_config(VALUES)))
    assert claim["spec"]["resources"]["requests"]["storage"] == "10Gi"
    container = pod["spec"]["containers"][0]
    assert container["securityContext"]["runAsUser"] == uid_of("ada")
    assert container["args"] == ["jupyterhub-singleuser"]
    assert container["image"].startswith(f"registry.example.edu/mlsys-labkit-{'cpu' if slug == 'cpu' else 'gpu'}:")


def test_a_second_server_finds_its_home():
    async def ask() -> None:
        async with cluster(PLAIN) as api:
            for _ in range(2):
                server = spawner("cpu", "ada", kubespawner_config(VALUES))
                await server.start()
                await server.stop(now=True)
            assert list(api.objects["persistentvolumeclaims"]) == ["claim-ada"]

    run(ask())


def test_a_gpu_pod_waits_where_no_node_has_a_gpu():
    async def ask() -> None:
        async with cluster(PLAIN) as api:
            server = spawner("gpu", "ada", kubespawner_config(VALUES))
            started = server.start()
            while await server.poll() is not None:  # KubeSpawner's watch has not told of the pod yet
                await asyncio.sleep(0.01)
            [pod] = api.objects["pods"].values()
            assert pod["status"] == {"phase": "Pending"}
            assert not started.done(), "the Hub waits; it does not report a failure"
            started.cancel()

    run(ask())
