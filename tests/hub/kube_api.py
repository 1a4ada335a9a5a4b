"""A stand-in for Kubernetes' API server: pods and claims by HTTP, and a scheduler for labels, taints and devices.

It answers the requests that KubeSpawner makes, and refuses an object that Kubernetes' own models do not know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.queues import Queue
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler
from traitlets.config import Config

from tests.hub.cluster import spawner, unknown_keys

MODELS = {"pods": "V1Pod", "persistentvolumeclaims": "V1PersistentVolumeClaim", "events": "CoreV1Event"}


@dataclass(frozen=True)
class Node:
    """A machine of the cluster: its labels, the keys of its NoSchedule taints, its devices."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    devices: dict[str, int] = field(default_factory=dict)

    def accepts(self, spec: dict[str, Any]) -> bool:
        wanted = spec["containers"][0]["resources"]["limits"]
        devices = {name: int(count) for name, count in wanted.items() if name.startswith("nvidia.com/")}
        tolerated = {each["key"] for each in spec.get("tolerations", [])}
        return (
            spec.get("nodeSelector", {}).items() <= self.labels.items()
            and set(self.taints) <= tolerated
            and all(count <= self.devices.get(name, 0) for name, count in devices.items())
        )


# As NVIDIA's GPU operator labels and taints them.
PLAIN = Node("plain")
WHOLE = Node("whole", {"nvidia.com/gpu.present": "true"}, ("nvidia.com/gpu",), {"nvidia.com/gpu": 8})
SLICED = Node(
    "sliced",
    {"nvidia.com/gpu.present": "true", "nvidia.com/mig.strategy": "mixed"},
    ("nvidia.com/gpu",),
    {"nvidia.com/mig-1g.10gb": 7},
)
NODE_OF = {"cpu": PLAIN, "gpu": WHOLE, "mig": SLICED}


@dataclass
class KubeApi:
    """State of the cluster: its objects, its nodes, and each request as (method, kind, name)."""

    nodes: tuple[Node, ...]
    objects: dict[str, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in MODELS})
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    watchers: list[tuple[str, Queue[str]]] = field(default_factory=list)
    version: int = 1

    def tell(self, kind: str, event: str, made: dict[str, Any]) -> None:
        """Send an event to all who watch this kind of object."""
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        for watched, queue in self.watchers:
            if watched == kind:
                queue.put_nowait(json.dumps({"type": event, "object": made}) + "\n")

    def schedule(self, pod: dict[str, Any]) -> None:
        """Report the pod as running on the first node that accepts it, else as pending."""
        node = next((node for node in self.nodes if node.accepts(pod["spec"])), None)
        if node is None:
            pod["status"] = {"phase": "Pending"}
            return
        pod["spec"]["nodeName"] = node.name
        of = {key: pod["spec"]["containers"][0][key] for key in ("name", "image")}
        container = {**of, "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
        pod["status"] = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [container]}


class _Objects(RequestHandler):
    def initialize(self, api: KubeApi) -> None:
        self.api = api

    def fail(self, code: int, why: str) -> None:
        self.set_status(code)
        self.finish({"kind": "Status", "code": code, "message": why})

    async def get(self, namespace: str, kind: str, name: str) -> None:
        if name:
            found = self.api.objects[kind].get(name)
            self.fail(404, name) if found is None else self.finish(found)
        elif self.get_argument("watch", ""):
            self.api.watchers.append((kind, queue := Queue()))
            with suppress(StreamClosedError):
                while True:
                    self.write(await queue.get())
                    await self.flush()
        else:
            self.api.requests.append(("LIST", kind, namespace))
            items = list(self.api.objects[kind].values())
            self.finish({"metadata": {"resourceVersion": str(self.api.version)}, "items": items})

    def post(self, namespace: str, kind: str, name: str) -> None:
        made = json.loads(self.request.body)
        name = made["metadata"]["name"]
        self.api.requests.append(("POST", kind, name))
        if slips := unknown_keys(made, MODELS[kind], name):
            self.fail(422, "; ".join(slips))
            return
        if name in self.api.objects[kind]:
            self.fail(409, "AlreadyExists")
            return
        made["metadata"] |= {"namespace": namespace, "uid": f"uid-of-{name}"}
        if kind == "pods":
            self.api.schedule(made)
        self.api.objects[kind][name] = made
        self.api.tell(kind, "ADDED", made)
        self.set_status(201)
        self.finish(made)

    def delete(self, namespace: str, kind: str, name: str) -> None:
        self.api.requests.append(("DELETE", kind, name))
        found = self.api.objects[kind].pop(name, None)
        if found is None:
            self.fail(404, name)
            return
        self.api.tell(kind, "DELETED", found)
        self.finish(found)


@asynccontextmanager
async def cluster(*nodes: Node) -> AsyncIterator[KubeApi]:
    """Start the stand-in on a free port of this machine, and make it the cluster of KubeSpawner."""
    from kubernetes_asyncio.client import Configuration
    from kubespawner import KubeSpawner

    api = KubeApi(nodes)
    socket, port = bind_unused_port()
    paths = rf"/api/v1/namespaces/([\w-]+)/({'|'.join(MODELS)})/?([\w.-]*)"
    server = HTTPServer(Application([(paths, _Objects, {"api": api})]))
    server.add_socket(socket)
    Configuration.set_default(Configuration(host=f"http://127.0.0.1:{port}"))
    try:
        yield api
    finally:
        await KubeSpawner._stop_all_reflectors()
        Configuration.set_default(None)
        server.stop()
        await server.close_all_connections()


async def start_and_stop(slug: str, config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """Start ada's server with a profile, and stop it; return its pod and the claim of her home."""
    # The GPU nodes come first: only their taints keep a pod of the CPU profile away from them.
    async with cluster(SLICED, WHOLE, PLAIN) as api:
        server = spawner(slug, "ada", config)
        started = server.start()
        while not started.done() and not api.objects["pods"]:
            await asyncio.sleep(0.01)
        [(name, pod)] = api.objects["pods"].items()
        assert pod["spec"].get("nodeName") == NODE_OF[slug].name
        assert await started == "http://127.0.0.1:8888"
        assert await server.poll() is None
        await server.stop(now=True)
        assert api.objects["pods"] == {}
        assert await server.poll() is not None
        sent = [request for request in api.requests if request[0] != "LIST"]
        claim = ("POST", "persistentvolumeclaims", "claim-ada")
        assert sent == [claim, ("POST", "pods", name), ("DELETE", "pods", name)], "a home outlives its server"
        return pod, api.objects["persistentvolumeclaims"]["claim-ada"]
