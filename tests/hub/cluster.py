"""Helpers for the tests of binder/hub's Kubernetes files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

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
