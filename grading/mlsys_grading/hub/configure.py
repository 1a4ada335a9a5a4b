"""Configuration of JupyterHub from ``hub.toml``: everything that ``jupyterhub_config.py`` does."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

from mlsys_grading.hub import checks
from mlsys_grading.hub.course import configure_course
from mlsys_grading.hub.entries import server_command
from mlsys_grading.hub.front_page import configure_front_page
from mlsys_grading.hub.login import configure_login
from mlsys_grading.hub.monitoring.collector import configure_metrics
from mlsys_grading.hub.profiles import configure_profiles
from mlsys_grading.hub.proxy import KeptProxy, proxy_command
from mlsys_grading.hub.running import claim
from mlsys_grading.hub.settings import HubSettings
from mlsys_grading.hub.sockets import Sockets, url
from mlsys_grading.hub.visitors import limit_visitors
from mlsys_labkit._frontends.safe_headers import SafeHeaders
from mlsys_labkit._frontends.steady_clock import keep_timers
from mlsys_labkit.errors import LabkitError

_COOKIE_SECONDS = 12 * 3600  # of the token in the cookie of a server or of the course; the Hub then gives a new one


def configure(c: Any, settings: HubSettings) -> None:
    """Write ``settings`` into traitlets' config object ``c``.

    Raises LabkitError, one line, if this machine cannot run the Hub that they describe.
    """
    keep_timers()  # of the checks of the proxy and of servers
    state = _prepare_state(settings)
    claim(state)
    for finding in checks.ports(settings):
        if finding.status == "broken":
            raise LabkitError(f"{finding.detail}; {finding.mend}")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.prefix, "bin")), os.environ.get("PATH", os.defpath)])
    hub, sockets = settings.hub, Sockets.of(state)
    sockets.prepare()
    c.JupyterHub.bind_url = hub.url
    c.JupyterHub.subdomain_host = origin = hub.origin if hub.subdomains else ""
    # A page of a person's server, at a name below the Hub's, could replace any other cookie of the Hub.
    c.JupyterHub.cookie_host_prefix_enabled = origin.startswith("https:")
    c.JupyterHub.oauth_token_expires_in = _COOKIE_SECONDS
    has_jobs = any(profile.spawner == "slurm" for profile in settings.profiles)
    if has_jobs:  # they report to the Hub from other machines
        c.JupyterHub.hub_bind_url = f"http://0.0.0.0:{hub.hub_port}"
        c.JupyterHub.hub_connect_url = f"http://{socket.getfqdn()}:{hub.hub_port}"
    else:
        c.JupyterHub.hub_bind_url = c.JupyterHub.hub_connect_url = url(sockets.hub)
        c.JupyterHub.hub_socket_mode = 0o666  # every server reports to the Hub
        limit_visitors()
    c.JupyterHub.db_url = f"sqlite:///{state}/jupyterhub.sqlite"
    c.JupyterHub.cookie_secret_file = str(state / "cookie_secret")
    # Servers and proxy go on when the Hub ends: its successor finds the servers by pid, and the proxy by its pid file.
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.cleanup_proxy = False
    c.JupyterHub.proxy_class = KeptProxy
    # The proxy outlives the Hub. With the Hub's output open, it would keep the readers of that output waiting.
    to_log = f'exec "$0" "$@" >>{shlex.quote(str(state / "logs/proxy.log"))} 2>&1'
    c.ConfigurableHTTPProxy.command = ["/bin/sh", "-c", to_log, *proxy_command()]
    c.ConfigurableHTTPProxy.api_url = url(sockets.proxy)
    if hub.socket:
        c.ConfigurableHTTPProxy.command_umask = 0  # the server with the certificate, another user, connects to it
        # That server tells the Hub the visitor's protocol. The proxy's own, HTTP, would leave cookies without "Secure".
        c.ConfigurableHTTPProxy.command += ["--no-x-forward"]
    c.ConfigurableHTTPProxy.pid_file = str(state / "proxy.pid")
    c.ConfigurableHTTPProxy.auth_token = _secret(state / "proxy_token")
    _configure_servers(c, settings)
    configure_profiles(c, settings)
    configure_login(c, settings)
    configure_front_page(c, settings)
    c.JupyterHub.tornado_settings = {"transforms": [SafeHeaders]}
    configure_course(c, settings)
    _configure_idle(c, settings)
    configure_metrics(c, settings, _secret(state / "prometheus_token"))


def _configure_servers(c: Any, settings: HubSettings) -> None:
    c.LabSpawner.settings = settings
    c.LabSpawner.cmd = server_command()
    c.Spawner.env_keep = ["PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV"]
    c.Spawner.default_url = "/lab"
    c.Spawner.notebook_dir = "~"
    c.Spawner.http_timeout = 120  # seconds until a server answers
    c.Spawner.start_timeout = 1800  # and those in the queue of a class that logs in at once
    c.Spawner.environment = {
        "JUPYTER_CONFIG_PATH": str(settings.singleuser),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_RUNTIME_DIR": "/tmp/jupyter-runtime",  # a person's own /tmp; short, as paths of sockets have to be
    }
    # Kernels talk through sockets in a folder, because every user of the machine may listen to its ports.
    c.Spawner.args = ["--KernelManager.transport=ipc"]


def _configure_idle(c: Any, settings: HubSettings) -> None:
    """Make each server end its own idle kernels, then itself: the Hub cannot see if a cell is running."""
    idle = settings.idle
    seconds = max(1, round(60 * idle.minutes)) if idle.minutes else 0
    check = max(1, round(60 * idle.check_minutes))
    c.Spawner.environment |= {"MLSYS_HUB_IDLE_SECONDS": str(seconds)}
    if seconds:
        c.Spawner.args += [f"--ServerApp.shutdown_no_activity_timeout={seconds}"]
        c.Spawner.args += [f"--MappingKernelManager.cull_interval={check}"]


def _prepare_state(settings: HubSettings) -> Path:
    state = settings.state
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        state.chmod(0o700)
        (state / "logs").mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        line = f"the state folder {state} cannot be written ({error.strerror}); mend hub.state in {settings.file}"
        raise LabkitError(line) from None
    return state.resolve()


def _secret(path: Path) -> str:
    """Return the content of ``path``; if it is missing, make it, for its owner alone."""
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with contextlib.suppress(FileExistsError), open(os.open(path, new, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    return path.read_text()
