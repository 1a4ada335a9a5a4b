"""Tests of binder/images: the Dockerfiles, the files that reach the builder, and the install steps, executed.

The tests read Dockerfiles by the format's rules, Docker's client library chooses the builder's files, and install.sh is
executed unchanged: offline in every run, from the package index in `make soak`, which also builds the images
(test_built_images.py).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from docker.utils.build import exclude_paths
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.hub.hub_process import until

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "binder" / "images"
INSTALL = IMAGES / "install.sh"
STUDENTS = ("cpu", "gpu")
ALL = (*STUDENTS, "course")
# https://docs.docker.com/reference/dockerfile/
INSTRUCTION = re.compile(
    "ADD|ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|ONBUILD|RUN|SHELL|STOPSIGNAL|USER|VOLUME|WORKDIR"
)
# Symbolic modes came with version 1.14 of the format; buildah 1.28 waits forever on one.
FLAGS = re.compile("--(mount|from|interval|timeout|start-period|retries)=.+|--chmod=[0-7]{3}")


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile: `name`, its `--flags`, and the rest."""

    name: str
    flags: tuple[str, ...]
    rest: str

    @property
    def words(self) -> list[str]:
        return list(json.loads(self.rest)) if self.rest.startswith("[") else shlex.split(self.rest)


def read(kind: str) -> list[Instruction]:
    """Return a Dockerfile's instructions, without comments and with continued lines joined."""
    lines = [
        line
        for line in (IMAGES / f"{kind}.Dockerfile").read_text(encoding="utf-8").splitlines()
        if not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\s*\n", " ", "\n".join(lines))
    found = []
    for line in filter(str.strip, joined.splitlines()):
        name, _, rest = line.strip().partition(" ")
        flags = re.match(r"(?:--[a-z-]+=\S+\s+)*", rest.lstrip())
        assert flags is not None
        found.append(Instruction(name, tuple(flags[0].split()), rest.lstrip()[flags.end() :].strip()))
    return found


def of(kind: str, name: str) -> list[Instruction]:
    return [i for i in read(kind) if i.name == name]


def reaches_the_builder(kind: str, folder: Path) -> set[str]:
    """Return the files below `folder` that Docker sends to the builder."""
    patterns = (IMAGES / f"{kind}.Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in patterns if line and not line.startswith("#")]
    return {name for name in exclude_paths(str(folder), patterns) if (folder / name).is_file()}


# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ALL)
def test_instructions_are_dockers(kind):
    instructions = read(kind)
    assert all(INSTRUCTION.fullmatch(i.name) for i in instructions)
    assert next(i.name for i in instructions if i.name != "ARG") == "FROM"
    assert len(of(kind, "FROM")) == 1
    assert all(FLAGS.fullmatch(flag) for i in instructions for flag in i.flags)
    for i in of(kind, "CMD") + of(kind, "ENTRYPOINT"):
        assert all(isinstance(word, str) for word in json.loads(i.rest)), (
            "a shell between Docker and the server eats its signals"
        )
    assert sum(i.name in ("RUN", "COPY") for i in instructions) <= 8, "each is a layer"


def test_students_images_differ_only_in_their_device():
    def neutral(kind: str) -> list[Instruction]:
        return [
            Instruction(i.name, i.flags, re.sub(r"\b(cpu|gpu|CPU|GPU)\b", "KIND", i.rest))
            for i in read(kind)
            if i.name not in ("FROM", "ARG")
        ]

    assert neutral("cpu") == neutral("gpu")
    cpu, gpu = (of(kind, "FROM")[0].rest for kind in STUDENTS)
    assert re.fullmatch(r"nvidia/cuda:\d+\.\d+\.\d+-base-ubuntu(\d\d\.\d\d)", gpu)
    assert gpu.endswith("-base-" + cpu.replace(":", "")), "the same system below both"


@pytest.mark.parametrize("kind", ALL)
def test_containers_do_not_run_as_root(kind):
    users = [i.rest for i in of(kind, "USER")]
    uid, gid = users[-1].split(":")
    assert int(uid) >= 1000
    assert int(gid) == 100
    names = [i.name for i in read(kind)]
    assert len(names) - names[::-1].index("USER") > max(n for n, name in enumerate(names) if name in ("RUN", "COPY"))
    if kind == "course":
        course = next(
            d for d in yaml.safe_load_all((ROOT / "binder/hub/course.yaml").read_text()) if d["kind"] == "Deployment"
        )
        assert int(uid) == course["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
        assert f":x:{uid}:{gid}:" in of("course", "RUN")[0].rest


@pytest.mark.parametrize("kind", ALL)
def test_every_source_reaches_the_builder(kind):
    sent = reaches_the_builder(kind, ROOT)
    sources = [word for i in of(kind, "COPY") if "--from=images" not in i.flags for word in i.words[:-1]]
    ours = [word for i in of(kind, "COPY") if "--from=images" in i.flags for word in i.words[:-1]]
    assert all((IMAGES / word).is_file() for word in ours)
    for i in of(kind, "RUN"):
        for flag in (f for f in i.flags if "type=bind" in f):
            options = dict(part.partition("=")[::2] for part in flag.removeprefix("--mount=").split(","))
            assert options.get("from", "images") == "images"
            if "from" in options:
                program = re.search(rf"{options['target']}/(\S+)", i.rest)
                assert program is not None
                assert (IMAGES / program[1]).is_file()
            sources += [options["source"]] if "source" in options else []
    assert sources
    for source in sources:
        assert any(name == source or name.startswith(f"{source}/") for name in sent), (
            f"{kind}: {source} does not reach the builder"
        )


@pytest.mark.parametrize("kind", STUDENTS)
def test_no_answer_reaches_a_students_image(kind):
    from mlsys_grading.lab import read_labs
    from mlsys_grading.release.hidden import hidden_lines
    from mlsys_grading.release.search import search

    sent = reaches_the_builder(kind, ROOT)
    assert {name.split("/")[0] for name in sent} == {
        "constraints.txt", "labs", "LICENSE", "LICENSE-text", "mlsys_labkit", "pyproject.toml", "README.md",
    }  # fmt: skip
    hidden = hidden_lines(read_labs(ROOT))
    assert len(hidden) > 100
    labs = [(name, (ROOT / name).read_bytes()) for name in sorted(sent) if name.endswith((".ipynb", ".toml", ".md"))]
    assert search(labs, hidden) == []


def test_the_students_tree_has_what_the_images_take():
    from mlsys_grading.lab import read_labs
    from mlsys_grading.release.settings import ReleaseSettings
    from mlsys_grading.release.tree import student_tree

    files = student_tree(ROOT, read_labs(ROOT), ReleaseSettings(), datetime(2026, 1, 1, tzinfo=UTC)).files
    rules = (IMAGES / "cpu.Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for name in (line[1:] for line in rules if line.startswith("!")):
        assert any(path == name or path.startswith(f"{name}/") for path in map(str, files)), f"a release has no {name}"


def test_no_answer_lies_in_the_folder_of_the_install_steps():
    files = {f"{kind}.Dockerfile{end}" for kind in ALL for end in ("", ".dockerignore")}
    assert {p.name for p in IMAGES.iterdir()} == files | {"install.sh", "start.sh", "hub.txt", "gpu.txt"}


@pytest.mark.parametrize("kind", ALL)
def test_labels_name_this_version(kind):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    labels = dict(word.split("=", 1) for word in of(kind, "LABEL")[0].words)
    assert labels["org.opencontainers.image.version"] == version
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    text = (IMAGES / f"{kind}.Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"mlsys-labkit-\w+:([\w.]+)", text)) == {version}


# ---------------------------------------------------------------------------------------------------------------------
def pins(path: Path) -> dict[str, str | None]:
    lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    requirements = [Requirement(line) for line in lines if line]
    return {canonicalize_name(r.name): next((s.version for s in r.specifier), None) for r in requirements}


def test_every_version_is_pinned_once():
    constraints = pins(ROOT / "constraints.txt")
    assert {"torch", "triton", "jupyterlab"} <= constraints.keys()
    for name, version in {**pins(IMAGES / "hub.txt"), **pins(IMAGES / "gpu.txt")}.items():
        if name != "jupyterhub":
            assert version or name in constraints, f"{name} is pinned nowhere"
            assert version is None or constraints.get(name, version) == version, f"{name} is pinned twice"
    assert "==" not in INSTALL.read_text(encoding="utf-8").replace("'^torch=='", "").replace("'^jupyterhub=='", "")


def test_servers_have_the_hubs_major_version():
    # Only the major has to agree: https://jupyterhub.readthedocs.io/en/stable/howto/upgrading.html
    values = (ROOT / "binder/hub/values.yaml").read_text(encoding="utf-8")
    [major] = re.findall(r"chart [\d.]+ \(JupyterHub (\d+)\.", values)
    assert str(pins(IMAGES / "hub.txt")["jupyterhub"]).split(".")[0] == major


@pytest.mark.parametrize("kind", STUDENTS)
def test_each_layer_is_a_step_of_install_sh(kind):
    steps = [step for i in of(kind, "RUN") for step in re.findall(r"/images/install\.sh ([a-z]+(?: [cg]pu)?)", i.rest)]
    assert steps == ["system", "people", f"torch {kind}", f"kit {kind}", "check", "home"]
    assert all("install.sh" in i.rest for i in of(kind, "RUN")), "what is not a step is not tested"


@pytest.mark.parametrize("kind", ALL)
def test_each_step_of_pip_takes_settings_that_do_not_stay_in_the_image(kind):
    steps = [i for i in of(kind, "RUN") if re.search(r"pip install|install\.sh (torch|kit)", i.rest)]
    assert len(steps) == (1 if kind == "course" else 2)
    assert all("--mount=type=secret,id=pip,target=/etc/pip.conf" in i.flags for i in steps)


def test_home_step_gives_the_labs_to_the_group(tmp_path):
    lab = tmp_path / "src/labs/lab01/lab01.ipynb"
    lab.parent.mkdir(parents=True)
    lab.write_text("{}")
    lab.chmod(0o600)
    home = tmp_path / "home"
    environment = os.environ | {
        "HOME": str(home),
        "SRC": str(tmp_path / "src"),
        "OWNER": f"{os.getuid()}:{os.getgid()}",
    }
    subprocess.run([INSTALL, "home"], env=environment, umask=0o077, check=True, timeout=240)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (home, *home.rglob("*"))}
    assert modes == {"home": 0o775, "labs": 0o775, "lab01": 0o775, "lab01.ipynb": 0o664}


@pytest.mark.parametrize("wrong", [[], ["torch"], ["torch", "tpu"], ["check", "cpu"], ["all"]])
def test_unknown_step_lists_the_known_ones(wrong):
    done = subprocess.run([INSTALL, *wrong], capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert re.fullmatch(r"install\.sh: expected one of: system, .*; got '.*'\n", done.stderr)


# ---------------------------------------------------------------------------------------------------------------------
def test_start_script_names_every_uid(tmp_path):
    (tmp_path / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\nubuntu:x:1000:1000::/home/ubuntu:/bin/bash\n")
    (tmp_path / "nsswitch.conf").write_text("passwd:         files\ngroup:          files\n")
    extra = tmp_path / "extrausers"
    environment = {**os.environ, "ETC": str(tmp_path), "EXTRAUSERS": str(extra)}
    subprocess.run([INSTALL, "people"], env=environment, check=True, timeout=240)
    names = {int(line.split(":")[2]): line.split(":")[0] for line in (tmp_path / "passwd").read_text().splitlines()}
    assert names == {0: "root", 1000: "jovyan"}
    assert (tmp_path / "nsswitch.conf").read_text() == "passwd:         files extrausers\ngroup:          files\n"
    assert (extra / "passwd").stat().st_mode & 0o777 == 0o666, "whoever starts there writes their own line"

    # start.sh, in a container whose getent knows nobody.
    (tmp_path / "getent").write_text("#!/bin/sh\nexit 2\n")
    (tmp_path / "getent").chmod(0o755)
    ada = environment | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JUPYTERHUB_USER": "ada", "HOME": "/home/jovyan"}
    start = [IMAGES / "start.sh", "printf", "%s|", "a b", "c"]
    done = subprocess.run(start, env=ada, capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout == "a b|c|"
    [line] = (extra / "passwd").read_text().splitlines()
    assert line == f"ada:x:{os.getuid()}:{os.getgid()}::/home/jovyan:/bin/bash"


def steps_environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """Build a clean environment: an empty HOME, no variable of the tests, the kit's tree copied as by Docker."""
    source = tmp_path / "src"
    for name in sorted(reaches_the_builder("cpu", ROOT)):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "home").mkdir()
    keep = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_", "HTTP", "http", "NO_PROXY", "no_proxy"))
    }
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not p.startswith(sys.prefix))
    return {
        **keep, "PATH": path, "HOME": str(tmp_path / "home"), "SRC": str(source), "VENV": str(tmp_path / "venv"),
        "PYTHON": sys.executable, "TORCH_INDEX": "", "LANG": "C.UTF-8", **more,
    }  # fmt: skip


def step(name: str, environment: dict[str, str], install: Path = INSTALL, seconds: float = 280) -> str:
    done = subprocess.run(
        [install, *name.split()], env=environment, cwd="/", capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def test_steps_run_offline_with_installed_packages(tmp_path):
    # A fresh environment that sees this one's packages: each step resolves its requirements and installs the kit.
    (images := tmp_path / "images").mkdir()
    hub = re.sub(r"(?m)^jupyterhub==.*", "jupyterhub", (IMAGES / "hub.txt").read_text(encoding="utf-8"))
    (images / "hub.txt").write_text(hub, encoding="utf-8")
    (images / "install.sh").write_bytes(INSTALL.read_bytes())
    (images / "install.sh").chmod(0o755)
    environment = steps_environment(tmp_path, PIP_NO_INDEX="1", PIP_NO_BUILD_ISOLATION="0")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "src").rglob("*")}
    packages = tmp_path / f"venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    packages.mkdir(parents=True)
    here = [p for p in sys.path if p.endswith("site-packages")]
    (packages / "those_of_the_tests.pth").write_text("\n".join(here), encoding="utf-8")
    (wrong := tmp_path / "wrong").mkdir()
    (wrong / "constraints.txt").write_text("torch==0.0.1\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"torch==0\.0\.1"):
        step("torch cpu", environment | {"SRC": str(wrong)})
    step("torch cpu", environment, images / "install.sh")
    step("kit cpu", environment, images / "install.sh")
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "src").rglob("*")} == before, "the builder mounts it read-only"
    where = subprocess.run(
        [packages.parents[2] / "bin/python", "-c", "import mlsys_labkit; print(mlsys_labkit.__file__)"],
        env=environment, cwd="/", capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    assert where.stdout.strip() == str(packages / "mlsys_labkit/__init__.py")
    assert not [p for p in packages.rglob("*") if p.name in ("mlsys_grading", "solutions", "wrong_answers.py")]


def test_missing_pin_ends_the_build(tmp_path):
    (tmp_path / "constraints.txt").write_text("\n", encoding="utf-8")
    environment = {**os.environ, "SRC": str(tmp_path), "VENV": str(tmp_path / "venv"), "PYTHON": sys.executable}
    done = subprocess.run([INSTALL, "torch", "cpu"], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode != 0
    assert "pins no torch" in done.stderr


def test_health_check_finds_the_server(tmp_path):
    code = json.loads(of("cpu", "HEALTHCHECK")[0].rest.removeprefix("CMD "))[2]
    environment: dict[str, Any] = {
        **os.environ,
        "HOME": str(tmp_path),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "run"),
        "JUPYTER_PORT": "0",
    }
    start = (
        "from jupyter_server.serverapp import ServerApp as S; a = S(base_url='/user/ada/');"
        "a.initialize(['--allow-root', '--no-browser', '--ip=127.0.0.1'], find_extensions=False); a.start()"
    )

    def is_well(port: int, prefix: str) -> bool:
        asked = {**environment, "JUPYTER_PORT": str(port), "JUPYTERHUB_SERVICE_PREFIX": prefix}
        return subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, timeout=600).returncode == 0

    server = subprocess.Popen(
        [sys.executable, "-c", start], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:

        def written() -> str:
            assert server.poll() is None
            return "".join(path.read_text() for path in (tmp_path / "run").glob("jpserver-*.json"))

        port = json.loads(until("the server's file", written))["port"]
        until("a healthy server", lambda: is_well(port, "/user/ada/"))
        assert not is_well(port, "/user/bob/")
    finally:
        server.kill()
        server.wait()
    assert not is_well(port, "/user/ada/")


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_the_whole_install_and_a_lab_in_it(tmp_path):
    """Install from the package index into an empty environment, and execute a solved lab there."""
    import nbformat

    from mlsys_grading.build.notebook import source_notebook
    from mlsys_grading.lab import read_labs

    environment = steps_environment(tmp_path)
    for name in ("torch cpu", "kit cpu", "check"):
        began = time.monotonic()
        out = step(name, environment, seconds=1500)
        size = sum(p.lstat().st_size for p in (tmp_path / "venv").rglob("*") if p.is_file() and not p.is_symlink())
        print(f"{name}: {time.monotonic() - began:.0f} s, environment {size / 1e6:.0f} MB  {out.strip()[-200:]}")
    lab = tmp_path / "lab01.ipynb"
    solved = next(each for each in read_labs(ROOT) if each.name.startswith("lab01"))
    nbformat.write(source_notebook(solved), lab)
    run = {**environment, "PATH": f"{tmp_path}/venv/bin:{environment['PATH']}"}
    execute = [tmp_path / "venv/bin/jupyter", "nbconvert", "--to", "notebook", "--execute", "--inplace", lab]
    done = subprocess.run(execute, env=run, cwd=tmp_path, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-4000:]
    cells = [cell for cell in nbformat.read(lab, as_version=4).cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells if cell.source.strip())
