"""Tests of each condition that keeps a Hub from starting, and of its message."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.gpu.devices import DeviceUsage, GpuDevice
from mlsys_grading.hub import checks, machine
from mlsys_grading.hub.checks import check_all, check_file
from mlsys_grading.hub.devices import Devices
from mlsys_grading.hub.limits import Enforcement
from mlsys_grading.hub.settings import ExchangeTable, HubSettings, HubTable, LoginTable, ServerProfile
from mlsys_grading.sandbox import kernel
from mlsys_labkit._frontends.cli import main
from mlsys_labkit._frontends.doctor import CheckResult
from mlsys_labkit.errors import LabkitError
from tests.hub.hub_process import free_ports

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a Hub runs on Linux")
GPU = ServerProfile("gpu", "A GPU", gpus=1, device="gpu")
SLURM = ServerProfile("job", "A job", "slurm")


def settings(folder: Path, *profiles: ServerProfile, hub: dict[str, Any] | None = None, **more: Any) -> HubSettings:
    ports = dict(zip(("port", "hub_port"), free_ports(2), strict=True))
    return HubSettings(
        folder / "hub.toml",
        hub=HubTable(**ports | (hub or {})),
        profiles=profiles or (ServerProfile("cpu", "CPU"),),
        **more,
    )


def found(findings: list[CheckResult], name: str) -> CheckResult:
    (one,) = (each for each in findings if each.name == name)
    return one


def broken(findings: list[CheckResult]) -> dict[str, CheckResult]:
    return {each.name: each for each in findings if each.status == "broken"}


@pytest.fixture
def with_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the proxy that `make hub` installs."""
    monkeypatch.setattr(checks, "proxy_command", lambda: [sys.executable])


@pytest.mark.usefixtures("with_proxy")
def test_good_machine_has_no_broken_finding_and_stays_unchanged(tmp_path: Path) -> None:
    findings = check_all(settings(tmp_path))
    assert broken(findings) == {}
    assert list(tmp_path.iterdir()) == []
    assert {"state folder", "exchange", "hub.port", "proxy", "login", "user ids", "clock", "jupyterhub"} <= {
        each.name for each in findings
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[hub\n", "no TOML"),
        ("[hub]\nprot = 8000\n", "hub.prot is 8000; expected only the keys"),
        ('[hub]\nport = "8000"\n', "hub.port is '8000'; expected a whole number"),
        ('[[profile]]\nslug = "x"\n', "profile[0].title is None; expected"),
    ],
)
def test_a_wrong_settings_file_is_one_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str
) -> None:
    path = tmp_path / "hub.toml"
    path.write_text(text)
    (finding,) = check_file(str(path))
    assert finding.status == "broken"
    assert str(path) in finding.detail
    assert line in finding.detail
    assert main(["doctor", "--hub", str(path)]) == 1
    assert line in capsys.readouterr().out


def test_missing_settings_file_is_a_finding(tmp_path: Path) -> None:
    (finding,) = check_file(str(tmp_path / "none.toml"))
    assert "No such file" in finding.detail


def test_taken_port_names_its_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        for key, address in (("port", "127.0.0.1"), ("hub_port", "0.0.0.0")):
            finding = found(check_all(settings(tmp_path, SLURM, hub={key: port})), f"hub.{key}")
            assert finding.status == "broken"
            assert f"port {port} of {address} is taken by process {os.getpid()}, python" in finding.detail
            assert f"set another hub.{key}" in finding.mend


def test_a_port_that_a_student_can_take_is_told(tmp_path: Path) -> None:
    given = settings(tmp_path)
    assert f"ip_unprivileged_port_start={given.hub.port + 1}" in found(check_all(given), "public port").mend
    names = {each.name: each.status for each in check_all(settings(tmp_path, hub={"address": str(tmp_path / "s")}))}
    assert names["hub.address"] == "ok"
    assert not {"public port", "hub.port"} & set(names)


def test_foreign_address_is_broken(tmp_path: Path) -> None:
    finding = found(check_all(settings(tmp_path, hub={"address": "192.0.2.1"})), "hub.port")
    assert "cannot be used (Cannot assign requested address)" in finding.detail


@pytest.mark.xdist_group("sandbox")
def test_full_disk_is_broken(tmp_path: Path) -> None:
    findings = _in_mounts(tmp_path, "size=8m", fill=True)
    for name, key in (("state folder", "hub.state"), ("exchange", "exchange.folder")):
        assert findings[name]["status"] == "broken"
        assert "No space left on device" in findings[name]["detail"]
        assert key in findings[name]["mend"]


@pytest.mark.xdist_group("sandbox")
def test_nearly_full_disk_is_broken(tmp_path: Path) -> None:
    finding = _in_mounts(tmp_path, "size=100m")["state folder"]
    assert finding["status"] == "broken"
    assert "99 MiB left" in finding["detail"] or "100 MiB left" in finding["detail"]


@pytest.mark.xdist_group("sandbox")
def test_read_only_folder_is_broken(tmp_path: Path) -> None:
    findings = _in_mounts(tmp_path, "size=8m,ro")
    assert "cannot be written (Read-only file system)" in findings["exchange"]["detail"]


def _in_mounts(folder: Path, options: str, fill: bool = False) -> dict[str, Any]:
    """Return the findings of a process for which ``folder/state`` is a separate file system."""
    place = folder / "state"
    place.mkdir()
    asked = settings(folder, hub={"state": "state"})
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid():
                kernel.unshare(kernel.NEW_USER | kernel.NEW_MOUNT)
            else:
                kernel.unshare(kernel.NEW_MOUNT)
            kernel.mount("", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
            kernel.mount("tmpfs", str(place), "tmpfs", 0, options.removesuffix(",ro"))
            if fill:
                _fill(place / "ballast")
            if options.endswith(",ro"):
                kernel.mount("tmpfs", str(place), "tmpfs", kernel.READ_ONLY | kernel.REMOUNT, "")
            told = {each.name: vars(each) for look in (checks.state, checks.exchange) for each in look(asked)}
            os.write(write, json.dumps(told).encode())
        except OSError as error:
            os.write(write, json.dumps({"skip": str(error)}).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        told: dict[str, Any] = json.loads(pipe.read() or "{}")
    if "skip" in told:
        pytest.skip(f"this machine allows no mounts: {told['skip']}")
    return told


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_folder_of_another_user_is_broken() -> None:
    place = Path("/etc")  # all may enter it, and root may write to it
    asked = settings(Path("/"), exchange=ExchangeTable(str(place)))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            (finding,) = checks.exchange(asked)
            os.write(write, f"{finding.status} {finding.detail}".encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        assert pipe.read() == f"broken {place} cannot be written (Permission denied)"


@pytest.mark.parametrize(
    ("name", "mode", "told"),
    [("inbound", 0o755, "students cannot hand in"), ("outbound", 0o700, "students cannot fetch")],
)
def test_an_exchange_with_wrong_permissions(tmp_path: Path, name: str, mode: int, told: str) -> None:
    asked = settings(tmp_path)
    place = asked.exchange_folder / "mlsys" / name
    place.mkdir(parents=True)
    place.chmod(mode)
    finding = found(check_all(asked), f"exchange {name}")
    assert told in finding.detail
    assert f"{mode:04o}" in finding.detail
    subprocess.run(finding.mend.split(), check=True)
    assert not [each for each in check_all(asked) if each.name == f"exchange {name}"]


def test_missing_proxy_program_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "proxy_command", lambda: [str(tmp_path / "node"), "proxy.js"])
    finding = found(check_all(settings(tmp_path)), "proxy")
    assert finding.detail == f"there is no {tmp_path}/node"
    assert "make hub" in finding.mend


def test_impossible_login_is_refused(tmp_path: Path) -> None:
    finding = found(check_all(settings(tmp_path, login=LoginTable("shared-password", "none"))), "login")
    assert "none cannot be read" in finding.detail


def test_profile_without_its_gpu_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "visible_devices", lambda: ())
    finding = found(check_all(settings(tmp_path, GPU)), "profile gpu")
    assert (finding.status, finding.detail) == ("broken", "there is no gpu here")
    assert "nvidia-smi" in finding.mend


def test_remains_on_a_gpu_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = GpuDevice("GPU-1", "NVIDIA H100", 0, 80 << 30)
    asked = settings(tmp_path, GPU)
    hub = Devices(asked.state, lambda: [device], lambda _: DeviceUsage((), 0))
    hub.lease("ada", "gpu")
    hub.release("ada")
    monkeypatch.setattr(checks, "visible_devices", lambda: (device,))
    later = Devices(asked.state, lambda: [device], lambda _: DeviceUsage((1,), 9 << 30))
    monkeypatch.setattr(checks, "Devices", lambda state: later)
    findings = check_all(asked)
    assert found(findings, "profile gpu").status == "ok"
    assert "GPU-1 has 9216 MiB, process 1 left by ada" in found(findings, "GPU").detail


def test_missing_slurm_programs_are_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "squeue").write_text("#!/bin/sh\n")
    (tmp_path / "squeue").chmod(0o755)
    findings = list(checks.slurm(settings(tmp_path, ServerProfile("s", "S", spawner="slurm"))))
    assert set(broken(findings)) == {"sbatch", "scancel"}
    assert list(checks.slurm(settings(tmp_path))) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_user_without_lent_ids_is_broken(tmp_path: Path) -> None:
    """Run the check as a user to whom the machine's /etc/subuid lends no ids."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            (finding,) = machine.user_ids(settings(tmp_path))
            os.write(write, json.dumps(vars(finding)).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        finding = json.loads(pipe.read())
    assert finding["status"] == "broken"
    assert "/etc/subuid lends nobody none" in finding["detail"]
    assert "usermod --add-subuids" in finding["mend"]


def test_lent_ids_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "subuid"
    file.write_text(f"ada:100000:65536\nbob:165536:1000\n{os.getuid()}:300000:10\n# no\nada:x:y\n")
    assert machine.lent_by(file, "ada") == 65546
    assert machine.lent_by(file, "bob") == 1010
    assert machine.lent_by(tmp_path / "none", "ada") == 0


def test_limits_kept_by_a_watcher_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = ServerProfile("cpu", "CPU", memory_gib=2)
    why = "no cgroup v2 is mounted"
    monkeypatch.setattr(machine, "enforcement", lambda: Enforcement({}, 0, why))
    (finding,) = machine.limits(settings(tmp_path, limited))
    assert finding.status == "absent"
    assert "by a watcher" in finding.detail
    assert why in finding.detail
    assert list(machine.limits(settings(tmp_path))) == []


def test_missing_sandbox_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "refusal", lambda: "Operation not permitted")
    (finding,) = machine.sandbox(settings(tmp_path))
    assert finding.status == "absent"
    assert "Operation not permitted" in finding.detail


def test_clock_in_the_past_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.time, "time", lambda: 86_400.0)
    (finding,) = machine.clock(settings(tmp_path))
    assert finding.status == "broken"
    assert "1970-01-0" in finding.detail


def test_clock_finding_agrees_with_adjtimex(tmp_path: Path) -> None:
    (finding,) = machine.clock(settings(tmp_path))
    if shutil.which("adjtimex"):
        told = subprocess.run(["adjtimex", "--print"], capture_output=True, text=True).stdout
        assert ("return value = 5" in told) == (finding.status == "absent")
    assert finding.status in ("ok", "absent")


def test_small_shared_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = shutil._ntuple_diskusage(64 << 20, 0, 64 << 20)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: small)
    (finding,) = machine.shared_memory(settings(tmp_path), tmp_path)
    assert (finding.status, finding.detail) == ("absent", "64 MiB")
    (finding,) = machine.shared_memory(settings(tmp_path), tmp_path / "none")
    assert finding.status == "broken"


def test_disabled_nbgrader_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    off = {"ServerApp": {"jpserver_extensions": {"nbgrader.server_extensions.validate_assignment": False}}}
    (tmp_path / "jupyter_server_config.json").write_text(json.dumps(off))
    monkeypatch.setattr(machine, "_configured", lambda: [str(tmp_path)])
    monkeypatch.setenv("JUPYTER_PATH", "")
    findings = {each.name: each for each in machine.extensions(settings(tmp_path))}
    assert findings["nbgrader"].status == "broken"
    assert findings["@jupyter/nbgrader"].status == "ok"
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *_: [str(tmp_path)])
    assert {each.status for each in machine.extensions(settings(tmp_path))} == {"broken"}


@pytest.mark.parametrize(
    ("version", "status"), [("4.1.6", "broken"), ("", "broken"), ("SAME", "ok")], ids=["older", "none", "same"]
)
def test_servers_of_another_major_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: str
) -> None:
    import jupyterhub

    told = version.replace("SAME", jupyterhub.__version__.partition(".")[0] + ".0.0")
    program = tmp_path / "jupyterhub-singleuser"
    program.write_text(f"#!/bin/sh\necho {told}\n")
    program.chmod(0o755)
    monkeypatch.setattr(machine.shutil, "which", lambda name, path: str(program))
    (finding,) = machine.versions(settings(tmp_path))
    assert finding.status == status
    assert jupyterhub.__version__ in finding.detail


def test_failing_check_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(settings: HubSettings) -> Iterator[CheckResult]:
        raise ZeroDivisionError("of course")
        yield

    monkeypatch.setattr(checks, "state", gone)
    assert "ZeroDivisionError: of course" in found(check_all(settings(tmp_path)), "gone").detail


def test_doctor_prints_findings_and_exits_accordingly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    path = tmp_path / "hub.toml"
    path.write_text(f"[hub]\nport = {port}\n")
    monkeypatch.setattr(checks, "proxy_command", lambda: [sys.executable])
    monkeypatch.setattr(machine.time, "time", time.time)
    assert main(["doctor", "--hub", str(path)]) == 0
    assert "Ready: the Hub can start here." in capsys.readouterr().out
    with socket.create_server(("127.0.0.1", port)):
        assert main(["doctor", "--hub", str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ready"] is False
    assert [each["name"] for each in told["findings"] if each["status"] == "broken"] == ["hub.port"]


def test_doctor_without_graders_names_the_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlsys_labkit._frontends import doctor

    monkeypatch.setattr(doctor.metadata, "entry_points", lambda **_: ())
    with pytest.raises(LabkitError, match=r"run: pip install 'mlsys-grading\[hub\]'"):
        doctor.examine_more("hub", "")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "mlsys_grading.hub.checks", None)
    assert main(["doctor", "--hub"]) == 2
    assert "pip install 'mlsys-grading[hub]'" in capsys.readouterr().err
