"""One Hub on one machine: a JupyterHub in which every person has a uid, configured by one small file."""
