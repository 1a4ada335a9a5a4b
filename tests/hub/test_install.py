"""Tests of ``labkit hub install``: what it writes, refuses and removes, checked by the programs that read the files."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mlsys_labkit._frontends.cli import main

SETTINGS = """
[hub]
host = "hub.example.edu"
address = "/run/mlsys.sock"
state = "a state of 100 %"
[course]
labs = "labs"
[exchange]
folder = "exchange"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "of a class" / "hub.toml"
    path.parent.mkdir()
    path.write_text(SETTINGS)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def install(settings: Path, root: Path, *more: str) -> int:
    return main(["hub", "install", str(settings), "--root", str(root), *more])


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in (root / "etc").rglob("*") if path.is_file()}


def needs(program: str, package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}; apt install {package}")


def test_second_run_changes_nothing(settings: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install(settings, root) == 0
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    capsys.readouterr()
    assert install(settings, root) == 0
    assert "0 files changed" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_dry_run_shows_each_file_and_writes_none(
    settings: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(settings, root, "--dry-run") == 0
    assert list(root.iterdir()) == []
    shown = capsys.readouterr().out
    assert install(settings, root) == 0
    for name, content in files(root).items():
        assert f"+++ {root}/{name}\n" in shown
        assert all(f"+{line}\n" in shown for line in content.decode().splitlines())
    capsys.readouterr()
    settings.write_text(SETTINGS.replace("hub.example.edu", "other.example.edu"))
    before = files(root)
    assert install(settings, root, "--dry-run") == 0
    changed = capsys.readouterr().out
    assert "-hub.example.edu {" in changed
    assert "+other.example.edu {" in changed
    assert files(root) == before


def test_remove_takes_away_what_was_written_and_no_more(settings: Path, root: Path) -> None:
    mine = root / "etc/nginx/conf.d/other.conf"
    mine.parent.mkdir(parents=True)
    mine.write_text("# of somebody else\n")
    before = {path for path in root.rglob("*") if path.is_file()}
    assert install(settings, root, "--tls", "nginx") == 0
    settings.unlink()  # the name is enough
    assert install(settings, root, "--remove") == 0
    assert {path for path in root.rglob("*") if path.is_file()} == before
    assert not (root / "etc/mlsys-hub").exists()


def test_another_tls_server_replaces_the_first(settings: Path, root: Path) -> None:
    assert install(settings, root) == 0
    assert install(settings, root, "--tls", "nginx") == 0
    assert not {"etc/mlsys-hub/Caddyfile", "etc/systemd/system/mlsys-hub-tls.service"} & files(root).keys()
    assert "etc/nginx/conf.d/mlsys-hub.conf" in files(root)


@pytest.mark.parametrize("more", [(), ("--remove",), ("--tls", "none"), ("--dry-run",)])
def test_an_edited_file_is_never_overwritten_or_removed(
    settings: Path, root: Path, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(settings, root) == 0
    with open(root / "etc/mlsys-hub/Caddyfile", "a") as file:
        file.write("# my own line\n")
    before = files(root)
    settings.write_text(SETTINGS.replace("hub.example.edu", "other.example.edu"))
    capsys.readouterr()
    assert install(settings, root, *more) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "etc/mlsys-hub/Caddyfile has been edited" in line
    assert files(root) == before


def test_a_file_from_elsewhere_is_never_overwritten(
    settings: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = root / "etc/systemd/system/mlsys-hub.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/usr/bin/make hub\n")
    assert install(settings, root) == 2
    assert str(unit) in capsys.readouterr().err
    assert list(files(root)) == ["etc/systemd/system/mlsys-hub.service"]


def test_two_hubs_share_no_file(settings: Path, root: Path) -> None:
    assert install(settings, root) == 0
    first = files(root)
    assert install(settings, root, "--name", "staging", "--tls", "none") == 0
    assert files(root).items() >= first.items()
    assert install(settings, root, "--name", "staging", "--remove") == 0
    assert files(root) == first


def test_tls_needs_a_host(settings: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings.write_text("")
    assert install(settings, root) == 2
    assert "hub.host is empty" in capsys.readouterr().err
    assert install(settings, root, "--tls", "none") == 0


@pytest.mark.parametrize("tls", ["caddy", "nginx"])
def test_tls_needs_a_socket_which_nobody_else_can_take(
    settings: Path, root: Path, capsys: pytest.CaptureFixture[str], tls: str
) -> None:
    settings.write_text(SETTINGS.replace("/run/mlsys.sock", "127.0.0.1"))
    assert install(settings, root, "--tls", tls) == 2
    assert 'write address = "/run/mlsys-hub.sock", or install with --tls none' in capsys.readouterr().err
    assert list(root.iterdir()) == []


def test_units_name_the_folders_that_the_hub_writes_to(settings: Path, root: Path) -> None:
    assert install(settings, root) == 0
    here = settings.parent
    for folder in ("a state of 100 %", "exchange", "build", "a state of 100 %-backups"):
        assert (root / (here / folder).relative_to("/")).is_dir()
    unit = (root / "etc/systemd/system/mlsys-hub.service").read_text()
    [writable] = [line for line in unit.splitlines() if line.startswith("ReadWritePaths=")]
    assert writable.endswith(f'"{here}/a state of 100 %%" "{here}/build" "{here}/exchange"')


@needs("systemd-analyze", "systemd")
def test_systemd_accepts_the_units(settings: Path, root: Path) -> None:
    assert install(settings, root) == 0
    units = sorted((root / "etc/systemd/system").iterdir())
    assert len(units) == 4
    caddy = shutil.which("caddy") or "/usr/bin/caddy"
    for unit in units:  # a program that this machine lacks is no mistake of the unit
        unit.write_text(unit.read_text().replace(caddy, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, units)], capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs("caddy", "caddy")
def test_caddy_accepts_its_file(settings: Path, root: Path) -> None:
    assert install(settings, root) == 0
    words = [
        "caddy",
        "adapt",
        "--adapter",
        "caddyfile",
        "--validate",
        "--config",
        str(root / "etc/mlsys-hub/Caddyfile"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, env=os.environ | {"HOME": str(root)})
    assert done.returncode == 0, done.stderr
    for word in ("hub.example.edu", "Strict-Transport-Security", "unix//run/mlsys.sock"):
        assert word in done.stdout


@needs("nginx", "nginx-light")
@needs("openssl", "openssl")
def test_nginx_accepts_its_file(settings: Path, root: Path, tmp_path: Path) -> None:
    assert install(settings, root, "--tls", "nginx") == 0
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=hub.example.edu"]
    subprocess.run(
        [*words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True, timeout=240
    )
    text = (root / "etc/nginx/conf.d/mlsys-hub.conf").read_text()
    live = "/etc/letsencrypt/live/hub.example.edu"
    text = text.replace(f"{live}/fullchain.pem", str(certificate)).replace(f"{live}/privkey.pem", str(key))
    (tmp_path / "site.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{kind}_temp_path {tmp_path}/{kind}; " for kind in kinds)
    http = f"access_log off; {folders}include {tmp_path}/site.conf;"
    whole = f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ {http} }}"
    (tmp_path / "nginx.conf").write_text(whole)
    words = ["nginx", "-t", "-q", "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@needs("logrotate", "logrotate")
def test_logrotate_accepts_its_file(settings: Path, root: Path) -> None:
    assert install(settings, root) == 0
    done = subprocess.run(
        ["logrotate", "--debug", str(root / "etc/logrotate.d/mlsys-hub")], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0
    assert "error:" not in done.stdout + done.stderr
