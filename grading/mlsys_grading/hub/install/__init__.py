"""``labkit hub install``: the files by which systemd, a TLS server and logrotate run a Hub on Debian or Ubuntu."""
