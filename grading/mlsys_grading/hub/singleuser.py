"""Program of every server of the Hub: jupyterhub-singleuser, at the socket that the Hub has opened for it."""

from __future__ import annotations

from jupyter_server.serverapp import ServerApp
from jupyterhub.singleuser.extension import JupyterHubSingleUser

from mlsys_grading.hub import sockets


class LabServer(ServerApp):
    """Jupyter server at the socket that it was started with."""

    def _find_http_port(self) -> None:
        """Look for no port: a port can be taken by anybody."""

    def _bind_http_server(self) -> None:
        self.http_server.add_socket(sockets.handed_down())


def main() -> None:
    """Start the server, with JupyterHub's extension, through which people log in."""
    JupyterHubSingleUser.serverapp_class = LabServer
    JupyterHubSingleUser.launch_instance()


if __name__ == "__main__":
    main()
