"""Helpers for the tests of binder/hub's Kubernetes files."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[2]
HUB = ROOT / "binder" / "hub"
VALUES: dict[str, Any] = yaml.safe_load((HUB / "values.yaml").read_text(encoding="utf-8"))
COURSE: list[dict[str, Any]] = list(yaml.safe_load_all((HUB / "course.yaml").read_text(encoding="utf-8")))


def course_pod() -> dict[str, Any]:
    """Return the template of the pod in which instructors grade."""
    template: dict[str, Any] = next(t for t in COURSE if t["kind"] == "Deployment")["spec"]["template"]
    return template


def unknown_keys(value: Any, kind: str, at: str) -> list[str]:
    """Return the keys and types of `value`, by path, that Kubernetes' own model `kind` does not have."""
    from kubernetes_asyncio.client import models

    if value is None:  # for Kubernetes the same as a key that is not there
        return []
    if kind.startswith("list["):
        if not isinstance(value, list):
            return [f"{at}: expected a list"]
        return [slip for i, item in enumerate(value) for slip in unknown_keys(item, kind[5:-1], f"{at}[{i}]")]
    if kind.startswith("dict("):
        return [] if isinstance(value, dict) else [f"{at}: expected a mapping"]
    model = getattr(models, kind, None)
    if model is None:
        types = {"str": str, "int": int, "bool": bool, "object": object, "float": (int, float)}
        return [] if isinstance(value, types[kind]) else [f"{at}: expected {kind}, got {value!r}"]
    fields = {json_name: model.openapi_types[name] for name, json_name in model.attribute_map.items()}
    found = []
    for key, inner in value.items():
        found += unknown_keys(inner, fields[key], f"{at}.{key}") if key in fields else [f"{at}.{key}: no such key"]
    return found


TRAITS = {
    "cmd": "cmd",
    "defaultUrl": "default_url",
    "startTimeout": "start_timeout",
    "allowPrivilegeEscalation": "allow_privilege_escalation",
    "fsGid": "fs_gid",
    "cpu.limit": "cpu_limit",
    "cpu.guarantee": "cpu_guarantee",
    "memory.limit": "mem_limit",
    "memory.guarantee": "mem_guarantee",
    "extraEnv": "environment",
    "profileList": "profile_list",
    "storage.capacity": "storage_capacity",
}


def kubespawner_config(values: dict[str, Any]) -> Config:
    """Translate `values` for KubeSpawner, as the chart's jupyterhub_config.py does."""
    single = copy.deepcopy(values["singleuser"])
    config = Config()
    for key, trait in TRAITS.items():
        value: Any = single
        for name in key.split("."):
            value = value[name]
        config.KubeSpawner[trait] = value
    config.KubeSpawner.storage_pvc_ensure = single["storage"]["type"] == "dynamic"
    config.KubeSpawner.image = f"{single['image']['name']}:{single['image']['tag']}"
    home = {"name": "volume-{user_server}", "persistentVolumeClaim": {"claimName": "claim-{user_server}"}}
    config.KubeSpawner.volumes = {"home": home, **single["storage"]["extraVolumes"]}
    config.KubeSpawner.volume_mounts = {
        "home": {"name": home["name"], "mountPath": single["storage"]["homeMountPath"]},
        **single["storage"]["extraVolumeMounts"],
    }
    for _, code in sorted(values["hub"]["extraConfig"].items()):
        exec(compile(code, "<values.yaml>", "exec"), {"c": config})
    return config


def spawner(slug: str, name: str, config: Config, others: tuple[str, ...] = ()) -> Any:
    """Return the KubeSpawner of the person `name`, who chose a profile, on a Hub that also has `others`."""
    from kubespawner import KubeSpawner

    user = SimpleNamespace(id=1, name=name, escaped_name=name, url=f"/user/{name}", server=None, settings={})
    db = SimpleNamespace(query=lambda column: [(other,) for other in (name, *others)])
    hub = SimpleNamespace(
        public_host="",
        url="http://hub",
        base_url="/hub/",
        api_url="http://hub/api",
        server=SimpleNamespace(base_url="/"),
    )
    made = KubeSpawner(
        hub=hub,
        user=user,
        config=config,
        _mock=True,
        api_token="t",
        oauth_client_id="o",
        namespace="mlsys",
        db=db,
    )
    made.user_options = {"profile": slug}
    return made
