"""The Hub end to end: two people on one machine, the limits of what they can do to each other, and restarts."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
import requests

from tests.hub.hub_process import (
    PATIENCE_SECONDS,
    ROOT,
    Hub,
    Person,
    labkit,
    needs_hub,
    until,
)
from tests.hub.ordinary_user import as_a_user, why_not_as_a_user

pytestmark = [needs_hub, pytest.mark.xdist_group("hub"), pytest.mark.timeout(900)]


def _server(hub: Hub, name: str) -> psutil.Process:
    """Return the outermost process of a person's server."""
    (found,) = [
        each for each in hub.servers() if each.environ().get("JUPYTERHUB_USER") == name and _is_home(each, name)
    ]
    return found


def _is_home(process: psutil.Process, name: str) -> bool:
    return process.environ().get("HOME", "").endswith(f"/homes/{name}")


def test_labs_lie_in_the_home_folder(ada: Person) -> None:
    names = {entry["name"] for entry in ada.get("api/contents/mlsys").json()["content"]}
    assert {path.name for path in (ROOT / "labs").iterdir() if path.is_dir()} == names


def test_kernel_runs_as_its_person(ada: Person, bob: Person) -> None:
    told = (
        "import os, pwd; print(os.getuid(), pwd.getpwuid(os.getuid()).pw_name, os.path.expanduser('~'), os.getgroups())"
    )
    uids = set()
    for person in (ada, bob):
        uid, name, home, groups = person.run(told).split()
        uids.add(int(uid))
        assert name == person.name
        assert home == str(person.hub.state / "homes" / person.name)
        assert groups == "[]"
    assert len(uids) == 2
    assert min(uids) >= 1000


def test_files_of_others_cannot_be_read(hub: Hub, ada: Person, bob: Person) -> None:
    ada.run("open('diary', 'w').write('secret'); import os; os.chmod('diary', 0o666); os.chmod('.', 0o777)")
    home = hub.state / "homes" / "ada"
    tried = f"""
import os
for path in {[str(home / "diary"), str(hub.state / "cookie_secret"), str(hub.state / "proxy_token")]}:
    try:
        print(open(path).read())
    except OSError as error:
        print(type(error).__name__)
print(os.listdir({str(home.parent)!r}))
"""
    assert bob.run(tried).splitlines() == ["FileNotFoundError"] * 3 + ["['bob']"]
    assert bob.get("api/contents", whose="ada").status_code in (403, 404)


def test_file_modes_alone_keep_others_out(hub: Hub, ada: Person) -> None:
    """Check file modes alone: a process that finds another's home despite the namespaces cannot enter it."""
    home = hub.state / "homes" / "bob"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert home.stat().st_uid != (hub.state / "homes" / "ada").stat().st_uid
    for name in ("cookie_secret", "proxy_token", "jupyterhub.sqlite"):
        assert not (hub.state / name).stat().st_mode & 0o077 or not hub.state.stat().st_mode & 0o077


def test_processes_of_others_cannot_be_seen(ada: Person, bob: Person) -> None:
    told = bob.run("import psutil; print(*{p.uids().real for p in psutil.process_iter()}, len(psutil.pids()))")
    own = bob.run("import os; print(os.getuid())").strip()
    assert set(told.split()[:-1]) <= {own, "0"}  # root's is the watcher of this server
    assert int(told.split()[-1]) < 10


def test_names_of_others_are_not_told(ada: Person, bob: Person) -> None:
    told = bob.run("import grp, pwd; print([each[0] for each in pwd.getpwall()], [each[0] for each in grp.getgrall()])")
    assert "'bob'" in told
    assert "'root'" in told
    assert not [name for name in ("ada", "cleo", "grace") if f"'{name}'" in told]


def test_a_kernel_listens_to_no_port(bob: Person) -> None:
    code = "import json, ipykernel; print(json.load(open(ipykernel.get_connection_file()))['transport'])"
    assert bob.run(code).strip() == "ipc"


def test_a_token_opens_nothing_of_others(hub: Hub, ada: Person, bob: Person) -> None:
    token = bob.run("import os; print(os.environ['JUPYTERHUB_API_TOKEN'])").strip()
    headers = {"Authorization": f"token {token}"}
    for path in ("hub/api/users/ada", "hub/api/users", "user/ada/api/contents"):
        answer = requests.get(f"{hub.url}/{path}", headers=headers, timeout=PATIENCE_SECONDS)
        assert answer.status_code in (403, 404), path


def test_the_token_in_a_cookie_ends_within_a_day(hub: Hub, ada: Person) -> None:
    headers = {"X-XSRFToken": ada.token("/hub/"), "Referer": f"{hub.url}/hub/home"}
    tokens = ada.session.get(f"{hub.url}/hub/api/users/ada/tokens", headers=headers, timeout=PATIENCE_SECONDS).json()
    ends = [each["expires_at"] for each in tokens["api_tokens"] if each["oauth_client"] != "JupyterHub"]
    assert ends
    lasting = [datetime.fromisoformat(end) - datetime.now(UTC) for end in ends]
    assert max(lasting) <= timedelta(hours=12)


def test_solutions_are_hidden(ada: Person) -> None:
    told = ada.run(
        f"import os; print(os.path.exists({str(ROOT / 'solutions')!r}), os.path.exists({str(ROOT / 'labs')!r}))"
    )
    assert told.split() == ["False", "True"]


def test_temporary_files_are_private(ada: Person, bob: Person) -> None:
    ada.run("open('/tmp/note', 'w').write('ada'); open('/dev/shm/note', 'w').write('ada')")
    told = bob.run("import os; print(os.path.exists('/tmp/note'), os.path.exists('/dev/shm/note'))")
    assert told.split() == ["False", "False"]


def test_no_new_privileges(ada: Person) -> None:
    assert ada.run("print(open('/proc/self/status').read().split('NoNewPrivs:')[1].split()[0])").strip() == "1"


def test_restart_keeps_changed_files(hub: Hub, ada: Person) -> None:
    name = "mlsys/lab00_your_machine/lab00_your_machine.ipynb"
    ada.run(f"open({name!r}, 'w').write('mine'); import shutil; shutil.rmtree('mlsys/lab01_linear_algebra')")
    ada.stop_server()
    ada.start_server()
    assert ada.run(f"import os; print(open({name!r}).read(), *os.listdir('mlsys/lab01_linear_algebra'))").split() == [
        "mine",
        "lab01_linear_algebra.ipynb",
    ]


def test_a_stopped_server_leaves_no_process(hub: Hub, bob: Person) -> None:
    outer = _server(hub, "bob")
    code = "import subprocess; print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)"
    bob.run(code)
    tree = [outer, *outer.children(recursive=True)]
    assert any("sleep" in each.name() for each in tree)
    bob.stop_server()
    assert not psutil.wait_procs(tree, timeout=PATIENCE_SECONDS)[1]


def test_restarted_hub_finds_its_servers(hub: Hub, ada: Person, bob: Person) -> None:
    kernel = ada.request("POST", "api/kernels", json={"name": "python3"}).json()["id"]
    ada.run_in(kernel, "kept = 6 * 7")
    before = {name: _server(hub, name) for name in ("ada", "bob")}
    proxy = (hub.state / "proxy.pid").read_text()
    hub.kill()
    assert ada.run_in(kernel, "print(kept)").strip() == "42"  # while there is no Hub
    before["bob"].kill()  # a server that ends meanwhile
    psutil.wait_procs([before["bob"]], timeout=PATIENCE_SECONDS)
    hub.start()
    assert (hub.state / "proxy.pid").read_text() == proxy
    assert ada.run_in(kernel, "print(kept)").strip() == "42"
    assert _server(hub, "ada") == before["ada"]
    assert ada.is_logged_in  # the cookie's secret and the database are the same
    bob.start_server()
    ada.stop_server()
    assert not psutil.wait_procs([before["ada"]], timeout=PATIENCE_SECONDS)[1]


def test_a_second_hub_is_refused(hub: Hub) -> None:
    refused = subprocess.run(
        [*hub.command],
        cwd=ROOT,
        env=os.environ | {"MLSYS_HUB_SETTINGS": str(hub.settings)},
        capture_output=True,
        text=True,
    )
    (line,) = refused.stderr.splitlines()
    assert refused.returncode != 0
    assert str(hub.state) in line


def test_wrong_password_and_stranger_are_refused(hub: Hub) -> None:
    assert not hub.log_in("ada", "something else altogether").is_logged_in
    assert not hub.log_in("mallory").is_logged_in
    assert not hub.log_in("grace", "a-password-for-all-students").is_logged_in


def test_taken_port_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        hub = Hub(tmp_path, more=f'[hub]\nstate = "{tmp_path}/state"\nport = {port}\n')
        refused = subprocess.run(
            hub.command,
            cwd=ROOT,
            env=os.environ | {"MLSYS_HUB_SETTINGS": str(hub.settings)},
            capture_output=True,
            text=True,
        )
    (line,) = refused.stderr.splitlines()
    assert refused.returncode != 0
    assert str(port) in line
    assert "hub.port" in line


PROFILES = """
[[profile]]
slug = "small"
title = "Small"
memory_gib = 2
[[profile]]
slug = "large"
title = "Large & <wide>"
cpus = 2
memory_gib = 3
"""


@pytest.mark.skipif(bool(why_not_as_a_user()), reason=why_not_as_a_user() or "can be made")
def test_ordinary_user_runs_a_hub() -> None:
    """Choose profiles, restart the Hub, and end all of it, without root."""
    with tempfile.TemporaryDirectory(prefix="hub-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        words = labkit("hub", str(folder / "hub.toml"))
        with Hub(folder, more=PROFILES, command=as_a_user(folder, *words)) as hub:
            assert hub.process is not None
            assert psutil.Process(hub.process.pid).uids().real != 0
            ada, bob = hub.log_in("ada"), hub.log_in("bob")
            form = ada.session.get(f"{hub.url}/hub/spawn/ada", timeout=PATIENCE_SECONDS).text
            assert "Large &amp; &lt;wide&gt; (2 cores, 3 GiB)" in form
            ada.start_server(profile="large")
            bob.start_server()
            told = "import os; print(os.environ['MEM_LIMIT'], os.getuid())"
            (large, one), (small, other) = ada.run(told).split(), bob.run(told).split()
            assert (int(large), int(small)) == (3 << 30, 2 << 30)
            assert one != other
            kernel = ada.request("POST", "api/kernels", json={"name": "python3"}).json()["id"]
            ada.run_in(kernel, "kept = 6 * 7")
            outer = _server(hub, "ada")
            hub.kill()
            hub.start()
            assert ada.run_in(kernel, "print(kept)").strip() == "42"
            ada.stop_server()
            assert not psutil.wait_procs([outer], timeout=PATIENCE_SECONDS)[1]
            stopped = subprocess.run(
                as_a_user(folder, *words, "--stop"), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS
            )
            assert "1 Hub, 1 servers, 1 proxy" in stopped.stdout, stopped.stderr
            until("nothing is left", lambda: not hub.servers())
