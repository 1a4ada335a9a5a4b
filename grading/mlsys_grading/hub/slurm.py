"""Servers as Slurm jobs: a profile's limits become the job's, and Slurm keeps them.

A person of the Hub has to be an account of the cluster, home and Python environment have to lie in a file system that
the nodes share, and the nodes have to reach the Hub. Not run on a real cluster: tests run the script given to sbatch.
Reference: man 1 sbatch; https://github.com/jupyterhub/batchspawner.
"""

from __future__ import annotations

import pwd
import sys
from pathlib import Path
from typing import Any

from batchspawner import SlurmSpawner

from mlsys_grading.hub.settings import ServerProfile
from mlsys_grading.hub.spawner import refused
from mlsys_labkit.errors import LabkitError

SCRIPT = """#!/bin/bash
#SBATCH --job-name=jupyter
#SBATCH --output={{homedir}}/jupyter-%j.log
#SBATCH --chdir={{homedir}}
#SBATCH --export={{keepvars}}
{% for name, value in [
  ("partition", partition), ("account", account), ("time", runtime),
  ("cpus-per-task", nprocs), ("mem", memory), ("gres", gres),
] if value %}#SBATCH --{{name}}={{value}}
{% endfor %}{% if options %}#SBATCH {{options}}
{% endif %}
set -eu
exec {% if srun %}{{srun}} {% endif %}{{cmd}}
"""


class SlurmLabSpawner(SlurmSpawner):  # type: ignore[misc]
    """batchspawner's spawner, with a script that a person's request cannot change."""

    async def start(self) -> tuple[str, int]:
        """Start the job. Raises SpawnException for a person without an account on the cluster."""
        try:
            pwd.getpwnam(self.user.name)
        except KeyError:
            line = f"{self.user.name} has no account on the cluster; ask for one, or choose another profile"
            raise refused(LabkitError(line)) from None
        address: tuple[str, int] = await super().start()
        return address

    async def _get_batch_script(self, **subvars: Any) -> str:
        # subvars holds the options of the person's request, which may be called "memory" or "cmd".
        own = self.get_req_subvars() | {"cmd": self.cmd_formatted_for_batch()}
        return str(await super()._get_batch_script(**own))


def slurm_traits(profile: ServerProfile) -> dict[str, Any]:
    """Return the traits of :class:`SlurmLabSpawner` for ``profile``.

    Example:
        >>> slurm_traits(ServerProfile("gpu", "A GPU", "slurm", memory_gib=16, gpus=1))["req_gres"]
        'gpu:1'
    """
    minutes = max(1, round(60 * profile.hours))
    return {
        "batch_script": SCRIPT,
        "batchspawner_singleuser_cmd": str(Path(sys.prefix, "bin", "batchspawner-singleuser")),
        "cmd": [str(Path(sys.prefix, "bin", "jupyterhub-singleuser"))],
        "start_timeout": 1800,  # a class waits in a queue
        "env_keep": ["PATH", "LANG", "LC_ALL", "JUPYTERHUB_SINGLEUSER_APP"],  # without PATH there is no sbatch
        "req_partition": profile.partition,
        "req_account": profile.account,
        "req_runtime": f"{minutes // 60:02}:{minutes % 60:02}:00",
        "req_nprocs": f"{-(-profile.cpus // 1):.0f}" if profile.cpus else "",
        "req_memory": f"{round(profile.memory_gib * 1024)}M" if profile.memory_gib else "",
        "req_gres": _gres(profile),
        "req_options": "\n#SBATCH ".join(profile.options),
    }


def _gres(profile: ServerProfile) -> str:
    """Return the --gres option. Slurm treats a MIG slice as a type of GPU, named in gres.conf or by autodetection."""
    if not profile.gpus:
        return ""
    kind = profile.device.removeprefix("mig-").removeprefix("gpu")
    return f"gpu:{kind}:{profile.gpus}" if kind else f"gpu:{profile.gpus}"
