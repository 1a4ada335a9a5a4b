"""Keys of the chart that we use, the search for others, and the kit's version."""

from __future__ import annotations

from typing import Any

from tests.hub.cluster import ROOT

# Keys. Those of chart 4.4.0 that we use, as https://z2jh.jupyter.org/en/stable/resources/reference.html names them;
# `object` is what the chart passes on unread, a tuple holds the only values it takes.
ANY: dict[str, Any] = {"*": object}
POLICY = {
    "enabled": bool,
    "egress": list,
    "ingress": list,
    "egressAllowRules": dict.fromkeys(("cloudMetadataServer", "nonPrivateIPs", "privateIPs"), bool),
}
IMAGE = {"name": str, "tag": str}
CHART: dict[str, Any] = {
    "hub": {
        "config": ANY,
        "services": ANY,
        "loadRoles": ANY,
        "extraConfig": {"*": str},
        "networkPolicy": POLICY,
        "resources": ANY,
    },
    "proxy": {
        "service": {"type": ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")},
        "https": {
            "enabled": bool,
            "type": ("letsencrypt", "manual", "offload", "secret"),
            "hosts": list,
            "letsencrypt": {"contactEmail": str},
        },
    },
    "singleuser": {
        "image": IMAGE,
        "cmd": str,
        "defaultUrl": str,
        "startTimeout": int,
        "allowPrivilegeEscalation": bool,
        "fsGid": int,
        "cpu": {"limit": (int, float), "guarantee": (int, float)},
        "memory": {"limit": str, "guarantee": str},
        "networkPolicy": POLICY,
        "cloudMetadata": {"blockWithIptables": bool, "ip": str},
        "extraEnv": ANY,
        "extraFiles": {"*": {"mountPath": str, "data": ANY, "stringData": str}},
        "storage": {
            "type": ("dynamic", "static", "none"),
            "capacity": str,
            "homeMountPath": str,
            "extraVolumes": ANY,
            "extraVolumeMounts": ANY,
        },
        "profileList": list,
    },
    "cull": {"enabled": bool},
    "scheduling": {
        "userScheduler": {"enabled": bool},
        "userPods": {"nodeAffinity": {"matchNodePurpose": ("ignore", "prefer", "require")}},
    },
    "prePuller": {"hook": {"enabled": bool}, "continuous": {"enabled": bool}, "pullProfileListImages": bool},
}


def misfits(values: Any, model: Any, at: str = "") -> list[str]:
    """Return the values that the chart would refuse, by path."""
    if isinstance(model, dict):
        if not isinstance(values, dict):
            return [f"{at}: expected a mapping, got {values!r}"]
        found = []
        for key, value in values.items():
            inner = model.get(key, model.get("*"))
            where = f"{at}.{key}".lstrip(".")
            found += [f"{where}: no such key"] if inner is None else misfits(value, inner, where)
        return found
    if isinstance(model, tuple) and not isinstance(model[0], type):
        return [] if values in model else [f"{at}: expected one of {model}, got {values!r}"]
    fits = isinstance(values, model) and (model in (bool, object) or not isinstance(values, bool))
    return [] if fits else [f"{at}: expected {model}, got {values!r}"]


def version() -> str:
    import tomllib

    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
