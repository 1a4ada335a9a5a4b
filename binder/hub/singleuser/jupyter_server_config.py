"""Configuration of every server of the Hub, people's and the course's. JUPYTER_CONFIG_PATH names this folder."""

import os
import resource

from tornado.web import HTTPError

from mlsys_labkit._frontends import steady_clock
from mlsys_labkit._frontends.safe_headers import SafeHeaders

c = get_config()  # noqa: F821 - traitlets provides it

# Formgrader and nbgrader's lists open in frames of JupyterLab, which JupyterHub's servers forbid by default.
frames = {"Content-Security-Policy": "frame-ancestors 'self'"}
c.ServerApp.tornado_settings = {"headers": frames, "transforms": [SafeHeaders]}

# An idle kernel holds memory, above all on a GPU. A running cell is never idle, even with its tab closed.
idle_seconds = int(os.environ.get("MLSYS_HUB_IDLE_SECONDS", "3600"))
c.MappingKernelManager.cull_idle_timeout = idle_seconds
c.MappingKernelManager.cull_interval = max(1, min(300, idle_seconds // 2))
c.MappingKernelManager.cull_connected = True
c.MappingKernelManager.cull_busy = False
c.TerminalManager.cull_inactive_timeout = 4 * idle_seconds

# No kernel or server ends because somebody sets the machine's clock.
steady_clock.keep_timers()
steady_clock.keep_activity()

# When a kernel is ended for lack of memory, a line under its cell says so.
c.ServerApp.kernel_websocket_connection_class = "mlsys_labkit._frontends.kernel_ended.Connection"


def explain_full_home(**_: object) -> None:
    """Say why a save is going to fail: the Hub forbids large files to a person whose files occupy too much."""
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        most = os.environ.get("MLSYS_HUB_HOME_GIB", "?")
        line = (
            f"Your files occupy more than the {most} GiB that you have. Delete some that you do not need, wait half a "
        )
        raise HTTPError(507, f"{line}minute, and save again. Until then, do not close this tab.")


c.ContentsManager.pre_save_hook = explain_full_home

# Jupyter's default, a login shell, would read /etc/profile, which removes labkit and nbgrader from PATH.
c.ServerApp.terminado_settings = {"shell_command": ["/bin/bash"]}

# The status bar shows the limits that the spawner sets in MEM_LIMIT and CPU_LIMIT.
c.ResourceUseDisplay.track_cpu_percent = True
c.ResourceUseDisplay.cpu_limit = 100 * float(os.environ.get("CPU_LIMIT", "0"))  # in percent, else it is always red

# Packages come with the server. An extension that a student installs would be lost, or break Lab, at the next start.
c.LabApp.extension_manager = "readonly"
c.LabApp.news_url = None

# Instructors grade in the course's service. There are no language servers here; the search for them takes a second.
c.ServerApp.jpserver_extensions = {
    "nbgrader.server_extensions.formgrader": False,
    "nbgrader.server_extensions.course_list": False,
    "jupyter_lsp": False,
}
