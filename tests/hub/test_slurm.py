"""Servers as Slurm jobs: a real Hub, real batchspawner, the real script, and stand-ins for Slurm's four programs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from jinja2 import Template

from mlsys_grading.hub.settings import ServerProfile
from mlsys_grading.hub.slurm import SCRIPT, slurm_traits
from mlsys_grading.processes import birth
from tests.hub.hub_process import PATIENCE_SECONDS, free_ports, until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a Hub runs on Linux"),
    pytest.mark.xdist_group("hub"),
    pytest.mark.timeout(900),
]
FULL = ServerProfile(
    "gpu",
    "A slice",
    "slurm",
    cpus=2.5,
    memory_gib=1.5,
    gpus=1,
    device="mig-1g.10gb",
    partition="teaching",
    account="cs249",
    hours=1.25,
    options=("--qos=low", "--reservation=class"),
)

# sbatch keeps the script and runs it here, like a job: in a session of its own, with the environment of --export.
SBATCH = """
    import os, subprocess, sys
    folder, script = {folder!r}, sys.stdin.read()
    with open(folder + "/script", "w") as file:
        file.write(script)
    names = next(line for line in script.splitlines() if line.startswith("#SBATCH --export=")).partition("=")[2]
    environment = {{name: os.environ[name] for name in names.split(",") if name in os.environ}}
    job = subprocess.Popen(
        ["bash"], stdin=open(folder + "/script"), stdout=open(folder + "/log", "w"), stderr=subprocess.STDOUT,
        env=environment, start_new_session=True,
    )
    with open(folder + "/jobs", "a") as file:
        print(job.pid, file=file)
    print(str(job.pid) + ";cluster")
"""
SQUEUE = """
    import os, sys
    job = sys.argv[sys.argv.index("-j") + 1]
    asked = {folder!r} + "/asked"
    open(asked, "a").write(job + "\\n")
    if open(asked).read().count("\\n") < 3:
        print("PENDING (None)")
    elif os.path.exists("/proc/" + job):
        print("RUNNING localhost")
    else:
        sys.exit("slurm_load_jobs error: Invalid job id specified")
"""
SCANCEL = """
    import os, signal, sys
    open({folder!r} + "/cancelled", "a").write(sys.argv[1] + "\\n")
    os.killpg(int(sys.argv[1]), signal.SIGTERM)
"""
SRUN = """
    import os, sys
    os.execvp(sys.argv[1], sys.argv[1:])
"""


def directives(script: str) -> dict[str, str]:
    """Return the ``#SBATCH --name=value`` lines before the first command, as sbatch reads them."""
    head = script.split("\nset ")[0]
    lines = [line.removeprefix("#SBATCH ") for line in head.splitlines() if line.startswith("#SBATCH ")]
    return dict(line.split("=", 1) for line in lines)


def rendered(profile: ServerProfile) -> str:
    own = {name.removeprefix("req_"): value for name, value in slurm_traits(profile).items() if name.startswith("req_")}
    text: str = Template(SCRIPT).render(**own, homedir="/home/ada", keepvars="PATH,HOME", srun="srun", cmd="serve")
    return text


def test_script_holds_the_profile() -> None:
    assert directives(rendered(FULL)) == {
        "--job-name": "jupyter",
        "--output": "/home/ada/jupyter-%j.log",
        "--chdir": "/home/ada",
        "--export": "PATH,HOME",
        "--partition": "teaching",
        "--account": "cs249",
        "--time": "01:15:00",
        "--cpus-per-task": "3",
        "--mem": "1536M",
        "--gres": "gpu:1g.10gb:1",
        "--qos": "low",
        "--reservation": "class",
    }


def test_script_omits_unset_keys() -> None:
    assert set(directives(rendered(ServerProfile("s", "S", "slurm")))) == {
        "--job-name",
        "--output",
        "--chdir",
        "--export",
        "--time",
    }


@pytest.mark.parametrize("profile", [FULL, ServerProfile("s", "S", "slurm")], ids=["full", "bare"])
def test_script_is_bash_with_directives_first(profile: ServerProfile) -> None:
    script = rendered(profile)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    lines = script.splitlines()
    assert lines[0] == "#!/bin/bash"
    first = next(at for at, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[first:])  # sbatch stops reading at the first command
    assert lines[-1] == "exec srun serve"


CONFIG = """
    import pwd
    from mlsys_grading.hub.settings import ServerProfile
    from mlsys_grading.hub.slurm import SlurmLabSpawner, slurm_traits
    c = get_config()
    c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
    c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
    c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
    c.JupyterHub.cookie_secret_file = "{folder}/secret"
    c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
    c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
    c.ConfigurableHTTPProxy.command = {proxy!r}
    c.JupyterHub.authenticator_class = "dummy"
    c.Authenticator.allow_all = True
    c.JupyterHub.spawner_class = SlurmLabSpawner
    profile = ServerProfile("s", "S", "slurm", cpus=1, memory_gib=1, partition="teaching")
    for name, value in slurm_traits(profile).items():
        setattr(c.SlurmLabSpawner, name, value)
    c.SlurmLabSpawner.exec_prefix = ""
    account, machines = pwd.struct_passwd(("ada", "x", {uid}, {uid}, "", "{folder}", "/bin/bash")), pwd.getpwnam
    pwd.getpwnam = lambda name: account if name == "ada" else machines(name)  # of the cluster
    c.SlurmLabSpawner.startup_poll_interval = 0.1
    c.Spawner.http_timeout = {patience:.0f}
    c.Spawner.args = ["--allow-root", "--ServerApp.root_dir={folder}"]
    c.JupyterHub.services = [{{"name": "test", "api_token": "{token}", "admin": True}}]
"""


@contextmanager
def hub(folder: Path) -> Iterator[tuple[str, requests.Session]]:
    """Start a Hub with Slurm's spawner alone; yield its API and a session that may use it."""
    from mlsys_grading.hub.proxy import proxy_command
    from mlsys_labkit.errors import LabkitError

    try:
        proxy = proxy_command()
    except LabkitError as error:
        pytest.skip(str(error))
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL), ("srun", SRUN)):
        (programs / name).write_text(f"#!{sys.executable}\n{textwrap.dedent(text.format(folder=str(folder)))}")
        (programs / name).chmod(0o755)
    port, hub_port, proxy_port = free_ports(3)
    token = os.urandom(16).hex()
    ports = {"port": port, "hub_port": hub_port, "proxy_port": proxy_port}
    config = folder / "config.py"
    more = {"uid": os.getuid(), "folder": folder, "proxy": proxy, "token": token, "patience": PATIENCE_SECONDS}
    config.write_text(textwrap.dedent(CONFIG.format(**ports, **more)))
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "jupyterhub", "-f", str(config)]
    with open(folder / "hub.log", "w") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=os.environ | {"PATH": path})
    session = requests.Session()
    session.headers["Authorization"] = f"token {token}"
    try:
        api = f"http://127.0.0.1:{port}/hub/api"
        wait(lambda: running.poll() is None and _answers(session, api), folder)
        yield api, session
    finally:
        session.close()
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        for job in (folder / "jobs").read_text().split() if (folder / "jobs").exists() else ():
            if psutil.pid_exists(int(job)):
                os.killpg(int(job), signal.SIGKILL)


def _answers(session: requests.Session, api: str) -> bool:
    try:
        return session.get(api, timeout=30).ok
    except requests.RequestException:
        return False


def wait(holds: Any, folder: Path) -> Any:
    try:
        return until("a step through Slurm", holds)
    except AssertionError as error:
        logs = [path.read_text()[-3000:] for path in (folder / "hub.log", folder / "log") if path.exists()]
        raise AssertionError("\n\n".join([str(error), *logs])) from None


def test_server_through_slurm_from_queue_to_cancel(tmp_path: Path) -> None:
    """Start, use and stop a server; a person who asks for more than the profile gets only what the profile gives."""
    with hub(tmp_path) as (api, session):
        assert session.post(f"{api}/users/ada").status_code == 201
        greedy = {"memory": "1T", "partition": "all", "cmd": "touch /tmp/owned", "options": "--qos=high"}
        assert session.post(f"{api}/users/ada/server", json=greedy).status_code in (201, 202)

        def server() -> Any:
            told = session.get(f"{api}/users/ada").json()["servers"]
            return told and told[""]["ready"] and told[""]

        ready = wait(server, tmp_path)
        script = (tmp_path / "script").read_text()
        assert {name: directives(script)[name] for name in ("--mem", "--partition")} == {
            "--mem": "1024M",
            "--partition": "teaching",
        }
        assert "owned" not in script
        assert "--qos" not in script
        assert re.search(r"^exec srun \S*batchspawner-singleuser \S*jupyterhub-singleuser", script, re.MULTILINE)
        (job,) = (tmp_path / "jobs").read_text().split()
        place = api.removesuffix("/hub/api") + ready["url"]
        status = session.get(f"{place}api/status", timeout=PATIENCE_SECONDS)  # the server itself, through the proxy
        assert status.status_code == 200
        assert session.delete(f"{api}/users/ada/server").status_code in (202, 204)
        wait(lambda: not session.get(f"{api}/users/ada").json()["servers"], tmp_path)
        assert (tmp_path / "cancelled").read_text().split() == [job]
        wait(lambda: not birth(int(job)), tmp_path)
        assert session.post(f"{api}/users/cleo").status_code == 201
        refused = session.post(f"{api}/users/cleo/server").json()
        assert "cleo has no account on the cluster; ask for one" in refused["message"]
