"""Soak tests of the images, built by buildah from their Dockerfiles.

Debian, from debootstrap, takes the place of the base images: no registry of images is needed. The student's image runs
lab03 with its solution, and its own start command. The course's image makes the course's folders as in course.yaml.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from tornado.testing import bind_unused_port

from mlsys_grading.build.notebook import source_notebook
from mlsys_grading.hub.accounts import uid_of
from mlsys_grading.lab import read_lab, read_labs
from mlsys_grading.release.hidden import hidden_lines
from mlsys_grading.release.search import search
from tests.hub.builder import IMAGES, Builder, why_no_engine
from tests.hub.chart_keys import version
from tests.hub.cluster import ROOT, course_pod
from tests.hub.hub_process import until

LAB = "lab03_cuda_matmul"
pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200), pytest.mark.xdist_group("images")]


def base_of(kind: str) -> str:
    """Return the base image that a Dockerfile names, as buildah looks it up."""
    lines = (IMAGES / f"{kind}.Dockerfile").read_text(encoding="utf-8").splitlines()
    name = next(line.removeprefix("FROM ") for line in lines if line.startswith("FROM "))
    return f"docker.io/{name if '/' in name else f'library/{name}'}"


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    # Beside pytest's own folders, which stay for a while: the images are large.
    folder = Path(tempfile.mkdtemp(prefix="labkit-images-", dir=os.environ.get("LABKIT_IMAGES")))
    if why := why_no_engine(folder):
        folder.rmdir()
        pytest.skip(why)
    made = Builder(folder)
    try:
        if why := made.make_base(base_of("cpu"), base_of("gpu")):
            pytest.skip(why)
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def tree(builder: Builder) -> Path:
    """Write the tree that students get."""
    made = builder.folder / "student"
    subprocess.run([Path(sys.executable).with_name("labkit"), "release", made], cwd=ROOT, check=True, timeout=600)
    return made


def built(builder: Builder, kind: str, context: Path, *more: str, without: tuple[str, ...] = ()) -> str:
    began = time.monotonic()
    image = builder.build(kind, version(), context, *more, without=without)
    print(f"{image}: {builder.megabytes(image):.0f} MB, built in {time.monotonic() - began:.0f} s")
    return image


@pytest.fixture(scope="module")
def cpu(builder: Builder, tree: Path) -> str:
    # An empty TORCH_INDEX takes torch from the index of pip, which may have the CUDA build alone.
    return built(builder, "cpu", tree, "--build-arg", f"TORCH_INDEX={os.environ.get('TORCH_INDEX', '')}")


class Container:
    """A container of an image: its files, and commands run in it as some user."""

    def __init__(self, builder: Builder, image: str) -> None:
        self.builder, self.settings = builder, builder.inspect(image)
        self.name = builder("from", image).stdout.strip()
        self.root = Path(builder("mount", self.name).stdout.strip())

    def command(self, *words: str, user: str = "", volumes: tuple[str, ...] = (), **env: str) -> list[str]:
        """Return the command line that runs `words` behind the entry point of the image."""
        flags = ["--user", user or self.settings["User"]]
        flags += [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
        flags += [word for volume in volumes for word in ("--volume", volume)]
        return ["run", *flags, self.name, "--", *self.settings["Entrypoint"], *words]

    def run(self, *words: str, user: str = "", volumes: tuple[str, ...] = (), **env: str) -> str:
        command = self.command(*words, user=user, volumes=volumes, **env)
        return self.builder(*command, seconds=1800).stdout

    def ours(self) -> list[tuple[str, bytes]]:
        """Return all files outside the system and other projects' packages, by path."""
        packages = next(self.root.glob("opt/venv/lib/python3*/site-packages"))
        folders = [*packages.glob("mlsys*"), *(self.root / n for n in ("home", "root", "tmp", "srv", "src", "images"))]
        folders += [each for each in (self.root / "opt").iterdir() if each.name != "venv"]
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        files = (path for path in files if not (path.suffix == ".pyc" and source_of(path).exists()))
        return [(str(path.relative_to(self.root)), path.read_bytes()) for path in files]


def source_of(bytecode: Path) -> Path:
    return bytecode.parent.parent / f"{bytecode.name.split('.')[0]}.py"


@pytest.fixture(scope="module")
def student(builder: Builder, cpu: str) -> Container:
    return Container(builder, cpu)


def failed_tests(student: Container, name: str, answers: dict[str, str]) -> list[str]:
    """Execute the lab of the image with these answers, as the user of the image; return the visible tests that fail."""
    folder = student.root / f"home/jovyan/labs/{LAB}"
    notebook = nbformat.read(folder / f"{LAB}.ipynb", as_version=4)
    for cell in notebook.cells:
        if is_task(cell):
            cell.source = answers.get(cell.metadata.nbgrader.grade_id, cell.source)
    nbformat.write(notebook, folder / name)
    os.chown(folder / name, *map(int, student.settings["User"].split(":")))
    student.run("jupyter", "nbconvert", "--execute", "--inplace", "--allow-errors", f"labs/{LAB}/{name}")
    notebook = nbformat.read(folder / name, as_version=4)
    tests = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("points")]
    assert len(tests) > 5
    assert all(cell.execution_count for cell in tests)
    return [c.metadata.nbgrader.grade_id for c in tests if any(o.output_type == "error" for o in c.outputs)]


def test_the_students_image_runs_lab03_without_root(student):
    cells = source_notebook(read_lab(ROOT, LAB)).cells
    solutions = {cell.metadata.nbgrader.grade_id: cell.source for cell in cells if is_task(cell)}
    assert len(solutions) > 3
    assert failed_tests(student, "unsolved.ipynb", {}), "tests that pass without a solution test nothing"
    assert failed_tests(student, "solved.ipynb", solutions) == []


def is_task(cell: nbformat.NotebookNode) -> bool:
    nbgrader = cell.metadata.get("nbgrader", {})
    return bool(nbgrader.get("solution")) and cell.cell_type == "code"


def test_a_person_of_a_hub_has_a_name_and_may_write(student):
    user = {"user": f"{uid_of('ada')}:100", "JUPYTERHUB_USER": "ada"}
    assert student.run("id", "-un", **user).strip() == "ada"
    student.run("touch", "labs/new", f"labs/{LAB}/new", "new", **user)
    assert (student.root / "home/jovyan/new").stat().st_uid == uid_of("ada")
    assert student.run("sh", "-c", "touch /opt/venv/new || echo refused", **user).strip() == "refused"


def test_the_start_command_serves_jupyterlab(student):
    socket, port = bind_unused_port()
    socket.close()
    command = [*student.builder.base, *student.command(*student.settings["Cmd"], JUPYTER_PORT=str(port))]
    health = student.settings["Healthcheck"]["Test"][1:]
    server = subprocess.Popen(
        command, env=student.builder.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def is_well() -> bool:
        assert server.poll() is None
        asked = student.command(*health, JUPYTER_PORT=str(port))
        return student.builder(*asked, check=False).returncode == 0

    try:
        until("a healthy server", is_well)
    finally:
        server.terminate()
        server.wait(60)


def test_no_answer_is_in_the_students_image_and_all_are_in_the_courses(builder, cpu, tmp_path):
    hidden = hidden_lines(read_labs(ROOT))
    student = Container(builder, cpu)  # a new one: the other tests write solutions into theirs
    assert search(student.ours(), hidden) == []
    names = {path.name for path in student.root.rglob("*mlsys*")} | {path.name for path in student.root.iterdir()}
    assert not [name for name in names if "grading" in name]

    course = Container(builder, built(builder, "course", ROOT, "--build-arg", f"STUDENT={cpu}"))
    assert len(search(course.ours(), hidden)) > 100
    uid, gid = map(int, course.settings["User"].split(":"))
    folders = {"/srv/course": tmp_path / "course", "/srv/nbgrader/exchange": tmp_path / "exchange"}
    for folder in folders.values():
        folder.mkdir()
        os.chown(folder, uid, gid)
    volumes = tuple(f"{here}:{there}" for there, here in folders.items())
    assert course.run("id", "-un", volumes=volumes).strip() == "mlsys"
    course.run(*course_pod()["spec"]["initContainers"][0]["command"], volumes=volumes)
    assert (tmp_path / "course/source" / LAB / f"{LAB}.ipynb").exists()
    assert "0.2.0" in course.run("labkit", "--version", volumes=volumes)


def test_the_gpu_image_has_torch_with_cuda(builder, tree):
    # Wheels on this machine's disk may be the CPU build, which pip would prefer.
    gpu = Container(builder, built(builder, "gpu", tree, without=("find-links",)))
    told = gpu.run("python", "-c", "import torch; print(torch.version.cuda, torch.cuda.is_available())")
    assert told.split()[0].startswith("13.")
    assert search(gpu.ours(), hidden_lines(read_labs(ROOT))) == []
