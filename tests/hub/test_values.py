"""Tests of binder/hub/values.yaml and course.yaml: the chart has every key, and KubeSpawner builds the intended pods.

No cluster runs here. The oracles are KubeSpawner and JupyterHub themselves, Kubernetes' own models of its objects, and
the key names that the chart publishes.
"""

from __future__ import annotations

import copy
import hashlib
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from traitlets.config import Config

from mlsys_grading.hub.accounts import uid_of

pytest.importorskip("kubespawner")
pytest.importorskip("jupyterhub")

from kubespawner import KubeSpawner

from tests.hub import run
from tests.hub.chart_keys import CHART, misfits, version
from tests.hub.cluster import COURSE, HUB, VALUES, kubespawner_config, spawner, unknown_keys


def test_the_chart_knows_every_key():
    assert misfits(VALUES, CHART) == []


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ("cull", "timout", 3600),
        ("singleuser.memory", "limits", "4G"),
        ("singleuser.storage", "extraVolume", {}),
        ("singleuser", "startTimeout", "900"),
        ("singleuser", "extraTolerations", {}),
        ("proxy.https", "type", "lets-encrypt"),
        ("singleuser.networkPolicy.egressAllowRules", "privateIps", True),
        ("hub.extraConfig", "numbers", 3),
        ("prePuller.hook", "enabled", 1),
    ],
)
def test_misfits_finds_mistakes(path, key, value):
    values = copy.deepcopy(VALUES)
    inner = values
    for name in path.split("."):
        inner = inner[name]
    inner[key] = value
    assert len(misfits(values, CHART)) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Pods, as KubeSpawner builds them, with no cluster to ask.
@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch):
    monkeypatch.setattr("kubespawner.spawner.load_config", lambda **_: None)


def pod(slug: str, name: str = "ada", values: Any = VALUES, others: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the pod, as JSON, that KubeSpawner builds for `name` and a profile, on a Hub that also has `others`."""

    async def ask() -> Any:
        from kubernetes_asyncio.client import ApiClient

        made = spawner(slug, name, kubespawner_config(values), others)
        await made.load_user_options()
        async with ApiClient() as api:
            return api.sanitize_for_serialization(await made.get_pod_manifest())

    return run(ask())


def slugs() -> list[str]:
    return [profile["slug"] for profile in VALUES["singleuser"]["profileList"]]


def every_override() -> list[tuple[str, str]]:
    return [(p["slug"], key) for p in VALUES["singleuser"]["profileList"] for key in p["kubespawner_override"]]


def test_the_profiles_are_a_cpu_a_gpu_and_a_slice():
    assert slugs() == ["cpu", "gpu", "mig"]
    assert [p["slug"] for p in VALUES["singleuser"]["profileList"] if p.get("default")] == ["cpu"]


@pytest.mark.parametrize(("slug", "key"), every_override())
def test_every_override_is_a_trait_of_kubespawner(slug, key):
    assert key in KubeSpawner.class_traits(config=True), f"{slug}: KubeSpawner has no {key!r}"


@pytest.mark.parametrize("slug", slugs())
def test_each_person_has_a_uid_of_their_own_and_few_rights(slug):
    spec = pod(slug, others=("bob",))["spec"]
    security = spec["containers"][0]["securityContext"]
    assert security == {"runAsUser": uid_of("ada"), "runAsGroup": 100, "allowPrivilegeEscalation": False}
    assert spec["automountServiceAccountToken"] is False
    assert pod(slug, "bob")["spec"]["containers"][0]["securityContext"]["runAsUser"] == uid_of("bob")


def test_the_hub_and_the_course_agree_on_every_uid():
    namespace: dict[str, Any] = {"c": Config()}
    exec(VALUES["hub"]["extraConfig"]["uid-of-each-person"], namespace)
    names = [*(f"student{n}" for n in range(3000)), "grace.hopper", "ada@example.edu", "Élise", "李雷"]
    assert [namespace["uid_of"](name) for name in names] == [uid_of(name) for name in names]
    uids = {uid_of(name) for name in names}
    assert len(uids) == len(names)
    assert min(uids) >= 100_000
    assert max(uids) < 2**31  # Kubernetes' most
    assert statistics.mean(uids) == pytest.approx(1e9, rel=0.05), "spread over all there are"


def test_two_names_with_one_uid_are_refused_by_name(monkeypatch):
    real = hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda data: real(b"ada" if data == b"bob" else data))
    with pytest.raises(ValueError, match="bob would share a uid with ada"):
        pod("cpu", "bob", others=("ada", "grace"))


def shm(spec: dict[str, Any]) -> dict[str, Any]:
    return next(v["emptyDir"] for v in spec["volumes"] if v["name"] == "shm")


@pytest.mark.parametrize("slug", slugs())
def test_shared_memory_home_and_exchange_are_mounted(slug):
    spec = pod(slug)["spec"]
    mounts = {m["mountPath"]: m["name"] for m in spec["containers"][0]["volumeMounts"]}
    claims = {
        v["name"]: v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if "persistentVolumeClaim" in v
    }
    assert mounts["/dev/shm"] == "shm"
    assert shm(spec)["medium"] == "Memory"
    assert size(shm(spec)["sizeLimit"]) < size(spec["containers"][0]["resources"]["limits"]["memory"])
    assert claims[mounts["/srv/nbgrader/exchange"]] in {
        t["metadata"]["name"] for t in COURSE if t["kind"] == "PersistentVolumeClaim"
    }
    assert claims[mounts["/home/jovyan"]] == "claim-ada"


def size(quantity: Any) -> int:
    """Return the bytes of a Kubernetes quantity, or of KubeSpawner's number."""
    units = {"Gi": 2**30, "G": 10**9}
    unit = next((unit for unit in units if str(quantity).endswith(unit)), "")
    return int(float(str(quantity).removesuffix(unit)) * units.get(unit, 1))


@pytest.mark.parametrize(
    ("slug", "resource"), [("cpu", None), ("gpu", "nvidia.com/gpu"), ("mig", "nvidia.com/mig-1g.10gb")]
)
def test_devices_tolerations_and_nodes(slug, resource):
    spec = pod(slug)["spec"]
    container = spec["containers"][0]
    devices = {
        name: count for name, count in container["resources"]["limits"].items() if name.startswith("nvidia.com/")
    }
    assert devices == ({resource: "1"} if resource else {})
    assert any(t["key"] == "nvidia.com/gpu" for t in spec.get("tolerations", [])) is bool(resource)
    assert bool(spec.get("nodeSelector")) is bool(resource)
    environment = {e["name"]: e.get("value") for e in container["env"]}
    # A pod that asked for none must not see all of them; one that did gets the variable from NVIDIA's device plugin.
    assert environment.get("NVIDIA_VISIBLE_DEVICES") == (None if resource else "void")
    assert container["image"].endswith(("-gpu:" if resource else "-cpu:") + version())


@pytest.mark.parametrize("slug", slugs())
def test_memory_and_cores_are_limited(slug):
    resources = pod(slug)["spec"]["containers"][0]["resources"]
    assert 0 < float(resources["requests"]["cpu"]) <= float(resources["limits"]["cpu"])
    assert 10**9 <= size(resources["requests"]["memory"]) <= size(resources["limits"]["memory"])


def test_profiles_do_not_share_state():
    assert [shm(pod(slug)["spec"])["sizeLimit"] for slug in ("gpu", "cpu", "mig", "cpu")] == [
        "8Gi",
        "1Gi",
        "2Gi",
        "1Gi",
    ]


@pytest.mark.parametrize("slug", slugs())
def test_kubernetes_knows_every_key_of_the_pods(slug):
    assert unknown_keys(pod(slug), "V1Pod", slug) == []


@pytest.mark.parametrize(
    ("key", "value"), [("mem_limit", "4 gigabytes"), ("cpu_limit", "two"), ("environment", "A=1"), ("image", 3)]
)
def test_a_wrong_type_in_an_override_is_refused(key, value):
    values = copy.deepcopy(VALUES)
    values["singleuser"]["profileList"][0]["kubespawner_override"][key] = value
    with pytest.raises(Exception, match=r"(?i)trait|valid"):
        pod("cpu", values=values)


# ---------------------------------------------------------------------------------------------------------------------
# The Hub's own settings.
def test_hub_config_names_real_classes_and_traits():
    from jupyterhub.app import JupyterHub
    from jupyterhub.auth import Authenticator
    from nativeauthenticator import NativeAuthenticator

    known = {"JupyterHub": JupyterHub, "Authenticator": Authenticator, "NativeAuthenticator": NativeAuthenticator}
    for name, settings in VALUES["hub"]["config"].items():
        for key in settings:
            assert key in known[name].class_traits(config=True), f"{name} has no {key!r}"
    assert VALUES["hub"]["config"]["NativeAuthenticator"]["open_signup"] is False


def test_roles_and_groups_are_those_of_make_hub():
    from mlsys_grading.hub.course import Course

    course = Course("mlsys", Path("course"), Path("exchange"), ("instructor",))
    assert [{"name": name, **role} for name, role in VALUES["hub"]["loadRoles"].items()] == course.roles()
    assert VALUES["hub"]["config"]["JupyterHub"]["load_groups"] == course.groups()
    service = course.service(["x"], [], {})
    ours = VALUES["hub"]["services"]["mlsys"]
    assert {key: service[key] for key in ("oauth_no_confirm", "oauth_client_allowed_scopes")} == {
        k: ours[k] for k in ours if k != "url"
    }
    assert (
        VALUES["singleuser"]["extraEnv"].items()
        >= {**course.environment(), "MLSYS_HUB_EXCHANGE": "/srv/nbgrader/exchange"}.items()
    )


def test_whoever_starts_a_server_joins_the_class_once_and_teachers_do_not():
    from jupyterhub import orm

    db = orm.new_session_factory("sqlite:///:memory:")()
    db.add_all([students := orm.Group(name="nbgrader-mlsys"), teachers := orm.Group(name="formgrade-mlsys")])
    db.add_all([ada := orm.User(name="ada"), grace := orm.User(name="grace")])
    grace.groups.append(teachers)
    db.commit()
    enrol = kubespawner_config(VALUES).KubeSpawner.pre_spawn_hook
    for user in (ada, ada, grace):
        enrol(SimpleNamespace(db=db, user=SimpleNamespace(orm_user=user)))
    assert [user.name for user in students.users] == ["ada"]
    assert [user.name for user in teachers.users] == ["grace"]
    db.close()


# ---------------------------------------------------------------------------------------------------------------------
# values-ngshare.yaml, as helm lays it over values.yaml: mappings merge, null takes away, all else replaces.
def laid_over(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    merged = {
        key: laid_over(below.get(key), value) if key in above else below[key] for key, value in (below | above).items()
    }
    return {key: value for key, value in merged.items() if value is not None or key not in above}


def test_ngshare_takes_the_place_of_the_volume():
    import yaml
    from jupyterhub import scopes

    above = yaml.safe_load((HUB / "values-ngshare.yaml").read_text(encoding="utf-8"))
    values = laid_over(VALUES, above)
    assert misfits(values, CHART) == []
    spec = pod("cpu", values=values)["spec"]
    assert {v["name"] for v in spec["volumes"]} == {"volume-ada", "shm"}
    assert "/srv/nbgrader/exchange" not in {m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
    paths = [f["mountPath"] for f in values["singleuser"]["extraFiles"].values()]
    assert len(set(paths)) == len(paths)
    compile(above["singleuser"]["extraFiles"]["ngshare"]["stringData"], "nbgrader_config.py", "exec")
    assert set(values["hub"]["services"]) == {"mlsys", "ngshare"}
    for role in values["hub"]["loadRoles"].values():
        scopes._check_scopes_exist(role["scopes"])
    assert set(VALUES["hub"]["loadRoles"]["server"]["scopes"]) < set(values["hub"]["loadRoles"]["server"]["scopes"])
