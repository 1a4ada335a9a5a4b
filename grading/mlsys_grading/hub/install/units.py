"""Units of systemd for a Hub: the Hub itself, a daily backup, and a TLS server in front of it.

Reference: man 5 systemd.unit, systemd.service, systemd.exec, systemd.kill, systemd.resource-control, systemd.timer.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mlsys_grading.hub.settings import HubSettings

# A Hub that changes to other users, makes namespaces and lends GPUs works with each of these. Others would break it:
# RestrictSUIDSGID refuses the modes of the exchange, RestrictNamespaces the servers, MemoryDenyWriteExecute compiled
# kernels. ProtectKernelTunables and ProtectKernelLogs cover parts of /proc, and then Linux refuses a new /proc to the
# sandbox that grades. PrivateDevices, and ProtectClock by its DeviceAllow, close the GPUs.
_HARDENED = """\
NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
ProtectHostname=yes
ProtectKernelModules=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
CapabilityBoundingSet=~CAP_SYS_MODULE CAP_SYS_RAWIO CAP_SYS_TIME CAP_SYS_BOOT CAP_SYSLOG CAP_SYS_PACCT CAP_MAC_ADMIN
CapabilityBoundingSet=~CAP_MAC_OVERRIDE CAP_LINUX_IMMUTABLE CAP_WAKE_ALARM CAP_BLOCK_SUSPEND CAP_BPF CAP_PERFMON
"""

_HUB = """\
[Unit]
Description=JupyterHub of the course {course}
After=network-online.target remote-fs.target
Wants=network-online.target
RequiresMountsFor={mounts}
StartLimitIntervalSec=10min
StartLimitBurst=5

[Service]
Type=exec
WorkingDirectory={base}
Environment=PYTHONUNBUFFERED=1 HOME=/root
EnvironmentFile=-/etc/{name}/environment
ExecStart={labkit} hub {settings}
# `systemctl reload` starts the Hub alone anew, as after a crash: Restart= brings it back, and servers and proxy go on.
# After any other signal systemd would run ExecStop=.
ExecReload=kill -KILL $MAINPID
ExecStop={labkit} hub --stop {settings}
Restart=on-failure
RestartSec=2s
TimeoutStopSec=3min
# A Hub that crashed finds its servers again, because systemd ends the main process alone.
KillMode=process
# The Hub divides its control group among the servers. A kernel that is out of memory must not stop the unit.
Delegate=yes
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=65536
ReadWritePaths={sockets} {folders}
{hardened}
[Install]
WantedBy=multi-user.target
"""

_BACKUP = """\
[Unit]
Description=Backup of the Hub {name}
RequiresMountsFor={mounts}

[Service]
Type=oneshot
WorkingDirectory={base}
ExecStart={labkit} hub backup {settings}
Nice=10
IOSchedulingClass=idle
TimeoutStartSec=6h
ReadWritePaths={folders} {backups}
{hardened}"""

_TIMER = """\
[Unit]
Description=Daily backup of the Hub {name}

[Timer]
OnCalendar=*-*-* 03:15:00
RandomizedDelaySec=15min
Persistent=yes

[Install]
WantedBy=timers.target
"""

_CADDY_UNIT = """\
[Unit]
Description=TLS for the Hub {name} by Caddy
After=network-online.target
Wants=network-online.target
Conflicts=caddy.service

[Service]
Type=notify
DynamicUser=yes
StateDirectory={name}-tls
StateDirectoryMode=0700
Environment=XDG_DATA_HOME=%S/{name}-tls XDG_CONFIG_HOME=%S/{name}-tls HOME=%S/{name}-tls
ExecStart={caddy} run --config /etc/{name}/Caddyfile --adapter caddyfile
Restart=on-failure
RestartSec=5s
LimitNOFILE=65536
AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
"""


def hub_unit(name: str, settings: HubSettings) -> str:
    """Return the unit of the Hub; it starts its proxy and the servers itself."""
    return _HUB.format(**_words(name, settings))


def backup_units(name: str, settings: HubSettings) -> tuple[str, str]:
    """Return the unit that makes one backup, and its timer."""
    words = _words(name, settings)
    return _BACKUP.format(**words), _TIMER.format(**words)


def caddy_unit(name: str, caddy: str) -> str:
    """Return the unit of Caddy, which has a user of its own and keeps certificates in ``/var/lib/NAME-tls``."""
    return _CADDY_UNIT.format(name=name, caddy=quoted(caddy))


def written_folders(settings: HubSettings) -> list[Path]:
    """Return the folders that have to exist when the units start: those of the Hub, then that of the backups.

    The Hub makes the labs' sources in ``build``.
    """
    outside = [] if settings.exchange_folder.is_relative_to(settings.state) else [settings.exchange_folder]
    return [settings.state, settings.base / "build", *outside, settings.backup_folder]


def quoted(path: Path | str) -> str:
    """Quote a path for a unit: of special meaning are ``%``, ``$``, backslashes, quotes and spaces.

    Example:
        >>> print(quoted("/srv/50 %/hub.toml"))
        "/srv/50 %%/hub.toml"
    """
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if any(sign in text for sign in " '\"") else text


def _words(name: str, settings: HubSettings) -> dict[str, str]:
    return {
        "name": name,
        "course": settings.course.id,
        "base": str(settings.base).replace("%", "%%"),  # of WorkingDirectory=, which knows no quotes
        "labkit": quoted(Path(sys.prefix, "bin", "labkit")),
        "settings": quoted(settings.file.resolve()),
        "folders": " ".join(map(quoted, written_folders(settings)[:-1])),
        # The Hub makes the folder of its sockets in /run, and the public one where hub.address says.
        "sockets": " ".join(map(quoted, {Path("/run"): 0, (settings.hub.socket or Path("/run/x")).parent: 0})),
        "mounts": " ".join(map(quoted, [settings.state, settings.exchange_folder])),
        "backups": quoted(settings.backup_folder),
        "hardened": _HARDENED,
    }
