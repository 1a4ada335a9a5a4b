"""Configuration of nbgrader in every server of the Hub: the exchange, and the rights of people.

Settings of the course alone (late penalties, limits) are in ``nbgrader_config.py`` of the course folder.
"""

import os

from nbgrader.auth import JupyterHubAuthPlugin

c = get_config()  # noqa: F821 - traitlets provides it

c.CourseDirectory.course_id = os.environ.get("MLSYS_HUB_COURSE", "mlsys")
c.Exchange.root = os.environ.get("MLSYS_HUB_EXCHANGE", "/srv/nbgrader/exchange")
c.Exchange.path_includes_course = True  # ~/mlsys/lab01_linear_algebra, so that two courses do not meet

# The Hub lists the members of the course. The plugin asks it with the server's token, which other scripts lack.
if "JUPYTERHUB_API_TOKEN" in os.environ:
    c.Authenticator.plugin_class = JupyterHubAuthPlugin
# The plugin asks with requests, which alone cannot reach the Unix socket of a Hub on this machine.
if os.environ.get("JUPYTERHUB_API_URL", "").startswith("http+unix:"):
    import requests_unixsocket

    requests_unixsocket.monkeypatch()

# Validate runs the student's own notebook. nbgrader's 30 seconds per cell are too few when a class shares a machine.
c.Execute.timeout = 120
c.Execute.startup_timeout = 120
c.Execute.store_widget_state = False
