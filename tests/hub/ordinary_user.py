"""A Hub of an ordinary user: root starts it in a mount namespace in which such a user exists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.hub.hub_process import AS_ROOT, CONFIG, LENT_IDS, why_not

# An ordinary user with lent user ids, who exists in this mount namespace alone. Of root's home, they may enter Python.
_AS_A_USER = """set -eu
made=$1; python=$2; shift 2
mkdir -p $made/etc $made/home $made/python
{ cat /etc/passwd; echo "hubtester:x:64100:64100::$made/home:/bin/sh"; } > $made/etc/passwd
{ cat /etc/group; echo "hubtester:x:64100:"; } > $made/etc/group
echo hubtester:3000000:65536 > $made/etc/subuid
cp $made/etc/subuid $made/etc/subgid
chown -f 64100:64100 $made/home $made/passwords || :
for file in passwd group subuid subgid; do
  mount --bind $made/etc/$file /etc/$file
done
case $python in /root/*)
  mount --rbind $python $made/python
  mount -t tmpfs -o mode=755 none /root
  mkdir -p $python
  mount --rbind $made/python $python
esac
exec setpriv --reuid 64100 --regid 64100 --clear-groups env HOME=$made/home "$@"
"""


def why_not_as_a_user() -> str:
    """Return the reason why root cannot start a Hub as an ordinary user; "" if it can."""
    if os.geteuid() != 0:
        return why_not() or "all Hubs here are an ordinary user's"
    if not shutil.which("newuidmap") or not Path("/etc/subuid").exists():
        return "needs newuidmap; install the package uidmap"
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        program = [sys.executable, "-c", f"open({str(CONFIG)!r})"]  # a checkout in somebody's home may be closed to all
        command = as_a_user(Path(made), "unshare", *LENT_IDS, *AS_ROOT[1:-1], *program)
        tried = subprocess.run(command, capture_output=True, text=True, cwd="/")
    if tried.returncode == 0:
        return why_not()
    told = (tried.stderr.strip() or f"status {tried.returncode}").splitlines()[-1]
    return f"an ordinary user cannot read this checkout in a user namespace ({told})"


def as_a_user(made: Path, *command: str) -> list[str]:
    """Return the command line that runs ``command`` as an ordinary user with the home ``made/home``."""
    return ["unshare", "--mount", "sh", "-c", _AS_A_USER, "sh", str(made), sys.base_prefix, *command]
